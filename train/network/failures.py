"""A process that fails ends all of them: within seconds, and its own words come first.

A process that waits for another on a GPU hears no signal and no closed connection; left alone it
waits until the timeout of the group, and the launcher with it. So whoever fails says so in the
store that all have, where a thread of every process looks.
"""

import os
import threading
import traceback
from types import TracebackType
from typing import Protocol

from carbon.console import say
from carbon.errors import UserError

_KEY, _COUNT = "failed", "failures"
_SECONDS_BETWEEN_LOOKS = 1.0
_GRACE_SECONDS = 5.0
TOLD_IN_A_LINE = (UserError, FloatingPointError, OSError)


class Store(Protocol):
    """What is used of `torch.distributed.Store`."""

    def set(self, key: str, value: str) -> None:
        """Write."""

    def add(self, key: str, amount: int) -> int:
        """Count on, and return the sum."""

    def get(self, key: str) -> bytes:
        """Read, and wait until it is there."""

    def check(self, keys: list[str]) -> bool:
        """Tell whether all are there."""


class SharedFate:
    """While it is open, the failure of any process ends this one.

    One that fails has some seconds to end in its own way, and so have others, which may be failing
    of the same.
    """

    def __init__(self, store: Store, rank: int) -> None:
        """Prepare.

        Args:
            store: that all processes have; of no other thread.
            rank: of this process.
        """
        self._store, self._rank = store, rank
        self._over = threading.Event()

    def __enter__(self) -> "SharedFate":
        """Begin to look."""
        threading.Thread(target=self._watch, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop looking; if this process failed, let the others know."""
        self._over.set()
        if error is None:
            return
        is_first = self._store.add(_COUNT, 1) == 1
        if not isinstance(error, TOLD_IN_A_LINE):
            say(f"process {self._rank} failed:\n{''.join(traceback.format_exception(error))}")
        elif is_first and self._rank:  # the others may have nothing of the kind to tell
            say(f"process {self._rank} failed: {error}")
        self._store.set(_KEY, str(self._rank))
        # What it leaves behind may wait for the others when the interpreter ends.
        end = threading.Timer(2 * _GRACE_SECONDS, os._exit, (1,))
        end.daemon = True
        end.start()

    def _watch(self) -> None:
        try:
            while not self._over.wait(_SECONDS_BETWEEN_LOOKS):
                if self._store.check([_KEY]):
                    break
            else:
                return
            culprit = self._store.get(_KEY).decode()
        except RuntimeError:  # the store went with its host, as all else will
            return
        if not self._over.wait(_GRACE_SECONDS):
            say(f"process {self._rank} ends: process {culprit} has failed, whose words are above")
            os._exit(1)
