"""Labelled examples: transforms, labels of table cells, and their preparation for a run."""

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from carbon.errors import UserError
from carbon.finetune.config import (
    LOSSES_OF,
    SPLITS,
    DataConfig,
    HomologyName,
    MethodConfig,
    SplitConfig,
    TaskConfig,
)
from carbon.finetune.homology import LEAK_RULES, Homology, Leak, canonical, find_homology
from carbon.finetune.readers import SPLIT_COLUMN, Rows, read_rows, text_of
from carbon.finetune.split import (
    Examples,
    Labels,
    assign_splits,
    input_bp,
    sequences_of,
)
from carbon.finetune.tasks import TASK_TYPES, LabelTask, Transform
from carbon.genome.alphabet import FASTA_LETTERS, as_dna, why_protein
from carbon.io.files import content_sha256

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
    if not TASK_TYPES[config.type].per_base and (bare := np.isnan(named.labels).all(axis=1)).any():
        row = int(np.argmax(bare))
        raise UserError(
            f"{rows.where(row)}: has no known label ({int(bare.sum())} rows have none); take them "
            "out, or give them one"
        )
    return named


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
    if not names:
        raise UserError("data.labels: no row has a label; give a column or key that has labels")
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


def _column_names(rows: Rows, config: TaskConfig) -> tuple[str, ...]:
    """Return a name for each column: from the recipe, or the column's."""
    names = config.names or tuple(rows.labels)
    if len(names) != len(rows.labels):
        raise UserError(
            f"task.names: {len(names)} for {len(rows.labels)} columns of labels; give one for "
            "each, or none"
        )
    return names


def _by_columns(read: Callable[[str], float], wanted: str) -> "LabelReader":
    """Return a reader of one number per column."""

    def of(rows: Rows, config: TaskConfig, unknown: Collection[str]) -> NamedLabels:
        names = _column_names(rows, config)
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


def _of_tracks(rows: Rows, config: TaskConfig, unknown: Collection[str]) -> NamedLabels:
    """Read a number for every base from each column: an array, a list, or words."""
    names = _column_names(rows, config)
    columns = []
    for name, values in rows.labels.items():
        each: list[Labels] = []
        for row, (value, sequence) in enumerate(zip(values, rows.sequences, strict=True)):
            numbers = _track(value, unknown)
            if numbers is None or len(numbers) != len(sequence):
                number = "text" if numbers is None else f"{len(numbers)} numbers"
                raise UserError(
                    f"{rows.where(row)}: has {number} in '{name}' and {len(sequence)} bases; give "
                    "a number for every base"
                )
            each.append(numbers)
        columns.append(np.concatenate(each))
    return NamedLabels(names, np.stack(columns, axis=1))


def _track(value: Any, unknown: Collection[str]) -> Labels | None:
    """Return the numbers of a cell, NaN where unknown; None if one is not a number."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float32)
    words = value if isinstance(value, list | tuple) else text_of(value).replace(",", " ").split()
    texts = map(text_of, words)
    try:
        numbers = [float("nan") if text in unknown else _number(text) for text in texts]
    except ValueError:
        return None
    return np.array(numbers, dtype=np.float32)


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
    "tracks": _of_tracks,
}
"""The reader of each of `TASK_TYPES`."""


_LETTERS = frozenset(FASTA_LETTERS.decode())


class PreparedData(NamedTuple):
    """Examples and task of a run.

    Attributes:
        examples: with splits assigned.
        task: with transforms and class weights of the train split.
        notes: sentences on skipped records, split sizes and leaks.
        split_sha256: hash of sequences and splits, independent of the order of rows.
        leaks: leaks that remain.
        files: role, name and SHA-256 of each file.
        homology: method that detected homologous sequences, key of `HOMOLOGIES` but `auto`.
    """

    examples: Examples
    task: LabelTask
    notes: tuple[str, ...]
    split_sha256: str
    leaks: tuple[Leak, ...] = ()
    files: tuple[dict[str, str], ...] = ()
    homology: HomologyName = "kmers"


def prepare(data: DataConfig, task: TaskConfig, k: int) -> PreparedData:
    """Read examples, assign splits, handle leaks and fit the task.

    Raises:
        UserError: the data are invalid; the message names file and row.
    """
    rows = read_rows(data, k)
    sequences = _checked_sequences(rows)
    names = _checked_names(rows)
    named = read_labels(rows, task, data.unknown)
    keys = names if rows.names is not None else [canonical(each) for each in sequences]
    homology = find_homology(sequences, data.homology, data.identity)
    values, groups = _values_of(rows, data.split, homology, keys)
    examples = Examples(
        names=tuple(names),
        sequences=tuple(sequences),
        labels=named.labels,
        splits=assign_splits(keys, values, data.split, rows.where),
        groups=tuple(groups),
        per_base=TASK_TYPES[task.type].per_base,
        variants=tuple(rows.variants),
    )
    _check_variants(examples, data)
    examples, leak_notes, leaks = LEAK_RULES[data.leaks](examples, homology)
    counts = Counter(examples.splits)
    notes = [
        *rows.notes,
        ", ".join(f"{counts[split]} {split}" for split in SPLITS) + ".",
        *leak_notes,
    ]
    if data.split.by == "homology":
        sizes = Counter(values)
        notes.append(
            f"{len(sizes)} clusters at {homology.text}; the largest has {max(sizes.values())} "
            "sequences."
        )
    if data.split.by == "random" and any(groups):
        notes.append(
            "The splits are random, and contigs are known: neighbours may be in two splits."
        )
    fitted = fitted_task(task, named.names, examples)
    return PreparedData(
        examples,
        fitted,
        tuple(notes),
        sha256_of_splits(examples),
        tuple(leaks),
        files_of(data),
        homology.method,
    )


def _check_variants(examples: Examples, data: DataConfig) -> None:
    if data.consequence and not examples.variants:
        raise UserError("data.consequence: only a VCF has it; take it out")
    if examples.per_base and examples.variants and data.variant_input != "alt":
        raise UserError(
            f"data.variant_input = '{data.variant_input}': task.type = 'bases' labels the bases of "
            "one allele; set it to 'alt'"
        )


def files_of(data: DataConfig) -> tuple[dict[str, str], ...]:
    """Return role, name and SHA-256 of each data file; of a folder, the hash of its files' hashes.

    A hub id has no file: the configuration records its revision.
    """
    tables = {f"table of {split}": path for split, path in data.tables.items()}
    tracks = {f"track {name}": path for name, path in data.tracks.items()}
    inside = {"data": data.path, **data.files, "table": data.table, **tables, **tracks}
    paths = {role: Path(data.at(path)) for role, path in inside.items() if path}
    if data.reference:
        paths["reference"] = Path(data.reference)
    return tuple(
        {"role": role, "name": path.name, "sha256": _sha256_of(path)}
        for role, path in paths.items()
        if path.exists()
    )


def _sha256_of(path: Path) -> str:
    if path.is_file():
        return content_sha256(path)
    files = sorted(each for each in path.rglob("*") if each.is_file())
    lines = [f"{content_sha256(each)}  {each.relative_to(path).as_posix()}" for each in files]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def fitted_task(config: TaskConfig, names: Sequence[str], examples: Examples) -> LabelTask:
    """Return the task with transforms and class weights of the train split.

    Raises:
        UserError: a class has no example in train, all labels of a split are equal, or numbers lie
            outside of a transform's domain.
    """
    task_type, train = TASK_TYPES[config.type], examples.split("train").labels
    for split in SPLITS:
        _check_measurable(split, examples.split(split).labels)
    if task_type.one_column:
        _check_classes(names, train)
    transforms: tuple[Transform, ...] = ()
    if task_type.is_number:
        transforms = tuple(
            Transform.fitted(config.transform, train[:, i], f"'{name}' in train")
            for i, name in enumerate(names)
        )
    return LabelTask(
        type=config.type,
        names=tuple(names),
        loss=config.loss or LOSSES_OF[config.type][0],
        transforms=transforms,
        class_weights=_balanced(names, train, task_type.one_column)
        if config.class_weights == "balanced"
        else (),
    )


def sha256_of_splits(examples: Examples) -> str:
    """Return the SHA-256 of sequences and their splits, independent of their order."""
    pairs = zip(examples.sequences, examples.splits, strict=True)
    lines = sorted("\t".join(pair) for pair in pairs)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _check_measurable(split: str, labels: np.ndarray) -> None:
    """Raise UserError unless a column has two different values."""
    known = [column[~np.isnan(column)] for column in labels.T]
    if not any(len(np.unique(column)) > 1 for column in known):
        raise UserError(
            f"data.split: all known labels of {split} ({len(labels)} rows) are equal; choose "
            "another split"
        )


def _check_classes(names: Sequence[str], labels: np.ndarray) -> None:
    present = set(np.unique(labels[~np.isnan(labels)]).astype(int).tolist())
    if missing := [name for i, name in enumerate(names) if i not in present]:
        raise UserError(
            f"data.split: no example of class '{missing[0]}' is in train; choose another split"
        )


def _balanced(names: Sequence[str], labels: np.ndarray, one_column: bool) -> tuple[float, ...]:
    """Return rows / (classes x rows of the class); for labels, rows without / rows with each."""
    if one_column:
        counts = np.bincount(labels[~np.isnan(labels)].astype(int), minlength=len(names))
        return tuple((counts.sum() / (len(names) * counts)).tolist())
    positive, negative = (labels == 1).sum(axis=0), (labels == 0).sum(axis=0)
    return tuple((np.maximum(negative, 1) / np.maximum(positive, 1)).tolist())


def _checked_sequences(rows: Rows) -> list[str]:
    sequences = [as_dna(sequence.strip().upper()) for sequence in rows.sequences]
    for row, sequence in enumerate(sequences):
        if not sequence:
            raise UserError(f"{rows.where(row)}: has no sequence; take the row out")
        if wrong := set(sequence) - _LETTERS:
            raise UserError(
                f"{rows.where(row)}: '{min(wrong)}' is not a letter of DNA (IUPAC); is "
                "data.sequence the column of sequences?"
            )
        if why := why_protein(sequence.encode()):
            raise UserError(f"{rows.where(row)}: {why}")
    return sequences


def _checked_names(rows: Rows) -> list[str]:
    if rows.names is None:
        return [str(row) for row in range(1, len(rows) + 1)]
    seen: dict[str, int] = {}
    for row, name in enumerate(rows.names):
        if not name or name in seen:
            wrong = (
                f"'{name}' is already the name of {rows.where(seen[name])}"
                if name
                else "has no name"
            )
            raise UserError(f"{rows.where(row)}: {wrong}; give unique names in data.name")
        seen[name] = row
    return list(rows.names)


def _values_of(
    rows: Rows, split: SplitConfig, homology: Homology, keys: Sequence[str]
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the values that splits are assigned by, and the groups of the bootstrap."""
    contigs = rows.contigs or [""] * len(rows)
    if split.by == "homology":
        clusters = homology.clusters(keys)
        return clusters, clusters
    if split.by == "files":
        return rows.columns[SPLIT_COLUMN], contigs
    values = rows.columns[split.column] if split.column else contigs
    if split.by == "contig" and not any(values):
        raise UserError(
            "data.split: by = 'contig', but rows have no contig; name a column of contigs"
        )
    return values, values if split.by in ("contig", "group") else contigs


_READ_AS = {"truncate": "truncated", "tile": "read in windows that overlap by half"}


def fit_to_context(
    prepared: PreparedData, config: TaskConfig, method: MethodConfig, room_bp: int, k: int
) -> PreparedData:
    """Return data that the model can read, with notes on what it cannot.

    With a label for every base, a base that no window reads has no prediction. Its label becomes
    unknown for the model and the baselines alike.

    Args:
        prepared: examples of any length.
        config: the task; class weights are recomputed if labels become unknown.
        method: its `too_long` rule applies.
        room_bp: bases of the longest sequence that the model reads whole.
        k: bases of a token.

    Raises:
        UserError: sequences are too long, or one has no known base where the model reads it.
    """
    examples = prepared.examples
    long = [n for n, item in enumerate(examples.inputs) if input_bp(item) > room_bp]
    if long:
        _check_long(long, examples, method, room_bp)
    _check_known(examples, method, room_bp, k)
    if not long:
        return prepared
    notes = [
        f"{len(long)} sequences are longer than {room_bp} bp, and {_READ_AS[method.too_long]}."
    ]
    if method.too_long == "tile":
        notes += _unknown_windows(examples, room_bp, k)
    if not examples.per_base:
        return prepared._replace(notes=(*prepared.notes, *notes))
    labels, unread = _labels_read(examples, long, method, room_bp, k)
    if unread:
        examples = replace(examples, labels=labels)
        notes.append(f"{unread:,} labels belong to bases that are not read, and are ignored.")
    return prepared._replace(
        examples=examples,
        task=fitted_task(config, prepared.task.names, examples),
        notes=(*prepared.notes, *notes),
    )


def _check_long(long: list[int], examples: Examples, method: MethodConfig, room_bp: int) -> None:
    problem = (
        f"{len(long)} sequences are longer than the {room_bp} bp that the model reads, such as "
        f"'{examples.names[long[0]]}'"
    )
    if examples.inputs is not examples.sequences:
        raise UserError(
            f"{problem}; both alleles are read whole: set data.window_bp to {room_bp} or less"
        )
    is_cut = method.too_long == "truncate"
    if is_cut and examples.variants and max(map(len, examples.sequences)) // 2 >= room_bp:
        raise UserError(
            f"{problem}; the bases kept end before the variant: set data.window_bp to {room_bp} or "
            "less"
        )
    if method.too_long == "refuse":
        raise UserError(f"{problem}; set method.too_long to truncate or tile")
    if method.too_long == "tile" and method.name != "probe":
        raise UserError(
            f"{problem}; method '{method.name}' cannot tile: set method.too_long = 'truncate', or "
            "use probe"
        )


def _check_known(examples: Examples, method: MethodConfig, room_bp: int, k: int) -> None:
    """Raise UserError if a sequence has no known base where the model reads it."""
    from carbon.finetune.network import windows_read

    tile = method.too_long == "tile"
    bare = [
        name
        for name, item in zip(examples.names, examples.inputs, strict=True)
        if not all(any(windows_read(bases, room_bp, k, tile=tile)) for bases in sequences_of(item))
    ]
    if bare:
        where = f" in its first {room_bp} bp" if method.too_long == "truncate" else ""
        raise UserError(
            f"'{bare[0]}': has no known base{where} ({len(bare)} sequences have none); remove them"
        )


def _unknown_windows(examples: Examples, room_bp: int, k: int) -> list[str]:
    """Return a sentence on windows without a known base, if there are any."""
    from carbon.finetune.network import windows_read
    from carbon.inference.score import overlapping_windows

    missing = [
        sum(1 for _ in overlapping_windows(len(bases), room_bp, k))
        - sum(1 for _ in windows_read(bases, room_bp, k, tile=True))
        for bases in examples.sequences
    ]
    if not sum(missing):
        return []
    return [
        f"{sum(missing):,} windows of {sum(map(bool, missing)):,} sequences have no known base, "
        "and are ignored."
    ]


def _labels_read(
    examples: Examples, long: list[int], method: MethodConfig, room_bp: int, k: int
) -> tuple[Labels, int]:
    """Return labels, unknown for bases that no window reads, and how many became unknown."""
    from carbon.finetune.network import windows_read

    labels = examples.labels.copy()
    for n in long:
        is_read = np.zeros(len(examples.sequences[n]), dtype=bool)
        for start, bases in windows_read(
            examples.sequences[n], room_bp, k, tile=method.too_long == "tile"
        ):
            is_read[start : start + len(bases)] = True
        labels[examples.rows_of(n)][~is_read] = np.nan
    return labels, int(np.isnan(labels).sum() - np.isnan(examples.labels).sum())
