"""The panel of variants: its numbers are the library's, and it stands among those of its gene."""

import html
import re
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest

from carbon.errors import UserError
from carbon.genome import Interval, Variant
from demo.fields import checked_values
from demo.panels.variant import VariantEffect
from tests.helpers.demo import (
    answered,
    downloads_of,
    four_alleles,
    make_lab,
    values_of,
    visited,
    write_genome,
)
from tests.helpers.files import random_bases, write_fasta, write_vcf


@pytest.fixture(scope="module")
def lab(tmp_path_factory, model):
    return make_lab(tmp_path_factory.mktemp("lab"), model)


@pytest.fixture(scope="module")
def panel(lab):
    return VariantEffect(lab)


@pytest.fixture(autouse=True)
def few_snvs(monkeypatch):
    """Let six SNVs of the gene for each consequence stand beside the variant, not 24."""
    monkeypatch.setattr("demo.panels.variant._SNVS_OF_EACH", 6)


def test_the_examples_do_what_they_say(panel):
    results = {e.label: answered(panel, e.values | {"map_bp": 6}) for e in panel.examples()}
    terms = {label: [e["term"] for e in result["effects"]] for label, result in results.items()}
    assert terms["A stop codon gained"] == ["stop_gained"]
    assert terms["A splice donor lost"] == ["splice_donor_variant"]
    assert terms["A synonymous change"] == ["synonymous_variant"]
    assert results["A base inserted"]["strands"]["forward"]["length_delta"] != 0


def test_a_stop_a_missense_and_a_synonymous_change_of_one_codon_stand_side_by_side(panel):
    result = answered(panel, {"map_bp": 6})
    rows = [(e["term"], e["change"]) for row in result["alleles"] for e in row["effects"]]
    assert [term for term, _ in rows] == ["stop_gained", "missense_variant", "synonymous_variant"]
    assert len({change[:-1] for _, change in rows}) == 1
    # A variant of a visitor is compared with changes of its own codon.
    (own, *others) = answered(panel, {"input": "ABC:c.24A>G", "map_bp": 6})["alleles"]
    assert {effect["change"][:-1] for row in others for effect in row["effects"]} == {"Q8"}
    assert own["variant"] == "c1:134 A>G"
    # Alleles that are typed take the place of these.
    given = {"input": "Y2* of abc", "alleles": "c1:116 C>G\nABC:c.30del", "map_bp": 6}
    rows = answered(panel, given)["alleles"]
    assert [row["variant"] for row in rows][:2] == ["c1:116 C>A", "c1:116 C>G"] and len(rows) == 3


def test_alleles_are_of_the_gene_and_the_genome_of_the_input(panel, tmp_path):
    """In a genome of two genes, of which DEF is the example; in pasted DNA, by its own names."""
    (fasta, gff), (other_fasta, other_gff) = (
        write_genome(tmp_path),
        write_genome((tmp_path / "other").mkdir() or tmp_path / "other", "c2"),
    )
    fasta.write_text(fasta.read_text() + other_fasta.read_text())
    other = re.sub(
        "ABC|[gtp]1", lambda m: {"ABC": "DEF"}.get(m[0], f"{m[0][0]}2"), other_gff.read_text()
    )
    gff.write_text(gff.read_text() + other.replace("##gff-version 3\n", ""))
    given = {"genome": [str(fasta), str(gff)], "alleles": "Y7*", "map_bp": 6}
    rows = answered(panel, given | {"input": "Y2* of ABC"})["alleles"]
    assert [(e["gene"], e["change"]) for row in rows for e in row["effects"]] == [
        ("ABC", "Y2*"), ("ABC", "Y7*")
    ]  # fmt: skip
    bases = random_bases(90)
    alt = "A" if bases[29] != "A" else "C"
    given = {"input": bases, "alleles": f"30{bases[29]}>{alt}", "map_bp": 6}
    assert answered(panel, given)["alleles"][1]["variant"] == f"pasted:30 {bases[29]}>{alt}"


def linked(panel, markup):
    """Return the values that the links in markup restore."""
    links = (urlsplit(html.unescape(link)) for link in re.findall('href="(/[^"]*)"', markup))
    return [checked_values(panel.fields, dict(parse_qsl(link.query))) for link in links]


def test_links_of_alleles_keep_the_settings(panel):
    _, _, shown = visited(panel, strands="forward", window_bp=96, map_bp=6)
    states = linked(panel, shown["alleles"])
    assert len(states) == 2 and {state["input"][:3] for state in states} == {"c1:"}
    settings = {(state["strands"], state["window_bp"], state["map_bp"]) for state in states}
    assert settings == {("forward", 96, 6)}


def test_variants_of_a_pasted_sequence_are_followed(panel, lab):
    """By a link, by a click on a cell, and to the other pages, which get the sequence."""
    text = f">one\n{random_bases(90)}"
    ref, alts = text[5 + 29], sorted(set("ACGT") - {text[5 + 29]})
    alleles = f"one:30 {ref}>{alts[0]}"
    values, result, shown = visited(panel, input=text, alleles=alleles, map_bp=6)
    (state,) = linked(panel, shown["alleles"])
    assert answered(panel, state)["variant"] == alleles
    (pick,) = panel.picks()
    clicked = values | pick.set(f"one:30 {ref}>{alts[1]}", values)
    assert answered(panel, clicked)["variant"] == f"one:30 {ref}>{alts[1]}"
    for _, link in panel.questions(values, result):
        assert lab.detect(dict(parse_qsl(urlsplit(link).query))["input"]).genome is not lab.genome
    assert downloads_of(shown)["pasted.fa"].startswith(">one\n")


def test_a_vcf_of_another_genome_than_the_input_is_refused(panel, lab, tmp_path):
    vcf = four_alleles(lab, tmp_path / "mine.vcf")
    with pytest.raises(UserError, match="the VCF belongs to the open genome"):
        answered(panel, {"input": random_bases(90), "vcf": [str(vcf)]})


def test_the_strip_marks_the_most_severe_consequence_as_its_rows_do(panel, tmp_path):
    """Of a gene whose first transcript does not code."""
    fasta, gff = write_genome(tmp_path)
    head, gene, *lines = gff.read_text().splitlines()
    other = [line.replace("t1", "t0").replace("p1", "p0") for line in lines if "CDS" not in line]
    gff.write_text("\n".join([head, gene, *other, *lines, ""]))
    files = [str(fasta), str(gff)]
    _, result, shown = visited(panel, genome=files, input="c1:116 C>A", map_bp=6)
    assert result["alleles"][0]["effects"] == []
    (mark,) = [t for t in shown["strip"]["data"] if t.get("name") == "this variant"]
    assert mark["y"][0].startswith("stop gained<br>")


def test_verdicts_follow_from_the_numbers(panel):
    values, result, _ = visited(panel, strands="forward", map_bp=6)
    result |= {"forward": -1.0, "reverse": 1.0, "snvs": None}
    for delta, unsure, spread, says, never in (
        (-7.0, False, 0.5, "1,100 times less likely", "disagree"),
        (1.25, False, 0.5, "3.5 times more likely", "less likely"),
        (-0.3, True, 2.0, "disagree about which", "the same sign"),
        (-7.0, None, None, "forward only", "sign"),
    ):
        score = {"delta": delta, "unsure": unsure, "spread": spread}
        verdict = panel.show(values, result | score)["verdict"]
        assert says in verdict and never not in verdict


def test_downstream_bases_are_those_of_two_windows_read_in_full(panel, lab):
    """By `score` of both windows: what lies before is the same, and the parts behind differ."""
    result = answered(panel, {"strands": "forward", "map_bp": 6})
    variant = Variant.parse(result["variant"])
    window_bp = result["method"]["window_bp"]
    start = variant.position - window_bp // 2
    ref = lab.genome.reference.fetch(Interval("c1", start, start + window_bp))
    place = variant.position - start
    alt = ref[:place] + variant.alt + ref[place + 1 :]
    of_ref, of_alt = (score.bases for score in lab.model.score([ref, alt]))
    part = result["strands"]["forward"]
    np.testing.assert_allclose(part["downstream_deltas"], (of_alt - of_ref)[place + 1 :], atol=1e-4)
    assert part["allele_delta"] == pytest.approx(float(of_alt[place] - of_ref[place]), abs=1e-4)


def test_the_variant_stands_among_snvs_of_its_gene(panel, lab):
    _, result, shown = visited(panel, map_bp=6)
    snvs = result["snvs"]
    (gene,) = lab.genome.annotation.genes
    assert snvs["region"] == gene.interval.to_region()
    assert sum(snvs["all"].values()) == 3 * gene.interval.length_bp
    drawn = {term: len(deltas) for term, deltas in snvs["deltas"].items()}
    assert drawn == {term: min(6, snvs["all"][term]) for term in snvs["all"]}
    assert snvs["consequences"] == [
        effect["term"] for row in result["alleles"] for effect in row["effects"]
    ]
    assert snvs["consequences"][0] == "stop_gained"
    (mark,) = [t for t in shown["strip"]["data"] if t.get("name") == "this variant"]
    assert mark["x"][0] == pytest.approx(result["delta"], abs=1e-6)
    assert snvs["lower"] == sum(d < result["delta"] for d in snvs["deltas"]["stop_gained"])
    assert f"(stop gained), {snvs['lower']} " in shown["verdict"]


def test_an_indel_has_no_rank_and_no_mark(panel):
    (inserted,) = [e.values for e in panel.examples() if e.label == "A base inserted"]
    _, result, shown = visited(panel, **inserted, map_bp=6)
    assert (
        result["snvs"]["consequences"][0] is None
        and "with this consequence" not in shown["verdict"]
    )
    assert result["effects"] == [{"gene": "ABC", "term": "frameshift_variant", "change": ""}]
    assert all(trace.get("name") != "this variant" for trace in shown["strip"]["data"])


def test_a_cell_asks_for_its_variant(panel):
    _, result, shown = visited(panel, map_bp=8)
    heat = next(t for t in shown["map"]["data"] if "z" in t)
    assert len(heat["z"]) == 4 and all(len(row) == 8 for row in heat["z"])
    (pick,), values = panel.picks(), values_of(panel)
    for row, alt in enumerate("ACGT"):
        for column, picked in enumerate(heat["customdata"][row]):
            if result["bases"][column] == alt:
                assert picked is None
            else:
                changed = pick.set(picked, values)
                variant = Variant.parse(changed["input"])
                assert (variant.position + 1, variant.alt) == (heat["x"][column], alt)
    assert answered(panel, pick.set(heat["customdata"][1][3] or heat["customdata"][2][3], values))


def test_only_the_first_variants_of_a_long_vcf_are_scored(panel, lab, tmp_path, monkeypatch):
    monkeypatch.setattr("demo.panels.variant._MOST_VARIANTS", 3)
    bases = lab.genome.reference.fetch(Interval("c1", 0, 9))
    records = [f"c1\t{n}\t.\t{bases[n - 1]}\t<DEL>\t.\t.\t." for n in range(1, 6)]
    path = write_vcf(tmp_path / "long.vcf", records)
    _, result, shown = visited(panel, vcf=[str(path)], strands="forward", map_bp=6)
    assert len(result["vcf"]) == 3 and result["vcf_has_more"]
    assert "The first 3 variants" in shown["table"] and "&lt;DEL&gt;" in shown["table"]


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (["c1\t114\t.\tA\tT\t.\t.\t."], "no variant that can be scored"),
        (["c1\t100\t.\t{ref}\t{ref}" + "A" * 100_000 + "\t.\t.\t."], "cannot be scored"),
        (["c1\t5\t.\tA\tT\t.\t.\t.", "c1\t1\t.\tA\tT\t.\t.\t."], r"^mine\.vcf record 2 "),
    ],
)
def test_a_vcf_that_cannot_be_used_is_named_as_the_visitor_does(panel, tmp_path, records, message):
    ref = panel.lab.genome.reference.fetch(Interval("c1", 99, 100))
    path = write_vcf(tmp_path / "mine.vcf", [record.format(ref=ref) for record in records])
    with pytest.raises(UserError, match=message) as told:
        answered(panel, {"input": "", "vcf": [str(path)]})
    assert len(str(told.value)) < 200 and str(tmp_path) not in str(told.value)
    with pytest.raises(UserError, match="2 VCFs"):
        answered(panel, {"vcf": [str(path), str(path)]})
    path.write_bytes(b"\x1f\x8b" + bytes(20))
    with pytest.raises(UserError, match=r"mine\.vcf is compressed"):
        answered(panel, {"vcf": [str(path)]})


def test_a_window_at_the_edge_and_unknown_bases(panel, tmp_path):
    fasta = write_fasta(tmp_path / "edge.fa", {"n": "ACGTNNNN" + "TTGCA" * 20})
    _, result, shown = visited(panel, genome=[str(fasta)], input="n:2 C>T", map_bp=20)
    assert result["window"] == "n:1-20"
    assert result["deltas"][5] == [None] * 4
    heat = next(t for t in shown["map"]["data"] if "z" in t)
    assert [row[5] for row in heat["customdata"]] == [None] * 4
