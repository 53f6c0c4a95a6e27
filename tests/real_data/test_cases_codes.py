"""Genetic codes of real mitochondria and genomes, and the small case of a table 4."""

import gzip
import re

import pytest
from Bio.Seq import Seq

from carbon.genome import Consequences, Reference, Variant, effect_on, read_gene_file, spliced
from carbon.genome.annotation import cds_of_unknown_code
from tests.helpers.files import write_fasta

YEAST = "yeast/Saccharomyces_cerevisiae.R64-1-1"
# Genes of the human mitochondrion (NC_012920), and what MITOMAP says of changes in them. By the
# standard code 6930 is G>R, 14484 is I>V, and 7444 and 7445 are no stop codon.
GENES = [("COX1", 5904, 7445, "+"), ("ND6", 14149, 14673, "-"), ("ATP6", 8527, 9207, "+")]
KNOWN = [
    (6930, "G", "A", "COX1", "stop_gained", 343, "G/*"),
    (7444, "G", "A", "COX1", "stop_lost", 514, "*/K"),
    (7445, "A", "G", "COX1", "stop_retained_variant", 514, "*"),
    (8993, "T", "G", "ATP6", "missense_variant", 156, "L/R"),
    (14459, "G", "A", "ND6", "missense_variant", 72, "A/V"),
    (14484, "T", "C", "ND6", "missense_variant", 64, "M/V"),
]


def test_known_changes_of_the_human_mitochondrion(real_data, tmp_path):
    lines = (real_data / "small_genomes/MT-human.fa").read_text().splitlines()
    bases = "".join(line for line in lines if not line.startswith(">"))
    assert len(bases) == 16_569
    reference = Reference(write_fasta(tmp_path / "g.fa", {"MT": bases}))
    text = "".join(
        f"MT\tx\tCDS\t{first}\t{last}\t.\t{strand}\t0\tID=cds-{name};gene={name}\n"
        for name, first, last, strand in GENES
    )
    (tmp_path / "g.gff3").write_text(text)
    unknown = read_gene_file(tmp_path / "g.gff3", reference)
    assert cds_of_unknown_code(reference, unknown) == {"mitochondrion": 3}
    for choice, is_known in ((None, False), (2, True), ("MT=2", True)):
        annotation = read_gene_file(tmp_path / "g.gff3", reference, genetic_code=choice)
        consequences = Consequences(reference, annotation)
        for position, ref, alt, gene, term, codon, amino_acids in KNOWN:
            found = consequences.of(Variant("MT", position - 1, ref, alt))
            expected = (gene, term, codon, amino_acids)
            if not is_known:
                expected = (gene, "coding_sequence_variant", None, None)
            assert (found.gene, found.consequence, found.codon, found.amino_acids) == expected


@pytest.mark.nightly
def test_the_mitochondrion_of_yeast_has_table_3(real_data):
    gtf = real_data / f"{YEAST}.96.gtf.gz"
    with gzip.open(gtf, "rt") as lines:
        rows = [line for line in lines if line.startswith("Mito\t") and "\tCDS\t" in line]
    coding = {re.search('transcript_id "([^"]*)"', row)[1] for row in rows}
    with Reference(real_data / f"{YEAST}.dna.toplevel.fa.gz") as reference:
        # Every nuclear CDS is read to its end by the standard code.
        annotation = read_gene_file(gtf, reference)
        assert cds_of_unknown_code(reference, annotation) == {"mitochondrion": len(coding)}
        annotation = read_gene_file(gtf, reference, genetic_code="Mito=3")
        assert cds_of_unknown_code(reference, annotation) == {}
        transcripts = [t for g in annotation.genes for t in g.transcripts if t.cds]
        assert {t.transcript_id for t in transcripts if t.genetic_code == 3} == coding
        found = [
            effect_on(reference, t, Variant("Mito", at, base, other)).term
            for t in transcripts
            if t.contig == "Mito" and t.strand == "+"
            for at, base, other in tryptophans(reference, t)
        ]
    # TGG and TGA are tryptophan in table 3; by the standard code TGA is a stop codon.
    assert len(found) > 40 and set(found) == {"synonymous_variant"}


def tryptophans(reference, transcript):
    """Yield changes of TGG to TGA and back in the first coding exon of a transcript."""
    start, end = transcript.cds[0]
    bases = reference.fetch_circular(transcript.contig, start, end).upper()
    for at in range(0, len(bases) - 2, 3):
        if bases[at : at + 3] in ("TGG", "TGA"):
            yield start + at + 2, bases[at + 2], "GA".replace(bases[at + 2], "")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("fasta", "genes", "states_table"),
    [
        ("ecoli_k12/GCF_000005845.2_ASM584v2_genomic.fna.gz", "gff.gz", True),
        ("invertebrates_and_cress/D.melanogaster.fa.gz", "gff.gz", False),
        ("invertebrates_and_cress/C.elegans.fa.gz", "gff.gz", False),
        ("invertebrates_and_cress/A.thaliana.fa.gz", "gff.gz", False),
        ("human_chr9/GRCh38.chr9_1_1000000.fa.gz", "gtf.gz", False),
    ],
)
def test_stop_codons_inside_are_counted_as_biopython_finds_them(
    real_data, fasta, genes, states_table
):
    path = real_data / fasta
    annotations = [p for p in path.parent.iterdir() if p.name.endswith(genes)]
    (annotation_path,) = [p for p in annotations if p.name[:3] == path.name[:3]]
    with Reference(path) as reference:
        annotation = read_gene_file(annotation_path, reference)
        transcripts = [t for g in annotation.genes for t in g.transcripts if t.cds]
        expected = 0
        for t in transcripts:
            states = t.genetic_code is not None or t.has_recoded_codon
            if states or t.is_mitochondrial or t.phase_bp is None:
                continue
            cds = spliced(reference, t.contig, t.cds, t.strand)
            whole = Seq(cds[t.phase_bp : len(cds) - t.leftover_bp])
            protein = str(whole.translate())
            expected += "*" in (protein if t.leftover_bp else protein[:-1])
        found = cds_of_unknown_code(reference, annotation)
    print(annotation_path.name, found)
    assert found.get("stop_codon_inside", 0) == expected
    if states_table:
        assert not found
