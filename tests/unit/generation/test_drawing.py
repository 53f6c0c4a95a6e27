"""Generated text against stock transformers, sums over all 6-mers, and itself alone."""

import numpy as np
import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.errors import UserError
from carbon.inference import Constraints, Draft, Model
from carbon.inference.generate.decode import Decoder
from carbon.inference.options import MODES
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE, encode
from tests.helpers.files import random_bases
from tests.helpers.generation import (
    PROMPTS,
    agree,
    other_network,
    poor_in_memory,
)
from tests.helpers.reference import (
    INDEX,
    KMERS,
    mass,
    stock_distribution,
)


class TestDecoder:
    @pytest.mark.parametrize(("context_tokens", "at_once"), [(48, 1), (48, 3), (700, 3)])
    def test_a_row_is_read_as_if_alone_to_the_last_bit(self, context_tokens, at_once):
        """Short and long neighbours, rows that start again, rows in which nothing is read."""
        reader = other_network(5, context_tokens=context_tokens).runner
        lengths = [0, 40, 100, 130, 280] if context_tokens == 48 else [0, 700, 1300, 2100, 4100]
        prompts = [random_bases(n, seed=n) for n in lengths]
        kmers = np.random.default_rng(6).integers(0, 4096, (len(prompts), 8, at_once)).tolist()

        def read(rows: list[int]) -> list[list[torch.Tensor]]:
            decoder = Decoder(reader, [prompts[row] for row in rows], ())
            heard = [[logits[0]] for logits in decoder.extend([[] for _ in rows])]
            for step in range(8):
                fresh = [kmers[row][step] if (row + step) % 5 else [] for row in rows]
                starts = [len(f) > decoder.room(n) for n, f in enumerate(fresh)]
                logits = decoder.extend(fresh, at_once)
                for n, new in enumerate(fresh):
                    heard[n] += logits[n, len(new) - 1 if starts[n] else 0 : len(new)]
            return heard

        together = read(list(range(len(prompts))))
        for row in range(len(prompts)):
            (alone,) = read([row])
            assert len(alone) == len(together[row])
            assert all(torch.equal(a, b) for a, b in zip(alone, together[row], strict=True))

    def test_logits_are_those_of_a_whole_stock_forward(self, model, network):
        prompts = [random_bases(n, seed=n) for n in (0, 60, 120)]
        kmers = np.random.default_rng(7).integers(0, 4096, (3, 5)).tolist()
        decoder = Decoder(model.runner, prompts, ("<fungi_species>",))
        decoder.extend([[], [], []])
        decoder.extend([[*row[:2], 9, 9] for row in kmers], max_fresh=4)
        for row in range(3):
            decoder.drop_last(row, 2)
        logits = decoder.extend([row[2:] for row in kmers], max_fresh=3)
        for prompt, row, found in zip(prompts, kmers, logits, strict=True):
            ids = [*encode(prompt, tags=("<fungi_species>",)).ids, *(128 + k for k in row)]
            with torch.inference_mode():
                expected = network(torch.tensor([ids])).logits[0, -3:, NATIVE.kmer_rows]
            torch.testing.assert_close(found[:3], expected, atol=2e-5, rtol=1e-5)

    @pytest.mark.parametrize("taken_back", [10, 11, 12])
    def test_a_row_of_which_all_is_taken_back_is_read_anew(self, taken_back):
        """A context of 16 tokens is full; the row starts again, with 8 6-mers, and reads two."""
        tags = ("<fungi_species>", "<transfer_rna>") if taken_back % 2 else ()
        reader = other_network(5, context_tokens=16).runner
        num_prefix = len(tags) + 1
        whole = random_bases(6 * (16 - num_prefix + 3))
        decoder = Decoder(reader, [whole[:-18]], tags)
        decoder.extend([[]])
        for at in (-18, -12, -6):
            decoder.extend([[INDEX[whole[at:][:6]]]])
        assert decoder.room(0) == 16 - (num_prefix + 10)
        decoder.drop_last(0, taken_back)
        if taken_back <= 10:
            assert decoder.room(0) == 16 - (num_prefix + 10) + taken_back
        else:
            assert decoder.room(0) == 0
            fresh = Decoder(reader, [whole[: -6 * taken_back]], tags)
            assert torch.equal(decoder.extend([[7]]), fresh.extend([[7]]))

    def test_attention_by_name(self, network):
        """A network with eager attention takes the same mask."""
        eager = LlamaForCausalLM(network.config).eval()
        eager.load_state_dict(network.state_dict())
        eager.set_attn_implementation("eager")
        texts = [
            Model(LoadedModel(net, NATIVE)).generate(PROMPTS[:8], 60, seed=1)
            for net in (network, eager)
        ]
        eager.set_attn_implementation("sdpa")
        assert texts[0] == texts[1]


class TestGenerate:
    def test_greedy_is_that_of_stock_transformers(self, model, network):
        prompt = random_bases(60)
        ids = torch.tensor([encode(prompt).ids.tolist()])
        for _ in range(4):
            with torch.inference_mode():
                logits = network(ids).logits[0, -1, NATIVE.kmer_rows]
            ids = torch.cat([ids, NATIVE.first_kmer + logits.argmax().view(1, 1)], dim=1)
        expected = "".join(KMERS[i - NATIVE.first_kmer] for i in ids[0, -4:].tolist())
        assert model.generate([prompt], 24, temperature=0) == [expected]
        assert model.generate([prompt], 20, temperature=0) == [expected[:20]]

    @pytest.mark.parametrize("tail", ["", "A", "TAC", "TACGT"])
    def test_the_base_behind_a_tail_is_exact(self, model, network, tail):
        """p(base | prompt) against the sum over all 4,096 6-mers."""
        prompt = random_bases(30)
        p = stock_distribution(network, prompt).tolist()
        step = next(model.stream(prompt + tail, 6))
        assert len(step.bases) == 6 - len(tail)
        for n, base in enumerate("ATCG"):
            expected = mass(p, (tail + base).ljust(6, "?")) / mass(p, tail.ljust(6, "?"))
            assert step.alternatives[0, n] == pytest.approx(expected, rel=1e-4)

    def test_an_unknown_base_of_a_tail_is_any(self, model, network):
        """Frequencies of the next base against the mass of 6-mers that agree with the tail."""
        prompt = random_bases(30)
        p = stock_distribution(network, prompt).tolist()
        texts = model.generate([prompt + "NT"] * 500, 1, seed=1)
        expected = [mass(p, f"?T{base}???") for base in "ACGT"]
        assert agree(np.array([texts.count(base) for base in "ACGT"]), np.array(expected))

    @pytest.mark.parametrize("mode", MODES)
    def test_company_order_and_batch_do_not_matter(self, model, mode, monkeypatch):
        """Prompts of all lengths, shorter and longer than the context, against each alone."""
        prompts = [*PROMPTS, PROMPTS[5], PROMPTS[5].lower()]
        together = model.generate(prompts, 33, seed=5, mode=mode)
        assert all(len(text) == 33 and set(text) <= set("ACGT") for text in together)
        for prompt, text in [*zip(PROMPTS, together, strict=False)][::3]:
            assert model.generate([prompt], 33, seed=5, mode=mode) == [text]
        turned = model.generate(prompts[::-1], 33, seed=5, mode=mode)[::-1]
        assert turned[:5] + turned[6:13] == together[:5] + together[6:13]
        assert sorted([turned[5], *turned[13:]]) == sorted([together[5], *together[13:]])
        assert len({together[5], *together[13:]}) == 3  # samples of one prompt
        monkeypatch.setattr("carbon.inference.generate.generate._MOST_ROWS", 3)
        assert model.generate(prompts, 33, seed=5, mode=mode) == together
        assert model.generate(prompts, 33, seed=6, mode=mode) != together

    @pytest.mark.parametrize("is_drafted", [False, True])
    def test_memory_that_runs_out_halves_the_batch(
        self, model, likeness, is_drafted, monkeypatch, capsys
    ):
        """In the middle too: the batch begins again, with the same numbers."""
        prompts = [PROMPTS[6][: 2 * n] for n in range(20)]
        draft = Draft(likeness) if is_drafted else None
        expected = model.generate(prompts, 30, seed=5, draft=draft)
        passes, told = poor_in_memory(monkeypatch, most_rows=8, from_pass=4), []
        found = Model(model.model).generate(prompts, 30, seed=5, draft=draft, advance=told.append)
        assert found == expected
        assert sum(told) == 20 * 30 and min(told) < 0
        assert "out of memory with 20 rows" in capsys.readouterr().err
        assert max(passes[5:]) > 8 and passes[-1] <= 8

    def test_generation_goes_on_when_the_context_is_full(self, model):
        """48 tokens are read; then `<dna>` and the last 24 6-mers start a new context."""
        (text,) = model.generate([""], 294, temperature=0)
        # 6-mer 48, from 0, is the first that the new context predicts, from 6-mers 24 to 47.
        prompt = text[24 * 6 : 48 * 6]
        assert model.generate([prompt], 6, temperature=0) == [text[48 * 6 : 49 * 6]]

    def test_a_prompt_may_fill_the_context(self, model, network):
        """47 6-mers and `<dna>` are 48 tokens; none of them is forgotten."""
        prompt = random_bases(282)
        p = stock_distribution(network, prompt)
        assert model.generate([prompt], 6, temperature=0) == [KMERS[p.argmax()]]

    def test_tags_matter(self, model):
        bare = model.generate([""], 60, temperature=0)
        assert model.generate([""], 60, temperature=0, tags=("<fungi_species>",)) != bare

    def test_a_penalty_keeps_6mers_from_coming_again(self, model):
        """100 nats are more than the spread of this network: no 6-mer of the window comes again."""
        prompt = "ACGTAC" * 20 + "ACG"
        (text,) = model.generate([prompt], 177, repetition_penalty=100.0, repetition_window_bp=150)
        whole = prompt + text
        for at in range(126, 300, 6):
            window = whole[max(0, at - 150) : at]
            assert whole[at : at + 6] not in {window[i : i + 6] for i in range(len(window) - 5)}
        assert model.generate([prompt], 177)[0] != text

    def test_a_prompt_must_be_dna(self, model):
        with pytest.raises(UserError, match="prompt 2"):
            model.generate(["ACGT", "HELLO"], 6)
        assert model.generate([], 6) == []


class TestStream:
    @pytest.mark.parametrize("mode", MODES)
    def test_it_is_what_generate_gives(self, model, mode):
        for prompt in PROMPTS[1::6]:
            steps = list(model.stream(prompt, 40, seed=3, mode=mode, top_p=0.9))
            assert ["".join(s.bases for s in steps)] == model.generate(
                [prompt], 40, seed=3, mode=mode, top_p=0.9
            )
            assert all(1 <= len(step.bases) <= 6 for step in steps)

    @pytest.mark.parametrize("prompt_bp", [0, 33])
    def test_probabilities_are_those_of_scoring(self, model, prompt_bp):
        prompt = random_bases(prompt_bp)
        steps = list(model.stream(prompt, 50, temperature=0.5, top_k=50))
        (score,) = model.score([prompt + "".join(step.bases for step in steps)])
        found = np.concatenate([step.probabilities for step in steps])
        np.testing.assert_allclose(np.log(found), score.bases[prompt_bp:], atol=1e-4)
        for step in steps:
            np.testing.assert_allclose(step.alternatives.sum(axis=1), 1, atol=1e-5)
            there = [step.alternatives[n, "ATCG".index(b)] for n, b in enumerate(step.bases)]
            np.testing.assert_array_equal(there, step.probabilities)

    def test_mistakes_are_known_before_the_first_step(self, model):
        for wrong in ({"tags": ("<dragon>",)}, {"constraints": Constraints(require=("A" * 7,))}):
            with pytest.raises(UserError):
                model.stream("ACG", 6, **wrong)
