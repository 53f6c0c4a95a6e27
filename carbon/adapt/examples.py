"""Sequences and what is known of them, as a value."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError

PARTS = ("train", "validation", "test")
"""What examples are for: to learn from, to choose by, to measure on once."""

LEAST_GROUPS = 10
"""Of fewer, an interval over groups would be that of which few there are."""

Labels = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Examples:
    """Sequences and what is known of them.

    Attributes:
        names: (examples,) unique.
        sequences: (examples,) letters of IUPAC in upper case, one at least.
        labels: (rows, columns) in the unit of the file, NaN where unknown. A row is an example; of
            `per_base` labels it is a base, all bases of all examples one after another. Columns:
            one, 0 or 1 for two classes, an index for more; or one a label or number.
        parts: (examples,) names of `PARTS`.
        groups: (examples,) contig or group of each, "" if none; drawn together in intervals.
        per_base: every base has a label.
    """

    names: tuple[str, ...]
    sequences: tuple[str, ...]
    labels: Labels
    parts: tuple[str, ...]
    groups: tuple[str, ...]
    per_base: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError unless the columns are of one length."""
        num_rows = int(self.starts[-1])
        lengths = {len(self.names), len(self.sequences), len(self.parts), len(self.groups)}
        if len(lengths) != 1 or self.labels.ndim != 2 or len(self.labels) != num_rows:
            raise ValueError(f"{lengths} examples, {self.labels.shape} labels, {num_rows} rows")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each example, and behind them the number of all rows."""
        sizes = map(len, self.sequences) if self.per_base else (1 for _ in self.sequences)
        return np.cumsum([0, *sizes], dtype=np.int64)

    def rows_of(self, example: int) -> slice:
        """Return which rows of `labels` are of an example."""
        return slice(int(self.starts[example]), int(self.starts[example + 1]))

    @property
    def row_groups(self) -> tuple[str, ...]:
        """Return what rows are drawn together in an interval: their group, else their example.

        A handful of groups, such as two chromosomes of a test part, cannot be drawn from; then, as
        without groups, examples are drawn, and all bases of one together.
        """
        of = self.groups if len(set(self.groups)) >= LEAST_GROUPS else self.names
        return tuple(np.repeat(np.asarray(of, dtype=object), np.diff(self.starts)).tolist())

    def taken(self, which: Iterable[int]) -> "Examples":
        """Return some of the examples, in the order given."""
        which = [int(i) for i in which]
        rows = [np.arange(self.starts[i], self.starts[i + 1]) for i in which]
        return Examples(
            names=tuple(self.names[i] for i in which),
            sequences=tuple(self.sequences[i] for i in which),
            labels=self.labels[np.concatenate([np.zeros(0, dtype=np.int64), *rows])],
            parts=tuple(self.parts[i] for i in which),
            groups=tuple(self.groups[i] for i in which),
            per_base=self.per_base,
        )

    def part(self, name: str) -> "Examples":
        """Return the examples of a part, in their order.

        Raises:
            UserError: there is no part of that name.
        """
        if name not in PARTS:
            raise UserError(f"part '{name}': give one of {', '.join(PARTS)}")
        return self.taken(i for i, part in enumerate(self.parts) if part == name)
