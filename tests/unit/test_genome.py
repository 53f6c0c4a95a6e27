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
    fasta_index,
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
    # U is no base of DNA: unknown on one strand, it is unknown on the other.
    assert reverse_complement("AUu") == "nNT"


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
        ("c:500", "first-last"),
        (f"c:1-{'1' * 5000}", "first-last"),
    ):
        with pytest.raises(GenomeError, match=message):
            from_region(text, {"c": 100})
    assert from_region("c:1,0-2,0", {"c": 100}) == Interval("c", 9, 20)


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
                    assert reference.fetch(Interval("two", 0, 120)) == self.contigs["two"]
            assert dict(read_sequences(path)) == self.contigs
        assert (tmp_path / "p.fa.fai").exists() and not (tmp_path / "z.fa.gz.fai").exists()

    def test_an_older_file_in_the_place_of_an_indexed_one(self, tmp_path):
        others = {"first": random_bases(70_000, 5), "one": random_bases(250, 6)}
        (tmp_path / "new").mkdir()
        older = write_fasta(tmp_path / "new" / "p.fa", others)
        pysam.tabix_compress(str(older), str(tmp_path / "new" / "b.fa.gz"))
        for path in (tmp_path / "new").iterdir():
            os.utime(path, (1, 1))
        plain, _, packed = self.paths(tmp_path)
        for path in (plain, packed):
            Reference(path).close()
            os.replace(tmp_path / "new" / path.name, path)
            with Reference(path) as reference:
                assert reference.contig_lengths_bp == {"first": 70_000, "one": 250}
                assert reference.fetch(Interval("one", 0, 250)) == others["one"]
                assert (
                    reference.fetch(Interval("first", 66_000, 70_000)) == others["first"][66_000:]
                )

    def test_letters_of_an_indexed_file_that_are_none(self, tmp_path):
        path = tmp_path / "p.fa"
        path.write_text(f">c\n{'ACGT' * 15}\nACXT\n")
        pysam.faidx(str(path))
        with Reference(path) as reference:
            assert reference.disagreement("c", 61, "C") is None
            assert reference.disagreement("c", 62, "G") == ("ref_mismatch", "X")

    def test_random_spans(self, tmp_path):
        path = write_fasta(tmp_path / "p.fa", self.contigs, width=7)
        numbers = random.Random(0)
        with Reference(path) as reference:
            for _ in range(50):
                start, end = sorted(numbers.choices(range(251), k=2))
                assert (
                    reference.fetch(Interval("one", start, end)) == self.contigs["one"][start:end]
                )

    def test_an_old_index_is_not_believed(self, tmp_path):
        path = write_fasta(tmp_path / "p.fa", {"x": "A" * 100})
        Reference(path).close()
        write_fasta(path, {"y": "C" * 50})
        os.utime(f"{path}.fai", (1, 1))
        with Reference(path) as reference:
            assert reference.contig_lengths_bp == {"y": 50}

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

    @settings(max_examples=50)
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

    def test_nothing_is_fetched_where_nothing_is(self, tmp_path, monkeypatch):
        """Pysam raises ValueError at the end of a contig of 2^31 - 1 bases, its longest."""
        with Reference(write_fasta(tmp_path / "p.fa", self.contigs)) as reference:
            monkeypatch.setattr(reference, "_fasta", None)
            assert reference.fetch(Interval("one", 250, 250)) == ""
            monkeypatch.undo()

    @pytest.mark.parametrize("reason", [errno.EACCES, errno.EROFS, errno.ENOSPC])
    def test_nothing_is_written_where_that_is_not_possible(self, tmp_path, monkeypatch, reason):
        plain, _, packed = self.paths(tmp_path)
        there = sorted(tmp_path.iterdir())

        def fail(source, target):
            Path(target).write_bytes(b"half")
            raise OSError(reason, os.strerror(reason), str(target))

        monkeypatch.setattr(fasta_index.shutil, "copyfile", fail)
        for path in (plain, packed):
            with Reference(path) as reference:
                assert reference.fetch(Interval("last", 0, 1)) == "A"
        assert sorted(tmp_path.iterdir()) == there

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "has no sequence"),
            (b"\n\n", "has no sequence"),
            (b"ACGT\n", "line 1: expected a header"),
            (b">a\nACGT\n>a\nAC\n", "line 3: contig 'a' stands twice"),
            (b">\nACGT\n", "line 1: a contig without a name"),
            (b">a\rACGT\r", "line 1: lines end in a lone CR"),
            (b">a\nACGT\rACGT\r>b\nAC\n", "line 2: lines end in a lone CR"),
            pytest.param(
                b">%b\nACGT\n" % (b"a" * 65_535),
                "line 1: a contig's name of 65,535 letters",
                id="longest name",
            ),
            (b">p\nMKLV\nEF\n", "line 2: 'L' is not a DNA letter"),
            (b">a\nACGT\nACGTACGT\nAC\n", "lines of a contig must have one length"),
            (gzip.compress(b">a\n" + b"ACGT" * 9999, mtime=0)[:-20], "fetch it again"),
        ],
    )
    def test_damage_is_named(self, tmp_path, content, message):
        path = tmp_path / "bad.fa"
        path.write_bytes(content)
        with pytest.raises(GenomeError) as error:
            Reference(path)
        assert str(path) in str(error.value) and message in str(error.value)
        assert "\n" not in str(error.value)
        assert [p.name for p in tmp_path.iterdir()] == ["bad.fa"]

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
        for seed in range(5):
            shuffled = [line for line in lines if not line.startswith("#")]
            random.Random(seed).shuffle(shuffled)
            path.write_text("".join(shuffled))
            (gene,) = read_annotation(path, reference).genes
            assert gene.interval == expected[0].interval
            assert gene.transcripts[0].cds == expected[0].transcripts[0].cds
            assert gene.transcripts[0].exons == expected[0].transcripts[0].exons

    def test_gzip_reads_alike(self, tmp_path):
        reference, path = self.write(tmp_path, "gff3")
        zipped = tmp_path / "a.gff3.gz"
        zipped.write_bytes(gzip.compress(path.read_bytes(), mtime=0))
        assert [g.gene_id for g in read_annotation(zipped, reference).genes] == ["g1"]
        zipped.write_bytes(zipped.read_bytes()[:-12])
        with pytest.raises(GenomeError, match="fetch it again"):
            read_annotation(zipped, reference)

    def test_trans_splicing_is_dropped_with_its_reason(self, tmp_path):
        extra = "c1\tx\texon\t301\t320\t.\t-\t.\tParent=t1\n"
        reference, path = self.write(tmp_path, place_gene()[1] + extra)
        with pytest.raises(GenomeError, match="no gene, exon or CDS"):
            read_annotation(path, reference)
        other = "c1\tx\tgene\t1\t50\t.\t+\t.\tID=g2\nc1\tx\tCDS\t1\t30\t.\t+\t0\tParent=g2\n"
        path.write_text(path.read_text() + other)
        annotation = read_annotation(path, reference)
        assert [g.gene_id for g in annotation.genes] == ["g2"]
        (left_out,) = annotation.left_out
        assert (left_out.name, left_out.reason) == ("t1", "trans_splicing")
        assert left_out.gene == "ABC" and Interval("c1", 300, 320) in left_out.intervals

    def test_marks_of_incompleteness(self, tmp_path):
        gff3 = place_gene()[1].replace("ID=p1;", "ID=p1;partial=true;")
        reference, path = self.write(tmp_path, gff3)
        assert read_annotation(path, reference).genes[0].transcripts[0].incomplete

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "has no feature"),
            ("##gff-version 3\n", "has no feature"),
            ("c1 x gene 1 5 . + . ID=g\n", "line 1: 1 columns"),
            ("#\nc1\tx\tgene\t5\t1\t.\t+\t.\tID=g\n", "line 2: need 1 <= start <= end"),
            ("c1\tx\tgene\t²\t9\t.\t+\t.\tID=g\n", "line 1: need 1 <= start <= end, got '²'"),
            (
                f"c1\tx\tgene\t1\t{'1' * 5000}\t.\t+\t.\tID=g\n",
                "got '1' and '11111111111111111111'",
            ),
            ("c1\tx\tgene\t0\t1\t.\t+\t.\tID=g\n", "got '0' and '1'"),
            ("c1\tx\tgene\t1\t999\t.\t+\t.\tID=g\n", "gene ends at 999, but contig 'c1'"),
            ("chrc1\tx\tgene\t1\t9\t.\t+\t.\tID=g\n", "'chr' prefix"),
            ("other\tx\tgene\t1\t9\t.\t+\t.\tID=g\n", "no contig 'other'"),
            ("c1\tx\tregion\t1\t9\t.\t+\t.\tID=g\n", "no gene, exon or CDS"),
            ('c1\tx\texon\t1\t9\t.\t+\t.\tgene_id "g";\n', "needs a transcript_id"),
        ],
    )
    def test_damage_is_named(self, tmp_path, text, message):
        reference, path = self.write(tmp_path, text)
        with pytest.raises(GenomeError) as error:
            read_annotation(path, reference)
        assert str(path) in str(error.value) and message in str(error.value)

    def test_escaped_identifiers(self, tmp_path):
        gff3 = place_gene()[1].replace("ID=t1", "ID=t%2C1").replace("Parent=t1", "Parent=t%2C1")
        reference, path = self.write(tmp_path, gff3)
        (gene,) = read_annotation(path, reference).genes
        assert [t.transcript_id for t in gene.transcripts] == ["t,1"]

    @pytest.mark.parametrize("mark", ['partial "true"', 'exception "x"', 'tag "cds_end_NF"'])
    def test_marks_in_a_gtf(self, tmp_path, mark):
        gtf = place_gene()[2].replace("transcript_id", f"{mark}; transcript_id")
        reference, path = self.write(tmp_path, gtf)
        assert read_annotation(path, reference).genes[0].transcripts[0].incomplete

    def test_one_gene_id_on_two_strands_is_two_genes(self, tmp_path):
        other = 'c1\tx\texon\t1\t30\t.\t-\t.\tgene_id "g1"; transcript_id "t2";\n'
        reference, path = self.write(tmp_path, place_gene()[2] + other)
        genes = read_annotation(path, reference).genes
        assert [(g.gene_id, g.strand, g.interval.start) for g in genes] == [
            ("g1", "-", 0), ("g1", "+", 100)
        ]  # fmt: skip

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
        circle = "c1\tx\tregion\t1\t400\t.\t+\t.\tID=c;Is_circular=true\n"
        across = "c1\tx\tgene\t390\t410\t.\t+\t.\tID=g9\n"
        reference, path = self.write(tmp_path, circle + across + place_gene()[1])
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

    def test_the_circle_may_be_named_after_what_crosses_it(self, tmp_path):
        across = "c1\tx\tgene\t390\t410\t.\t+\t.\tID=g9\n"
        circle = "c1\tx\tregion\t1\t400\t.\t+\t.\tID=c;Is_circular=true\n"
        reference, path = self.write(tmp_path, across + circle)
        assert [g.gene_id for g in read_annotation(path, reference).genes] == ["g9"]


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

    def test_parts_of_one_cds_with_names_of_their_own(self, tmp_path):
        found = self.read(
            tmp_path,
            "c1\tx\tgene\t11\t90\t.\t+\t.\tID=g1\n"
            "c1\tx\tCDS\t61\t90\t.\t+\t0\tID=p.2;Parent=g1\n"
            "c1\tx\tCDS\t11\t40\t.\t+\t0\tID=p.1;Parent=g1\n",
        )
        ((transcript,),) = (gene.transcripts for gene in found.genes)
        assert transcript.cds == ((10, 40), (60, 90))

    @pytest.mark.parametrize("stop", ["outside", "inside", "none"])
    def test_the_stop_codon_in_or_out_of_the_cds(self, tmp_path, stop):
        told = 'gene_id "g"; transcript_id "t";'
        last = 40 if stop == "inside" else 37
        text = f"c1\tx\tCDS\t11\t{last}\t.\t+\t0\t{told}\nc1\tx\texon\t11\t60\t.\t+\t.\t{told}\n"
        if stop != "none":
            text = f"c1\tx\tstop_codon\t38\t40\t.\t+\t0\t{told}\n" + text
        ((transcript,),) = (gene.transcripts for gene in self.read(tmp_path, text).genes)
        assert transcript.cds == ((10, 37 if stop == "none" else 40),)

    def test_one_name_on_two_contigs_is_two_genes_in_a_gtf(self, tmp_path):
        """The ends of X and Y."""
        told = 'gene_id "g"; transcript_id "t";'
        text = "".join(f"{c}\tx\texon\t11\t40\t.\t+\t.\t{told}\n" for c in ("c1", "c2"))
        found = self.read(tmp_path, text)
        assert [gene.interval.contig for gene in found.genes] == ["c1", "c2"]
        assert {gene.gene_id for gene in found.genes} == {"g"} and found.left_out == ()

    def test_a_base_that_is_skipped_is_no_intron(self, tmp_path):
        told = "Parent=g1;exception=ribosomal slippage"
        found = self.read(
            tmp_path,
            "c1\tx\tgene\t11\t90\t.\t+\t.\tID=g1\n"
            f"c1\tx\tCDS\t11\t40\t.\t+\t0\tID=p;{told}\n"
            f"c1\tx\tCDS\t42\t71\t.\t+\t0\tID=p;{told}\n",
        )
        ((transcript,),) = (gene.transcripts for gene in found.genes)
        assert transcript.cds == ((10, 40), (41, 71)) and transcript.exons == ((10, 71),)
        assert not transcript.incomplete and transcript.introns == ()

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
def test_an_index_of_another_file_is_made_again(tmp_path, what):
    """A file put in the place of another may be older than the index of that."""
    bases = {"c1": random_bases(130, 1), "c2": random_bases(70, 2)}
    path = write_fasta(tmp_path / "g.fa", bases)
    Reference(path).close()
    assert (tmp_path / "g.fa.fai").exists()
    other = {
        "other bases": {"c1": random_bases(131, 3), "c2": random_bases(70, 2)},
        "other names": {"d1": bases["c1"], "d2": bases["c2"]},
        "a protein": {"c1": "MEF" * 40 + "M" * 10, "c2": "MEF" * 23 + "M"},
        "longer": bases | {"c3": random_bases(50, 4)},
        "shorter": {"c1": bases["c1"]},
    }[what]
    write_fasta(path, other)
    os.utime(path, (1, 1))
    if what == "a protein":
        with pytest.raises(GenomeError, match="is not a DNA letter"):
            Reference(path)
        return
    with Reference(path) as reference:
        assert reference.contig_lengths_bp == {name: len(text) for name, text in other.items()}
        for name, text in other.items():
            assert reference.fetch(Interval(name, 0, len(text))) == text
