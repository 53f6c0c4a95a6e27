"""The quickstart, small, from the shell's side, and then the README's commands on what it made."""

import gzip
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from carbon.genome import read_sequences
from tests.helpers.shell import ROOT, run_shell

pytestmark = pytest.mark.nightly  # tests/unit/test_quickstart_runs.py has a smaller one
SHORT = [
    "--set", "phases.0.context_tokens=128", "--set", "phases.1.context_tokens=128",
    "--set", "phases.0.batch_rows=4", "--set", "phases.1.batch_rows=4",
]  # fmt: skip
SMALL = [
    *SHORT, "--genome-bp", "150000", "--variants", "60", "--sites", "40",
    "--set", "phases.0.tokens=7500", "--set", "phases.0.warmup_steps=5",
    "--set", "phases.1.tokens=5000", "--set", "checkpoint.every_steps=10",
]  # fmt: skip
PROMISED = (
    "sequence_recovery", "markov_recovery", "variant_auroc", "switch_step",
    "nats_per_base_start", "nats_per_base_end", "heldout_nats_per_base", "seconds",
)  # fmt: skip


def quickstart(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "scripts" / "quickstart.py"), *words]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True)


@pytest.fixture(scope="module")
def small(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("small")
    done = quickstart(folder, *SMALL)
    assert done.returncode == 0, done.stderr
    return folder


def test_it_leaves_what_it_promises(small):
    output = small / "quickstart"
    results = json.loads((output / "results.json").read_text())
    assert set(PROMISED) <= set(results)
    assert results["switch_step"] == 16  # 7,500 tokens are 15 batches of 4 x 128
    assert 1.3 < results["nats_per_base_start"] < 1.45
    page = (output / "report.html").read_text()
    assert page.count("<svg") == 3 and "Generated" in page
    with gzip.open(output / "scored.vcf.gz", "rt") as lines:
        assert sum("CARBON_DELTA=" in line for line in lines if line[0] != "#") > 20
    assert (output / "scored.vcf.gz.tbi").exists()


def test_it_goes_on_where_it_stopped(small, tmp_path):
    shutil.copytree(small / "quickstart", tmp_path / "quickstart")
    output = tmp_path / "quickstart"
    state = json.loads((output / "quickstart.json").read_text())
    for name in ("generate", "report"):
        del state["done"][name]
    (output / "quickstart.json").write_text(json.dumps(state))
    (output / "report.html").unlink()
    done = quickstart(tmp_path, *SMALL)
    assert done.returncode == 0, done.stderr
    assert "going on after: simulate, build, train, score, evaluate" in done.stderr
    assert "train.launch" not in done.stderr
    # The headers name the model by its place, which is the only difference.
    before = (small / "quickstart" / "generated.fa").read_text()
    again = (output / "generated.fa").read_text()
    assert again.replace(str(output), str(small / "quickstart")) == before
    assert (output / "report.html").exists()
    again = quickstart(tmp_path, *SMALL)
    assert again.returncode == 0 and again.stderr.startswith(f"finished already: report {output}/")
    other = quickstart(tmp_path, *SMALL, "--seed", "9")
    assert other.returncode == 2 and "--seed was 0, is 9" in other.stderr


def test_your_own_genome(small, tmp_path):
    """The simulated genome, zipped and without its truth, as a stranger's."""
    for name in ("genome.fa", "genes.gff3"):
        text = (small / "quickstart" / "genome" / name).read_bytes()
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(text))
    words = ["--genome", "genome.fa.gz", "--annotation", "genes.gff3.gz", "--minutes", "0.1"]
    more = ["--variants", "40", "--sites", "20", *SHORT]
    done = quickstart(tmp_path, *words, *more, "--output", "mine", "--holdout", "chr2")
    assert done.returncode == 0, done.stderr
    assert "tokens a second" in done.stderr and "held out: chr2:" in done.stderr
    assert done.stderr.startswith("about 0.1 minutes; --minutes changes that")
    assert "fewer than 3,000,000 tokens" in done.stderr
    timed = done.stderr.partition("timing a few steps first")[2].partition("tokens a second")[0]
    assert len(timed.splitlines()) == 3  # the command, and the speed
    log = (tmp_path / "mine" / "steps.log").read_text()
    assert "training from step 0 to 32" in log and "-m train --config" in log
    results = json.loads((tmp_path / "mine" / "results.json").read_text())
    assert results["variant_auroc"] is not None
    report = (tmp_path / "mine" / "report.html").read_text()
    assert re.search("(ahead of|behind|model and) the order-6 Markov model", report)
    assert results["overlap_with_train"] is not None and "31-mers" in report


def test_a_genome_without_annotation(small, tmp_path):
    """It trains on chunks and measures likelihood and recovery; variants there are none."""
    shutil.copy(small / "quickstart" / "genome" / "genome.fa", tmp_path / "genome.fa")
    words = ["--genome", "genome.fa", "--minutes", "0.1", "--sites", "20", *SHORT]
    done = quickstart(tmp_path, *words, "--processes", "1", "--output", "mine")
    assert done.returncode == 0, done.stderr
    assert "no variants of known effect: no annotation; the report" in done.stderr
    results = json.loads((tmp_path / "mine" / "results.json").read_text())
    assert results["variant_auroc"] is None and 0 <= results["sequence_recovery"] <= 1
    assert 1 < results["heldout_nats_per_base"] < 2
    assert (tmp_path / "mine" / "report.html").exists()


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
    (block,) = code_blocks(ROOT / "docs" / "corpus.md", "bash")
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
    for stage in (0, 1):  # two steps of each
        short += f" --set phases.{stage}.tokens=2048 --set phases.{stage}.batch_rows=4"
    printed = run_shell(block.replace("train/recipes/tiny.toml", short), tmp_path)
    assert '# plan: {"parameters": 1279104' in printed
    assert (tmp_path / "runs" / "mine" / "export" / "model.safetensors").exists()
