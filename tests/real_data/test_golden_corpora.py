"""Corpora of small genomes hold what they held: every row, and all that was dropped.

`tests/golden/corpora.tsv` has a digest of each file. After a change that is meant, write it anew
with `CARBON_GOLDEN=write`, and say in the changelog what has changed.
"""

import hashlib
import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from data_pipeline.sources import SOURCES
from tests.helpers.curation import build
from tests.real_data.test_curation import CHR21, of
from tests.real_data.test_real_genomes import CRESS, FLY, HUMAN9, WORM

GOLDEN = Path(__file__).parents[1] / "golden" / "corpora.tsv"
OFFSET_BP, CHR21_NAME = 24_985_580, "21:24985581-26000306"
CHR21_SETTINGS = {"annotation_offset_bp": OFFSET_BP, "contig_names": f"{{'21'='{CHR21_NAME}'}}"}
CASES = {
    "cress, worm and fly": [(CRESS, {}), (WORM, {}), (FLY, {})],
    "human 9": [(HUMAN9, {})],
    "human 21": [((CHR21, "human_chr21/ensembl.gff3.gz"), CHR21_SETTINGS)],
    "GenBank": [
        ((f"small_genomes/{name}",), {})
        for name in ("NC_000932.gb", "NC_005816.gb", "arab1.gb", "lambda.gbk")
    ],
}
EVERYTHING = {"sources": list(SOURCES), "incomplete_cds": "drop"}
KEEP = ["keep.repeat_weight=0.7", "keep.max_n_fraction=0.01"]


def content_of(path):
    """What a file says; the bytes of Parquet are those of a version of Arrow."""
    if path.suffix != ".parquet":
        return path.read_text()
    return repr(pq.read_table(path).to_pylist())


@pytest.mark.parametrize(
    "name",
    [
        "GenBank",
        *(pytest.param(name, marks=pytest.mark.nightly) for name in CASES if name != "GenBank"),
    ],
)
def test_every_row_is_as_it_was(real_data, tmp_path, name):
    corpus = tmp_path / name
    settings = [
        word
        for number, (files, more) in enumerate(CASES[name])
        for word in of(real_data, files, number, **EVERYTHING, **more)
    ]
    assert build(corpus, *settings, *KEEP) == 0
    lines = []
    for path in sorted(corpus.rglob("*")):
        if path.suffix in (".parquet", ".tsv"):
            digest = hashlib.sha256(content_of(path).encode()).hexdigest()
            lines.append(f"{name}\t{path.relative_to(corpus)}\t{digest}\n")
    golden = GOLDEN.read_text().splitlines(keepends=True)
    if os.environ.get("CARBON_GOLDEN") == "write":
        others = [line for line in golden if not line.startswith(f"{name}\t")]
        GOLDEN.write_text("".join(sorted(others + lines, key=rank)))
    assert lines == [line for line in golden if line.startswith(f"{name}\t")] != []


def rank(line: str) -> int:
    return list(CASES).index(line.partition("\t")[0])
