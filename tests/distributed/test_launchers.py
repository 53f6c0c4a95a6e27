"""The same command, started often by torchrun, Ray and Slurm (its commands stood in for)."""

import os
import signal
import stat
import sys
from pathlib import Path

import pytest

from carbon.cli import main
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.processes import waits_for

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "scripts" / "launch"
SRUN = """#!/bin/bash
# Two tasks on each of two nodes, or one task of an array.
shift  # --kill-on-bad-exit
export SLURM_STEP_NUM_TASKS=4 SLURM_STEP_TASKS_PER_NODE='2(x2)'
[[ -n "${SLURM_ARRAY_JOB_ID:-}" ]] && exec env SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0 "$@"
for task in 0 1 2 3; do
  SLURM_PROCID=$task SLURM_LOCALID=$((task % 2)) "$@" &
  tasks+=($!)
done
status=0
for task in "${tasks[@]}"; do wait "$task" || status=$?; done
exit $status
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("launched")
    save_model(network, folder / "model")
    write_fasta(folder / "s.fa", {f"s{n}": random_bases(60, n) for n in range(640)})
    assert main(words(folder, folder / "alone.parquet")) == 0
    return folder


def words(folder, output):
    return ["embed", "--model", f"{folder}/model", f"{folder}/s.fa", "--output", str(output)]


def check(started, folder, output):
    """All end well, one of them tells what was done, and the bytes are those of one process."""
    told = [process.communicate(timeout=500) for process in started]
    assert [process.returncode for process in started] == [0] * len(started), told
    assert sum(out.count('"sequences": 640') for out, _ in told) == 1, told
    assert output.read_bytes() == (folder / "alone.parquet").read_bytes()
    left = sorted(path.name for path in output.parent.glob(f".{output.name}.blocks/*"))
    assert left == ["job.json"]


def test_two_agents_of_torchrun(start, folder, tmp_path):
    output = tmp_path / "o.parquet"
    command = [LAUNCH / "share_torchrun.sh", *words(folder, output)]
    nodes = {"NODES": "2", "HEAD": "localhost:29731"}
    check([start(command, **nodes) for _ in range(2)], folder, output)


@pytest.fixture
def slurm(tmp_path):
    path = tmp_path / "bin" / "srun"
    path.parent.mkdir()
    path.write_text(SRUN)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"PATH": f"{path.parent}:{os.environ['PATH']}", "SLURM_JOB_ID": "7"}


def test_tasks_of_a_step_of_slurm(start, folder, tmp_path, slurm):
    output = tmp_path / "o.parquet"
    check([start([LAUNCH / "share_slurm.sh", *words(folder, output)], **slurm)], folder, output)


def test_tasks_of_an_array_of_slurm_the_last_of_which_comes_late(start, folder, tmp_path, slurm):
    output = tmp_path / "o.parquet"
    command = [LAUNCH / "share_slurm.sh", *words(folder, output)]
    array = slurm | {"SLURM_ARRAY_JOB_ID": "7"}
    first = [start(command, **array, SLURM_ARRAY_TASK_ID=str(n)) for n in range(2)]
    check(first, folder, output)
    late = start(command, **array, SLURM_ARRAY_TASK_ID="2")
    out, said = late.communicate(timeout=500)
    assert (late.returncode, out) == (0, "") and "is whole already" in said


def test_tasks_of_ray_one_of_which_is_killed(start, folder, tmp_path):
    if "CARBON_SERVERS" not in os.environ:
        pytest.skip("scripts/test_servers starts Ray")
    output = tmp_path / "o.parquet"
    tasks = [LAUNCH / "share_ray.py", "--tasks", "2", *words(folder, output)]
    driver = start([sys.executable, *tasks], RAY_ADDRESS="local")
    os.kill(waits_for(lambda: _running(output))[0], signal.SIGKILL)
    check([driver], folder, output)


def _running(output) -> list[int]:
    """Return the numbers of the processes of carbon that write an output."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            given = path.read_text().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if str(output) in given and "carbon" in given:
            found.append(int(path.parent.name))
    return found
