"""A corpus in numbers, counted again letter by letter; what was dropped; the report."""

import csv
import math
import re
from collections import Counter

import pyarrow.parquet as pq
import pytest

from carbon.corpus import read_manifest, read_source
from carbon.errors import CorpusError
from data_pipeline.inspect.census import count_corpus
from data_pipeline.inspect.record import inspect_dropped
from data_pipeline.inspect.report import BASE_MIXTURE, draw, inspect_summary, write_report
from tests.helpers.curation import build
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.inspect import (
    ORGANISM,
    SOURCES,
    SPLITS,
    cells,
    number,
    rewritten,
    slow_numbers,
    state_files,
)


def dropped_rows(corpus):
    with (corpus / "dropped.tsv").open() as lines:
        return list(csv.DictReader(lines, delimiter="\t"))


class TestDropped:
    def test_counts(self, corpus, capsys):
        rows = dropped_rows(corpus)
        expected = Counter((row["source"], row["reason"].partition(":")[0]) for row in rows)
        assert len(expected) > 2
        inspect_dropped(corpus)
        found = [line.split() for line in capsys.readouterr().out.splitlines()][1:]
        assert [((a, b), number(n)) for a, b, n in found] == sorted(
            expected.items(), key=lambda each: (each[0][0], -each[1], each[0][1])
        )

    def test_one_name(self, corpus, tmp_path, capsys):
        rows = dropped_rows(corpus)
        row = next(row for row in rows if row["contig"])
        inspect_dropped(corpus, row["name"])
        found = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert len(found) == sum(each["name"] == row["name"] for each in rows) + 1
        place = f"{row['contig']}:{int(row['start']) + 1}-{row['end']}"
        assert [row["source"], row["name"], row["reason"], "sim", place] in found
        inspect_dropped(corpus, "nobody")
        assert "nothing named 'nobody'" in capsys.readouterr().out
        with pytest.raises(CorpusError, match="is not a corpus"):
            inspect_dropped(tmp_path)


class TestSummary:
    def test_numbers(self, corpus, capsys):
        inspect_summary(corpus)
        sections = capsys.readouterr().out.split("\n\n")
        rows = [line.split() for line in sections[0].splitlines()[1:]]
        assert {(r[0], r[1]): [number(x) for x in r[2:]] for r in rows} == {
            (source, split): slow_numbers(read_source(corpus, source, split).to_pylist())
            for source in SOURCES
            for split in SPLITS
        }
        assert any(number(r[-1]) > 0 for r in rows) and any(number(r[-2]) > 0 for r in rows)
        assert sections[1] == f"held out: {read_manifest(corpus)['held_out'][0]}"

    def test_the_census_against_counting_each_record(self, corpus):
        for source, splits in count_corpus(corpus, read_manifest(corpus)).items():
            for split, census in splits.items():
                rows = read_source(corpus, source, split).to_pylist()
                lengths = [len(row["sequence"]) for row in rows]
                assert census.lengths_bp == Counter(lengths)
                letters = [Counter(row["sequence"].upper()) for row in rows]
                assert census.gc_bins == Counter(
                    50 * (n["G"] + n["C"]) // sum(n[base] for base in "ACGT") for n in letters
                )
                assert census.gene_types == Counter(row["gene_type"] for row in rows)
                assert census.species_types == Counter(row["species_type"] for row in rows)
                assert census.origins == {("sim", ORGANISM): len(rows)}
                assert census.bases_of == {"sim": sum(lengths)}
                every = [(n, -i, rows[i]["name"]) for i, n in enumerate(lengths)]
                assert census.largest == sorted(every, reverse=True)[:5]

    def test_row_groups_and_files_add_up(self, corpus, tmp_path):
        copy = rewritten(corpus, tmp_path, "mrna", "train", lambda rows: None, row_group_size=3)
        (path,) = (copy / "mrna").glob("train-*")
        table = pq.read_table(path)
        pq.write_table(table.slice(0, 5), path, row_group_size=2)
        pq.write_table(table.slice(5), path.with_name("train-00001.parquet"), row_group_size=3)
        state_files(copy)
        manifest = read_manifest(corpus)
        assert count_corpus(copy, manifest) == count_corpus(corpus, manifest)

    def test_an_input_that_was_left_out_of_a_corpus_that_holds_nothing_out(self, tmp_path, capsys):
        write_fasta(tmp_path / "a.fa", {"c": random_bases(900)})
        (tmp_path / "b.fa").write_text("no FASTA")
        settings = ["keep_going=true"]
        for i, name in enumerate("ab"):
            settings.append(f"assemblies.{i}.genome={tmp_path}/{name}.fa")
            settings.append(f"assemblies.{i}.holdout=[]")
        assert build(tmp_path / "c", *settings) == 0
        capsys.readouterr()
        inspect_summary(tmp_path / "c")
        out = capsys.readouterr().out
        assert f"left out: {tmp_path}/b.fa line 1" in out and "held out: nothing\n" in out
        (line,) = (x for x in out.splitlines() if x.split()[:2] == ["genome", "test"])
        assert line.split()[2:] == ["0", "0", "0", "0", "0", "0.00", "0.00", "0.00"]
        write_report(tmp_path / "c", tmp_path / "r.html", 1000)
        assert f"Left out: {tmp_path}/b.fa line 1" in (tmp_path / "r.html").read_text()


@pytest.fixture(scope="module")
def page(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(corpus, path, 1_000_000)
    return path


class TestReport:
    def test_steps_and_dropped_and_no_other_file(self, corpus, page):
        text = page.read_text()
        assert not re.search(r"https?://|<script|<link|<img|@import|url\(|src=", text)
        assert "Testus &lt;simulatus&gt;" in text and ORGANISM not in text
        steps = read_manifest(corpus)["steps"]
        assert steps["cut"] != steps["filtered"]
        for row in cells(page, "Steps")[1:]:
            expected = [
                steps[step][row[0]][what]
                for step in ("cut", "filtered", "written")
                for what in ("records", "bases")
            ]
            assert [number(x) for x in row[1:]] == expected
        rows = dropped_rows(corpus)
        expected = Counter((row["source"], row["reason"].partition(":")[0]) for row in rows)
        assert {(a, b): number(n) for a, b, n in cells(page, "Dropped")[1:]} == expected

    def test_the_mixture_of_what_there_is(self, corpus, tmp_path):
        """Of the base mixture there are eukaryote 0.7, mrna 0.16 and mrna_splice 0.04."""
        write_report(corpus, tmp_path / "r.html", 900)
        rows = cells(tmp_path / "r.html", "Mixture")[1:]
        assert [row[:3] for row in rows] == [
            ["eukaryote", "77.78", "700"],
            ["mrna", "17.78", "160"],
            ["mrna_splice", "4.44", "40"],
        ]
        for source, _, drawn, there, epochs in rows:
            records = read_source(corpus, source, "train").to_pylist()
            tokens = sum(math.ceil(len(row["sequence"]) / 6) for row in records)
            assert (number(there), epochs) == (tokens, f"{number(drawn) / tokens:.2f}")


def test_epochs_by_hand():
    """Of 900 tokens, 7 in 9 are 700 and 2 in 9 are 200: 3.5 and 0.5 times what there is."""
    drawn = draw({"eukaryote": 200, "mrna": 400, "promoter": 5}, 900, {"eukaryote": 7, "mrna": 2})
    assert [(d.source, d.tokens_there) for d in drawn] == [("eukaryote", 200), ("mrna", 400)]
    assert [d.share for d in drawn] == pytest.approx([7 / 9, 2 / 9])
    assert [d.tokens for d in drawn] == pytest.approx([700, 200])
    assert [d.epochs for d in drawn] == pytest.approx([3.5, 0.5])
    assert sum(BASE_MIXTURE.values()) == pytest.approx(1)
    assert draw({"promoter": 5}, 900, BASE_MIXTURE) == []
