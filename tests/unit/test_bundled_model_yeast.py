"""The bundled model as it is: whole, small, honest, and one that has learned yeast."""

import itertools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from safetensors import safe_open

import carbon
from carbon.genome import (
    STOP_CODONS,
    Consequences,
    Interval,
    Reference,
    Variant,
    read_annotation,
)
from carbon.genome.genome import Genome
from carbon.inference.variants.background import Background
from carbon.model import model_folder
from demo.lab import Lab
from demo.panels.variant import VariantEffect
from demo.variant_views import title_of
from tests.helpers.bundled_model import real_entry
from tests.helpers.demo import visited

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "models.md"
LENGTH_BP = 562_643  # of chromosome VIII in R64-1-1, by SGD and Ensembl
ENO2 = Interval("VIII", 451_326, 452_640)
FILES = {
    "ENO2.vcf", "README.md", "VIII.fa.gz", "VIII.gtf.gz", "background.json", "config.json",
    "corpus.json", "curves.png", "learning.npz",
    "generation_config.json", "model.safetensors", "recipe.toml", "results.json",
    "tokenizer.json", "tokenizer_config.json",
}  # fmt: skip


@pytest.fixture(scope="module")
def yeast():
    return real_entry("yeast")


def test_it_is_whole_and_small(yeast):
    sizes = {path.name: path.stat().st_size for path in yeast.folder.iterdir()}
    assert sizes.keys() == FILES
    for path in yeast.folder.iterdir():
        if path.suffix in (".md", ".json", ".toml"):
            assert not re.search(r"/(?:home|work|root|tmp|Users|mnt)/", path.read_text()), path
    assert sizes["model.safetensors"] <= 10_000_000, "the wheel's limit for weights"
    assert sizes["VIII.fa.gz"] + sizes["VIII.gtf.gz"] < 400_000, (
        "the limit for chromosome and genes"
    )
    found = model_folder("yeast")
    assert found.config["max_position_embeddings"] == 512
    assert 1_000_000 <= found.num_parameters <= 5_000_000
    with safe_open(yeast.folder / "model.safetensors", framework="np") as weights:
        dtypes = {weights.get_slice(key).get_dtype() for key in weights.keys()}  # noqa: SIM118
    assert dtypes == {"BF16"}


def test_every_kind_of_its_background_has_variants_of_its_own(yeast):
    """With fewer than 100 the percentile is among all SNVs, and not among those of the kind."""
    background = Background.read(yeast.folder / "background.json")
    assert background.settings["dtype"] == "float32"
    assert 0 < background.tolerances["bfloat16"]["percentile"] < 10
    short = {kind: each["variants"] for kind, each in background.table.items()
             if each["variants"] < 100 or "quantiles" not in each}  # fmt: skip
    assert short == {}
    # R64-1-1 has no UTRs; all ten other kinds of SNV are on chromosome VIII.
    assert sum(kind.startswith("snv ") for kind in background.table) == 10


def test_the_chromosome_and_a_gene_that_people_know(yeast):
    with Reference(yeast.genome) as genome:
        assert genome.contig_lengths_bp == {"VIII": LENGTH_BP}
        genes = {gene.name: gene for gene in read_annotation(yeast.annotation, genome).genes}
        eno2 = genome.fetch(ENO2)
    assert genes["ENO2"].gene_id == "YHR174W" and genes["ENO2"].interval == ENO2
    # The protein begins M A V S K V Y A R, as that of SGD does.
    assert eno2.startswith("ATGGCTGTCTCTAAAGTTTACGCTAGA") and eno2[168:171] == "TGG"
    assert eno2[-3:] == "TAA"


def test_the_corpus_held_it_out(yeast):
    manifest = json.loads((yeast.folder / "corpus.json").read_text())
    assert manifest["held_out"] == [f"VIII:1-{LENGTH_BP}"]
    assert manifest["sources"]["genome"]["test"]["bases"] == LENGTH_BP


def test_the_card_has_the_figures_of_the_results(yeast):
    card = (yeast.folder / "README.md").read_text()
    task = yeast.results["heldout"]["tasks"]["heldout_likelihood"]
    measured, num_bases = task["values"]["yeast"], task["notes"][0].partition(" ")[0]
    assert int(num_bases.replace(",", "")) > 0.98 * LENGTH_BP, "measured on a part of it"
    numbers = " | ".join(f"{measured[key]:.4f}" for key in ("value", "low", "high"))
    assert f"| heldout, heldout_likelihood, yeast | {numbers} |" in card
    assert measured["value"] == yeast.heldout_nats_per_base < math.log(4)


def test_the_card_begins_as_the_hub_reads_it(yeast):
    yaml = pytest.importorskip("yaml")
    front = yaml.safe_load((yeast.folder / "README.md").read_text().split("---\n")[1])
    assert (front["license"], front["library_name"]) == ("apache-2.0", "transformers")
    (model,) = front["model-index"]
    (result,) = model["results"]
    values = {metric["type"]: metric["value"] for metric in result["metrics"]}
    consequences = yeast.results["heldout"]["tasks"]["consequences"]["values"]["yeast"]
    assert values["nats_per_base"] == pytest.approx(yeast.heldout_nats_per_base, abs=5e-5)
    stops = consequences["groups"]["damage"]["stop_gained"]["value"]
    assert values["roc_auc"] == pytest.approx(stops, abs=5e-5)


def test_the_results_are_of_these_weights_which_have_learned_what_a_gene_is(yeast):
    """Twenty thousand bases near the mean; a gene is likelier than the same bases backwards."""
    with Reference(yeast.genome) as genome:
        starts = range(50_000, 550_000, 50_000)
        pieces = [genome.fetch(Interval("VIII", s, s + 2000)) for s in starts]
        eno2 = genome.fetch(ENO2)
    *scores, gene, backwards = carbon.load("yeast").score([*pieces, eno2, eno2[::-1]])
    nats = -sum(s.log_likelihood for s in scores) / sum(s.num_known_bases for s in scores)
    assert abs(nats - yeast.heldout_nats_per_base) < 0.05
    assert gene.log_likelihood > backwards.log_likelihood + 20


@pytest.mark.nightly
def test_the_page_of_it_runs_as_it_stands(yeast, tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    blocks = re.findall(r"```bash\n(.*?)```", PAGE.read_text(), re.DOTALL)
    commands = [each for each in blocks if "yeast_VIII/" in each]  # no downloads, no hours
    assert commands
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for words in ([sys.executable, "-c", code], ["bash", "-ec", "".join(commands)]):
        done = subprocess.run(
            words, cwd=tmp_path, env=os.environ | {"PATH": path, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        if words[1] == "-c":
            assert done.stdout.startswith("VIII:451496 ")
            assert float(done.stdout.split()[-1]) < 0, "a new stop codon is no gain"
    assert (tmp_path / "eno2.tsv").read_text().count("\n") == 7  # settings, names, five variants


@pytest.fixture(scope="module")
def trained():
    return carbon.load("yeast")


@pytest.mark.nightly  # a gene is likelier than it backwards, says a test above
def test_new_stop_codons_are_less_likely_than_synonymous_changes(yeast, trained):
    kinds: dict[str, list[Variant]] = {"stop_gained": [], "synonymous_variant": []}
    with Reference(yeast.genome) as genome:
        consequences = Consequences(genome, read_annotation(yeast.annotation, genome))
        for at in range(ENO2.start + 300, ENO2.start + 480):  # ENO2 has one exon and lies forward
            ref = genome.fetch(Interval("VIII", at, at + 1))
            for variant in (Variant("VIII", at, ref, alt) for alt in "ACGT" if alt != ref):
                kinds.get(consequences.of(variant).consequence, []).append(variant)
        means = {}
        for kind, variants in kinds.items():
            assert len(variants) >= 10
            scored = trained.score_variants(genome, variants, strands="both", window_bp=1024)
            means[kind] = np.mean([each.delta for each in scored])
    assert means["stop_gained"] < means["synonymous_variant"] - 1


@pytest.mark.nightly
def test_what_it_writes_behind_a_gene_keeps_the_frame(yeast, trained):
    """In the frame of the prompt there are fewer stop codons than beside it."""
    with Reference(yeast.genome) as genome:
        prompt = genome.fetch(Interval("VIII", ENO2.start, ENO2.start + 600))
    written = trained.generate([prompt] * 24, 240, seed=1)
    counts = [0, 0, 0]
    for text, frame in itertools.product(written, range(3)):
        counts[frame] += sum(text[i : i + 3] in STOP_CODONS for i in range(frame, 240 - 2, 3))
    assert counts[0] < 0.6 * min(counts[1:]), counts


ROWS = {  # consequence, lowest and highest delta in nats
    "E52* of ENO2": ("stop_gained", -40, -15),
    "E52K of ENO2": ("missense_variant", -10, 0),
    "E52E of ENO2": ("synonymous_variant", -10, 0),
}


@pytest.mark.nightly
def test_the_demo_opens_on_a_stop_that_the_model_finds_unlikely(yeast, trained, tmp_path):
    genome = Genome.open(yeast.genome, yeast.annotation)
    panel = VariantEffect(Lab(trained, "yeast", genome, tmp_path, yeast.known_genes))
    _, result, shown = visited(panel)
    rows = {title_of(row): row for row in result["alleles"]}
    assert next(iter(rows)) == "E52* of ENO2" and rows.keys() == ROWS.keys()
    for name, (term, low, high) in ROWS.items():
        assert rows[name]["effects"][0]["term"] == term and low < rows[name]["delta"] < high
    assert rows["E52* of ENO2"]["delta"] == min(row["delta"] for row in rows.values())
    assert "times less likely" in shown["verdict"]
