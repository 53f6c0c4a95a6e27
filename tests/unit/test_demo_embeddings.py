"""The demo's map of sequences."""

import pytest

from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.genome.genome import Genome
from carbon.inference import Model
from carbon.model import load_model, save_model
from demo.lab import Lab
from demo.panels.embeddings import Embeddings
from tests.helpers.demo import answered, downloads_of, visited
from tests.helpers.files import place_gene, random_bases, write_fasta


@pytest.fixture(scope="module")
def lab(network, tmp_path_factory) -> Lab:
    folder = tmp_path_factory.mktemp("lab")
    save_model(network, folder / "model")
    bases, gff3, _ = place_gene()
    fasta = write_fasta(folder / "genome.fa", {"c1": bases})
    (folder / "genes.gff3").write_text(gff3)
    genome = Genome.open(fasta, folder / "genes.gff3")
    return Lab(Model(load_model(folder / "model")), str(folder / "model"), genome, folder)


@pytest.fixture
def panel(lab) -> Embeddings:
    return Embeddings(lab)


SMALL = {"per_kind": 4, "piece_bp": 20}


def test_pieces_of_three_kinds(panel, lab):
    _, result, shown = visited(panel, **SMALL)
    assert {x: result["labels"].count(x) for x in set(result["labels"])} == {
        "coding": 3, "intron": 3, "intergenic": 4,
    }  # fmt: skip
    assert set(result["lengths_bp"]) == {20}
    # The CDS begins at base 110 of the contig (1-based), the intron at 161.
    assert result["names"][0] == "c1:110-129(+)" and "c1:161-180(+)" in result["names"]
    bases = lab.genome.reference.fetch(lab.genome.place("c1:110-129", 0, 100))
    assert f">c1:110-129(+) label=coding\n{bases}\n" in downloads_of(shown)["sequences.fa"]


def test_genes_of_the_other_strand_are_read_along_it(model, tmp_path):
    bases, gff3, _ = place_gene("-")
    (tmp_path / "genes.gff3").write_text(gff3)
    fasta = write_fasta(tmp_path / "genome.fa", {"c1": bases})
    genome = Genome.open(fasta, tmp_path / "genes.gff3")
    panel = Embeddings(Lab(model, "MODEL", genome, tmp_path))
    _, result, shown = visited(panel, **SMALL)
    first = result["names"][0]
    assert first.endswith("(-)")
    start, end = map(int, first.removeprefix("c1:").removesuffix("(-)").split("-"))
    coding = reverse_complement(bases[start - 1 : end])
    assert f">{first} label=coding\n{coding}\n" in downloads_of(shown)["sequences.fa"]


def test_a_genome_without_genes(model, tmp_path):
    contigs = {"a": random_bases(100), "b": random_bases(100, seed=1)}
    genome = Genome.open(write_fasta(tmp_path / "genome.fa", contigs), None)
    result = answered(Embeddings(Lab(model, "MODEL", genome, tmp_path)), SMALL)
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
    (tmp_path / "own.fa").write_text(f"{text}>s3\n{random_bases(50, 2)}\n")
    result = answered(panel, {"sequences": [str(tmp_path / "own.fa")]})
    assert result["labels"] == ["red", "a promoter", "own"]
    assert result["lengths_bp"] == [30, 40, 50]
