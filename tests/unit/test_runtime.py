"""What is set once for a process: the same bits each time, and how often layers are compiled."""

import errno
import json
import os
import shutil
from dataclasses import asdict
from types import SimpleNamespace
from unittest import mock

import pytest
import torch
from torch import nn
from torch._inductor import config as inductor
from torch.utils._python_dispatch import TorchDispatchMode

from carbon.errors import ModelError
from carbon.io.files import sha256_of_file
from tests.helpers.attention import flash_attn_varlen_func, kernels_on_cpu
from tests.helpers.compiled import Noted
from tests.helpers.packed import batch, loss_and_gradients, part
from train import checkpoint as checkpoint_module
from train import saved as saved_module
from train.checkpoint import Checkpoints
from train.config import CheckpointConfig, ComputeConfig, ParallelConfig
from train.diloco.sync import OuterSync
from train.distributed.attention import use_attention
from train.distributed.mesh import joined_ranks
from train.hooks import CompiledGraphs, StepProfiler, set_up
from train.planning.time import peak_flops
from train.runs.log import _cut_back
from train.saved import FORMAT, RunState, check_network, step_of

# CUDA operators that have no way to give the same bits twice, or none that torch would refuse:
# the documentation of `torch.use_deterministic_algorithms`.
WITHOUT_ORDER = {
    "aten::adaptive_avg_pool2d_backward", "aten::bincount", "aten::cumsum", "aten::histc",
    "aten::kthvalue", "aten::median", "aten::nll_loss2d_forward", "aten::put_", "aten::resize_",
    "aten::scatter_reduce", "aten::_embedding_bag_backward", "aten::_ctc_loss_backward",
    "aten::upsample_bilinear2d_backward",
}  # fmt: skip


@pytest.fixture(autouse=True)
def as_before(monkeypatch):
    """Leave the process as it was."""
    dynamo = torch._dynamo.config
    before = torch.are_deterministic_algorithms_enabled(), dynamo.recompile_limit
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    yield
    torch.use_deterministic_algorithms(before[0])
    dynamo.recompile_limit = before[1]
    inductor.deterministic = False
    os.environ.pop("CUBLAS_WORKSPACE_CONFIG", None)


def test_the_same_bits_are_asked_of_all_who_choose():
    set_up(ComputeConfig(compile=True), 1)
    assert not torch.are_deterministic_algorithms_enabled() and not inductor.deterministic
    assert "CUBLAS_WORKSPACE_CONFIG" not in os.environ
    set_up(ComputeConfig(deterministic=True, compile=True), 1)
    assert torch.are_deterministic_algorithms_enabled() and inductor.deterministic
    assert os.environ["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"


@pytest.mark.parametrize("asked", [True, False])
def test_flash_attention_is_told(asked, monkeypatch):
    told = []

    def noting(*args, deterministic, **kwargs):
        told.append(deterministic)
        return flash_attn_varlen_func(*args, **kwargs)

    with kernels_on_cpu():
        import flash_attn

        monkeypatch.setattr(flash_attn, "flash_attn_varlen_func", noting)
        set_up(ComputeConfig(deterministic=asked), 1)
        network = part("sdpa")
        use_attention(network.config, "flash_attention_2")
        loss_and_gradients(network, batch([[5, 3]]))
    assert told and set(told) == {asked}


def test_a_step_has_no_operator_without_an_order():
    """Forward and backward, with torch refusing what it knows; the same numbers as without."""
    seen = set()

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.add(func.name().split(".")[0])
            return func(*args, **(kwargs or {}))

    network = part("sdpa")
    expected = loss_and_gradients(network, batch([[5, 3]]))
    set_up(ComputeConfig(deterministic=True), 1)
    with Seen():
        found = loss_and_gradients(network, batch([[5, 3]]))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert "aten::mm" in seen and not seen & WITHOUT_ORDER


class Layer(nn.Module):
    def forward(self, hidden):
        return 2 * hidden


@pytest.mark.parametrize(("num_lengths", "compiled"), [(0, 8), (3, 12)])
def test_every_length_is_compiled(num_lengths, compiled):
    """Where each takes graphs of its own; by default those behind the eighth are not."""
    torch._dynamo.reset()
    compute = ComputeConfig(compile=True)
    set_up(compute, num_lengths)
    graphs, noted, layer = CompiledGraphs(compute), Noted(), Layer()
    layer.compile(backend=noted, dynamic=False)
    for tokens in range(2, 14):
        layer(torch.ones(tokens, 4))
    assert noted.num_graphs == compiled
    assert graphs.new() == graphs.total == compiled and graphs.new() == 0
    torch._dynamo.reset()


@pytest.mark.parametrize(
    ("steps", "done", "traced"),
    [
        ([1, 2], [0, 1, 2, 3], [0, 2]),
        ([2, 3], [0, 1, 2, 3, 4], [1, 3]),
        ([1, 9], [4, 5, 9, 10], [4, 9]),  # after a resume
        ([3, 5], [0, 1, 4, 7, 8], [4, 7]),  # steps of others lie between
        ([3, 5], [0, 1, 6, 7], []),
    ],
)
def test_steps_are_traced(tmp_path, monkeypatch, steps, done, traced):
    """From the first finished number that has the first step ahead, to the first past the last."""
    noted, profiler = [], mock.Mock()
    monkeypatch.setattr("train.hooks.profile", profiler)
    config = SimpleNamespace(compute=ComputeConfig(profile_steps=steps), output=str(tmp_path))
    tracing = StepProfiler(config, SimpleNamespace(rank=0))
    for number in done:
        before = profiler.return_value.start.call_count + profiler.return_value.stop.call_count
        tracing.step(number)
        after = profiler.return_value.start.call_count + profiler.return_value.stop.call_count
        noted += [number] * (after - before)
    assert noted == traced


def test_what_writes_waits_for_the_copy(tmp_path, monkeypatch):
    order = []
    found = object.__new__(Checkpoints)
    found._folder, found._error = tmp_path, None
    found._ranks = SimpleNamespace(quiet_group=None, is_first=True)
    found._from_first = lambda work: order.append("folder")

    def save(*args, **kwargs):
        order.append("save")
        raise OSError(28, "no space left")

    monkeypatch.setattr(checkpoint_module, "save", save)
    copied = SimpleNamespace(synchronize=lambda: order.append("copied"))
    found._write(tmp_path / "step-1", {}, {"state": {"step": 1}}, copied)
    assert order == ["copied", "folder", "save"] and isinstance(found._error, OSError)


@pytest.fixture
def checkpoints(tmp_path):
    """Checkpoints of a folder in which there is one of step 4, and another waits for its name."""
    found = object.__new__(Checkpoints)
    found._folder = tmp_path
    found._config = SimpleNamespace(checkpoint=CheckpointConfig(every_steps=4, keep=2))
    for name, text in (("step-00000004", "old"), (".step-00000004.partial", "new")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "shard").write_text(text)
    return found


def complete(checkpoints, folder):
    table = {"sha256": {}}
    checkpoints._complete(folder / ".step-00000004.partial", folder / "step-00000004", table)


@pytest.mark.parametrize("renames", [0, 1])
def test_a_crash_while_a_checkpoint_takes_its_name_leaves_a_whole_one(
    checkpoints, tmp_path, monkeypatch, renames
):
    """Of the same step there was one before, which is there until the new one is."""
    done, replace = [], os.replace

    def crash(source, target):
        if len(done) == renames:
            raise KeyboardInterrupt
        done.append(target)
        replace(source, target)

    monkeypatch.setattr(checkpoint_module.os, "replace", crash)
    with pytest.raises(KeyboardInterrupt):
        complete(checkpoints, tmp_path)
    (path,) = checkpoints._all()
    assert step_of(path) == 4 and (path / "shard").read_text() == "old"
    monkeypatch.undo()
    complete(checkpoints, tmp_path)
    assert (tmp_path / "step-00000004/shard").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000004"]


@pytest.mark.parametrize(
    ("text", "kept", "message"),
    [
        ('{"step": 1}\n{"step": 2}\n{"step": 3}\n', [1, 2], ""),
        ('{"step": 1}\n{"step": 2, "phase": "', [1], "line 2: is torn and left out"),
        (b'{"step": 1}\n{"step": 2, "phase": "\xc3', [1], "line 2: is torn and left out"),
        ('{"step": 1}\n{"step": 2', [1], "line 2: is torn and left out"),
        ('{"step": 1}\n{"st\n{"step": 2}\n', None, "line 2: Invalid JSON"),
        ('{"step": -1}\n', None, "line 1: step: Input should be greater than or equal to 0"),
        ("[]\n", None, "line 1: Input should be an object"),
    ],
)
def test_a_log_is_cut_back_to_the_checkpoint(tmp_path, capsys, text, kept, message):
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    before = path.read_bytes()
    if kept is None:
        with pytest.raises(ModelError, match=f"metrics.jsonl {message}"):
            _cut_back(path, 2)
        assert path.read_bytes() == before
        return
    _cut_back(path, 2)
    assert [json.loads(line)["step"] for line in path.read_text().splitlines()] == kept
    assert message in capsys.readouterr().err


def test_names_of_others_are_left_alone_and_listed(checkpoints, tmp_path, capsys):
    for name in ("step-00000006.bak", "step-00000006 (copy)", "step-x", "notes", ".step-9.partial"):
        (tmp_path / name).mkdir()
    assert [path.name for path in checkpoints._all()] == ["step-00000004"]
    checkpoints.name_foreign()
    assert capsys.readouterr().err == (
        f"{tmp_path}: not checkpoints, left alone: notes, step-00000006 (copy), "
        "step-00000006.bak, step-x\n"
    )


def test_a_copy_of_a_checkpoint_does_not_stop_a_resume(tmp_path):
    copy = tmp_path / "checkpoints" / "step-00000006 (copy)"
    copy.mkdir(parents=True)
    (copy / "state.json").write_text("{}")
    check_network(SimpleNamespace(), tmp_path)


def test_of_two_of_a_step_the_newer_comes_last(checkpoints, tmp_path):
    """They are tried from the end; a crash has left the older one under its other name."""
    for name in ("step-00000004.replaced", "step-00000002"):
        (tmp_path / name).mkdir()
    names = [path.name for path in checkpoints._all()]
    assert names == ["step-00000002", "step-00000004.replaced", "step-00000004"]
    complete(checkpoints, tmp_path)
    names = [path.name for path in checkpoints._all()]
    assert names == ["step-00000002", "step-00000004"]


def test_a_checkpoint_is_on_disk_before_it_has_its_name(checkpoints, tmp_path, monkeypatch):
    order, fsync, replace = [], os.fsync, os.replace

    def noting_fsync(descriptor):
        order.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def noting_replace(source, target):
        order.append(f"-> {os.path.basename(target)}")
        replace(source, target)

    monkeypatch.setattr(checkpoint_module.os, "fsync", noting_fsync)
    monkeypatch.setattr(checkpoint_module.os, "replace", noting_replace)
    checkpoint_module._on_disk(tmp_path / ".step-00000004.partial/shard")
    complete(checkpoints, tmp_path)
    assert order == [
        "shard", "state.json", ".step-00000004.partial", "-> step-00000004.replaced",
        "-> step-00000004", tmp_path.name,
    ]  # fmt: skip


@pytest.fixture
def saved(tmp_path):
    """Checkpoints of steps 4, 8 and 12 in which a shard is a word, and where each stands."""
    found = object.__new__(Checkpoints)
    found._folder, found._settings, found._writing = tmp_path, {}, None
    found._config = SimpleNamespace(checkpoint=CheckpointConfig(every_steps=4))
    for step in (4, 8, 12):
        folder = tmp_path / f"step-{step:08d}"
        folder.mkdir()
        (folder / "shard").write_text("word")
        table = {"format": FORMAT, "settings": {}, "state": asdict(RunState(step=step))}
        sums = {"shard": sha256_of_file(folder / "shard")}
        (folder / "state.json").write_text(json.dumps(table | {"sha256": sums}))
    with joined_ranks(ParallelConfig(), "cpu") as ranks:
        found._ranks = ranks
        yield found


def test_damaged_checkpoints_alone_are_refused(saved, tmp_path):
    """A start at step 0 would cut the logs of the run back."""
    (tmp_path / "step-00000012/shard").write_text("torn")
    assert saved.newest()[1].step == 8
    (tmp_path / "step-00000008/shard").unlink()
    (tmp_path / "step-00000004/state.json").write_text("{")
    with pytest.raises(ModelError) as refused:
        saved.newest()
    said = str(refused.value)
    assert said.startswith(
        f"{tmp_path}: holds no whole checkpoint: step-00000012 (shard differs from its checksum); "
        "step-00000008 (shard is missing); step-00000004 ("
    )
    assert "start anew with another output" in said and "\n" not in said
    for path in tmp_path.iterdir():
        shutil.rmtree(path)
    assert saved.newest() is None and not saved.exist()


@pytest.mark.parametrize(
    ("place", "number"),
    [("state.json", errno.EIO), ("shard", errno.ESTALE), ("folder", errno.EACCES)],
)
def test_what_cannot_be_read_now_is_no_damage(saved, tmp_path, monkeypatch, number, place):
    """The error of a disk may pass, so that an older checkpoint would lose work for nothing."""
    wrong = OSError(number, os.strerror(number), place)
    where = {
        "state.json": (saved_module, "read_json"),
        "shard": (saved_module, "sha256_of_file"),
        "folder": (saved_module.os, "listdir"),
    }[place]
    monkeypatch.setattr(*where, mock.Mock(side_effect=wrong))
    with pytest.raises(OSError if place == "folder" else ModelError) as refused:
        saved.newest()
    assert os.strerror(number) in str(refused.value)
    if place != "folder":
        assert str(refused.value).startswith(f"{tmp_path}/step-00000012: cannot be read (")


def test_a_rollback_goes_to_no_later_step(saved, monkeypatch):
    """That of step 12 was torn when the run went on from 8, and can be read again."""
    saved._sync = OuterSync()
    monkeypatch.setattr(saved, "load_newest", saved.newest)
    path, state = saved.roll_back(RunState(step=9))
    assert path.name == "step-00000008" and state.step == 8
    state = RunState(step=3)
    assert saved.roll_back(state) is state


def test_a_number_of_all_processes_is_exact():
    """Steps and tokens are above 2^24, where fp32 has even numbers only."""
    with joined_ranks(ParallelConfig(), "cpu") as ranks:
        for value in (2**24 + 1, 2**53 + 1, -(2**24) - 1):
            assert int(ranks.largest(value)) == value


@pytest.mark.parametrize(
    ("gpu", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("NVIDIA H100", None),
    ],
)
def test_peaks_are_those_of_data_sheets(gpu, peak):
    """With sparsity: H100 SXM 1,979, PCIe 1,513."""
    assert peak_flops(gpu) == peak
