"""Real genomes and files that other projects keep for being nasty."""

from collections import Counter

import pytest

from carbon.genome import Reference, read_annotation, spliced, translate
from data_pipeline.inputs.files import file_rows
from data_pipeline.recipe import FilesConfig

YEAST = (
    "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
    "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz",
)
ECOLI = (
    "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.fna.gz",
    "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.gff.gz",
)
FLY = (
    "invertebrates_and_cress/D.melanogaster.fa.gz",
    "invertebrates_and_cress/D.melanogaster.gff.gz",
)
WORM = ("invertebrates_and_cress/C.elegans.fa.gz", "invertebrates_and_cress/C.elegans.gff.gz")
CRESS = ("invertebrates_and_cress/A.thaliana.fa.gz", "invertebrates_and_cress/A.thaliana.gff.gz")
HUMAN9 = ("human_chr9/GRCh38.chr9_1_1000000.fa.gz", "human_chr9/GRCh38.91.chr9_1_1000000.gtf.gz")


@pytest.mark.parametrize(
    ("files", "least_intact", "total"),
    [
        (FLY, 236, None),
        *(
            pytest.param(*row, marks=pytest.mark.nightly)
            for row in (
                (YEAST, 6572, 6600), (ECOLI, 4295, None), (WORM, 300, None), (CRESS, 459, None),
                (HUMAN9, 30, None),
            )
        ),
    ],
)  # fmt: skip
def test_coding_sequences_read_from_m_to_one_stop(real_data, files, least_intact, total):
    """Of yeast all but 28, most of which are of the mitochondrion, whose code is another."""
    with Reference(real_data / files[0]) as reference:
        annotation = read_annotation(real_data / files[1], reference)
        transcripts = [t for g in annotation.genes for t in g.transcripts if t.cds]
        broken = Counter()
        for t in transcripts:
            cds = spliced(reference, t.contig, t.cds, t.strand)
            protein = translate(cds) if len(cds) % 3 == 0 else ""
            broken[t.contig] += protein.find("*") != len(protein) - 1 or not protein
    assert len(transcripts) - broken.total() >= least_intact
    assert files != YEAST or (len(transcripts) == total and broken["Mito"] >= 15)


def read_in_whole_codons(reference, annotation):
    """Yield the transcripts with a CDS whose codons can be told, and their proteins."""
    for t in (t for gene in annotation.genes for t in gene.transcripts):
        if t.cds and t.phase_bp is not None:
            cds = spliced(reference, t.contig, t.cds, t.strand)
            yield t, translate(cds[t.phase_bp : len(cds) - t.leftover_bp])


def test_a_cds_that_begins_in_a_codon_is_read_from_its_phase(real_data):
    """Partial transcripts of Ensembl; by its first base one of chromosome 21 has inner stops."""
    folder = real_data / "human_chr21"
    place = {"contig_names": {"21": "21:24985581-26000306"}, "offset_bp": 24_985_580}
    with Reference(folder / "GRCh38.chr21_24985581_26000306.fa.gz") as reference:
        annotation = read_annotation(folder / "ensembl.gff3.gz", reference, **place)
        human21 = list(read_in_whole_codons(reference, annotation))
    with Reference(real_data / HUMAN9[0]) as reference:
        human9 = list(
            read_in_whole_codons(reference, read_annotation(real_data / HUMAN9[1], reference))
        )
    assert (len(human21), len(human9)) == (17, 41)
    for found, num_in_phase, least_partial in ((human21, 1, 1), (human9, 6, 7)):
        assert sum(bool(t.phase_bp) for t, _ in found) == num_in_phase
        assert sum(t.incomplete for t, _ in found) >= least_partial
        assert all(t.incomplete and not t.has_start for t, _ in found if t.phase_bp)
        assert not any("*" in protein[:-1] for _, protein in found)


@pytest.mark.parametrize(
    ("name", "number"),
    [("transcripts/human_chr22_refseq.fa.gz", 918), ("promoters/hs_pos_TATA.txt", 2929)],
)
def test_sequences_of_transcripts_and_promoters(real_data, name, number):
    """The one is FASTA, the other has a sequence in each line."""
    config = FilesConfig(path=str(real_data / name), source="mrna")
    found = [row["sequence"] for row in file_rows(real_data / name, config)]
    assert len(found) == number and all(set(bases.upper()) <= set("ACGTN") for bases in found)
