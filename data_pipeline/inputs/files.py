"""Files of finished records as rows of a corpus: FASTA, sequences by line, Parquet, reads."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from carbon.corpus import HELD_OUT_NAMES
from carbon.errors import UserError
from carbon.genome import read_sequences
from carbon.genome.sequences import BROKEN_GZIP, SequenceLines, open_text
from carbon.io.structured import open_parquet
from carbon.tokenizer import GENE_TAG_OF, SPECIES_TAG_OF
from data_pipeline.cuts import Dropped
from data_pipeline.inputs.listing import matching
from data_pipeline.inputs.reads import read_rows
from data_pipeline.recipe import FilesConfig
from data_pipeline.records import Segment
from data_pipeline.split import is_fastq, sample_of


def file_rows(
    path: Path, config: FilesConfig, mates: Path | None = None
) -> Iterator[dict[str, Any] | Dropped]:
    """Yield the records of a file as rows of the corpus, with the columns of its format.

    Reads without a base are dropped; in the other formats a record without a base is an error.

    Raises:
        UserError: the file is absent, or of none of the formats; it does not fit its mates; or it
            has no record, unless it is one of several Parquet files, such as an empty split.
    """
    constant = {
        "source": config.source,
        "gene_type": config.gene_type,
        "species_type": config.species_type,
        "organism": config.organism,
        "assembly": config.assembly,
    }
    rows: Iterator[dict[str, Any] | Dropped]
    if is_fastq(path):
        constant["assembly"] = config.sample or sample_of(path, paired=bool(config.mates))
        rows = read_rows(path, mates)
    elif path.suffix == ".parquet":
        rows = _released_rows(path)
    elif _begins_with(path, ">"):
        rows = ({"name": name, "sequence": bases} for name, bases in read_sequences(path))
    else:
        rows = _line_rows(path)
    number = 0
    try:
        for number, row in enumerate(rows, start=1):
            if isinstance(row, Dropped):
                yield row
                continue
            told = {key: value for key, value in constant.items() if value or key not in row}
            yield _completed(row | told, f"{path} record {number}")
    except (*BROKEN_GZIP, pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0]
        raise UserError(
            f"{path}: broken after record {number} ({reason}); fetch it again"
        ) from None
    if not number and not _is_empty_part(path, config.path):
        raise UserError(f"{path}: has no record; give FASTA, sequences by line, or Parquet")


def _is_empty_part(path: Path, pattern: str) -> bool:
    """Return whether a file is the Parquet of an empty split, beside files with records."""
    return path.suffix == ".parquet" and any(
        open_parquet(each, {}, remedy="fetch it again").metadata.num_rows
        for each in matching(pattern)
        if each.suffix == ".parquet"
    )


def _completed(row: dict[str, Any], where: str) -> dict[str, Any]:
    """Check a record and return its place in an assembly, as far as the file has it."""
    sequence = row.get("sequence")
    if not isinstance(sequence, str) or not sequence:
        raise UserError(f"{where}: has no sequence; take it out")
    if wrong := sequence.translate(_NO_DNA):
        raise UserError(f"{where}: {wrong[0]!r} is not a DNA letter; is it text or a protein?")
    for name, codes in (("species_type", SPECIES_TAG_OF), ("gene_type", GENE_TAG_OF)):
        if row.get(name) and row[name] not in codes:
            raise UserError(f"{where}: {name} '{row[name]}' is none of {', '.join(codes)}")
    try:
        start, end = int(row.get("start") or 0), int(row.get("end") or 0)
    except ValueError:
        raise UserError(f"{where}: start and end must be whole numbers") from None
    strand = str(row.get("strand") or "+")
    end = end or start + len(sequence)
    if not 0 <= start < end:
        raise UserError(f"{where}: need 0 <= start < end, got {start} and {end}")
    if strand not in ("+", "-", "."):
        raise UserError(f"{where}: strand '{strand}': must be + or -")
    one = {"start": start, "end": end, "strand": strand.replace(".", "+")}  # as the contig stands
    try:
        segments = [Segment(**each) for each in row.get("segments") or [one]]
        segments_bp = sum(each.end - each.start for each in segments)
    except TypeError:
        raise UserError(f"{where}: segments must have start, end and strand") from None
    if segments_bp != len(sequence):
        segments = []  # the place in the file is not the place of these bases
    name = str(row.get("name") or row.get("record_id") or where)
    place = {"start": start, "end": end, "strand": strand, "segments": segments}
    return row | place | {"record_id": str(row.get("record_id") or name), "name": name}


_NO_DNA = dict.fromkeys(map(ord, "ACGTUNRYSWKMBDHVacgtunryswkmbdhv-"))


def _begins_with(path: Path, letter: str) -> bool:
    if not path.is_file():
        raise UserError(f"{path}: no such file; give FASTA, sequences by line, or Parquet")
    try:
        with open_text(path, errors="replace") as lines:
            return next(lines, "")[:1] == letter
    except BROKEN_GZIP as error:
        raise UserError(f"{path}: broken from its beginning ({error}); fetch it again") from None


_LINE_LETTERS = b"ACGTNRYSWKMBDHV-"


def _line_rows(path: Path) -> Iterator[dict[str, Any]]:
    for number, line in enumerate(SequenceLines(path).lines(), start=1):
        encoding = "utf-8-sig" if number == 1 else "utf-8"
        bases = line.decode(encoding, "replace").strip()
        if wrong := bases.upper().encode().translate(None, _LINE_LETTERS):
            raise UserError(
                f"{path} line {number}: {wrong.decode()[0]!r} is not a DNA letter; give FASTA, "
                "or one sequence a line"
            )
        if bases:
            yield {"sequence": bases, "name": f"{path.name}:{number}"}


# Columns of the released corpus, with its codes in brackets, and their values here.
_RELEASED = ("record_id", "start", "end", "strand", "gene_type", "species_type")
_OURS = ("name", "segments", "organism", "assembly")
_TEXT = ("sequence", "text")


def _released_rows(path: Path) -> Iterator[dict[str, Any]]:
    parquet = open_parquet(path, {}, remedy="fetch it again")
    text = next((name for name in _TEXT if name in parquet.schema_arrow.names), None)
    if text is None:
        raise UserError(
            f"{path}: has no column 'sequence' or 'text', only "
            f"{', '.join(parquet.schema_arrow.names)}; is it a corpus?"
        )
    columns = [text, *(c for c in _RELEASED + _OURS if c in parquet.schema_arrow.names)]
    # What another corpus holds out stays held out.
    split = {"split": "test"} if path.name.startswith(HELD_OUT_NAMES) else {}
    for batch in parquet.iter_batches(batch_size=1024, columns=columns):
        for row in batch.to_pylist():
            row["sequence"] = row.pop(text)
            yield split | {key: _bare(value) for key, value in row.items() if value is not None}


def _bare(value: Any) -> Any:
    """Take a code out of its brackets: `<fng>`, `<+>`."""
    if isinstance(value, str) and value.startswith("<") and value.endswith(">"):
        return value[1:-1]
    return value if isinstance(value, list) else str(value)
