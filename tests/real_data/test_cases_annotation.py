"""Small inputs on which annotations were misread; the right values are those of their README."""

import csv

import pytest
from Bio import SeqIO
from Bio.Seq import Seq

from carbon.genome import (
    Consequences,
    Reference,
    Variant,
    intergenic,
    unpack_genbank,
)
from tests.helpers.curation import assembly, build, rows_of


@pytest.mark.parametrize(
    ("case", "annotation", "kept", "dropped"),
    [
        ("02_pseudo_spelling", "bakta.gff3", ["AB_05"], ["AB_15", "AB_25"]),
        ("03_prodigal_partial", "prodigal.gff", [], ["1_1", "1_2", "2_1"]),
    ],
)
def test_incomplete_cds_are_dropped_with_a_reason(
    real_data, tmp_path, case, annotation, kept, dropped
):
    """A build does not refuse a pseudogene that is out of frame."""
    corpus, cases = tmp_path / "c", real_data.parent / "cases"
    settings = assembly(cases / case, genome=cases / case / "g.fa", sources="['mrna','genome']")
    settings += [f"assemblies.0.annotation={cases / case / annotation}", "keep.min_complexity=0"]
    assert build(corpus, *settings) == 0
    with (corpus / "dropped.tsv").open() as lines:
        rows = [row for row in csv.DictReader(lines, delimiter="\t") if row["source"] == "mrna"]
    assert [(row["name"], row["reason"]) for row in rows] == [
        (name, "cds_marked_incomplete") for name in dropped
    ]
    assert [row["name"] for row in rows_of(corpus, "mrna")] == kept


def test_rps12_of_a_chloroplast(real_data, tmp_path, capsys):
    """Both copies, in whole, against what Biopython extracts and translates."""
    path, fasta = real_data / "small_genomes" / "NC_000932.gb", tmp_path / "x.fa"
    annotation = unpack_genbank(path, fasta).annotation
    assert annotation.left_out == () and "left out" not in capsys.readouterr().err
    record = SeqIO.read(path, "genbank")
    copies = [f for f in record.features if f.type == "CDS" and "rps12" in f.qualifiers["gene"]]
    assert len(copies) == 2
    with Reference(fasta) as reference:
        consequences = Consequences(reference, annotation)
        for copy in copies:
            cds = str(copy.extract(record.seq))
            assert str(Seq(cds).translate(table=11))[:-1] == copy.qualifiers["translation"][0]
            places = [
                (at, part.strand)
                for part in copy.location.parts
                for at in (range(part.start, part.end) if part.strand == 1
                           else range(part.end - 1, part.start - 1, -1))
            ]  # fmt: skip
            for number in (1, 35, 38, 39, 112, 121, 123):
                for within in range(3):
                    offset = 3 * (number - 1) + within
                    codon = cds[offset - within : offset - within + 3]
                    alt = "A" if codon[within] != "A" else "C"
                    at, strand = places[offset]
                    ref = record.seq[at]
                    on_contig = alt if strand == 1 else str(Seq(alt).complement())
                    found = consequences.of(Variant("NC_000932.1", at, str(ref), on_contig))
                    changed = codon[:within] + alt + codon[within + 1 :]
                    assert found.gene == "rps12" and found.codon == number
                    assert found.codons == f"{codon}/{changed}"
        # Between the parts lie other genes, and stretches between them.
        gaps = list(intergenic(annotation, reference.contig_lengths_bp))
        assert any(69_724 < gap.start < 97_998 for gap in gaps)
        covered = {at for at, _ in places}
        assert not any(gap.start <= at < gap.end for gap in gaps for at in covered)
