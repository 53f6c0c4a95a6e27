"""`carbon corpus`: labelled variants and the frames of an annotation that is odd."""

from collections import Counter
from urllib.parse import unquote

import pysam
import pytest

from carbon.genome import Interval, Reference, read_annotation
from data_pipeline.__main__ import main
from data_pipeline.cuts import check_cds
from data_pipeline.variants import choose_variants
from tests.helpers.coding import as_gff3, build_gene
from tests.helpers.files import place_gene, random_bases, write_fasta


def write_variants(folder, contigs, gff3, *more):
    (folder / "g.gff3").write_text(gff3, encoding="utf-8")
    write_fasta(folder / "g.fa", contigs)
    words = ["--genome", f"{folder}/g.fa", "--annotation", f"{folder}/g.gff3"]
    words += [word for contig in contigs for word in ("--region", contig)]
    return main(["variants", *words, "--output", str(folder / "v.vcf"), *more])


@pytest.mark.parametrize("name", ["a;b,c=d e", "a%0Ab", "50%25é"])
def test_names_that_vcf_must_escape_are_read_back(tmp_path, name):
    bases, gff3, _ = place_gene()
    written = name.replace(",", "%2C").replace(";", "%3B")
    gff3 = gff3.replace("=t1", f"={written}")
    assert write_variants(tmp_path, {"c1": bases, "c2": random_bases(4000, 2)}, gff3) == 0
    with pysam.VariantFile(str(tmp_path / "v.vcf")) as vcf:
        records = list(vcf)
    found = {unquote(r.info["TRANSCRIPT"]) for r in records if "TRANSCRIPT" in r.info}
    assert found == {unquote(name)}
    assert all(set(r.info) <= {"LABEL", "EFFECT", "TRANSCRIPT"} for r in records)


def test_the_number_of_variants_is_reported_next_to_the_number_asked_for(tmp_path, capsys):
    bases, gff3, _ = place_gene()
    contigs = {"c1": bases, "c2": random_bases(4000, 2)}
    assert write_variants(tmp_path, contigs, gff3, "--variants", "9000") == 0
    with pysam.VariantFile(str(tmp_path / "v.vcf")) as vcf:
        counts = Counter(record.info["EFFECT"] for record in vcf)
    assert 0 < counts.total() < 9000 and len(counts) > 2
    effects = ", ".join(f"{counts[effect]} {effect}" for effect in sorted(counts))
    line = f"{counts.total()} variants (--variants 9000): {effects}"
    assert capsys.readouterr().err.splitlines()[-1] == line


@pytest.mark.parametrize("contig", ["c<1>", "cé"])
def test_a_contig_that_a_vcf_cannot_name_is_refused(tmp_path, capsys, contig):
    bases, gff3, _ = place_gene()
    contigs = {"c1": bases, contig: random_bases(4000, 2)}
    assert write_variants(tmp_path, contigs, gff3) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "a VCF cannot hold the contig name" in line and contig in line
    assert not (tmp_path / "v.vcf").exists()


def test_without_a_region_the_whole_genome_is_looked_through(tmp_path):
    bases, gff3, _ = place_gene()
    contigs = {"c1": bases, "c2": random_bases(4000, 2)}
    assert write_variants(tmp_path, contigs, gff3) == 0
    told = (tmp_path / "v.vcf").read_bytes()
    words = ["--genome", f"{tmp_path}/g.fa", "--annotation", f"{tmp_path}/g.gff3"]
    assert main(["variants", *words, "--output", str(tmp_path / "again.vcf")]) == 0
    assert (tmp_path / "again.vcf").read_bytes() == told


def test_a_cds_that_begins_in_a_codon_labels_nothing_by_the_wrong_frame(tmp_path):
    """From its first base on it is an open reading frame all the same."""
    bases, gff3, _ = place_gene()
    contigs = {"c1": bases, "c2": random_bases(4000, 2)}
    regions = [Interval(name, 0, len(text)) for name, text in contigs.items()]
    (tmp_path / "a.gff3").write_text(gff3)
    with Reference(write_fasta(tmp_path / "g.fa", contigs)) as reference:
        whole = read_annotation(tmp_path / "a.gff3", reference)
        assert choose_variants(reference, whole, regions, 99, 0)
        (tmp_path / "a.gff3").write_text(gff3.replace("+\t.\tID=p1", "+\t2\tID=p1"))
        cut = read_annotation(tmp_path / "a.gff3", reference)
        with pytest.raises(Exception, match="no coding transcript"):
            choose_variants(reference, cut, regions, 99, 0)


class TestFrames:
    def check(self, folder, gene, gff3):
        (folder / "g.gff3").write_text(gff3)
        reference = Reference(write_fasta(folder / "g.fa", {"c1": gene.contig}))
        check_cds(read_annotation(folder / "g.gff3", reference))

    @pytest.mark.parametrize(
        ("strand", "phase_bp", "leftover_bp"),
        [("+", 1, 0), ("-", 1, 2)],
    )
    def test_a_phase_says_that_a_cds_is_partial(self, tmp_path, strand, phase_bp, leftover_bp):
        gene = build_gene(1, strand, phase_bp, leftover_bp)
        self.check(tmp_path, gene, as_gff3(gene))

    def test_a_mark_says_that_a_cds_is_partial(self, tmp_path):
        gene = build_gene(1, "+", 0, 1)
        for mark in ("tag=cds_end_NF", "end_range=9,.", "partial=true"):
            self.check(tmp_path, gene, as_gff3(gene, f";{mark}"))

    def test_without_one_the_setting_that_lets_it_go_on_is_named(self, tmp_path):
        gene = build_gene(1, "+", 0, 1)
        with pytest.raises(Exception, match=r"g\.gff3 line 4: .*'t1' has 37 bases.* \"drop\""):
            self.check(tmp_path, gene, as_gff3(gene))


def test_an_input_is_not_overwritten(tmp_path, capsys):
    bases, gff3, _ = place_gene()
    write_fasta(tmp_path / "genome", {"c1": bases})
    (tmp_path / "annotation").write_text(gff3)
    words = [f"--{name}={tmp_path / name}" for name in ("genome", "annotation")]
    assert main(["variants", *words, "--region", "c1", f"--output={tmp_path / 'annotation'}"]) == 2
    assert "annotation: is an input too" in capsys.readouterr().err
    assert (tmp_path / "annotation").read_text() == gff3
