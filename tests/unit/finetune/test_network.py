"""The fine-tuned network against `embed`, against stock rows, and against itself in company."""

import copy

import numpy as np
import pytest
import torch

from carbon.finetune.network import FinetunedNetwork, Head, OpenedModel, batches, first_row, pooled
from carbon.genome import reverse_complement
from carbon.model import LoadedModel
from carbon.tokenizer import HYBRID, NATIVE, encode
from tests.helpers.files import random_bases
from tests.helpers.generation import other_network

SEQUENCES = [random_bases(120), "A", random_bases(63), "acGTNACgtaNNNNNNA", random_bases(282)]


def finetuned(network, num_outputs=3, *, per_base=False, layer=None, vocabulary=NATIVE):
    torch.manual_seed(1)
    backbone = OpenedModel(LoadedModel(copy.deepcopy(network), vocabulary), layer).backbone
    head = Head(32 * (2 if per_base else 1), num_outputs * (6 if per_base else 1))
    return FinetunedNetwork(backbone, head, per_base=per_base, k=6).eval()


class TestPooling:
    @pytest.mark.parametrize(("pool", "layer"), [("mean", 0), ("last", None), ("end", 1)])
    def test_equals_embed(self, network, model, pool, layer):
        ours = finetuned(network, layer=layer)
        sequences = [s[:270] for s in SEQUENCES]
        batch = batches(NATIVE, pool)(sequences)
        with torch.inference_mode():
            found = pooled(ours.states(batch), batch)
        expected = np.stack(list(model.embed(sequences, pool=pool, layer=layer)))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)

    def test_of_the_hybrid_vocabulary(self):
        model = other_network(0, HYBRID)
        ours = finetuned(model.model.network, vocabulary=HYBRID)
        # <dna>, </dna>, <oov>, and the 6-mers
        assert len(ours.backbone.embed_tokens.weight) == 3 + 4096
        batch = batches(HYBRID, "end")(SEQUENCES[:4])
        with torch.inference_mode():
            found = pooled(ours.states(batch), batch)
        expected = np.stack(list(model.embed(SEQUENCES[:4], pool="end")))
        np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)

    @pytest.mark.parametrize("pool", ["mean", "last", "end"])
    def test_alone_and_in_company(self, network, pool):
        ours = finetuned(network)
        sequences = [s[:270] for s in SEQUENCES]
        make = batches(NATIVE, pool)
        with torch.inference_mode():
            together = ours(make(sequences))
            alone = torch.cat([ours(make([s])) for s in sequences])
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=0)

    def test_gradients_are_those_of_stock_rows(self, network):
        ours = finetuned(network)
        ours(batches(NATIVE, "mean")(SEQUENCES[:3])).square().sum().backward()
        stock = copy.deepcopy(network)
        total = 0
        for sequence in SEQUENCES[:3]:
            encoding = encode(sequence)
            states = stock.model(torch.from_numpy(encoding.ids)[None])[0][0]
            weights = torch.from_numpy(np.bitwise_count(encoding.known)).float()
            total = total + ours.head((weights @ states / weights.sum())[None]).square().sum()
        total.backward()
        name = "layers.0.self_attn.k_proj.weight"
        expected = [
            stock.model.get_parameter(name).grad,
            stock.model.embed_tokens.weight.grad[first_row(NATIVE) :],
        ]
        found = [ours.backbone.get_parameter(name).grad, ours.backbone.embed_tokens.weight.grad]
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


class TestBases:
    def slow(self, ours, sequence):
        """Every base by hand: its token forward, and the token that holds it when turned."""
        turned = "T" * (-len(sequence) % 6) + reverse_complement(sequence)
        read = []
        for text in (sequence, turned):
            ids = torch.from_numpy(encode(text).ids - first_row(NATIVE))
            batch = batches(NATIVE, "mean")([text])
            read.append(ours.states(batch)[0, 1:])
            assert len(read[-1]) == len(ids) - 1
        rows = []
        for base in range(len(sequence)):
            other = (len(turned) - 1 - base) // 6
            joined = torch.cat([read[0][base // 6], read[1][other]])
            rows.append(ours.head(joined[None]).view(6, -1)[base % 6])
        return torch.stack(rows)

    def test_each_base_by_hand_in_company(self, network):
        ours = finetuned(network, per_base=True)
        sequences = [random_bases(n) for n in (33, 1, 5, 6, 7, 8, 9, 10, 11, 100, 12)]
        with torch.inference_mode():
            found = ours(batches(NATIVE, "mean", per_base=True)(sequences))
            expected = torch.cat([self.slow(ours, s) for s in sequences])
        assert found.shape == (sum(map(len, sequences)), 3)
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("layer", [None, 1])
def test_a_closed_model_is_what_it_was_but_for_what_was_learned(network, layer):
    opened = OpenedModel(LoadedModel(copy.deepcopy(network), NATIVE), layer)
    with torch.no_grad():
        opened.backbone.embed_tokens.weight[5] += 1
        opened.backbone.layers[0].mlp.up_proj.weight += 1
    expected = copy.deepcopy(network)
    with torch.no_grad():
        expected.model.embed_tokens.weight[first_row(NATIVE) + 5] += 1
        expected.model.layers[0].mlp.up_proj.weight += 1
    closed = opened.closed()
    for (name, ours), theirs in zip(
        closed.state_dict().items(), expected.state_dict().values(), strict=True
    ):
        torch.testing.assert_close(ours, theirs, msg=name)
    ids = torch.from_numpy(encode(random_bases(60)).ids)[None]
    with torch.inference_mode():
        torch.testing.assert_close(closed(ids).logits, expected(ids).logits)
