"""Verbs by several processes, started for real, and killed: the bytes are those of one."""

import json
import sys
from pathlib import Path

import pytest

from carbon.cli import main
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.processes import children_of, told_without_a_child, waits_for

ROOT = Path(__file__).parents[2]
BASES = random_bases(3000, 4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("many")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": BASES})
    records = [
        f"c\t{n}\t.\t{BASES[n - 1]}\t{'ACGT'['ACGT'.index(BASES[n - 1]) - 1]}\t.\t.\t."
        for n in range(1, 2600)
    ]
    write_vcf(folder / "in.vcf", records)
    return folder


def words(folder, output, *more):
    return [
        "variants", "--model", f"{folder}/model", "--reference", f"{folder}/r.fa",
        "--vcf", f"{folder}/in.vcf", "--window", "60", "--output", str(output), *more,
    ]  # fmt: skip


@pytest.fixture(scope="module")
def whole(folder):
    assert main(words(folder, folder / "whole.vcf.gz")) == 0
    return (folder / "whole.vcf.gz").read_bytes()


def test_two_processes_one_of_which_is_killed(start, folder, whole, tmp_path):
    """The child dies while it is at a block; its parent does that one, and writes."""
    output = tmp_path / "o.vcf.gz"
    blocks = tmp_path / ".o.vcf.gz.blocks"
    parent = start([sys.executable, "-m", "carbon", *words(folder, output, "--processes", "2")])
    told = told_without_a_child(parent, blocks)
    assert json.loads(told)["records"] == 2599
    assert output.read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.vcf.gz", "o.vcf.gz.tbi"]


@pytest.mark.nightly
def test_children_end_with_their_parent_and_one_process_goes_on(start, folder, whole, tmp_path):
    output = tmp_path / "o.vcf.gz"
    blocks = tmp_path / ".o.vcf.gz.blocks"
    parent = start([sys.executable, "-m", "carbon", *words(folder, output, "--processes", "2")])
    waits_for(lambda: len(list(blocks.glob("*.block"))) > 1)
    (child,) = children_of(parent)
    parent.kill()
    parent.communicate()
    waits_for(lambda: not Path(f"/proc/{child}").exists())
    assert not output.exists()
    assert main(words(folder, output)) == 2
    assert main(words(folder, output, "--resume")) == 0
    assert output.read_bytes() == whole
    assert not blocks.exists()
