"""Runs that go on from a model: native or hybrid, whole, by adapters, or the last layers."""

import itertools
import shutil
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaForCausalLM

from carbon.inference import load
from carbon.model import save_model
from carbon.tokenizer import HYBRID, NATIVE, NUM_KMERS, native_tokens
from tests.conftest import small_config
from tests.helpers.files import same_files
from tests.helpers.ranks import run_ranks
from tests.helpers.runs import (
    RECIPE,
    assert_close,
    lines_of,
    make_config,
    run_to_the_end,
    steps_of_each,
    take_steps,
    without_pictures,
)
from tests.helpers.schemas import check_run
from train.__main__ import main
from train.config import ParallelConfig
from train.planning.pipeline import PIPELINE_SCHEDULES
from train.planning.plan import plan_of
from train.schedule import Schedule
from train.trainer import Trainer

CONTEXT_TOKENS = 128
TUNINGS = {
    "whole": (),
    "lora": ("model.lora_rank=4", 'model.lora_targets=["q_proj", "v_proj", "up_proj"]'),
    "last": ("model.last_layers=1",),
}
# Of the last phase; adapters also work by themselves where it is that of the start.
THETAS = {"whole": 5e6, "lora": 5e5, "last": 5e6}


@pytest.fixture(scope="module")
def starts(tmp_path_factory) -> Path:
    """Hold `native`, `hybrid` (tied, one file), `untied` (bfloat16, in shards), `deep` (native)."""
    folder = tmp_path_factory.mktemp("starts")
    torch.manual_seed(0)
    config = small_config(CONTEXT_TOKENS)
    save_model(LlamaForCausalLM(config).eval(), folder / "native")
    config.vocab_size, config.pad_token_id = HYBRID.size, HYBRID.pad
    LlamaForCausalLM(config).save_pretrained(folder / "hybrid")
    config.tie_word_embeddings = False
    network = LlamaForCausalLM(config).to(torch.bfloat16)
    network.save_pretrained(folder / "untied", max_shard_size="4MB")
    config = small_config(CONTEXT_TOKENS)
    config.num_hidden_layers = 4
    save_model(LlamaForCausalLM(config).eval(), folder / "deep")
    return folder


def going_on(corpus, output, start, tune="whole", *more):
    words = ["model.preset=", f"model.start={start}", f"model.tune={tune}", *TUNINGS[tune]]
    return make_config(corpus, output, *words, *more)


def first_batch(ranks, config):
    """Return nats per base of the first step, and what its rows read: letters and tags."""
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    rows = [trainer.rows.segments(trainer.rows.order[i]) for i in range(8)]
    (metrics,) = itertools.islice(trainer.steps(), 1)
    names, tags_of = list(native_tokens()), {}
    if trainer.start.is_hybrid:
        tags_of = {ids: native for native, ids in trainer.start.prefixes.items()}
    read = [
        (piece.letters.tobytes().decode(), [names[i] for i in tags_of.get(prefix, prefix)[:-1]])
        for row in rows
        for piece in row
        if (prefix := piece.prefix)
    ]
    return metrics["nats_per_base"], read


@pytest.mark.parametrize(
    ("name", "tune"), [("native", "whole"), ("hybrid", "lora"), ("untied", "whole")]
)
def test_the_first_loss_is_what_scoring_finds(corpus, starts, tmp_path, name, tune):
    config = going_on(corpus, tmp_path / "run", starts / name, tune)
    ((found, read),) = run_ranks(1, first_batch, config)
    model = load(starts / name)
    nats = bases = 0
    for letters, tags in read:
        (score,) = model.score([letters], tags=tags if "native" in name else ())
        nats -= score.log_likelihood
        bases += score.log_likelihood / -score.nats_per_base
    assert found == pytest.approx(nats / bases, abs=1e-5)
    assert (name != "native") or any(tags for _, tags in read)


@pytest.fixture(scope="module")
def run_of(corpus, starts, tmp_path_factory):
    """Return a run of one process by its tuning: its configuration and its weights."""

    @cache
    def run(tune):
        name = {"whole": "hybrid", "lora": "hybrid", "last": "untied"}[tune]
        output = tmp_path_factory.mktemp(tune) / "run"
        theta = f"phases.1.rope_theta={THETAS[tune]}"
        short = (*steps_of_each(1), "checkpoint.every_steps=1", theta)
        config = going_on(corpus, output, starts / name, tune, *short)
        (weights,) = run_ranks(1, run_to_the_end, config)
        return config, weights

    return run


@pytest.fixture(params=TUNINGS)
def finished(request, run_of):
    return run_of(request.param)


def test_an_export_has_the_layout_that_the_start_had(finished):
    config, weights = finished
    before, after = Path(config.model.start), Path(config.output) / "export"
    files = sorted(path.name for path in before.glob("*.safetensors*"))
    assert [path.name for path in sorted(after.glob("*.safetensors*"))] == files
    changed = set()
    for file in sorted(before.glob("*.safetensors")):
        old, new = load_file(file), load_file(after / file.name)
        assert {n: (t.dtype, t.shape) for n, t in old.items()} == {
            n: (t.dtype, t.shape) for n, t in new.items()
        }
        for name, tensor in new.items():
            if len(tensor) == HYBRID.size:
                text = slice(0, HYBRID.begin)
                assert torch.equal(tensor[text], old[name][text])
                assert torch.equal(tensor[HYBRID.first_kmer + 4096 :], old[name][-8:])
                tensor, old[name] = tensor[HYBRID.kmer_rows], old[name][HYBRID.kmer_rows]
                weights[name] = weights[name][-4096:]
            rounded = torch.from_numpy(weights[name]).to(tensor.dtype)
            assert torch.equal(tensor, rounded), name
            if not torch.equal(tensor, old[name]):
                changed.add(name)
    if config.model.tune == "last":
        assert changed and all("layers.1." in n or n == "model.norm.weight" for n in changed)
    if config.model.tune == "lora":
        targets = config.model.lora_targets
        assert {n.split(".")[-2] for n in changed} == set(targets)
    stock = AutoModelForCausalLM.from_pretrained(after)
    assert stock.config.rope_parameters["rope_theta"] == THETAS[config.model.tune]


def test_an_export_of_a_checkpoint_is_that_of_the_run(finished, tmp_path):
    """File by file, though it makes no network: what was frozen comes from the start."""
    config, _ = finished
    (tmp_path / "run.toml").write_text(config.to_toml(), encoding="utf-8")
    words = ["--config", f"{tmp_path}/run.toml", "--output", f"{tmp_path}/model"]
    with without_pictures():
        assert main(["export", *words]) == 0
    assert same_files(tmp_path / "model", Path(config.output) / "export")


def test_peft_loads_the_adapter_by_itself(run_of):
    from peft import PeftModel

    config, _ = run_of("lora")
    start, export = config.model.start, Path(config.output) / "export"
    ids = torch.randint(HYBRID.first_kmer, HYBRID.first_kmer + NUM_KMERS, (2, 40))
    with torch.no_grad():
        alone = AutoModelForCausalLM.from_pretrained(start)
        before = alone(ids).logits
        finetuned = PeftModel.from_pretrained(alone, export / "adapter").eval()(ids).logits
        merged = AutoModelForCausalLM.from_pretrained(export)(ids).logits
    assert (finetuned - merged).abs().max() < 1e-4
    assert (before - merged).abs().max() > 1e-3


# Every tuning over shards and over a pipeline, of tied weights and of others; a process may hold
# two pieces, all of one frozen or none.
LAYOUTS = [
    ("native", "whole", ParallelConfig()),
    ("native", "last", ParallelConfig(pipeline=2)),
    *(
        pytest.param(*row, marks=pytest.mark.nightly)
        for row in (
            ("deep", "lora", ParallelConfig(pipeline=2, schedule="interleaved_1f1b")),
            ("untied", "lora", ParallelConfig()),
            ("untied", "whole", ParallelConfig(pipeline=2, schedule="gpipe")),
            ("deep", "last", ParallelConfig(pipeline=2, schedule="zbv")),
        )
    ),
]
ALL_SCHEDULES = [
    pytest.param(
        "deep", tune, ParallelConfig(pipeline=2, schedule=schedule), marks=pytest.mark.nightly
    )
    for tune, schedule in itertools.product(TUNINGS, PIPELINE_SCHEDULES)
]


@pytest.mark.parametrize(("name", "tune", "parallel"), LAYOUTS + ALL_SCHEDULES)
def test_a_layout_trains_as_one_process(corpus, starts, tmp_path, name, tune, parallel):
    config = going_on(corpus, tmp_path / "r", starts / name, tune, "data.microbatch_tokens=128")
    ((expected, weights),) = run_ranks(1, take_steps, config, 3)
    one = config.replace(parallel=parallel)
    (found, there), _ = run_ranks(2, take_steps, one, 3, parallel=parallel)
    for line, wanted in zip(found, expected, strict=True):
        for key in ("loss", "gradient_norm"):
            assert line[key] == pytest.approx(wanted[key], rel=1e-4)
    assert_close(there, weights)


@pytest.mark.nightly
def test_adapters_on_shared_rows_train_and_are_probed_as_alone(corpus, starts, tmp_path):
    """By two processes as by one: losses, a probe before and behind the steps, and the export.

    The first process alone reads the held-out records.
    """
    words = ("data.microbatch_tokens=128", "probe.every_steps=4", "probe.source=mrna",
             "probe.heldout_bp=600", "probe.sites=2")  # fmt: skip
    config = going_on(corpus, tmp_path, starts / "native", "lora", *words)
    weights, told = {}, {}
    for size in (1, 2):
        folder = tmp_path / str(size)
        one = config.replace(output=str(folder), parallel=ParallelConfig(context=size))
        weights[size], *_ = run_ranks(size, run_to_the_end, one, parallel=one.parallel)
        told[size] = lines_of(folder) + lines_of(folder, "probes")
    assert len(told[1]) == len(told[2]) == 4 + 2
    for alone, shared in zip(told[1], told[2], strict=True):
        for key in alone.keys() & {"loss", "gradient_norm", "heldout_nats_per_base"}:
            assert shared[key] == pytest.approx(alone[key], rel=1e-3), key
    assert_close(weights[2], weights[1])
    assert run_ranks(2, reads_held_out, one, parallel=one.parallel) == [True, False]


def reads_held_out(ranks, config):
    return Trainer(config, ranks)._evaluator is not None


def test_resuming_gives_the_same_bits_and_saves_nothing_that_is_frozen(finished, tmp_path):
    config, weights = finished
    again = config.replace(output=str(tmp_path / "run"))
    shutil.copytree(config.output, again.output)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "step-00000002")
    saved = load_file(next((tmp_path / "run" / "checkpoints").glob("*1/*.safetensors")))
    has_frozen = any("embed_tokens" in name for name in saved)
    assert has_frozen == (config.model.tune == "whole")
    (there,) = run_ranks(1, run_to_the_end, again, True)
    for name, value in weights.items():
        assert np.array_equal(there[name][-len(value) :], value), name


def test_a_start_that_has_changed_is_refused(corpus, starts, tmp_path):
    start = tmp_path / "start"
    shutil.copytree(starts / "native", start)
    config = going_on(corpus, tmp_path / "run", start, "last", *steps_of_each(1))
    assert isinstance(run_ranks(1, run_to_the_end, config)[0], dict)
    tensors = load_file(start / "model.safetensors")
    tensors["model.norm.weight"][3] += 0.5
    save_file(tensors, start / "model.safetensors", metadata={"format": "pt"})
    ((_, told),) = run_ranks(1, run_to_the_end, config, True)
    assert "start_sha256 was" in told


def test_rows_that_no_row_names_stay(corpus, starts, tmp_path):
    """Tags of other species and `</dna>` have no gradient, and weight decay leaves them alone."""
    config = going_on(corpus, tmp_path / "run", starts / "native", "whole", *steps_of_each(1))
    run_ranks(2, run_to_the_end, config)
    before, after = (
        load(path).model.network.get_input_embeddings().weight
        for path in (starts / "native", tmp_path / "run" / "export")
    )
    same = (before == after).all(dim=1)
    assert same[NATIVE.dna_end] and same[NATIVE.tag_ids(("<fungi_species>",))[0]]
    assert not same[NATIVE.begin] and not same[NATIVE.tag_ids(("<invertebrate_species>",))[0]]


def test_old_and_new_are_probed_from_before_the_first_step(corpus, starts, tmp_path):
    words = (
        f"data.replay_corpus={corpus}", "probe.every_steps=2", "probe.source=mrna",
        'probe.also=["replay_eukaryote"]', "probe.heldout_bp=600", "probe.sites=2",
        "phases.0.mixture={ mrna = 0.75, replay_eukaryote = 0.25 }", *steps_of_each(1),
    )  # fmt: skip
    config = going_on(corpus, tmp_path / "run", starts / "native", "whole", *words)
    assert isinstance(run_ranks(1, run_to_the_end, config)[0], dict)
    check_run(tmp_path / "run", "metrics", "probes")
    probes = lines_of(tmp_path / "run", "probes")
    assert [probe["step"] for probe in probes] == [0, 2]
    old = [probe["heldout_nats_per_base_of_replay_eukaryote"] for probe in probes]
    assert old[0] != old[1] and old[0] != probes[0]["heldout_nats_per_base"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.preset=5m"], "model.preset = '5m' has hidden_size 256, and"),
        (["phases.1.context_tokens=256"], "context_tokens = 256: "),
        (["model.tune=last", "model.last_layers=3"], "has 2 layers"),
        (["model.tune=last"], "last_layers: 0 trains nothing; give 1 or more"),
        (["model.last_layers=1"], "last_layers: 1: only tune = 'last' has that"),
        (["model.start="], "model.preset: is missing"),
    ],
)
def test_mistakes_are_one_line_before_anything_is_written(
    corpus, starts, tmp_path, capsys, words, message
):
    output = tmp_path / "run"
    given = [f"data.corpus={corpus}", f"output={output}", "model.preset=",
             f"model.start={starts / 'native'}", "phases.0.context_tokens=64",
             "phases.1.context_tokens=64", *words]  # fmt: skip
    sets = [word for setting in given for word in ("--set", setting)]
    assert main(["--config", str(RECIPE), *sets]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and message in lines[0]
    assert not output.exists()


def test_another_vocabulary_is_refused(corpus, starts, tmp_path, capsys):
    config = small_config()
    config.vocab_size = 5000
    LlamaForCausalLM(config).save_pretrained(tmp_path / "other")
    words = ["--config", str(RECIPE), "--set", "model.preset=", "--set", "output=x"]
    assert main([*words, "--set", f"model.start={tmp_path / 'other'}", "--dry-run"]) == 2
    assert "5000 rows fit neither" in capsys.readouterr().err


def counted(ranks, config):
    from train.trainer import Trainer

    trainer = Trainer(config, ranks)
    parameters = [p for part in trainer.parts for p in part.parameters()]
    groups = [group for each in trainer.optimizers for group in each.param_groups]
    trained = [p for group in groups for p in group["params"]]
    next(trainer.steps())
    states = [state for each in trainer.optimizers for state in each.state.values()]
    moments = [t for state in states for t in state.values() if t.ndim]
    of = (parameters, trained, moments)
    return [sum(t.numel() for t in tensors) for tensors in of]


@pytest.mark.parametrize(
    ("name", "tune", "optimizer"),
    [
        ("untied", "lora", "adamw"),
        ("native", "last", "adamw"),
        ("native", "whole", "muon"),
    ],
)
def test_the_plan_counts_what_is_trained(corpus, starts, tmp_path, tune, name, optimizer):
    config = going_on(corpus, tmp_path / "run", starts / name, tune)
    config = config.replace(optimizer=config.optimizer.replace(name=optimizer))
    plan = plan_of(config, Schedule(config), 1)
    ((parameters, trained, moments),) = run_ranks(1, counted, config)
    assert (plan.num_parameters, plan.num_trained) == (parameters, trained)
    memory = plan.spans[0].memory[0]
    assert (memory.weights, memory.moments) == (4 * parameters, 4 * moments)
    assert memory.gradients == 4 * trained
    assert moments == 2 * trained if optimizer == "adamw" else moments < 2 * trained
