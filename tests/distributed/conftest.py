"""Processes that the tests of this folder start."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.helpers.warm import warm_python

ROOT = Path(__file__).parents[2]


@pytest.fixture
def start():
    """Start a command beside the test; what still runs at its end is killed."""
    started = []

    def begun(command, **environment):
        names = {"OMP_NUM_THREADS": "1", "PYTHON": warm_python()}
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
