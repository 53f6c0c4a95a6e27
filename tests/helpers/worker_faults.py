"""`main` of `python -m train` with one fault."""

import errno
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path

from carbon.io.store import Store
from tests.helpers.processes import waits_for
from train.__main__ import main
from train.diloco.worker import DilocoWorker

STEP = 4
"""Steps that a worker takes before the fault, where that is not in a round."""
ROUND = 1


def with_fault(name, environment):
    """Return `main` with a fault, to be started as a separate process."""
    return partial(_main_with, name, environment)


def _main_with(name, environment, words):
    os.environ.update(environment)
    FAULTS[name]()
    return main(words)


def _after_steps(happens, is_time=lambda steps: steps == STEP):
    after_step = DilocoWorker.after_step

    def patched(self, state, tokens, seconds):
        after_step(self, state, tokens, seconds)
        if is_time(self._all_steps):
            happens()

    DilocoWorker.after_step = patched


def _before(method, happens, of):
    """Do something before a file whose path has a word in it is written to the store."""
    plain = getattr(Store, method)

    def patched(self, *given):
        if any(of in str(word) for word in given):
            happens(self, *given)
        return plain(self, *given)

    setattr(Store, method, patched)


def _die(*_):
    _fate().touch()
    os._exit(9)


def _fate():
    """Return the file that is there when a worker of this run has been killed."""
    return Path(os.environ.get("CARBON_FATE", os.devnull))


def _die_while_writing(store, source, path):
    whole = source.read_bytes()
    store._make_folder_of(path)
    store._files.pipe_file(store.place(path), whole[: len(whole) // 2])
    _die()


def _stop_itself():
    os.kill(os.getpid(), signal.SIGSTOP)


def _ask_to_stop():
    os.kill(os.getpid(), signal.SIGTERM)


def _twice(error):
    left = [error, error]

    def happens(*_):
        if left:
            raise left.pop()

    return happens


_OF_ROUND = f"pseudo_gradients/{ROUND:06d}/"
FAULTS = {
    "none": lambda: None,
    "killed between rounds": partial(_after_steps, _die),
    "killed while it writes": partial(_before, "put", _die_while_writing, _OF_ROUND),
    "killed before its report": partial(_before, "write_table", _die, _OF_ROUND),
    "killed before the record": partial(_before, "create_table", _die, f"rounds/{ROUND:06d}"),
    "late with the record": partial(
        _before, "create_table", lambda *_: waits_for(_fate().exists), f"rounds/{ROUND:06d}"
    ),
    "stopped": partial(_after_steps, _stop_itself),
    "asked to stop": partial(_after_steps, _ask_to_stop),
    "slow": partial(_after_steps, partial(time.sleep, 0.2), lambda steps: True),
    "disk full": partial(
        _before, "put", _twice(OSError(errno.ENOSPC, "No space left")), "pseudo_gradients/"
    ),
}  # fmt: skip

if __name__ == "__main__":
    sys.exit(_main_with(sys.argv[1], {}, sys.argv[2:]))
