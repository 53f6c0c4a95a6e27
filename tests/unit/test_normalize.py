"""Variants trimmed and left-aligned: by hand, by all ways to write them, and by bcftools."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.genome import Reference, Variant
from carbon.genome.normalize import normalize_variant
from tests.helpers.bcftools import normalized_by_bcftools
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.reference import ways_to_write

# Index           0         1         2         3
#                 0123456789012345678901234567890
CONTIGS = {
    "plain": "GATTTTTCACACAGGCATGCATGCTTACGTA",
    "soft": "GATttTTCAcacaGGCATgcatgcTTACGTA",
    "start": "AAAAAACACACAT",
    "gaps": "GNNNAAAARCCCCTN",
}


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return Reference(write_fasta(tmp_path_factory.mktemp("n") / "r.fa", CONTIGS))


# As written (0-based), and as it must become; worked out by hand.
CASES = [
    # SNVs and MNVs: shared bases go, at both ends.
    ("plain", (0, "GATT", "GCTT"), (1, "A", "C")),
    ("plain", (0, "GAT", "CAG"), (0, "GAT", "CAG")),
    ("plain", (0, "GATTTTTC", "GACCTTTC"), (2, "TT", "CC")),
    # A deletion and an insertion of T among the five T at 2 to 6: behind the A at 1.
    ("plain", (5, "TT", "T"), (1, "AT", "A")),
    ("plain", (6, "T", "TT"), (1, "A", "AT")),
    # CA of CACACA at 7: behind the T at 6; the unit turns as it moves.
    ("plain", (10, "ACA", "A"), (6, "TCA", "T")),
    ("plain", (12, "A", "ACA"), (6, "T", "TCA")),
    # Bases that are replaced by others move nowhere, and keep no anchor.
    ("plain", (6, "TCAC", "TG"), (7, "CAC", "G")),
    # Lower case is the same bases.
    ("soft", (10, "aca", "A"), (6, "TCA", "T")),
    # Where the contig begins there is no base before: the anchor is the base after.
    ("start", (4, "AA", "A"), (0, "AA", "A")),
    ("start", (5, "A", "AAAA"), (0, "A", "AAAA")),
    ("start", (0, "AAAAAAC", "C"), (0, "AAAAAAC", "C")),
    ("start", (0, "AAAAAAC", "AAAAAATC"), (5, "A", "AT")),
    # Behind a base that is not known it is likewise the base after, and nothing moves over it.
    ("gaps", (6, "AA", "A"), (4, "AA", "A")),
    ("gaps", (7, "A", "AA"), (4, "A", "AA")),
    ("gaps", (11, "CC", "C"), (9, "CC", "C")),
]


@pytest.mark.parametrize(("contig", "written", "expected"), CASES)
def test_by_hand(reference, contig, written, expected):
    found = normalize_variant(reference, Variant(contig, *written))
    assert (found.position, found.ref, found.alt) == expected
    assert normalize_variant(reference, found) is found


@pytest.mark.parametrize(
    "variant",
    [
        Variant("plain", 5, "TT", "<DEL>"), Variant("plain", 5, "TT", "*"),
        Variant("plain", 5, "TT", "T[plain:9["), Variant("plain", 5, "TT", "TT"),
        Variant("plain", 5, "TT", "tt"), Variant("gaps", 3, "NA", "N"),
        Variant("plain", 5, "T", "a"), Variant("plain", 1, "at", "a"),
        Variant("plain", -1, "A", "AC"),
        Variant("plain", 31, "A", "AC"), Variant("plain", 29, "TAA", "T"),
        Variant("absent", 5, "TT", "T"),
    ],
)  # fmt: skip
def test_what_stays_as_it_is(reference, variant):
    assert normalize_variant(reference, variant) is variant


@settings(max_examples=50)
@given(st.text("AC", min_size=4, max_size=12), st.data(), st.text("AC", min_size=1, max_size=4))
def test_all_ways_to_write_a_change_become_one(tmp_path_factory, bases, data, alt):
    """The leftmost of the shortest: no way to write it is shorter, or as short and further left."""
    reference = Reference(write_fasta(tmp_path_factory.mktemp("w") / "r.fa", {"c": bases}))
    first = data.draw(st.integers(0, len(bases) - 1))
    ref = bases[first : data.draw(st.integers(first + 1, len(bases)))]
    if ref == alt:
        return
    ways = ways_to_write(bases, first, ref, alt)
    assert (first, ref, alt) in ways
    found = {normalize_variant(reference, Variant("c", *way)) for way in ways}
    (one,) = found
    shortest = min(len(r) + len(a) for _, r, a in ways)
    leftmost = min(way for way in ways if len(way[1]) + len(way[2]) == shortest)
    assert (one.position, one.ref, one.alt) == leftmost


def test_a_long_repeat_is_fetched_once(tmp_path, monkeypatch):
    """Each of 16,384 bases is in one of few fetches."""
    bases = "G" + "A" * 16_384 + "C"
    reference = Reference(write_fasta(tmp_path / "r.fa", {"c": bases}))
    fetched, fetch = [], Reference.fetch

    def counting(self, interval):
        fetched.append(interval.length_bp)
        return fetch(self, interval)

    monkeypatch.setattr(Reference, "fetch", counting)
    found = normalize_variant(reference, Variant("c", 16_384, "AC", "C"))
    assert found == Variant("c", 0, "GA", "G")
    assert sum(fetched) == 16_384 and len(fetched) < 20


def random_change(rng: random.Random, contig: str, bases: str) -> Variant:
    """Return a change that may be padded, anchored at either end, or of more than one kind."""
    first = rng.randrange(len(bases))
    ref = bases[first : first + rng.choice([1, 1, 2, 3, 6, 20])].upper()
    cut = rng.randrange(len(ref) + 1)
    inserted = rng.choice([ref[:cut][-3:], "A" * rng.randrange(4), random_bases(3, rng.random())])
    alt = rng.choice([
        ref[: cut or 1], ref[cut:] or ref, ref[:cut] + inserted + ref[cut:],
        "".join(rng.choice("ACGT") if rng.random() < 0.3 else base for base in ref),
    ])  # fmt: skip
    return Variant(contig, first, ref, alt)


@pytest.mark.parametrize("letters", ["AC", "ACGT", "AAAAAAC"])
def test_bcftools_agrees(tmp_path, letters):
    rng = random.Random(letters)
    contigs = {
        f"c{n}": "".join(rng.choice((base, base.lower())) for base in rng.choices(letters, k=n))
        for n in (3, 9, 40, 300, 300)
    }
    reference = Reference(write_fasta(tmp_path / "r.fa", contigs))
    drawn = [random_change(rng, *rng.choice(list(contigs.items()))) for _ in range(800)]
    variants = [v for v in drawn if v.why_unscorable() is None]
    expected = normalized_by_bcftools(reference, variants, tmp_path)
    found = [normalize_variant(reference, v) for v in variants]
    assert [Variant(v.contig, v.position, v.ref.upper(), v.alt) for v in found] == expected
    assert sum(one is not v for one, v in zip(found, variants, strict=True)) > 120
