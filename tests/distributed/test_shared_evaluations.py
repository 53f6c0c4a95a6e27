"""`eval run` by two processes: the records are those of one."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.model import save_model
from eval.__main__ import main
from tests.helpers.eval_runner import records_of
from tests.helpers.files import random_bases, write_fasta

NUM_EXAMPLES = 300


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    """A model, and two tasks of which some examples do not fit into its context."""
    folder = tmp_path_factory.mktemp("evaluations")
    save_model(network, folder / "model")
    write_fasta(folder / "train.fa", {"c": random_bases(3000, 3)})
    (folder / "data").mkdir()
    sites = [
        {"sequence": random_bases(60 + 6 * (n % 40), n), "label": random_bases(30, n), "type": "a"}
        for n in range(NUM_EXAMPLES)
    ]
    pairs = [
        {"original_sequence": bases, "sequence": bases[:-30] + random_bases(30, -n - 1)}
        for n in range(NUM_EXAMPLES)
        for bases in [random_bases(60 + 6 * (n % 40), n)]
    ]
    for task, rows in (("sequence_recovery", sites), ("synonymous_codons", pairs)):
        pq.write_table(pa.Table.from_pylist(rows), folder / "data" / f"{task}.parquet")
    assert main(words(folder, folder / "alone")) == 0
    return folder


def words(folder, output, *more):
    return [
        "run", "--model", f"m={folder}/model", "--data", f"{folder}/data", "--train",
        f"{folder}/train.fa", "--orders", "1,2", "--tasks", "sequence_recovery,synonymous_codons",
        "--output", str(output), *more,
    ]  # fmt: skip


@pytest.mark.nightly
def test_two_processes_write_the_records_of_one(folder, tmp_path, capsys):
    assert main(words(folder, tmp_path / "out", "--processes", "2")) == 0
    headlines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["model"] for each in headlines] == [
        *["chance", "GC", "Markov 1", "Markov 2"] * 2, "m", "m",
    ]  # fmt: skip
    assert records_of(tmp_path / "out") == records_of(folder / "alone")
    record = json.loads((tmp_path / "out/synonymous_codons/m.json").read_text())
    assert 0 < record["counts"]["measured"] < NUM_EXAMPLES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
