"""Write scored variants as VCF, TSV, JSON or Parquet, by the suffix of the output."""

import json
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pysam

from carbon.errors import GenomeError
from carbon.genome import VcfReader, VcfRow
from carbon.genome.vcf import info_text
from carbon.inference.options import DEFAULT_SCORES, VARIANT_SCORES
from carbon.inference.variants.annotate import ANNOTATION, BACKGROUND, Columns
from carbon.io.tables import chosen_by_ending, text_of

Scored = tuple[VcfRow, Sequence[Columns]]
Write = Callable[[Scored], None]
ColumnType = type[str] | type[float] | type[int] | type[bool]

_BOTH = "both"


class Column(NamedTuple):
    """A column of a scored ALT, and `CARBON_` field of a scored VCF.

    Attributes:
        kind: type of the values.
        meaning: description of the VCF field.
        needs: what writes it: an annotation, a background, `both` strands, or the name of a score;
            empty for all.
    """

    kind: ColumnType
    meaning: str
    needs: str = ""


COLUMNS: dict[str, Column] = {
    "delta": Column(float, VARIANT_SCORES["delta"].meaning),
    "forward": Column(float, "CARBON_DELTA of the forward strand", _BOTH),
    "reverse": Column(float, "CARBON_DELTA of the reverse strand", _BOTH),
    "spread": Column(float, "Standard deviation of CARBON_DELTA over offsets and strands, nats"),
    "unsure": Column(bool, "1 where CARBON_DELTA lies inside CARBON_SPREAD, otherwise 0"),
    **{
        name: Column(float, score.meaning, name)
        for name, score in VARIANT_SCORES.items()
        if name not in DEFAULT_SCORES
    },
    "scored_as": Column(
        str, "contig:position:REF:ALT, trimmed and left-aligned, where the record has another"
    ),
    "strand_left_out": Column(
        str, "Strand that cannot tell the alleles apart: CARBON_DELTA is of the other", _BOTH
    ),
    "strand_masked": Column(
        str,
        "Strand on which bases after the variant do not see its alleles, which share their "
        "k-mers with unknown bases: forward, reverse or both",
    ),
    "reason": Column(str, "Why there is no CARBON_DELTA"),
    "gene": Column(str, "Gene of CARBON_CONSEQUENCE", ANNOTATION),
    "transcript": Column(str, "Transcript of CARBON_CONSEQUENCE", ANNOTATION),
    "consequence": Column(
        str,
        "Most severe consequence for any transcript, as the Sequence Ontology names it",
        ANNOTATION,
    ),
    "codon": Column(int, "Number of the first codon that changes, from 1", ANNOTATION),
    "codons": Column(str, "Codons before and after, as the transcript reads them", ANNOTATION),
    "amino_acids": Column(str, "Amino acids before and after, or the one that stays", ANNOTATION),
    "percentile": Column(
        float,
        "Percent of random variants of CARBON_PERCENTILE_OF with a lower CARBON_DELTA",
        BACKGROUND,
    ),
    "percentile_of": Column(
        str,
        "Kind of the random variants that CARBON_PERCENTILE compares with; a broader "
        "kind where the background has too few of the variant's own",
        BACKGROUND,
    ),
}
"""All columns, in the order in which they are written."""

_PLACE = {"contig": str, "position": int, "id": str, "ref": str, "alt": str}

# Matches the INFO of a scored record.
OUR_FIELD = re.compile(rf"(?:^|;)CARBON_(?:{'|'.join(COLUMNS).upper()})\b")
_TYPES = {float: "Float", int: "Integer", bool: "Integer", str: "String"}


def _fields(settings: dict[str, Any]) -> dict[str, ColumnType]:
    """Return the columns to write: single strands if both are scored, and the chosen scores."""
    has = {"", settings["strands"], *settings, *settings.get("scores", ())}
    return {name: column.kind for name, column in COLUMNS.items() if column.needs in has}


def scored_header(vcf: VcfReader, settings: dict[str, Any]) -> list[str]:
    """Return the header with the CARBON_ fields and the scoring settings.

    Raises:
        GenomeError: the header already has such fields.
    """
    *lines, columns = vcf.header
    if any(line.startswith("##INFO=<ID=CARBON_") for line in lines):
        raise GenomeError(f"{vcf.path}: already has CARBON_DELTA; give the VCF without scores")
    apart = ("delta", "spread", ANNOTATION, BACKGROUND, "percentile")
    made = "; ".join(
        f"{name} {value}"
        for name, value in settings.items()
        if name not in apart and not name.endswith("_sha256")
    )
    added = []
    for name, kind in _fields(settings).items():
        meaning = COLUMNS[name].meaning + (f" ({made})" if name == "delta" else "")
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
                values = [score.get(name) for score in scores]
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
                values = map(score.get, fields)
                write_row((*place, variant.ref, variant.alt, *values))

        yield write
