"""The process that has imported the large libraries; a copy of it becomes what it is asked for.

Run as `python server.py FOLDER`; it ends when no test process holds the folder any more.
"""

import atexit
import fcntl
import gc
import importlib
import json
import multiprocessing.process
import os
import runpy
import select
import shutil
import signal
import socket
import sys
import threading
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from client import FLAGS, early
from libraries import OF_COMMANDS

PROGRAMS = ("python", "carbon", "torchrun")
STREAMS = (
    ("stdin", "r", "strict"), ("stdout", "w", "strict"), ("stderr", "w", "backslashreplace"),
)  # fmt: skip
LOOKS_SECONDS = 1.0  # for who still holds the folder
_ABOVE = 500  # what open files are numbered while they are put in their places


def main() -> None:
    """Serve until the end, or be what was asked for."""
    folder = Path(sys.argv[1])
    write_programs(folder)  # before an import changes the environment
    for name in OF_COMMANDS:
        importlib.import_module(name)
    gc.freeze()
    client = serve(folder)
    if client is None:
        return shutil.rmtree(folder)
    asked, files = received(client)
    if copy := os.fork():
        for number in files:
            os.close(number)
        keep(client, copy, os.killpg if asked["leads"] else os.kill)
    client.close()
    put_in_place(dict(zip(asked["files"], files, strict=True)))
    become(asked, folder / "bin" / "python")
    end(run, asked["words"])


def serve(folder: Path) -> socket.socket | None:
    """Copy this process for each that asks: in the copy return who asked, and None at the end."""
    listener = socket.socket(socket.AF_UNIX)
    listener.settimeout(LOOKS_SECONDS)
    listener.bind(str(folder / "begins"))
    listener.listen(100)
    (folder / "begins").rename(folder / "socket")
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with (folder / "held").open() as held:
        while True:
            try:
                client, _ = listener.accept()
            except TimeoutError:
                if is_free(held.fileno()):
                    return None
                continue
            if os.fork() == 0:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                client.settimeout(None)
                return client
            client.close()


def is_free(held: int) -> bool:
    """Return whether no test process holds the folder."""
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def write_programs(folder: Path) -> None:
    """Write what asks this process, with what it is to know."""
    told = f"REAL, SOCKET = {sys.executable!r}, {str(folder / 'socket')!r}\n"
    told += f"SESSION, EARLY = {os.getsid(0)}, {early(os.environ)!r}\n"
    text = Path(__file__).with_name("client.py").read_text(encoding="utf-8")
    body, start, end = text.partition("\nif __name__")
    (folder / "bin").mkdir()
    program = folder / "bin" / PROGRAMS[0]
    program.write_text(f"#!{sys.executable} -IS\n{body}\n{told}{start}{end}", encoding="utf-8")
    program.chmod(0o755)
    for name in PROGRAMS[1:]:
        (folder / "bin" / name).symlink_to(PROGRAMS[0])


def received(client: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Return what is asked, and the open files that came with it."""
    length, files, _, _ = socket.recv_fds(client, 4, 250)
    # Not a byte more: what stands behind is a signal that came while the client asked.
    text = client.recv(int.from_bytes(length, "big"), socket.MSG_WAITALL)
    return json.loads(text), list(files)


def keep(client: socket.socket, copy: int, send: Callable[[int, int], None]) -> NoReturn:
    """Hand signals on to the copy and its end back; without a client there is no copy.

    Args:
        client: tells of signals, and is told of the end.
        copy: number of the process.
        send: of a signal: to its group, where the client has a session of its own, as those have
            who are to be ended with all that they have started.
    """
    end = os.pidfd_open(copy)
    while end not in select.select([client, end], [], [])[0]:
        for number in client.recv(64) or [signal.SIGKILL]:
            try:
                send(copy, number)
            except ProcessLookupError:  # it leads no group yet
                os.kill(copy, number)
    _, status = os.waitpid(copy, 0)
    try:
        client.sendall(str(os.waitstatus_to_exitcode(status)).encode())
    finally:
        os._exit(0)


def put_in_place(files: dict[int, int]) -> None:
    """Give open files the numbers that they have where the command was asked for."""
    moved = {number: fcntl.fcntl(got, fcntl.F_DUPFD, _ABOVE) for number, got in files.items()}
    for got in [*files.values(), 0, 1, 2]:
        os.close(got)
    for number, got in moved.items():
        os.dup2(got, number)
        os.close(got)


def become(asked: dict[str, Any], python: Path) -> None:
    """Take folder, environment, parent and streams of the client."""
    import torch

    os.setsid() if asked["leads"] else os.setpgid(0, 0)
    os.chdir(asked["folder"])
    os.umask(asked["umask"])
    os.environ.clear()
    os.environ.update(asked["environment"])
    status = f"/proc/{asked['client']}/stat"
    os.getppid = lambda: int(Path(status).read_text().rpartition(")")[2].split()[1])
    sys.executable = str(python)
    multiprocessing.set_executable(sys.executable)
    multiprocessing.process.ORIGINAL_DIR = os.getcwd()  # where a script is, for its children
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS") or os.cpu_count() or 1))
    for number, (name, mode, errors) in enumerate(STREAMS):
        if number in asked["files"]:
            stream = os.fdopen(number, mode, encoding="utf-8", errors=errors, closefd=False)
            stream.reconfigure(line_buffering=number == 2 or os.isatty(number))
        else:
            stream = None
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def run(words: list[str]) -> None:
    """Run a module, code or a script, as `python` does."""
    while words[0] in FLAGS:
        sys.stdout.reconfigure(write_through=words[0] == "-u")
        words = words[1:]
    kind, what = words[0], words[:2][-1]
    first = {"-m": os.getcwd(), "-c": ""}.get(kind, os.path.dirname(os.path.abspath(kind)))
    ours = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    for helper in ("client", "libraries"):
        del sys.modules[helper]  # whose names may be those of others
    sys.path[:] = [first, *(os.path.abspath(each) for each in ours if each), *PATH]
    importlib.invalidate_caches()
    sys.argv = words if kind not in ("-m", "-c") else [kind, *words[2:]]
    sys.modules["__main__"] = main = types.ModuleType("__main__")
    if kind == "-m":
        runpy._run_module_as_main(what)
    elif kind == "-c":
        exec(compile(what, "<string>", "exec"), vars(main))
    else:
        runpy.run_path(kind, run_name="__main__")


def end(function: Callable[..., None], *arguments: Any) -> NoReturn:
    """Call a function and end as a Python does, without taking the libraries down one by one."""
    code = 0
    try:
        function(*arguments)
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        code = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        code = 1 if isinstance(error, Exception) else -signal.SIGINT
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads it any more, or it is closed
            code = code or 120
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code & 255)


if __name__ == "__main__":
    # Without the folder of this script, and what PYTHONPATH names here.
    ours = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    PATH = [each for each in sys.path[1:] if each not in ours]
    main()
