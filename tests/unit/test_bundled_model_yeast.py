"""The bundled model as it is: whole, small, honest, and one that has learned yeast."""

import gzip
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from safetensors import safe_open

import carbon
from carbon.genome import Interval, Reference, read_annotation
from carbon.inference.variants.background import Background
from carbon.model import model_folder
from tests.helpers.bundled_model import real_entry

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
    snvs = {kind for kind in background.table if kind.startswith("snv ")}
    # R64-1-1 has no UTRs; all other kinds of SNV are on chromosome VIII.
    assert snvs == {
        f"snv {term}" for term in (
            "intergenic_variant", "intron_variant", "missense_variant", "splice_variant",
            "splice_region_variant",
            "non_coding_transcript_exon_variant", "start_lost", "stop_gained", "stop_lost",
            "synonymous_variant",
        )
    }  # fmt: skip


def test_nothing_in_it_tells_a_path(yeast):
    for path in yeast.folder.iterdir():
        if path.suffix in (".md", ".json", ".toml"):
            found = re.findall(r"/(?:home|work|root|tmp|Users|mnt)/", path.read_text())
            assert not found, f"{path.name} names folders of a machine"


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


def test_the_card_says_what_of_the_held_out_chromosome_has_copies_in_training(yeast):
    """Counted by Biopython and a set of strings: 46,682 of 562,613 places of the chromosome.

    The corpus cuts it into 12 records, so that 11 x 30 places have no 31-mer.
    """
    card = (yeast.folder / "README.md").read_text()
    found = re.search(
        r"8\.3% of its 31-mers also occur in the training records \(([\d,]+) of ([\d,]+)\)", card
    )
    shared, kmers = (int(number.replace(",", "")) for number in found.groups())
    assert kmers == 562_613 - 11 * 30 and 46_682 - 11 * 30 <= shared <= 46_682
    assert "never seen" not in card


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


def test_the_results_are_of_these_weights(yeast):
    """A slice of what was measured, again: twenty thousand bases, near the mean."""
    with Reference(yeast.genome) as genome:
        starts = range(50_000, 550_000, 50_000)
        pieces = [genome.fetch(Interval("VIII", s, s + 2000)) for s in starts]
    scores = list(carbon.load("yeast").score(pieces))
    nats = -sum(s.log_likelihood for s in scores) / sum(s.num_known_bases for s in scores)
    assert abs(nats - yeast.heldout_nats_per_base) < 0.05


def test_it_has_learned_what_a_gene_is(yeast):
    """A gene is likelier than the same bases backwards, by more than chance."""
    with Reference(yeast.genome) as genome:
        eno2 = genome.fetch(ENO2)
    model = carbon.load("yeast")
    gene, backwards = (score.log_likelihood for score in model.score([eno2, eno2[::-1]]))
    assert gene > backwards + 20


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


def test_the_gzip_headers_tell_no_time(yeast):
    for path in (yeast.genome, yeast.annotation):
        assert path.read_bytes()[4:8] == bytes(4) and gzip.decompress(path.read_bytes())
