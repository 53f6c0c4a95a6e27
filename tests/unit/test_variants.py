"""Variant scores against stock transformers: whole windows, no cache, explicit sums over 6-mers."""

import math
import random
from functools import wraps

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaForCausalLM

from carbon.errors import GenomeError, UserError
from carbon.genome import Reference, Variant, reverse_complement
from carbon.genome.normalize import normalize_variant
from carbon.inference import (
    Model,
    ModelRunner,
    Passage,
    VariantOptions,
    continuation_of,
    prefix_of,
)
from carbon.inference.runner import Measured
from carbon.inference.variants import compare_block, method_for
from carbon.losses import chain
from carbon.model import LoadedModel
from carbon.tokenizer import NATIVE
from tests.conftest import small_config
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.reference import (
    centered_pair,
    right_end_pair,
    stock_delta,
)

BASES = random_bases(600, 9)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    path = tmp_path_factory.mktemp("ref") / "r.fa"
    return Reference(write_fasta(path, {"c": BASES[:300] + BASES[300:].lower()}))


def variant_at(position, ref_bp, alt):
    return Variant("c", position, BASES[position : position + ref_bp], alt)


def other(position, step=1):
    return "ACGT"["ACGT".index(BASES[position]) - step]


NAMES = {"+": "forward", "-": "reverse"}
VARIANTS = [
    variant_at(250, 1, other(250)),
    variant_at(250, 1, other(250, 2)),
    variant_at(250, 1, "ACGT"),
    variant_at(250, 4, BASES[250]),
    variant_at(251, 3, reverse_complement(BASES[251:254])),
    variant_at(2, 1, other(2)),
    variant_at(0, 1, other(0)),
    variant_at(599, 1, other(599)),
    variant_at(590, 1, other(590) + "GGTTAACC"),
    variant_at(250, 1, BASES[250:256] + "C"),  # longer by a 6-mer
]


def drawn_by_prefix():
    """A number for each place of each 6-mer, the same for all 6-mers that are alike up to there."""
    drawn = np.random.default_rng(0).normal(size=(4096, 6)).astype(np.float32)
    return np.stack([drawn[np.arange(4096) // 4 ** (5 - j), j] for j in range(6)], axis=1)


class TokensAlone:
    """A reader that says of a base what the bases of its 6-mer up to it say, and nothing else."""

    vocabulary, context_tokens = NATIVE, 512
    says = drawn_by_prefix()

    def base_measure(self, by, *, conditionals):
        return by

    def measure_with_means(self, passages, measure):
        return [[Measured(self.says[c.kmers], ()) for c in p.continuations] for p in passages]


@given(
    st.integers(0, 599), st.integers(1, 14), st.text("ACGT", min_size=1, max_size=14),
    st.integers(40, 300), st.sampled_from("+-"), st.sets(st.integers(0, 5), min_size=1),
)  # fmt: skip
@settings(max_examples=100)
def test_behind_any_variant_both_alleles_are_read_in_the_same_6_mers(
    reference, position, ref_bp, alt, window_bp, strand, offsets
):
    variant = variant_at(position, ref_bp, alt)
    options = {"window_bp": window_bp, "strands": NAMES[strand], "offsets": offsets}
    method = method_for(TokensAlone(), VariantOptions(protocol="centered", **options))
    ((score, strands),) = compare_block(TokensAlone(), reference, [variant], method)
    if score.reason:
        assert score.reason in ("same_as_reference", "contig_edge")
        return
    variant, compared = normalize_variant(reference, variant), strands[strand]
    # The 6-mer that holds the last base of an allele reaches five bases further.
    np.testing.assert_array_equal(compared.downstream_deltas[5:], 0)
    pairs = [centered_pair(reference, variant, window_bp, strand, f) for f in method.offsets]
    assert compared.offset_deltas == pytest.approx(
        [said_from(*alt) - said_from(*ref) for ref, alt in pairs], abs=1e-4
    )


def said_from(left, whole):
    """What `TokensAlone` says of all bases from the variant on."""
    kmers = continuation_of(whole, NATIVE).kmers
    return sum(float(TokensAlone.says[kmers[n // 6], n % 6]) for n in range(len(left), len(whole)))


@pytest.mark.parametrize(
    ("offsets", "by"), [((0,), "chain"), ((5,), "marginals"), ((1, 2, 3, 4), "chain")]
)
def test_right_end_one_variant_at_a_time(model, network, reference, by, offsets):
    options = {"protocol": "right_end", "window_bp": 120, "by": by, "offsets": offsets}
    scores = list(model.score_variants(reference, VARIANTS, strands="both", **options))
    turned = reverse_complement(BASES)
    for written, score in zip(VARIANTS, scores, strict=True):
        variant = normalize_variant(reference, written)
        start = 600 - variant.interval.end
        back = Variant("c", start, reverse_complement(variant.ref), reverse_complement(variant.alt))
        for bases, v, found in ((BASES, variant, score.forward), (turned, back, score.reverse)):
            pairs = [right_end_pair(bases, v, 120, offset) for offset in offsets]
            deltas = [stock_delta(network, *zip(*pair, strict=True), by) for pair in pairs]
            assert found == pytest.approx(np.mean(deltas), abs=1e-4)
        assert score.delta == pytest.approx((score.forward + score.reverse) / 2)


def test_order_company_and_batches_change_no_byte(model, reference):
    """Of `right_end`; test_variant_score_types.py has the other protocols."""
    rng = random.Random(1)
    variants = [
        variant_at(p, rng.choice([1, 1, 2]), rng.choice(["A", "CG", "TTT"]))
        for p in range(0, 590, 23)
    ]
    variants = [v for v in variants if v.ref != v.alt]
    options = {"protocol": "right_end", "window_bp": 96, "by": "marginals", "strands": "both"}
    expected = {s.variant: s for s in model.score_variants(reference, variants, **options)}
    shuffled = rng.sample(variants, len(variants))
    assert [expected[v] for v in shuffled] == list(
        model.score_variants(reference, shuffled, **options)
    )
    small = Model(model.model)
    small.runner.batch_tokens = 64
    assert list(small.score_variants(reference, variants, **options)) == list(expected.values())
    for variant in variants[::8]:
        assert list(model.score_variants(reference, [variant], **options)) == [expected[variant]]


@given(st.lists(st.integers(0, 300), min_size=1, max_size=5), st.integers(1, 40), st.data())
@settings(max_examples=15)
def test_branches_are_rows_of_their_own(model, lengths, num_kmers, data):
    """What is measured after a shared stem is what is measured in one row each."""
    vocabulary = model.model.vocabulary
    stem_bp = data.draw(st.integers(0, 282 // 6 - num_kmers)) * 6
    text = data.draw(st.text("ACGTN", min_size=stem_bp, max_size=stem_bp))
    most_bp = 6 * num_kmers
    branches = tuple(
        continuation_of((BASES[n:] * 2)[: min(n + 1, most_bp)], vocabulary) for n in lengths
    )
    stem = prefix_of(text, vocabulary)
    (together,) = model.runner.measure([Passage(stem, branches)], chain)
    for branch, steps in zip(branches, together, strict=True):
        ((alone,),) = model.runner.measure([Passage(stem, (branch,))], chain)
        np.testing.assert_allclose(steps, alone, atol=1e-4)


@pytest.fixture(scope="module")
def roomy():
    """A network with a context of 128 tokens."""
    torch.manual_seed(1)
    network = LlamaForCausalLM(small_config(128)).eval()
    return Model(LoadedModel(network, NATIVE))


@pytest.fixture
def read(roomy, monkeypatch):
    """Return the shapes of what the network reads, in a list that grows."""
    network, shapes = type(roomy.model.network.model), []
    forward = network.forward

    @wraps(forward)
    def counting(self, input_ids, **more):
        shapes.append(tuple(input_ids.shape))
        return forward(self, input_ids=input_ids, **more)

    monkeypatch.setattr(network, "forward", counting)
    return shapes


def test_what_stands_before_is_read_once(roomy, reference, read):
    """Three ALTs of a place: of `<dna>` and 40 6-mers before, 32 tokens are read once."""
    alts = [variant_at(300, 1, b) for b in "ACGT" if b != BASES[300]]
    centered = {"protocol": "centered", "strands": "forward"}
    list(roomy.score_variants(reference, alts, window_bp=480, **centered))
    # The other 9, and 40 from the variant on, the last of which is predicted only: 48.
    assert read == [(1, 32), (4, 64)]
    read.clear()
    alone = {"protocol": "right_end", "strands": "forward"}
    list(roomy.score_variants(reference, alts, window_bp=120, **alone))
    assert read == [(1, 32)]  # `<dna>` and 120 bp: the state at the end says it all


def test_shared_stems_give_the_difference_of_whole_windows(roomy, reference):
    options = {"protocol": "centered", "window_bp": 420, "by": "chain", "strands": "forward"}
    scores = list(roomy.score_variants(reference, VARIANTS, **options))
    for variant, score in zip(VARIANTS, scores, strict=True):
        pairs = centered_pair(reference, normalize_variant(reference, variant), 420, "+")
        lefts, texts = zip(*((left, whole[len(left) :]) for left, whole in pairs), strict=True)
        expected = stock_delta(roomy.model.network, lefts, texts)
        assert score.delta == pytest.approx(expected, abs=1e-4)
    backwards = list(roomy.score_variants(reference, VARIANTS[::-1], **options))
    assert backwards[::-1] == scores


def test_memory_that_runs_out_halves_the_batch(model, network, reference, monkeypatch, capsys):
    expected = [s.delta for s in model.score_variants(reference, VARIANTS, window_bp=120)]
    forward = type(network.model).forward

    @wraps(forward)
    def poor(self, input_ids, **more):
        if len(input_ids) > 3:
            raise torch.OutOfMemoryError("no more")
        return forward(self, input_ids=input_ids, **more)

    monkeypatch.setattr(type(network.model), "forward", poor)
    mine = Model(model.model)
    found = [s.delta for s in mine.score_variants(reference, VARIANTS[5:], window_bp=120)]
    assert found == expected[5:]
    many = list(mine.score([BASES[i : i + 90] for i in range(50)]))
    assert len(many) == 50 and mine.runner.batch_tokens < Model(model.model).runner.batch_tokens
    assert "out of memory" in capsys.readouterr().err
    monkeypatch.setattr(
        type(network.model), "forward", lambda self, **_: (_ for _ in ()).throw(RuntimeError("no"))
    )
    with pytest.raises(RuntimeError, match="no"):
        list(mine.score(["ACGT"]))


def alts_of_one_place(num_alts):
    """Return SNVs, and insertions of one 6-mer and more, so that all are read in one offset."""
    alts = [other(300, step) for step in (1, 2, 3)]
    # An insertion that ends with another base than the one before it stands at its leftmost place.
    inserted = [random_bases(6 * n - 1, seed=n) + other(300) for n in range(1, num_alts - 2)]
    alts += [BASES[300] + bases for bases in inserted]
    return [variant_at(300, 1, alt) for alt in alts]


@pytest.mark.parametrize(("by", "most_rows"), [("chain", 1), ("marginals", 8)])
def test_memory_that_runs_out_halves_the_alts_of_a_place(
    roomy, reference, by, most_rows, monkeypatch, capsys
):
    options = {"protocol": "centered", "window_bp": 480, "by": by, "strands": "forward"}
    expected = list(roomy.score_variants(reference, alts_of_one_place(12), **options))
    network = type(roomy.model.network.model)
    forward, read = network.forward, []

    @wraps(forward)
    def poor(self, input_ids, **more):
        if len(input_ids) > most_rows:
            raise torch.OutOfMemoryError("no more")
        read.append(len(input_ids))
        return forward(self, input_ids=input_ids, **more)

    monkeypatch.setattr(network, "forward", poor)
    mine = Model(roomy.model)
    assert list(mine.score_variants(reference, alts_of_one_place(12), **options)) == expected
    assert "out of memory with 13 rows" in capsys.readouterr().err
    assert read[-1] == 1  # one of 13 is left over, and read in the shape that it had before


def test_a_passage_larger_than_a_batch_is_read_in_parts(roomy, reference, read):
    """And one that is not is read at once, however batches fall."""
    several = alts_of_one_place(12)
    pairs = [variant_at(p, 1, other(p)) for p in (300, 306, 312)]
    options = {"protocol": "centered", "window_bp": 480, "strands": "forward"}
    expected = list(roomy.score_variants(reference, [*several, *pairs], **options))
    read.clear()
    small = Model(roomy.model)
    small.runner.batch_tokens = 5 * 96
    assert list(small.score_variants(reference, several, **options)) == expected[:12]
    assert read == [(1, 32), (5, 64)] * 2 + [(1, 32), (3, 64)]
    read.clear()
    assert list(small.score_variants(reference, pairs, **options)) == expected[12:]
    assert read == [(2, 32), (4, 64), (1, 32), (2, 64)]


@pytest.mark.parametrize("batch_rows", [1, 3])
def test_a_short_branch_left_over_has_the_bytes_that_it_has_in_company(roomy, batch_rows, read):
    """Its row is as long as the longest of the passage, wherever that is read."""
    stem = prefix_of(BASES[: 40 * 6], NATIVE)
    lengths_bp = (420, 300, 200, 61, 7)
    passage = Passage(stem, tuple(continuation_of(BASES[240:][:n], NATIVE) for n in lengths_bp))
    (together,) = roomy.runner.measure([passage], chain)
    read.clear()
    (parted,) = ModelRunner(roomy.model, batch_rows * 128).measure([passage], chain)
    assert [steps.tobytes() for steps in parted] == [steps.tobytes() for steps in together]
    # Of the stem; of its other 9 tokens and 69 of 70 6-mers.
    assert {length for _, length in read} == {32, 96}


def test_reasons(model, reference):
    variants = [
        variant_at(5, 1, "<DEL>"), variant_at(5, 1, "N"), variant_at(100, 100, "A"),
        Variant("c", 5, BASES[5], "*"), Variant("c", 5, BASES[5], f"{BASES[5]}[c:9["),
    ]  # fmt: skip
    scores = list(model.score_variants(reference, variants, protocol="centered", window_bp=60))
    assert [s.reason for s in scores] == [
        "symbolic_allele", "ambiguous_base", "allele_longer_than_half_window",
        "symbolic_allele", "symbolic_allele",
    ]  # fmt: skip
    assert all((s.delta, s.spread, s.unsure) == (None,) * 3 for s in scores)
    for position in (-1, 600):
        for ref, alt, reason in (("N", "A", "ambiguous_base"), ("A", "C", "telomere")):
            (score,) = model.score_variants(reference, [Variant("c", position, ref, alt)])
            assert score.reason == reason
    options = {"protocol": "right_end", "window_bp": 240}
    fits, does_not = (variant_at(300, bp, "A") for bp in (48, 49))
    scores = list(model.score_variants(reference, [fits, does_not], **options))
    assert [s.reason for s in scores] == [None, "allele_longer_than_context"]


def test_a_ref_that_the_reference_does_not_know_has_no_score(model, tmp_path):
    """N agrees with any base and says nothing of it; a REF that cannot be right is an error."""
    bases = BASES[:250] + "Nn" + BASES[252:]
    reference = Reference(write_fasta(tmp_path / "n.fa", {"c": bases}))
    unknown = [
        variant_at(250, 1, other(250)),
        variant_at(251, 1, BASES[251].lower()),  # the reason of the place is told before its own
        variant_at(249, 3, BASES[249]),
        Variant("c", 250, "A", "<DEL>"),
    ]
    scores = list(model.score_variants(reference, unknown, window_bp=120))
    assert [score.reason for score in scores] == ["reference_unknown"] * 4
    assert {number for score in scores for number in (score.delta, *score[3:])} == {None}
    (score,) = model.score_variants(reference, [Variant("c", 250, "N", "A")], window_bp=120)
    assert score.reason == "ambiguous_base"
    found, strands = model.compare_alleles(reference, unknown[0], model.variant_method())
    assert found.reason == "reference_unknown" and strands == {}
    with pytest.raises(GenomeError, match="REF is"):
        list(model.score_variants(reference, [Variant("c", 249, other(249) + "A", "A")]))


def test_what_does_not_fit_is_refused(model, reference):
    for wrong in ({"window_bp": 283}, {"offsets": (6,)}, {"tags": ("<x>",)}):
        with pytest.raises(UserError):
            model.score_variants(reference, [], **wrong)
    wrong = Variant("c", 100, other(100), BASES[100])
    with pytest.raises(GenomeError, match=f"c:101 {wrong.ref}>{wrong.alt}: REF is {wrong.ref}"):
        list(model.score_variants(reference, [wrong]))
    assert model.variant_method(protocol="centered").window_bp == 282
    # Of the context a quarter, at most 300 bases, is left for the alleles.
    assert model.variant_method().window_bp == 212
    assert model.variant_method(protocol="right_end", tags=("<fungi_species>",)).window_bp == 207


@pytest.mark.parametrize("protocol", ["centered", "right_end"])
def test_a_comparison_has_the_parts_that_a_score_sums_up(model, reference, protocol):
    options = {"protocol": protocol, "window_bp": 120, "strands": "both", "offsets": (0, 4)}
    for variant in VARIANTS[:5]:
        (score,) = model.score_variants(reference, [variant], **options)
        found, strands = model.compare_alleles(reference, variant, model.variant_method(**options))
        assert found == score
        for compared, delta in zip(strands.values(), (score.forward, score.reverse), strict=True):
            parts = compared.allele_delta, *compared.downstream_deltas, compared.length_delta
            assert compared.delta == delta == pytest.approx(sum(parts), abs=1e-9)
            assert compared.ref.shape == compared.alt.shape
            if len(variant.ref) == len(variant.alt):
                assert compared.length_delta == 0


@pytest.mark.parametrize("strand", ["+", "-"])
def test_a_comparison_pairs_the_same_bases_behind_a_deletion(model, reference, strand):
    """Each base behind is that of the reference, read behind REF and behind ALT by `score`."""
    variant = variant_at(248, 4, BASES[248])
    assert normalize_variant(reference, variant) is variant
    options = {"protocol": "centered", "window_bp": 120, "strands": "both", "offsets": (0,)}
    method = model.variant_method(**options)
    compared = model.compare_alleles(reference, variant, method)[1][strand]
    (_, ref), (_, alt) = centered_pair(reference, variant, 120, strand)
    of_ref, of_alt = (score.bases for score in model.score([ref, alt]))
    before_bp = 60 if strand == "+" else 59
    counted_bp = 120 - before_bp - 4
    # ALT is three bases shorter, and begins three bases later.
    expected = [of_alt[before_bp - 2 + n] - of_ref[before_bp + 4 + n] for n in range(counted_bp)]
    np.testing.assert_allclose(compared.downstream_deltas, expected, atol=1e-4)


def test_the_spread_is_the_standard_deviation_over_offsets_and_strands(model, reference):
    of_protocol = {"protocol": "centered", "window_bp": 120}
    options = {**of_protocol, "offsets": (0, 2), "strands": "both"}
    scores = list(model.score_variants(reference, VARIANTS, **options))
    each = [
        [
            s.delta
            for s in model.score_variants(
                reference, VARIANTS, **of_protocol, offsets=(offset,), strands=strands
            )
        ]
        for offset in (0, 2)
        for strands in ("forward", "reverse")
    ]
    for score, deltas in zip(scores, np.array(each, dtype=object).T, strict=True):
        read = [delta for delta in deltas if delta is not None]
        assert score.delta == pytest.approx(sum(read) / len(read))
        squares = [(delta - score.delta) ** 2 for delta in read]
        assert score.spread == pytest.approx(math.sqrt(sum(squares) / len(read)))
        assert score.unsure is (abs(score.delta) < score.spread)
    assert {score.unsure for score in scores} == {True, False}
    options["offsets"] = (0,)  # of two readings that is whether they disagree about the sign
    for score in model.score_variants(reference, VARIANTS[:5], **options):
        assert score.unsure is (score.forward * score.reverse < 0)
    options["strands"] = "forward"
    for score in model.score_variants(reference, VARIANTS, **options):
        assert score.spread is None and score.unsure is None
    for score in model.score_variants(reference, VARIANTS[:5], window_bp=120):  # by default
        assert score.spread == pytest.approx(abs(score.forward - score.reverse) / 2)
