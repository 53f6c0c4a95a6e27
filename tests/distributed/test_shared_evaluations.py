"""`eval run` by several processes, started for real, and killed: the records are those of one."""

import json
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.model import save_model
from eval.__main__ import main
from tests.helpers.eval_runner import records_of
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.processes import children_of, told_without_a_child, waits_for

LAUNCH = Path(__file__).parents[2] / "scripts" / "launch"
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


def two_processes(start, folder, output, *more):
    return start([sys.executable, "-m", "eval", *words(folder, output, "--processes", "2", *more)])


def test_two_processes_one_of_which_is_killed(start, folder, tmp_path):
    """The child dies while it is at a block; its parent does that one, and writes."""
    parent = two_processes(start, folder, tmp_path / "out")
    told = told_without_a_child(parent, tmp_path / ".out.blocks")
    headlines = [json.loads(line) for line in told.splitlines()]
    assert [each["model"] for each in headlines] == [
        *["chance", "GC", "Markov 1", "Markov 2"] * 2, "m", "m",
    ]  # fmt: skip
    assert records_of(tmp_path / "out") == records_of(folder / "alone")
    record = json.loads((tmp_path / "out/synonymous_codons/m.json").read_text())
    assert 0 < record["counts"]["measured"] < NUM_EXAMPLES
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.nightly
def test_children_end_with_their_parent_and_one_process_goes_on(start, folder, tmp_path):
    output, blocks = tmp_path / "out", tmp_path / ".out.blocks"
    parent = two_processes(start, folder, output)
    waits_for(lambda: len(list(blocks.glob("*.block"))) > 9)
    (child,) = children_of(parent)
    parent.kill()
    parent.communicate()
    waits_for(lambda: not Path(f"/proc/{child}").exists())
    assert not output.exists()
    assert main(words(folder, output)) == 2
    assert main(words(folder, output, "--resume")) == 0
    assert records_of(output) == records_of(folder / "alone")
    assert not blocks.exists()


@pytest.mark.nightly
def test_two_agents_of_torchrun(start, folder, tmp_path):
    output = tmp_path / "out"
    command = [LAUNCH / "share_torchrun.sh", *words(folder, output)]
    launch = {"NODES": "2", "HEAD": "localhost:29741", "MODULE": "eval"}
    started = [start(command, **launch) for _ in range(2)]
    told = [process.communicate(timeout=500) for process in started]
    assert [process.returncode for process in started] == [0, 0], told
    assert sorted(len(out.splitlines()) for out, _ in told) == [0, 10], told
    assert records_of(output) == records_of(folder / "alone")
    assert [path.name for path in (tmp_path / ".out.blocks").iterdir()] == ["job.json"]
