"""The inspect verb: records, what was dropped, and all in numbers; counted again, slowly."""

import re
import shutil

import pyarrow.parquet as pq
import pytest

from carbon.corpus import read_source
from carbon.errors import CorpusError, GenomeError
from data_pipeline.__main__ import main
from data_pipeline.inspecting.record import inspect_record
from data_pipeline.inspecting.report import inspect_summary, write_report
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.inspect import ORGANISM, SOURCES, SPLITS, build, cells, rewritten, slow_numbers

COMPLEMENT = dict(zip("ACGTNacgtn", "TGCANtgcan", strict=True))


def positions(row):
    """The place on the contig, 0-based, and the strand of every base of a record."""
    return [
        (place, strand)
        for start, end, strand in (segment.values() for segment in row["segments"])
        for place in (range(start, end) if strand == "+" else reversed(range(start, end)))
    ]


class TestRecord:
    def test_every_record_of_every_source_is_traced_back(self, contigs, corpus, capsys):
        folder, bases = contigs
        strands, most_segments = set(), 0
        for source in SOURCES:
            for split in SPLITS:
                rows = read_source(corpus, source, split).to_pylist()
                assert rows, (source, split)
                for number_, row in enumerate(rows):
                    assert inspect_record(corpus, source, split, number_) == 0
                    out = capsys.readouterr().out
                    assert out.startswith(f"{source} {split}, row {number_}: {row['name']}\n")
                    assert out.endswith(f"every base agrees with {folder}/genome.fa\n")
                    text = bases[row["record_id"]]
                    strands |= {segment["strand"] for segment in row["segments"]}
                    for base, (place, strand) in zip(row["sequence"], positions(row), strict=True):
                        assert base == (text[place] if strand == "+" else COMPLEMENT[text[place]])
                most_segments = max(most_segments, *(len(row["segments"]) for row in rows))
        assert strands == {"+", "-"} and most_segments > 2

    @pytest.mark.parametrize("strand", ["+", "-"])
    @pytest.mark.parametrize("source", ["mrna", "eukaryote_concatenated"])
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

    def test_what_is_shown(self, contigs, corpus, capsys):
        _, bases = contigs
        rows = read_source(corpus, "mrna", "train").to_pylist()
        which, row = next(
            (i, r) for i, r in enumerate(rows) if len(r["segments"]) > 2 and r["strand"] == "-"
        )
        assert inspect_record(corpus, "mrna", "train", row["name"]) == 0
        lines = [re.split(r"\s{2,}", x.strip()) for x in capsys.readouterr().out.splitlines()]
        sequence = row["sequence"]
        _, _, tokens, _, _, gc, n, masked = slow_numbers([row])
        assert lines[0] == [f"mrna train, row {which}: {row['name']}"]
        assert lines[2:10] == [
            ["assembly", "sim"],
            ["organism", ORGANISM],
            ["gene type", "cds, tag <protein_coding_region>"],
            ["species type", "fng, tag <fungi_species>"],
            ["length", f"{len(sequence):,} bases, {tokens:,} tokens of 6"],
            ["letters", f"GC {gc:.2f} %, N {n:.2f} %, soft-masked {masked:.2f} %"],
            ["first 60", sequence[:60]],
            ["last 60", sequence[-60:]],
        ]
        text, joint = bases[row["record_id"]], 0
        segments = row["segments"]
        assert lines[11][0] == "segment" and len(lines[12:-2]) == len(segments)
        for line, segment, following in zip(
            lines[12:-2], segments, [*segments[1:], None], strict=True
        ):
            start, end = segment["start"], segment["end"]
            joint += end - start
            around = "-"
            if following:  # the last bases of this exon on the contig's other strand, then the next
                before = "".join(COMPLEMENT[x] for x in reversed(text[start : start + 12]))
                after = text[following["end"] - 12 : following["end"]]
                around = f"{before}|{''.join(COMPLEMENT[x] for x in reversed(after))}"
            place = f"{row['record_id']}:{start + 1}-{end}"
            assert line[1:] == [place, "-", f"{end - start:,}", around]
        assert joint == len(sequence)

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
            rows[9]["name"] = "gene7.transcript.of.a.long.name"

        copy = rewritten(corpus, tmp_path, "mrna", "train", change, row_group_size=4)
        assert inspect_record(copy, "mrna", "train", "twin") == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "2 records of mrna train are named 'twin'; choose one by its row"
        rows = read_source(copy, "mrna", "train").to_pylist()
        expected = [
            [str(i), "sim", f"{rows[i]['record_id']}:{rows[i]['start'] + 1}-{rows[i]['end']}"]
            for i in (3, 8)
        ]
        assert [line.split() for line in lines[3:]] == expected
        assert inspect_record(copy, "mrna", "train", 8) == 0  # in its third row group
        assert rows[8]["sequence"][:60] in capsys.readouterr().out
        with pytest.raises(CorpusError, match=r"no record 'GENE7'; is it 'gene7\.transcript\.of"):
            inspect_record(copy, "mrna", "train", "GENE7")

    def test_unknown_names_rows_and_sources(self, corpus):
        rows = read_source(corpus, "mrna", "train").to_pylist()
        name = rows[-1]["name"]
        with pytest.raises(CorpusError, match=f"mrna: train has no record .*; is it.*'{name}'"):
            inspect_record(corpus, "mrna", "train", f"{name}x".upper())
        with pytest.raises(CorpusError, match=r"has no record '\?\?'$"):
            inspect_record(corpus, "mrna", "train", "??")
        for row in (len(rows), -1):
            with pytest.raises(
                CorpusError, match=f"no row {row}; it has {len(rows)}, counted from 0"
            ):
                inspect_record(corpus, "mrna", "train", row)
        with pytest.raises(CorpusError, match="the corpus has sources: eukaryote, eukaryote_conc"):
            inspect_record(corpus, "mrnas", "train", 0)

    def test_a_genome_that_is_given_goes_before_the_recipes(
        self, contigs, corpus, tmp_path, capsys
    ):
        _, bases = contigs
        upper = write_fasta(tmp_path / "upper.fa", {k: v.upper() for k, v in bases.items()})
        assert inspect_record(corpus, "mrna", "train", 0, upper) == 0
        assert f"every base agrees with {upper}" in capsys.readouterr().out
        with pytest.raises(GenomeError, match=r"other\.fa: no contig 'chr"):
            other = write_fasta(tmp_path / "other.fa", {"c1": random_bases(90)})
            inspect_record(corpus, "mrna", "train", 0, other)
        with pytest.raises(GenomeError, match=r"absent\.fa: no such file"):
            inspect_record(corpus, "mrna", "train", 0, tmp_path / "absent.fa")

    def test_genbank(self, contigs, corpus, tmp_path, capsys):
        from Bio import SeqIO
        from Bio.Seq import Seq
        from Bio.SeqRecord import SeqRecord

        path = tmp_path / "genome.gb"
        for wrong, code in (("", 0), ("A" * 40, 1)):
            records = [
                SeqRecord(
                    Seq(wrong + text[len(wrong) :]), k, k, annotations={"molecule_type": "DNA"}
                )
                for k, text in contigs[1].items()
            ]
            SeqIO.write(records, path, "genbank")
            first = read_source(corpus, "eukaryote", "train").to_pylist()[0]
            segment = {"start": 0, "end": 60, "strand": "+"}
            new = {"sequence": contigs[1][first["record_id"]][:60], "segments": [segment]}
            folder = tmp_path / str(code)
            folder.mkdir()
            copy = rewritten(
                corpus, folder, "eukaryote", "train", lambda rows, new=new: rows[0].update(new)
            )
            assert inspect_record(copy, "eukaryote", "train", 0, path) == code
            assert ("agrees with", "differs from")[code] + f" {path}" in capsys.readouterr().out

    def test_without_a_genome_nothing_is_claimed(self, contigs, tmp_path, capsys):
        genome = tmp_path / "genome"
        shutil.copytree(contigs[0], genome)
        build(genome, tmp_path / "c")
        shutil.rmtree(genome)
        assert inspect_record(tmp_path / "c", "mrna", "train", 0) == 0
        out = capsys.readouterr().out
        assert (
            f"not compared: {genome}/genome.fa of the recipe is not there; give the genome" in out
        )
        assert "agrees" not in out

    def test_records_of_a_file_have_no_assembly(self, contigs, tmp_path, capsys):
        fasta = write_fasta(tmp_path / "mine.fa", {"one": random_bases(700, 1)})
        words = [f"output={tmp_path / 'c'}", f"files.0.path={fasta}", "files.0.source=mrna"]
        short = write_fasta(tmp_path / "short.fa", {"two": random_bases(30, 2)})
        words += [f"files.1.path={short}", "files.1.source=promoter"]
        assert main(["build", *(w for each in words for w in ("--set", each))]) == 0
        capsys.readouterr()
        assert inspect_record(tmp_path / "c", "mrna", "train", "one") == 0
        out = capsys.readouterr().out
        assert "not compared: the recipe names no assembly of it; give the genome" in out
        assert "species type  -, tag none" in out and "organism      -" in out
        assert inspect_record(tmp_path / "c", "mrna", "train", "one", fasta) == 0
        assert f"every base agrees with {fasta}" in capsys.readouterr().out
        inspect_summary(tmp_path / "c")
        write_report(tmp_path / "c", tmp_path / "r.html", 100)
        # 117 tokens there are (700 / 6), 100 are drawn.
        assert cells(tmp_path / "r.html", "Mixture")[1:] == [
            ["mrna", "100.00", "100", "117", "0.85"]
        ]
        steps = [["mrna", *["1", "700"] * 3], ["promoter", "1", "30", "0", "0", "0", "0"]]
        assert cells(tmp_path / "r.html", "Steps")[1:] == steps

    def test_segments_that_are_not_as_long_as_the_record(self, corpus, tmp_path, capsys):
        def change(rows):
            rows[0]["sequence"] = rows[0]["sequence"][:-1]

        copy = rewritten(corpus, tmp_path, "promoter", "train", change)
        assert inspect_record(copy, "promoter", "train", 0) == 1
        assert "differs: its segments have 1,100 bases, the record 1,099" in capsys.readouterr().out

    def test_files_that_are_torn(self, corpus, tmp_path):
        shutil.copytree(corpus, tmp_path / "c")
        (path,) = (tmp_path / "c" / "mrna").glob("train-*")
        whole = path.read_bytes()
        path.write_bytes(whole[:-100])
        with pytest.raises(CorpusError, match=r"train-00000\.parquet: cannot be read \(.*build it"):
            inspect_record(tmp_path / "c", "mrna", "train", 0)
        path.write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])
        with pytest.raises(CorpusError, match=r"train-00000\.parquet: cannot be read \(.*build it"):
            inspect_summary(tmp_path / "c")
        pq.write_table(read_source(corpus, "mrna", "train").drop(["segments"]), path)
        with pytest.raises(CorpusError, match="no column 'segments'"):
            inspect_record(tmp_path / "c", "mrna", "train", 0)
