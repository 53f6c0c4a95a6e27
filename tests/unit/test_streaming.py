"""Weights one at a time: the bytes that the libraries write, without their memory."""

import weakref

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaForCausalLM

from carbon.model import name_tags, save_model
from carbon.model.save import OnDemand, TensorType, save_weights, tensor_types, write_streamed
from tests.helpers.files import same_files
from tests.helpers.runs import RECIPE
from train.config import TrainConfig
from train.models.network import network_config


def some_tensors() -> dict[str, torch.Tensor]:
    return {
        "b.weight": torch.randn(5, 3), "a.10": torch.randn(7).to(torch.bfloat16),
        "a.9": torch.randn(3, 3).T.to(torch.float16), "none": torch.empty(0, 4),
        "ä": torch.randn(2, 2, 2, dtype=torch.float64), "ids": torch.arange(5),
        "short": torch.arange(3, dtype=torch.int32), "mask": torch.tensor([True, False, True]),
        "bytes": torch.arange(7, dtype=torch.uint8), "one": torch.tensor(3.0),
    }  # fmt: skip


def test_the_file_is_that_of_the_library(tmp_path):
    tensors = some_tensors()
    save_file({n: t.contiguous() for n, t in tensors.items()}, tmp_path / "theirs",
              metadata={"format": "pt"})  # fmt: skip
    kinds = {name: TensorType(t.dtype, tuple(t.shape)) for name, t in tensors.items()}
    write_streamed(tmp_path / "ours", kinds, tensors)
    assert (tmp_path / "ours").read_bytes() == (tmp_path / "theirs").read_bytes()
    assert tensor_types(tmp_path / "ours") == kinds
    for name, tensor in load_file(tmp_path / "ours").items():
        assert torch.equal(tensor, tensors[name])


def test_one_tensor_is_held_at_a_time(tmp_path):
    alive, most = weakref.WeakSet(), []

    def read(name):
        tensor = torch.full((100, 10), float(name))
        most.append(len(alive))
        alive.add(tensor)
        return tensor

    names = [str(n) for n in range(8)]
    kinds = dict.fromkeys(names, TensorType(torch.float32, (100, 10)))
    write_streamed(tmp_path / "file", kinds, OnDemand(names, read))
    assert most == [0] * 8
    assert float(load_file(tmp_path / "file")["7"][0, 0]) == 7


def test_a_tensor_of_another_kind_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"a: torch.float32 \(3,\)"):
        write_streamed(tmp_path / "f", {"a": TensorType(torch.float32, (4,))}, {"a": torch.ones(3)})


def test_names_are_known_without_reading():
    def read(name):
        raise AssertionError(name)

    weights = OnDemand(["a", "b"], read)
    assert "a" in weights and "c" not in weights and list(weights) == ["a", "b"]
    assert weights.get("c") is None and len(weights) == 2


@pytest.mark.parametrize("tied", [True, False])
def test_a_folder_is_that_of_a_network(tied, tmp_path):
    config = network_config(TrainConfig.load(RECIPE))
    config.tie_word_embeddings = tied
    name_tags(config, ["<mammal>"])
    network = LlamaForCausalLM(config)
    weights = {name: p.detach() for name, p in network.named_parameters()}
    save_model(network, tmp_path / "theirs")
    again = network_config(TrainConfig.load(RECIPE))
    again.tie_word_embeddings = tied
    name_tags(again, ["<mammal>"])
    (tmp_path / "ours").mkdir()
    save_weights(again, weights, tmp_path / "ours")
    assert same_files(tmp_path / "ours", tmp_path / "theirs")
