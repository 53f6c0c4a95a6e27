import errno
import gzip
import os
import random
from pathlib import Path

import pysam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carbon.errors import GenomeError
from carbon.genome import (
    IUPAC_DNA,
    Interval,
    Reference,
    Variant,
    fasta,
    from_region,
    read_annotation,
    read_sequences,
    reverse_complement,
    spliced,
    translate,
)
from carbon.genome.alphabet import IUPAC_BASES
from tests.helpers.files import place_gene, random_bases, write_fasta

dna = st.text(alphabet=IUPAC_DNA.replace("U", "") + "acgtn", max_size=60)


@given(dna)
def test_reverse_complement_twice_is_nothing(sequence):
    assert reverse_complement(reverse_complement(sequence)) == sequence


def test_reverse_complement_of_codes():
    # R is A or G, so its complement is C or T, which is Y; B is not A, so V is not T.
    assert reverse_complement("ARBNs") == "sNVYT"
    assert reverse_complement("AUu") == "aAT"


@pytest.mark.parametrize("end", [".fa", ".fa.gz"])
def test_u_in_a_fasta_is_read_as_t(tmp_path, end):
    path, text = tmp_path / f"rna{end}", ">a\nACGUuacN\nUUcg\n>b\nGGu \n"
    path.write_bytes(gzip.compress(text.encode()) if end == ".fa.gz" else text.encode())
    assert list(read_sequences(path)) == [("a", "ACGTtacNTTcg"), ("b", "GGt")]
    with Reference(path) as reference:
        assert reference.fetch(Interval("a", 2, 10)) == "GTtacNTT"
        assert reference.fetch_circular("a", 8, 16) == "TTcgACGT"
        assert reference.disagreement("a", 3, "T") is None


@given(st.integers(0, 50), st.integers(0, 50), st.integers(0, 60))
def test_intervals(start, length_bp, flank_bp):
    interval = Interval("c", start, start + length_bp)
    assert interval.length_bp == length_bp
    wide = interval.widened(flank_bp, 100)
    assert wide.start == max(0, start - flank_bp) and wide.end == min(100, interval.end + flank_bp)
    if length_bp:
        assert from_region(interval.to_region(), {"c": 200}) == interval


@given(*[st.integers(0, 12)] * 4)
def test_overlap_is_a_shared_base(a, b, c, d):
    first, second = Interval("c", min(a, b), max(a, b)), Interval("c", min(c, d), max(c, d))
    shared = set(range(first.start, first.end)) & set(range(second.start, second.end))
    assert first.overlaps(second) == bool(shared)
    assert not first.overlaps(Interval("other", second.start, second.end))


def test_coordinates_that_cannot_be():
    with pytest.raises(GenomeError, match="0 <= start <= end"):
        Interval("c", 5, 4)
    for text, message in (
        ("x:1-2", "no such contig"),
        *((text, "bases 1 to 100") for text in ("c:0-5", "c:3-101", "c:101-")),
        *((text, "first-last") for text in ("c:,-,", "c:-50", f"c:1-{'1' * 5000}")),
        ("c:500", "write c:500- or c:500-500"),
    ):
        with pytest.raises(GenomeError, match=message):
            from_region(text, {"c": 100})
    assert from_region("c:1,0-2,0", {"c": 100}) == Interval("c", 9, 20)
    assert from_region("c:1,0-", {"c": 100}) == Interval("c", 9, 100)


def test_what_can_be_scored():
    for ref, alt, reason in (
        ("a", "t", None), ("AC", "A", None), ("A", "<DEL>", "symbolic_allele"),
        ("A", "*", "symbolic_allele"), ("A", "A]c:4]", "symbolic_allele"),
        ("A", "N", "ambiguous_base"), ("R", "A", "ambiguous_base"), ("A", "a", "same_as_reference"),
    ):  # fmt: skip
        assert Variant("c", 0, ref, alt).why_unscorable() == reason


class TestFasta:
    contigs = {"one": random_bases(250, 1), "two": "acgtnN" * 20, "last": "A"}  # noqa: RUF012

    def paths(self, tmp_path):
        plain = write_fasta(tmp_path / "p.fa", self.contigs)
        zipped = write_fasta(tmp_path / "z.fa.gz", self.contigs)
        pysam.tabix_compress(str(plain), str(tmp_path / "b.fa.gz"))
        return plain, zipped, tmp_path / "b.fa.gz"

    def test_compressions_read_alike(self, tmp_path):
        for path in self.paths(tmp_path):
            for _ in range(2):  # without and with an index
                with Reference(path) as reference:
                    assert reference.contig_lengths_bp == {"one": 250, "two": 120, "last": 1}
                    span = Interval("one", 58, 130)
                    assert reference.fetch(span) == self.contigs["one"][58:130]
                    assert reference.fetch(Interval("one", 250, 250)) == ""
                    assert reference.fetch(Interval("two", 0, 120)) == self.contigs["two"]
            assert dict(read_sequences(path)) == self.contigs
        assert (tmp_path / "p.fa.fai").exists() and not (tmp_path / "z.fa.gz.fai").exists()

    def test_letters_of_an_indexed_file_that_are_none(self, tmp_path):
        path = tmp_path / "p.fa"
        path.write_text(f">c\n{'ACGT' * 15}\nACXT\n")
        pysam.faidx(str(path))
        with Reference(path) as reference:
            assert reference.disagreement("c", 61, "C") is None
            assert reference.disagreement("c", 62, "G") == ("ref_mismatch", "X")

    def test_a_ref_that_is_not_that_of_the_reference_is_named(self, tmp_path):
        with Reference(write_fasta(tmp_path / "p.fa", {"chr1": "ARNT"})) as reference:
            assert reference.check_ref("chr1", 0, "agNt", "here") is None
            assert reference.check_ref("chr1", 0, "AACT", "here") == "reference_unknown"
            for contig, start, ref, message in (
                ("chr1", 0, "AC", "here: REF is AC but"),
                ("chr1", 2, "ACC", "REF ends past the contig's 4 bases"),
                ("d", 0, "A", "no contig 'd' in the FASTA"),
                ("1", 0, "A", "'chr' prefix"),
            ):
                with pytest.raises(GenomeError, match=message):
                    reference.check_ref(contig, start, ref, "here")
            with pytest.raises(GenomeError, match="ends past the contig's 4 bases"):
                reference.fetch(Interval("chr1", 0, 5))

    @settings(max_examples=30)
    @given(data=st.data(), there=st.text("ACGTRYSWKMBDHVNacgtrn", min_size=1, max_size=8))
    def test_whether_a_ref_is_that_of_the_reference(self, tmp_path_factory, data, there):
        """Against the definition, base by base: known and the same, unknown, or another."""
        ref = data.draw(st.text("ACGTNacgtn", min_size=len(there), max_size=len(there)))
        pairs = [(a, b) for a, b in zip(ref.upper(), there.upper(), strict=True) if a != "N"]
        expected = None
        if any(a not in IUPAC_BASES[b] for a, b in pairs):
            expected = "ref_mismatch"
        elif any(b == "N" for _, b in pairs):
            expected = "reference_unknown"
        path = write_fasta(tmp_path_factory.mktemp("any") / "p.fa", {"c": there})
        with Reference(path) as reference:
            found = reference.disagreement("c", 0, ref)
        assert (found and found.reason) == expected

    @pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS, errno.ENOSPC])
    def test_nothing_is_written_where_that_is_not_possible(self, tmp_path, monkeypatch, reason):
        plain, _, packed = self.paths(tmp_path)
        there = sorted(tmp_path.iterdir())

        def fail(source, target):
            Path(target).write_bytes(b"half")
            raise OSError(reason, os.strerror(reason), str(target))

        monkeypatch.setattr(fasta.shutil, "copyfile", fail)
        for path in (plain, packed):
            with Reference(path) as reference:
                assert reference.fetch(Interval("last", 0, 1)) == "A"
        assert sorted(tmp_path.iterdir()) == there

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b">a\nACGT\nACGTACGT\nAC\n", "lines of a contig must have one length"),
            (gzip.compress(b">a\nAC\n>b\n", mtime=0), "the last contig must have a base"),
        ],
    )
    def test_damage_is_named_and_leaves_nothing(self, tmp_path, content, message):
        path = tmp_path / "bad.fa"
        path.write_bytes(content)
        with pytest.raises(GenomeError, match=f"{path}.*{message}"):
            Reference(path)
        assert [p.name for p in tmp_path.iterdir()] == ["bad.fa"]

    def test_lines_of_a_file_that_is_unpacked_may_have_any_length(self, tmp_path):
        path = tmp_path / "p.fa.gz"
        path.write_bytes(gzip.compress(b"\xef\xbb\xbf>a x\nACGT\nACGTACGT\nAC\n>c\nGG", mtime=0))
        with Reference(path) as reference:
            assert reference.contig_lengths_bp == {"a": 14, "c": 2}
            assert reference.fetch(Interval("a", 3, 13)) == "TACGTACGTA"
            assert reference.fetch(Interval("c", 0, 2)) == "GG"


class TestAnnotation:
    """What annotations are read as, each on a contig of 400 known bases."""

    def read(self, tmp_path, text, contigs=None, **options):
        (tmp_path / "a.gff").write_text(text)
        bases = random_bases(400, 3)
        contigs = contigs or {"c1": bases, "c2": bases[:300]}
        reference = Reference(write_fasta(tmp_path / "g.fa", contigs))
        return reference, read_annotation(tmp_path / "a.gff", reference, **options)

    @pytest.mark.parametrize("strand", ["+", "-"])
    @pytest.mark.parametrize("dialect", ["gff3", "gtf"])
    def test_one_gene_in_every_dialect_and_order_of_lines(self, tmp_path, dialect, strand):
        bases, gff3, gtf = place_gene(strand)
        lines = {"gff3": gff3, "gtf": gtf}[dialect].splitlines(keepends=True)
        reference, annotation = self.read(tmp_path, "".join(lines), {"c1": bases})
        ((gene,), (transcript,)) = annotation.genes, annotation.genes[0].transcripts
        assert (gene.gene_id, gene.name, gene.biotype) == ("g1", "ABC", "protein_coding")
        assert (gene.strand, gene.interval.length_bp) == (strand, 180)
        assert (transcript.transcript_id, transcript.cds_length_bp) == ("t1", 72)
        cds = spliced(reference, "c1", transcript.cds, strand)
        assert translate(cds) == "M" + ("YQLGA" * 5)[:22] + "*"
        (intron,) = transcript.introns
        bases_of_intron = spliced(reference, "c1", (intron,), strand)
        assert len(bases_of_intron) == 60
        assert (bases_of_intron[:2], bases_of_intron[-2:]) == ("GT", "AG")
        for seed in range(3):
            shuffled = [line for line in lines if not line.startswith("#")]
            random.Random(seed).shuffle(shuffled)
            (again,) = self.read(tmp_path, "".join(shuffled), {"c1": bases})[1].genes
            assert again.interval == gene.interval
            assert again.transcripts[0].cds == transcript.cds
            assert again.transcripts[0].exons == transcript.exons

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "has no feature"),
            ("c1\tx\tgene\t²\t9\t.\t+\t.\tID=g\n", "got '²'"),
            (f"c1\tx\tgene\t1\t{'1' * 5000}\t.\t+\t.\tID=g\n", "got '1' and '1111"),
            ("c1\tx\tgene\t0\t1\t.\t+\t.\tID=g\n", "got '0' and '1'"),
        ],
    )
    def test_damage_is_named(self, tmp_path, text, message):
        with pytest.raises(GenomeError, match=message):
            self.read(tmp_path, text)

    @pytest.mark.parametrize("place", [30, 90])
    def test_a_flipped_bit_is_one_line(self, tmp_path, place):
        bases, gff3, _ = place_gene()
        reference = Reference(write_fasta(tmp_path / "g.fa", {"c1": bases}))
        zipped = bytearray(gzip.compress(gff3.encode(), mtime=0))
        zipped[place] ^= 8
        path = tmp_path / "b.gz"
        path.write_bytes(zipped)
        for read in (lambda: read_annotation(path, reference), lambda: Reference(path)):
            with pytest.raises(GenomeError) as error:
                read()
            assert "\n" not in str(error.value)

    def test_features_across_the_origin_of_a_circle(self, tmp_path):
        """The circle may be named after what crosses it."""
        circle = "c1\tx\tregion\t1\t400\t.\t+\t.\tID=c;Is_circular=true\n"
        across = "c1\tx\tgene\t390\t410\t.\t+\t.\tID=g9\n"
        reference, annotation = self.read(tmp_path, across + place_gene()[1] + circle)
        assert annotation.circular == {"c1"} and annotation.left_out == ()
        (gene,) = (g for g in annotation.genes if g.gene_id == "g9")
        assert (gene.interval.start, gene.interval.end) == (389, 410)
        whole = reference.fetch(Interval("c1", 0, 400))
        expected = whole[389:] + whole[:10]
        assert spliced(reference, "c1", ((389, 410), (415, 420)), "+") == expected + whole[15:20]
        assert spliced(reference, "c1", ((389, 410),), "-") == reverse_complement(expected)

    def test_two_proteins_of_one_gene(self, tmp_path):
        """As NCBI writes those of bacteria: CDS of their own right below the gene."""
        text = (
            "\ufeffc1\tx\tgene\t11\t70\t.\t+\t.\tID=gene-g1\n"  # and a byte order mark
            "c1\tx\tCDS\t11\t70\t.\t+\t0\tID=cds-P1;Parent=gene-g1\n"
            "c1\tx\tCDS\t11\t40\t.\t+\t0\tID=cds-P2;Parent=gene-g1\n"
            "c1\tx\tCDS\t40\t49\t.\t+\t0\tID=cds-P2;Parent=gene-g1\n"
            "c1\tx\tpseudogene\t111\t140\t.\t-\t.\tID=gene-g2;Name=abc\n"
        )
        first, second = self.read(tmp_path, text)[1].genes
        one, two = first.transcripts
        assert (one.transcript_id, one.cds) == ("P1", ((10, 70),))
        assert (two.transcript_id, two.cds, two.exons) == ("P2", ((10, 40), (39, 49)), ((10, 49),))
        assert (second.gene_id, second.name, second.transcripts) == ("g2", "abc", ())
        assert (second.interval, second.strand) == (Interval("c1", 110, 140), "-")

    def test_one_name_of_several_genes_in_a_gtf(self, tmp_path):
        """The ends of X and Y; and one transcript ID for every gene, as of NCBI's bacteria."""
        told = 'gene_id "g"; transcript_id "t";'
        text = "".join(f"{c}\tx\texon\t11\t40\t.\t+\t.\t{told}\n" for c in ("c1", "c2"))
        _, found = self.read(tmp_path, text)
        assert [(gene.gene_id, gene.interval.contig) for gene in found.genes] == [
            ("g", "c1"), ("g", "c2")
        ]  # fmt: skip
        told = 'transcript_id "unknown_transcript_1"; gene_id'
        text = "".join(
            f'c1\tx\tCDS\t{at}\t{at + 29}\t.\t+\t0\t{told} "b{at}";\n' for at in (11, 101, 201)
        )
        genes = self.read(tmp_path, text)[1].genes
        assert [gene.gene_id for gene in genes] == ["b11", "b101", "b201"]
        assert [gene.transcripts[0].cds_length_bp for gene in genes] == [30, 30, 30]

    def test_other_coordinates_and_names(self, tmp_path):
        lines = [
            f"21\tx\t{kind}\t{first}\t{last}\t.\t+\t.\t{told}\n"
            for first, last, name in ((1011, 1040, "in"), (900, 1020, "across"), (5, 9, "before"))
            for kind, told in (("gene", f"ID={name}"), ("exon", f"Parent={name}"))
        ]
        names = {"21": "c1"}
        _, found = self.read(tmp_path, "".join(lines), contig_names=names, offset_bp=1000)
        (gene,) = found.genes
        assert (gene.gene_id, gene.interval.start, gene.interval.end) == ("in", 10, 40)
        assert sorted((each.name, each.reason, each.intervals) for each in found.left_out) == [
            ("across", "outside_of_the_sequence", (Interval("c1", 0, 20),)),
            ("before", "outside_of_the_sequence", ()),
        ]
        with pytest.raises(GenomeError, match=r"ends at 1040, but .* annotation_offset_bp"):
            self.read(tmp_path, "".join(lines), contig_names=names)

    def test_a_mature_microrna_is_no_transcript_of_its_own(self, tmp_path):
        text = (
            "c1\tx\tgene\t11\t90\t.\t+\t.\tID=g1\n"
            "c1\tx\tprimary_transcript\t11\t90\t.\t+\t.\tID=r1;Parent=g1\n"
            "c1\tx\texon\t11\t90\t.\t+\t.\tParent=r1\n"
            "c1\tx\tmiRNA\t31\t50\t.\t+\t.\tID=m1;Parent=r1\n"
            "c1\tx\texon\t31\t50\t.\t+\t.\tParent=m1\n"
        )
        _, found = self.read(tmp_path, text)
        ((transcript,),) = (gene.transcripts for gene in found.genes)
        assert transcript.exons == ((10, 90),)
        assert [(each.name, each.reason) for each in found.left_out] == [("m1", "mature_mirna")]
