"""Predictions: both strands, windows, files of fine-tuned models, and what is wrong with them."""

import copy
import json
import os
import shutil
import sys

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from carbon.errors import ModelError, UserError
from carbon.finetune import probe as probe_module
from carbon.finetune.config import MethodConfig
from carbon.finetune.folder import Manifest, read_manifest, weights_sha256
from carbon.finetune.network import OpenedModel
from carbon.finetune.predict import load_finetuned, read_head, with_linear, write_finetuned
from carbon.finetune.probe import kmers_averager, probe, vectors_of
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask
from carbon.genome import reverse_complement
from carbon.model import LoadedModel, load_model, save_model
from carbon.tokenizer import NATIVE, encode
from tests.helpers.files import random_bases
from tests.helpers.finetune import BASES, BINARY, NUMBERS, examples_of, finetuned_of

SEQUENCES = [random_bases(n) for n in (60, 61, 62, 63, 64, 65, 1)]


def written(base, folder, task=BINARY, **method):
    """Write a model with adapters that do something; return its predictions."""
    finetuned, opened = finetuned_of(base, task, MethodConfig(name="lora", dropout=0.0, **method))
    torch.manual_seed(7)
    with torch.no_grad():
        for parameter in finetuned.network.parameters():
            if parameter.requires_grad:
                parameter += 0.05 * torch.randn_like(parameter)
    before = list(finetuned.predict(SEQUENCES))
    folder.mkdir()
    write_finetuned(folder, finetuned.network, opened, finetuned.manifest)
    return before


@pytest.mark.parametrize(("task", "pool"), [(BINARY, "mean"), (NUMBERS, "end"), (BASES, "mean")])
def test_both_strands_are_predicted_alike(base, task, pool):
    finetuned, _ = finetuned_of(base, task, MethodConfig(name="full", pool=pool))
    ours = list(finetuned.predict(SEQUENCES))
    turned = list(finetuned.predict([reverse_complement(s) for s in SEQUENCES]))
    alone = list(finetuned.predict(SEQUENCES, strands="forward"))
    for one, other, forward in zip(ours, turned, alone, strict=True):
        np.testing.assert_allclose(one, other[::-1] if task.per_base else other, atol=1e-5)
        assert one.dtype == np.float32 and one.shape == forward.shape
    assert any(not np.allclose(a, b, atol=1e-4) for a, b in zip(ours, alone, strict=True))
    learned, _ = finetuned_of(base, task, MethodConfig(name="full", pool=pool, strands="forward"))
    for one, other in zip(learned.predict(SEQUENCES), alone, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.filterwarnings("error::FutureWarning")
def test_a_folder_predicts_what_was_predicted_before(tmp_path, base):
    """Of a label of every base; for one label a sequence, the tests of a run compare them."""
    before = written(base, tmp_path / "lora", BASES)
    again = load_finetuned(tmp_path / "lora").predict(SEQUENCES)
    np.testing.assert_allclose(np.concatenate(list(again)), np.concatenate(before), atol=1e-6)


@pytest.mark.parametrize("layer", [None, 1])
def test_an_adapter_is_read_by_stock_classes_alone(tmp_path, base, layer):
    folder = tmp_path / "lora"
    written(base, folder, layer=layer)
    stock = AutoModel.from_pretrained(base)
    plain = PeftModel.from_pretrained(stock, folder / "adapter").eval()
    ours = load_finetuned(folder)
    theirs = dict(plain.named_parameters())
    names = [name for name in theirs if "lora_" in name]
    assert len(names) == 2 * 7 * (layer or 2)  # A and B of seven modules of each layer that is read
    for name in names:
        torch.testing.assert_close(ours.network.backbone.get_parameter(name), theirs[name])
    # The prediction by hand: states of the stock classes, their mean by known bases, the head.
    encoding = encode(SEQUENCES[0], NATIVE)
    known = torch.tensor(np.bitwise_count(encoding.known), dtype=torch.float32)
    last = []
    plain.base_model.model.layers[(layer or 2) - 1].register_forward_hook(
        lambda module, inputs, output: last.append(output)
    )
    with torch.no_grad():
        whole = plain(input_ids=torch.tensor(encoding.ids)[None]).last_hidden_state
        states = (whole if layer is None else last[0])[0]
        logits = ours.network.head((known @ states / known.sum())[None])
    (found,) = ours.predict(SEQUENCES[:1], strands="forward")
    np.testing.assert_allclose(found, logits[0].sigmoid().numpy(), atol=1e-6)


def renamed(tensors, name):
    tensors[f"{name}x"] = tensors.pop(name)


DAMAGES = {
    "dropped": lambda tensors, name: tensors.pop(name),
    "renamed": renamed,
    "extra": lambda tensors, name: tensors.update({"extra.weight": torch.zeros(2)}),
    "another shape": lambda tensors, name: tensors.update({name: torch.zeros(3, 3)}),
    "nan": lambda tensors, name: tensors[name].view(-1)[0].fill_(torch.nan),
    "inf": lambda tensors, name: tensors[name].view(-1)[0].fill_(torch.inf),
}
ADAPTER, HEAD = "adapter/adapter_model.safetensors", "head.safetensors"


@pytest.mark.parametrize(
    ("file", "damage"),
    [
        (ADAPTER, "dropped"), (ADAPTER, "extra"), (ADAPTER, "nan"), (HEAD, "renamed"),
        (HEAD, "another shape"), (HEAD, "inf"), (ADAPTER, "another shape"), (HEAD, "extra"),
    ],
)  # fmt: skip
def test_damaged_weights_are_refused(tmp_path, finetuned, file, damage):
    folder = shutil.copytree(finetuned("lora"), tmp_path / "lora")
    tensors = load_file(folder / file)
    DAMAGES[damage](tensors, next(iter(tensors)))
    save_file(tensors, folder / file)
    with pytest.raises(ModelError, match="lora") as caught:
        load_finetuned(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        {"target_modules": "(a+)+$"},
        {"target_modules": None},
        {"exclude_modules": "(a+)+$"},
        {"rank_pattern": {"(a+)+$": 3}},
    ],
)
def test_a_pattern_of_an_adapter_is_not_executed(tmp_path, finetuned, change):
    folder = shutil.copytree(finetuned("lora"), tmp_path / "lora")
    path = folder / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=rf"adapter_config\.json: {next(iter(change))}"):
        load_finetuned(folder)


def test_a_tuned_model_is_a_stock_model(finetuned, network):
    model = load_model(finetuned("full") / "model")
    assert (finetuned("full") / "model" / "tokenizer.json").is_file()
    name = "model.layers.1.mlp.up_proj.weight"
    assert not torch.equal(model.network.get_parameter(name), network.get_parameter(name))
    rows, before = (n.model.embed_tokens.weight for n in (model.network, network))
    assert torch.equal(rows[0], before[0])  # padding is not trained
    assert not torch.equal(rows, before)


def test_another_base_model_is_refused(tmp_path, network, finetuned):
    folder = finetuned("lora")
    other = copy.deepcopy(network)
    with torch.no_grad():
        other.model.norm.weight += 1
    save_model(other, tmp_path / "other")
    with pytest.raises(ModelError, match=r"other weights than .*other has"):
        load_finetuned(folder, base=tmp_path / "other")
    moved = shutil.copytree(folder, tmp_path / "moved")
    plain = json.loads((moved / "finetune.json").read_text())
    (moved / "finetune.json").write_text(json.dumps(plain | {"base": str(tmp_path / "gone")}))
    with pytest.raises(ModelError, match="--base"):
        load_finetuned(moved)
    load_finetuned(moved, base=folder.parent / "base")


def test_torn_and_absent_files_are_named(tmp_path, finetuned):
    folder = shutil.copytree(finetuned("lora"), tmp_path / "lora")
    head = (folder / "head.safetensors").read_bytes()
    (folder / "head.safetensors").write_bytes(head[:50])
    with pytest.raises(ModelError, match=r"head.safetensors: the model cannot be loaded"):
        load_finetuned(folder)
    (folder / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelError, match=r"adapter_model.safetensors: .*No such file"):
        load_finetuned(folder)
    (folder / "head.safetensors").unlink()
    os.mkfifo(folder / "head.safetensors")
    with pytest.raises(ModelError, match="is not a regular file"):
        read_head(folder, read_manifest(folder), 32)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"format": 9}, "format 9"),
        ({"task": None}, "task: Input should be an object"),
        ({"method": "magic"}, "method is 'magic', expected probe, lora, full"),
        ({"too_long": "x" * 5000}, "too_long is 'x+\\.\\.\\.', expected refuse"),
        ({"window_bp": 10**5000}, "number out of range"),
        ({"results": {"auroc": float("nan")}}, "NaN and Infinity are not JSON"),
    ],
)
def test_a_damaged_manifest_is_one_line(tmp_path, finetuned, change, problem):
    plain = json.loads((finetuned("lora") / "finetune.json").read_text())
    sys.set_int_max_str_digits(0)
    (tmp_path / "finetune.json").write_text(json.dumps(plain | change))
    sys.set_int_max_str_digits(4300)
    with pytest.raises(ModelError, match=rf"finetune\.json: .*{problem}") as caught:
        read_manifest(tmp_path)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 500


class TestLongSequences:
    """A context of 48 tokens holds 282 bp beside `<dna>`."""

    def test_refused_cut_or_tiled(self, base):
        finetuned, _ = finetuned_of(base, NUMBERS, MethodConfig(name="full"))
        long, short = random_bases(500), random_bases(30)
        assert finetuned.room_bp == 282
        with pytest.raises(UserError, match="sequence 2: has 500 bp, the model reads 282"):
            list(finetuned.predict([short, long]))
        cut, _ = finetuned.predict([long, short], too_long="truncate")
        (first,) = finetuned.predict([long[:282]])
        np.testing.assert_allclose(cut, first, atol=1e-5)
        (tiled,) = finetuned.predict([long], too_long="tile")
        pieces = [long[:282], long[138:420], long[276:]]
        each = np.stack(list(finetuned.predict(pieces)))
        sizes = np.array([282, 282, 224])[:, None]
        np.testing.assert_allclose(tiled, (sizes * each).sum(0) / sizes.sum(), atol=1e-5)

    def test_every_base_of_a_long_one(self, base):
        finetuned, _ = finetuned_of(base, BASES, MethodConfig(name="full"))
        (cut,) = finetuned.predict([random_bases(500)], too_long="truncate")
        assert cut.shape == (500, 3)
        assert np.isnan(cut[282:]).all() and np.isfinite(cut[:282]).all()


class TestProbe:
    def opened(self, network):
        return OpenedModel(LoadedModel(copy.deepcopy(network), NATIVE))

    def test_states_of_all_layers_are_those_of_embed(self, network, model):
        method = MethodConfig(name="probe", strands="forward")
        found = vectors_of(self.opened(network), [0, 1, 2, None], SEQUENCES, method)
        for n, layer in enumerate([0, 1, 2, None]):
            expected = np.stack(list(model.embed(SEQUENCES, layer=layer)))
            np.testing.assert_allclose(found[:, n], expected, atol=1e-5)

    def test_what_is_stored_predicts_what_was_chosen(self, tmp_path, base, network):
        task = LabelTask("classes", ("no", "yes"), "cross_entropy")
        method = MethodConfig(name="probe")
        examples = examples_of(task, 60)
        train, validation = examples.split("train"), examples.split("validation")
        found = probe(self.opened(network), task, train, validation, method)
        assert {trial.layer for trial in found.layers} == {1, None}
        assert found.best.score == max(trial.score for trial in found.layers)
        again = self.stored(tmp_path, base, found, task)
        assert again.manifest.layer == found.best.layer
        predictions = np.stack(list(again.predict(validation.sequences)))
        score = task.score(predictions, validation.labels)
        assert score == pytest.approx(found.best.score, abs=1e-4)

    def stored(self, tmp_path, base, found, task):
        """Write what a probe found, and load it again."""
        manifest = Manifest(
            method="probe", base=str(base), base_sha256=weights_sha256(base), task=task,
            layer=found.best.layer, norm=False, k=6
        )  # fmt: skip
        finetuned, opened = with_linear(load_model(base), found.linear, manifest)
        (tmp_path / "probe").mkdir()
        write_finetuned(tmp_path / "probe", finetuned.network, opened, finetuned.manifest)
        return load_finetuned(tmp_path / "probe")

    def test_every_base_is_answered_as_it_was_chosen(self, tmp_path, base, network):
        """Of one strand, all of whose 6-mers are read: predictions have the score to the digit.

        There are eight 6-mers, which random states tell apart; a tail has fewer bases.
        """
        rng = np.random.default_rng(0)
        words = [random_bases(6, seed=n) for n in range(8)]
        sequences = tuple("".join(rng.choice(words, 9))[: 50 + n % 5] for n in range(60))
        labels = np.array([[float("ACG".find(b) % 3)] for b in "".join(sequences)], np.float32)
        of = examples_of(BASES, 60)
        examples = Examples(of.names, sequences, labels, of.splits, of.groups, per_base=True)
        train, validation = examples.split("train"), examples.split("validation")
        method = MethodConfig(name="probe", strands="forward")
        found = probe(self.opened(network), BASES, train, validation, method)
        again = self.stored(tmp_path, base, found, BASES)
        said = list(again.predict(validation.sequences, strands="forward"))
        assert [each.shape for each in said] == [(len(s), 3) for s in validation.sequences]
        score = BASES.score(np.concatenate(said), validation.labels)
        assert score == pytest.approx(found.best.score, abs=1e-3) and score > 0.5
        assert found.notes == ()

    def test_of_many_6_mers_some_are_drawn(self, network, monkeypatch):
        monkeypatch.setattr(probe_module, "MOST_KMERS", 50)
        examples, opened = examples_of(BASES, 40), self.opened(network)
        splits = examples.split("train"), examples.split("validation")
        method = MethodConfig(name="probe", layer=2)
        total = 2 * sum(-(-len(sequence) // 6) for sequence in splits[0].sequences)
        (note,) = probe(opened, BASES, *splits, method, 0).notes
        assert f"50 of {total} 6-mers" in note
        averager = kmers_averager(opened, [2])
        found = [probe_module.read_kmers(averager, splits[0], method, s) for s in (0, 0, 1)]
        vectors = [each.vectors for each in found]
        assert len(vectors[0]) == 50 and np.array_equal(vectors[0], vectors[1])
        assert not np.array_equal(*vectors[1:])

    @pytest.mark.parametrize("too_long", ["truncate", "tile"])
    def test_6_mers_have_the_labels_of_their_bases(self, network, too_long):
        """Labels are the bases themselves, so that either strand's can be written down."""
        sequences = (random_bases(500), random_bases(31))
        bases = np.array([["ACGT".index(b)] for b in "".join(sequences)], dtype=np.float32)
        empty = ("", "")
        examples = Examples(("a", "b"), sequences, bases, empty, empty, per_base=True)
        method = MethodConfig(name="probe", too_long=too_long)
        averager = kmers_averager(self.opened(network), [2])
        found = probe_module.read_kmers(averager, examples, method, 0)
        starts = [0] if too_long == "truncate" else [0, 138, 276]
        pieces = [sequences[0][start : start + 282] for start in starts] + [sequences[1]]
        expected = ""
        for piece in pieces:
            tail = "-" * (-len(piece) % 6)
            expected += piece + tail + piece[::-1] + tail
        letters = ["-" if np.isnan(x) else "ACGT"[int(x)] for x in found.labels.ravel()]
        assert "".join(letters) == expected
        assert len(found.vectors) == len(found.labels) == found.total == len(expected) // 6
