"""Share a VCF among processes: kill them at random, or time them.

    python bench/sharing.py OUTPUT --model M --reference FASTA --vcf VCF --records 100000 --kills 20
    python bench/sharing.py OUTPUT --model M --reference FASTA --vcf VCF --records 5000

The records of the VCF are repeated, each as often as it takes. With `--kills`, any process of the
command gets SIGKILL at random times, up to `--most-seconds` apart; where that ends the command, it
is given again with `--resume`. In the end the output is to have the bytes of one process that was
left alone, and every kill is to have been made before the work was done. Without, one process and
several are timed, all with one thread each; the start is what one record takes.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from itertools import chain, repeat
from pathlib import Path
from typing import Any

from carbon.console import natural, run_command
from carbon.genome.sequences import open_text
from carbon.progress import say


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("output", type=Path)
    for name in ("model", "reference", "vcf"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--records", type=natural, default=5000)
    parser.add_argument("--window", default="240", metavar="BP")
    parser.add_argument("--processes", type=natural, default=2)
    parser.add_argument("--kills", type=natural, default=0)
    parser.add_argument("--most-seconds", type=float, default=60, help="between two kills")
    parser.add_argument("--seed", type=natural, default=0)
    arguments = parser.parse_args()
    return run_command(lambda: _run(arguments))


def _run(arguments: argparse.Namespace) -> int:
    arguments.output.mkdir(parents=True)
    many, one = arguments.output / "many.vcf", arguments.output / "one.vcf"
    _repeated(arguments.vcf, many, arguments.records)
    _repeated(arguments.vcf, one, 1)
    alone = _seconds(arguments, many, "alone.vcf", "--processes", "0")
    if arguments.kills:
        num_kills, num_starts = _killed(arguments, many)
        found: dict[str, Any] = {"kills": num_kills, "starts": num_starts}
        found["kills_missing"] = arguments.kills - num_kills
    else:
        several = ("--processes", str(arguments.processes))
        shared = _seconds(arguments, many, "shared.vcf", *several)
        starts = [
            _seconds(arguments, one, "start.vcf", *words)
            for words in (("--processes", "0"), several)
        ]
        found = {
            "seconds": {"alone": alone, "shared": shared},
            "start_seconds": {"alone": starts[0], "shared": starts[1]},
            "ratio": alone / shared,
            "ratio_behind_the_start": (alone - starts[0]) / (shared - starts[1]),
        }
    outputs = [(arguments.output / f"{name}.vcf").read_bytes() for name in ("alone", "shared")]
    is_equal = outputs[0] == outputs[1]
    print(json.dumps({"records": arguments.records, "equal": is_equal, **found}))
    return 0 if is_equal and not found.get("kills_missing") else 1


def _repeated(source: Path, output: Path, num_records: int) -> None:
    """Write so many records, all of the source where there are enough, each equally often."""
    with open_text(source) as lines:
        whole = list(lines)
    header = [line for line in whole if line.startswith("#")]
    records = whole[len(header) :][:num_records]
    times = -(-num_records // len(records))
    each = chain.from_iterable(repeat(record, times) for record in records)
    kept = [record for _, record in zip(range(num_records), each, strict=False)]
    output.write_text("".join([*header, *kept]), encoding="utf-8")


def _start(
    arguments: argparse.Namespace, vcf: Path, output: str, *words: str
) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "carbon", "variants", "--model", str(arguments.model)]
    command += ["--reference", str(arguments.reference), "--vcf", str(vcf)]
    command += ["--output", str(arguments.output / output), "--window", arguments.window]
    return subprocess.Popen(
        [*command, "--device", "cpu", *words],
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _seconds(arguments: argparse.Namespace, vcf: Path, output: str, *words: str) -> float:
    begun = time.monotonic()
    process = _start(arguments, vcf, output, *words)
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return time.monotonic() - begun


def _killed(arguments: argparse.Namespace, vcf: Path) -> tuple[int, int]:
    """Share the work in trouble until it is done; return the numbers of kills and of starts."""
    draw = random.Random(arguments.seed)
    several = ("--processes", str(arguments.processes), "--resume")
    process, num_kills, num_starts = _start(arguments, vcf, "shared.vcf", *several), 0, 1
    while num_kills < arguments.kills:
        try:
            process.wait(draw.uniform(0, arguments.most_seconds))
        except subprocess.TimeoutExpired:
            victim = draw.choice([process.pid, *_children_of(process.pid)])
            os.kill(victim, signal.SIGKILL)
            num_kills += 1
            say(f"kill {num_kills}: {'the command' if victim == process.pid else 'another'}")
            if victim != process.pid:
                continue
            process.communicate()
            process, num_starts = _start(arguments, vcf, "shared.vcf", *several), num_starts + 1
        else:
            break  # it was done before
    _, complaint = process.communicate()
    assert process.returncode == 0, complaint
    return num_kills, num_starts


def _children_of(pid: int) -> list[int]:
    """Return the processes that a process and its children have started, and that live."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    children = map(int, path.read_text(encoding="utf-8").split()) if path.exists() else ()
    alive = [each for each in children if Path(f"/proc/{each}/exe").exists()]  # a zombie has none
    return [*alive, *(each for child in alive for each in _children_of(child))]


if __name__ == "__main__":
    sys.exit(main())
