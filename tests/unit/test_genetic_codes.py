"""Genetic codes: stated, chosen or unknown, against Biopython's translation of whole proteins."""

import json

import pytest
from Bio.Data.CodonTable import unambiguous_dna_by_id
from Bio.Seq import Seq

from carbon.cli import main
from carbon.errors import ConfigError, GenomeError
from carbon.genome import (
    Consequences,
    Reference,
    Variant,
    effect_on,
    read_gene_file,
    reverse_complement,
)
from carbon.genome.alphabet import genetic_code, tables_chosen
from carbon.genome.annotation import cds_of_unknown_code
from carbon.model import save_model
from data_pipeline.families import protein_of
from data_pipeline.recipe import AssemblyConfig
from demo.coding import residues
from tests.helpers.codes import (
    CODONS,
    FLANK_BP,
    contig_of,
    expected_term,
    genbank_of,
    gff3_of,
    gtf_of,
    random_cds,
    read_by,
)
from tests.helpers.files import write_fasta, write_vcf

UNTOLD = "coding_sequence_variant"
STATED = {
    "gff3": (gff3_of, ";transl_table={}"),
    "gtf": (gtf_of, ' transl_table "{}";'),
    "gb": (genbank_of, "/transl_table={}"),
}


def opened(folder, cds, strand, text, ending="gff3", contig="c1", choice=None):
    reference = Reference(write_fasta(folder / "g.fa", {contig: contig_of(cds, strand)}))
    (folder / f"g.{ending}").write_text(text)
    annotation = read_gene_file(folder / f"g.{ending}", reference, genetic_code=choice)
    return reference, annotation


def terms(reference, annotation, cds, strand):
    """Yield index, letter and effect of every SNV of the CDS, as the strand reads it."""
    (gene,) = annotation.genes
    contig = gene.interval.contig
    for index, old in enumerate(cds):
        for new in sorted(set("ACGT") - {old}):
            if strand == "+":
                variant = Variant(contig, FLANK_BP + index, old, new)
            else:
                place = FLANK_BP + len(cds) - 1 - index
                variant = Variant(contig, place, *map(reverse_complement, (old, new)))
            yield index, new, effect_on(reference, gene.transcripts[0], variant)


@pytest.mark.parametrize("table", sorted(unambiguous_dna_by_id))
def test_each_table_translates_as_biopython_does(table):
    code, known = genetic_code(table), unambiguous_dna_by_id[table]
    assert {codon: code.translate(codon) for codon in CODONS} == {
        codon: known.forward_table.get(codon, "*") for codon in CODONS
    }
    assert code.stops == set(known.stop_codons)
    if not code.stops & known.forward_table.keys():
        assert code.translate("".join(CODONS)) == Seq("".join(CODONS)).translate(table=table)
    assert code.translate("ATGNNN") == "MX"


# NCBI's start codons; tables 1 and 11 have those of the standard code as before.
STARTS = {
    1: {"ATG", "GTG", "TTG", "CTG"},
    11: {"ATG", "GTG", "TTG", "CTG"},
    2: {"ATT", "ATC", "ATA", "ATG", "GTG"},
    3: {"ATA", "ATG", "GTG"},
    4: {"TTA", "TTG", "CTG", "ATT", "ATC", "ATA", "ATG", "GTG"},
    6: {"ATG"},
    22: {"ATG"},
    27: {"ATG"},
    28: {"ATG"},
    31: {"ATG"},
}


# Each table on one strand in one format, and each format on both strands.
WAYS = [(table, "+-"[n // 3 % 2], [*STATED][n % 3]) for n, table in enumerate(STARTS)]


@pytest.mark.parametrize(("table", "strand", "ending"), WAYS)
def test_every_snv_by_the_stated_table(tmp_path, ending, strand, table):
    write, mark = STATED[ending]
    start = sorted(STARTS[table])[table % len(STARTS[table])]
    more = tuple(sorted(set(unambiguous_dna_by_id[table].forward_table) & {"TGA", "TAA", "TAG"}))
    cds = random_cds(table, seed=table, start=start, more=more)
    text = write(cds, strand, mark.format(table))
    reference, annotation = opened(tmp_path, cds, strand, text, ending)
    for index, base, effect in terms(reference, annotation, cds, strand):
        assert effect.term == expected_term(table, cds, index, base, STARTS[table]), (index, base)
        assert effect.amino_acids[0] == read_by(table, cds)[index // 3]
    (transcript,) = annotation.genes[0].transcripts
    assert "".join(each.amino_acid for each in residues(reference, transcript)) == read_by(
        table, cds
    )
    assert cds_of_unknown_code(reference, annotation) == {}


@pytest.mark.parametrize(("ending", "strand"), [("gff3", "-"), ("gtf", "+"), ("gb", "-")])
def test_a_table_is_chosen_where_none_is_stated(tmp_path, ending, strand):
    write, mark = STATED[ending]
    cds = random_cds(4, seed=3, more=("TGA", "TGG"))

    def found(text, choice):
        reference, annotation = opened(tmp_path, cds, strand, text, ending, choice=choice)
        told = [effect.term for *_, effect in terms(reference, annotation, cds, strand)]
        return told, cds_of_unknown_code(reference, annotation)

    stated = found(write(cds, strand, mark.format(4)), None)
    assert UNTOLD not in stated[0] and stated[1] == {}
    for choice in (4, "4", "c1=4", "1,c1=4"):
        assert found(write(cds, strand), choice) == stated
    # What the file states holds against the choice.
    assert found(write(cds, strand, mark.format(4)), 1) == stated


@pytest.mark.parametrize("strand", "+-")
def test_stop_codons_inside_without_a_table_are_not_judged_by_stops(tmp_path, strand):
    cds = random_cds(4, seed=3, more=("TGA", "TGG"))
    text = gff3_of(cds, strand)
    reference, annotation = opened(tmp_path, cds, strand, text)
    assert cds_of_unknown_code(reference, annotation) == {"stop_codon_inside": 1}
    stops = {at for at in range(0, len(cds), 3) if cds[at : at + 3] == "TGA"}
    kept = set()
    for index, base, effect in terms(reference, annotation, cds, strand):
        expected = expected_term(1, cds, index, base, STARTS[1])
        if index - index % 3 in stops or expected.startswith("stop_"):
            expected = UNTOLD
        kept.add(expected)
        assert effect.term == expected
        assert (effect.codon is None) == (expected == UNTOLD)
    assert kept == {UNTOLD, "missense_variant", "synonymous_variant", "start_lost"}
    # With a table that is stated the stop codon is one, and the others are judged, as before.
    reference, annotation = opened(tmp_path, cds, strand, gff3_of(cds, strand, ";transl_table=11"))
    assert cds_of_unknown_code(reference, annotation) == {}
    told = {effect.term for *_, effect in terms(reference, annotation, cds, strand)}
    assert {"stop_gained", "stop_lost"} <= told


@pytest.mark.parametrize(
    ("write", "mark"),
    [
        (gff3_of, ";transl_except=(pos:70..72%2Caa:Sec)"),
        (genbank_of, "/transl_except=(pos:70..72,aa:Sec)"),
    ],
)
def test_a_stop_codon_that_is_said_to_be_an_amino_acid_needs_no_table(tmp_path, write, mark):
    cds = random_cds(1, seed=5, more=("TGA", "TGG"))
    ending = "gb" if write is genbank_of else "gff3"
    reference, annotation = opened(tmp_path, cds, "+", write(cds, "+", mark), ending)
    told = {effect.term for *_, effect in terms(reference, annotation, cds, "+")}
    assert "stop_gained" in told and cds_of_unknown_code(reference, annotation) == {}
    completed = mark.replace("aa:Sec", "aa:TERM")  # explains no stop codon inside
    reference, annotation = opened(tmp_path, cds, "+", write(cds, "+", completed), ending)
    assert cds_of_unknown_code(reference, annotation) == {"stop_codon_inside": 1}


def test_a_codon_that_is_either_is_a_stop_only_at_the_end_of_its_cds(tmp_path):
    # Table 27: TGA is a stop or tryptophan, TAA and TAG are glutamine.
    cds = "ATGTGGTGGTGGTGA"
    text = gff3_of(cds, "+", ";transl_table=27")
    reference, annotation = opened(tmp_path, cds, "+", text)
    (transcript,) = annotation.genes[0].transcripts

    def told(position, ref, alt):
        effect = effect_on(reference, transcript, Variant("c1", FLANK_BP + position, ref, alt))
        return effect.term, effect.amino_acids

    assert told(5, "G", "A") == ("synonymous_variant", "W")
    assert told(4, "G", "A") == ("missense_variant", "W/Q")  # TGG>TAG
    assert told(14, "A", "G") == ("stop_lost", "*/W")
    assert told(11, "G", "GTGA") == ("inframe_insertion", "-/W")
    # The same insertion, written at the other copy of TGA.
    assert told(14, "A", "ATGA") == ("inframe_insertion", "-/W")


def test_a_mitochondrion_without_a_table_is_counted_and_not_judged(tmp_path):
    cds = random_cds(3, seed=2)
    text = gff3_of(cds, "-", contig="Mito")
    reference, annotation = opened(tmp_path, cds, "-", text, contig="Mito")
    assert cds_of_unknown_code(reference, annotation) == {"mitochondrion": 1}
    assert {e.term for *_, e in terms(reference, annotation, cds, "-")} == {UNTOLD}
    assert residues(reference, annotation.genes[0].transcripts[0]) == []
    for choice in ("3", "1,Mito=3"):
        reference, annotation = opened(tmp_path, cds, "-", text, contig="Mito", choice=choice)
        assert cds_of_unknown_code(reference, annotation) == {}
        for index, base, effect in terms(reference, annotation, cds, "-"):
            assert effect.term == expected_term(3, cds, index, base, STARTS[3])


@pytest.mark.parametrize(
    ("choice", "message"),
    [
        *((table, "is not an NCBI translation table") for table in ("7", "0", "-1", "four", "")),
        ("4,5", "gives every contig two translation tables"),
        ("c1=4,c1=5", "gives contig 'c1' two translation tables"),
        ("c9=4", "contig 'c9'.* it has c1$"),
    ],
)
def test_an_impossible_choice_is_refused(tmp_path, choice, message):
    cds = random_cds(1, seed=0)
    with pytest.raises(GenomeError, match=message):
        opened(tmp_path, cds, "+", gff3_of(cds, "+"), choice=choice)
    assert tables_chosen(None) == {} and tables_chosen(4) == tables_chosen("4") == {"": 4}
    assert tables_chosen("1,Mito=3,a=b=4") == {"": 1, "Mito": 3, "a=b": 4}


@pytest.mark.parametrize(
    ("ending", "table"), [("gff3", "7"), ("gtf", "99"), ("gb", "XI"), ("gff3", "1111")]
)
def test_a_stated_table_that_does_not_exist_is_refused_by_line(tmp_path, ending, table):
    write, mark = STATED[ending]
    cds = random_cds(1, seed=0)
    place = r"record 1 \(c1\) M1" if ending == "gb" else f"line {4 if ending == 'gff3' else 1}"
    with pytest.raises(GenomeError, match=f"{place}: transl_table: .*{table}"):
        opened(tmp_path, cds, "+", write(cds, "+", mark.format(table)), ending)
    two = gff3_of(cds, "+", ";transl_table=4").replace("T1;", "T1;transl_table=11;", 1)
    with pytest.raises(GenomeError, match="line 2: transl_table=11, but 4 on another line"):
        opened(tmp_path, cds, "+", two)


def test_the_option_of_variants(tmp_path, network, capsys):
    """TGG>TGA of a gene without a table, and of one in table 4."""
    save_model(network, tmp_path / "model")
    cds = random_cds(4, seed=3, more=("TGG", "TGA", "TGG"))
    assert cds[39:48] == "TGGTGATGG"
    fasta = write_fasta(tmp_path / "r.fa", {"c1": contig_of(cds, "+")})
    (tmp_path / "g.gff3").write_text(gff3_of(cds, "+"))
    vcf = write_vcf(tmp_path / "in.vcf", [f"c1\t{FLANK_BP + 42}\t.\tG\tA\t.\t.\t."])
    words = f"variants --model {tmp_path}/model --reference {fasta} --vcf {vcf} --window 48"
    words += f" --annotation {tmp_path}/g.gff3 --output {tmp_path}/o.json"
    for more, counts, term in (
        ([], {"stop_codon_inside": 1}, UNTOLD),
        (["--genetic-code", "4"], {}, "synonymous_variant"),
    ):
        assert main([*words.split(), *more]) == 0
        told = capsys.readouterr()
        summary = json.loads(told.out)
        assert summary["cds_of_unknown_genetic_code"] == counts
        assert ("and no genetic code stated" in told.err) == bool(counts)
        assert summary.get("genetic_code") == (more[1] if more else None)
        (row,) = json.loads((tmp_path / "o.json").read_text())["rows"]
        assert row["consequence"] == term


def test_the_recipe_key_and_proteins_of_families(tmp_path):
    cds = random_cds(4, seed=3, more=("TGA", "TGG"))
    with pytest.raises(ConfigError, match="genetic_code: 7 is not an NCBI translation table"):
        AssemblyConfig(genome="g.fa", genetic_code=7)
    reference, annotation = opened(tmp_path, cds, "-", gff3_of(cds, "-"), choice=4)
    assert protein_of(annotation.genes[0], reference) == read_by(4, cds)[:-1]


def test_consequences_use_the_table_of_each_transcript(tmp_path):
    # Two genes of one file: the first states table 4, the second states none.
    cds = random_cds(4, seed=3, more=("TGG",))
    reference = Reference(
        write_fasta(tmp_path / "g.fa", dict.fromkeys(("c1", "c2"), contig_of(cds, "+")))
    )
    second = gff3_of(cds, "+", contig="c2").replace("1;", "2;").replace("1\n", "2\n")
    (tmp_path / "g.gff3").write_text(gff3_of(cds, "+", ";transl_table=4") + second)
    consequences = Consequences(reference, read_gene_file(tmp_path / "g.gff3", reference))
    at = FLANK_BP + 41  # TGG>TGA
    found = [consequences.of(Variant(c, at, "G", "A")).consequence for c in ("c1", "c2")]
    assert found == ["synonymous_variant", "stop_gained"]
