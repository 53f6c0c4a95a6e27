"""Small inputs on which annotations were misread; the right values are those of their README."""

import csv

import pysam
import pytest
from Bio import SeqIO
from Bio.Seq import Seq

from carbon.cli import main
from carbon.genome import Consequences, Reference, Variant, intergenic, unpack_genbank
from carbon.model import save_model
from tests.helpers.curation import build, rows_of

FIELDS = ("gene", "consequence", "codon", "codons", "amino_acids")
MISSENSE_12 = {"x": ("A", "missense_variant", "12", "CTC/CGC", "L/R")}
MISSENSE_2 = {"c:205": ("S", "missense_variant", "2", "GGA/GAA", "G/E")}
NOTHING = (".",) * 5


def gene_alone(name, term="."):
    return (name, term, ".", ".", ".")


CASES = {
    "01_utr_without_exon": {
        annotation: {
            "utr5": gene_alone("G1", "5_prime_UTR_variant"),
            "cds": ("G1", "synonymous_variant", "10", "ACG/ACA", "T"),
            "intron": gene_alone("G1", "intron_variant"),
            "utr3": gene_alone("G1", "3_prime_UTR_variant"),
        }
        for annotation in ("no_exon.gff3", "with_exon.gff3")
    },
    "02_pseudo_spelling": {
        annotation: {
            "whole_codon2": ("hypothetical protein", "missense_variant", "2", "TTT/TAT", "F/Y"),
            **{
                name: gene_alone("hypothetical protein", "coding_sequence_variant")
                for name in ("pseudo_codon2", "pseudo_behind_stop", "shifted_codon2",
                             "shifted_behind")
            },
        }
        for annotation in ("bakta.gff3", "insdc.gff3")
    },
    "03_prodigal_partial": {
        "prodigal.gff": {
            "left_codon1": ("1_1", "missense_variant", "1", "CTG/GTG", "L/V"),
            "left_codon2": ("1_1", "synonymous_variant", "2", "GGA/GGG", "G"),
            "right_atg": ("1_2", "start_lost", "1", "ATG/GTG", "M/V"),
            "minus_codon1": ("2_1", "synonymous_variant", "1", "TTG/CTG", "L"),
        }
    },
    "04_words_in_a_note": {
        **{name: MISSENSE_12 for name in ("plain.gff3", "note.gff3", "slip.gff3")},
        **{name: MISSENSE_2 for name in ("slip_plain.gff3", "slip_encoded.gff3")},
    },
    "05_id_on_two_contigs": {
        "joined.gff3": {
            "c1:202": ("g1_c1", "start_lost", "1", "ATG/AGG", "M/R"),
            "c2:262": ("g1_c2", "start_lost", "1", "ATG/AGG", "M/R"),
            "c3:152": NOTHING, "in_second_ACO": NOTHING,
        },
        "cds_only.gff3": {
            "c1:202": ("1", "start_lost", "1", "ATG/AGG", "M/R"),
            "c2:262": ("1", "start_lost", "1", "ATG/AGG", "M/R"),
            "c3:152": NOTHING, "in_second_ACO": NOTHING,
        },
        "some.gff3": {
            "c1:202": ("ACO_c1", "start_lost", "1", "ATG/AGG", "M/R"),
            "c2:262": ("g2_c2", "start_lost", "1", "ATG/AGG", "M/R"),
            "c3:152": ("g3_c3", "start_lost", "1", "ATG/AGG", "M/R"),
            "in_second_ACO": ("ACO_c3", "missense_variant", "2", "GTT/GGT", "V/G"),
        },
    },
    "06_dropped_is_not_intergenic": {
        "ncbi.gff3": {
            "between_genes": gene_alone(".", "intergenic_variant"),
            # Base 41 of the part on the minus strand; base 30 of the next, behind 90.
            "part1_or_nostrand": ("rps12", "missense_variant", "14", "TCA/TTA", "S/L"),
            "part2_or_orphan": ("rps12", "missense_variant", "40", "AGC/AGG", "S/R"),
            "b": ("b", "missense_variant", "7", "CCC/CGC", "P/R"),
        },
        "odd.gff3": {
            "between_genes": gene_alone(".", "intergenic_variant"),
            "part1_or_nostrand": gene_alone("nostrand"),
            "part2_or_orphan": NOTHING,
            "b": ("b", "missense_variant", "7", "CCC/CGC", "P/R"),
        },
    },
}  # fmt: skip
LEFT_OUT = {"odd.gff3": "left out 2: 1 no_strand (e.g. g1.t), 1 parent_not_in_file (e.g. mrna-x)"}


@pytest.fixture
def cases(real_data):
    return real_data.parent / "cases"


@pytest.fixture(scope="module")
def model(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("model")
    save_model(network, folder)
    return folder


@pytest.mark.parametrize(
    ("case", "annotation"), [(case, name) for case, files in CASES.items() for name in files]
)
def test_consequences_by_the_command(cases, model, tmp_path, capsys, case, annotation):
    second = "2" if annotation.startswith("slip_") else ""
    folder, output = cases / case, tmp_path / "out.tsv"
    words = ["variants", "--model", model, "--window", "48",
             "--reference", folder / f"g{second}.fa", "--vcf", folder / f"v{second}.vcf",
             "--annotation", folder / annotation, "--output", output]  # fmt: skip
    assert main([str(word) for word in words]) == 0
    said = capsys.readouterr().err
    assert LEFT_OUT.get(annotation, "") in said
    assert ("left out" in said) == (annotation in LEFT_OUT)
    with output.open() as lines:
        rows = list(csv.DictReader((x for x in lines if not x.startswith("# ")), delimiter="\t"))
    with pysam.VariantFile(str(folder / f"v{second}.vcf")) as records:
        names = [r.id or f"{r.chrom}:{r.pos}" for r in records]
    found = {n: tuple(row[f] for f in FIELDS) for n, row in zip(names, rows, strict=True)}
    assert found == CASES[case][annotation]


def build_of(cases, case, annotation, corpus, *more, reference="g.fa"):
    files = [f"assemblies.0.genome={cases / case / reference}",
             f"assemblies.0.annotation={cases / case / annotation}"]  # fmt: skip
    return build(corpus, *files, "keep.min_complexity=0", *more)


@pytest.mark.parametrize("annotation", ["no_exon.gff3", "with_exon.gff3"])
def test_records_of_a_gene_without_exon_lines(cases, tmp_path, annotation):
    corpus, case = tmp_path / "c", "01_utr_without_exon"
    sources = "assemblies.0.sources=['mrna','promoter','utr5','utr3']"
    cut = ("cut.upstream_bp=100", "cut.downstream_bp=20")
    assert build_of(cases, case, annotation, corpus, sources, *cut) == 0
    bases = str(SeqIO.read(cases / case / "g.fa", "fasta").seq).upper()
    expected = {
        "mrna": bases[1000:1190] + bases[1290:1500],
        "promoter": bases[900:1020],
        "utr5": bases[1000:1100],
        "utr3": bases[1380:1500],
    }
    for source, sequence in expected.items():
        assert [row["sequence"] for row in rows_of(corpus, source)] == [sequence], source
    assert len(expected["mrna"]) == 400


@pytest.mark.parametrize(
    ("case", "annotation", "kept", "dropped"),
    [
        ("02_pseudo_spelling", "bakta.gff3", ["AB_05"], ["AB_15", "AB_25"]),
        ("02_pseudo_spelling", "insdc.gff3", ["AB_05"], ["AB_15", "AB_25"]),
        ("03_prodigal_partial", "prodigal.gff", [], ["1_1", "1_2", "2_1"]),
    ],
)
def test_incomplete_cds_are_dropped_with_a_reason(cases, tmp_path, case, annotation, kept, dropped):
    """A build does not refuse a pseudogene that is out of frame."""
    corpus = tmp_path / "c"
    sources = "assemblies.0.sources=['mrna','genome']"
    assert build_of(cases, case, annotation, corpus, sources) == 0
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
        gaps = [g for g in intergenic(annotation, reference.contig_lengths_bp)]
        assert any(69_724 < gap.start < 97_998 for gap in gaps)
        covered = {at for at, _ in places}
        assert not any(gap.start <= at < gap.end for gap in gaps for at in covered)
