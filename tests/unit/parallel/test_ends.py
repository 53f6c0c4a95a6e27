"""When a driver ends, its processes end too, and another run continues its journal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.parallel import WHOLE, job_of, run, this_process
from tests.helpers.processes import waits_for

ROOT = Path(__file__).parents[3]


def started(folder, *more):
    """Start a driver with two processes, in a new session."""
    words = [sys.executable, "-m", "tests.helpers.parallel", f"{folder}/o", str(folder)]
    return subprocess.Popen(
        [*words, "--processes", "2", *more],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def members(session) -> list[int]:
    """Return the processes of a session that live."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(path.parent.name))
    return found


def num_kept(folder) -> int:
    path = folder / ".o.progress"
    return path.read_bytes().count(b"\n") - 1 if path.exists() else 0


NIGHTLY = {"marks": pytest.mark.nightly}


@pytest.mark.parametrize(
    ("number", "code", "at"),
    [
        (signal.SIGKILL, -9, "work"),
        (signal.SIGTERM, 143, "start"),
        (signal.SIGINT, 130, "work"),
        pytest.param(signal.SIGKILL, -9, "start", **NIGHTLY),
        pytest.param(signal.SIGTERM, 143, "work", **NIGHTLY),
        pytest.param(signal.SIGINT, 130, "start", **NIGHTLY),
    ],
)
def test_nothing_is_left_but_the_journal(tmp_path, at, number, code):
    (tmp_path / "slow").write_text("0.2")
    driver = started(tmp_path)
    if at == "work":
        waits_for(lambda: num_kept(tmp_path) > 1, 60)
    else:
        waits_for(lambda: len(members(driver.pid)) > 2, 60)  # the fork server is there
    if number == signal.SIGINT:
        os.killpg(driver.pid, number)  # as a terminal sends Ctrl-C
    else:
        driver.send_signal(number)
    _, said = driver.communicate(timeout=60)
    # Ctrl-C before the driver is ready for it ends Python with a traceback.
    assert driver.returncode == code, said
    waits_for(lambda: not members(driver.pid), 60)
    assert not (tmp_path / "o").exists()
    if at == "work":
        assert num_kept(tmp_path) > 1
        (tmp_path / "slow").unlink()
        with this_process(tmp_path, resume=True) as workers:
            run(job_of(tmp_path / "o"), workers)
        assert (tmp_path / "o").read_text() == WHOLE


@pytest.mark.parametrize(
    ("trouble", "code", "message"),
    [
        ("user-9", 2, "record 9: is no number"),
        pytest.param("disk-9", 1, "scratch: no space left on device", **NIGHTLY),
        ("nan-9", 1, "record 9: is not finite"),
    ],
)
def test_an_error_in_a_worker_is_one_line(tmp_path, trouble, code, message):
    (tmp_path / trouble).touch()
    driver = started(tmp_path)
    output, said = driver.communicate(timeout=60)
    assert (driver.returncode, output) == (code, "")
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert errors == [f"error: {message}"]
