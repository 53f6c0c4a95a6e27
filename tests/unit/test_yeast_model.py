"""The folder of the bundled model that `runs/yeast_model.py` writes."""

import gzip
import json
import os
import re
import tomllib
from argparse import Namespace
from pathlib import Path

import pytest

from carbon.errors import UserError
from carbon.genome import Consequences, Interval, Reference, VcfReader, read_annotation
from carbon.io.files import sha256_of_file
from carbon.model import save_model
from carbon.pretrained import BUNDLED_MODELS
from runs import yeast_model
from tests.helpers.files import random_bases, write_fasta
from train.config import TrainConfig

ROOT = Path(__file__).parents[2]
ENTRY = BUNDLED_MODELS["yeast"]
YEAST = Path(os.environ.get("CARBON_DATA", "")) / "yeast"
RESULTS = {
    "tasks": {
        "heldout_likelihood": {
            "values": {
                "yeast": {"value": 1.2987, "low": 1.2901, "high": 1.3055},
                "Markov 6": {"value": 1.3544},
            },
            "notes": ["9 bases", "none of its 8 31-mers occurs in the training records"],
        }
    }
}
_MEASURED = {"AUROC": {"value": 0.983, "low": 0.971, "high": 0.99234}}
SCORED = {"missense": {"delta": _MEASURED}, "new stops": {"delta": _MEASURED, "jsd": _MEASURED}}
RUN_CARD = "".join(
    f"\n## {name}\n\nThe {name} of the run.\n"
    for name in ("Use", "Training", "Data", "Results", "Limits")
)


@pytest.fixture
def genome(tmp_path):
    """A FASTA and a GTF of three contigs, one of whose names begins as another's does."""
    contigs = {"VIII": random_bases(601, 1), "VI": random_bases(90, 2), "VIIIa": "ACGT"}
    fasta = write_fasta(tmp_path / "genome.fa.gz", contigs, width=50)
    genes = [
        f'{name}\tx\t{kind}\t{start}\t{start + 29}\t.\t-\t.\tgene_id "{name}"; '
        f'transcript_id "{name}.1";\n'
        for name, start in (("VI", 1), ("VIII", 61))
        for kind in ("gene", "transcript", "exon")
    ]
    text = "#!genome-build R64-1-1\n" + "".join(genes)
    (tmp_path / "genes.gtf.gz").write_bytes(gzip.compress(text.encode()))
    return fasta, tmp_path / "genes.gtf.gz", contigs


def material(folder: Path, network, genome) -> dict[str, Path]:
    """Lay out what a run, a corpus and an evaluation leave, under a folder of any name."""
    work, run, corpus = (folder / name for name in ("work", "run", "corpus"))
    evaluations = {"heldout": RESULTS, "variant_scores": SCORED}
    for path in (work / "export", *(work / "eval" / name for name in evaluations), run, corpus):
        path.mkdir(parents=True)
    save_model(network, work / "model")
    (work / "export" / "curves.png").write_bytes(b"a picture")
    (work / "export" / "README.md").write_text(RUN_CARD)
    words = [f"output='{run}'", f"data.corpus='{corpus}'", "seed=7"]
    recipe = TrainConfig.load(ROOT / "train" / "recipes" / "yeast.toml", words)
    (run / "config.toml").write_text(recipe.to_toml())
    inputs = [{"path": str(folder / p.name), "sha256": sha256_of_file(p)} for p in genome[:2]]
    one = {"title": "genome", "recipe": {}, "files": inputs}
    manifest = {"recipe": {"output": str(corpus)}, "inputs": [one]}
    manifest |= {"held_out": ["VIII:1-601"], "outputs": {}, "sources": {}}
    (corpus / "manifest.json").write_text(json.dumps(manifest))
    for name, results in evaluations.items():
        (work / "eval" / name / "results.json").write_text(json.dumps(results))
    return {"run": run, "corpus": corpus, "work": work}


def arguments(parts, output, genome):
    return Namespace(**parts, output=output, genome=genome[0], annotation=genome[1])


def make(folder, network, genome):
    parts = material(folder, network, genome)
    return yeast_model.make_folder(arguments(parts, folder / "made", genome))


@pytest.fixture
def made(tmp_path, network, genome):
    return make(tmp_path / "here", network, genome)


def test_the_folder_has_everything_and_no_path(made, tmp_path, genome):
    with Reference(made / "VIII.fa.gz") as cut:
        assert cut.contig_lengths_bp == {"VIII": 601}
        assert cut.fetch(Interval("VIII", 0, 601)) == genome[2]["VIII"]
        (gene,) = read_annotation(made / "VIII.gtf.gz", cut).genes
    assert (gene.gene_id, gene.interval) == ("VIII", Interval("VIII", 60, 90))
    assert gzip.decompress((made / "VIII.gtf.gz").read_bytes()).startswith(b"#!genome-build R64")
    assert sorted(path.name for path in made.iterdir()) == sorted(
        ["README.md", "VIII.fa.gz", "VIII.gtf.gz", "ENO2.vcf", "config.json", "corpus.json",
         "curves.png", "generation_config.json", "model.safetensors", "recipe.toml", "results.json",
         "tokenizer.json", "tokenizer_config.json"]
    )  # fmt: skip
    for path in made.iterdir():
        content = path.read_bytes()
        if path.suffix == ".gz":
            assert content[4:8] == bytes(4), "the header's time"
            content = gzip.decompress(content)
        assert str(tmp_path).encode() not in content, path
        assert path.stat().st_mode & 0o444 == 0o444, "others read a wheel too"
    recipe = tomllib.loads((made / "recipe.toml").read_text())
    assert recipe["seed"] == 7 and recipe["output"] == "runs/yeast"
    corpus = json.loads((made / "corpus.json").read_text())
    assert [file["path"] for file in corpus["inputs"][0]["files"]] == [p.name for p in genome[:2]]
    assert corpus["inputs"][0]["files"][0]["sha256"] == sha256_of_file(genome[0])
    results = json.loads((made / "results.json").read_text())
    assert results == {"heldout": RESULTS, "variant_scores": SCORED}
    text = (made / "README.md").read_text()
    assert "| heldout, heldout_likelihood, yeast | 1.2987 | 1.2901 | 1.3055 |" in text
    assert "| heldout, heldout_likelihood, Markov 6 | 1.3544 |  |  |" in text
    assert "\n| score | missense | new stops |\n|---|---|---|\n| delta | 0.983 [0.971" in text
    assert "\n| jsd |  | 0.983 [0.971, 0.992] |\n\n## Training" in text
    assert "was held out of training; none of its 8 31-mers occurs in" in text
    assert re.findall(r"The (\w+) of the run", text) == ["Training", "Data", "Results"]


def test_equal_input_gives_equal_bytes_wherever_it_lies(made, tmp_path, network, genome):
    other = make(tmp_path / "b/c", network, genome)
    assert {p.name: p.read_bytes() for p in made.iterdir()} == {
        p.name: p.read_bytes() for p in other.iterdir()
    }


@pytest.mark.skipif(not YEAST.is_dir(), reason="CARBON_DATA is not set")
@pytest.mark.nightly
def test_the_example_variants_do_what_is_said_of_them(tmp_path):
    (fasta,), (gtf,) = YEAST.glob("*.fa.gz"), YEAST.glob("*.gtf.gz")
    (tmp_path / "v.vcf").write_text(yeast_model.vcf_of(ENTRY))
    with Reference(fasta) as reference:
        consequences = Consequences(reference, read_annotation(gtf, reference))
        rows = VcfReader(tmp_path / "v.vcf", reference)
        found = [consequences.of(v).consequence for row in rows for v in row.variants]
    assert found == ["start_lost", "missense_variant", "frameshift_variant", "stop_gained",
                     "synonymous_variant"]  # fmt: skip


def test_what_is_too_large_leaves_nothing(tmp_path, network, genome, monkeypatch):
    for limit in ("MOST_WEIGHTS_BYTES", "MOST_GENOME_BYTES"):
        with monkeypatch.context() as patch:
            patch.setattr(yeast_model, limit, 100)
            with pytest.raises(UserError, match="may have 100"):
                make(tmp_path / limit, network, genome)
        assert not (tmp_path / limit / "made").exists()


@pytest.mark.parametrize(
    ("contig", "message"),
    [("VIII", r"corpus: was not built from .*other\.fa"), ("chrVIII", r"other\.fa: .*VIII")],
)
def test_another_genome_leaves_nothing(tmp_path, network, genome, contig, message):
    other = write_fasta(tmp_path / "other.fa", {contig: "ACGT"})
    of_other = (other, *genome[1:])
    parts = material(tmp_path / "here", network, genome if contig == "VIII" else of_other)
    with pytest.raises(UserError, match=message):
        yeast_model.make_folder(arguments(parts, tmp_path / "made", of_other))
    assert not (tmp_path / "made").exists()


def test_the_recipes_hold_the_same_contig_out_and_fit_the_bundled_model():
    corpus = tomllib.loads((ROOT / "data_pipeline/recipes/yeast_bundled_model.toml").read_text())
    (assembly,) = corpus["assemblies"]
    assert assembly["holdout"] == [ENTRY.held_out_contig] and assembly["name"] == ENTRY.assembly
    recipe, arm = (
        TrainConfig.load(ROOT / "train/recipes" / name) for name in ("yeast.toml", "yeast_fns.toml")
    )
    assert recipe.longest_context_tokens == 512
    assert {name for s in recipe.phases for name in s.mixture} <= set(assembly["sources"])
    assert num_tokens(recipe) == num_tokens(arm), "arms of one length"


def num_tokens(recipe: TrainConfig) -> int:
    return sum(phase.tokens for phase in recipe.phases)
