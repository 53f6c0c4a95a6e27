"""`torchrun`, which tells in one line that it was stopped: `python -m train.launch ... -m train`.

Options are those of `torchrun`. It hands a signal on to the processes and waits until they have
saved (`--shutdown-timeout`); then it ends with 128 and the number of the signal.
"""

import os
import signal
import sys

from carbon.console import say
from train.loop.signals import StopSignals

SHUTDOWN_SECONDS = 540
"""For the step that is being taken and its checkpoint; `torchrun` alone gives 30 seconds."""


def main(argv: list[str] | None = None) -> int:
    """Launch and wait; return the exit code."""
    os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(SHUTDOWN_SECONDS))
    try:
        return _torchrun(argv)
    except KeyboardInterrupt:  # before torchrun listens
        return _stopped_by(signal.SIGINT)


def _torchrun(argv: list[str] | None) -> int:
    with StopSignals():  # an interrupt in the middle of an import can be lost
        from torch.distributed.elastic.multiprocessing.api import SignalException
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
        from torch.distributed.run import main as torchrun

    try:
        torchrun(argv)
    except SignalException as stopped:
        return _stopped_by(stopped.sigval)
    except ChildFailedError as failed:
        codes = {failure.exitcode for failure in failed.failures.values()}
        if not codes <= {1, 2} or any("Traceback" in f.message for f in failed.failures.values()):
            raise  # a defect, or a process that was killed
        return max(codes)  # they have told what was wrong
    return 0


def _stopped_by(number: signal.Signals) -> int:
    say(f"{number.name}: stopped; the same command with --resume auto goes on")
    return 128 + number


if __name__ == "__main__":
    sys.exit(main())
