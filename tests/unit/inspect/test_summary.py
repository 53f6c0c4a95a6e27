"""A corpus in numbers, counted again letter by letter; what was dropped; the report."""

import csv
import math
import re
from collections import Counter

import pyarrow.parquet as pq
import pytest

from carbon.corpus import read_manifest, read_source
from carbon.errors import ConfigError, CorpusError
from data_pipeline.inspect.census import count_corpus
from data_pipeline.inspect.record import inspect_dropped
from data_pipeline.inspect.report import BASE_MIXTURE, draw, inspect_summary, write_report
from tests.helpers.curation import assembly, build
from tests.helpers.files import place_gene, random_bases, write_fasta
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

    def test_one_name(self, corpus, capsys):
        rows = dropped_rows(corpus)
        row = next(row for row in rows if row["contig"])
        inspect_dropped(corpus, row["name"])
        found = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert len(found) == sum(each["name"] == row["name"] for each in rows) + 1
        place = f"{row['contig']}:{int(row['start']) + 1}-{row['end']}"
        assert [row["source"], row["name"], row["reason"], "sim", place] in found

    def test_a_name_that_was_not_dropped(self, corpus, tmp_path, capsys):
        kept = read_source(corpus, "mrna", "train")["name"][0].as_py()
        inspect_dropped(corpus, f"{kept}nothing")
        assert f"nothing named '{kept}nothing'" in capsys.readouterr().out
        name = dropped_rows(corpus)[0]["name"]
        inspect_dropped(corpus, name[:-1].upper())
        assert f"'{name}'" in capsys.readouterr().out
        for nothing in (None, "chr1g0001"):
            with pytest.raises(CorpusError, match="is not a corpus"):
                inspect_dropped(tmp_path, nothing)


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
        manifest = read_manifest(corpus)
        assert sections[1] == f"held out: {manifest['held_out'][0]}"
        for file in manifest["inputs"][0]["files"]:
            assert file["sha256"][:12] in sections[3]

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

    def test_a_corpus_that_holds_nothing_out(self, tmp_path, capsys):
        bases, gff3, _ = place_gene()
        write_fasta(tmp_path / "genome.fa", {"c1": bases})
        (tmp_path / "genes.gff3").write_text(gff3)
        assert build(tmp_path / "c", *assembly(tmp_path, holdout="[]")) == 0
        capsys.readouterr()
        inspect_summary(tmp_path / "c")
        out = capsys.readouterr().out
        assert "held out: nothing\n" in out
        (line,) = (x for x in out.splitlines() if x.split()[:2] == ["mrna", "test"])
        assert line.split()[2:] == ["0", "0", "0", "0", "0", "0.00", "0.00", "0.00"]
        write_report(tmp_path / "c", tmp_path / "r.html", 1000)

    def test_an_input_that_was_left_out(self, tmp_path, capsys):
        write_fasta(tmp_path / "a.fa", {"c": random_bases(900)})
        (tmp_path / "b.fa").write_text("no FASTA")
        settings = ["keep_going=true"]
        for i, name in enumerate("ab"):
            settings.append(f"assemblies.{i}.genome={tmp_path}/{name}.fa")
            settings.append(f"assemblies.{i}.holdout=[]")
        assert build(tmp_path / "c", *settings) == 0
        capsys.readouterr()
        inspect_summary(tmp_path / "c")
        assert f"left out: {tmp_path}/b.fa line 1" in capsys.readouterr().out
        write_report(tmp_path / "c", tmp_path / "r.html", 1000)
        assert f"Left out: {tmp_path}/b.fa line 1" in (tmp_path / "r.html").read_text()


@pytest.fixture(scope="module")
def page(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(corpus, path, 1_000_000)
    return path


class TestReport:
    def test_it_needs_no_other_file_and_escapes_names(self, page):
        text = page.read_text()
        assert not re.search(r"https?://|<script|<link|<img|@import|url\(|src=", text)
        assert "Testus &lt;simulatus&gt;" in text and ORGANISM not in text

    def test_steps_dropped_and_duplicates(self, corpus, page):
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
        header, *duplicates = cells(page, "Duplicates")
        for source, *counts in duplicates:
            kinds = [name.replace(" ", "_") for name in header[1:]]
            assert [number(n) for n in counts] == [expected[source, kind] for kind in kinds]
        assert sum(number(n) for _, *counts in duplicates for n in counts) > 0

    @pytest.mark.parametrize(
        ("budget", "weights", "expected"),
        [
            (1_000_000, None, {"eukaryote": 0.70, "mrna": 0.16, "mrna_splice": 0.04}),
            (600, {"promoter": 1, "mrna": 2}, {"promoter": 1, "mrna": 2}),
        ],
    )
    def test_the_mixture_of_what_there_is(self, corpus, tmp_path, budget, weights, expected):
        write_report(corpus, tmp_path / "r.html", budget, weights)
        rows = cells(tmp_path / "r.html", "Mixture")[1:]
        assert [row[0] for row in rows] == list(expected)
        for source, share, drawn, there, epochs in rows:
            tokens = sum(
                math.ceil(len(row["sequence"]) / 6)
                for row in read_source(corpus, source, "train").to_pylist()
            )
            wanted = expected[source] / sum(expected.values())
            assert float(share) == pytest.approx(100 * wanted, abs=0.005)
            assert number(drawn) == round(budget * wanted) and number(there) == tokens
            assert number(epochs) == pytest.approx(budget * wanted / tokens, abs=0.005)

    @pytest.mark.parametrize(
        ("budget", "weights", "message"),
        [
            (0, None, "budget of 0 tokens"),
            (9, {"mrnas": 1}, "weight of 'mrnas'"),
            (9, {"mrna": 0}, "weight of 'mrna' = 0"),
        ],
    )
    def test_mixtures_that_cannot_be(self, corpus, tmp_path, budget, weights, message):
        with pytest.raises(ConfigError, match=message):
            write_report(corpus, tmp_path / "r.html", budget, weights)
        assert list(tmp_path.iterdir()) == []


def test_epochs_by_hand():
    """Of 900 tokens, 7 in 9 are 700 and 2 in 9 are 200: 3.5 and 0.5 times what there is."""
    drawn = draw({"eukaryote": 200, "mrna": 400, "promoter": 5}, 900, {"eukaryote": 7, "mrna": 2})
    assert [(d.source, d.tokens_there) for d in drawn] == [("eukaryote", 200), ("mrna", 400)]
    assert [d.share for d in drawn] == pytest.approx([7 / 9, 2 / 9])
    assert [d.tokens for d in drawn] == pytest.approx([700, 200])
    assert [d.epochs for d in drawn] == pytest.approx([3.5, 0.5])
    assert sum(BASE_MIXTURE.values()) == pytest.approx(1)
    assert draw({"promoter": 5}, 900, BASE_MIXTURE) == []
