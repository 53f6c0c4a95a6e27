"""What befalls runs: bad numbers, killed and hanging processes, full disks, other layouts."""

import contextlib
import dataclasses
import itertools
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pytest
import torch.distributed as dist

from carbon.config import to_toml
from tests.helpers.ranks import run_ranks, start_command
from tests.helpers.runs import make_config, make_corpus, spoil
from tests.helpers.warm import warm_python
from train.__main__ import main as train
from train.config import GuardConfig, ParallelConfig

ROOT = Path(__file__).parents[2]
CLOCKED = ("tokens_per_second", "mfu")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    return make_corpus(tmp_path_factory.mktemp("corpus"))


def metrics_of(folder) -> list[dict]:
    """Return a run's metrics without what a clock says."""
    lines = (Path(folder) / "metrics.jsonl").read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k not in CLOCKED} for line in lines]


def weights_of(folder) -> bytes:
    return (Path(folder) / "export" / "model.safetensors").read_bytes()


def save_and_resume(ranks, config, saved_at, resumed_at):
    """Train two steps under a layout and save, if one is given; under others go on to the end."""
    results = []
    if saved_at:
        name, parallel = saved_at
        trainer = trainer_of(ranks, config, name, parallel)
        list(itertools.islice(trainer.steps(), 2))
        trainer.checkpoints.save(trainer.state)
        trainer.checkpoints.finish()
        results.append((name, *to_the_end(trainer)))
    for name, parallel in resumed_at:
        if ranks.is_first:
            saved = Path(config.output) / SAVED_AT[0] / "checkpoints"
            shutil.copytree(saved, Path(config.output) / name / "checkpoints")
        dist.barrier()
        trainer = trainer_of(ranks, config, name, parallel)
        assert trainer.load() and trainer.state.step == 2
        results.append((name, *to_the_end(trainer)))
    return results


def trainer_of(ranks, config, name, parallel):
    from train.loop.trainer import Trainer
    from train.network.ranks import ranks_of_group

    one = dataclasses.replace(config, parallel=parallel, output=f"{config.output}/{name}")
    return Trainer(one, ranks_of_group(ranks.device, parallel))


def to_the_end(trainer):
    losses = [m["loss"] for m in trainer.steps()]
    network = trainer.gathered()
    return losses, network and {n: p.detach().numpy() for n, p in network.named_parameters()}


SAVED_AT = (
    "2x1x2 interleaved, shared rows",
    ParallelConfig(pipeline=2, context=2, schedule="interleaved_1f1b"),
)
RESUMED_AT = {
    4: [
        ("4x1x1 gpipe", ParallelConfig(pipeline=4, schedule="gpipe")),
        ("1x2x2", ParallelConfig(replicate=2)),
        ("1x1x4", ParallelConfig()),
    ],
    2: [("2x1x1 zbv", ParallelConfig(pipeline=2, schedule="zbv"))],
    1: [("one process", ParallelConfig())],
}


def test_a_checkpoint_goes_on_at_any_layout(corpus, tmp_path):
    """Saved by a pipeline of two, each sharded over two that share rows; resumed by five others."""
    config = make_config(corpus, tmp_path, "data.microbatch_tokens=64")
    found = []
    for world_size, layouts in RESUMED_AT.items():
        saved_at = SAVED_AT if world_size == 4 else None
        of_first, *_ = run_ranks(world_size, save_and_resume, config, saved_at, layouts)
        found += of_first
    (_, losses, expected), *others = found
    assert len(losses) == 2 and len(others) == 5
    for name, after, weights in others:
        np.testing.assert_allclose(after, losses, rtol=2e-5, err_msg=name)
        for tensor, value in expected.items():
            assert (np.abs(weights[tensor] - value) > 1e-4).mean() < 2e-3, (name, tensor)


def run_with_nan(ranks, config, policy_runs):
    """Train under each policy; on the last rank alone the loss of step 3 is not a number."""
    from train.loop.trainer import Trainer

    results = []
    for name, guard in policy_runs:
        one = dataclasses.replace(config, output=f"{config.output}/{name}", guard=guard)
        trainer = Trainer(one, ranks)
        if ranks.rank == ranks.world_size - 1:
            spoil(trainer, at_step=2)
        try:
            trainer.run(resume=False)
            results.append("done")
        except FloatingPointError as error:
            results.append(str(error))
        trainer.checkpoints.finish()
    return results


def test_a_gradient_that_is_no_number_on_one_rank(corpus, tmp_path):
    """All ranks leave the step out, roll back, or stop, as the policy says; the rest goes on."""
    config = make_config(corpus, tmp_path, "checkpoint.every_steps=1")
    runs = [(name, GuardConfig(policy=name)) for name in ("skip", "rollback", "stop")]
    runs.append(("patience", GuardConfig(policy="skip", most_bad_steps=0)))
    results = run_ranks(2, run_with_nan, config, runs)
    assert results[0] == results[1]
    skipped, rolled, stopped, impatient = results[0]
    assert (skipped, rolled) == ("done", "done")
    assert "step 3: the gradient norm is nan" in stopped and "guard.policy" in stopped
    assert "it is bad step number 1, and guard.most_bad_steps = 0" in impatient
    for name in ("skip", "rollback"):
        lines = metrics_of(tmp_path / name)
        assert [line["step"] for line in lines] == [1, 2, 3, 4]
        assert ["skipped" in line for line in lines] == [False, False, True, False]
        assert lines[2]["gradient_norm"] is None and np.isfinite(lines[3]["loss"])
        events = (tmp_path / name / "events.jsonl").read_text()
        assert f'"event": "{name}"' in events and "the gradient norm is nan" in events
    # Here the last checkpoint is that of step 2, so both policies leave out step 3 alone.
    assert metrics_of(tmp_path / "skip")[3] == metrics_of(tmp_path / "rollback")[3]
    state = json.loads((tmp_path / "skip/checkpoints/step-00000004/state.json").read_text())
    assert state["state"]["skipped"] == [[2, 2]] and state["state"]["updates"] == 3


def words_for(config) -> list[str]:
    """Return what a run is started with, which goes on if it can."""
    path = Path(config.output).with_suffix(".toml")
    path.write_text(to_toml(config))
    return ["--config", str(path), "--resume", "auto"]


def start(config) -> BaseProcess:
    return start_command(train, words_for(config), said_by(config))


def said_by(config) -> Path:
    return Path(config.output).with_suffix(".log")


def launch(config, *words: str, module="torch.distributed.run") -> subprocess.Popen:
    """Start a run under `torchrun`, whose processes need no time for imports."""
    launcher = [sys.executable, "-m", module, "--standalone", *words]
    return subprocess.Popen(
        [*launcher, "-m", "train", *words_for(config)],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1", "PYTHON_EXEC": warm_python()},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


MANY_STEPS = ("stages.0.tokens=10240", "stages.1.tokens=10240")  # 20 each


@pytest.fixture(scope="module")
def undisturbed(corpus, tmp_path_factory):
    config = make_config(corpus, tmp_path_factory.mktemp("whole") / "run", *MANY_STEPS)
    process = start(config)
    process.join()
    assert process.exitcode == 0, said_by(config).read_text()
    return Path(config.output)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_saves(corpus, undisturbed, tmp_path, number, code):
    config = make_config(corpus, tmp_path / "run", *MANY_STEPS, "checkpoint.every_steps=1000")
    metrics = Path(config.output) / "metrics.jsonl"
    process = start(config)
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 5)
    os.kill(process.pid, number)
    process.join(60)
    assert process.exitcode == code
    said = said_by(config).read_text()
    assert said.splitlines()[-1] == f"{number.name}: saved; go on with --resume auto"
    (saved,) = (Path(config.output) / "checkpoints").iterdir()
    assert 5 < int(saved.name[5:]) < 40
    process = start(config)
    process.join()
    assert process.exitcode == 0
    assert metrics_of(config.output) == metrics_of(undisturbed)
    assert weights_of(config.output) == weights_of(undisturbed)


def test_the_launcher_is_interrupted(corpus, tmp_path):
    """As by Ctrl-C: the launcher hears it, hands it on to processes and their readers, and waits.

    The step at which it comes has a probe, which belongs to it.
    """
    more = (*MANY_STEPS, "checkpoint.every_steps=1000", "data.workers=1", "probe.every_steps=6")
    probe = ("probe.heldout_bp=2000", "probe.sites=8")
    config = make_config(corpus, tmp_path / "run", *more, *probe)
    metrics = Path(config.output) / "metrics.jsonl"
    launcher = launch(config, "--nproc-per-node", "2", module="train.launch")
    wait_for(lambda: metrics.exists() and len(metrics.read_text().splitlines()) == 6)
    launcher.send_signal(signal.SIGINT)
    _, errors = launcher.communicate(timeout=60)
    assert launcher.returncode == 130, errors
    assert "Traceback" not in errors and "SIGINT: saved; go on with --resume auto" in errors
    assert errors.splitlines()[-1].startswith("SIGINT: stopped; ")
    (saved,) = (Path(config.output) / "checkpoints").iterdir()
    state = json.loads((saved / "state.json").read_text())["state"]
    assert state["step"] >= 6 and len(state["gaps"]) == state["step"] // 6


def run_saving_always(ranks, config):
    """A gradient of step 4 is no number; the clock of the first process asks for every step."""
    from train.loop.trainer import Trainer
    from train.run_folder.checkpoint import Checkpoints

    Checkpoints.are_due = lambda self: ranks.is_first
    trainer = Trainer(config, ranks)
    spoil(trainer, at_step=3)
    trainer.run(resume=False)
    found = sorted(path.name for path in (Path(config.output) / "checkpoints").iterdir())
    return found, trainer.state.skipped


def test_a_rollback_does_not_depend_on_the_clock(corpus, tmp_path):
    """Back to step 2, though there is a checkpoint of step 3: steps 3 and 4 are left out."""
    more = ("stages.1.tokens=1536", "guard.policy=rollback", "checkpoint.keep=1")
    config = make_config(corpus, tmp_path / "run", *more)
    (found, skipped), _ = run_ranks(2, run_saving_always, config)
    assert skipped == [[2, 3]]
    assert found == ["step-00000004", "step-00000005"]  # of two a regular one, and the newest


def test_killed_in_a_save_and_at_the_switch(corpus, undisturbed, tmp_path):
    """The launcher takes the run up again. The long form, twenty times, is `bench/faults.py`."""
    config = make_config(corpus, tmp_path / "run", *MANY_STEPS)
    output = Path(config.output)
    launcher = launch(config, "--nproc-per-node", "1", "--max-restarts", "2")

    def saving():
        return any(output.glob("checkpoints/.step-*.partial"))

    def at_the_switch():
        return len((output / "metrics.jsonl").read_text().splitlines()) >= 20

    killed = set()
    for moment in (saving, at_the_switch):
        wait_for(lambda moment=moment: new_workers(launcher, killed) and moment())
        (worker,) = new_workers(launcher, killed)
        killed.add(worker)
        os.kill(worker, signal.SIGKILL)
    _, errors = launcher.communicate(timeout=120)
    assert launcher.returncode == 0, errors
    assert metrics_of(output) == metrics_of(undisturbed)
    assert weights_of(output) == weights_of(undisturbed)
    starts = (output / "events.jsonl").read_text()
    assert starts.count('"event": "resume"') >= 1


def new_workers(launcher, killed):
    found = subprocess.run(["pgrep", "-P", str(launcher.pid)], capture_output=True, text=True)
    return {int(pid) for pid in found.stdout.split()} - killed


@contextlib.contextmanager
def small_disk(folder: Path, megabytes: int):
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)]
    if subprocess.run(command, capture_output=True).returncode:
        pytest.skip("may not mount a small disk")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_full_disk_is_one_error_and_nothing_is_lost(corpus, tmp_path):
    """A checkpoint of tiny is 15 MB: one fits, and is kept whole when the next does not."""
    with small_disk(tmp_path / "disk", 24):
        config = make_config(corpus, tmp_path / "disk" / "run", *MANY_STEPS)
        process = subprocess.run(
            [warm_python(), "-m", "train", *words_for(config)],
            cwd=ROOT, capture_output=True, text=True,
        )  # fmt: skip
        assert process.returncode == 1, process.stderr
        error = process.stderr.strip().splitlines()[-1]
        assert error.startswith("error: ") and "no space left on device" in error.lower()
        assert "Traceback" not in process.stderr
        names = [path.name for path in (tmp_path / "disk/run/checkpoints").iterdir()]
        assert names == ["step-00000002"]


def hang(ranks, config):
    """Let one rank sleep after the first step; say what the other meets."""
    from train.loop.trainer import Trainer

    taken = Trainer(config, ranks).steps()
    next(taken)
    if ranks.rank == 1:
        time.sleep(9)
    began = time.monotonic()
    with pytest.raises(RuntimeError) as error:
        next(taken)
    return time.monotonic() - began, str(error.value)


def test_a_rank_that_hangs_is_not_waited_for(corpus, tmp_path):
    """Longer than parallel.timeout_seconds; the error is that of what it was waited for."""
    config = make_config(corpus, tmp_path / "run")
    (waited, message), _ = run_ranks(2, hang, config, parallel=ParallelConfig(timeout_seconds=4))
    assert waited < 20 and "imed out" in message


def test_a_shard_that_vanishes(corpus, undisturbed, tmp_path):
    """The checkpoint is passed over for the one before; without another, the run starts again."""
    config = make_config(corpus, tmp_path / "run", *MANY_STEPS)
    shutil.copytree(undisturbed, config.output)
    newest = sorted((Path(config.output) / "checkpoints").iterdir())[-1]
    next(newest.glob("*.safetensors")).unlink()
    process = start(config)
    process.join()
    errors = said_by(config).read_text()
    assert process.exitcode == 0, errors
    assert f"{newest.name}: is not whole" in errors and "trying the one before" in errors
    assert metrics_of(config.output) == metrics_of(undisturbed)
    assert weights_of(config.output) == weights_of(undisturbed)


def test_two_nodes(corpus, tmp_path):
    """Two agents of one process each, which meet at an address, give what two processes do."""
    config = make_config(corpus, tmp_path / "two")
    path = tmp_path / "two.toml"
    path.write_text(to_toml(config))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [
        warm_python(), "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1",
        "--rdzv-backend", "c10d", "--rdzv-id", "two", "--rdzv-endpoint", f"127.0.0.1:{port}",
        "-m", "train", "--config", str(path),
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    agents = [subprocess.Popen(command, cwd=ROOT, env=environment) for _ in range(2)]
    assert [agent.wait(timeout=150) for agent in agents] == [0, 0]
    one = make_config(corpus, tmp_path / "one")
    run_ranks(2, run_whole, one)
    assert metrics_of(config.output) == metrics_of(one.output)
    assert weights_of(config.output) == weights_of(one.output)


def run_whole(ranks, config):
    from train.loop.trainer import Trainer

    Trainer(config, ranks).run(resume=False)
