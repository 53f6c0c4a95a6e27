"""One record of a corpus, held against its genome base by base."""

import itertools
import shutil

import pytest
from Bio import SeqIO
from Bio.Seq import Seq
from Bio.SeqRecord import SeqRecord

from carbon.corpus import read_source
from carbon.errors import CorpusError, GenomeError
from carbon.genome import reverse_complement
from data_pipeline.inspect.record import inspect_record
from tests.helpers.curation import build
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.inspect import SOURCES, SPLITS, rewritten, slow_numbers

COMPLEMENT = dict(zip("ACGTNacgtn", "TGCANtgcan", strict=True))


def positions(row):
    """The place on the contig, 0-based, and the strand of every base of a record."""
    return [
        (place, strand)
        for start, end, strand in (segment.values() for segment in row["segments"])
        for place in (range(start, end) if strand == "+" else reversed(range(start, end)))
    ]


class TestRecord:
    def test_records_of_every_source_agree_with_the_genome(self, contigs, corpus, capsys):
        """The first and last of each split, and the one of most segments."""
        folder, _ = contigs
        for source, split in itertools.product(SOURCES, SPLITS):
            rows = read_source(corpus, source, split).to_pylist()
            longest = max(range(len(rows)), key=lambda i: len(rows[i]["segments"]))
            for which in {0, len(rows) - 1, longest}:
                assert inspect_record(corpus, source, split, which) == 0
                out = capsys.readouterr().out
                assert out.startswith(f"{source} {split}, row {which}: {rows[which]['name']}\n")
                assert out.endswith(f"every base agrees with {folder}/genome.fa\n")

    @pytest.mark.parametrize(("source", "strand"), [("mrna", "-"), ("eukaryote_concatenated", "+")])
    def test_one_changed_base_is_found(self, contigs, corpus, tmp_path, capsys, source, strand):
        folder, bases = contigs
        rows = read_source(corpus, source, "train").to_pylist()
        which, row, at = next(
            (i, row, sum(s["end"] - s["start"] for s in row["segments"][:1]) + 17)
            for i, row in enumerate(rows)
            if len(row["segments"]) > 1 and row["segments"][1]["strand"] == strand
        )
        here = next(x for x in "ACGT" if x != row["sequence"][at].upper())

        def change(rows):
            sequence = rows[which]["sequence"]
            rows[which]["sequence"] = sequence[:at] + here + sequence[at + 1 :]

        changed = rewritten(corpus, tmp_path, source, "train", change)
        assert inspect_record(changed, source, "train", which) == 1
        place, _ = positions(row)[at]
        forward = bases[row["record_id"]][place].upper()
        there = forward if strand == "+" else COMPLEMENT[forward]
        assert capsys.readouterr().out.splitlines()[-1] == (
            f"differs from {folder}/genome.fa at {row['record_id']}:{place + 1}, read along strand "
            f"{strand}: {there} there, {here} here (base {at + 1} of the record)"
        )
        assert inspect_record(changed, source, "train", which - 1 if which else 1) == 0

    @pytest.mark.parametrize(("strand", "position"), [("+", 11), ("-", 20)])
    def test_over_the_origin_of_a_circle(self, contigs, corpus, tmp_path, capsys, strand, position):
        """The last 30 bases of chr1 and its first 30; base 40 of the 60 is wrong, from 0."""
        _, bases = contigs
        text = (bases["chr1"][-30:] + bases["chr1"][:30]).upper()
        if strand == "-":
            text = "".join(COMPLEMENT[x] for x in reversed(text))
            position = len(bases["chr1"]) - 30 + position  # base 40 back from the end is base 19
        wrong = next(x for x in "ACGT" if x != text[40])
        length = len(bases["chr1"])
        segment = {"start": length - 30, "end": length + 30, "strand": strand}
        for sequence, code in ((text, 0), (text[:40] + wrong + text[41:], 1)):
            new = {"sequence": sequence, "record_id": "chr1", "segments": [segment]}
            folder = tmp_path / str(code)
            folder.mkdir()
            copy = rewritten(corpus, folder, "mrna", "test", lambda rows, n=new: rows[0].update(n))
            assert inspect_record(copy, "mrna", "test", 0) == code
        assert (
            f"at chr1:{position}, read along strand {strand}: {text[40]} there, {wrong} here"
            in (capsys.readouterr().out)
        )

    def test_the_bases_around_the_joints_of_exons_are_shown(self, contigs, corpus, capsys):
        _, bases = contigs
        rows = read_source(corpus, "mrna", "train").to_pylist()
        row = next(r for r in rows if len(r["segments"]) > 2 and r["strand"] == "-")
        assert inspect_record(corpus, "mrna", "train", row["name"]) == 0
        out = capsys.readouterr().out
        _, _, tokens, _, _, gc, n, masked = slow_numbers([row])
        assert f"{len(row['sequence']):,} bases, {tokens:,} tokens of 6" in out
        assert f"GC {gc:.2f} %, N {n:.2f} %, soft-masked {masked:.2f} %" in out
        text = bases[row["record_id"]]
        for segment, following in itertools.pairwise(row["segments"]):
            start, end = segment["start"], segment["end"]
            # The last bases of this exon on the contig's other strand, then the next.
            before = reverse_complement(text[start : start + 12])
            after = reverse_complement(text[following["end"] - 12 : following["end"]])
            assert f"{row['record_id']}:{start + 1}-{end}" in out and f"{before}|{after}" in out

    def test_by_the_name_of_one_gene_that_it_joins(self, corpus, capsys):
        rows = read_source(corpus, "eukaryote_concatenated", "train").to_pylist()
        which = next(i for i, row in enumerate(rows) if row["record_id"] == "chr2")
        name = rows[which]["name"].split(",")[1]
        assert inspect_record(corpus, "eukaryote_concatenated", "train", name) == 0
        first = f"eukaryote_concatenated train, row {which}: {rows[which]['name']}\n"
        assert capsys.readouterr().out.startswith(first)

    def test_records_that_share_a_name_are_listed(self, corpus, tmp_path, capsys):
        def change(rows):
            rows[3]["name"] = rows[8]["name"] = "twin"

        copy = rewritten(corpus, tmp_path, "mrna", "train", change, row_group_size=4)
        assert inspect_record(copy, "mrna", "train", "twin") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("2 records of mrna train are named 'twin'")
        assert [line.split()[0] for line in lines[3:]] == ["3", "8"]
        rows = read_source(copy, "mrna", "train").to_pylist()
        assert inspect_record(copy, "mrna", "train", 8) == 0  # in its third row group
        assert rows[8]["sequence"][:60] in capsys.readouterr().out
        with pytest.raises(CorpusError, match=r"is it.*'twin'"):
            inspect_record(copy, "mrna", "train", "TWIN")
        with pytest.raises(CorpusError, match="no row -1"):
            inspect_record(copy, "mrna", "train", -1)

    def test_a_genome_that_is_given_goes_before_the_recipes(
        self, contigs, corpus, tmp_path, capsys
    ):
        _, bases = contigs
        upper = write_fasta(tmp_path / "upper.fa", {k: v.upper() for k, v in bases.items()})
        assert inspect_record(corpus, "mrna", "train", 0, upper) == 0
        assert f"every base agrees with {upper}" in capsys.readouterr().out
        other = write_fasta(tmp_path / "other.fa", {"c1": random_bases(90)})
        with pytest.raises(GenomeError, match="no contig 'chr"):
            inspect_record(corpus, "mrna", "train", 0, other)

    def test_genbank(self, contigs, corpus, tmp_path):
        _, bases = contigs
        kind = {"molecule_type": "DNA"}
        records = [SeqRecord(Seq(x), name, name, annotations=kind) for name, x in bases.items()]
        SeqIO.write(records, tmp_path / "genome.gb", "genbank")
        contig = read_source(corpus, "eukaryote", "train")["record_id"][0].as_py()
        segment = {"start": 0, "end": 60, "strand": "+"}
        new = {"sequence": bases[contig][:60], "segments": [segment]}
        copy = rewritten(corpus, tmp_path, "eukaryote", "train", lambda rows: rows[0].update(new))
        assert inspect_record(copy, "eukaryote", "train", 0, tmp_path / "genome.gb") == 0

    def test_without_a_genome_nothing_is_claimed(self, corpus, tmp_path, capsys):
        copy = tmp_path / "c"
        shutil.copytree(corpus, copy)
        text = (copy / "manifest.json").read_text()
        (copy / "manifest.json").write_text(text.replace("/genome.fa", "/gone.fa"))
        assert inspect_record(copy, "mrna", "train", 0) == 0
        out = capsys.readouterr().out
        assert "/gone.fa of the recipe is not there; give the genome" in out and "agrees" not in out

    def test_records_of_a_file_have_no_assembly(self, tmp_path, capsys):
        fasta = write_fasta(tmp_path / "mine.fa", {"one": random_bases(700, 1)})
        words = [f"files.0.path={fasta}", "files.0.source=mrna"]
        assert build(tmp_path / "c", *words) == 0
        capsys.readouterr()
        assert inspect_record(tmp_path / "c", "mrna", "train", "one") == 0
        assert "not compared: the recipe names no assembly of it" in capsys.readouterr().out
        assert inspect_record(tmp_path / "c", "mrna", "train", "one", fasta) == 0
        assert f"every base agrees with {fasta}" in capsys.readouterr().out

    def test_segments_that_are_not_as_long_as_the_record(self, corpus, tmp_path, capsys):
        def change(rows):
            rows[0]["sequence"] = rows[0]["sequence"][:-1]

        copy = rewritten(corpus, tmp_path, "promoter", "train", change)
        assert inspect_record(copy, "promoter", "train", 0) == 1
        assert "differs: its segments have 1,100 bases, the record 1,099" in capsys.readouterr().out
