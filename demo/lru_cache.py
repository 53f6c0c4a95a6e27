"""A cache of the values that were requested most recently."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class LruCache(Generic[T]):
    """LRU cache that creates one value at a time."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._made: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value of a key, or create it; a full cache evicts a value first."""
        with self._lock:
            if key not in self._made:
                while len(self._made) >= self._most:
                    self._made.popitem(last=False)
                self._made[key] = make()
            self._made.move_to_end(key)
            return self._made[key]
