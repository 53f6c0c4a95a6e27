"""`torchrun` with one-line messages: `python -m train.launch ... -m train`.

It takes torchrun's options, passes signals to the processes, and waits until they have
saved (`--shutdown-timeout`); then it ends with 128 and the number of the signal.
"""

import logging
import os
import signal
import sys
import tempfile
from pathlib import Path

from carbon.progress import say
from train.distributed.failures import NOTE, death_of
from train.signals import StopSignals

SHUTDOWN_SECONDS = 540
"""For the step that is being taken and its checkpoint; `torchrun` alone gives 30 seconds."""


def main(argv: list[str] | None = None) -> int:
    """Launch and wait; return the exit code."""
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SHUTDOWN_SECONDS))
    # It repeats messages of the processes, or the line about a killed one.
    logging.getLogger("torch.distributed.elastic.multiprocessing.api").setLevel(logging.CRITICAL)
    with tempfile.TemporaryDirectory(prefix="carbon-launch-") as folder:
        note = Path(folder) / "reported"
        os.environ[NOTE] = str(note)
        try:
            return _torchrun(argv, note)
        except KeyboardInterrupt:  # before torchrun listens
            return _stopped_by(signal.SIGINT)


def _torchrun(argv: list[str] | None, note: Path) -> int:
    with StopSignals():  # an interrupt in the middle of an import can be lost
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.run import main as torchrun

    try:
        torchrun(argv)
    except SignalException as stopped:
        return _stopped_by(stopped.sigval)
    except ChildFailedError as failed:
        ended = {r: f.exitcode for r, f in failed.failures.items()}
        # When a process fails, torchrun ends the others, with SIGTERM.
        ended = {r: c for r, c in ended.items() if c != -signal.SIGTERM} or ended
        codes = set(ended.values())
        killed = {r: -code for r, code in ended.items() if code < 0}
        if killed:
            rank, number = min(killed.items())
            if not note.exists():  # no other process of this machine could report it
                say(death_of(rank, number))
            return 128 + number
        if not codes <= {1, 2} or any("Traceback" in f.message for f in failed.failures.values()):
            raise  # a defect
        return max(codes)  # they have reported the error
    return 0


def _stopped_by(number: signal.Signals) -> int:
    say(f"{number.name}: stopped; the same command with --resume auto goes on")
    return 128 + number


if __name__ == "__main__":
    sys.exit(main())
