"""Processes that others have started, and what they are at."""

import os
import signal
import time
from pathlib import Path


def children_of(process) -> list[int]:
    text = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
    return [int(number) for number in text.split()]


def waits_for(condition, seconds=500):
    """Wait until there is something, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
    return found


def is_at_a_block(blocks, pid) -> bool:
    """Return whether a process has a claim in a folder of blocks."""
    try:
        return any(claim.read_text().endswith(f" {pid}") for claim in blocks.glob("0*.claim"))
    except FileNotFoundError:  # it was given back
        return False


def told_without_a_child(parent, blocks) -> str:
    """Kill the child of a command while it is at a block; return what the command tells."""
    waits_for(lambda: children_of(parent))
    (child,) = children_of(parent)
    waits_for(lambda: is_at_a_block(blocks, child))
    os.kill(child, signal.SIGKILL)
    told, said = parent.communicate(timeout=500)
    assert parent.returncode == 0, said
    assert "a process has ended (SIGKILL); the others do its part" in said
    return told
