"""When a driver ends, its processes end too, and another run continues its journal."""

import signal
from pathlib import Path

import pytest

from tests.helpers.parallel import WHOLE, job_of, num_kept, run, started, stop, this_process
from tests.helpers.processes import waits_for


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
    driver = started(tmp_path, "--processes", "2")
    if at == "work":
        waits_for(lambda: num_kept(tmp_path) > 1, 60)
    else:
        waits_for(lambda: len(members(driver.pid)) > 2, 60)  # the fork server is there
    said = stop(driver, number)
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


def test_an_error_in_a_worker_is_one_line(tmp_path):
    (tmp_path / "user-9").touch()
    driver = started(tmp_path, "--processes", "2")
    output, said = driver.communicate(timeout=60)
    assert (driver.returncode, output) == (2, "")
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert errors == ["error: record 9: is no number"]
