"""Codons of a host: which genes count, and which genetic codes are refused."""

from collections import Counter

import pytest
from Bio.Data.CodonTable import unambiguous_dna_by_id

from carbon.errors import GenomeError
from carbon.genome.codon_usage import codon_usage
from carbon.genome.genome import Genome
from tests.helpers.codes import contig_of, genbank_of, gff3_of, random_cds
from tests.helpers.files import write_fasta

STANDARD = unambiguous_dna_by_id[1].forward_table


def host(folder, genes):
    """Open a GenBank host; `genes` are a CDS and its qualifiers by contig."""
    text = "".join(genbank_of(cds, "+", words, name) for name, (cds, words) in genes.items())
    (folder / "g.gb").write_text(text)
    sequences = {name: contig_of(cds, "+") for name, (cds, _) in genes.items()}
    return Genome.open(write_fasta(folder / "g.fa", sequences), folder / "g.gb")


def codons(cds):
    return Counter(cds[at : at + 3] for at in range(0, len(cds), 3))


def test_pseudogenes_and_other_codes_are_left_out_and_reported(tmp_path, capsys):
    plain, bacterial, dead = (random_cds(1, seed) for seed in (1, 2, 3))
    declared, undeclared = (random_cds(4, seed, more=("TGA", "TGG")) for seed in (4, 5))
    genes = {
        "a": (plain, ""),
        "b": (bacterial, "/transl_table=11"),
        "c": (dead, "/pseudo"),
        "d": (declared, "/transl_table=4"),
        "e": (undeclared, ""),
    }
    assert codon_usage(host(tmp_path, genes)) == codons(plain) + codons(bacterial)
    (line,) = capsys.readouterr().err.splitlines()
    assert "codon usage: left out 3: " in line
    for reason in ("codons_unknown", "other_genetic_code", "stop_codon_inside"):
        assert f"1 {reason} (e.g. " in line


@pytest.mark.parametrize("table", sorted(unambiguous_dna_by_id))
def test_every_code_counts_as_the_standard_one_or_is_refused(tmp_path, table):
    cds = random_cds(table, table)
    genome = host(tmp_path, {"a": (cds, f"/transl_table={table}")})
    if unambiguous_dna_by_id[table].forward_table == STANDARD:
        assert codon_usage(genome) == codons(cds)
    else:
        with pytest.raises(GenomeError, match=r"g\.gb: 1 of 1 CDS have another genetic code"):
            codon_usage(genome)


@pytest.mark.parametrize("contig", ["c1", "Mito"])
def test_a_code_that_the_annotation_does_not_state(tmp_path, contig):
    """TGA inside a CDS, or the name of a mitochondrion, shows that the code is another one."""
    cds = random_cds(4, 6, more=("TGA",) if contig == "c1" else ())
    fasta = write_fasta(tmp_path / "g.fa", {contig: contig_of(cds, "+")})
    (tmp_path / "g.gff3").write_text("##gff-version 3\n" + gff3_of(cds, "+", contig=contig))
    with pytest.raises(GenomeError, match="another genetic code"):
        codon_usage(Genome.open(fasta, tmp_path / "g.gff3"))
