"""A step asks the device for numbers once: counted among the operators that wait for it."""

from collections import Counter
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from carbon.losses import LossSums
from tests.helpers.runs import BATCH_TOKENS, make_config, small_corpus
from train import trainer as trainer_module
from train.config import ParallelConfig
from train.data import batches
from train.distributed import stage as parts_module
from train.distributed.mesh import joined_ranks
from train.distributed.pipeline import finish_gradients
from train.distributed.weights import FrozenRows
from train.runs.log import RunLog
from train.trainer import Trainer

WAITING = {"aten::_local_scalar_dense", "aten::nonzero", "aten::is_nonzero", "aten::equal",
           "aten::unique_dim", "aten::masked_select"}  # fmt: skip


class Operators(TorchDispatchMode):
    """Counts what is computed, by the names of operators."""

    def __init__(self):
        super().__init__()
        self.count = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.count[func.name().split(".")[0]] += 1
        return func(*args, **(kwargs or {}))

    @property
    def waiting(self):
        return {name: n for name, n in self.count.items() if name in WAITING}


def plain_loss(hidden, head, targets, known, objective, factors, first_kmer):
    """Stand in for the loss, whose way without a GPU looks for logits that underflow."""
    logits = hidden.float() @ head[first_kmer : first_kmer + 4096].T
    loss = nn.functional.cross_entropy(logits, targets, reduction="sum")
    count = torch.full((), float(len(targets)))
    return LossSums(loss, count, loss.detach(), 6 * count, loss.detach(), 6 * count)


@pytest.fixture(scope="module")
def trainer(tmp_path_factory):
    config = make_config(small_corpus(), tmp_path_factory.mktemp("run") / "run")
    with joined_ranks(ParallelConfig()) as ranks:
        yield Trainer(config, ranks)


def a_step(trainer, given):
    schedule = trainer.schedule
    silent = RunLog.silent(trainer.config, trainer.ranks, schedule)
    return trainer._step(schedule.at(trainer.state.step), given, silent)


def one_batch(trainer):
    steps = range(trainer.state.step, trainer.schedule.total_steps)
    read = batches(trainer.rows, trainer.config, trainer.schedule, trainer.ranks, steps)
    return next(read)


def test_a_step_reads_the_device_once(trainer, monkeypatch):
    monkeypatch.setattr(parts_module, "head_loss", plain_loss)
    # On a GPU the optimizer is one kernel that counts its steps there.
    monkeypatch.setattr(trainer.optimizers[0], "step", lambda: None)
    given, reads, tolist = iter([one_batch(trainer)]), [], torch.Tensor.tolist

    def read(tensor):
        reads.append(tensor.shape)
        return tolist(tensor)

    monkeypatch.setattr(torch.Tensor, "tolist", read)
    with Operators() as operators:
        metrics = a_step(trainer, given)
    assert operators.count["aten::mm"] and not operators.waiting
    assert reads == [(6,)] and metrics["loss"] > 0


def test_the_clock_runs_while_rows_are_fetched(trainer, monkeypatch):
    now = [100.0]
    batch = one_batch(trainer)

    def slowly():
        now[0] += 4
        yield batch

    monkeypatch.setattr(trainer_module.time, "perf_counter", lambda: now[0])
    assert a_step(trainer, slowly())["tokens_per_second"] == BATCH_TOKENS / 4


@pytest.mark.parametrize("clip_norm", [1e9, 0.01])
def test_gradients_are_scaled_at_once(trainer, clip_norm):
    """By the tokens and the clipped norm, as a plain loop has it."""
    weights = [p for part in trainer.parts for p in part.parameters()]
    given = [torch.randn(p.shape) for p in weights]
    for weight, gradient in zip(weights, given, strict=True):
        weight.grad = weight.detach().clone()
        weight.grad.to_local().copy_(gradient)
    with Operators() as operators:
        norm = finish_gradients(trainer.parts, trainer.ranks, torch.tensor(7.0).double(), clip_norm)
    assert operators.count["aten::_foreach_mul_"] == 1 and not operators.waiting
    whole = torch.cat([g.flatten() for g in given]).double() / 7
    assert float(norm) == pytest.approx(float(whole.norm()), rel=1e-5)
    whole *= min(1.0, clip_norm / float(whole.norm()))
    found = torch.cat([w.grad.to_local().flatten() for w in weights]).double()
    torch.testing.assert_close(found, whole, rtol=1e-4, atol=1e-9)
    trainer.optimizers[0].zero_grad()


def test_rows_are_held_without_counting_them_anew():
    weight = nn.Parameter(torch.arange(12.0).reshape(4, 3))
    named = [("model.embed_tokens.weight", weight)]
    held = FrozenRows([SimpleNamespace(named_parameters=lambda: named)], [1, 3])
    weight.grad = torch.ones(4, 3)
    with Operators() as operators:
        held.clear_gradients()
        with torch.no_grad():
            weight.sub_(weight.grad + 0.5)
        held.restore()
    assert not operators.waiting
    assert weight.grad[:, 0].tolist() == [1, 0, 1, 0]
    assert weight[:, 0].tolist() == [-1.5, 3, 4.5, 9]
