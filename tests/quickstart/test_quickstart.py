"""The quickstart, small, from the shell's side, and then the README's commands on what it made."""

import gzip
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from carbon.genome import read_sequences
from tests.helpers.shell import ROOT, run_shell, shell_environment

pytestmark = pytest.mark.nightly  # tests/unit/test_runs.py has a smaller one
SHORT = [
    "--set", "phases.0.context_tokens=128", "--set", "phases.1.context_tokens=128",
    "--set", "phases.0.batch_rows=4", "--set", "phases.1.batch_rows=4",
]  # fmt: skip
SMALL = [
    *SHORT, "--set", "phases.0.tokens=7500", "--set", "phases.0.warmup_steps=5",
    "--set", "phases.1.tokens=5000", "--set", "checkpoint.every_steps=10",
]  # fmt: skip
SIZES = {"GENOME_BP": "150000", "VARIANTS": "60", "SITES": "40"}


def quickstart(folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(ROOT / "runs" / "quickstart.sh"), *words]
    environment = shell_environment(**settings)
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    done = quickstart(folder, *SMALL, **SIZES)
    assert done.returncode == 0, done.stderr
    return folder


def test_it_leaves_what_it_promises(small):
    output = small / "quickstart"
    results = json.loads((output / "results.json").read_text())
    training = results["training"]
    assert training["phase_changes"] == [16]  # 7,500 tokens are 15 batches of 4 x 128
    assert 1.3 < training["nats_per_base_first"] < 1.45
    page = (output / "report.html").read_text()
    assert page.count("<svg") >= 6 and "Generated" in page
    with gzip.open(output / "scored.vcf.gz", "rt") as lines:
        assert sum("CARBON_DELTA=" in line for line in lines if line[0] != "#") > 20
    assert (output / "scored.vcf.gz.tbi").exists()


@pytest.mark.parametrize(("annotated", "processes"), [(True, "2"), (False, "1")])
def test_your_own_genome(small, tmp_path, annotated, processes):
    """The simulated genome, gzipped and without its labels; without genes there are no variants."""
    for name in ("genome.fa", "genes.gff3"):
        text = (small / "quickstart" / "genome" / name).read_bytes()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text))
    files = {"GENOME": "genome.fa.gz"} | ({"ANNOTATION": "genes.gff3.gz"} if annotated else {})
    more = {"MINUTES": "0.1", "VARIANTS": "40", "SITES": "20", "HOLDOUT": "chr2"}
    done = quickstart(tmp_path, *SHORT, **files, **more, PROCESSES=processes, OUTPUT="mine")
    assert done.returncode == 0, done.stderr
    assert "tokens per second" in done.stderr and "held out: chr2:" in done.stderr
    assert "fewer than 3,000,000 tokens" in done.stderr
    results = json.loads((tmp_path / "mine" / "results.json").read_text())
    assert ("labelled_variants" in results["tasks"]) == annotated
    likelihood = results["tasks"]["heldout_likelihood"]
    assert 1 < likelihood["values"]["model"]["value"] < 2 and likelihood["differences"]
    report = (tmp_path / "mine" / "report.html").read_text()
    assert "31-mer" in report and re.search("is ahead|no difference is shown", report)


def code_blocks(path: Path, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", path.read_text(), flags=re.DOTALL)


def genome_in(folder: Path, small: Path) -> Path:
    for name in ("genome.fa", "genes.gff3"):
        shutil.copy(small / "quickstart" / "genome" / name, folder / name)
    return folder / "genome.fa"


def test_the_commands_of_the_tokenizer_page(small, tmp_path):
    (block,) = code_blocks(ROOT / "docs" / "tokenizers.md", "bash")
    genome = genome_in(tmp_path, small)
    run_shell(block, tmp_path)
    assert dict(read_sequences(tmp_path / "again.fa")) == {
        name: bases.upper() for name, bases in read_sequences(genome)
    }


def test_the_commands_of_the_corpus_page(small, tmp_path):
    """They build all that a eukaryote gives, look at it, trace a record and write the report."""
    block = code_blocks(ROOT / "docs" / "corpus.md", "bash")[0]
    genome_in(tmp_path, small)
    recipes = "data_pipeline/recipes/"
    printed = run_shell(block.replace(recipes, f"{ROOT}/{recipes}"), tmp_path)
    assert "every base agrees with genome.fa" in printed
    assert "mrna_splice" in (tmp_path / "curated.html").read_text()


def test_the_commands_of_the_training_page(small, tmp_path):
    """They build, look at the plan and train under torchrun, with a shorter run put in."""
    (block,) = code_blocks(ROOT / "docs" / "training.md", "bash")
    genome_in(tmp_path, small)
    short = f"{ROOT}/train/recipes/tiny.toml --set phases.0.warmup_steps=1"
    for phase in (0, 1):  # two steps of each
        short += f" --set phases.{phase}.tokens=2048 --set phases.{phase}.batch_rows=4"
    printed = run_shell(block.replace("train/recipes/tiny.toml", short), tmp_path)
    assert '# plan: {"parameters": 1279104' in printed
    assert (tmp_path / "runs" / "mine" / "export" / "model.safetensors").exists()
