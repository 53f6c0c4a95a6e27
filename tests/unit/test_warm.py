"""The stand-in for `python` of the tests: what it starts is like what `python` starts."""

import importlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.processes import waits_for
from tests.helpers.warm import client, warm, warm_environment, warm_python

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="it is for Linux alone")
HAS_TORCH = "import sys; print('torch' in sys.modules)"
SPAWNS = """
import multiprocessing, sys

def twice(number):
    return 2 * number, "torch" in sys.modules

if __name__ == "__main__":
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        print(sys.argv, pool.map(twice, [1, 2]))
"""


def both(words, folder, **more):
    """Return how a command ended that was started by each: the real one first."""
    ended = []
    for python in (sys.executable, warm_python()):
        done = subprocess.run(
            [python, *words], cwd=folder, env=warm_environment(), capture_output=True, text=True,
            timeout=300, **more,
        )  # fmt: skip
        ended.append((done.returncode, done.stdout, done.stderr))
    return ended


def is_running(pid):
    """Return whether there is a process that has not ended; nobody may have waited for it yet."""
    status = Path(f"/proc/{pid}/stat")
    return status.exists() and status.read_text().rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("import sys; print(sys.argv, sys.stdin.read()); sys.exit(3)", 3),
        ("import sys; sys.exit('a line')", 1),
        ("raise SystemExit", 0),
        ("import os; os.kill(os.getpid(), 15)", -signal.SIGTERM),
        ("import atexit; atexit.register(print, 'at the end'); print('first')", 0),
        ("import os; print(os.getcwd(), os.environ['MINE'], os.umask(0)); os.write(2, b'x')", 0),
    ],
)
def test_it_ends_as_python_does(tmp_path, monkeypatch, code, expected):
    monkeypatch.setenv("MINE", "a value")
    real, warmed = both(["-c", code, "a word"], tmp_path, input="given")
    assert real == warmed and warmed[0] == expected


def test_a_script_a_module_and_what_a_script_spawns(tmp_path):
    (tmp_path / "spawns.py").write_text(SPAWNS)
    (tmp_path / "beside.py").write_text("import spawns, sys; print(__name__, sys.argv[1:])")
    for words in (["-m", "beside", "x"], ["beside.py", "x"]):
        real, warmed = both(words, tmp_path)
        assert real == warmed == (0, "__main__ ['x']\n", "")
    code, out, said = both(["spawns.py", "x"], tmp_path)[1]
    assert (code, out) == (0, "['spawns.py', 'x'] [(2, True), (4, True)]\n"), said


def test_the_libraries_are_there_and_nothing_of_ours(tmp_path):
    assert [out for _, out, _ in both(["-c", HAS_TORCH], tmp_path)] == ["False\n", "True\n"]
    code = "import sys; print([name for name in sys.modules if name.startswith('carbon')])"
    assert [out for _, out, _ in both(["-c", code], tmp_path)] == ["[]\n", "[]\n"]


def test_another_locale_or_option_is_for_a_real_one(tmp_path, monkeypatch):
    assert both(["-E", "-c", HAS_TORCH], tmp_path)[1][1] == "False\n"
    monkeypatch.setenv("LC_ALL", "C")
    assert both(["-c", HAS_TORCH], tmp_path)[1][1] == "False\n"


@pytest.mark.parametrize("name", ["TORCHINDUCTOR_CACHE_DIR", "HF_HUB_DISABLE_TELEMETRY"])
def test_a_test_process_asks_it_too_that_has_compiled_or_shown_the_demo(
    tmp_path, monkeypatch, name
):
    monkeypatch.setenv(name, str(tmp_path))
    assert both(["-c", HAS_TORCH], tmp_path)[1][1] == "True\n"


def test_a_signal_behind_the_question_is_not_taken_for_a_part_of_it(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(client.__file__).parent))
    for name in ("client", "libraries", "server"):  # as the process imports them, and no longer
        monkeypatch.delitem(sys.modules, name, raising=False)
    server = importlib.import_module("server")
    monkeypatch.setitem(sys.modules, "server", server)
    asks, asked = socket.socketpair()
    with asks, asked:
        text = b'{"words": ["-c", "x"]}'
        asks.sendall(len(text).to_bytes(4, "big") + text + bytes([signal.SIGTERM]))
        assert server.received(asked) == ({"words": ["-c", "x"]}, [])
        assert asked.recv(64) == bytes([signal.SIGTERM])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_signals_reach_it_and_it_does_not_outlive_who_started_it(number):
    code = "import os, time; print(os.getpid(), os.getppid(), flush=True); time.sleep(300)"
    started = subprocess.Popen(
        [warm_python(), "-c", code], env=warm_environment(), stdout=subprocess.PIPE, text=True
    )
    pid, parent = map(int, started.stdout.readline().split())
    assert parent == os.getpid() and pid != started.pid
    started.send_signal(number)
    assert started.wait(60) == -number
    started.stdout.close()
    waits_for(lambda: not is_running(pid))


def test_one_with_a_session_of_its_own_ends_with_what_it_has_started():
    code = "import subprocess; p = subprocess.Popen(['sleep', '300']); print(p.pid, flush=True)"
    started = subprocess.Popen(
        [warm_python(), "-c", f"{code}; p.wait()"], env=warm_environment(),
        stdout=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    sleeps = int(started.stdout.readline())
    os.killpg(started.pid, signal.SIGTERM)
    assert started.wait(60) == -signal.SIGTERM
    started.stdout.close()
    waits_for(lambda: not is_running(sleeps))


def test_programs_of_the_environment_are_there(tmp_path):
    done = subprocess.run(
        ["bash", "-ec", "command -v carbon; carbon variants --help | head -n 1; carbon nothing"],
        cwd=tmp_path, env=warm_environment(), capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "invalid choice: 'nothing'" in done.stderr
    assert done.stdout.startswith(f"{warm()}/carbon\nusage: carbon variants")
