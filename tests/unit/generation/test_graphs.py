"""Decoding by graphs: a step of shapes that do not change, captured once and replayed.

A stand-in records operators with their memory on the CPU, as a GPU would, and replays those.
"""

from functools import partial

import numpy as np
import pytest
import torch
from torch.utils._pytree import tree_map_only
from transformers import DynamicCache, LlamaForCausalLM

from carbon.inference import Constraints, Draft, Model, SamplingRule
from carbon.inference.generate.decode import Decoder
from carbon.model import LoadedModel
from carbon.model.load import cache_arguments
from carbon.tokenizer import NATIVE, encode
from tests.conftest import small_config
from tests.helpers.files import random_bases
from tests.helpers.generation import PROMPTS, RULES, other_network
from tests.helpers.graphs import Capture, GraphOnCpu, graphs_on_cpu

LENGTHS_BP = [0, 6, 660, 3000, 3060]


def begun(model: Model, lengths_bp: list[int]) -> tuple[Decoder, torch.Tensor, torch.Tensor]:
    """Return rows that have read their prompts, 6-mers to read next, and random numbers."""
    decoder = Decoder(model.runner, [random_bases(n, seed=n) for n in lengths_bp], ())
    decoder.extend([[] for _ in lengths_bp])
    rng = np.random.default_rng(3)
    kmers = torch.from_numpy(rng.integers(0, 4096, len(lengths_bp)))
    return decoder, kmers, torch.from_numpy(rng.random((20, len(lengths_bp), 6)))


def shape_of(tensor: torch.Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype


class TestStep:
    def test_logits_are_those_of_a_cache_that_grows(self):
        """Stock transformers, a row at a time; 500 to 520 places pass the end of a block."""
        model = other_network(5, context_tokens=700)
        read, found = [], []
        with torch.inference_mode(), graphs_on_cpu() as made:
            decoder, kmers, numbers = begun(model, LENGTHS_BP)
            for given in numbers:
                read.append(kmers)
                logits, kmers = decoder.draw_next(kmers, given, SamplingRule())
                found.append(logits)
        assert [graph.num_replays for graph in made] == [1, 19]
        network = model.model.network
        for row, length_bp in enumerate(LENGTHS_BP):
            kept = DynamicCache()
            ids = torch.from_numpy(encode(random_bases(length_bp, seed=length_bp)).ids)[None]
            with torch.inference_mode():
                network(ids, **cache_arguments(network, kept))
                for some, logits in zip(read, found, strict=True):
                    ids = NATIVE.first_kmer + some[row].view(1, 1)
                    expected = network(ids, **cache_arguments(network, kept)).logits[0, -1, 128:]
                    error = (logits[row] - expected).abs().max() / expected.abs().max()
                    assert error < 1e-5

    @pytest.mark.parametrize("options", [RULES[-1], {"mode": "chain"}])
    def test_nothing_but_contents_changes_from_token_to_token(self, options):
        """Operators, shapes, the host's numbers, and where keys and values lie."""
        decoder, kmers, numbers = begun(other_network(5, context_tokens=700), [0, 60, 600])
        rule = SamplingRule(**options)
        kept = [tensor.data_ptr() for pair in decoder._cache._layers_kv for tensor in pair]
        recorded = []
        for given in numbers[:3]:
            graph = GraphOnCpu()
            places = torch.from_numpy(decoder._num_cached.copy())
            with torch.inference_mode(), Capture(graph, None, ""):
                decoder._step(kmers, places, given, num_positions=128, rule=rule)
            recorded.append(tree_map_only(torch.Tensor, shape_of, graph.operators))
            with torch.inference_mode():
                _, kmers = decoder.draw_next(kmers, given, rule)
        assert len(recorded[0]) > 100
        assert recorded[0] == recorded[1] == recorded[2]
        assert kept == [tensor.data_ptr() for pair in decoder._cache._layers_kv for tensor in pair]


class TestText:
    @pytest.mark.parametrize(
        ("mode", "options", "context_tokens"),
        [
            ("token", {}, 48),
            ("base", {"temperature": 0.0}, 160),
            ("chain", {"top_k": 9, "top_p": 0.8}, 160),
        ],
    )
    def test_it_is_that_of_the_plain_way(self, mode, options, context_tokens):
        """Tails, rows that end and start again, contexts that fill, blocks that end."""
        model = other_network(5, context_tokens=context_tokens)
        expected = model.generate(PROMPTS[::3], 130, seed=4, mode=mode, **options)
        with graphs_on_cpu(7) as made:
            assert model.generate(PROMPTS[::3], 130, seed=4, mode=mode, **options) == expected
        assert sum(graph.num_replays for graph in made) > 2

    def test_a_graph_is_captured_once_for_rows_and_places(self):
        """35 6-mers behind 100: the first from the prompt, 7 at a time to 128 places and beyond."""
        model = other_network(5, context_tokens=700)
        prompts = [random_bases(600, seed=n) for n in range(2)]
        expected = model.generate(prompts, 210, seed=4)
        with graphs_on_cpu(7) as made:
            assert model.generate(prompts, 210, seed=4) == expected
        replays = [graph.num_replays for graph in made]
        assert len(replays) == 2 and sum(replays) == 7 * (35 // 8) + (35 % 8 - 1)

    @pytest.mark.parametrize(
        ("rope", "options"),
        [
            (None, {"constraints": Constraints(forbid=("GAATTC", "TA"))}),
            (None, {"repetition_penalty": 2.0}),
            (None, {"draft": True}),
            ({"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 2.0}, {}),
        ],
        ids=["constraints", "penalty", "draft", "rotation that depends on the length"],
    )
    def test_what_a_graph_cannot_do_goes_the_plain_way(self, rope, options):
        config = small_config()
        config.rope_parameters = rope or config.rope_parameters
        torch.manual_seed(5)
        model = Model(LoadedModel(LlamaForCausalLM(config).eval(), NATIVE))

        def text():
            more = {"draft": Draft(other_network(6))} if "draft" in options else {}
            return model.generate(PROMPTS[:3], 30, seed=1, **options | more)

        expected = text()
        with graphs_on_cpu() as made:
            assert text() == expected
        assert not made

    def test_a_stream_is_the_same(self):
        """DrawnKmer ahead by a graph."""
        model = other_network(5, context_tokens=700)
        steps = partial(model.stream, PROMPTS[6], 120, seed=2)
        expected = list(steps())
        with graphs_on_cpu() as made:
            found = list(steps())
        assert [step.bases for step in found] == [step.bases for step in expected]
        for here, there in zip(found, expected, strict=True):
            np.testing.assert_allclose(here.alternatives, there.alternatives, atol=1e-5)
        assert len(made) == 1
