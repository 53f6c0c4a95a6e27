"""What `python`, `carbon` and `torchrun` of the folder do: ask for a process, and stand for it.

The server writes it with a first line that starts the real Python without site-packages, which
takes a hundredth of a second, and with values for `REAL`, `SOCKET`, `SESSION` and `EARLY`.
"""

import json
import os
import signal
import socket
import sys

# What the server writes over, further down.
REAL = SOCKET = ""
SESSION, EARLY = 0, {}

# Read when Python or a library starts: with others than the server's, the process is a real one.
READ_EARLY = ("PYTHON", "TORCH", "HF_", "TRANSFORMERS_", "TRITON", "MPL", "LC_", "LANG", "MKL_")
# `torch.compile` and gradio set the last three in a test process that has used them.
READ_LATER = (
    "PYTHONPATH", "PYTHON_EXEC", "PYTHON", "TORCH_NCCL_ASYNC_ERROR_HANDLING",
    "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "HF_HUB_DISABLE_TELEMETRY",
)  # fmt: skip
FLAGS = ("-u", "-B")
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")  # that import little


def early(environment):
    return {
        name: value
        for name, value in environment.items()
        if name.startswith(READ_EARLY)
        and name not in READ_LATER
        and not name.startswith(("TORCHELASTIC", "TORCH_ELASTIC"))
    }


def words():
    name, given = os.path.basename(sys.argv[0]), sys.argv[1:]
    return given if name == "python" else [os.path.join(os.path.dirname(REAL), name), *given]


def is_for_a_real_one(given):
    first = next((word for word in given if word not in FLAGS), "-")
    knows = first in ("-m", "-c") or not first.startswith("-")
    helps = any(name in word for name in HELPERS for word in given)
    elsewhere = os.getsid(0) not in (SESSION, os.getpid())
    return not knows or helps or elsewhere or early(os.environ) != EARLY


def inherited():
    """Return the open files that a process started here would have."""
    numbers = []
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.get_inheritable(int(name)):
                numbers.append(int(name))
        except OSError:  # the listing itself
            pass
    return numbers


def stand_for(given):
    numbers = inherited()
    server = socket.socket(socket.AF_UNIX)
    try:
        server.connect(SOCKET)
    except OSError:  # it is no more
        os.execv(REAL, [REAL, *given])
    asked = {
        "words": given, "folder": os.getcwd(), "environment": dict(os.environ), "files": numbers,
        "client": os.getpid(), "umask": os.umask(0o22),
        "leads": os.getsid(0) == os.getpid(),
    }  # fmt: skip
    text = json.dumps(asked).encode()
    # A signal that comes before there is a process waits until there is.
    forwarded = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2}
    for number in forwarded:
        signal.signal(number, lambda number, frame: server.send(bytes([number])))
    signal.pthread_sigmask(signal.SIG_BLOCK, forwarded)
    socket.send_fds(server, [len(text).to_bytes(4, "big")], numbers)
    server.sendall(text)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, forwarded)
    null = os.open(os.devnull, os.O_RDWR)
    for number in numbers:  # its files are the process's now: who reads them sees its end
        os.dup2(null, number) if number < 3 else os.close(number)
    code = int(server.recv(16) or b"-9")
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    given = words()
    if is_for_a_real_one(given):
        os.execv(REAL, [REAL, *given])
    stand_for(given)
