"""The delta and the other scores against stock forwards over whole windows, without a cache."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from carbon.errors import UserError
from carbon.genome import Reference, Variant
from carbon.genome.normalize import normalize_variant
from carbon.inference import ModelRunner, VariantOptions
from carbon.inference.options import STRANDS_READ, checked_scores, parse_scores
from carbon.inference.variants import compare_block, method_for
from carbon.inference.variants.score import STRAND_NAMES
from carbon.inference.variants.shared_bases import reading_of
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.reference import (
    HAS_BASE,
    INDEX,
    centered_pair,
    chunks,
    first_difference,
    stock_delta,
    tiled_pair,
)

ALL = ("delta", "abs_delta", "jsd", "embedding_distance", "allele_entropy")
TILES = {"window_bp": 150, "least_context_bp": 48, "downstream_bp": 20}
CONTEXT_BP, STEP_BP = 48, 78  # (150 - 48 - 20) // 6 * 6
PROTOCOLS = {
    "centered": {"protocol": "centered", "window_bp": 90},
    "tiled": {"protocol": "tiled", **TILES},
}
# A repeat longer than the compared bases, soft-masked and unknown bases, and a homopolymer.
BASES = (
    random_bases(120, 1)
    + "CA" * 20
    + random_bases(60, 2).lower()
    + "GNNNRNNNNT"
    + random_bases(50, 3)
    + "A" * 9
    + random_bases(95, 4)
)
LENGTH_BP = len(BASES)
BEHIND_UNKNOWN = 229  # the T


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(3)
    return LlamaForCausalLM(small_config(48)).eval()


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return Reference(write_fasta(tmp_path_factory.mktemp("ref") / "r.fa", {"c": BASES}))


def windows(reference, variant, protocol, strand, offset):
    """Return what `tiled_pair` does, for either protocol."""
    if protocol == "centered":
        pairs = centered_pair(reference, variant, 90, strand, offset)
        lefts = [left for left, _ in pairs]
        texts = [whole[len(left) :] for left, whole in pairs]
        texts, same = [text[: min(map(len, texts))] for text in texts], 0
        return (lefts, texts, same) if first_difference(texts) is not None else None
    return tiled_pair(BASES.upper(), variant, strand, offset, TILES)


BY_BASE = np.array([[HAS_BASE[place, base] for base in "ATCG"] for place in range(6)], dtype=float)


def stock_pass(network, whole):
    """Return for each base log p of A, T, C, G given all before it, and the last hidden states."""
    tokens = chunks(whole)
    ids = [2, *(128 + INDEX[c] if c in INDEX else 1 for c in tokens)]
    with torch.inference_mode():
        output = network(torch.tensor([ids]), output_hidden_states=True)
    by_base = []
    for number, token in enumerate(tokens):
        p = output.logits[0, number, 128 : 128 + 4096].double().softmax(0).numpy()
        for place, base in enumerate(token):
            mass = BY_BASE[place] @ p
            by_base.append(mass / mass.sum())
            if base in "ACGT":
                p = p * HAS_BASE[place, base]
    return np.array(by_base), output.hidden_states[-1][0, 1:].numpy()


def entropy(p):
    return -sum(x * math.log(x) for x in p if x > 0)


def other_scores(network, variant, lefts, texts, same):
    """Return the divergence and the distance, each None if the alleles share no base or 6-mer.

    False if the network reads the same with both alleles.
    """
    first = first_difference(texts)
    # By base of the reference after the variant: its index in the whole window.
    places = []
    for left, text, allele in zip(lefts, texts, variant.alleles, strict=True):
        after = {same + n - len(allele): len(left) + n for n in range(len(text)) if n > first}
        places.append({base: at for base, at in after.items() if base >= 0})
    wholes = [left + text for left, text in zip(lefts, texts, strict=True)]
    read = [[INDEX.get(token.ljust(6, "A")) for token in chunks(whole)] for whole in wholes]
    shared = [
        base for base in places[0] if base in places[1] and wholes[0][places[0][base]] in "ACGT"
    ]
    assert all(wholes[0][places[0][b]] == wholes[1][places[1][b]] for b in shared)
    if shared and read[0] == read[1]:
        return False
    (p, of_ref), (q, of_alt) = (stock_pass(network, whole) for whole in wholes)
    divergences = [
        entropy((p[places[0][b]] + q[places[1][b]]) / 2)
        - (entropy(p[places[0][b]]) + entropy(q[places[1][b]])) / 2
        for b in shared
    ]
    tokens_by_allele = []
    for whole, place in zip(wholes, places, strict=True):
        base_at = {at: base for base, at in place.items() if base in shared}
        tokens = {
            base_at[6 * t]: t
            for t in range(-(-len(whole) // 6) - 1)  # the last one is only predicted
            if all(6 * t + j in base_at for j in range(6))
        }
        tokens_by_allele.append(tokens)
    in_ref, in_alt = tokens_by_allele
    common = in_ref.keys() & in_alt.keys()
    distance = None
    if common:
        ref = np.mean([of_ref[in_ref[b]] for b in common], axis=0, dtype=np.float64)
        alt = np.mean([of_alt[in_alt[b]] for b in common], axis=0, dtype=np.float64)
        distance = math.dist(ref, alt)
    return np.mean(divergences) if divergences else None, distance


def mean(values):
    existing = [value for value in values if value is not None]
    return np.mean(existing) if existing else None


def check(network, reference, variants, protocol, strands="both", offsets=(0,)):
    runner = ModelRunner(LoadedModel(network, NATIVE))
    options = VariantOptions(**PROTOCOLS[protocol], strands=strands, offsets=offsets)
    scores = compare_block(runner, reference, variants, method_for(runner, options, ALL))
    for variant, (score, by_strand) in zip(variants, scores, strict=True):
        plain = normalize_variant(reference, variant)
        read = {
            strand: [windows(reference, plain, protocol, strand, offset) for offset in offsets]
            for strand in STRANDS_READ[strands]
        }
        read = {strand: found for strand, found in read.items() if found[0]}
        assert set(by_strand) == set(read) and (score.reason is None) == bool(read), variant
        for strand, found in read.items():
            expected = np.mean([stock_delta(network, *each[:2]) for each in found])
            assert getattr(score, STRAND_NAMES[strand]) == pytest.approx(expected, abs=1e-4)
        if score.reason:
            continue
        both = [[other_scores(network, plain, *each) for each in found] for found in read.values()]
        for number, name in enumerate(("jsd", "embedding_distance")):
            expected = mean([mean([p[number] for p in of_strand if p]) for of_strand in both])
            assert getattr(score, name) == (
                expected if expected is None else pytest.approx(expected, rel=1e-3, abs=1e-5)
            ), (variant, name)
        masked = [
            STRAND_NAMES[s] for s, of_strand in zip(read, both, strict=True) if False in of_strand
        ]
        assert score.strand_masked == ("both" if len(masked) > 1 else "".join(masked) or None)
        assert score.abs_delta == abs(score.delta)
        if len(plain.ref) == len(plain.alt) == 1:
            expected = entropy_by_definition(network, reference, plain, protocol, read, offsets)
            assert score.allele_entropy == pytest.approx(expected, abs=1e-5)
        else:
            assert score.allele_entropy is None


def entropy_by_definition(network, reference, variant, protocol, strands, offsets):
    """Return the entropy of the softmax of the log-likelihood of whole windows with each base."""
    totals = dict.fromkeys("ACGT", 0.0)
    for strand in strands:
        for offset in offsets:
            for base in "ACGT".replace(variant.ref, ""):
                alt = Variant("c", variant.position, variant.ref, base)
                lefts, texts, _ = windows(reference, alt, protocol, strand, offset)
                totals[base] += stock_delta(network, lefts, texts) / len(strands) / len(offsets)
    weights = np.exp(list(totals.values()))
    return entropy(weights / weights.sum())


def at(position, ref_bp, alt):
    """Return a variant; after the base before it, if one allele is empty."""
    ref = BASES[position : position + ref_bp].upper()
    if ref and alt:
        return Variant("c", position, ref, alt)
    base = BASES[position - 1].upper()
    return Variant("c", position - 1, base + ref, base + alt)


def snv(position):
    base = BASES[position].upper()
    return at(position, 1, "ACGT"["ACGT".index(base) - 1])


# Where tiles begin to own, on both strands.
EDGES = [
    position
    for edge in (CONTEXT_BP, CONTEXT_BP + STEP_BP)
    for position in (edge - 1, edge, LENGTH_BP - edge - 1, LENGTH_BP - edge)
]
KINDS = {
    "SNVs": [snv(0), snv(2), snv(LENGTH_BP - 1), snv(LENGTH_BP - 2), snv(175)],
    "MNVs": [at(60, 3, "CGTACC"), at(62, 2, "TTTTTTTT"), at(61, 2, "GT")],
    "start": [at(2, 0, "G"), at(2, 1, ""), at(3, 2, ""), at(1, 0, "GATTACA")],
    "repeat": [at(120, 2, ""), at(120, 0, "CA"), at(122, 4, ""), at(120, 0, "CACAC")],
    "indels": [at(280, 1, ""), at(280, 0, "AAA"), at(30, 1, ""), at(30, 0, "GATTACA")],
    "unknown": [snv(220), snv(BEHIND_UNKNOWN), at(218, 0, "T"), at(231, 1, "")],
    "ends and long": [at(LENGTH_BP - 3, 2, ""), at(LENGTH_BP - 1, 0, "ACG"), at(100, 30, "")],
}


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_whole_forwards(network, reference, protocol, kind):
    check(network, reference, KINDS[kind], protocol)


def test_edges_of_tiles(network, reference):
    check(network, reference, [snv(position) for position in EDGES], "tiled")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_offsets_and_one_strand(network, reference, protocol):
    check(network, reference, [snv(90), at(120, 2, "")], protocol, "both", (0, 1, 4))
    check(network, reference, [snv(91), at(95, 0, "GG")], protocol, "reverse")
    check(network, reference, [snv(220), snv(230), snv(1)], protocol, "both", (0, 1, 4))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_deltas_by_marginals(network, reference, protocol):
    runner = ModelRunner(LoadedModel(network, NATIVE))
    options = {"strands": "reverse", "offsets": (2,), "by": "marginals"}
    method = method_for(runner, VariantOptions(**PROTOCOLS[protocol], **options))
    variants = [snv(3), snv(231), at(150, 2, ""), at(151, 0, "ACGG")]
    scores = compare_block(runner, reference, variants, method)
    for variant, (score, _) in zip(variants, scores, strict=True):
        plain = normalize_variant(reference, variant)
        lefts, texts, _ = windows(reference, plain, protocol, "-", 2)
        expected = stock_delta(network, lefts, texts, "marginals")
        assert score.delta == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_alleles_next_to_unknown_bases_are_masked_not_without_effect(network, reference, protocol):
    """Bases 221 to 228 are unknown, and a 6-mer with one is one token whatever else it holds."""
    runner = ModelRunner(LoadedModel(network, NATIVE))
    options = VariantOptions(**PROTOCOLS[protocol], offsets=tuple(range(6)))
    variants = [snv(220), snv(214), at(214, 0, "A")]
    compared = compare_block(runner, reference, variants, method_for(runner, options, ALL))
    (near, by_strand), (far, _), (indel, _) = compared
    # Forward, base 220 is in a 6-mer with 221 unless it is the last of its 6-mer: 5 offsets of 6.
    # Reverse, base 221 comes before it, in its 6-mer unless 220 is its first: likewise.
    assert [by_strand[strand].num_masked for strand in "+-"] == [5, 5]
    assert near.strand_masked == "both" and near.delta and near.jsd and near.embedding_distance
    assert far.strand_masked is None and indel.strand_masked is None
    # At offset 0 of the forward strand, base 219 is in the 6-mer of bases 216 to 221.
    options = VariantOptions(**PROTOCOLS[protocol], strands="forward")
    method = method_for(runner, options, ALL)
    ((hidden, _),) = compare_block(runner, reference, [snv(219)], method)
    assert hidden.strand_masked == "forward" and hidden.delta
    assert (hidden.jsd, hidden.embedding_distance) == (None, None)


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=20)
@given(st.data())
def test_random_variants(network, reference, protocol, data):
    position = data.draw(st.integers(1, LENGTH_BP - 1))
    ref_bp = data.draw(st.integers(0, min(9, LENGTH_BP - position)))
    alt = data.draw(st.text("ACGT", max_size=9))
    variant = at(position, ref_bp, alt)
    if set(variant.ref) <= set("ACGT") and variant.ref != variant.alt:
        strands = data.draw(st.sampled_from(list(STRANDS_READ)))
        check(network, reference, [variant], protocol, strands)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_neighbours_batches_and_other_scores_change_no_bit(network, reference, protocol):
    variants = [snv(position) for position in range(60, 120, 9)]
    variants += [at(80, 2, ""), at(80, 0, "TG"), at(123, 2, ""), at(70, 2, "GT")]
    options = VariantOptions(**PROTOCOLS[protocol])

    def scores(some, batch_tokens=None, names=ALL):
        runner = ModelRunner(LoadedModel(network, NATIVE), batch_tokens)
        method = method_for(runner, options, names)
        return [score for score, _ in compare_block(runner, reference, some, method)]

    together = scores(variants)
    assert all(score.jsd and score.embedding_distance for score in together)
    assert scores(variants[::-1])[::-1] == together
    assert scores(variants, batch_tokens=32) == together
    assert [scores([variant])[0] for variant in variants] == together
    for name in ALL:
        alone = scores(variants, names=(name,))
        assert [getattr(s, name) for s in alone] == [getattr(s, name) for s in together]
        assert [s.delta for s in alone] == [s.delta for s in together]


def test_names_of_scores():
    assert parse_scores("jsd,delta") == ("jsd", "delta")
    assert checked_scores(("jsd", "abs_delta"), "tiled") == ("delta", "abs_delta", "jsd")
    for wrong in ("delta,jds", ""):
        with pytest.raises(UserError, match="no score"):
            parse_scores(wrong)
    with pytest.raises(UserError, match="right_end has only delta, abs_delta"):
        checked_scores(("jsd",), "right_end")


@given(st.integers(0, 59), st.integers(1, 30))
def test_a_reading_holds_no_more_than_its_tokens(start, length_bp):
    values = np.random.default_rng(0).normal(size=(15, 30)).astype(np.float32)
    reading = reading_of(values, np.arange(15), 6, start, length_bp)
    for n in range(length_bp):
        token, place = divmod(start + n, 6)
        assert reading.likelihoods[n] == values[token, place]
        expected = values[token, 6 + 4 * place : 10 + 4 * place]
        np.testing.assert_array_equal(reading.conditionals[n], expected)
    num_tokens = (start + length_bp - 1) // 6 - start // 6 + 1
    for held in (reading.conditionals.base, reading.likelihoods.base):
        assert held.size <= 30 * num_tokens and held.base is None
