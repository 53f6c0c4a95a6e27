"""The demo's map of sequences."""

import contextlib
import io
import json
import shlex
import urllib.parse
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from carbon.cli import main
from carbon.errors import UserError
from carbon.genome import Interval, Reference, intergenic, read_annotation, reverse_complement
from carbon.genome.opened import Genome
from carbon.inference import Carbon
from carbon.model import load_model, save_model
from demo.fields import checked_values
from demo.lab import Lab
from demo.panel import Progress
from demo.panels.embeddings import Embeddings
from tests.helpers.files import place_gene, random_bases, write_fasta


@pytest.fixture(scope="module")
def lab(network, tmp_path_factory) -> Lab:
    folder = tmp_path_factory.mktemp("lab")
    save_model(network, folder / "model")
    bases, gff3, _ = place_gene()
    fasta = write_fasta(folder / "genome.fa", {"c1": bases})
    (folder / "genes.gff3").write_text(gff3)
    genome = Genome.open(fasta, folder / "genes.gff3")
    return Lab(Carbon(load_model(folder / "model")), str(folder / "model"), genome, folder)


@pytest.fixture
def panel(lab) -> Embeddings:
    return Embeddings(lab)


def ask(panel, **given):
    values = checked_values(panel.fields, given)
    *progress, result = panel.answer(values)
    assert progress and all(isinstance(item, Progress) for item in progress)
    json.dumps(result)
    return values, result


SMALL = {"per_kind": 4, "piece_bp": 20}


def slow_principal(vectors):
    """Two principal components by the eigenvectors of the covariance, up to their signs."""
    centered = vectors - vectors.mean(axis=0)
    values, axes = np.linalg.eigh(centered.T @ centered)
    return centered @ axes[:, [-1, -2]], values[[-1, -2]] / values.sum()


def fasta_of(panel, values, result):
    markup = panel.show(values, result)["downloads"]
    start = markup.index("data:", markup.index('download="sequences.fa"'))
    return urllib.parse.unquote(markup[start : markup.index('"', start)].split(",", 1)[1])


def upload(folder: Path, text: str) -> list[str]:
    path = folder / "own.fa"
    path.write_text(text)
    return [str(path)]


def test_pieces_of_three_kinds(panel, lab):
    values, result = ask(panel, **SMALL)
    assert {x: result["labels"].count(x) for x in set(result["labels"])} == {
        "coding": 3, "intron": 3, "intergenic": 4,
    }  # fmt: skip
    assert set(result["lengths_bp"]) == {20}
    # The CDS begins at base 110 of the contig (1-based), the intron at 161.
    assert result["names"][0] == "c1:110-129(+)" and "c1:161-180(+)" in result["names"]
    bases = lab.genome.reference.fetch(lab.genome.place("c1:110-129", 0, 100))
    assert f">c1:110-129(+) label=coding\n{bases}\n" in fasta_of(panel, values, result)


def test_places_are_principal_components_of_the_vectors(panel, lab):
    values, result = ask(panel, **SMALL, pool="last", layer="1")
    sequences = fasta_of(panel, values, result).split("\n")[1::2]
    vectors = np.stack(list(lab.model.embed(sequences, pool="last", layer=1))).astype(float)
    places, explained = slow_principal(vectors)
    np.testing.assert_allclose(np.abs(result["x"]), np.abs(places[:, 0]), atol=1e-4)
    np.testing.assert_allclose(np.abs(result["y"]), np.abs(places[:, 1]), atol=1e-4)
    np.testing.assert_allclose(result["explained"], explained, rtol=1e-5)


@pytest.mark.parametrize("more", [{}, {"pool": "end", "layer": "1"}])
def test_python_and_command_give_the_same(panel, tmp_path, monkeypatch, more):
    values, result = ask(panel, **SMALL, **more)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sequences.fa").write_text(fasta_of(panel, values, result))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(panel.python(values), {})
    rows = [line.split() for line in out.getvalue().splitlines()]
    assert [row[0] for row in rows] == result["names"]
    np.testing.assert_allclose([float(row[1]) for row in rows], result["x"], atol=1e-5)
    np.testing.assert_allclose([float(row[2]) for row in rows], result["y"], atol=1e-5)

    comment, command = panel.command(values).splitlines()
    assert comment.startswith("# sequences.fa") and main(shlex.split(command)[1:]) == 0
    table = pq.read_table("vectors.parquet").to_pydict()
    assert table["name"] == result["names"]
    places, _ = slow_principal(np.array(table["embedding"]))
    np.testing.assert_allclose(np.abs(places[:, 0]), np.abs(result["x"]), atol=1e-4)


def test_genes_of_the_other_strand_are_read_along_it(model, tmp_path):
    bases, gff3, _ = place_gene("-")
    (tmp_path / "genes.gff3").write_text(gff3)
    fasta = write_fasta(tmp_path / "genome.fa", {"c1": bases})
    genome = Genome.open(fasta, tmp_path / "genes.gff3")
    panel = Embeddings(Lab(model, "MODEL", genome, tmp_path))
    values, result = ask(panel, **SMALL)
    first = result["names"][0]
    assert first.endswith("(-)")
    start, end = map(int, first.removeprefix("c1:").removesuffix("(-)").split("-"))
    coding = reverse_complement(bases[start - 1 : end])
    assert f">{first} label=coding\n{coding}\n" in fasta_of(panel, values, result)


def test_a_genome_without_genes(model, tmp_path):
    contigs = {"a": random_bases(100), "b": random_bases(100, seed=1)}
    genome = Genome.open(write_fasta(tmp_path / "genome.fa", contigs), None)
    _, result = ask(Embeddings(Lab(model, "MODEL", genome, tmp_path)), **SMALL)
    assert set(result["labels"]) == {"a", "b"}


def test_a_genome_whose_genes_are_a_bed_of_other_names(lab, tmp_path):
    """From the command line where it is asked for, of an upload always."""
    bases, _, _ = place_gene()
    fasta = write_fasta(tmp_path / "genome.fa", {"chr1": bases})
    (tmp_path / "genes.bed").write_text("1\t100\t280\tABC\t0\t+\n")
    with pytest.raises(UserError, match="give --contigs chr"):
        Genome.open(fasta, tmp_path / "genes.bed")
    for genome in (
        Genome.open(fasta, tmp_path / "genes.bed", "chr"),
        lab.genome_of((str(fasta), str(tmp_path / "genes.bed"))),
    ):
        assert genome.place("ABC", 0, 1000).to_region() == "chr1:101-280"


def test_labels_of_uploads(panel, tmp_path):
    text = f">s1 label=red more\n{random_bases(30)}\n>s2 a promoter\n{random_bases(40, 1)}\n"
    files = upload(tmp_path, f"{text}>s3\n{random_bases(50, 2)}\n")
    _, result = ask(panel, sequences=files)
    assert result["labels"] == ["red", "a promoter", "own"]
    assert result["lengths_bp"] == [30, 40, 50]


def test_hostile_names_are_shown(panel, tmp_path):
    name = "<img/src=x/onerror=alert(1)>"
    text = "".join(f">{name}{n} label={name}\n{random_bases(30, n)}\n" for n in range(3))
    values, result = ask(panel, sequences=upload(tmp_path, text))
    shown = panel.show(values, result)
    assert name not in json.dumps(shown) and "&lt;img" in shown["table"]
    assert shown["map"]["data"][0]["name"].startswith("&lt;img")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (">a\nACGT\n>b\nACGA\n", "2 sequences; a map needs 3"),
        (">a\nACGT\n>b\nNNNN\n>c\nACGT\n", "b: has no base"),
        (">a\nACGT\n>b\nACGT\n>c\nACGT\n", "the same vector"),
        (f">a\n{'A' * 3001}\n", "3,001 bases; give 3,000"),
        ("".join(f">s{n}\nACGT\n" for n in range(201)), "more than 200"),
        ("ACGT\n", "own.fa line 1: expected a header"),
        (">a\nMKLV\n", "not a DNA letter"),
    ],
)
def test_uploads_that_make_no_sense(panel, tmp_path, text, message):
    with pytest.raises(UserError, match=message) as caught:
        ask(panel, sequences=upload(tmp_path, text))
    assert str(tmp_path) not in str(caught.value)


def test_pieces_that_nothing_holds(panel):
    with pytest.raises(UserError, match="shorter pieces"):
        ask(panel, piece_bp=500)


def test_what_is_between_genes(tmp_path):
    bases, gff3, _ = place_gene()
    (tmp_path / "g.gff3").write_text(gff3)
    with Reference(write_fasta(tmp_path / "g.fa", {"c1": bases, "c2": "ACGT"})) as reference:
        annotation = read_annotation(tmp_path / "g.gff3", reference)
        found = list(intergenic(annotation, reference.contig_lengths_bp))
    # The gene is 101-280 of 400 bases, 1-based.
    expected = [Interval("c1", 0, 100), Interval("c1", 280, 400), Interval("c2", 0, 4)]
    assert found == expected
