"""Functions of builders: rows to a Parquet file, and a report of the rows that were left out.

A builder takes `output` and keyword arguments of a fixed set, so that one command line serves all:

- `reference`: FASTA; `annotation`: GFF3, GTF or BED; `vcf`; `table`: TSV, CSV, Parquet or xlsx
- `sources`: genomes with a name each, where a task compares groups
- `codon_usage`: CSV; `species`: name of the group
- `num_examples`, `context_length_tokens`, `seed`

Equal arguments and inputs give equal bytes.
"""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from carbon.errors import UserError
from carbon.io.files import atomic_file, sha256_of_file
from eval.contract import BuildReport
from eval.tables import drawn

_AT_ONCE = 16  # rows of a stream, which may be of a megabyte each
_ROW_GROUP = 512  # rows that are read at a time


class Source(NamedTuple):
    """A genome and its name in the report, such as a kingdom."""

    group: str
    fasta: Path
    annotation: Path | None = None


def source_of(text: str) -> Source:
    """Read `group=FASTA` or `group=FASTA,ANNOTATION`.

    >>> source_of("fng=yeast.fa.gz,yeast.gtf.gz").group
    'fng'

    Raises:
        UserError: it is written otherwise.
    """
    group, equals, paths = text.partition("=")
    fasta, _, annotation = paths.partition(",")
    if not (group and equals and fasta):
        raise UserError(f"source '{text}': write it as group=FASTA or group=FASTA,ANNOTATION")
    return Source(group, Path(fasta), Path(annotation) if annotation else None)


def write_dataset(
    output: Path,
    rows: Iterable[Mapping[str, Any]],
    dropped: Counter[str],
    inputs: Iterable[Path],
    settings: Mapping[str, Any],
    schema: pa.Schema | None = None,
) -> BuildReport:
    """Write rows as Parquet, and the report of the build next to it as JSON.

    Args:
        output: Parquet to write.
        rows: may be a stream; they are written in the order they come.
        dropped: reason to the number of items left out, complete when the rows are written.
        inputs: files that the rows follow from.
        settings: whatever else they follow from.
        schema: of the rows, which are then written a few at a time; without it all rows give it.

    Raises:
        UserError: no row is left, or the folder does not exist.
    """
    stream = iter(rows)
    num_rows, writer = 0, None
    with atomic_file(output) as temporary:
        try:
            while some := list(islice(stream, _AT_ONCE if schema else None)):
                table = pa.Table.from_pylist(some, schema=schema)
                writer = writer or pq.ParquetWriter(temporary, table.schema)
                writer.write_table(table, row_group_size=_ROW_GROUP)
                num_rows += len(some)
        finally:
            if writer:
                writer.close()
        if not num_rows:
            reasons = (f"{count} {reason}" for reason, count in dropped.most_common() if count)
            why = ", ".join(reasons) or "nothing was there"
            raise UserError(f"{output}: no row to write; left out: {why}")
    files = dict.fromkeys(inputs)
    names = Counter(path.name for path in files)
    report = BuildReport(
        output,
        num_rows,
        {reason: count for reason, count in sorted(dropped.items()) if count},
        {path.name if names[path.name] == 1 else str(path): sha256_of_file(path) for path in files},
        dict(settings),
    )
    with atomic_file(output.with_suffix(".json")) as temporary:
        written = {**asdict(report), "output": output.name}
        temporary.write_text(json.dumps(written, indent=1, default=str) + "\n", encoding="utf-8")
    return report


def write_drawn(
    output: Path,
    rows: Sequence[Mapping[str, Any]],
    num_examples: int | None,
    seed: int,
    dropped: Counter[str],
    inputs: Iterable[Path],
    settings: Mapping[str, Any],
) -> BuildReport:
    """Write rows that a seed chooses, all of them without a number, as `write_dataset` does."""
    kept = drawn(len(rows), num_examples, seed)
    dropped["not_drawn"] += len(rows) - len(kept)
    return write_dataset(output, [rows[number] for number in kept], dropped, inputs, settings)
