"""Corpora of real genomes, against what is known of them from elsewhere."""

import gzip
import tempfile
from pathlib import Path

import pytest

from carbon.corpus import open_packing, open_store, read_manifest, read_source, source_files
from carbon.genome import (
    GENETIC_CODE,
    Reference,
    read_annotation,
    spliced,
    unpack_genbank,
)
from carbon.io.files import sha256_of_file
from data_pipeline.__main__ import main
from tests.real_data.test_real_genomes import CRESS, ECOLI, FLY, HUMAN9, WORM, YEAST

GENBANK = "ecoli_k12/GCF_000005845.2_ASM584v2_genomic.gbff.gz"
CHR21 = "human_chr21/GRCh38.chr21_24985581_26000306.fa.gz"


def build(output, *settings):
    words = [w for item in (f"output={output}", *settings) for w in ("--set", item)]
    return main(["build", *words])


def of(real_data, files, number=0, **settings):
    settings = {"genome": real_data / files[0]} | settings
    if len(files) > 1:
        settings["annotation"] = real_data / files[1]
    return [f"assemblies.{number}.{key}={value}" for key, value in settings.items()]


def rows_of(corpus, source):
    return [row for s in ("train", "test") for row in read_source(corpus, source, s).to_pylist()]


@pytest.fixture(scope="module")
def yeast(real_data, tmp_path_factory):
    """The corpus of a whole genome, built as it is; it takes a while."""
    corpus = tmp_path_factory.mktemp("yeast") / "c"
    assert build(corpus, *of(real_data, YEAST)) == 0
    return corpus


@pytest.mark.nightly
@pytest.mark.parametrize(
    "files", [ECOLI, FLY, WORM, CRESS, HUMAN9], ids=lambda files: files[0].partition("/")[2]
)
def test_a_genome_builds_as_it_is(real_data, tmp_path, files):
    """Incomplete CDS are marked and dropped, not trained on."""
    assert build(tmp_path / "c", *of(real_data, files)) == 0
    has_records(tmp_path / "c")


def has_records(corpus):
    manifest = read_manifest(corpus)
    for source in ("eukaryote", "mrna"):
        assert manifest["sources"][source]["train"]["records"] > 0
        assert manifest["sources"][source]["test"]["records"] > 0


@pytest.mark.nightly
def test_every_cds_of_the_yeast_corpus_translates(real_data, yeast):
    """Those of the nucleus: the mitochondrion has another code."""
    has_records(yeast)
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
    dropped = read_manifest(yeast)["dropped"]
    assert dropped["mrna:near_duplicate"] > 50


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
def test_slippage(real_data):
    """The ribosome reads one base of SARS-CoV-2 twice; dnaX of E. coli is a product of slipping."""
    folder = real_data / "small_genomes/sars_cov_2"
    with Reference(folder / "EMN908947.fa") as reference:
        annotation = read_annotation(folder / "ribosomal-slippage.gff", reference)
        ((transcript,),) = (gene.transcripts for gene in annotation.genes)
        assert transcript.cds == ((13462, 13468), (13467, 13473))
        assert transcript.exons == ((13462, 13473),)
        bases = spliced(reference, transcript.contig, transcript.cds, "+")
        whole = spliced(reference, transcript.contig, ((13462, 13473),), "+")
        assert bases == whole[:6] + whole[5:]
    with Reference(real_data / ECOLI[0]) as reference:
        genes = {g.name: g for g in read_annotation(real_data / ECOLI[1], reference).genes}
        lengths = sorted(t.cds_length_bp for t in genes["dnaX"].transcripts)
        assert lengths == [1296, 1932]
        (prfb,) = genes["prfB"].transcripts
        assert len(prfb.cds) == 2 and len(prfb.exons) == 1 and prfb.cds_length_bp % 3 == 0


@pytest.mark.nightly
def test_a_part_of_a_chromosome_needs_its_offset(real_data, tmp_path, capsys):
    annotation = real_data / "human_chr21/ensembl.gff3.gz"
    name = '{"21" = "21:24985581-26000306"}'
    common = {"annotation": annotation, "contig_names": name, "species_type": "mam"}
    common |= {"holdout": "[]", "incomplete_cds": "drop"}
    assert build(tmp_path / "c", *of(real_data, [CHR21], **common)) == 2
    line = capsys.readouterr().err.strip().splitlines()[-1]
    assert "ensembl.gff3.gz line " in line and "has 1014726 bases" in line
    assert "annotation_offset_bp" in line
    settings = of(real_data, [CHR21], annotation_offset_bp=24_985_580, **common)
    assert build(tmp_path / "c", *settings) == 0
    rows = rows_of(tmp_path / "c", "mrna")
    assert len(rows) > 10 and all(len(row["sequence"]) > 60 for row in rows)
    assert read_manifest(tmp_path / "c")["dropped"]["annotation:outside_of_the_sequence"] > 100
    with Reference(real_data / CHR21) as reference:
        annotation = read_annotation(
            annotation, reference, contig_names={"21": "21:24985581-26000306"}, offset_bp=24_985_580
        )
        stops_of = {}
        for t in (t for g in annotation.genes for t in g.transcripts if t.cds):
            cds = spliced(reference, t.contig, t.cds, t.strand).upper()
            codons = [cds[i : i + 3] for i in range(0, len(cds) - 2, 3)]
            if codons[0] == "ATG":
                stops = [i for i, codon in enumerate(codons) if GENETIC_CODE[codon] == "*"]
                stops_of[t.transcript_id] = [i - len(codons) for i in stops]
        # Of 17, one begins inside its gene, and two (one twice) end before their stop codon.
        assert sorted(stops_of.values()) == [[], []] + [[-1]] * 14


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
