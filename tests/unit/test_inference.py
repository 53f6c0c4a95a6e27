"""Scores and samples against stock transformers, token by token, and against each other."""

import json
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.inference import Model, base_log_likelihoods, load
from carbon.model import PRESETS, LoadedModel, save_model
from carbon.tokenizer import HYBRID, NATIVE, encode
from tests.conftest import small_config
from tests.helpers.files import random_bases
from tests.helpers.reference import INDEX, KMERS


def stock_log_probabilities(network, ids: list[int]) -> torch.Tensor:
    """Return log p over the 6-mers after every token, by the whole stock forward."""
    with torch.inference_mode():
        logits = network(torch.tensor([ids])).logits[0].double()
    return logits[:, NATIVE.kmer_rows].log_softmax(dim=1)


@pytest.fixture(scope="module")
def wide():
    """Heads as wide as those of the presets, and a context of more than a block of attention."""
    torch.manual_seed(2)
    config = small_config(700)
    config.hidden_size, config.head_dim, config.num_attention_heads = 64, 32, 2
    return Model(LoadedModel(LlamaForCausalLM(config).eval(), NATIVE))


def test_company_changes_no_byte_of_a_score(wide):
    lengths_bp = (30, 606, 1302, 4001)
    sequences = [random_bases(length_bp, length_bp) for length_bp in lengths_bp]
    together = base_log_likelihoods(wide.runner, sequences, strands="both")
    back = base_log_likelihoods(wide.runner, sequences[::-1], strands="both")[::-1]
    for sequence, one, two in zip(sequences, together, back, strict=True):
        (alone,) = base_log_likelihoods(wide.runner, [sequence], strands="both")
        assert np.array_equal(one, alone) and np.array_equal(two, alone)


def test_values_of_the_reverse_strand_stand_at_their_bases(wide):
    sequences = [random_bases(length_bp, length_bp) for length_bp in (30, 605)]
    complements = [reverse_complement(sequence) for sequence in sequences]
    forward, reverse, both = (
        base_log_likelihoods(wide.runner, sequences, strands=strands)
        for strands in ("forward", "reverse", "both")
    )
    other = base_log_likelihoods(wide.runner, complements, strands="forward")
    for a, b, mean, of_complement in zip(forward, reverse, both, other, strict=True):
        assert np.array_equal(b, of_complement[::-1])
        assert np.array_equal(mean, (a + b) / 2)


class TestModelFolders:
    def test_stock_transformers_gives_the_same_logits(self, network, tmp_path):
        save_model(network, tmp_path / "m")
        stock = AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "m")
        ids = tokenizer("<dna>" + random_bases(200), return_tensors="pt").input_ids
        ours = load(tmp_path / "m").model.network
        with torch.inference_mode():
            assert torch.equal(stock(ids).logits, ours(ids).logits)
            assert torch.equal(network(ids).logits, ours(ids).logits)

    @pytest.mark.parametrize(
        ("preset", "vocabulary", "parameters"),
        [
            ("tiny", NATIVE, 1_279_104),
            ("mini", NATIVE, 24_977_920),
            # These follow from the sizes of the released safetensors files.
            ("500m", HYBRID, 511_894_528),
            ("3b", HYBRID, 3_451_444_224),
            ("8b", HYBRID, 8_255_705_088),
        ],
    )
    def test_sizes(self, preset, vocabulary, parameters):
        with torch.device("meta"):
            network = LlamaForCausalLM(PRESETS[preset](vocabulary))
        assert sum(p.numel() for p in network.parameters()) == parameters

    def test_yarn_is_that_of_stock_transformers(self, network, tmp_path):
        """The config is edited by hand here, as the model card of the released models says."""
        save_model(network, tmp_path / "m")
        ours = load(tmp_path / "m", yarn=4)
        assert (ours.yarn, ours.context_bp) == (4.0, (4 * 48 - 1) * 6)
        config = tmp_path / "m" / "config.json"
        table = json.loads(config.read_text())
        table["max_position_embeddings"] = 192
        table["rope_parameters"] |= {
            "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 48
        }  # fmt: skip
        config.write_text(json.dumps(table))
        stock = AutoModelForCausalLM.from_pretrained(tmp_path / "m").eval()
        ids = torch.from_numpy(encode(random_bases(900)).ids)[None]
        with torch.inference_mode():
            expected = stock(ids).logits
            assert torch.equal(ours.model.network(ids).logits, expected)
            assert not torch.equal(network(ids).logits, expected)
        again = load(tmp_path / "m", yarn=2)  # from what it was trained with, not from 192
        assert again.context_bp == (2 * 48 - 1) * 6
        with pytest.raises(UserError, match=r"0\.5"):
            load(tmp_path / "m", yarn=0.5)

    def test_attentions(self, network, tmp_path):
        save_model(network, tmp_path / "m")
        sequence = random_bases(200)
        by_name = [load(tmp_path / "m", attention=name) for name in ("sdpa", "eager")]
        first, second = (next(iter(m.score([sequence]))).log_likelihood for m in by_name)
        assert first == pytest.approx(second, abs=1e-3)
        with pytest.raises(UserError, match="none_such"):
            load(tmp_path / "m", attention="none_such")
        for wrong in ("float16", torch.float32):
            with pytest.raises(UserError, match=f"{wrong}.*float32, bfloat16"):
                load(tmp_path / "m", dtype=wrong)

    def test_bfloat16_is_near(self, network, tmp_path):
        """Logits are fp32 from rounded states, so the error is that of the states alone."""
        save_model(network, tmp_path / "m")
        rough = load(tmp_path / "m", dtype="bfloat16")
        assert rough.runner.logits(torch.zeros(1, 32, dtype=torch.bfloat16)).dtype == torch.float32
        fine = load(tmp_path / "m")
        one, two = (next(iter(m.score([random_bases(200)]))).nats_per_base for m in (rough, fine))
        assert one != two and one == pytest.approx(two, abs=0.05)


class TestScore:
    def test_whole_tokens_are_those_of_stock_transformers(self, model, network):
        sequence = random_bases(120)
        log_p = stock_log_probabilities(network, encode(sequence).ids.tolist())
        expected = [log_p[t, INDEX[sequence[6 * t : 6 * t + 6]]].item() for t in range(20)]
        (steps,) = base_log_likelihoods(model.runner, [sequence])
        np.testing.assert_allclose(steps.reshape(20, 6).sum(axis=1), expected, atol=1e-4)
        (score,) = model.score([sequence])
        assert score.log_likelihood == pytest.approx(sum(expected), abs=1e-3)
        assert score.nats_per_base == pytest.approx(-sum(expected) / 120, abs=1e-5)

    def test_a_tail_is_the_mass_of_its_prefix(self, model, network):
        sequence = random_bases(27)
        log_p = stock_log_probabilities(network, encode(sequence[:24]).ids.tolist())[-1]
        expected = sum(
            math.exp(log_p[i]) for i, kmer in enumerate(KMERS) if kmer.startswith(sequence[24:])
        )
        (steps,) = base_log_likelihoods(model.runner, [sequence])
        assert steps[24:].sum() == pytest.approx(math.log(expected), abs=1e-4)

    @given(st.lists(st.text("ACGTacgtN", max_size=700), min_size=2, max_size=5))
    @settings(max_examples=6)
    def test_batched_is_single(self, model, sequences):
        together = base_log_likelihoods(model.runner, sequences)
        alone = [base_log_likelihoods(model.runner, [each])[0] for each in sequences]
        assert [len(each) for each in together] == [*map(len, sequences)]
        for one, other in zip(together, alone, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-4)

    def test_case_does_not_matter_and_n_counts_for_nothing(self, model):
        lower, upper, unknown = model.score(["acgtacgtac", "ACGTACGTAC", "NNNNNNNN"])
        assert lower[:3] == upper[:3] and np.array_equal(lower.bases, upper.bases)
        assert (unknown.num_known_bases, unknown.log_likelihood) == (0, 0.0)

    def test_long_sequences_are_read_in_overlapping_windows(self, model):
        """A context of 48 tokens holds 47 6-mers, 282 bp; the next window starts 138 bp on."""
        sequence = random_bases(700)
        (steps,) = base_log_likelihoods(model.runner, [sequence])
        (first,) = base_log_likelihoods(model.runner, [sequence[:282]])
        (second,) = base_log_likelihoods(model.runner, [sequence[138:420]])
        np.testing.assert_allclose(steps[:282], first, atol=1e-5)
        np.testing.assert_allclose(steps[282:420], second[144:], atol=1e-5)
        assert (steps != 0).all()

    def test_rna_is_read_as_its_dna(self, model):
        rna, dna = "ACGUACGGAUUACGGACCGUacguCGT", "ACGTACGGATTACGGACCGTacgtCGT"
        first, second = model.score([rna, dna], strands="both")
        np.testing.assert_array_equal(first.bases, second.bases)
        assert first.num_known_bases == second.num_known_bases == len(rna)
        np.testing.assert_array_equal(*model.embed([rna, dna]))
        drawn = model.generate(["AUGGCCU", "ATGGCCT", "augGCCT"], 20, seed=1)
        assert drawn == model.generate(["ATGGCCT"] * 3, 20, seed=1) and len(set(drawn)) > 1
        assert model.infill("GAUu", "uAC", 9) == model.infill("GATt", "tAC", 9)
        rna, dna = (model.next_token(context) for context in ("AUGGCU", "ATGGCT"))
        np.testing.assert_array_equal(rna.log_probabilities, dna.log_probabilities)

    def test_tags_that_leave_no_room_are_refused(self):
        """14 tokens: `<dna>`, 11 tags and two 6-mers, in windows that overlap by one."""
        model = Model(LoadedModel(LlamaForCausalLM(small_config(14)).eval(), NATIVE))
        (score,) = model.score([random_bases(20)], tags=NATIVE.tags[:11])
        assert (score.bases != 0).all()
        with pytest.raises(UserError, match="no room in a context of 14 tokens"):
            model.score([], tags=NATIVE.tags[:12])
