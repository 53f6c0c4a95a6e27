"""The primer: its numbers, its code, and that its links open states of the other pages."""

import html
import itertools
import math
import re
from urllib.parse import parse_qsl, urlsplit

import pytest

from carbon.genome import reverse_complement
from carbon.genome.genome import Genome
from demo.fields import checked_values
from demo.lab import Lab
from demo.panels import PANELS
from demo.panels.primer import Primer
from tests.helpers.demo import (
    answered,
    learned_example,
    make_lab,
    values_of,
    visited,
    write_genome,
)
from tests.helpers.files import place_gene, random_bases, write_fasta
from tests.helpers.reference import INDEX, KMERS, chunks, stock_distribution

GIVEN = {"sequence": "acgtnnACGTTGCATTAGCATG", "offset": 1}


@pytest.fixture(scope="module")
def lab(tmp_path_factory, model):
    return make_lab(tmp_path_factory.mktemp("lab"), model)


@pytest.fixture(scope="module")
def panel(lab):
    return Primer(lab)


def test_the_sequence(panel):
    result = answered(panel, GIVEN)
    sequence = "ACGTNNACGTTGCATTAGCATG"
    assert result["sequence"] == sequence
    assert result["reverse_complement"] == reverse_complement(sequence)
    assert result["protein"] == "TXTLH*H"
    for offset in result["offsets"]:
        kmers = chunks(sequence[offset["offset"] :])
        assert [k["bases"] for k in offset["kmers"]] == kmers
        assert [k["index"] for k in offset["kmers"]] == [INDEX.get(kmer) for kmer in kmers]
    assert [offset["offset"] for offset in result["offsets"]] == [0, 1]


def test_the_gene(panel):
    gene = answered(panel, {})["gene"]
    assert (gene["name"], gene["region"], gene["strand"]) == ("ABC", "c1:101-1000", "+")
    assert (gene["length_bp"], gene["exons"], gene["coding_bp"]) == (900, 2, 720)
    assert gene["introns"] == ["GT…AG"]
    # ATG, then TAC CAA TTA GGA GCA over and over for 238 codons, then TAA.
    assert gene["codons"] == {
        "ATG": 1, "TAA": 1, "TAC": 48, "CAA": 48, "TTA": 48, "GGA": 47, "GCA": 47,
    }  # fmt: skip
    assert gene["protein"].startswith("MYQLGAY") and gene["protein"].endswith("*")


def test_a_training_that_was_kept_is_played_step_by_step(tmp_path, model):
    panel = Primer(make_lab(tmp_path, model, learned=learned_example()))
    result = answered(panel, {})
    found = result["learning"]
    assert found["steps"] == [0, 25, 9000] and found["region"] == "c1:1-1000"
    known = [2 - nats / math.log(2) for nats in (0.7, 0.5)]
    first, second, third, outside = found["mean_bits"].values()
    # 130 of the 240 codons lie in the first exon, and its bases alone are known at step 25.
    assert first == pytest.approx([0, 130 / 240 * known[0], known[1]], abs=2e-3)
    assert second == third == pytest.approx([0, 0, known[1]], abs=2e-3)
    assert outside == pytest.approx([0, 0, 0], abs=2e-3)
    played, *still = (
        panel.show(values_of(panel, step=step), result)["learning"]
        for step in panel.fields[-1].choices
    )
    assert [frame["name"] for frame in played["frames"]] == ["0", "25", "9,000"] and played["plays"]
    for n, figure in enumerate(still):
        assert figure["plays"] is None and figure["layout"]["sliders"][0]["active"] == n
        for trace, new in zip(figure["data"][:2], figure["frames"][n]["data"], strict=True):
            assert trace["y"] == new["y"] and len(trace["x"]) == len(trace["y"])


def drawn_bases(figure, text, strand):
    """The bases under the orange mark of a gene figure, read one by one along the strand."""
    x = figure["data"][-1]["x"]
    spans = zip(x[::3], x[1::3], strict=True)  # a base stands at its 1-based position
    positions = [at for start, end in spans for at in range(int(start - 0.5), int(end - 0.5))]
    read = "".join(text[at] for at in positions)
    return read if strand == "+" else reverse_complement(read)


@pytest.mark.parametrize(("strand", "spans_intron"), [("+", True), ("-", True), ("-", False)])
def test_the_marked_bases_are_those_that_travel(tmp_path, model, strand, spans_intron):
    if spans_intron:
        text, gff3, _ = place_gene(strand)
        fasta, gff = write_fasta(tmp_path / "g.fa", {"c1": text}), tmp_path / "g.gff3"
        gff.write_text(gff3)
    else:
        fasta, gff = write_genome(tmp_path, strand=strand)
        text = "".join(fasta.read_text().splitlines()[1:])
    panel = Primer(Lab(model, "m", Genome.open(fasta, gff), tmp_path))
    _, result, shown = visited(panel)
    # Both genes begin so, and the shorter one has 51 of its 72 coding bases in its first exon.
    assert result["sequence"] == "ATG" + ("TACCAATTAGGAGCA" * 5)[:63]
    assert result["protein"] == "M" + ("YQLGA" * 5)[:21]
    assert drawn_bases(shown["gene"], text, strand) == result["sequence"]
    assert len(result["regions"]) == 1 + spans_intron
    lies = "in exons 1 and 2:" if spans_intron else "in exon 1,"
    assert lies in shown["splicing"] and "orange" in shown["splicing"]
    named = {"+": "forward", "-": "reverse"}[strand]
    assert f"on the {named} strand" in shown["strands"]
    assert all(region in shown["strands"] for region in result["regions"])


def test_an_own_sequence_travels_and_the_gene_stands_beside_it(panel):
    _, result, shown = visited(panel, **GIVEN)
    assert result["regions"] == [] and result["gene"]["name"] == "ABC"
    assert "your own, of 22 bases" in shown["strands"] and "without a cut" in shown["splicing"]


def test_a_gene_that_people_know_says_why(tmp_path, model):
    lab = make_lab(tmp_path, model)
    known = {"ABC": "Does <nothing>."}
    panel = Primer(Lab(model, "m", lab.genome, tmp_path, known))
    assert "Does &lt;nothing&gt;." in visited(panel)[2]["strands"]
    assert [e.values for e in panel.examples() if e.sentence == known["ABC"]] == [{"gene": "ABC"}]


@pytest.mark.parametrize("given", [{}, {"sequence": "ACGTTGCATTAGCATGAC"}])
def test_what_the_model_has_read_and_the_price_of_the_truth(panel, network, given):
    result = answered(panel, given)
    *read, true = chunks(result["sequence"])
    assert [kmer["bases"] for kmer in result["read"]] == read and result["true"] == true
    p = stock_distribution(network, "".join(read)).tolist()
    assert result["best"] == KMERS[p.index(max(p))]
    assert result["best_probability"] == pytest.approx(max(p), rel=1e-4)
    assert result["rank"] == 1 + sum(each > p[INDEX[true]] for each in p)
    cross_entropy = -math.log(p[INDEX[true]])
    bases = [sum(p[v] for v, kmer in enumerate(KMERS) if kmer[at] == true[at]) for at in range(6)]
    fns = -sum(map(math.log, bases)) / 6
    assert result["true_loss"]["cross_entropy_nats"] == pytest.approx(cross_entropy, rel=1e-4)
    assert result["true_loss"]["fns_nats"] == pytest.approx(fns, rel=1e-4)


def test_losses_by_wrong_bases_against_plain_means(panel, network):
    result = answered(panel, {"sequence": "ACGTTGCATTAGCATGAC"})
    p = stock_distribution(network, result["context"])
    best = KMERS[p.argmax()]
    assert result["best"] == best
    assert result["true_probability"] == pytest.approx(float(p[INDEX["CATGAC"]]), rel=1e-4)
    for loss in result["losses_by_wrong_bases"]:
        these = [
            v
            for v, kmer in enumerate(KMERS)
            if sum(a != b for a, b in zip(kmer, best, strict=True)) == loss["wrong"]
        ]
        expected = -sum(math.log(p[v]) for v in these) / len(these)
        assert loss["cross_entropy_nats"] == pytest.approx(expected, rel=1e-4)
    # The text says that FNS rises by the same step for each wrong base, whatever the model.
    fns = [loss["fns_nats"] for loss in result["losses_by_wrong_bases"]]
    steps = [after - before for before, after in itertools.pairwise(fns)]
    assert steps == pytest.approx([steps[0]] * 6, rel=1e-3) and steps[0] > 0


@pytest.mark.parametrize("given", [{}, GIVEN, {"gene": "c1:1-70"}])
def test_links_open_states_of_pages_that_are_there(panel, lab, given):
    pages = {p.path: p for p in (kind(lab) for kind in PANELS)}
    values, result, shown = visited(panel, **given)
    markup = "".join(text for text in shown.values() if isinstance(text, str))
    links = {urlsplit(html.unescape(link)) for link in re.findall(r'href="([^"]*)"', markup)}
    assert {link.path for link in links} == set(pages) - {"/"}
    for link in links:
        page, asked = pages[link.path], dict(parse_qsl(link.query, keep_blank_values=True))
        assert set(asked) <= {field.name for field in page.fields}, link
        state = checked_values(page.fields, asked)
        if asked:
            next(page.answer(state))
    states = {link.path: dict(parse_qsl(link.query)) for link in links if link.query}
    assert states["/generate"]["prompt"] == result["context"]
    assert states["/read"]["place"] == values["gene"]
    assert states["/variant"]["variant"] == result["variant"]
    assert states["/token"] == {"context": result["context"], "kmer": result["true"]}
    assert states["/tokenizer"]["text"] == result["sequence"]


def test_a_genome_without_genes(tmp_path, model):
    fasta = write_fasta(tmp_path / "g.fa", {"c1": random_bases(900)})
    panel = Primer(Lab(model, "model", Genome.open(fasta, None), tmp_path))
    _, result, shown = visited(panel)
    assert result["gene"] is None
    assert result["sequence"] == random_bases(900)[:66] and result["regions"] == ["c1:1-66"]
    assert "no gene with a known structure" in shown["strands"] and shown["usage"] is None
    (mark,) = shown["gene"]["data"]
    assert drawn_bases({"data": [mark]}, random_bases(900), "+") == result["sequence"]
