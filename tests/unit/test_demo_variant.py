"""The panel of variants: its numbers are the library's, and it stands among those of its gene."""

import numpy as np
import pytest

from carbon.errors import UserError
from carbon.genome import Interval, Variant
from carbon.inference import join_chunks
from demo.panel import Progress
from demo.panels.variant import VariantEffect
from tests.helpers.demo import answered, make_lab, values_of, visited
from tests.helpers.files import write_fasta, write_vcf


@pytest.fixture(scope="module")
def lab(tmp_path_factory, model):
    return make_lab(tmp_path_factory.mktemp("lab"), model)


@pytest.fixture(scope="module")
def panel(lab):
    return VariantEffect(lab)


@pytest.fixture
def vcf(tmp_path, lab):
    bases = lab.genome.reference.fetch(Interval("c1", 0, 1400))
    wrong = "A" if bases[699] != "A" else "C"
    records = [
        f"c1\t300\t.\t{bases[299]}\t{bases[299]}T,<DEL>\t.\t.\t.",
        f"c1\t400\t.\t{bases[399:402]}\t{bases[399]}\t.\t.\t.",
        f"c1\t700\t.\t{wrong}\tT\t.\t.\t.",
    ]
    return write_vcf(tmp_path / "mine.vcf", records)


def test_the_examples_do_what_they_say(panel):
    found = {e.label: answered(panel, e.values) for e in panel.examples()}
    assert answered(panel, {})["effects"][0]["term"] == "stop_gained"
    assert found["A splice donor lost"]["effects"][0]["term"] == "splice_donor_variant"
    assert found["A synonymous change"]["effects"][0]["term"] == "synonymous_variant"
    assert found["A base inserted"]["strands"]["forward"]["length_delta"] != 0
    assert found["The alleles alone"]["strands"]["forward"]["downstream_deltas"] == []


@pytest.mark.parametrize(
    ("protocol", "strands"),
    [("centered", "forward"), ("right_end", "reverse")],
)
def test_numbers_are_those_of_the_library(panel, lab, protocol, strands):
    given = {"protocol": protocol, "strands": strands, "window_bp": 20}
    result = answered(panel, given)
    variant = Variant.parse(result["variant"])
    (score,) = lab.model.score_variants(
        lab.genome.reference, [variant], protocol=protocol, strands=strands
    )
    assert [result[n] for n in ("delta", "forward", "reverse")] == list(
        (score.delta, score.forward, score.reverse)
    )
    for name, part in result["strands"].items():
        parts = part["allele_delta"], *part["downstream_deltas"], part["length_delta"]
        assert sum(parts) == pytest.approx(getattr(score, name), abs=1e-9)
    window = Interval("c1", variant.position - 10, variant.position + 10)
    assert result["window"] == window.to_region()
    scan = lab.model.scan(
        lab.genome.reference, window, window_bp=result["read_bp"], strands=strands
    )
    scanned = join_chunks(scan)
    np.testing.assert_array_equal(result["deltas"], scanned.deltas)


@pytest.mark.parametrize("is_unsure", [True, False])
def test_how_far_strands_disagree_is_told(panel, lab, is_unsure):
    result = answered(panel, {"strands": "both"})
    variant = Variant.parse(result["variant"])
    (score,) = lab.model.score_variants(lab.genome.reference, [variant], strands="both")
    assert (result["spread"], result["unsure"]) == (score.spread, score.unsure)
    result |= {"unsure": is_unsure}
    text = panel.show(values_of(panel), result)["facts"]
    assert f"{score.spread:.4f} nats" in text and ("read the delta as 0" in text) == is_unsure


def test_bases_behind_are_those_of_two_windows_read_in_full(panel, lab):
    """By `score` of both windows: what lies before is the same, and the parts behind differ."""
    result = answered(panel, {"strands": "forward"})
    variant = Variant.parse(result["variant"])
    window_bp = result["read_bp"]
    start = variant.position - window_bp // 2
    ref = lab.genome.reference.fetch(Interval("c1", start, start + window_bp))
    place = variant.position - start
    alt = ref[:place] + variant.alt + ref[place + 1 :]
    of_ref, of_alt = (score.bases for score in lab.model.score([ref, alt]))
    part = result["strands"]["forward"]
    np.testing.assert_allclose(part["downstream_deltas"], (of_alt - of_ref)[place + 1 :], atol=1e-4)
    assert part["allele_delta"] == pytest.approx(float(of_alt[place] - of_ref[place]), abs=1e-4)


@pytest.mark.parametrize("protocol", ["centered", "right_end"])
def test_the_variant_stands_among_snvs_of_its_gene(panel, lab, protocol):
    _, result, shown = visited(panel, protocol=protocol)
    snvs, variant = result["snvs"], Variant.parse(result["variant"])
    (gene,) = lab.genome.annotation.genes
    assert snvs["region"] == gene.interval.to_region()
    assert sum(snvs["all"].values()) == 3 * gene.interval.length_bp
    drawn = {term: len(deltas) for term, deltas in snvs["deltas"].items()}
    if protocol == "right_end":
        assert drawn == snvs["all"]
        expected = result["deltas"][30]["ACGT".index(variant.alt)]  # the heat map's
    else:
        assert drawn == {term: min(24, there) for term, there in snvs["all"].items()}
        options = {"protocol": protocol, "window_bp": snvs["window_bp"]}
        (score,) = lab.model.score_variants(lab.genome.reference, [variant], **options)
        expected = score.delta
    assert snvs["this"]["consequence"] == "stop_gained"
    assert snvs["this"]["delta"] == pytest.approx(expected, abs=1e-4)
    assert "consequence (stop gained)" in shown["facts"]
    *rows, mark = shown["strip"]["data"]
    assert [row["name"].partition("<br>")[0] for row in rows] == [
        term.removesuffix("_variant").replace("_", " ") for term in snvs["deltas"]
    ]
    assert mark["x"] == [snvs["this"]["delta"]] and mark["y"][0].startswith("stop gained")


def test_an_indel_is_no_snv_of_the_strip(panel):
    (inserted,) = [e.values for e in panel.examples() if e.label == "A base inserted"]
    _, result, shown = visited(panel, **inserted)
    assert result["snvs"]["this"] is None
    assert all(trace["type"] == "violin" for trace in shown["strip"]["data"])


def test_a_cell_asks_for_its_variant(panel):
    _, result, shown = visited(panel)
    heat = next(t for t in shown["map"]["data"] if "z" in t)
    assert len(heat["z"]) == 4 and all(len(row) == 60 for row in heat["z"])
    (pick,) = panel.picks()
    for row, alt in enumerate("ACGT"):
        for column, picked in enumerate(heat["customdata"][row]):
            if result["bases"][column] == alt:
                assert picked is None
            else:
                changed = pick.set(picked, values_of(panel))
                variant = Variant.parse(changed["variant"])
                assert (variant.position + 1, variant.alt) == (heat["x"][column], alt)
    assert answered(panel, pick.set(heat["customdata"][1][3] or heat["customdata"][2][3], {}))


def test_a_vcf_is_scored_variant_by_variant(panel, lab, vcf):
    values = values_of(panel, vcf=[str(vcf)], variant="", strands="forward")
    items = list(panel.answer(values))
    done = [item.done for item in items if isinstance(item, Progress) and item.unit == "variants"]
    assert done == [1, 2, 3, 4]
    result = items[-1]
    assert result["variant"].startswith("c1:300 ")  # the first of the VCF
    rows = result["vcf"]
    assert [r["reason"] for r in rows] == [None, "symbolic_allele", None, "ref_mismatch"]
    assert not result["vcf_has_more"]
    deletion = Variant.parse(rows[2]["variant"])
    (score,) = lab.model.score_variants(lab.genome.reference, [deletion], strands="forward")
    assert rows[2]["delta"] == score.delta
    assert rows[2]["spread"] is None and rows[2]["unsure"] is None  # one strand cannot disagree
    shown = panel.show(values, result)
    assert "ref mismatch" in shown["table"] and "&lt;DEL&gt;" in shown["table"]
    assert "variants.tsv" in shown["tsv"]


def test_only_the_first_variants_of_a_long_vcf_are_scored(panel, lab, tmp_path, monkeypatch):
    monkeypatch.setattr("demo.panels.variant._MOST_VARIANTS", 3)
    bases = lab.genome.reference.fetch(Interval("c1", 0, 9))
    records = [f"c1\t{n}\t.\t{bases[n - 1]}\t<DEL>\t.\t.\t." for n in range(1, 6)]
    path = write_vcf(tmp_path / "long.vcf", records)
    _, result, shown = visited(panel, vcf=[str(path)])
    assert len(result["vcf"]) == 3 and result["vcf_has_more"]
    assert "The first 3 variants" in shown["table"]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (["c1\t114\t.\tA\tT\t.\t.\t."], "none that can be scored"),
        (["c1\t100\t.\t{ref}\t{ref}" + "A" * 100_000 + "\t.\t.\t."], "cannot be scored"),
        (["c1\t5\t.\tA\tT\t.\t.\t.", "c1\t1\t.\tA\tT\t.\t.\t."], r"^mine\.vcf record 2 "),
    ],
)
def test_a_vcf_that_cannot_be_used_is_named_as_the_visitor_does(panel, tmp_path, records, message):
    ref = panel.lab.genome.reference.fetch(Interval("c1", 99, 100))
    path = write_vcf(tmp_path / "mine.vcf", [record.format(ref=ref) for record in records])
    with pytest.raises(UserError, match=message) as told:
        answered(panel, {"variant": "", "vcf": [str(path)]})
    assert len(str(told.value)) < 200 and str(tmp_path) not in str(told.value)
    with pytest.raises(UserError, match="2 VCFs"):
        answered(panel, {"vcf": [str(path), str(path)]})
    path.write_bytes(b"\x1f\x8b" + bytes(20))
    with pytest.raises(UserError, match=r"mine\.vcf is compressed"):
        answered(panel, {"vcf": [str(path)]})


def test_a_window_at_the_edge_and_unknown_bases(panel, tmp_path):
    fasta = write_fasta(tmp_path / "edge.fa", {"n": "ACGTNNNN" + "TTGCA" * 20})
    _, result, shown = visited(panel, genome=[str(fasta)], variant="n:2 C>T")
    assert result["window"] == "n:1-60"
    assert result["deltas"][5] == [None] * 4
    heat = next(t for t in shown["map"]["data"] if "z" in t)
    assert [row[5] for row in heat["customdata"]] == [None] * 4
