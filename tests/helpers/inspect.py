"""What the tests of inspect share."""

import math
import re
import shutil
import statistics
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq

from carbon.corpus import SCHEMA, read_source
from data_pipeline.__main__ import main

SOURCES = ("eukaryote", "eukaryote_concatenated", "mrna", "mrna_splice", "promoter")


SPLITS = ("train", "test")


ORGANISM = "Testus <simulatus>"


def build(genome, output, *overrides):
    settings = [
        f"output={output}",
        f"assemblies.0.genome={genome}/genome.fa",
        f"assemblies.0.annotation={genome}/genes.gff3",
        f"assemblies.0.sources={list(SOURCES)}",
        f"assemblies.0.organism={ORGANISM}",
        "assemblies.0.species_type=fng",
        "assemblies.0.licence=CC0",
        "assemblies.0.name=sim",
        'assemblies.0.holdout=["chr6"]',
        "keep.min_record_bp=1100",
        "cut.upstream_bp=1000",
        "cut.concatenated_bp=9000",
        *overrides,
    ]
    assert main(["build", *(word for item in settings for word in ("--set", item))]) == 0


def rewritten(corpus, folder, source, split, change, row_group_size=1024):
    """Copy a corpus and put the rows of one split through `change`."""
    copy = folder / "copy"
    shutil.copytree(corpus, copy)
    rows = read_source(corpus, source, split).to_pylist()
    change(rows)
    (path,) = (copy / source).glob(f"{split}-*.parquet")
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, path, row_group_size=row_group_size)
    return copy


def slow_numbers(rows):
    """Records, bases, tokens, median, longest, GC, N and masked in percent, letter by letter."""
    letters = Counter("".join(row["sequence"] for row in rows))
    lengths = sorted(len(row["sequence"]) for row in rows)
    known = sum(letters[x] for x in "ACGTacgt")
    return [
        len(rows),
        sum(lengths),
        sum(math.ceil(length / 6) for length in lengths),
        statistics.median_low(lengths),
        lengths[-1],
        round(100 * sum(letters[x] for x in "GCgc") / known, 2),
        round(100 * (sum(lengths) - known) / sum(lengths), 2),
        round(100 * sum(n for x, n in letters.items() if x.islower()) / sum(lengths), 2),
    ]


def number(text):
    return float(text.replace(",", ""))


def expected_summary(corpus):
    return {
        (source, split): slow_numbers(read_source(corpus, source, split).to_pylist())
        for source in SOURCES
        for split in SPLITS
    }


def section(path, title):
    return re.search(f"<h2>{title}</h2>(.*?)(<h2>|</html>)", path.read_text(), re.DOTALL)[1]


def cells(path, title, table=0):
    """The cells of a table of the page, the header first."""
    text = re.findall("<table>(.*?)</table>", section(path, title))[table]
    rows = re.findall("<tr>(.*?)</tr>", text)
    return [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
