"""Argument checks of the Python interface: a wrong type gives one line that says what to pass.

A bare string is refused where a list is expected. Python would iterate over its letters, and a file
name would be scored as a sequence.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import numpy as np

from carbon.errors import ModelError, UserError
from carbon.genome import Interval, Reference, Variant
from carbon.genome.alphabet import FASTA_LETTERS, as_dna, why_protein
from carbon.genome.records import Record, variants_of

_LETTERS = frozenset(FASTA_LETTERS.decode())
_FILE_HINT = "read a file first: [bases for _, bases in carbon.genome.read_sequences(path)]"
_EXAMPLES = {"tags": '["<fungi_species>"]', "contigs": '["chr1"]', "scores": '["jsd"]'}


def check_several(name: str, values: object, example: str) -> None:
    """Raise TypeError unless `values` is an iterable other than one string or file name.

    Args:
        name: name of the argument.
        values: the argument.
        example: a valid value for the message, such as `["ATGGCC"]`.
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
    """Return an iterator over the sequences, with U as T, that checks each when it is reached.

    Raises:
        TypeError: immediately, if `sequences` is a single string or cannot be iterated; on reaching
            it, if an item is not a string.
        UserError: on reaching it, if an item has a letter that is not IUPAC DNA or `-`, or mostly
            ambiguity codes.
    """
    check_several(name, sequences, '["ATGGCC"]')
    return map(as_dna, _each(name, sequences, _check_dna))


def checked_variants(records: Iterable[Record]) -> Iterator[Variant]:
    """Return an iterator over the variants of records; see `carbon.genome.records.variants_of`.

    Raises:
        TypeError: immediately, if `records` is a single string or cannot be iterated; on reaching
            it, if an item has no variants.
    """
    check_several("variants", records, "[Variant(...)]")
    return _variants(records)


def _variants(records: Iterable[Record]) -> Iterator[Variant]:
    for number, record in enumerate(records, start=1):
        try:
            variants = variants_of(record)
        except TypeError as error:
            raise TypeError(f"variants, item {number}: {error}") from None
        yield from variants


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
    if why := why_protein(sequence.encode()):
        raise UserError(f"{name}: {why}")


def _each(name: str, items: Iterable[Any], check: Any) -> Iterator[Any]:
    for number, item in enumerate(items, start=1):
        check(f"{name}, item {number}", item)
        yield item


def _type(value: object) -> str:
    return type(value).__name__


class NotFinite(ModelError):
    """The network returned a value that is not finite.

    Attributes:
        number: number of the input, from 1; None if there is only one.
    """

    def __init__(self, where: str, number: int | None = None) -> None:
        """Describe the input as `where`."""
        super().__init__(
            f"{where}: the model's output is not finite; are its weights damaged, or too "
            "large for this dtype?"
        )
        self.number = number


def check_finite(values: Any, where: str, number: int | None = None) -> None:
    """Raise NotFinite unless a number, or every number of an array, is finite."""
    if not np.isfinite(values).all():
        raise NotFinite(where, number)


def check_layer(network: Any, layer: int) -> None:
    """Raise UserError unless `layer` is between 0 and the network's number of layers."""
    num_layers = len(layers_of_decoder(network.base_model))
    if not 0 <= layer <= num_layers:
        raise UserError(f"layer {layer}: the model has {num_layers}; give 0 to {num_layers}")


def layers_of_decoder(decoder: Any) -> Any:
    """Return the layers of a decoder, which run one by one before its norm.

    Raises:
        UserError: the architecture has no such layers.
    """
    if not all(hasattr(decoder, name) for name in ("embed_tokens", "layers", "norm")):
        raise UserError(
            f"layer: {type(decoder).__name__} gives no states of single layers, and no linear "
            "probe; leave the layer out"
        )
    return decoder.layers


def checked_offsets(offsets: Iterable[int] | Literal["all"], k: int) -> tuple[int, ...]:
    """Return sorted distinct offsets of a k-mer grid; `"all"` stands for 0 to k - 1.

    Raises:
        UserError: there is none, or one is outside.
    """
    if offsets == "all":
        return tuple(range(k))
    check_several("offsets", offsets, "(0, 3)")
    distinct = tuple(sorted(set(offsets)))
    if not distinct or not set(distinct) <= set(range(k)):
        shown = ", ".join(map(str, distinct)) or "none"
        allowed = f"some of 0 to {k - 1}" if k > 1 else "0, the only one of a model of single bases"
        raise UserError(f"offsets {shown}: give {allowed}")
    return distinct


def check_window(window_bp: int, most_bp: int, k: int) -> None:
    """Raise UserError unless a window holds two k-mers and fits into the model's context."""
    if not 2 * k <= window_bp <= most_bp:
        raise UserError(
            f"a window of {window_bp} bp does not fit: give {2 * k} to {most_bp} bp for this model"
        )
