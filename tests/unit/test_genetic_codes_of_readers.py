"""Genetic codes in what reads an annotation besides `carbon variants`."""

import json
from collections import Counter

import pytest

from carbon.genome import Reference, read_annotation
from carbon.genome.genome import Genome
from data_pipeline.__main__ import main
from data_pipeline.inputs.assemblies import opened
from data_pipeline.recipe import AssemblyConfig
from data_pipeline.variants import _of_transcript
from demo.coding import residues
from eval.tasks.common.coding import coding_exons
from eval.tasks.common.held_out import HeldOutGenes
from tests.helpers.codes import FLANK_BP, contig_of, genbank_of, gff3_of, random_cds, read_by
from tests.helpers.files import write_fasta

# Table 4: TGA is tryptophan, so that the standard code reads two stop codons inside.
CDS = random_cds(4, seed=3, more=("TGA", "TGG", "TGA", *["GCT"] * 10))


def files(folder, *, mark="", contig="c1", cds=CDS):
    fasta = write_fasta(folder / "g.fa", {contig: contig_of(cds, "+")})
    (folder / "g.gff3").write_text(gff3_of(cds, "+", mark, contig))
    return fasta, folder / "g.gff3"


def test_a_genome_opened_with_a_code(tmp_path):
    genome = Genome.open(*files(tmp_path), None, "4")
    (gene,) = genome.annotation.genes
    protein = "".join(each.amino_acid for each in residues(genome.reference, gene.transcripts[0]))
    assert protein == read_by(4, CDS)


@pytest.mark.parametrize("is_genbank", [True, False])
def test_an_assembly_of_a_recipe(tmp_path, is_genbank):
    fasta, genes = files(tmp_path)
    (tmp_path / "g.gb").write_text(genbank_of(CDS, "+"))
    place = {"genome": str(tmp_path / "g.gb")}
    if not is_genbank:
        place = {"genome": str(fasta), "annotation": str(genes)}
    for table, expected in ((0, None), (4, 4)):
        with opened(AssemblyConfig(**place, genetic_code=table, species_type="pro")) as assembly:
            (gene,) = assembly.annotation.genes
            assert gene.transcripts[0].genetic_code == expected


def test_labelled_variants_by_the_chosen_code(tmp_path, capsys):
    fasta, genes = files(tmp_path)
    words = ["variants", "--genome", str(fasta), "--annotation", str(genes)]
    words += ["--variants", "9", "--output", str(tmp_path / "o.vcf")]
    # By the standard code the CDS is no open reading frame, and nothing of it can be damaged.
    assert main(words) == 2
    assert "no coding transcript" in capsys.readouterr().err
    assert main([*words, "--genetic-code", "7"]) == 2
    assert "7 is not an NCBI translation table" in capsys.readouterr().err
    with Reference(fasta) as reference:
        annotation = read_annotation(genes, reference, genetic_code=4)
        (transcript,) = annotation.genes[0].transcripts
        labelled = list(_of_transcript(reference, transcript))
    assert len(labelled) == 3 * (len(CDS) - 3)
    for variant, effect, _ in labelled:
        index = variant.position - FLANK_BP
        changed = CDS[:index] + variant.alt + CDS[index + 1 :]
        old, new = read_by(4, CDS), read_by(4, changed)
        expected = "synonymous" if old == new else "missense"
        expected = "nonsense" if new[index // 3] == "*" else expected
        assert effect == ("start_loss" if index < 3 else expected)


def test_a_start_codon_that_stays_one_is_not_lost(tmp_path):
    """ATA begins proteins of vertebrate mitochondria (table 2) and codes for M there."""
    fasta, genes = files(tmp_path)
    with Reference(fasta) as reference:
        (gene,) = read_annotation(genes, reference, genetic_code=2).genes
        labelled = list(_of_transcript(reference, gene.transcripts[0]))
    lost = {(v.position - FLANK_BP, v.alt) for v, effect, _ in labelled if effect == "start_loss"}
    assert lost == {(at, alt) for at, ref in enumerate("ATG") for alt in "ACGT" if alt != ref} - {
        (2, "A")
    }


def test_held_out_genes_of_another_code_are_left_out(tmp_path):
    cds = random_cds(1, seed=3)
    fasta, genes = files(tmp_path, cds=cds)
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    manifest = {"held_out": ["c1"], "outputs": {}, "sources": {}}
    (corpus / "manifest.json").write_text(json.dumps(manifest))
    for choice, expected in ((None, 1), ("11", 1), ("4", 0), ("c1=4", 0)):
        found = HeldOutGenes(str(corpus), Reference(fasta), genes, None, choice)
        assert len(found.coding()) == expected


@pytest.mark.parametrize("table", [1, 4, 11])
def test_tasks_of_codons_leave_out_other_codes(tmp_path, table):
    """Also where the CDS has no codon that the two read differently."""
    cds = random_cds(1, seed=3)
    fasta, genes = files(tmp_path, cds=cds, mark=f";transl_table={table}")
    dropped = Counter()
    with Reference(fasta) as reference:
        found = list(coding_exons(reference, read_annotation(genes, reference), dropped))
    assert len(found) == (table != 4)
    assert dropped == ({"another_genetic_code": 1} if table == 4 else {})
