"""Checks of what a Python caller passes: a wrong type is one line that says what to pass.

A bare string is refused where several are expected. Python would read it letter by letter, and a
file name would be taken for a sequence, so neither guess is made.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from carbon.errors import UserError
from carbon.genome.alphabet import FASTA_LETTERS

_LETTERS = frozenset(FASTA_LETTERS.decode())
_FILE_HINT = "read a file first: [bases for _, bases in carbon.genome.read_sequences(path)]"


def check_several(name: str, values: object, example: str) -> None:
    """Raise TypeError unless `values` can be iterated and is not one string or file name.

    Args:
        name: of the argument.
        values: what was passed.
        example: what to pass, such as `["ATGGCC"]`.
    """
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: a single {_type(values)}; pass a list, such as {example}")
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: a {_type(values)} is not a list; pass one such as {example}")


def checked_sequences(name: str, sequences: Iterable[str]) -> Iterator[str]:
    """Return an iterator over DNA sequences that checks each of them when it is reached.

    Raises:
        TypeError: at once, if `sequences` is a bare string or cannot be iterated; when it is
            reached, if an item is not a string.
        UserError: when it is reached, if a sequence has a letter that is not IUPAC DNA or `-`.
    """
    example = '["ATGGCC"]'
    if hasattr(sequences, "__fspath__"):
        raise TypeError(f"{name}: a file name is not a sequence; {_FILE_HINT}")
    check_several(name, sequences, example)
    return _checked(name, sequences)


def _checked(name: str, sequences: Iterable[str]) -> Iterator[str]:
    for number, sequence in enumerate(sequences, start=1):
        check_sequence(f"{name}, item {number}", sequence)
        yield sequence


def check_sequence(name: str, sequence: object) -> None:
    """Raise TypeError unless `sequence` is a string, and UserError unless it is DNA."""
    if not isinstance(sequence, str):
        hint = "of a (name, bases) pair pass the bases" if isinstance(sequence, tuple) else "text"
        if hasattr(sequence, "__fspath__"):
            hint = _FILE_HINT
        raise TypeError(f"{name}: a {_type(sequence)} is not a sequence; pass a string ({hint})")
    if wrong := set(sequence) - _LETTERS:
        raise UserError(f"{name}: {min(wrong)!r} is not a letter of DNA; {_FILE_HINT}")


def check_type(name: str, value: object, kind: type, hint: str) -> None:
    """Raise TypeError unless `value` is a `kind`; `hint` says how to make one."""
    if not isinstance(value, kind):
        raise TypeError(f"{name}: a {_type(value)} is not a {kind.__name__}; {hint}")


def checked_items(name: str, items: Iterable[Any], kind: type, hint: str) -> Iterator[Any]:
    """Return an iterator over `items` that raises TypeError at the first that is not a `kind`."""
    check_several(name, items, f"[{kind.__name__}(...)]")
    return _of_kind(name, items, kind, hint)


def _of_kind(name: str, items: Iterable[Any], kind: type, hint: str) -> Iterator[Any]:
    for number, item in enumerate(items, start=1):
        check_type(f"{name}, item {number}", item, kind, hint)
        yield item


def _type(value: object) -> str:
    return type(value).__name__
