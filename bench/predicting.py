"""Predict many sequences: does memory stay flat, and does a run that was killed go on to the same?

    python bench/predicting.py OUTPUT --model ADAPTED [--sequences 100000] [--length 500]

ADAPTED is a folder of `carbon finetune`. The resident memory of the process is read every second;
that of the second tenth of the run is compared with the last tenth. Then the same command is killed
(SIGKILL) at a third and at two thirds of that time, resumed, and its bytes are compared.
"""

import argparse
import json
import random
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from carbon.console import natural, run_command
from carbon.progress import say


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--sequences", type=natural, default=100_000)
    parser.add_argument("--length", type=natural, default=500, metavar="BP")
    return run_command(lambda: _run(parser.parse_args()))


def _run(arguments: argparse.Namespace) -> int:
    folder: Path = arguments.output
    folder.mkdir(parents=True)
    fasta = folder / "in.fa"
    draw = random.Random(0)
    with fasta.open("w", encoding="utf-8") as sink:
        for number in range(arguments.sequences):
            sink.write(f">s{number}\n{''.join(draw.choices('ACGT', k=arguments.length))}\n")

    def command(output: str, *more: str) -> list[str]:
        words = ["predict", "--model", str(arguments.model), str(fasta)]
        return [sys.executable, "-m", "carbon", *words, "--output", str(folder / output), *more]

    resident_mb, seconds = _watched(command("alone.tsv"), None)
    say(f"alone: {seconds:.0f} s")
    _watched(command("killed.tsv"), seconds / 3)
    _watched(command("killed.tsv", "--resume"), seconds / 3)
    _watched(command("killed.tsv", "--resume"), None)
    tenth = max(1, len(resident_mb) // 10)
    found = {
        "sequences": arguments.sequences,
        "seconds": round(seconds),
        "resident_mb_of_second_tenth": round(np.mean(resident_mb[tenth : 2 * tenth])),
        "resident_mb_of_last_tenth": round(np.mean(resident_mb[-tenth:])),
        "most_mb": max(resident_mb),
        "same_bytes": (folder / "alone.tsv").read_bytes() == (folder / "killed.tsv").read_bytes(),
    }
    print(json.dumps(found))
    return int(not found["same_bytes"])


def _watched(command: list[str], kill_after: float | None) -> tuple[list[int], float]:
    """Run a command, to its end or for so many seconds; return its memory by the second."""
    began, resident_mb = time.monotonic(), []
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None:
        time.sleep(1)
        resident_mb += _resident_mb(process.pid)
        if kill_after and time.monotonic() - began > kill_after:
            process.kill()
            process.wait()
            return resident_mb, kill_after
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return resident_mb, time.monotonic() - began


def _resident_mb(pid: int) -> list[int]:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return [int(kb) // 1000 for kb in re.findall(r"VmRSS:\s+(\d+) kB", status)]


if __name__ == "__main__":
    sys.exit(main())
