"""What the tests of inspect share."""

import json
import math
import re
import shutil
import statistics
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq

from carbon.corpus import SCHEMA, read_source
from carbon.io.files import sha256_of_file
from tests.helpers.curation import assembly
from tests.helpers.curation import build as build_corpus

SOURCES = ("eukaryote", "eukaryote_concatenated", "mrna", "mrna_splice", "promoter")


SPLITS = ("train", "test")


ORGANISM = "Testus <simulatus>"


def build(genome, output):
    told = {"organism": ORGANISM, "species_type": "fng", "licence": "CC0", "name": "sim"}
    settings = assembly(genome, sources=list(SOURCES), holdout='["chr6"]', **told)
    limits = ("keep.min_record_bp=1100", "cut.upstream_bp=1000", "cut.concatenated_bp=9000")
    assert build_corpus(output, *settings, *limits) == 0


def rewritten(corpus, folder, source, split, change, row_group_size=1024):
    """Copy a corpus and put the rows of one split through `change`; the manifest follows."""
    copy = folder / "copy"
    shutil.copytree(corpus, copy)
    rows = read_source(corpus, source, split).to_pylist()
    change(rows)
    (path,) = (copy / source).glob(f"{split}-*.parquet")
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    pq.write_table(table, path, row_group_size=row_group_size)
    state_files(copy)
    return copy


def state_files(corpus):
    """Write checksums and numbers of records of the files that are there into the manifest."""
    manifest = json.loads((corpus / "manifest.json").read_text())
    for source, splits in manifest["sources"].items():
        for split, count in splits.items():
            paths = sorted((corpus / source).glob(f"{split}-*.parquet"))
            count["records"] = sum(pq.read_metadata(path).num_rows for path in paths)
            sums = {f"{source}/{path.name}": sha256_of_file(path) for path in paths}
            manifest["outputs"].update(sums)
    (corpus / "manifest.json").write_text(json.dumps(manifest))


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


def cells(path, title):
    """The cells of the first table of a section of the page, the header first."""
    section = path.read_text().partition(f"<h2>{title}</h2>")[2]
    rows = re.findall("<tr>(.*?)</tr>", section.partition("</table>")[0])
    return [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", row) for row in rows]
