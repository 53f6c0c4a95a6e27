"""Corpora of real genomes, against what is known of them from elsewhere."""

import gzip
import tempfile
from pathlib import Path

import pytest

from carbon.corpus import open_packing, open_store, read_manifest, source_files
from carbon.genome import (
    GENETIC_CODE,
    Reference,
    read_annotation,
    spliced,
    unpack_genbank,
)
from carbon.io.files import sha256_of_file
from tests.helpers.curation import build, rows_of
from tests.real_data.test_real_genomes import ECOLI, HUMAN9, YEAST

GENBANK = "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.gbff.gz"
CHR21 = "human_chr21/GRCh38.chr21_24985581_26000306.fa.gz"


def of(real_data, files, number=0, **settings):
    settings = {"genome": real_data / files[0]} | settings
    if len(files) > 1:
        settings["annotation"] = real_data / files[1]
    return [f"assemblies.{number}.{key}={value}" for key, value in settings.items()]


@pytest.fixture(scope="module")
def yeast(real_data, tmp_path_factory):
    """The corpus of a whole genome, built as it is; it takes a while."""
    corpus = tmp_path_factory.mktemp("yeast") / "c"
    assert build(corpus, *of(real_data, YEAST)) == 0
    return corpus


@pytest.mark.nightly
def test_every_cds_of_the_yeast_corpus_translates(real_data, yeast):
    """Those of the nucleus: the mitochondrion has another code."""
    manifest = read_manifest(yeast)
    for source in ("eukaryote", "mrna"):
        assert all(manifest["sources"][source][split]["records"] > 0 for split in ("train", "test"))
    kept = {row["name"] for row in rows_of(yeast, "mrna")}
    checked = 0
    with Reference(real_data / YEAST[0]) as reference:
        for gene in read_annotation(real_data / YEAST[1], reference).genes:
            for t in gene.transcripts:
                if t.transcript_id not in kept or t.contig == "Mito":
                    continue
                cds = spliced(reference, t.contig, t.cds, t.strand)
                protein = [GENETIC_CODE[cds[i : i + 3]] for i in range(0, len(cds), 3)]
                assert "*" not in protein[:-1] and protein[-1] == "*", t.transcript_id
                checked += 1
    assert checked > 6300
    assert manifest["dropped"]["mrna:near_duplicate"] > 50


@pytest.mark.nightly
def test_ecoli_is_the_same_from_both_formats(real_data, tmp_path):
    common = {"name": "K12", "sources": '["eukaryote", "mrna", "mrna_splice", "prokaryote"]'}
    organism = "Escherichia coli str. K-12 substr. MG1655"
    first = of(real_data, ECOLI, species_type="pro", organism=f'"{organism}"', **common)
    assert build(tmp_path / "gff", *first) == 0
    assert build(tmp_path / "gb", *of(real_data, [GENBANK], **common)) == 0
    paths = sorted(p.relative_to(tmp_path / "gff") for p in (tmp_path / "gff").rglob("*.parquet"))
    assert len(paths) == 8
    for path in paths:
        assert sha256_of_file(tmp_path / "gff" / path) == sha256_of_file(tmp_path / "gb" / path)
    assert len(rows_of(tmp_path / "gff", "mrna")) > 4100


@pytest.mark.parametrize(
    ("path", "total", "different"),
    [
        # Three selenoproteins, whose UGA is no stop.
        pytest.param(GENBANK, 4298, 3, marks=pytest.mark.nightly),
        ("small_genomes/NC_000932.gb", 83, 0),
        ("small_genomes/NC_001422.gbk", 11, 0),
        ("small_genomes/NC_005816.gb", 10, 0),
        ("small_genomes/arab1.gb", 18, 0),
        ("small_genomes/lambda.gbk", 73, 3),
    ],
)
def test_proteins_are_those_of_the_record(real_data, path, total, different):
    """Biopython reads the /translation of each CDS; ours is cut out, spliced and translated."""
    from Bio import SeqIO

    path = real_data / path
    proteins = {}
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as handle:
        for record in SeqIO.parse(handle, "genbank"):
            for feature in (f for f in record.features if f.type == "CDS"):
                told = feature.qualifiers
                if "translation" in told and "trans_splicing" not in told:
                    names = ("locus_tag", "gene", "protein_id")
                    locus = next(told[n][0] for n in names if n in told)
                    proteins.setdefault(locus, set()).add(told["translation"][0][1:])
    right = wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        genbank = unpack_genbank(path, Path(folder) / "x.fa")
        with Reference(Path(folder) / "x.fa") as reference:
            for gene in genbank.annotation.genes:
                for t in (t for t in gene.transcripts if t.cds and gene.gene_id in proteins):
                    cds = spliced(reference, t.contig, t.cds, t.strand)
                    codons = [cds[i : i + 3] for i in range(3, len(cds) - 2, 3)]
                    protein = "".join(GENETIC_CODE.get(codon, "X") for codon in codons)
                    same = protein.rstrip("*") in proteins[gene.gene_id]
                    right, wrong = right + same, wrong + (not same)
    assert (right + wrong, wrong) == (total, different)


@pytest.mark.nightly
def test_packing_wastes_little(real_data, yeast, tmp_path):
    """Under 2 % with every sample bare, or no row more than the tokens need at the very least."""
    mammal = {"species_type": "mam", "holdout": "[]", "incomplete_cds": "drop"}
    part = {
        "annotation": real_data / "human_chr21/ensembl.gff3.gz",
        "contig_names": '{"21" = "21:24985581-26000306"}',
        "annotation_offset_bp": 24_985_580,
    }
    human = [
        *of(real_data, HUMAN9, 0, **mammal),
        *of(real_data, [CHR21], 1, **mammal, **part),
        f"files.0.path={real_data}/transcripts/human_chr22_refseq.fa.gz",
        "files.0.source=mrna",
        "files.0.species_type=mam",
    ]
    assert build(tmp_path / "human", *human) == 0
    for corpus in (yeast, tmp_path / "human"):
        for source in ("eukaryote", "mrna"):
            files = source_files(corpus, source, "train")
            store = open_store(files, tmp_path / "cache", source)
            for row_tokens in (256, 1024, 8192):
                packing = open_packing(store, row_tokens)
                wasted = 1 - packing.num_tokens / (packing.num_rows * row_tokens)
                fewest = -(-packing.num_tokens // row_tokens)
                assert wasted < 0.02 or packing.num_rows == fewest, (corpus, source, row_tokens)
