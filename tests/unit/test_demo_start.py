"""Start: the learning figure, where the one field leads, and the numbers of the primer."""

import re
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pytest

from carbon.genome.genome import Genome
from demo.lab import Lab
from demo.models import AboutModel
from demo.panels.start import Start
from demo.pieces import embedding_map
from tests.helpers.demo import (
    answered,
    learned_example,
    make_lab,
    panel_of,
    values_of,
    visited,
)
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.reference import KMERS, stock_distribution


@pytest.fixture(scope="module")
def panel(tmp_path_factory, model):
    return Start(make_lab(tmp_path_factory.mktemp("lab"), model, learned=learned_example()))


def test_the_guess_is_that_of_a_stock_model(panel, network):
    result = answered(panel, {})
    assert result["sequence"] == "ATG" + ("TACCAATTAGGAGCA" * 5)[:63]
    p = stock_distribution(network, result["sequence"][:-6]).tolist()
    assert result["best_kmer"] == KMERS[p.index(max(p))]
    for place, base in ((0, "A"), (5, "G")):
        share = sum(each for kmer, each in zip(KMERS, p, strict=True) if kmer[place] == base)
        assert result["marginals"][place]["ATCG".index(base)] == pytest.approx(share, rel=1e-4)


def test_the_map_has_pieces_of_each_kind(panel):
    mapped = embedding_map(panel.lab)
    assert set(mapped.kinds) == {"coding", "intergenic"}  # the intron is shorter than a piece
    vectors = np.array(
        [next(panel.lab.model.embed([panel.lab.genome.reference.fetch(
            panel.lab.genome.place(name.partition("(")[0], 0, 10**6))])) for name in mapped.names]
    ).astype(float)  # fmt: skip
    centered = vectors - vectors.mean(axis=0)
    values, axes = np.linalg.eigh(centered.T @ centered)
    np.testing.assert_allclose(
        np.abs(mapped.places), np.abs(centered @ axes[:, [-1, -2]]), atol=1e-4
    )
    np.testing.assert_allclose(mapped.explained, values[[-1, -2]] / values.sum(), rtol=1e-3)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", "/"),
        ("abc", "/gene"),
        ("c1:1-90", "/gene"),
        ("Y2* of ABC", "/variant"),
        ("c1:116 C>A", "/variant"),
        ("c1\t116\trs1\tC\tA", "/variant"),
        ("ACGTTGCATTAGC", "/gene"),
        (">mine\nACGTTGCATTAGC", "/gene"),
    ],
)
def test_the_field_leads_to_the_page_that_answers(panel, text, path):
    values = values_of(panel, input=text)
    link = urlsplit(panel.link(values))
    assert link.path == path
    assert dict(parse_qsl(link.query)).get("input", "") == text
    assert bool(answered(panel, values)) == (not text)  # the other page answers


def test_no_text_speaks_of_another_genome(tmp_path, model, monkeypatch):
    """The bundled model under the genome of someone else."""
    lab = make_lab(tmp_path, model)
    lab.model_name = "yeast"
    about = AboutModel(None, "yeast", 1_300_000, 6000, 1.5)
    monkeypatch.setitem(vars(lab), "about", about)
    panel = Start(lab)
    _, _, shown = visited(panel)
    fields = (*panel.fields, *panel_of(lab, "variant").fields)
    seen = [panel.sentence, *(f"{field.label} {field.info}" for field in fields), str(shown)]
    for text in seen:
        assert not re.search("ENO2|ERG11|VIII|yeast gene|of the gene and guesses", text)
    assert panel.sentence.endswith("read yeast DNA for 90 minutes.")
    assert "such as ABC, " in panel.fields[0].info and " of ABC or c1:" in panel.fields[0].info


def test_a_genome_without_genes_has_a_primer(tmp_path, model):
    fasta = write_fasta(tmp_path / "g.fa", {"c1": random_bases(900)})
    panel = Start(Lab(model, "model", Genome.open(fasta, None), tmp_path))
    _, result, shown = visited(panel)
    assert result["sequence"] == random_bases(900)[:66]
    assert shown["learning"] is None and shown["gene"] is None
