"""One variant has one score, consequence, kind and window, however a VCF writes it.

And in repeats, what `right_end` compares: whole texts searched for the first base that differs.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.finetune.readers import alleles_of, fits_window
from carbon.genome import Consequences, Reference, Variant, read_gene_file, reverse_complement
from carbon.genome.normalize import normalize_variant
from carbon.inference.variants.background import KIND_SCHEMES
from demo.neighbouring_snvs import effect_values
from eval.baselines import VARIANT_BASELINES, MarkovModel, UniformModel
from eval.contract import Reading
from eval.markov import Training, pieces_of, unlabelled
from tests.helpers.files import place_gene, random_bases, write_fasta
from tests.helpers.reference import right_end_pair, stock_delta, ways_to_write

GENE, GFF3, _ = place_gene()
# Repeats before the gene, in its CDS (15 bases again and again, 109 to 240), and behind it.
BASES = GENE[:30] + "A" * 14 + GENE[44:60] + "CAG" * 6 + GENE[78:300] + "CA" * 10 + GENE[320:]


@pytest.fixture(scope="module")
def genome(tmp_path_factory):
    folder = tmp_path_factory.mktemp("written")
    (folder / "g.gff3").write_text(GFF3)
    reference = Reference(write_fasta(folder / "r.fa", {"c1": BASES.lower()[:200] + BASES[200:]}))
    return reference, read_gene_file(folder / "g.gff3", reference)


@st.composite
def written_twice(draw):
    """A change, as two of the ways to write it within 20 bases on either side."""
    first = draw(st.integers(0, len(BASES) - 12))
    ref = BASES[first : first + draw(st.integers(1, 6))]
    kept = ref[: draw(st.integers(0, 2))]
    alt = kept + draw(st.text("ACGT", max_size=4)) + draw(st.sampled_from(["", ref, ref[1:]]))
    if not alt or alt == ref:
        alt = ref + ref
    ways = ways_to_write(BASES, first, ref, alt, max(0, first - 20), min(len(BASES), first + 26))
    return tuple(Variant("c1", *draw(st.sampled_from(ways))) for _ in range(2))


@pytest.mark.parametrize("protocol", ["centered", "right_end"])
@given(written_twice())
@settings(max_examples=12)
def test_the_score_is_the_same_to_the_last_bit(model, genome, protocol, pair):
    """Each is scored alone, so that both are read in batches of one shape."""
    options = {"protocol": protocol, "window_bp": 120}
    one, other = (
        next(model.score_variants(genome[0], [variant], **options))[1:] for variant in pair
    )
    assert one == other


@given(written_twice())
@settings(max_examples=150)
def test_consequence_kind_and_windows_are_the_same(genome, pair):
    reference, annotation = genome
    consequences = Consequences(reference, annotation)
    one, other = (consequences.of(variant) for variant in pair)
    assert one == other
    for kinds in KIND_SCHEMES.values():
        paths = [kinds.path_of(reference, variant, one.consequence) for variant in pair]
        assert paths[0] == paths[1]
    assert alleles_of(reference, pair[0], 60) == alleles_of(reference, pair[1], 60)
    assert fits_window(reference, pair[0], 8) == fits_window(reference, pair[1], 8)


@given(written_twice())
@settings(max_examples=50)
def test_baselines_give_one_delta(genome, pair):
    markov = MarkovModel(3, Training(3, pieces_of(unlabelled([random_bases(3000, 4)]), 3000)))
    for model in (markov, UniformModel(), *(make() for make in VARIANT_BASELINES.values())):
        for protocol in ("centered", "right_end"):
            reading = Reading(protocol, 80, "both")
            one, other = (model.deltas(genome[0], [variant], reading) for variant in pair)
            assert one == other


# 14 A at 30 to 43, six CAG at 60 to 77 and ten CA at 300 to 319, each with the base before it.
REPEATS = [
    Variant("c1", 29, BASES[29:31], BASES[29]),
    Variant("c1", 29, BASES[29:34], BASES[29]),
    Variant("c1", 29, BASES[29], BASES[29] + "AA"),
    Variant("c1", 59, BASES[59:63], BASES[59]),
    Variant("c1", 59, BASES[59], BASES[59] + "CAG" * 2),
    Variant("c1", 299, BASES[299:302], BASES[299]),
    Variant("c1", 299, BASES[299], BASES[299] + "CA" * 3),
]


@pytest.mark.parametrize(("by", "offset"), [("chain", 4), ("marginals", 0)])
def test_right_end_in_a_repeat_compares_up_to_the_first_base_that_differs(
    model, network, genome, by, offset
):
    """As many bases as the longer allele has are the same text, and had a delta of exactly 0."""
    options = {"protocol": "right_end", "window_bp": 96, "by": by, "offsets": (offset,)}
    turned = reverse_complement(BASES)
    for given_variant, score in zip(
        REPEATS, model.score_variants(genome[0], REPEATS, **options), strict=True
    ):
        variant = normalize_variant(genome[0], given_variant)
        longer = max(len(variant.ref), len(variant.alt))
        back = Variant(
            "c1", len(BASES) - variant.interval.end,
            reverse_complement(variant.ref), reverse_complement(variant.alt),
        )  # fmt: skip
        for bases, v, found in ((BASES, variant, score.forward), (turned, back, score.reverse)):
            lefts, texts = zip(*right_end_pair(bases, v, 96, offset), strict=True)
            assert bases is turned or len(texts[0]) > longer
            expected = stock_delta(network, lefts, texts, by)
            assert found == pytest.approx(expected, abs=1e-4)
            assert found != 0
        assert score.delta == (score.forward + score.reverse) / 2
        assert score.strand_left_out is None


@pytest.mark.parametrize("protocol", ["centered", "right_end"])
def test_a_strand_that_cannot_tell_the_alleles_apart_is_left_out_and_named(
    model, tmp_path, protocol
):
    """The run of A ends where the contig ends, or where the next base is not known."""
    bases = random_bases(200, 3) + "C" + "A" * 8
    contigs = {
        "end": bases, "gap": bases + "NN" + random_bases(90, 5), "all": "A" * 20,
        "start": reverse_complement(bases), "known": bases + "R" + random_bases(90, 5),
    }  # fmt: skip
    reference = Reference(write_fasta(tmp_path / "r.fa", contigs))
    options = {"protocol": protocol, "window_bp": 60}
    for contig, left_out in (("end", "forward"), ("gap", "forward"), ("known", "forward"),
                             ("start", "reverse")):  # fmt: skip
        at = 204 if left_out == "forward" else 3
        base = contigs[contig][at]
        for variant in (Variant(contig, at, base * 2, base), Variant(contig, at, base, base * 3)):
            (both,) = model.score_variants(reference, [variant], **options)
            seen = "reverse" if left_out == "forward" else "forward"
            (alone,) = model.score_variants(reference, [variant], strands=seen, **options)
            assert both.strand_left_out == left_out
            assert getattr(both, left_out) is None and both.spread is None
            assert both.delta == getattr(both, seen) == alone.delta != 0
            assert alone.strand_left_out is None
            (none,) = model.score_variants(reference, [variant], strands=left_out, **options)
            assert (none.delta, none.reason) == (None, "contig_edge")
    (score,) = model.score_variants(reference, [Variant("all", 9, "AA", "A")], **options)
    assert (score.delta, score.reason, score.strand_left_out) == (None, "contig_edge", None)


@pytest.mark.parametrize(
    ("protocol", "window_bp", "most_bp", "reason"),
    [
        # Beside `<dna>` 47 6-mers fit, and one more is predicted: 288 bases, 48 behind the window.
        ("right_end", 240, 48, "allele_longer_than_context"),
        ("centered", 60, 30, "allele_longer_than_half_window"),
    ],
)
def test_a_repeat_that_is_too_long_has_a_reason(
    model, tmp_path, protocol, window_bp, most_bp, reason
):
    """With n A behind the anchor the first base that differs is at n: n + 1 bases are counted."""
    lengths_bp = (most_bp - 1, most_bp)
    contigs = {f"c{n}": random_bases(250, 1) + "C" + "A" * n + "G" * 80 for n in lengths_bp}
    reference = Reference(write_fasta(tmp_path / "r.fa", contigs))
    variants = [Variant(contig, 260, "AA", "A") for contig in contigs]
    options = {"protocol": protocol, "window_bp": window_bp}
    fits, does_not = model.score_variants(reference, variants, **options)
    assert fits.reason is None and 0 not in (fits.forward, fits.reverse)
    assert (does_not.delta, does_not.reason) == (None, reason)


def test_long_padding_is_not_a_long_allele(model, genome):
    ref = BASES[100:180]
    padded = Variant("c1", 100, ref, ref[:40] + ("G" if ref[40] != "G" else "T") + ref[41:])
    (score,) = model.score_variants(genome[0], [padded], window_bp=60)
    assert score.reason is None


def test_what_an_snv_does_to_a_gene_is_told_of_a_padded_one(genome):
    class Opened:
        reference, annotation = genome

        def genes_in(self, interval):
            return [g for g in self.annotation.genes if g.interval.overlaps(interval)]

    alt = "ACGT"["ACGT".index(BASES[240]) - 1]
    plain = Variant("c1", 240, BASES[240], alt)
    padded = Variant("c1", 230, BASES[230:242], BASES[230:240] + alt + BASES[241])
    assert effect_values(Opened(), padded) == effect_values(Opened(), plain) != []
