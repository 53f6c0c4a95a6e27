"""The corpus of this folder, and processes that its tests start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.runs import small_corpus

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def corpus():
    return small_corpus()


@pytest.fixture
def start():
    """Start a command beside the test; what still runs at its end is killed."""
    started = []

    def begun(command, **environment):
        names = {"OMP_NUM_THREADS": "1", "PYTHON": sys.executable}
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=ROOT,
            env={**os.environ, **names, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield begun
    for process in started:
        process.kill()
        process.communicate()
