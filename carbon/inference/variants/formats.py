"""Write scored variants as VCF, TSV, JSON or Parquet, by the suffix of the output."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pysam

from carbon.errors import GenomeError
from carbon.genome import VcfReader, VcfRow
from carbon.genome.vcf import info_text
from carbon.inference.variants.annotate import (
    ANNOTATION,
    BACKGROUND,
    CONSEQUENCE_COLUMNS,
    CONSEQUENCE_MEANINGS,
    AlleleScore,
    ColumnType,
)
from carbon.io.tables import chosen_by_ending, text_of

Scored = tuple[VcfRow, Sequence[AlleleScore]]
Write = Callable[[Scored], None]
VariantWriter = Callable[[Path, VcfReader, dict[str, Any]], AbstractContextManager[Write]]

_MEANINGS = CONSEQUENCE_MEANINGS | {
    "delta": "log-likelihood(ALT) - log-likelihood(REF), nats",
    "forward": "CARBON_DELTA of the forward strand",
    "reverse": "CARBON_DELTA of the reverse strand",
    "spread": "Standard deviation of CARBON_DELTA over offsets and strands, nats",
    "unsure": "1 where CARBON_DELTA lies inside CARBON_SPREAD, otherwise 0",
    "reason": "Why there is no CARBON_DELTA",
    "scored_as": "contig:position:REF:ALT, trimmed and left-aligned, where the record has another",
    "strand_left_out": "Strand that cannot tell the alleles apart: CARBON_DELTA is of the other",
    "percentile": "Percent of random variants of CARBON_PERCENTILE_OF with a lower CARBON_DELTA",
    "percentile_of": "Kind of the random variants that CARBON_PERCENTILE compares with; a broader "
    "kind where the background has too few of the variant's own",
}
_PLACE = {"contig": str, "position": int, "id": str, "ref": str, "alt": str}


# Matches the INFO of a scored record.
OUR_FIELD = re.compile(rf"(?:^|;)CARBON_(?:{'|'.join(_MEANINGS).upper()})\b")
_TYPES = {float: "Float", int: "Integer", bool: "Integer", str: "String"}


def _fields(settings: dict[str, Any]) -> dict[str, ColumnType]:
    """Return the columns to write, single strands only if both are scored."""
    both = settings["strands"] == "both"
    strands = ["forward", "reverse"] if both else []
    scores: dict[str, ColumnType] = {name: float for name in ["delta", *strands, "spread"]}
    scores |= (
        {"unsure": bool, "scored_as": str}
        | ({"strand_left_out": str} if both else {})
        | {"reason": str}
    )
    ranks: dict[str, ColumnType] = {"percentile": float, "percentile_of": str}
    annotation = CONSEQUENCE_COLUMNS if ANNOTATION in settings else {}
    return scores | annotation | (ranks if BACKGROUND in settings else {})


def scored_header(vcf: VcfReader, settings: dict[str, Any]) -> list[str]:
    """Return the header with the CARBON_ fields and the scoring settings.

    Raises:
        GenomeError: the header already has such fields.
    """
    *lines, columns = vcf.header
    if any(line.startswith("##INFO=<ID=CARBON_") for line in lines):
        raise GenomeError(f"{vcf.path}: already has CARBON_DELTA; give the VCF without scores")
    apart = ("delta", "spread", ANNOTATION, BACKGROUND, "background_sha256", "percentile")
    made = "; ".join(f"{name} {value}" for name, value in settings.items() if name not in apart)
    added = []
    for name, kind in _fields(settings).items():
        meaning = _MEANINGS[name] + (f" ({made})" if name == "delta" else "")
        added.append(
            f"##INFO=<ID=CARBON_{name.upper()},Number=A,"
            f"Type={_TYPES[kind]},"
            f'Description="{meaning.replace(chr(34), chr(39))}">'
        )
    return [*lines, *added, f"##carbon_variants={json.dumps(settings)}", columns]


@contextmanager
def write_vcf(path: Path, vcf: VcfReader, settings: dict[str, Any]) -> Iterator[Write]:
    """Write each record unchanged, with the scores of its alleles in INFO."""
    opened = pysam.BGZFile(str(path), "w", index=None) if path.suffix == ".gz" else path.open("wb")
    fields = _fields(settings)
    with opened as sink:
        sink.write("".join(f"{line}\n" for line in scored_header(vcf, settings)).encode())

        def write(scored: Scored) -> None:
            row, scores = scored
            added = []
            for name in fields:
                values = [getattr(score, name) for score in scores]
                if any(value is not None for value in values):
                    added.append(f"CARBON_{name.upper()}={','.join(map(_info_text, values))}")
            sink.write(row.with_info(";".join(added)).encode())

        yield write


def _info_text(value: str | float | None) -> str:
    if isinstance(
        value, bool
    ):  # the only booleans of INFO are flags, which apply to a whole record
        return str(int(value))
    return info_text(value) if isinstance(value, str) else text_of(value)


@contextmanager
def write_table(path: Path, vcf: VcfReader, settings: dict[str, Any]) -> Iterator[Write]:
    """Write one row an ALT, with the 1-based position of the VCF."""
    fields = _fields(settings)
    with chosen_by_ending(path, "table")(path, _PLACE | fields, settings) as write_row:

        def write(scored: Scored) -> None:
            row, scores = scored
            for variant, score in zip(row.variants, scores, strict=True):
                place = (row.columns[0], variant.position + 1, row.columns[2])
                values = (getattr(score, name) for name in fields)
                write_row((*place, variant.ref, variant.alt, *values))

        yield write
