"""The inspect verb: records, what was dropped, and all in numbers; counted again, slowly."""

import csv
import re
from collections import Counter

import pyarrow.parquet as pq
import pytest

from carbon.corpus import read_manifest, read_source
from carbon.errors import CorpusError
from data_pipeline.__main__ import main
from data_pipeline.inspecting.record import inspect_dropped
from data_pipeline.inspecting.report import inspect_summary, write_report
from tests.helpers.files import place_gene, random_bases, write_fasta
from tests.helpers.inspect import (
    ORGANISM,
    build,
    cells,
    expected_summary,
    number,
    rewritten,
)


class TestDropped:
    def test_counts(self, corpus, capsys):
        with (corpus / "dropped.tsv").open() as lines:
            rows = list(csv.reader(lines, delimiter="\t"))[1:]
        expected = Counter((source, reason.split(":")[0]) for source, _, reason, *_ in rows)
        assert len(expected) > 2
        inspect_dropped(corpus)
        found = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert found[0] == ["source", "reason", "dropped"]
        assert {(a, b): number(n) for a, b, n in found[1:]} == expected
        assert len(found) == len(expected) + 1
        order = [(source, -number(n)) for source, _, n in found[1:]]
        assert order == sorted(order) and len(set(order)) > len({source for source, _ in order})

    def test_one_name(self, corpus, capsys):
        with (corpus / "dropped.tsv").open() as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        row = next(row for row in rows if row["contig"])
        inspect_dropped(corpus, row["name"])
        found = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert found[0] == ["source", "name", "reason", "assembly", "place"]
        mine = [each for each in rows if each["name"] == row["name"]]
        assert len(found) == len(mine) + 1
        place = f"{row['contig']}:{int(row['start']) + 1}-{row['end']}"
        assert [row["source"], row["name"], row["reason"], "sim", place] in found

    def test_a_name_that_was_not_dropped(self, corpus, capsys):
        kept = read_source(corpus, "mrna", "train")["name"][0].as_py()
        inspect_dropped(corpus, f"{kept}nothing")
        assert f"nothing named '{kept}nothing' was dropped" in capsys.readouterr().out
        with (corpus / "dropped.tsv").open() as lines:
            name = next(csv.DictReader(lines, delimiter="\t"))["name"]
        inspect_dropped(corpus, name[:-1].upper())
        assert f"'{name}'" in capsys.readouterr().out

    @pytest.mark.parametrize("name", [None, "chr1g0001"])
    def test_no_corpus(self, tmp_path, name):
        with pytest.raises(CorpusError, match="is no corpus"):
            inspect_dropped(tmp_path, name)


class TestSummary:
    def test_numbers(self, corpus, capsys):
        inspect_summary(corpus)
        sections = capsys.readouterr().out.split("\n\n")
        rows = [line.split() for line in sections[0].splitlines()[1:]]
        assert {(r[0], r[1]): [number(x) for x in r[2:]] for r in rows} == expected_summary(corpus)
        assert any(number(r[-1]) > 0 for r in rows) and any(number(r[-2]) > 0 for r in rows)
        assert sections[1] == f"held out: {read_manifest(corpus)['held_out'][0]}"
        inputs = [re.split(r"\s{2,}", line) for line in sections[3].splitlines()]
        digests = [each["sha256"][:12] for each in read_manifest(corpus)["inputs"][0]["files"]]
        assert inputs[1:] == [
            ["sim", ORGANISM, "-", "CC0", "genome.fa", digests[0]],
            ["sim", ORGANISM, "-", "CC0", "genes.gff3", digests[1]],
        ]

    def test_row_groups_and_files_add_up(self, corpus, tmp_path, capsys):
        inspect_summary(corpus)
        expected = capsys.readouterr().out
        copy = rewritten(corpus, tmp_path, "mrna", "train", lambda rows: None, row_group_size=3)
        (path,) = (copy / "mrna").glob("train-*")
        table = pq.read_table(path)
        pq.write_table(table.slice(0, 5), path, row_group_size=2)
        pq.write_table(table.slice(5), path.with_name("train-00001.parquet"), row_group_size=3)
        inspect_summary(copy)
        assert capsys.readouterr().out == expected
        for folder in (corpus, copy):
            write_report(folder, tmp_path / f"{folder.name}.html", 1000)
        first, second = (tmp_path / f"{f.name}.html" for f in (corpus, copy))
        assert cells(first, "Largest") == cells(second, "Largest")

    def test_a_corpus_that_holds_nothing_out(self, contigs, tmp_path, capsys):
        build(contigs[0], tmp_path / "c", "assemblies.0.holdout=[]")
        capsys.readouterr()
        inspect_summary(tmp_path / "c")
        out = capsys.readouterr().out
        assert "held out: nothing\n" in out
        (line,) = (x for x in out.splitlines() if x.split()[:2] == ["mrna", "test"])
        assert line.split()[2:] == ["0", "0", "0", "0", "0", "0.00", "0.00", "0.00"]
        write_report(tmp_path / "c", tmp_path / "r.html", 1000)

    def test_an_input_that_was_left_out(self, tmp_path, capsys):
        bases, gff3, _ = place_gene()
        write_fasta(tmp_path / "a.fa", {"c1": bases, "c2": random_bases(900)})
        (tmp_path / "a.gff3").write_text(gff3)
        (tmp_path / "b.fa").write_text("no FASTA")
        words = [f"output={tmp_path / 'c'}", "keep_going=true"]
        for i, name in enumerate("ab"):
            words.append(f"assemblies.{i}.genome={tmp_path}/{name}.fa")
            words.append(f"assemblies.{i}.annotation={tmp_path}/a.gff3")
            words.append(f"assemblies.{i}.holdout=[]")
        assert main(["build", *(w for each in words for w in ("--set", each))]) == 0
        capsys.readouterr()
        inspect_summary(tmp_path / "c")
        assert f"left out: {tmp_path}/b.fa line 1" in capsys.readouterr().out
        write_report(tmp_path / "c", tmp_path / "r.html", 1000)
        assert f"Left out: {tmp_path}/b.fa line 1" in (tmp_path / "r.html").read_text()
