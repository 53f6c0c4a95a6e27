"""From a configuration to examples in parts and a question that is fitted to them."""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.config import DataConfig, QuestionConfig, SplitConfig, WayConfig
from carbon.finetune.data import PARTS, Examples, Transform, answers_of
from carbon.finetune.network import windows_read
from carbon.finetune.readers import PART_COLUMN, read_rows
from carbon.finetune.split import LEAK_RULES, Leak, canonical, parts_of
from carbon.finetune.tables import Rows
from carbon.finetune.tasks import QUESTIONS, Question
from carbon.genome.alphabet import FASTA_LETTERS
from carbon.inference.score import overlapping_windows
from carbon.io.files import content_sha256

_LETTERS = frozenset(FASTA_LETTERS.decode())


class Prepared(NamedTuple):
    """What learning begins with.

    Attributes:
        examples: in parts.
        question: with transforms and class weights of the train part.
        told: whole sentences on what was passed over, how the parts came about, and what stands in
            two of them.
        split_hash: SHA-256 of sequences and parts, whatever the order of the rows.
        leaks: that are left in.
        files: what was read: role, name and SHA-256 of each file.
    """

    examples: Examples
    question: Question
    told: tuple[str, ...]
    split_hash: str
    leaks: tuple[Leak, ...] = ()
    files: tuple[dict[str, str], ...] = ()


def prepare(data: DataConfig, question: QuestionConfig) -> Prepared:
    """Read, label, part and check.

    Raises:
        UserError: anything is wrong with the data; the message names file and row.
    """
    rows = read_rows(data)
    sequences = _checked_sequences(rows)
    names = _checked_names(rows)
    answers = answers_of(rows, question, data.unknown)
    keys = names if rows.names is not None else [canonical(each) for each in sequences]
    values, groups = _values_of(rows, data.split)
    examples = Examples(
        names=tuple(names),
        sequences=tuple(sequences),
        labels=answers.labels,
        parts=parts_of(keys, values, data.split, rows.where),
        groups=tuple(groups),
        per_base=QUESTIONS[question.kind].per_base,
    )
    examples, told_of_leaks, leaks = LEAK_RULES[data.leaks](examples, data.leak_share)
    counts = Counter(examples.parts)
    told = [*rows.told, ", ".join(f"{counts[part]} {part}" for part in PARTS) + ".", *told_of_leaks]
    if data.split.by == "random" and any(groups):
        told.append("The parts are random, though there are contigs: neighbours may be in two.")
    fitted = fitted_question(question, answers.names, examples)
    return Prepared(
        examples, fitted, tuple(told), split_hash_of(examples), tuple(leaks), files_of(data)
    )


def files_of(data: DataConfig) -> tuple[dict[str, str], ...]:
    """Return role, name and SHA-256 of each file of data; of a folder, that of its files' hashes.

    An id of the hub is no file: its revision is in the configuration.
    """
    tables = {f"table of {part}": path for part, path in data.tables.items()}
    inside = {"data": data.path, **data.files, "table": data.table, **tables}
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


def fitted_question(config: QuestionConfig, names: Sequence[str], examples: Examples) -> Question:
    """Return the question with transforms and weights of the train part.

    Raises:
        UserError: a class has no example in train, a part has labels of one kind only, or numbers
            are outside of what a transform takes.
    """
    kind, train = QUESTIONS[config.kind], examples.part("train").labels
    for part in PARTS:
        _check_measurable(part, examples.part(part).labels)
    if kind.one_column:
        _check_classes(names, train)
    transforms: tuple[Transform, ...] = ()
    if kind.is_number:
        transforms = tuple(
            Transform.fitted(config.transform, train[:, i], f"'{name}' in train")
            for i, name in enumerate(names)
        )
    return Question(
        kind=config.kind,
        names=tuple(names),
        loss=config.loss or kind.losses[0],
        transforms=transforms,
        class_weights=_balanced(names, train, kind.one_column)
        if config.class_weights == "balanced"
        else (),
    )


def split_hash_of(examples: Examples) -> str:
    """Return the SHA-256 of sequences and their parts, whatever their order."""
    pairs = zip(examples.sequences, examples.parts, strict=True)
    lines = sorted("\t".join(pair) for pair in pairs)
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _check_measurable(part: str, labels: np.ndarray) -> None:
    """Raise UserError unless a column has two values that differ."""
    known = [column[~np.isnan(column)] for column in labels.T]
    if not any(len(np.unique(column)) > 1 for column in known):
        raise UserError(
            f"data.split: all known labels of {part} ({len(labels)} rows) are alike, so that "
            "nothing can be told apart; split in another way"
        )


def _check_classes(names: Sequence[str], labels: np.ndarray) -> None:
    there = set(np.unique(labels[~np.isnan(labels)]).astype(int).tolist())
    if missing := [name for i, name in enumerate(names) if i not in there]:
        raise UserError(
            f"data.split: no example of class '{missing[0]}' is in train; split in another way"
        )


def _balanced(names: Sequence[str], labels: np.ndarray, one_column: bool) -> tuple[float, ...]:
    """Return rows / (classes x rows of the class), or, of labels, rows without / rows with each."""
    if one_column:
        counts = np.bincount(labels[~np.isnan(labels)].astype(int), minlength=len(names))
        return tuple((counts.sum() / (len(names) * counts)).tolist())
    positive, negative = (labels == 1).sum(axis=0), (labels == 0).sum(axis=0)
    return tuple((np.maximum(negative, 1) / np.maximum(positive, 1)).tolist())


def _checked_sequences(rows: Rows) -> list[str]:
    found = [sequence.strip().upper() for sequence in rows.sequences]
    for row, sequence in enumerate(found):
        if not sequence:
            raise UserError(f"{rows.where(row)}: has no sequence; take the row out")
        if wrong := set(sequence) - _LETTERS:
            raise UserError(
                f"{rows.where(row)}: '{min(wrong)}' is no letter of DNA (IUPAC); is "
                "data.sequence the column of sequences?"
            )
    return found


def _checked_names(rows: Rows) -> list[str]:
    if rows.names is None:
        return [str(row) for row in range(1, len(rows) + 1)]
    seen: dict[str, int] = {}
    for row, name in enumerate(rows.names):
        if not name or name in seen:
            wrong = (
                f"'{name}' stands already at {rows.where(seen[name])}" if name else "has no name"
            )
            raise UserError(f"{rows.where(row)}: {wrong}; give each its own in data.name")
        seen[name] = row
    return list(rows.names)


def _values_of(rows: Rows, split: SplitConfig) -> tuple[Sequence[str], Sequence[str]]:
    """Return what parts are made by, and the groups that intervals are drawn of."""
    contigs = rows.contigs or [""] * len(rows)
    if split.by == "files":
        return rows.columns[PART_COLUMN], contigs
    values = rows.columns[split.column] if split.column else contigs
    if split.by == "contig" and not any(values):
        raise UserError("data.split: by = 'contig', and rows have none; name a column of contigs")
    return values, values if split.by in ("contig", "group") else contigs


_READ_AS = {"cut": "cut off behind", "tile": "read in windows that overlap by half"}


def made_readable(
    prepared: Prepared, config: QuestionConfig, way: WayConfig, room_bp: int
) -> Prepared:
    """Return examples that the model can read, with what it leaves out of them in `told`.

    With a label for every base, a base that the model does not read has no prediction. Its label
    becomes unknown, for the model and the baselines alike.

    Args:
        prepared: examples of any length.
        config: what is asked; class weights are counted again where labels become unknown.
        way: what is done with long sequences.
        room_bp: bases of the longest sequence that the model reads whole.

    Raises:
        UserError: sequences are too long, or the model would read no known base of them.
    """
    examples = prepared.examples
    long = [n for n, bases in enumerate(examples.sequences) if len(bases) > room_bp]
    if long:
        _check_long(long, examples, way, room_bp)
    _check_known(examples, way, room_bp)
    if not long:
        return prepared
    told = [f"{len(long)} sequences are longer than {room_bp} bp, and {_READ_AS[way.too_long]}."]
    if way.too_long == "tile":
        told += _unknown_windows(examples, room_bp)
    if not examples.per_base:
        return prepared._replace(told=(*prepared.told, *told))
    labels, unread = _labels_read(examples, long, way, room_bp)
    if unread:
        examples = replace(examples, labels=labels)
        told.append(f"{unread:,} labels are of bases that are not read, and are left out.")
    return prepared._replace(
        examples=examples,
        question=fitted_question(config, prepared.question.names, examples),
        told=(*prepared.told, *told),
    )


def _check_long(long: list[int], examples: Examples, way: WayConfig, room_bp: int) -> None:
    found = (
        f"{len(long)} sequences are longer than the {room_bp} bp that the model reads, such as "
        f"'{examples.names[long[0]]}'"
    )
    if way.too_long == "refuse":
        raise UserError(f"{found}; set way.too_long to cut or tile")
    if way.too_long == "tile" and way.name != "probe":
        raise UserError(f"{found}; way '{way.name}' learns from what is cut, `probe` tiles")


def _check_known(examples: Examples, way: WayConfig, room_bp: int) -> None:
    """Raise UserError if nothing that is read of a sequence is known."""
    tile = way.too_long == "tile"
    bare = [
        name
        for name, bases in zip(examples.names, examples.sequences, strict=True)
        if not any(windows_read(bases, room_bp, tile=tile))
    ]
    if bare:
        where = f" in its first {room_bp} bp" if way.too_long == "cut" else ""
        raise UserError(
            f"'{bare[0]}': has no known base{where} ({len(bare)} sequences have none); take them "
            "out"
        )


def _unknown_windows(examples: Examples, room_bp: int) -> list[str]:
    """Return a sentence on the windows without a known base, if there are any."""
    missing = [
        sum(1 for _ in overlapping_windows(len(bases), room_bp))
        - sum(1 for _ in windows_read(bases, room_bp, tile=True))
        for bases in examples.sequences
    ]
    if not sum(missing):
        return []
    return [
        f"{sum(missing):,} windows of {sum(map(bool, missing)):,} sequences have no known base, "
        "and are left out."
    ]


def _labels_read(
    examples: Examples, long: list[int], way: WayConfig, room_bp: int
) -> tuple[NDArray[np.float32], int]:
    """Return labels, unknown where no window reads the base, and how many became unknown."""
    labels = examples.labels.copy()
    for n in long:
        is_read = np.zeros(len(examples.sequences[n]), dtype=bool)
        for start, bases in windows_read(
            examples.sequences[n], room_bp, tile=way.too_long == "tile"
        ):
            is_read[start : start + len(bases)] = True
        labels[examples.rows_of(n)][~is_read] = np.nan
    return labels, int(np.isnan(labels).sum() - np.isnan(examples.labels).sum())
