"""The inspect verb: records, what was dropped, and all in numbers; counted again, slowly."""

import csv
import math
import re
from collections import Counter

import pytest

from carbon.corpus import read_manifest, read_source
from carbon.errors import ConfigError
from data_pipeline.inspecting.report import BASE_MIXTURE, draw, write_report
from tests.helpers.inspect import (
    ORGANISM,
    SOURCES,
    SPLITS,
    cells,
    expected_summary,
    number,
    section,
)


def rows_of(corpus, source):
    return [
        (split, row) for split in SPLITS for row in read_source(corpus, source, split).to_pylist()
    ]


def bins(path, title):
    """Each source's bars: from, to, to train on, held out."""
    result = {}
    for source, picture in re.findall(
        r"<figcaption>(\w+): .*?</figcaption>(.*?)</figure>", section(path, title)
    ):
        told = re.findall(
            r"<title>([\d,]+)(?: %)? to under ([\d,]+)(?: %)?: ([\d,]+) to train on, ([\d,]+) held",
            picture,
        )
        result[source] = [tuple(int(number(x)) for x in each) for each in told]
    return result


@pytest.fixture(scope="module")
def page(corpus, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "report.html"
    write_report(corpus, path, 1_000_000)
    return path


class TestReport:
    def test_it_needs_no_other_file_and_names_each_source(self, page):
        text = page.read_text()
        assert "http://" not in text and "https://" not in text
        assert not re.search(r"<script|<link|<img|@import|url\(|src=", text)
        for source in SOURCES:
            assert source in text
        assert "Testus &lt;simulatus&gt;" in text and ORGANISM not in text
        assert "prefers-color-scheme: dark" in text and "name='viewport'" in text

    def test_numbers(self, corpus, page):
        (held_out,) = read_manifest(corpus)["held_out"]
        assert f"<p>Held out: {held_out}. GC is" in section(page, "In short")
        rows = cells(page, "In short")[1:]
        opening = re.search("<p class='answer'>(.*?)</p>", page.read_text()).group(1)
        records, bases = (sum(number(row[at]) for row in rows) for at in (2, 3))
        heldout = sum(number(row[3]) for row in rows if row[1] != "train")
        assert opening.startswith(f"{records:,.0f} records of {bases:,.0f} bases from 1 input. ")
        assert f"Held out: {held_out}, {heldout / bases:.1%} of the bases." in opening
        assert {(r[0], r[1]): [number(x) for x in r[2:]] for r in rows} == expected_summary(corpus)

    def test_histograms(self, corpus, page):
        lengths, gc = bins(page, "Lengths"), bins(page, "GC")
        assert tuple(lengths) == tuple(gc) == SOURCES
        for source in SOURCES:
            seen = Counter()
            for split, row in rows_of(corpus, source):
                letters = Counter(row["sequence"].upper())
                share = 100 * (letters["G"] + letters["C"])
                known = sum(letters[x] for x in "ACGT")
                for found, value in ((lengths, len(row["sequence"])), (gc, share / known)):
                    (i,) = (i for i, b in enumerate(found[source]) if b[0] <= value < b[1])
                    seen[found is gc, i, split] += 1
            for is_gc, found in ((False, lengths), (True, gc)):
                for i, (_, _, train, test) in enumerate(found[source]):
                    assert (train, test) == (seen[is_gc, i, "train"], seen[is_gc, i, "test"])
            ticks = re.findall("'>([^<]+)</text>", section(page, "Lengths").split(f"{source}: ")[1])
            assert ticks[1:3] == ["1k", "10k"]
            # The height of a bar is its share of the highest stack's 100.
            picture = section(page, "GC").split(f"{source}: ")[1].split("</svg>")[0]
            heights = [float(x) for x in re.findall(r"<rect[^>]*height='([\d.]+)'", picture)]
            most = max(train + test for *_, train, test in gc[source])
            for bar, *pair in zip(gc[source], heights[::2], heights[1::2], strict=True):
                assert pair == pytest.approx([100 * bar[2] / most, 100 * bar[3] / most], abs=0.06)

    def test_tags_and_organisms(self, corpus, page):
        genes, species, records = Counter(), Counter(), 0
        for source in SOURCES:
            for _, row in rows_of(corpus, source):
                genes[row["gene_type"], source] += 1
                species[row["species_type"], source] += 1
                records += 1
        for table, expected in ((0, genes), (1, species)):
            header, *rows = cells(page, "Tags", table)
            assert header[2:] == list(SOURCES)
            found = {
                (r[0], s): number(n) for r in rows for s, n in zip(SOURCES, r[2:], strict=True)
            }
            assert {key: n for key, n in found.items() if n} == expected
        assert cells(page, "Tags")[1][1] == "&lt;protein_coding_region&gt;"
        expected = [["sim", "Testus &lt;simulatus&gt;", f"{records:,}"]]
        assert cells(page, "Organisms")[1:] == expected

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
        with (corpus / "dropped.tsv").open() as lines:
            rows = list(csv.DictReader(lines, delimiter="\t"))
        expected = Counter((row["source"], row["reason"].split(":")[0]) for row in rows)
        found = {(a, b): number(n) for a, b, n in cells(page, "Dropped")[1:]}
        assert found == expected
        labels = re.findall(r"<text[^>]*>(\w+): (\w+)</text>", section(page, "Dropped"))
        assert set(labels) == set(expected)
        assert [expected[each] for each in labels] == sorted(expected.values(), reverse=True)
        header, *duplicates = cells(page, "Duplicates")
        for source, *counts in duplicates:
            kinds = [name.replace(" ", "_") for name in header[1:]]
            assert [number(n) for n in counts] == [expected[source, kind] for kind in kinds]
        assert sum(number(n) for _, *counts in duplicates for n in counts) > 0
        stayed = Counter(
            (row["source"], row["reason"].partition(":")[2])
            for row in rows
            if "near" in row["reason"]
        )
        assert len(stayed) > 1
        for source, name, n in cells(page, "Duplicates", 1)[1:]:
            assert stayed[source, name] == number(n)

    def test_the_largest_can_be_inspected(self, corpus, page, capsys):
        rows = cells(page, "Largest")[1:]
        for source in SOURCES:
            for split in SPLITS:
                mine = [row for row in rows if row[:2] == [source, split]]
                lengths = [
                    len(r["sequence"]) for r in read_source(corpus, source, split).to_pylist()
                ]
                expected = sorted(lengths, reverse=True)[:5]
                assert [number(row[-1]) for row in mine] == expected
                assert [lengths[int(row[2])] for row in mine] == expected

    def test_the_base_mixture_of_what_there_is(self, corpus, page):
        """Of eukaryote 0.70, mrna 0.16 and mrna_splice 0.04, 0.90 in all; a million tokens."""
        there = {
            source: sum(
                math.ceil(len(row["sequence"]) / 6)
                for row in read_source(corpus, source, "train").to_pylist()
            )
            for source in SOURCES
        }
        expected = [
            ["eukaryote", "77.78", "777,778", f"{there['eukaryote']:,}",
             f"{777_777.8 / there['eukaryote']:,.2f}"],
            ["mrna", "17.78", "177,778", f"{there['mrna']:,}",
             f"{177_777.8 / there['mrna']:,.2f}"],
            ["mrna_splice", "4.44", "44,444", f"{there['mrna_splice']:,}",
             f"{44_444.4 / there['mrna_splice']:,.2f}"],
        ]  # fmt: skip
        assert cells(page, "Mixture")[1:] == expected
        text = section(page, "Mixture")
        assert "the corpus has no prokaryote; scaled to sum to 1" in text
        assert "Nothing is drawn from eukaryote_concatenated, promoter." in text

    def test_weights_that_are_given(self, corpus, tmp_path):
        path = tmp_path / "r.html"
        write_report(corpus, path, 600, {"promoter": 1, "mrna": 2})
        rows = cells(path, "Mixture")[1:]
        assert [row[:3] for row in rows] == [
            ["promoter", "33.33", "200"], ["mrna", "66.67", "400"],
        ]  # fmt: skip
        # Bars: 200 of 400 is half of 340, 400 all of it.
        widths = re.findall(
            r"<rect[^>]*--blue[^>]* y='\d+' width='([\d.]+)'", section(path, "Mixture")
        )
        assert widths[:2] == ["170.0", "340.0"]

    @pytest.mark.parametrize(
        ("budget", "weights", "message"),
        [
            (0, None, "a budget of 0 tokens: give 1 or more"),
            (9, {"mrnas": 1}, "weight of 'mrnas': the corpus has eukaryote, eukaryote_concat"),
            (9, {"mrna": 0}, "weight of 'mrna' = 0: give more than 0"),
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


def test_the_base_mixture():
    assert sum(BASE_MIXTURE.values()) == pytest.approx(1)
    assert draw({"promoter": 5}, 900, BASE_MIXTURE) == []
    (only,) = draw({"mrna": 5, "eukaryote": 0}, 10, BASE_MIXTURE)
    assert (only.source, only.share, only.epochs) == ("mrna", 1, 2)
