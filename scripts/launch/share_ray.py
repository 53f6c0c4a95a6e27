"""A verb of carbon, shared by tasks of Ray: on the cluster that is up, or on this machine.

    python scripts/launch/share_ray.py --tasks 8 --gpus 1 variants --model M ... --output O

What stands behind the options are the arguments of carbon (docs/scale.md); with MODULE=eval in the
environment those of eval, whose `run` is shared too. Ray starts a task again
whose process or machine has died; what it had done is there.
"""

import argparse
import os
import subprocess
import sys
import uuid

import ray

_RETRIES = 3


def main() -> int:
    """Start the tasks, print what carbon tells, and return its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tasks", type=int, default=1)
    parser.add_argument("--gpus", type=float, default=0, help="of a task")
    parser.add_argument("--cpus", type=float, default=1, help="of a task")
    parser.add_argument("words", nargs=argparse.REMAINDER, metavar="ARGUMENTS", help="of carbon")
    given = parser.parse_args()
    ray.init()
    share = ray.remote(
        num_gpus=given.gpus, num_cpus=given.cpus, max_retries=_RETRIES, retry_exceptions=True
    )(_share)
    launch = f"ray {uuid.uuid4()}"
    asked = (os.environ.get("MODULE", "carbon"), given.words, os.getcwd(), launch)
    tasks = [share.remote(*asked) for _ in range(given.tasks)]
    ended = ray.get(tasks)
    sys.stdout.write("".join(said for _, said in ended))
    # One that was refused matters only where none has made the output.
    return min((code for code, _ in ended), default=0)


def _share(module: str, words: list[str], folder: str, launch: str) -> tuple[int, str]:
    """Take part in the work; return the exit code and what was printed.

    Raises:
        RuntimeError: the process was killed, so that Ray starts the task again.
    """
    done = subprocess.run(
        [sys.executable, "-m", module, *words],
        cwd=folder,
        env={**os.environ, "CARBON_LAUNCH": launch},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    if done.returncode < 0:
        raise RuntimeError(f"{module} was ended by signal {-done.returncode}")
    return done.returncode, done.stdout


if __name__ == "__main__":
    sys.exit(main())
