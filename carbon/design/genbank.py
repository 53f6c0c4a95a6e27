"""Designs as GenBank records with annotated features, by Biopython."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from carbon.design.measures import required_places
from carbon.genome.alphabet import translate
from carbon.io.tables import Columns, Write, text_of


@contextmanager
def write_genbank(path: Path, columns: Columns, settings: dict[str, Any]) -> Iterator[Write]:
    """Write a record per design, with its CDS and its required motifs as features.

    The comment has the values of the design and the settings of the run.
    """
    from Bio import BiopythonWarning, SeqIO

    with path.open("w", encoding="ascii", errors="backslashreplace") as sink:

        def write(row: Sequence[Any]) -> None:
            cells = dict(zip(columns, row, strict=True))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", BiopythonWarning)  # a long word keeps its line
                SeqIO.write([_record(cells, settings)], sink, "genbank")

        yield write


def _record(cells: dict[str, Any], settings: dict[str, Any]) -> Any:
    from Bio.Seq import Seq
    from Bio.SeqRecord import SeqRecord

    name, bases = cells["name"], cells["bases"]
    values = {key: cell for key, cell in cells.items() if key not in ("name", "bases")}
    facts = [(key, value) for part in (values, settings) for key, value in part.items()]
    lines = (f"{key}: {text_of(value)}" for key, value in facts if value not in (None, ""))
    return SeqRecord(
        Seq(bases),
        id=name,
        name=name,
        description=f"designed by carbon {settings['carbon']} with the model {settings['model']}",
        annotations={
            "molecule_type": "DNA",
            "topology": "linear",
            "data_file_division": "SYN",
            "organism": "synthetic construct",
            "comment": "\n".join(lines),
        },
        features=list(_features(bases, settings)),
    )


def _features(bases: str, settings: dict[str, Any]) -> Iterator[Any]:
    """Yield the source, the CDS of a protein, and each place of a required motif."""
    source = {"organism": "synthetic construct", "mol_type": "other DNA"}
    yield _feature("source", 0, len(bases), **source)
    if settings.get("protein"):
        translation = translate(bases)
        yield _feature("CDS", 0, len(bases), translation=translation.removesuffix("*"))
    required = filter(None, settings.get("require", "").split(","))
    for motif, start in required_places(required, bases):
        yield _feature("misc_feature", start, start + len(motif), note=f"required: {motif}")


def _feature(kind: str, start: int, end: int, **qualifiers: str) -> Any:
    from Bio import SeqFeature

    parts: Any = SeqFeature
    place = parts.SimpleLocation(start, end, strand=1)
    named = {name: [value] for name, value in qualifiers.items()}
    return parts.SeqFeature(place, type=kind, qualifiers=named)
