"""What the demo opens by default, and the well-known genes of the bundled chromosome."""

import os
from pathlib import Path

import pytest

from carbon import pretrained
from carbon.genome import Reference, read_annotation
from carbon.genome.genes import find_gene
from carbon.genome.genome import Genome
from demo import first_start
from demo.lab import Lab
from demo.panels.gene import Gene
from tests.helpers.bundled_model import fill
from tests.helpers.demo import GENE, visited, write_genome

YEAST = Path(os.environ.get("CARBON_DATA", "")) / "yeast"
SENTENCE = "Known <to> all."


@pytest.fixture
def home(monkeypatch, tmp_path):
    """An empty home, no bundled model, and nothing that can be started."""
    monkeypatch.setattr(pretrained, "ROOT", tmp_path / "pretrained")
    started = []
    monkeypatch.setattr(first_start, "_run", lambda *words, **_: started.append(words[1]))
    return tmp_path / "home", started


def test_the_bundled_model_is_opened_with_its_chromosome(home, tmp_path, network):
    folder, started = home
    fill(tmp_path / "pretrained" / "yeast", network)
    assert first_start.find_model(folder) == "yeast"
    found = first_start.find_genome("yeast", folder)
    entry = pretrained.entry("yeast")
    assert found == (
        str(entry.genome),
        str(entry.annotation),
        entry.known_genes,
        None,
    )
    entry.learning.write_bytes(b"scans")
    assert first_start.find_genome("yeast", folder).learning == entry.learning
    other = first_start.find_genome("somewhere/export", folder)
    assert other.known_genes == {} and started == ["-m"]


def test_no_bundled_model_leads_to_the_quickstart(home):
    folder, started = home
    assert first_start.find_model(folder) == str(folder / "run" / "export")
    found = first_start.find_genome("yeast", folder)
    assert found.fasta == f"{folder}-genome/genome.fa" and found.known_genes == {}
    assert started == ["runs/quickstart.sh", "-m"]


@pytest.fixture
def read(model, tmp_path):
    genome = Genome.open(*write_genome(tmp_path))
    return Gene(Lab(model, "model", genome, tmp_path, {GENE: SENTENCE}))


def test_a_known_gene_is_shown_with_its_sentence(read):
    assert read.lab.example.name == GENE
    _, _, shown = visited(read, input=GENE)
    assert "Known &lt;to&gt; all." in shown["facts"]


@pytest.mark.nightly
@pytest.mark.skipif(not YEAST.is_dir(), reason="CARBON_DATA is not set")
def test_the_known_genes_are_on_the_held_out_contig_and_fit_a_page():
    entry = pretrained.BUNDLED_MODELS["yeast"]
    (fasta,), (gtf,) = YEAST.glob("*.fa.gz"), YEAST.glob("*.gtf.gz")
    with Reference(fasta) as reference:
        annotation = read_annotation(gtf, reference)
    assert len(entry.known_genes) >= 8
    for name, sentence in entry.known_genes.items():
        interval = find_gene(annotation, name).interval
        assert interval.contig == entry.held_out_contig and interval.length_bp < 5800, name
        assert sentence.endswith(".")
