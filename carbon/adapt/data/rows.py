"""What a reader returns: sequences and labels as they stand in a file, and where each stands."""

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from carbon.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Rows:
    """Examples as a file has them.

    Attributes:
        sequences: in the case of the file.
        labels: by name, of each example, as text, a number, a list (of every base) or None.
        names: None where the file has none.
        columns: others that were asked for, as text, by name.
        contigs: of the reference; None where sequences are not of one.
        where: from a row, counted from 0, to what messages call it.
        told: what was passed over, in whole sentences.
    """

    sequences: Sequence[str]
    labels: Mapping[str, Sequence[Any]]
    names: Sequence[str] | None
    columns: Mapping[str, Sequence[str]]
    contigs: Sequence[str] | None
    where: Callable[[int], str]
    told: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.sequences)


def find_column(name: str, columns: Collection[str], where: str, asked: str) -> str:
    """Return a column's name.

    Raises:
        UserError: there is none of that name; the message has the near ones, or all.
    """
    if name in columns:
        return name
    near = difflib.get_close_matches(name, columns, n=1)
    shown = f"did you mean '{near[0]}'?" if near else f"it has {', '.join(list(columns)[:12])}"
    raise UserError(f"{where}: has no column '{name}' ({asked}); {shown}")


def joined(parts: Mapping[str, Rows], column: str) -> Rows:
    """Return the rows of several files as one; a column says of which each is."""
    each, first = list(parts.values()), next(iter(parts.values()))
    ends = [0]
    for rows in each:
        ends.append(ends[-1] + len(rows))

    def where(row: int) -> str:
        which = next(i for i, end in enumerate(ends[1:]) if row < end)
        return each[which].where(row - ends[which])

    def listed(get: Callable[[Rows], Sequence[Any]]) -> list[Any]:
        return list(chain.from_iterable(get(rows) for rows in each))

    of_parts = list(chain.from_iterable([name] * len(rows) for name, rows in parts.items()))
    return replace(
        first,
        sequences=listed(lambda rows: rows.sequences),
        labels={name: listed(lambda rows, n=name: rows.labels[n]) for name in first.labels},  # type: ignore[misc]
        names=listed(lambda rows: rows.names or ()) if first.names is not None else None,
        columns={
            **{name: listed(lambda rows, n=name: rows.columns[n]) for name in first.columns},  # type: ignore[misc]
            column: of_parts,
        },
        contigs=listed(lambda rows: rows.contigs or ()) if first.contigs is not None else None,
        where=where,
        told=tuple(chain.from_iterable(rows.told for rows in each)),
    )
