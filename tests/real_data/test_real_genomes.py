"""Real genomes and files that other projects keep for being nasty."""

import json
from collections import Counter

import pytest

from carbon.errors import GenomeError
from carbon.genome import Reference, read_annotation, spliced, translate
from carbon.tokenizer import HYBRID, encode
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


def coding(folder, files):
    """Return how many transcripts with a CDS there are, and how many read from M to one stop."""
    with Reference(folder / files[0]) as reference:
        annotation = read_annotation(folder / files[1], reference)
        transcripts = [t for g in annotation.genes for t in g.transcripts if t.cds]
        intact = 0
        for t in transcripts:
            if t.cds_length_bp % 3 == 0:
                protein = translate(spliced(reference, t.contig, t.cds, t.strand))
                intact += protein.index("*") == len(protein) - 1 if "*" in protein else 0
        return len(transcripts), intact


@pytest.mark.nightly
def test_yeast(real_data):
    """6,600 CDS; all read through but those of the mitochondrion, whose code is another."""
    with Reference(real_data / YEAST[0]) as reference:
        assert sum(reference.contig_lengths_bp.values()) == 12_157_105
        genes = read_annotation(real_data / YEAST[1], reference).genes
        on_mito = sum(bool(t.cds) for g in genes for t in g.transcripts if t.contig == "Mito")
        broken = Counter()
        for t in (t for g in genes for t in g.transcripts if t.cds):
            protein = translate(spliced(reference, t.contig, t.cds, t.strand))
            broken[t.contig] += "*" in protein[:-1] or protein[-1] != "*"
    total, intact = coding(real_data, YEAST)
    assert total == 6600 and on_mito > 0
    assert 6600 - intact == sum(broken.values()) <= 28
    assert broken["Mito"] >= 15


@pytest.mark.parametrize(
    ("files", "least_intact"),
    [
        (FLY, 236),
        *(
            pytest.param(*row, marks=pytest.mark.nightly)
            for row in ((ECOLI, 4295), (WORM, 300), (CRESS, 459), (HUMAN9, 30))
        ),
    ],
)
def test_other_genomes(real_data, files, least_intact):
    total, intact = coding(real_data, files)
    assert least_intact <= intact <= total


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


@pytest.mark.nightly
def test_files_of_different_genomes(real_data):
    with (
        Reference(real_data / "human_chr21/GRCh38.chr21_24985581_26000306.fa.gz") as reference,
        pytest.raises(GenomeError, match="no contig '21' in the FASTA"),
    ):
        read_annotation(real_data / "human_chr21/ensembl.gff3.gz", reference)
    with (
        Reference(real_data / YEAST[0]) as reference,
        pytest.raises(GenomeError, match=r"same assembly|no contig"),
    ):
        read_annotation(real_data / ECOLI[1], reference)


@pytest.mark.parametrize("kind", ["biopython_fasta", "biopython_gff", "gffutils"])
def test_nasty_files_end_with_one_line_or_none(real_data, tmp_path, kind):
    """Whatever they are, they are read or refused with a message of one line that names them."""
    reference = None
    if kind != "biopython_fasta":
        (tmp_path / "any.fa").write_text(">none\nACGT\n")
        reference = Reference(tmp_path / "any.fa")
    refused = 0
    for path in sorted((real_data / "malformed" / kind).iterdir()):
        copy = tmp_path / path.name
        copy.write_bytes(path.read_bytes())
        try:
            Reference(copy).close() if reference is None else read_annotation(copy, reference)
        except GenomeError as error:
            refused += 1
            assert copy.name in str(error) and "\n" not in str(error)
    assert refused > 0


@pytest.mark.parametrize(
    ("name", "number"),
    [("transcripts/human_chr22_refseq.fa.gz", 918), ("promoters/hs_pos_TATA.txt", 2929)],
)
def test_sequences_of_transcripts_and_promoters(real_data, name, number):
    """The one is FASTA, the other has a sequence in each line."""
    config = FilesConfig(path=str(real_data / name), source="mrna")
    found = [row["sequence"] for row in file_rows(real_data / name, config)]
    assert len(found) == number and all(set(bases.upper()) <= set("ACGTN") for bases in found)


def test_published_vectors_of_the_hybrid_tokenizer(real_data):
    path = real_data.parent / "reference" / "tokenizer_vectors.json"
    if not path.exists():
        pytest.skip("no vectors beside the data")
    checked = 0
    for case in json.loads(path.read_text()):
        text = case["text"]
        dna = text.removeprefix("<dna>").removesuffix("</dna>")
        if text.startswith("<dna>") and "<" not in dna:
            encoding = encode(dna, HYBRID, close=text.endswith("</dna>"))
            assert encoding.ids.tolist() == case["ids"], text
            checked += 1
    assert checked >= 8
