"""Split a stream into blocks."""

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def in_blocks(
    items: Iterable[T],
    most_items: int,
    most_size: int | None = None,
    size: Callable[[T], int] = lambda item: 0,
) -> Iterator[list[T]]:
    """Split a stream into blocks; a block ends when it reaches the maximum number or size.

    >>> list(in_blocks(["ACGT", "A", "C", "G"], 2, 4, len))
    [['ACGT'], ['A', 'C'], ['G']]

    Args:
        items: the stream.
        most_items: maximum number of items of a block.
        most_size: size at which a block ends; None for any size.
        size: function from an item to its size.
    """
    block: list[T] = []
    block_size = 0
    for item in items:
        block.append(item)
        block_size += size(item)
        if len(block) == most_items or (most_size is not None and block_size >= most_size):
            yield block
            block, block_size = [], 0
    if block:
        yield block


def drained(items: list[T]) -> Iterator[T]:
    """Yield the items of a list, and remove them from it, so that each can be freed after its turn.

    >>> items = [1, 2]
    >>> [(item, len(items)) for item in drained(items)]
    [(1, 1), (2, 0)]
    """
    items.reverse()
    while items:
        yield items.pop()
