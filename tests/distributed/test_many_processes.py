"""A command with two processes, of which any is killed: the bytes are the same."""

import os
import signal
import sys
from pathlib import Path

import pytest

from carbon.cli import main
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.processes import waits_for, workers_of

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


def num_kept(folder) -> int:
    path = folder / ".o.vcf.gz.progress"
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


def two_processes(start, folder, tmp_path):
    command = words(folder, tmp_path / "o.vcf.gz", "--processes", "2")
    driver = start([sys.executable, "-m", "carbon", *command])
    waits_for(lambda: num_kept(tmp_path) > 1)
    return driver


@pytest.mark.nightly
def test_a_worker_is_killed(start, folder, whole, tmp_path):
    driver = two_processes(start, folder, tmp_path)
    os.kill(workers_of(driver)[0], signal.SIGKILL)
    told, said = driver.communicate(timeout=500)
    assert driver.returncode == 0, said
    assert "a worker died (SIGKILL); another one replaces it" in said and '"records": 2599' in told
    assert (tmp_path / "o.vcf.gz").read_bytes() == whole
    assert sorted(path.name for path in tmp_path.iterdir()) == ["o.vcf.gz", "o.vcf.gz.tbi"]


@pytest.mark.nightly
def test_workers_end_with_their_driver_and_one_process_goes_on(start, folder, whole, tmp_path):
    driver = two_processes(start, folder, tmp_path)
    workers = workers_of(driver)
    assert len(workers) >= 1
    driver.kill()
    driver.communicate()
    waits_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in workers), 20)
    output = tmp_path / "o.vcf.gz"
    assert not output.exists()
    assert main(words(folder, output)) == 2
    assert main(words(folder, output, "--resume")) == 0
    assert output.read_bytes() == whole
    assert num_kept(tmp_path) == 0
