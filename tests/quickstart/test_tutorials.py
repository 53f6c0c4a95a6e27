"""The tutorials as they stand: their commands run in order, and print what the pages show."""

import gzip
import math
import re
import shutil

import pytest
import torch
from transformers import LlamaForCausalLM

import carbon
from carbon.tokenizer import HYBRID
from carbon.tokenizer.tokenizers import HybridDNATokenizer
from tests.conftest import small_config
from tests.helpers.files import random_bases
from tests.helpers.shell import ROOT, run_shell

pytestmark = pytest.mark.nightly
TUTORIALS = ROOT / "docs" / "tutorials"
BLOCK = re.compile(r"```(\w+)(?: title=\"([^\"]+)\")?\n(.*?)```", re.DOTALL)
NUMBER = re.compile(r"^-?\d+(?:\.\d+)?$")


@pytest.mark.parametrize(
    "page",
    [
        "score-a-vcf",
        "fine-tune-on-a-task",
        "numbers-labels-and-tracks",
        "scan-a-gene",
        "read-an-evaluation",
    ],
)
def test_it_runs_and_prints_what_it_shows(page, tmp_path):
    """A block with a title is a file; `text` is what the commands before it have printed."""
    printed, shown = "", 0
    for language, title, block in BLOCK.findall((TUTORIALS / f"{page}.md").read_text("utf-8")):
        if title:
            (tmp_path / title).write_text(block, encoding="utf-8")
        elif language == "bash":
            printed = run_shell(block, tmp_path)
        elif language == "text":
            assert_alike(block, printed)
            shown += 1
    assert shown > 1


@pytest.mark.skipif(shutil.which("bcftools") is None, reason="bcftools is not installed")
def test_a_human_vcf_with_a_published_name(tmp_path, real_data):
    """The commands of the page; a random model has the name, and yeast stands for human files."""
    config = small_config(context_tokens=512)
    config.initializer_range = 0.1  # deltas below the limit of the page
    config.vocab_size = HYBRID.size
    config.pad_token_id = config.eos_token_id = HYBRID.pad
    torch.manual_seed(3)
    folder = tmp_path / "HuggingFaceBio" / "Carbon-3B"
    LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(folder)
    HybridDNATokenizer(real_data / "qwen3_bpe").save_pretrained(folder)
    write_human_files(tmp_path)
    page = (TUTORIALS / "score-a-human-vcf.md").read_text("utf-8")
    for language, _, block in BLOCK.findall(page):
        if language == "bash":
            printed = run_shell(block, tmp_path)
    with gzip.open(tmp_path / "scored.vcf.gz", "rt") as scored:
        records = [line.split("\t") for line in scored if line[0] != "#"]
    assert [record[3:5] for record in records[:2]] == [["T", "A"], ["T", "C"]], "split by norm"
    assert all("CARBON_DELTA=" in record[7] for record in records)
    low = (tmp_path / "low.tsv").read_text().splitlines()
    assert low and all(float(line.split("\t")[4]) < -3 for line in low)
    assert len(printed.splitlines()) == 1 + len(low)


def write_human_files(folder):
    """Write yeast's chromosome VIII, its genes and variants under the names that the page uses."""
    yeast = carbon.pretrained.entry("yeast")
    with gzip.open(yeast.genome, "rt") as genome:
        (folder / "hg38.fa").write_text(f"{genome.read()}>chrM\n{random_bases(600)}\n")
    shutil.copy(yeast.annotation, folder / "genes.gff3.gz")
    text = yeast.variants.read_text().replace("451328\t.\tT\tA", "451328\t.\tT\tA,C")
    with gzip.open(folder / "my.vcf.gz", "wt") as vcf:
        vcf.write(text)


def assert_alike(told: str, printed: str) -> None:
    """Hold what a page shows against what was printed; last digits of numbers may differ."""
    told_words, words = (re.findall(r'[^\s{}()\[\],:"]+', text) for text in (told, printed))
    assert len(told_words) == len(words), f"{told}\n{printed}"
    for expected, found in zip(told_words, words, strict=True):
        if NUMBER.match(expected) and NUMBER.match(found):
            assert math.isclose(float(expected), float(found), rel_tol=0.02, abs_tol=0.02)
        else:
            assert expected == found, f"{told}\n{printed}"


def test_training_on_a_genome(tmp_path):
    """The commands of the page with the least of a training, so that they take a minute."""
    page = (TUTORIALS / "train-on-your-genome.md").read_text(encoding="utf-8")
    short = [f"--set phases.{n}.context_tokens=128" for n in (0, 1)]
    start = f"VARIANTS=40 SITES=20 bash {ROOT}/runs/quickstart.sh {' '.join(short)}"
    for language, _, block in BLOCK.findall(page):
        if language == "bash":
            less_of_it = block.replace("MINUTES=2", "MINUTES=0.1")
            run_shell(less_of_it.replace("bash runs/quickstart.sh", start), tmp_path)
    assert (tmp_path / "viii" / "report.html").exists()
