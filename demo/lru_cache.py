"""The last few things that were made, so that the next question need not make them again."""

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Keeps what was asked for last, and makes one at a time."""

    def __init__(self, most: int) -> None:
        """Keep so many."""
        self._most = most
        self._made: OrderedDict[Hashable, T] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        """Return what was made for a key, or make it, once there is room."""
        with self._lock:
            if key not in self._made:
                while len(self._made) >= self._most:
                    self._made.popitem(last=False)
                self._made[key] = make()
            self._made.move_to_end(key)
            return self._made[key]
