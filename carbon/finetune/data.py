"""Labelled examples, transforms of numbers, and how table cells become labels."""

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.config import TaskConfig
from carbon.finetune.tables import Rows

SPLITS = ("train", "validation", "test")
"""Training, model selection and the final measurement."""

MIN_GROUPS = 10
"""Below this number of groups, a bootstrap over groups is unreliable."""

Labels = NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class Examples:
    """Labelled sequences.

    Attributes:
        names: (examples,) unique.
        sequences: (examples,) upper-case IUPAC letters, at least one each.
        labels: (rows, columns) in the unit of the file, NaN where unknown. A row is an example, or,
            if `per_base`, a base: all bases of all examples in order. Of classes there is one
            column with the class index (0 or 1 for two classes); otherwise a column for each label
            or number.
        splits: (examples,) names of `SPLITS`.
        groups: (examples,) contig or group of each, "" if none; a bootstrap draws groups whole.
        per_base: whether every base has a label.
    """

    names: tuple[str, ...]
    sequences: tuple[str, ...]
    labels: Labels
    splits: tuple[str, ...]
    groups: tuple[str, ...]
    per_base: bool = False

    def __post_init__(self) -> None:
        """Raise ValueError if the columns differ in length."""
        num_rows = int(self.starts[-1])
        lengths = {len(self.names), len(self.sequences), len(self.splits), len(self.groups)}
        if len(lengths) != 1 or self.labels.ndim != 2 or len(self.labels) != num_rows:
            raise ValueError(f"{lengths} examples, {self.labels.shape} labels, {num_rows} rows")

    def __len__(self) -> int:
        return len(self.names)

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each example, followed by the number of all rows."""
        sizes = map(len, self.sequences) if self.per_base else (1 for _ in self.sequences)
        return np.cumsum([0, *sizes], dtype=np.int64)

    def rows_of(self, example: int) -> slice:
        """Return the rows of `labels` that belong to an example."""
        return slice(int(self.starts[example]), int(self.starts[example + 1]))

    @property
    def row_groups(self) -> tuple[str, ...]:
        """Return, for each row, the unit that a bootstrap draws: its group, or else its example.

        With fewer than `MIN_GROUPS` groups, such as the two chromosomes of a test split, examples
        are drawn, all bases of one together.
        """
        units = self.groups if len(set(self.groups)) >= MIN_GROUPS else self.names
        return tuple(np.repeat(np.asarray(units, dtype=object), np.diff(self.starts)).tolist())

    def subset(self, which: Iterable[int]) -> "Examples":
        """Return the examples with these numbers, in the order given."""
        which = [int(i) for i in which]
        rows = [np.arange(self.starts[i], self.starts[i + 1]) for i in which]
        return Examples(
            names=tuple(self.names[i] for i in which),
            sequences=tuple(self.sequences[i] for i in which),
            labels=self.labels[np.concatenate([np.zeros(0, dtype=np.int64), *rows])],
            splits=tuple(self.splits[i] for i in which),
            groups=tuple(self.groups[i] for i in which),
            per_base=self.per_base,
        )

    def split(self, name: str) -> "Examples":
        """Return the examples of a split, in their order.

        Raises:
            UserError: `name` is not a split.
        """
        if name not in SPLITS:
            raise UserError(f"split '{name}': give one of {', '.join(SPLITS)}")
        return self.subset(i for i, split in enumerate(self.splits) if split == name)


Floats = NDArray[np.float64]


class TransformFunctions(NamedTuple):
    """The functions of a transform.

    Attributes:
        forward: maps a label to a training target, before standardisation.
        inverse: undoes `forward`.
        above: labels must be larger than this.
        standardised: whether targets are scaled to mean 0 and standard deviation 1 on the train
            split.
    """

    forward: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]
    above: float
    standardised: bool


def _same(values: Floats) -> Floats:
    return values


TRANSFORMS: dict[str, TransformFunctions] = {
    "z_score": TransformFunctions(_same, _same, -np.inf, standardised=True),
    "none": TransformFunctions(_same, _same, -np.inf, standardised=False),
    "log1p": TransformFunctions(np.log1p, np.expm1, -1.0, standardised=False),
    "log1p_z_score": TransformFunctions(np.log1p, np.expm1, -1.0, standardised=True),
    "asinh_z_score": TransformFunctions(np.arcsinh, np.sinh, -np.inf, standardised=True),
}


@dataclass(frozen=True)
class Transform:
    """A transform of one number, fitted to the train split.

    Attributes:
        name: key of `TRANSFORMS`.
        mean: subtracted after `forward`.
        sd: divisor after that.
    """

    name: str = "none"
    mean: float = 0.0
    sd: float = 1.0

    @classmethod
    def fitted(cls, name: str, labels: NDArray[Any], what: str) -> Self:
        """Fit to labels, (rows,), ignoring NaN; SD is the population's.

        Raises:
            UserError: a label lies outside of the transform's domain, or all are equal.
        """
        form = TRANSFORMS[name]
        known = np.asarray(labels, dtype=np.float64)
        known = known[~np.isnan(known)]
        if not len(known):
            raise UserError(f"{what}: all numbers are unknown; give at least one")
        if known.min() <= form.above:
            raise UserError(
                f"{what}: {known.min():g} has no {name}, which takes numbers above {form.above:g}; "
                "choose another task.transform"
            )
        if not form.standardised:
            return cls(name)
        values = form.forward(known)
        if not values.std() > 0:
            raise UserError(f"{what}: all {len(known)} numbers to learn from are {known[0]:g}")
        return cls(name, float(values.mean()), float(values.std()))

    def apply(self, labels: NDArray[Any]) -> Floats:
        """Return training targets; NaN stay NaN, and so do labels outside of the domain."""
        form = TRANSFORMS[self.name]
        # Labels of other splits may lie outside of the domain; they become unknown.
        with np.errstate(invalid="ignore", divide="ignore"):
            values = form.forward(np.asarray(labels, dtype=np.float64))
        return (np.where(np.isfinite(values), values, np.nan) - self.mean) / self.sd

    def undo(self, values: NDArray[Any]) -> Floats:
        """Return numbers in the unit of the labels."""
        return TRANSFORMS[self.name].inverse(np.asarray(values, np.float64) * self.sd + self.mean)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the transform that `to_json` wrote."""
        return cls(**values)


_YES_AND_NO = {"0": 0.0, "1": 1.0, "false": 0.0, "true": 1.0, "no": 0.0, "yes": 1.0}
_SHOWN = 8


class NamedLabels(NamedTuple):
    """Labels of rows with their names.

    Attributes:
        names: of the classes, labels or numbers.
        labels: (rows, columns) as in `Examples`.
    """

    names: tuple[str, ...]
    labels: Labels


def read_labels(rows: Rows, config: TaskConfig, unknown: Collection[str]) -> NamedLabels:
    """Return the labels of rows as numbers.

    Args:
        rows: rows of a file.
        config: the task.
        unknown: cells that mark an unknown label.

    Raises:
        UserError: a label is not a number or not a named class, a row has no label, or there are
            too few or too many classes.
    """
    named = LABEL_READERS[config.type](rows, config, unknown)
    if config.type != "bases" and (bare := np.isnan(named.labels).all(axis=1)).any():
        row = int(np.argmax(bare))
        raise UserError(
            f"{rows.where(row)}: has no known label ({int(bare.sum())} rows have none); take them "
            "out, or give them one"
        )
    return named


def text_of(value: Any) -> str:
    """Return a cell's text: 1.0 as 1, booleans in lower case, None and NaN as an empty text."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value).strip()


def _one_column(rows: Rows, config: TaskConfig) -> Sequence[Any]:
    if len(rows.labels) != 1:
        raise UserError(
            f"data.labels = {list(rows.labels)}: a task of type = '{config.type}' has one "
            "column; name one, or set task.type = 'labels'"
        )
    return next(iter(rows.labels.values()))


def _of_classes(rows: Rows, config: TaskConfig, unknown: Collection[str]) -> NamedLabels:
    texts = [text_of(value) for value in _one_column(rows, config)]
    names = _names(texts, config, unknown, rows.where)
    return NamedLabels(names, _indices(texts, names, unknown, rows.where)[:, None])


def _of_bases(rows: Rows, config: TaskConfig, unknown: Collection[str]) -> NamedLabels:
    """Read a class for every base: a list, words separated by blanks or commas, or letters."""
    each = [_listed(value) for value in _one_column(rows, config)]
    for row, (labels, sequence) in enumerate(zip(each, rows.sequences, strict=True)):
        if len(labels) != len(sequence):
            raise UserError(
                f"{rows.where(row)}: has {len(labels)} labels and {len(sequence)} bases; give one "
                "for every base"
            )
    ends = np.cumsum([len(labels) for labels in each])

    def where(base: int) -> str:
        return rows.where(int(np.searchsorted(ends, base, side="right")))

    texts = [text for labels in each for text in labels]
    names = _names(texts, config, unknown, where)
    return NamedLabels(names, _indices(texts, names, unknown, where)[:, None])


def _listed(value: Any) -> list[str]:
    if isinstance(value, list | tuple):
        return [text_of(each) for each in value]
    text = text_of(value)
    words = text.replace(",", " ").split()
    return words if len(words) > 1 else list(text)


def _names(
    texts: Sequence[str], config: TaskConfig, unknown: Collection[str], where: Any
) -> tuple[str, ...]:
    """Return the class names of the recipe, or the sorted values."""
    counts = Counter(texts)
    for text in unknown:
        counts.pop(text, None)
    names = config.names or tuple(sorted(counts, key=_numbers_first))
    shown = ", ".join(map(repr, names[:_SHOWN])) + (" ..." if len(names) > _SHOWN else "")
    if len(names) < 2:
        raise UserError(f"data.labels: all have one class ({shown}); give two or more classes")
    if config.type == "binary" and len(names) > 2:
        raise UserError(
            f"data.labels: has {len(names)} classes ({shown}), and task.type = 'binary' two; "
            "set task.type = 'classes' or 'numbers'"
        )
    for name in names:
        if counts[name] < 2:
            shown = f"class '{name}' has {counts[name]} example{'s' * (counts[name] != 1)}"
            place = f" ({where(texts.index(name))})" if counts[name] else ""
            raise UserError(f"data.labels: {shown}{place}; give two or more, or leave it out")
    return names


def _numbers_first(name: str) -> tuple[bool, float, str]:
    try:
        return False, float(name), name
    except ValueError:
        return True, 0.0, name


def _indices(
    texts: Sequence[str], names: Sequence[str], unknown: Collection[str], where: Any
) -> Labels:
    index = {text: float("nan") for text in unknown} | {n: float(i) for i, n in enumerate(names)}
    try:
        return np.array([index[text] for text in texts], dtype=np.float32)
    except KeyError as error:
        row = texts.index(error.args[0])
        raise UserError(
            f"{where(row)}: label '{error.args[0]}' is not in task.names; add it or correct it"
        ) from None


def _by_columns(read: Callable[[str], float], wanted: str) -> "LabelReader":
    """Return a reader of one number per column."""

    def of(rows: Rows, config: TaskConfig, unknown: Collection[str]) -> NamedLabels:
        names = config.names or tuple(rows.labels)
        if len(names) != len(rows.labels):
            raise UserError(
                f"task.names: {len(names)} for {len(rows.labels)} columns of data.labels; give "
                "one for each, or none"
            )
        columns = []
        for name, values in rows.labels.items():
            texts = [text_of(value) for value in values]
            column = np.full(len(texts), np.nan, dtype=np.float32)
            for row, text in enumerate(texts):
                if text in unknown:
                    continue
                try:
                    column[row] = read(text)
                except (KeyError, ValueError):
                    raise UserError(
                        f"{rows.where(row)}: '{text[:40]}' in column '{name}' is not {wanted}; "
                        "correct it, or list it in data.unknown"
                    ) from None
            columns.append(column)
        return NamedLabels(names, np.stack(columns, axis=1))

    return of


def _number(text: str) -> float:
    value = float(text)
    if not abs(value) < np.finfo(np.float32).max:
        raise ValueError(text)
    return value


LabelReader = Callable[[Rows, TaskConfig, Collection[str]], NamedLabels]

LABEL_READERS: dict[str, LabelReader] = {
    "binary": _of_classes,
    "classes": _of_classes,
    "labels": _by_columns(lambda text: _YES_AND_NO[text.lower()], "0 or 1"),
    "numbers": _by_columns(_number, "a number"),
    "bases": _of_bases,
}
"""The reader of each of `TASK_TYPES`."""
