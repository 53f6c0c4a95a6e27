"""Workers of one launch, and of launches of their own, against slow references.

The reference takes each worker's steps in one process with the trainer alone, one worker after
the other, and the outer step as torch's SGD takes it.
"""

import shutil
import socket
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.errors import UserError
from carbon.model import save_model
from tests.conftest import small_config
from tests.helpers.ranks import LIMIT_SECONDS, run_ranks, start_command
from tests.helpers.runs import (
    assert_close,
    assert_equal,
    exported,
    full_weights,
    lines_of,
    make_config,
    make_small_config,
    run_to_the_end,
    steps_of_each,
    without_pictures,
)
from tests.helpers.schemas import check_run
from train.__main__ import main
from train.config import CheckpointConfig, ParallelConfig, WorkersConfig
from train.diloco.group import check_alike
from train.diloco.sparta import chosen
from train.diloco.sync import OuterSync
from train.distributed.mesh import local, trained_parameters

STEPS = 8  # of all workers


def config_of(corpus, folder, microbatch_tokens=512, steps=STEPS, **workers):
    more = [f"data.microbatch_tokens={microbatch_tokens}", *steps_of_each(steps // 2),
            "checkpoint.every_steps=1000", "phases.0.schedule=constant"]  # fmt: skip
    config = make_small_config(corpus, folder, *more)
    return config.replace(workers=WorkersConfig(**workers))


def train(ranks, config, parallel, workers, with_sgd=False):
    """Train to the end under some layout of the processes; return the weights of each worker."""
    from train.distributed.mesh import ranks_of_group
    from train.trainer import Trainer

    here = ranks_of_group(ranks.device, parallel, workers)
    output = config.workers.folder(config.output, here.worker)
    one = config.replace(parallel=parallel, output=output)
    trainer = Trainer(one, here)
    if with_sgd:
        group = {"params": list(trained_parameters(trainer.parts).values()), "lr_scale": 1.0}
        trainer.optimizers = (torch.optim.SGD([group], lr=0.0),)
    metrics = list(trainer.steps())
    return [m["step"] for m in metrics], [m["loss"] for m in metrics], full_weights(trainer)


def reference(ranks, config, workers, period):
    """DiLoCo as its paper's Algorithm 1 has it: inner steps by the trainer, the rest by torch."""
    from train.data import batches
    from train.trainer import Trainer

    alone = config.replace(workers=WorkersConfig())
    trainers = [Trainer(alone, ranks) for _ in range(workers)]
    params = [p.detach().clone() for p in trainers[0].parts[0].parameters()]
    rate, momentum = config.workers.learning_rate, config.workers.momentum
    outer = torch.optim.SGD(params, lr=rate, momentum=momentum, nesterov=True)
    for first in range(0, STEPS, period * workers):
        deltas, tokens = [], []
        for number, trainer in enumerate(trainers):
            mine = range(first + number, first + period * workers, workers)
            read = batches(trainer.rows, alone, trainer.schedule, ranks, mine)
            trainer.sync = Counting()
            for step in mine:
                trainer.state.step = step
                trainer._step(trainer.schedule.at(step), read, trainer_log(trainer))
            tokens.append(trainer.sync.tokens)
            deltas.append(
                [a - p.detach() for a, p in zip(params, trainer.parts[0].parameters(), strict=True)]
            )
        for i, weight in enumerate(params):
            weight.grad = sum(n * delta[i] for n, delta in zip(tokens, deltas, strict=True)) / sum(
                tokens
            )
        outer.step()
        for trainer in trainers:
            with torch.no_grad():
                for p, a in zip(trainer.parts[0].parameters(), params, strict=True):
                    p.copy_(a)
    return full_weights(trainers[0])


class Counting(OuterSync):
    tokens = 0

    def after_step(self, state, tokens, seconds):
        self.tokens += tokens


def trainer_log(trainer):
    from train.runs.log import RunLog

    return RunLog.silent(trainer.config, trainer.ranks, trainer.schedule)


@pytest.fixture(scope="module")
def plain(corpus, tmp_path_factory):
    config = config_of(corpus, tmp_path_factory.mktemp("plain"), 256, **DILOCO)
    (weights,) = run_ranks(1, reference, config, 2, 2)
    return weights


DILOCO = {"count": 2, "every_steps": 2, "codec": "fp32"}
LAYOUTS = [
    (2, ParallelConfig()),
    pytest.param(4, ParallelConfig(pipeline=2), marks=pytest.mark.nightly),
    pytest.param(4, ParallelConfig(replicate=2), marks=pytest.mark.nightly),
    pytest.param(4, ParallelConfig(), marks=pytest.mark.nightly),
]


@pytest.mark.parametrize(("world_size", "parallel"), LAYOUTS)
def test_workers_of_one_launch_equal_the_reference(world_size, parallel, corpus, plain, tmp_path):
    config = config_of(corpus, tmp_path, 256, **DILOCO)
    found = run_ranks(world_size, train, config, parallel, 2)
    steps = [steps for steps, _, _ in found]
    assert steps[0] == list(range(1, STEPS, 2))
    assert steps[-1] == list(range(2, STEPS + 1, 2))
    first, second = (weights for _, _, weights in found if weights)
    assert_equal(first, second)
    assert_close(first, plain)


PLAIN_MEAN = {"momentum": 0.0, "learning_rate": 1.0, "codec": "fp32"}


def test_one_worker_with_a_plain_mean_equals_plain_training(corpus, tmp_path):
    config = config_of(corpus, tmp_path, count=1, every_steps=2, **PLAIN_MEAN)
    ((steps, losses, weights),) = run_ranks(1, train, config, ParallelConfig(), 1)
    alone = config.replace(workers=WorkersConfig())
    ((plain_steps, plain_losses, expected),) = run_ranks(1, train, alone, ParallelConfig(), 1)
    assert steps == plain_steps
    assert losses == pytest.approx(plain_losses, rel=1e-5)
    assert_within(weights, expected, 1e-5)


def test_a_plain_mean_after_each_step_of_sgd_equals_data_parallelism(corpus, tmp_path):
    """Two workers of one batch each, and two processes that share a batch of twice the rows."""
    config = config_of(corpus, tmp_path, 256, count=2, every_steps=1, **PLAIN_MEAN)
    phases = [
        phase.replace(schedule="constant", learning_rate=0.3, final_learning_rate=0.0)
        for phase in config.phases
    ]
    unclipped = config.optimizer.replace(clip_norm=1e9)
    config = config.replace(phases=phases, optimizer=unclipped)
    twice = [phase.replace(batch_rows=2 * phase.batch_rows) for phase in phases]
    shared = config.replace(phases=twice, workers=WorkersConfig())
    found = run_ranks(2, train, config, ParallelConfig(), 2, True)
    expected = run_ranks(2, train, shared, ParallelConfig(), 1, True)[0][2]
    for _, _, weights in found:
        assert_within(weights, expected, 1e-5)


def assert_within(found, expected, tolerance):
    assert found.keys() == expected.keys()
    for name, weight in found.items():
        np.testing.assert_allclose(weight, expected[name], rtol=0, atol=tolerance, err_msg=name)


def learn(ranks, config, store, number, told=None):
    """Be one worker of a store, with however many processes there are."""
    workers = config.workers.replace(store=str(store), number=number)
    return train(ranks, config.replace(workers=workers), ParallelConfig(), 1)


def learn_together(config, store, processes=(1, 1)):
    """Start workers in separate launches of `processes` processes; return the result of each."""
    with ThreadPoolExecutor() as pool:
        found = pool.map(
            lambda number: run_ranks(processes[number], learn, config, store, number, apart=True),
            range(len(processes)),
        )
        return [ranks[0] for ranks in found]


NIGHTLY = {"marks": pytest.mark.nightly}
DELAYED = {"every_steps": 4, "fragments": 2, "delay_steps": 1, "alpha": 0.5}
METHODS = [
    pytest.param(DELAYED | {"codec": "top2"}, id="delayed top2"),
    pytest.param(DELAYED, id="delayed", **NIGHTLY),
    pytest.param({"every_steps": 3, "codec": "top2", "momentum": 0.0}, id="top2", **NIGHTLY),
    pytest.param({"every_steps": 3}, id="DiLoCo", **NIGHTLY),
    pytest.param({"every_steps": 4, "fragments": 4, "delay_steps": 3}, id="several", **NIGHTLY),
]


@pytest.mark.parametrize("method", METHODS)
def test_a_store_has_the_bytes_of_a_group(method, corpus, tmp_path):
    config = config_of(corpus, tmp_path, steps=12, **method, count=2)
    (steps, losses, one), (_, _, two) = run_ranks(2, train, config, ParallelConfig(), 2)
    others = learn_together(config, tmp_path / "store")
    assert (steps, losses) == others[0][:2]
    for found in (two, *(weights for _, _, weights in others)):
        assert_equal(found, one)


@pytest.mark.nightly
def test_workers_of_a_store_may_have_other_layouts(corpus, plain, tmp_path):
    """One has a process, the other divides its weights among two."""
    config = config_of(corpus, tmp_path, 256, **DILOCO)
    (_, _, one), (_, _, two) = learn_together(config, tmp_path / "store", (1, 2))
    assert_equal(one, two)
    assert_close(one, plain)


def run_all(ranks, config, resume):
    """Be a worker of one launch, from its newest checkpoint if `resume`, to its export."""
    from train.distributed.mesh import ranks_of_group
    from train.trainer import Trainer

    here = ranks_of_group(ranks.device, ParallelConfig(), 2)
    output = config.workers.folder(config.output, here.worker)
    with without_pictures():
        Trainer(config.replace(output=output), here, resumes=resume).run(resume)


RESUMED = [
    pytest.param(DELAYED, id="delivery"),
    pytest.param({"every_steps": 3, "codec": "top2"}, id="what was not sent", **NIGHTLY),
    pytest.param({"method": "sparta", "share": 0.25}, id="sparta", **NIGHTLY),
]


@pytest.mark.parametrize("method", RESUMED)
def test_workers_go_on_from_the_newest_checkpoint_that_all_have(method, corpus, tmp_path):
    """Eight steps each, saved after 5 and 8; the second worker lacks its later checkpoint."""
    config = config_of(corpus, tmp_path, steps=16, **method, count=2)
    saves = CheckpointConfig(every_steps=5, every_minutes=0, keep=9)
    config = config.replace(checkpoint=saves)
    run_ranks(2, run_all, config, False)
    runs = [tmp_path / f"worker-{number}" for number in (0, 1)]
    wanted = [exported(run) for run in runs]
    assert wanted[0] == wanted[1]
    shutil.rmtree(runs[1] / "checkpoints/step-00000008")
    last = runs[0] / "checkpoints/step-00000008"
    last.rename(tmp_path / "aside")
    check_outer_params(runs, wanted[0])
    (tmp_path / "aside").rename(last)
    for run in runs:
        shutil.rmtree(run / "export")
    run_ranks(2, run_all, config, True)
    assert [exported(run) for run in runs] == wanted
    check_run(runs[0], "metrics", "events")
    if "method" not in method:
        check_run(runs[0], "rounds")
        numbers = [line["round"] for line in lines_of(runs[0], "rounds")]
        assert numbers == list(range(len(numbers)))


def check_outer_params(runs, of_the_end):
    """All workers export the outer parameters of a checkpoint between rounds."""
    for run in runs:
        config, folder = str(run / "config.toml"), str(run / "early" / "export")
        assert main(["export", "--config", config, "--output", folder]) == 0
    first, second = (exported(run / "early") for run in runs)
    assert first == second
    assert first != of_the_end


def average(ranks, config, share):
    """Train two workers in one process; average their chosen parameters."""
    from train.data import batches
    from train.trainer import Trainer

    alone = config.replace(workers=WorkersConfig())
    trainers = [Trainer(alone, ranks) for _ in range(2)]
    for first in range(0, trainers[0].schedule.total_steps, 2):
        for number, trainer in enumerate(trainers):
            trainer.state.step = first + number
            read = batches(trainer.rows, alone, trainer.schedule, ranks, [first + number])
            trainer._step(trainer.schedule.at(first + number), read, trainer_log(trainer))
        one, two = (dict(trainer.parts[0].named_parameters()) for trainer in trainers)
        for name, weight in one.items():
            a, b = (local(w.detach()).view(-1) for w in (weight, two[name]))
            places = chosen(name, len(a), share, config.seed, first // 2) if share < 1 else ...
            a[places] = b[places] = (a[places] + b[places]) / 2
    return [full_weights(trainer) for trainer in trainers]


@pytest.mark.parametrize("share", [0.002, pytest.param(1.0, **NIGHTLY)])
def test_sparta_averages_the_chosen_parameters_after_each_step(share, corpus, tmp_path):
    """To the bit."""
    config = config_of(corpus, tmp_path, steps=4, count=2, method="sparta", share=share)
    found = run_ranks(2, train, config, ParallelConfig(), 2)
    (expected,) = run_ranks(1, average, config, share)
    for (_, _, weights), wanted in zip(found, expected, strict=True):
        assert_equal(weights, wanted)


def start_with(ranks, seeds):
    """Begin with another seed on each worker; return the refusal."""
    from train.distributed.mesh import ranks_of_group

    here = ranks_of_group(ranks.device, ParallelConfig(), 2)
    with pytest.raises(UserError) as refusal:
        check_alike({"output": "", "seed": seeds[here.worker]}, here)
    return str(refusal.value)


def test_a_worker_with_another_recipe_is_refused():
    said = "worker 1: has another recipe than worker 0: seed is 5, and 0 there; give all one recipe"
    assert run_ranks(2, start_with, (0, 5)) == [said] * 2


def test_processes_with_different_recipes_form_no_group(corpus, tmp_path, monkeypatch):
    config = config_of(corpus, tmp_path / "run", **DILOCO)
    (tmp_path / "recipe.toml").write_text(config.to_toml(), encoding="utf-8")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    names = {"WORLD_SIZE": 2, "LOCAL_RANK": 0, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    processes, said = [], [tmp_path / f"said-{rank}" for rank in range(2)]
    for rank, seed in enumerate((0, 5)):
        for name, value in {**names, "RANK": rank}.items():
            monkeypatch.setenv(name, str(value))
        words = ["--config", f"{tmp_path}/recipe.toml", "--set", f"seed={seed}"]
        processes.append(start_command(main, words, said[rank]))
    for process in processes:
        process.join(LIMIT_SECONDS)
        process.kill()
    assert [process.exitcode for process in processes] == [2, 2]
    line = "error: process 1: has another recipe than process 0: seed is 5, and 0 there; give all"
    for file in said:
        assert file.read_text(encoding="utf-8") == f"{line} one recipe\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly
def test_sparta_begins_with_a_model_that_is_probed(corpus, tmp_path):
    """All workers measure it before their first step."""
    torch.manual_seed(0)
    save_model(LlamaForCausalLM(small_config(128)).eval(), tmp_path / "start")
    words = ["model.preset=", f"model.start={tmp_path / 'start'}", "probe.every_steps=100",
             "probe.source=mrna", "probe.heldout_bp=600", "probe.sites=2",
             "workers.count=2", "workers.method=sparta", *steps_of_each(2)]  # fmt: skip
    config = make_config(corpus, tmp_path / "run", *words)
    run_ranks(2, run_worker, config, apart=True)
    for number in range(2):
        probes = lines_of(tmp_path / "run" / f"worker-{number}", "probes")
        assert probes[0]["step"] == number and len(probes) == 2


def run_worker(ranks, config):
    """Run one of the workers of a launch to its end."""
    from train.distributed.mesh import ranks_of_group

    here = ranks_of_group(ranks.device, ParallelConfig(), config.workers.count)
    output = config.workers.folder(config.output, here.worker)
    return run_to_the_end(here, config.replace(output=output))
