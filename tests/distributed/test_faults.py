"""What befalls processes of a run: they are killed, interrupted, hang, or lose their launcher.

`test_twenty_kills` is the long form.
"""

import json
import os
import signal
import socket
import sys
import time
from pathlib import Path
from random import Random
from subprocess import Popen

import pytest

from carbon.io.locks import locked_folder
from tests.helpers.processes import children_of, waits_for
from tests.helpers.ranks import run_ranks
from tests.helpers.runs import (
    exported,
    lines_of,
    make_config,
    run_to_the_end,
    steps_of_each,
    words_for,
)
from train.config import ParallelConfig

LIMIT_SECONDS = 300  # of a machine with other work


def launch(start, config, *words, module="torch.distributed.run"):
    """Start a run under `torchrun`."""
    launcher = [sys.executable, "-m", module, "--standalone", *words]
    return start([*launcher, "-m", "train", *words_for(config)])


def has_steps(config, count) -> bool:
    metrics = Path(config.output) / "metrics.jsonl"
    return metrics.exists() and metrics.read_text().count("\n") >= count


def num_lines(config) -> int:
    metrics = Path(config.output) / "metrics.jsonl"
    return metrics.read_bytes().count(b"\n") if metrics.exists() else 0


def same_runs(config, other) -> bool:
    same = lines_of(config.output) == lines_of(other.output)
    return same and exported(config.output) == exported(other.output)


def kill(launcher, victim):
    """Send SIGKILL to the launcher, its process group, or one of its workers."""
    if victim == "group":
        os.killpg(launcher.pid, signal.SIGKILL)
    else:
        os.kill(launcher.pid if victim == "launcher" else children_of(launcher)[-1], signal.SIGKILL)


def is_alive(pid) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def watched(launcher, config, num_steps) -> set[int]:
    """Wait until a run has more lines or its launcher ends; return the workers."""
    workers = set()
    while launcher.poll() is None and not (workers and has_steps(config, num_steps)):
        workers |= set(children_of(launcher))
        time.sleep(0.02)
    return workers


@pytest.mark.nightly
@pytest.mark.timeout(4 * 3600)  # about fifty starts, some of which wait for others to end
def test_twenty_kills(corpus, tmp_path):
    """Launcher, group and workers are killed in turn; a resume follows each kill at once.

    A resume is refused while the workers of the killed launcher end.
    """
    long = (*steps_of_each(60), "checkpoint.every_steps=2")
    config = make_config(corpus, tmp_path / "run", *long)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "train", *words_for(config)]
    workers, victims, draw = set(), ["launcher", "group", "worker"] * 7, Random(0)
    with (tmp_path / "said").open("wb") as said:
        for _ in range(100):  # starts, some of which are refused
            launcher = Popen(command, stdout=said, stderr=said, start_new_session=True)
            more = draw.randint(1, 4) if len(victims) > 1 else 1000
            try:
                workers |= watched(launcher, config, num_lines(config) + more)
            except BaseException:
                launcher.kill()
                raise
            if launcher.poll() is None:
                kill(launcher, victims.pop())
            if launcher.wait() == 0:
                break
    assert launcher.returncode == 0 and len(victims) == 1  # twenty kills
    waits_for(lambda: not any(map(is_alive, workers)))
    lines = (Path(config.output) / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == list(range(1, 121))
    whole = make_config(corpus, tmp_path / "whole", *long)
    run_ranks(2, run_to_the_end, whole)
    assert same_runs(config, whole)


@pytest.mark.nightly
def test_processes_of_a_launch_are_refused_together(start, corpus, tmp_path):
    """They end with one error, without waiting for one another, and write nothing."""
    config = make_config(corpus, tmp_path / "run")
    with locked_folder(config.output):
        run = launch(start, config, "--nproc-per-node", "2")
        _, said = run.communicate(timeout=LIMIT_SECONDS)
    assert run.returncode != 0 and said.count("error: ") == 1, said
    assert f"{config.output}: in use by process {os.getpid()}" in said
    assert not Path(config.output).exists()


@pytest.mark.nightly
def test_the_launcher_is_interrupted(start, corpus, tmp_path):
    """As by Ctrl-C: the launcher hears it, hands it on to processes and their readers, and waits.

    The step at which it comes has a probe, which belongs to it.
    """
    more = (*steps_of_each(20), "checkpoint.every_steps=1000", "data.workers=1",
            "probe.every_steps=6", "probe.heldout_bp=2000", "probe.sites=8")  # fmt: skip
    config = make_config(corpus, tmp_path / "run", *more)
    launcher = launch(start, config, "--nproc-per-node", "2", module="train.launch")
    waits_for(lambda: has_steps(config, 6))
    launcher.send_signal(signal.SIGINT)
    _, errors = launcher.communicate(timeout=LIMIT_SECONDS)
    assert launcher.returncode == 130, errors
    assert "Traceback" not in errors and "SIGINT: saved; continue with --resume auto" in errors
    assert errors.splitlines()[-1].startswith("SIGINT: stopped; ")
    (saved,) = (Path(config.output) / "checkpoints").iterdir()
    state = json.loads((saved / "state.json").read_text())["state"]
    assert state["step"] >= 6 and len(state["gaps"]) == state["step"] // 6


@pytest.mark.nightly
def test_killed_in_a_save_and_at_the_switch(start, corpus, tmp_path):
    """The launcher takes the run up again."""
    whole = make_config(corpus, tmp_path / "whole", *steps_of_each(20))
    run_ranks(1, run_to_the_end, whole)
    config = make_config(corpus, tmp_path / "run", *steps_of_each(20))
    launcher = launch(start, config, "--nproc-per-node", "1", "--max-restarts", "2")

    def saving():
        return any(Path(config.output).glob("checkpoints/.step-*.partial"))

    killed = set()
    for moment in (saving, lambda: has_steps(config, 20)):
        waits_for(lambda moment=moment: set(children_of(launcher)) - killed and moment())
        (worker,) = set(children_of(launcher)) - killed
        killed.add(worker)
        os.kill(worker, signal.SIGKILL)
    _, errors = launcher.communicate(timeout=LIMIT_SECONDS)
    assert launcher.returncode == 0, errors
    assert same_runs(config, whole)
    assert "resume" in {line["event"] for line in lines_of(config.output, "events")}


def hang(ranks, config):
    """Let one rank sleep after the first step, longer than others wait; say what they meet."""
    from train.trainer import Trainer

    taken = Trainer(config, ranks).steps()
    next(taken)
    if ranks.rank == 1:
        time.sleep(9)
    with pytest.raises(RuntimeError) as error:
        next(taken)
    return str(error.value)


@pytest.mark.nightly
def test_a_rank_that_hangs_is_not_waited_for(corpus, tmp_path):
    """Longer than parallel.timeout_seconds; the error is that of what it was waited for."""
    config = make_config(corpus, tmp_path / "run")
    parallel = ParallelConfig(timeout_seconds=4)
    message, _ = run_ranks(2, hang, config, parallel=parallel, apart=True)
    assert "imed out" in message


@pytest.mark.nightly
def test_two_nodes(start, corpus, tmp_path):
    """Two agents of one process each, which meet at an address, give what two processes do."""
    config = make_config(corpus, tmp_path / "two")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [
        sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
        "--rdzv-backend", "c10d", "--rdzv-id", "two", "--rdzv-endpoint", f"127.0.0.1:{port}",
        "-m", "train", *words_for(config),
    ]  # fmt: skip
    agents = [start(command) for _ in range(2)]
    said = [agent.communicate(timeout=LIMIT_SECONDS) for agent in agents]
    assert [agent.returncode for agent in agents] == [0, 0], said
    one = make_config(corpus, tmp_path / "one")
    run_ranks(2, run_to_the_end, one)
    assert same_runs(config, one)
