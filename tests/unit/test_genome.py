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


def test_translation():
    assert translate("atggcNTGA") == "MX*"
    with pytest.raises(GenomeError, match="4 bases"):
        translate("ATGA")


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
        ("c:0-5", "bases 1 to 100"),
        ("c:3-101", "bases 1 to 100"),
        ("c:,-,", "first-last"),
        ("c:500", "write c:500- or c:500-500"),
        ("c:-50", "first-last"),
        ("c:101-", "bases 1 to 100"),
        (f"c:1-{'1' * 5000}", "first-last"),
    ):
        with pytest.raises(GenomeError, match=message):
            from_region(text, {"c": 100})
    assert from_region("c:1,0-2,0", {"c": 100}) == Interval("c", 9, 20)
    assert from_region("c:1,0-", {"c": 100}) == Interval("c", 9, 100)


@pytest.mark.parametrize(
    ("ref", "alt", "reason"),
    [
        ("A", "T", None),
        ("a", "t", None),
        ("AC", "A", None),
        ("A", "<DEL>", "symbolic_allele"),
        ("A", "*", "symbolic_allele"),
        ("A", "A]c:4]", "symbolic_allele"),
        ("A", "N", "ambiguous_base"),
        ("R", "A", "ambiguous_base"),
        ("A", "a", "same_as_reference"),
    ],
)
def test_what_can_be_scored(ref, alt, reason):
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

    @pytest.mark.parametrize("index", ["", "nonsense\n", "one\tx\ty\n"])
    def test_a_broken_index_is_made_anew(self, tmp_path, index):
        path = write_fasta(tmp_path / "p.fa", self.contigs)
        (tmp_path / "p.fa.fai").write_text(index)
        with Reference(path) as reference:
            assert reference.contig_lengths_bp == {"one": 250, "two": 120, "last": 1}

    def test_a_code_agrees_with_its_bases(self, tmp_path):
        with Reference(write_fasta(tmp_path / "p.fa", {"c": "ARNT"})) as reference:
            for ref in ("AANT", "agNt", "NN", "ag"):
                assert reference.check_ref("c", 0, ref, "here") is None
            for ref in ("AACT", "arct", "NNC", "ANR"):
                assert reference.check_ref("c", 0, ref, "here") == "reference_unknown"
            for ref in ("AC", "ACC", "AY", "AAAG"):
                with pytest.raises(GenomeError, match=f"here: REF is {ref} but"):
                    reference.check_ref("c", 0, ref, "here")
            with pytest.raises(GenomeError, match="REF ends past the contig's 4 bases"):
                reference.check_ref("c", 2, "ACC", "here")
            with pytest.raises(GenomeError, match="no contig 'd' in the FASTA"):
                reference.check_ref("d", 0, "A", "here")

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
            (b"ACGT\n", "line 1: expected a header"),
            (b">a\nACGT\nACGTACGT\nAC\n", "lines of a contig must have one length"),
            (gzip.compress(b">a\nAC\n>b\n", mtime=0), "the last contig must have a base"),
            (gzip.compress(b">a\n" + b"ACGT" * 9999, mtime=0)[:-20], "fetch it again"),
        ],
    )
    def test_damage_is_named_and_leaves_nothing(self, tmp_path, content, message):
        path = tmp_path / "bad.fa"
        path.write_bytes(content)
        with pytest.raises(GenomeError, match=message) as error:
            Reference(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
        assert [p.name for p in tmp_path.iterdir()] == ["bad.fa"]

    @pytest.mark.parametrize("start", [b"", b"\xef\xbb\xbf"])
    def test_lines_of_a_file_that_is_unpacked_may_have_any_length(self, tmp_path, start):
        path = tmp_path / "p.fa.gz"
        path.write_bytes(gzip.compress(start + b">a x\nACGT\nACGTACGT\nAC\n>c\nGG", mtime=0))
        with Reference(path) as reference:
            assert reference.contig_lengths_bp == {"a": 14, "c": 2}
            assert reference.fetch(Interval("a", 3, 13)) == "TACGTACGTA"
            assert reference.fetch(Interval("c", 0, 2)) == "GG"

    def test_questions_that_have_no_answer(self, tmp_path):
        with pytest.raises(GenomeError, match="no such file"):
            Reference(tmp_path / "absent.fa")
        with Reference(write_fasta(tmp_path / "p.fa", {"chr1": "ACGT"})) as reference:
            with pytest.raises(GenomeError, match="'chr' prefix"):
                reference.fetch(Interval("1", 0, 1))
            with pytest.raises(GenomeError, match="ends past the contig's 4 bases"):
                reference.fetch(Interval("chr1", 0, 5))


class TestAnnotation:
    def write(self, tmp_path, text, strand="+", name="a.gff3"):
        bases, gff3, gtf = place_gene(strand)
        reference = Reference(write_fasta(tmp_path / "g.fa", {"c1": bases}))
        path = tmp_path / name
        path.write_text({"gff3": gff3, "gtf": gtf}.get(text, text))
        return reference, path

    @pytest.mark.parametrize("strand", ["+", "-"])
    @pytest.mark.parametrize("dialect", ["gff3", "gtf"])
    def test_one_gene_in_every_dialect(self, tmp_path, dialect, strand):
        reference, path = self.write(tmp_path, dialect, strand)
        (gene,) = read_annotation(path, reference).genes
        (transcript,) = gene.transcripts
        assert (gene.gene_id, gene.name, gene.biotype) == ("g1", "ABC", "protein_coding")
        assert (gene.strand, gene.interval.length_bp) == (strand, 180)
        assert transcript.transcript_id == "t1"
        assert transcript.cds_length_bp == 72
        cds = spliced(reference, "c1", transcript.cds, strand)
        assert translate(cds) == "M" + ("YQLGA" * 5)[:22] + "*"
        (intron,) = transcript.introns
        bases = spliced(reference, "c1", (intron,), strand)
        assert len(bases) == 60 and bases[:2] == "GT" and bases[-2:] == "AG"

    @pytest.mark.parametrize("dialect", ["gff3", "gtf"])
    def test_order_of_lines_does_not_matter(self, tmp_path, dialect):
        reference, path = self.write(tmp_path, dialect)
        expected = read_annotation(path, reference).genes
        lines = path.read_text().splitlines(keepends=True)
        for seed in range(3):
            shuffled = [line for line in lines if not line.startswith("#")]
            random.Random(seed).shuffle(shuffled)
            path.write_text("".join(shuffled))
            (gene,) = read_annotation(path, reference).genes
            assert gene.interval == expected[0].interval
            assert gene.transcripts[0].cds == expected[0].transcripts[0].cds
            assert gene.transcripts[0].exons == expected[0].transcripts[0].exons

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
        reference, path = self.write(tmp_path, text)
        with pytest.raises(GenomeError) as error:
            read_annotation(path, reference)
        assert str(path) in str(error.value) and message in str(error.value)

    @pytest.mark.parametrize("place", [30, 60, 90, 120])
    def test_a_flipped_bit_is_one_line(self, tmp_path, place):
        reference, path = self.write(tmp_path, "gff3")
        zipped = bytearray(gzip.compress(path.read_bytes(), mtime=0))
        zipped[place] ^= 8
        (tmp_path / "b.gff3.gz").write_bytes(zipped)
        (tmp_path / "b.fa").write_bytes(zipped)
        for read in (
            lambda: read_annotation(tmp_path / "b.gff3.gz", reference),
            lambda: Reference(tmp_path / "b.fa"),
        ):
            with pytest.raises(GenomeError) as error:
                read()
            assert "\n" not in str(error.value)

    def test_features_across_the_origin_of_a_circle(self, tmp_path):
        """The circle may be named after what crosses it."""
        circle = "c1\tx\tregion\t1\t400\t.\t+\t.\tID=c;Is_circular=true\n"
        across = "c1\tx\tgene\t390\t410\t.\t+\t.\tID=g9\n"
        reference, path = self.write(tmp_path, across + place_gene()[1] + circle)
        annotation = read_annotation(path, reference)
        assert annotation.circular == {"c1"} and annotation.left_out == ()
        (gene,) = (g for g in annotation.genes if g.gene_id == "g9")
        assert (gene.interval.start, gene.interval.end) == (389, 410)
        whole = reference.fetch(Interval("c1", 0, 400))
        assert spliced(reference, "c1", ((389, 410), (415, 420)), "+") == (
            whole[389:] + whole[:10] + whole[15:20]
        )
        assert spliced(reference, "c1", ((389, 410),), "-") == reverse_complement(
            whole[389:] + whole[:10]
        )


class TestDialects:
    """What annotations do beside the plain case, each on a contig of 400 known bases."""

    def read(self, tmp_path, text, **options):
        bases = random_bases(400, 3)
        (tmp_path / "a.gff").write_text(text)
        reference = Reference(write_fasta(tmp_path / "g.fa", {"c1": bases, "c2": bases[:300]}))
        return read_annotation(tmp_path / "a.gff", reference, **options)

    def test_a_gene_without_exons(self, tmp_path):
        found = self.read(tmp_path, "c1\tx\tpseudogene\t11\t40\t.\t-\t.\tID=gene-g1;Name=abc\n")
        (gene,) = found.genes
        assert (gene.gene_id, gene.name, gene.transcripts) == ("g1", "abc", ())
        assert (gene.interval.start, gene.interval.end, gene.strand) == (10, 40, "-")

    def test_two_proteins_of_one_gene(self, tmp_path):
        """As NCBI writes those of bacteria: CDS of their own right below the gene."""
        found = self.read(
            tmp_path,
            "c1\tx\tgene\t11\t70\t.\t+\t.\tID=gene-g1\n"
            "c1\tx\tCDS\t11\t70\t.\t+\t0\tID=cds-P1;Parent=gene-g1\n"
            "c1\tx\tCDS\t11\t40\t.\t+\t0\tID=cds-P2;Parent=gene-g1\n"
            "c1\tx\tCDS\t40\t49\t.\t+\t0\tID=cds-P2;Parent=gene-g1\n",
        )
        ((one, two),) = (gene.transcripts for gene in found.genes)
        assert (one.transcript_id, one.cds) == ("P1", ((10, 70),))
        assert (two.transcript_id, two.cds, two.exons) == ("P2", ((10, 40), (39, 49)), ((10, 49),))

    def test_one_name_on_two_contigs_is_two_genes_in_a_gtf(self, tmp_path):
        """The ends of X and Y."""
        told = 'gene_id "g"; transcript_id "t";'
        text = "".join(f"{c}\tx\texon\t11\t40\t.\t+\t.\t{told}\n" for c in ("c1", "c2"))
        found = self.read(tmp_path, text)
        assert [gene.interval.contig for gene in found.genes] == ["c1", "c2"]
        assert {gene.gene_id for gene in found.genes} == {"g"} and found.left_out == ()

    def test_other_coordinates_and_names(self, tmp_path):
        lines = [
            f"21\tx\t{kind}\t{first}\t{last}\t.\t+\t.\t{told}\n"
            for first, last, name in ((1011, 1040, "in"), (900, 1020, "across"), (5, 9, "before"))
            for kind, told in (("gene", f"ID={name}"), ("exon", f"Parent={name}"))
        ]
        names = {"21": "c1"}
        found = self.read(tmp_path, "".join(lines), contig_names=names, offset_bp=1000)
        (gene,) = found.genes
        assert (gene.gene_id, gene.interval.start, gene.interval.end) == ("in", 10, 40)
        assert sorted((each.name, each.reason, each.intervals) for each in found.left_out) == [
            ("across", "outside_of_the_sequence", (Interval("c1", 0, 20),)),
            ("before", "outside_of_the_sequence", ()),
        ]
        with pytest.raises(GenomeError, match=r"ends at 1040, but .* annotation_offset_bp"):
            self.read(tmp_path, "".join(lines), contig_names=names)

    def test_one_transcript_id_for_every_gene(self, tmp_path):
        """As NCBI's GTF of bacteria has it."""
        told = 'transcript_id "unknown_transcript_1"; gene_id'
        text = "".join(
            f'c1\tx\tCDS\t{at}\t{at + 29}\t.\t+\t0\t{told} "b{at}";\n' for at in (11, 101, 201)
        )
        genes = self.read(tmp_path, text).genes
        assert [gene.gene_id for gene in genes] == ["b11", "b101", "b201"]
        assert [gene.transcripts[0].cds_length_bp for gene in genes] == [30, 30, 30]

    def test_a_mature_microrna_is_no_transcript_of_its_own(self, tmp_path):
        found = self.read(
            tmp_path,
            "c1\tx\tgene\t11\t90\t.\t+\t.\tID=g1\n"
            "c1\tx\tprimary_transcript\t11\t90\t.\t+\t.\tID=r1;Parent=g1\n"
            "c1\tx\texon\t11\t90\t.\t+\t.\tParent=r1\n"
            "c1\tx\tmiRNA\t31\t50\t.\t+\t.\tID=m1;Parent=r1\n"
            "c1\tx\texon\t31\t50\t.\t+\t.\tParent=m1\n",
        )
        ((transcript,),) = (gene.transcripts for gene in found.genes)
        assert transcript.exons == ((10, 90),)
        assert [(each.name, each.reason) for each in found.left_out] == [("m1", "mature_mirna")]

    def test_a_byte_order_mark(self, tmp_path):
        found = self.read(tmp_path, "\ufeffc1\tx\tgene\t11\t40\t.\t-\t.\tID=g1\n")
        assert [gene.gene_id for gene in found.genes] == ["g1"]


@pytest.mark.parametrize("what", ["other bases", "other names", "a protein", "longer", "shorter"])
@pytest.mark.parametrize("is_older", [True, False])
def test_an_index_of_another_file_is_made_again(tmp_path, what, is_older):
    """A file put in the place of another may be older than the index of that; plain and bgzip."""
    bases = {"c1": random_bases(130, 1), "c2": random_bases(70, 2)}
    other = {
        "other bases": {"c1": random_bases(131, 3), "c2": random_bases(70, 2)},
        "other names": {"d1": bases["c1"], "d2": bases["c2"]},
        "a protein": {"c1": "MEF" * 40 + "M" * 10, "c2": "MEF" * 23 + "M"},
        "longer": bases | {"c3": random_bases(70_000, 4)},
        "shorter": {"c1": bases["c1"]},
    }[what]
    plain = tmp_path / "g.fa"
    for path in (plain, tmp_path / "b.fa.gz"):
        for contigs in (bases, other):
            write_fasta(plain, contigs)
            if path != plain:
                pysam.tabix_compress(str(plain), str(path), force=True)
            if contigs is bases:
                Reference(path).close()
                assert path.with_name(f"{path.name}.fai").exists()
        if is_older:
            os.utime(path, (1, 1))
        if what == "a protein":
            with pytest.raises(GenomeError, match="is not a DNA letter"):
                Reference(path)
            continue
        with Reference(path) as reference:
            assert reference.contig_lengths_bp == {name: len(text) for name, text in other.items()}
            for name, text in other.items():
                assert reference.fetch(Interval(name, 0, len(text))) == text
