"""A verb of carbon as tasks of Ray: `share_ray.py --tasks 16 variants ...`; see docs/scale.md.

The tasks share the work by files, as all processes do; Ray finds the machines, and starts a task
again whose machine is lost. It runs on the cluster that `RAY_ADDRESS` names, or on this machine.
"""

import argparse
import os
import subprocess
import sys
from uuid import uuid4

from carbon.console import run_command, say

_RETRIES = 3


def main(argv: list[str] | None = None) -> int:
    """Start the tasks and wait for them; return the exit code of the command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", type=int, required=True, metavar="N")
    parser.add_argument("--gpus", type=float, default=0, metavar="N", help="of a task; default: 0")
    parser.add_argument("--cpus", type=float, default=1, metavar="N", help="of a task; default: 1")
    parser.add_argument(
        "words", nargs=argparse.REMAINDER, help="a verb of carbon and its arguments"
    )
    return run_command(lambda: _run(parser.parse_args(argv)))


def _run(arguments: argparse.Namespace) -> int:
    import ray

    ray.init(log_to_driver=True)
    name = f"ray {uuid4()}"
    task = ray.remote(
        num_cpus=arguments.cpus,
        num_gpus=arguments.gpus,
        max_retries=_RETRIES,
        retry_exceptions=True,
    )(_share)
    tasks = [task.remote(arguments.words, name, n == 0) for n in range(arguments.tasks)]
    done = ray.get(tasks)
    for code, told, complaint in done:
        print(told, end="")
        if code:
            say(complaint.strip().rpartition("\n")[2])
    # Whoever ends with 0 has seen the output whole.
    return min(code for code, _, _ in done)


def _share(words: list[str], launch: str, shows: bool) -> tuple[int, str, str]:
    """Run the command as one of many; return exit code, standard output, and complaints."""
    done = subprocess.run(
        [sys.executable, "-m", "carbon", *words],
        env={**os.environ, "CARBON_LAUNCH": launch},
        stdout=subprocess.PIPE,
        stderr=None if shows else subprocess.PIPE,
        text=True,
    )
    if done.returncode < 0:
        raise RuntimeError(f"killed by signal {-done.returncode}")  # Ray tries again
    return done.returncode, done.stdout, done.stderr or ""


if __name__ == "__main__":
    sys.exit(main())
