"""Real variants, however written: against `bcftools norm`, and by `right_end` in repeats."""

import random

import pytest

import carbon
from carbon.genome import Interval, Reference, Variant, VcfReader
from carbon.genome.normalize import normalize_variant
from tests.helpers.bcftools import normalized_by_bcftools
from tests.real_data.test_variant_scores import CHR20

_NUM_RANDOM = 4000


def unpacked(reference: Reference, contig: str, length_bp: int, folder) -> Reference:
    """Return the first bases of a contig as a FASTA that bcftools can index."""
    bases = reference.fetch(Interval(contig, 0, length_bp))
    (folder / "r.fa").write_text(f">{contig}\n{bases}\n")
    return Reference(folder / "r.fa")


def drawn(rng: random.Random, reference: Reference, contig: str) -> Variant | None:
    """Draw a deletion, a copy of the bases before or behind, or a mixed change, and pad it."""
    at = rng.randrange(reference.contig_lengths_bp[contig] - 60)
    bases = reference.fetch(Interval(contig, at, at + 60))
    left, moved = rng.randrange(12), rng.randrange(1, 12)
    behind = rng.randrange(12)
    old = bases[left : left + moved]
    new = rng.choice(["", old * 2, "ACG"[: rng.randrange(1, 4)], old[::-1]])
    ref = bases[: left + moved + behind]
    alt = bases[:left] + new + bases[left + moved : left + moved + behind]
    variant = Variant(contig, at, ref, alt)
    return variant if variant.why_unscorable() is None else None


@pytest.mark.parametrize("name", ["yeast", "chr20"])
def test_random_variants_are_written_as_bcftools_norm_writes_them(real_data, tmp_path, name):
    (path,) = [real_data / CHR20[0]] if name == "chr20" else (real_data / "yeast").glob("*.fa*")
    rng = random.Random(name)
    with Reference(path) as whole:
        contig = next(iter(whole.contig_lengths_bp))
        reference = unpacked(whole, contig, 200_000, tmp_path)
    found = [drawn(rng, reference, contig) for _ in range(_NUM_RANDOM)]
    variants = [variant for variant in found if variant]
    expected = normalized_by_bcftools(reference, variants, tmp_path)
    normal = [normalize_variant(reference, variant) for variant in variants]
    written = [Variant(v.contig, v.position, v.ref.upper(), v.alt.upper()) for v in normal]
    assert written == expected
    assert sum(one is not v for one, v in zip(normal, variants, strict=True)) > 1000


def test_no_indel_of_chr20_has_a_delta_of_nothing(real_data):
    """Of the 917 indels in a million bases 590 had a forward delta of exactly 0; here every 8th."""
    model = carbon.load("yeast", device="cpu")
    with Reference(real_data / CHR20[0]) as reference:
        rows = VcfReader(real_data / CHR20[1], reference)
        indels = [
            v
            for row in rows
            for v in row.variants
            if len(v.ref) != len(v.alt) and v.why_unscorable() is None
        ]
        assert len(indels) == 917
        options = {"protocol": "right_end", "window_bp": 96}
        for score in model.score_variants(reference, indels[::8], **options):
            assert score.reason is None and score.strand_left_out is None
            assert 0 not in (score.delta, score.forward, score.reverse)
