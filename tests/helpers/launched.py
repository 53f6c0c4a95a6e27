"""A command on several processes, as `torchrun` starts them, without its imports."""

import multiprocessing
import os
import socket
from functools import cache, partial
from multiprocessing.forkserver import ensure_running
from pathlib import Path
from typing import Any

from carbon.cli import main
from tests.helpers.processes import waits_for
from tests.helpers.ranks import start_command

_IMPORTED_ONCE = ["transformers.models.llama.modeling_llama", "peft", "trl.trainer.grpo_trainer"]


def run_on(world_size: int, words: list[str], folder: Path) -> str:
    """Run `carbon` in a folder, where what each rank says is kept; return what the first says."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    files = [folder / f"said-by-{rank}" for rank in range(world_size)]
    processes = []
    for rank, file in enumerate(files):
        names = {
            "RANK": rank,
            "LOCAL_RANK": rank,
            "WORLD_SIZE": world_size,
            "LOCAL_WORLD_SIZE": world_size,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        processes.append(start_in(folder, words, file, **names))
    ended(processes, files)
    return files[0].read_text(encoding="utf-8")


def start_in(folder: Path, words: list[str], said: Path, **environment: Any) -> Any:
    """Start `carbon` in a folder; what it says is in a file."""
    _import_once()
    names = {name: str(value) for name, value in environment.items()}
    return start_command(partial(_run, names, str(folder)), list(map(str, words)), said)


def ended(processes: list[Any], files: list[Path]) -> None:
    """Wait until all have ended well; end the others where one has not."""

    def is_over() -> bool:
        codes = [process.exitcode for process in processes]
        return None not in codes or any(codes)

    try:
        waits_for(is_over)
        said = [file.read_text(encoding="utf-8") for file in files]
        assert [process.exitcode for process in processes] == [0] * len(processes), said
    finally:
        for process in processes:
            process.kill()
            process.join()


@cache
def _import_once() -> None:
    """Have the process import libraries that all others are copies of, unless it is there."""
    multiprocessing.get_context("forkserver").set_forkserver_preload(_IMPORTED_ONCE)
    ensure_running()


def _run(environment: dict[str, str], folder: str, words: list[str]) -> int:
    os.environ.update(environment)
    os.chdir(folder)
    return main(words)
