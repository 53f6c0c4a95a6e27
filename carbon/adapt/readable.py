"""What the model reads of examples: whole sequences, their first bases, or windows."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from carbon.adapt.averaging import windows_read
from carbon.adapt.config import QuestionConfig, WayConfig
from carbon.adapt.examples import Examples
from carbon.adapt.prepare import Prepared, fitted_question
from carbon.errors import UserError
from carbon.inference.scoring import overlapping_windows

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
