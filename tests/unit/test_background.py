"""Backgrounds: kinds of variants, their random draws, quantiles, and the file that keeps them."""

import json
import random
from bisect import bisect_left, bisect_right
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from carbon.errors import UserError
from carbon.genome import Consequences, Reference, Variant, read_gene_file, reverse_complement
from carbon.genome.consequence_terms import VOCABULARY_VERSION
from carbon.inference.options import BackgroundOptions
from carbon.inference.variants import background as background_module
from carbon.inference.variants.background import (
    KIND_SCHEMES,
    LEAST_VARIANTS,
    Background,
    RandomVariant,
    VariantSampler,
    background_of,
    draw_variants,
    quantiles,
)
from tests.helpers.files import place_gene, random_bases, write_fasta

BASES = random_bases(3000, 9)


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    folder = tmp_path_factory.mktemp("background")
    turned = reverse_complement(BASES)
    contigs = {"c": BASES, "turned": turned, "holes": "ACGTN" * 40 + "nnn", "n": "N" * 50}
    with Reference(write_fasta(folder / "r.fa", contigs)) as reference:
        yield reference


@pytest.fixture(scope="module")
def genes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("genes")
    bases, gff3, _ = place_gene()
    (folder / "g.gff3").write_text(gff3)
    with Reference(write_fasta(folder / "r.fa", {"c1": bases})) as reference:
        yield reference, read_gene_file(folder / "g.gff3", reference)


def slow_kind(bases: str, position: int, alt: str) -> str:
    """Tell an SNV by writing out both strands of its three bases, before and after."""
    before = bases[position - 1 : position + 2]
    for one, other in (
        (before, before[0] + alt + before[2]),
        tuple(reverse_complement(x) for x in (before, before[0] + alt + before[2])),
    ):
        if one[1] in "CT":
            return f"snv {one[0]}[{one[1]}>{other[1]}]{one[2]}"
    raise AssertionError


@given(st.integers(1, len(BASES) - 2), st.sampled_from("ACGT"))
def test_an_snv_has_one_kind_on_either_strand(reference, position, alt):
    if alt == BASES[position]:
        return
    forward = Variant("c", position, BASES[position], alt)
    expected = slow_kind(BASES, position, alt)
    path = KIND_SCHEMES["change"].path_of(reference, forward, None)
    assert path == (expected, f"snv {expected[6:9]}", "snv")
    assert path[0] in KIND_SCHEMES["change"].narrowest_snvs
    there = len(BASES) - 1 - position
    turned = Variant("turned", there, *map(reverse_complement, (BASES[position], alt)))
    assert KIND_SCHEMES["change"].path_of(reference, turned, None) == path
    # The same change with bases on either side that do not change.
    written = BASES[position - 1 : position + 2]
    longer = Variant("c", position - 1, written, written[0] + alt + written[2])
    assert KIND_SCHEMES["change"].path_of(reference, longer, None) == path


@given(st.integers(50, 2000), st.integers(1, 14), st.booleans(), st.integers(0, 3))
def test_an_indel_has_the_kind_of_its_length(reference, position, bp, is_deletion, shared_bp):
    long, short = BASES[position : position + bp + 1 + shared_bp], BASES[position]
    short += long[bp + 1 :]  # bases in common behind it too
    ref, alt = long, short
    if not is_deletion:
        ref, alt = BASES[position : position + 1 + shared_bp], None
        alt = ref[0] + random_bases(bp, position) + ref[1:]
    name = "deletion" if is_deletion else "insertion"
    expected = (f"{name} {bp}", name) if bp <= 12 else ()
    assert (
        KIND_SCHEMES["change"].path_of(reference, Variant("c", position, ref, alt), None)
        == expected
    )


def test_what_has_a_broader_kind_or_none(reference):
    """Beside an unknown base or an edge; and what is no SNV and no indel."""
    path_of = KIND_SCHEMES["change"].path_of
    for contig, position, ref in (("holes", 8, "T"), ("c", 0, BASES[0]), ("holes", 5, "A")):
        alt = "G" if ref != "G" else "A"
        path = path_of(reference, Variant(contig, position, ref, alt), None)
        assert path[-1] == "snv" and len(path) == 2
    for ref, alt in (("AC", "GT"), ("ACG", "TT"), ("A", "<DEL>"), ("A", "*"), ("A", "N")):
        for kinds in KIND_SCHEMES.values():
            variant = Variant("holes", 5, ref, alt)
            assert kinds.path_of(reference, variant, "missense_variant") == ()


def test_kinds_by_consequence(genes):
    reference, annotation = genes
    consequences = Consequences(reference, annotation)
    path_of = KIND_SCHEMES["consequence"].path_of
    stop, intron = Variant("c1", 114, "C", "A"), Variant("c1", 161, "T", "C")
    for variant, expected in (
        (stop, ("snv stop_gained", "snv")),
        (intron, ("snv splice_variant", "snv")),
    ):
        term = consequences.of(variant).consequence
        assert path_of(reference, variant, term) == expected
    assert path_of(reference, Variant("c1", 20, "AC", "A"), "frameshift_variant") == (
        "deletion 1 coding", "deletion 1", "deletion",
    )  # fmt: skip
    assert path_of(reference, Variant("c1", 20, "A", "ACCC"), "intron_variant")[0] == (
        "insertion 3 noncoding"
    )
    assert path_of(reference, Variant("c1", 20, "A", "AC"), None) == ("insertion 1", "insertion")


def test_draws_are_enough_of_the_reference_and_the_same_for_a_seed(reference):
    drawing = BackgroundOptions(variants_per_kind=7, seed=3, draw_from=("c", "holes"))
    drawn = draw_variants(reference, "change", drawing)
    assert drawn == draw_variants(reference, "change", drawing)
    assert drawn != draw_variants(reference, "change", replace(drawing, seed=4))
    counts = Counter(one.path[0] for one in drawn)
    assert len(set(KIND_SCHEMES["change"].narrowest_snvs)) == 96
    for kind in KIND_SCHEMES["change"].narrowest_snvs:
        assert counts[kind] == 7
    assert {kind: n for kind, n in counts.items() if " " in kind and "snv" not in kind} == {
        f"{name} {bp}": 7 for name in ("deletion", "insertion") for bp in range(1, 13)
    }
    for one in drawn:
        v = one.variant
        assert v.contig in ("c", "holes") and v.why_unscorable() is None
        assert reference.disagreement(v.contig, v.position, v.ref) is None
    by_broadest = Counter()
    for one in drawn:
        by_broadest[one.path[-1]] += one.weight
    assert by_broadest == pytest.approx({"snv": 1, "deletion": 12, "insertion": 12})


def test_indels_are_drawn_left_aligned(tmp_path):
    """In a genome of repeats nearly every place of an indel can be moved."""
    repeats = "".join(unit * 12 for unit in ("A", "CA", "GAT", "TTC", "ACGG"))
    with Reference(write_fasta(tmp_path / "r.fa", {"c": random_bases(50, 1) + repeats})) as genome:
        places = VariantSampler(genome, (), np.random.default_rng(0))
        sent, moved = 0, 0
        for name in ("deletion", "insertion"):
            for bp in (1, 2, 3, 6) * 40:
                if variant := places.indel(name, bp):
                    # An indel is left-aligned if its allele does not end as it begins.
                    longer = max(variant.ref, variant.alt, key=len)
                    assert variant.position == 0 or longer[0] != longer[-1]
                    sent += 1
                    moved += variant.position > 50
        assert sent > 100 and moved > 20


def test_a_kind_that_is_rare_is_sought_longer_than_one_that_is_nowhere():
    """One in 1,500 draws is of the rare kind: two are found within 20,000 draws."""
    numbers = np.random.default_rng(0)
    tries = Counter()
    wanted = 2

    def propose():
        tries["all"] += 1
        rare = numbers.random() < 1 / 1500
        return Variant("c", 0, "A", "G" if rare else "C")

    def path_of(variant):
        return ("rare" if variant.alt == "G" else "common", "snv")

    drawn = list(
        background_module._draw_kinds(propose, path_of, ("common", "rare", "nowhere"), wanted)
    )
    assert Counter(one.path[0] for one in drawn) == {"common": 2, "rare": 2}
    # What is nowhere costs 1,000 draws a variant that is wanted, and no more.
    assert 2000 <= tries["all"] <= 20_000
    rare = sum(one.weight for one in drawn if one.path[0] == "rare")
    assert 0 < rare < 0.01


def test_weights_are_the_share_of_a_kind_among_all_snvs(reference):
    """Against a count of every SNV of the contig."""
    drawn = draw_variants(
        reference, "change", BackgroundOptions(variants_per_kind=60, draw_from=("c",))
    )
    found = Counter()
    for one in drawn:
        if one.path[-1] == "snv":
            found[one.path[-2]] += one.weight
    of_all = Counter(
        f"snv {slow_kind(BASES, i, alt)[6:9]}"
        for i in range(1, len(BASES) - 1)
        for alt in "ACGT"
        if alt != BASES[i]
    )
    for kind, times in of_all.items():
        assert found[kind] == pytest.approx(times / of_all.total(), rel=0.1)


@pytest.mark.parametrize(
    ("number", "contig", "message"),
    [(0, "c", "give 1 or more"), (5, "d", "no contig 'd'"), (1, "n", "no variants can be drawn")],
)
def test_what_cannot_be_drawn_is_refused(reference, number, contig, message):
    drawing = BackgroundOptions(variants_per_kind=number, draw_from=(contig,))
    with pytest.raises(UserError, match=message):
        draw_variants(reference, "change", drawing)


def background(values_by_path, weights=None):
    drawn, deltas = [], []
    for path, values in values_by_path.items():
        weight = (weights or {}).get(path, 1.0)
        drawn += [RandomVariant(Variant("c", 0, "A", "C"), path, weight)] * len(values)
        deltas += values
    about = {"kinds_by": "change", "settings": {"offsets": (0,), "by": "chain"}, "drawn": {}}
    return background_of(drawn, deltas, about)


def normal(seed, count=LEAST_VARIANTS, mean=0.0):
    numbers = random.Random(seed)
    return [numbers.gauss(mean, 1) for _ in range(count)]


def test_a_kind_with_too_few_takes_the_next_broader_one_that_has_enough():
    few, many = normal(1, 30), normal(2, 90)
    found = background(
        {
            ("snv A[C>T]G", "snv C>T", "snv"): few,
            ("snv A[C>A]G", "snv C>A", "snv"): many,
            ("deletion 1", "deletion"): few,
            ("insertion 2", "insertion"): [*normal(3), None],
        }
    )
    known = {kind: {k: v for k, v in of_kind.items() if k != "quantiles"}
             for kind, of_kind in found.table.items()}  # fmt: skip
    assert known == {
        "snv A[C>T]G": {"variants": 30, "instead": "snv"},
        "snv C>T": {"variants": 30, "instead": "snv"},
        "snv A[C>A]G": {"variants": 90, "instead": "snv"},
        "snv C>A": {"variants": 90, "instead": "snv"},
        "snv": {"variants": 120},
        "deletion 1": {"variants": 30, "instead": None},
        "deletion": {"variants": 30, "instead": None},
        "insertion 2": {"variants": 100},
        "insertion": {"variants": 100},
    }


def test_the_percentile_is_the_share_of_lower_deltas():
    values = [round(value, 2) for value in normal(5, 1000)]
    found = background({("insertion 2", "insertion"): values})
    ordered = sorted(values)
    for delta in np.linspace(-2.5, 2.5, 41):
        lower, not_higher = bisect_left(ordered, delta), bisect_right(ordered, delta)
        exact = (lower + not_higher) / 2 / len(values) * 100
        assert found.percentile_in("insertion", delta) == pytest.approx(exact, abs=0.5)
    assert found.percentile_in("insertion", -99) == 0
    assert found.percentile_in("insertion", 99) == 100
    # A delta that many have stands in their middle.
    ties = background({("snv",): [-1.0] * 100 + [0.0] * 200 + [1.0] * 100})
    assert ties.percentile_in("snv", 0.0) == pytest.approx(50, abs=1)
    assert ties.percentile_in("snv", -1.0) == pytest.approx(12.5, abs=1)


def test_weights_count():
    """Nine tenths of the genome are of the first kind, though as many of both are drawn."""
    common, rare = ("snv C>T", "snv"), ("snv C>A", "snv")
    drawn = {common: normal(1, 500, mean=0), rare: normal(2, 500, mean=-50)}
    found = background(drawn, {common: 0.9, rare: 0.1})
    assert found.percentile_in("snv", -25) == pytest.approx(10, abs=0.5)


@given(st.lists(st.floats(-80, 80, width=32), min_size=LEAST_VARIANTS, max_size=130), st.data())
def test_percentiles_rise_with_the_delta_and_stay_within_their_bounds(values, data):
    found = background({("snv",): values})
    deltas = sorted(data.draw(st.lists(st.floats(-90, 90), min_size=2)))
    percentiles = [found.percentile_in("snv", delta) for delta in deltas]
    assert percentiles == sorted(percentiles)
    assert all(0 <= each <= 100 for each in percentiles)
    steps = quantiles(zip(values, [1.0] * len(values), strict=True))
    assert steps == sorted(steps)


def test_a_file_is_read_as_it_was_written(tmp_path, reference):
    made = background(
        {("snv A[C>T]G", "snv C>T", "snv"): normal(1), ("insertion 1", "insertion"): [1.0]}
    )
    made.write(tmp_path / "b.json")
    read = Background.read(tmp_path / "b.json")
    assert read.to_bytes() == made.to_bytes() == (tmp_path / "b.json").read_bytes()
    assert (read.table, read.settings) == (made.table, {"offsets": [0], "by": "chain"})
    assert read.why_other({"offsets": (0,), "by": "chain"}) is None
    for here, name in (
        ({"offsets": (0, 1), "by": "chain"}, "offsets"),
        ({"offsets": (0,), "by": "marginals"}, "by"),
        ({"offsets": (0,), "by": "chain", "new": 1}, "new"),
        ({"offsets": (0,)}, "by"),
    ):
        assert name in read.why_other(here)
    assert read.percentile(reference, Variant("c", 5, "AC", "GT"), 1.0) is None
    assert read.percentile(reference, Variant("c", 5, BASES[5], BASES[5] + "A"), 1.0) is None
    snv = Variant("c", 5, BASES[5], "ACGT"["ACGT".index(BASES[5]) - 1])
    assert read.percentile(reference, snv, None) is None


def test_a_file_of_other_terms_or_damaged_is_one_line(tmp_path):
    path, made = tmp_path / "b.json", background({("snv",): normal(1)}).to_bytes()
    text, content = made.decode(), json.loads(made)
    assert content.pop("consequence_terms") == VOCABULARY_VERSION
    del content["sha256"]
    for terms in ({}, {"consequence_terms": 1}):
        Background(content | terms).write(path)
        with pytest.raises(UserError, match=f"^{path}: uses .* of the consequence terms"):
            Background.read(path)
    for message, damaged in (
        ("torn", text[: len(text) // 2]),
        ("torn", "[" * 100_000),
        ("no file of", json.dumps({"format": "carbon background 0"})),
        ("damaged or changed", text.replace("chain", "chaim")),
        ("damaged or changed", text.replace('"variants":100', '"variants":101', 1)),
    ):
        path.write_text(damaged)
        with pytest.raises(UserError, match=f"^{path}: .*{message}"):
            Background.read(path)


def ks_pvalue(percentiles, num_background):
    """Kolmogorov and Smirnov's test of two samples: the background is one itself."""
    statistic = stats.kstest(np.array(percentiles) / 100, "uniform").statistic
    num = len(percentiles)
    return stats.kstwobign.sf(statistic * (num * num_background / (num + num_background)) ** 0.5)


@pytest.mark.nightly
def test_percentiles_of_fresh_random_variants_are_uniform(model, reference):
    """By kind, with a random network: the fresh ones are drawn as they come, of no kind."""
    options = {"window_bp": 30}
    made = model.background(reference, variants_per_kind=9, contigs=("c",), **options)
    places = VariantSampler(reference, ("c",), np.random.default_rng(1))
    lengths_bp = [bp for bp in range(1, 13) for _ in range(9)]
    fresh = [places.snv() for _ in range(300)]
    fresh += [places.indel(name, bp) for bp in lengths_bp for name in ("deletion", "insertion")]
    fresh = [variant for variant in fresh if variant]
    percentiles: dict[str, list[float]] = {}
    for scored in model.score_variants(reference, fresh, **options):
        if scored.delta is not None:
            found = made.percentile(reference, scored.variant, scored.delta)
            kind = made.kind_of(reference, scored.variant)
            for each in {kind, kind.split()[0]}:
                percentiles.setdefault(each, []).append(found)
    assert {"snv", "snv C>T", "deletion", "insertion"} <= percentiles.keys()
    for kind, some in percentiles.items():
        assert ks_pvalue(some, made.table[kind]["variants"]) > 0.01, kind
    # Not so where deltas are not those of the kind.
    shifted = [min(value * 1.5, 100) for value in percentiles["deletion"]]
    assert ks_pvalue(shifted, 108) < 0.01
    # A few have an edge beside them, and so no context.
    assert made.settings["window_bp"] == 30 and made.drawn["variants"] >= 9 * (96 + 24)
