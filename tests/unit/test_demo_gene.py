"""Gene: its three views against the library and by hand, and what they draw."""

import numpy as np
import pytest

from carbon.genome import Gene, Interval, Reference, reverse_complement
from carbon.inference import join_chunks
from demo.arrays import smoothed
from demo.panel import Progress
from demo.panels.gene import CONSTRAINT, MAP, TRACK
from demo.panels.gene import Gene as GenePanel
from demo.trna import mean_rank, stem_pairs
from tests.helpers.demo import (
    GENE,
    answered,
    cover_little,
    downloads_of,
    genbank_record,
    make_lab,
    values_of,
    visited,
    write_genome,
)
from tests.helpers.files import write_fasta

ONE_PHASE = {"phases": ["0"], "strand": "forward"}


@pytest.fixture(scope="module")
def lab(model, tmp_path_factory):
    return make_lab(tmp_path_factory.mktemp("lab"), model)


@pytest.fixture(scope="module")
def panel(lab):
    return GenePanel(lab)


def test_a_track_is_the_scan_of_the_gene_with_its_flanks_over_all_phases(panel, lab):
    result = answered(panel, {"input": GENE, "phases": ["0", "4"]})
    place = Interval("c1", 0, 1100)  # the gene is 101-1000
    scanned = join_chunks(
        lab.model.scan(lab.genome.reference, place, offsets=[0, 4], strands="both")
    )
    assert result["region"] == place.to_region()
    bits = 2 + scanned.log_p_ref / np.log(2)  # log2 of p over 1/4
    assert result["bits"] == pytest.approx(bits.tolist(), abs=2e-3)


def test_constraint_is_the_mean_loss_of_the_three_changes_drawn_base_by_base(panel, lab):
    given = {"input": "c1:300-340", "view": CONSTRAINT, "strand": "forward"}
    _, result, shown = visited(panel, **given)
    scanned = join_chunks(lab.model.scan(
        lab.genome.reference, Interval("c1", 299, 340), sides="both", downstream_bp=48,
        strands="forward",
    ))  # fmt: skip
    losses = -scanned.deltas.sum(axis=1) / 3 / np.log(2)
    assert result["bits"] == pytest.approx(losses.tolist(), abs=2e-3)
    bars = shown["track"]["data"][0]
    assert (bars["type"], bars["x0"], bars["y"]) == ("bar", 300, result["bits"])
    # A zoom that the link stored would name another region than the code of this answer.
    assert not shown["track"]["layout"]["meta"]["follows"]


def test_an_answer_is_computed_once_unless_it_was_stopped(panel):
    values = values_of(panel, input="c1:700-760", **ONE_PHASE)
    assert isinstance(next(panel.answer(values)), Progress)  # stopped after its first step
    *steps, whole = panel.answer(values)
    assert steps and whole["region"] == "c1:700-760"
    assert list(panel.answer(values)) == [whole]
    others = values | {"input": "c1:701-760"}, values | {"strand": "reverse"}
    assert all(len(list(panel.answer(each))) == 2 for each in others)


def test_costly_views_cover_the_beginning_of_what_is_in_view(panel, monkeypatch):
    cover_little(monkeypatch, map_bp=12)
    given = {"input": GENE, "view": MAP}
    result = answered(panel, given | {"start_bp": 200, "width_bp": 400})
    assert result["region"] == "c1:201-212"  # counted from the start of the track, c1:1
    whole = answered(panel, given)
    assert whole["region"] == "c1:91-102"  # the gene with 10 bases on both sides


def test_unknown_bases_have_no_value(panel, tmp_path):
    fasta = write_fasta(tmp_path / "n.fa", {"z": "ACGTACNNNNACGTACGTAC", "n": "N" * 20})
    given = ONE_PHASE | {"genome": [str(fasta)]}
    for view in (TRACK, CONSTRAINT):
        _, result, shown = visited(panel, input="z:1-20", view=view, **given)
        assert [v is None for v in result["bits"]] == [b == "N" for b in result["bases"]]
        assert "7\tN\t.\n" in downloads_of(shown)["bits.tsv"]
    _, result, shown = visited(panel, input="n:1-20", **given)
    assert set(result["bits"]) == {None} and "nan" not in shown["facts"]


def test_smoothing_is_a_mean_of_the_known_values_around():
    values = np.array([1.0, 2.0, np.nan, 6.0])
    # The first has itself and its right neighbour; the third has both neighbours alone.
    assert smoothed(values, 3).tolist() == [1.5, 1.5, 4.0, 6.0]


def test_letters_of_both_strands_and_amino_acids(panel):
    given = ONE_PHASE | {"input": "c1:1-1400", "start_bp": 110, "width_bp": 30}
    result = answered(panel, given)
    figure = panel.show(values_of(panel, **given), result)["track"]
    traces = {trace["name"]: trace for trace in figure["data"] if "name" in trace}
    forward, reverse = (
        dict(zip(traces[name]["x"], traces[name]["text"], strict=True))
        for name in ("forward strand", "reverse strand")
    )
    assert "".join(forward[place] for place in range(111, 120)) == "ATGTACCAA"
    # Drawn from 3' to 5', so each base stands below its partner.
    assert "".join(reverse[place] for place in range(111, 120)) == "TACATGGTT"
    acids = traces["amino acids"]
    found = list(zip(acids["x"], acids["text"], acids["hovertext"], strict=True))[:3]
    assert found == [(112, "M", "ABC 1"), (115, "Y", "ABC 2"), (118, "Q", "ABC 3")]
    # A stack is as high as the information of its distribution.
    p = np.exp(np.array(result["log_probabilities"]))
    p /= p.sum(axis=1, keepdims=True)
    bits = 2 + (p * np.log2(p)).sum(axis=1)
    xy = [(x, y) for base in "ACGT" for x, y in zip(traces[base]["x"], traces[base]["y"],
          strict=True) if x is not None]  # fmt: skip
    tallest = max(y for x, y in xy if 110.5 <= x < 111.5)
    assert tallest == pytest.approx(bits[110], abs=0.06)


def test_a_zoom_is_held_by_the_link(panel):
    (pick,) = panel.picks()
    values = values_of(panel, input="c1:101-700")
    assert not pick.asks
    assert pick.set({"range": [150.2, 210.4]}, values) == {"start_bp": 50, "width_bp": 60}
    assert pick.set({"range": [None, None]}, values) == {"start_bp": 0, "width_bp": 0}
    assert pick.set({"range": [-20, 5000]}, values) == {"start_bp": 0, "width_bp": 600}


@pytest.mark.parametrize(
    "text", ["ACGUACGU" * 20, ">z words\n" + "ACGTACGT\n" * 20, "1 acgtacgt\n9 acgtacgt"]
)
def test_a_pasted_sequence_is_read(panel, text):
    values, result, shown = visited(panel, input=text, **ONE_PHASE)
    assert set(result["bases"].upper()) == set("ACGT")
    assert "pasted.fa" in panel.command(values) and "pasted.fa" in downloads_of(shown)
    assert "No genes are annotated" in shown["genes"]


def test_the_genes_of_an_upload_or_a_pasted_record_are_listed(panel, tmp_path):
    fasta, gff = write_genome(tmp_path, "own", "-")
    _, result, shown = visited(panel, genome=[str(fasta), str(gff)], **ONE_PHASE)
    assert result["region"] == "own:301-1400"  # its gene ABC with flanks
    assert ">ABC</a>" in shown["genes"]
    _, result, shown = visited(panel, input=genbank_record(), **ONE_PHASE)
    assert result["region"] == "own:1-800" and ">XYZ1</a>" in shown["genes"]


def test_open_frames_are_counted_along_the_contig(panel, tmp_path):
    bases = "C" * 300 + "ATG" + "GCC" * 70 + "TAA" + "C" * 100
    fasta = write_fasta(tmp_path / "long.fa", {"z": bases})
    _, _, shown = visited(panel, genome=[str(fasta)], input="z:201-600", **ONE_PHASE)
    assert ">301 to 516 +</a>" in shown["genes"] and "start_bp=100&amp;" in shown["genes"]


@pytest.mark.parametrize("view", [TRACK, CONSTRAINT, MAP])
def test_a_variant_of_a_long_gene_lies_in_the_figure(panel, tmp_path, monkeypatch, view):
    cover_little(monkeypatch, track_bp=400)
    result = answered(panel, ONE_PHASE | {"input": "Y202* of ABC", "view": view})
    first, last = map(int, result["region"].partition(":")[2].split("-"))
    # TAC becomes TAA at coding base 606, which is base 216 of the second exon: 600 + 216.
    assert first < 816 < last


# 7 + 5 complementary pairs: base n of the acceptor stem pairs with base 71 - n, counted from 0,
# and base 47 + n of the T stem with base 63 - n; the last of 72 bases is unpaired.
_TRNA = "GCGGATT" + "A" * 40 + "GCGAC" + "A" * 7 + "GTCGC" + "AATCCGC" + "A"


def _trna(strand):
    span = Interval("c", 10, 82)
    return Gene("t", "t", "tRNA", span, strand, ())


@pytest.mark.parametrize("strand", ["+", "-"])
def test_base_pairs_of_a_trna_are_counted_from_its_ends(tmp_path, strand):
    assert len(_TRNA) == 72
    bases = _TRNA if strand == "+" else reverse_complement(_TRNA)
    with Reference(write_fasta(tmp_path / "t.fa", {"c": "C" * 10 + bases + "C" * 10})) as reference:
        pairs = stem_pairs(reference, _trna(strand))
    acceptor = [(n, 70 - n) for n in range(7)]
    t_stem = [(47 + n, 63 - n) for n in range(5)]
    expected = {tuple(sorted(pair)) for pair in acceptor + t_stem}
    along = {tuple(sorted((at - 10 if strand == "+" else 81 - at) for at in p)) for p in pairs}
    assert along == expected


def test_ranks_compare_a_pair_with_others_as_far_apart():
    cells = np.zeros((6, 6))
    cells[0, 3] = cells[3, 0] = 1.0
    # Of the other pairs three apart, (1, 4) and (2, 5), both are smaller; for (1, 4) none is.
    assert mean_rank(cells, [(0, 3)]) == 1.0
    assert mean_rank(cells, [(0, 3), (1, 4)]) == 0.5
