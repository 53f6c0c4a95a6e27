"""Checks of what a Python caller passes: a wrong type is one line that says what to pass.

A bare string is refused where several are expected. Python would read it letter by letter, and a
file name would be taken for a sequence, so neither guess is made.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from carbon.errors import UserError
from carbon.genome import Interval, Reference, Variant
from carbon.genome.alphabet import FASTA_LETTERS

_LETTERS = frozenset(FASTA_LETTERS.decode())
_FILE_HINT = "read a file first: [bases for _, bases in carbon.genome.read_sequences(path)]"
_EXAMPLES = {"tags": '["<fungi_species>"]', "contigs": '["chr1"]'}
_VARIANT_HINT = 'write carbon.Variant("chr1", 9, "A", "T") or Variant.from_text("chr1:10 A>T")'


def check_several(name: str, values: object, example: str) -> None:
    """Raise TypeError unless `values` can be iterated and is not one string or file name.

    Args:
        name: of the argument.
        values: what was passed.
        example: what to pass, such as `["ATGGCC"]`.
    """
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{name}: a single {_type(values)}; pass a list, such as {example}")
    if hasattr(values, "__fspath__"):
        raise TypeError(f"{name}: a {_type(values)} is not a list; {_FILE_HINT}")
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: a {_type(values)} is not a list; pass one, such as {example}")


def check_string(name: str, value: object) -> None:
    """Raise TypeError unless `value` is a string."""
    hint = "of a (name, bases) pair pass the bases" if isinstance(value, tuple) else "pass a string"
    _check_type(name, value, str, _FILE_HINT if hasattr(value, "__fspath__") else hint)


def checked_names(name: str, values: Iterable[str]) -> tuple[str, ...]:
    """Return strings, such as tags, contigs or prompts, as a tuple.

    Raises:
        TypeError: `values` is a single string or cannot be iterated, or an item is not a string.
    """
    check_several(name, values, _EXAMPLES.get(name, '["ATGGCC"]'))
    return tuple(_each(name, values, check_string))


def checked_dna(sequences: Iterable[str], name: str = "sequences") -> Iterator[str]:
    """Return an iterator over sequences that checks each of them when it is reached.

    Raises:
        TypeError: at once, if `sequences` is a single string or cannot be iterated; when it is
            reached, if an item is not a string.
        UserError: when it is reached, if an item has a letter that is not IUPAC DNA or `-`.
    """
    check_several(name, sequences, '["ATGGCC"]')
    return _each(name, sequences, _check_dna)


def checked_variants(variants: Iterable[Variant]) -> Iterator[Variant]:
    """Return an iterator that raises TypeError at the first item that is not a `Variant`."""
    check_several("variants", variants, "[Variant(...)]")
    return _each(
        "variants", variants, lambda name, item: _check_type(name, item, Variant, _VARIANT_HINT)
    )


def check_interval(interval: object) -> None:
    """Raise TypeError unless `interval` is an `Interval`."""
    _check_type("interval", interval, Interval, 'write carbon.Interval("chr1", 0, 600)')


def check_reference(reference: object) -> None:
    """Raise TypeError unless `reference` is an open FASTA."""
    _check_type("reference", reference, Reference, "open the FASTA: carbon.Reference(path)")


def _check_type(name: str, value: object, kind: type, hint: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name}: a {_type(value)} is not a {kind.__name__}; {hint}")


def _check_dna(name: str, sequence: str) -> None:
    check_string(name, sequence)
    if wrong := set(sequence) - _LETTERS:
        raise UserError(f"{name}: {min(wrong)!r} is not a letter of DNA; {_FILE_HINT}")


def _each(name: str, items: Iterable[Any], check: Any) -> Iterator[Any]:
    for number, item in enumerate(items, start=1):
        check(f"{name}, item {number}", item)
        yield item


def _type(value: object) -> str:
    return type(value).__name__
