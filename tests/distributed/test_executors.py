"""One recipe on every executor: processes, Ray (started), Slurm (its commands stood in for)."""

import os
import signal
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from carbon.corpus import read_manifest
from data_pipeline.__main__ import main
from data_pipeline.executors import ExecutorConfig, Step, run_steps
from tests.helpers.processes import waits_for

ROOT = Path(__file__).parents[2]
SOURCES = '["eukaryote", "mrna", "prokaryote"]'


@pytest.fixture(scope="module")
def genomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("genomes")
    for seed in range(3):
        words = ["--output", f"{folder}/{seed}", "--genome-bp", "60000", "--seed", str(seed)]
        assert main(["simulate", *words]) == 0
    return folder


def words_of(genomes, output, *settings):
    result = [f"output={output}"]
    for i in range(3):
        result += [
            f"assemblies.{i}.genome={genomes}/{i}/genome.fa",
            f"assemblies.{i}.annotation={genomes}/{i}/genes.gff3",
            f"assemblies.{i}.name=g{i}",
            f"assemblies.{i}.sources={SOURCES}",
        ]
    return [word for item in (*result, *settings) for word in ("--set", item)]


@pytest.fixture(scope="module")
def expected(genomes, tmp_path_factory):
    output = tmp_path_factory.mktemp("one") / "corpus"
    assert main(["build", *words_of(genomes, output)]) == 0
    return read_manifest(output)["outputs"]


def command(genomes, output, *settings):
    words = words_of(genomes, output, *settings)
    return [sys.executable, "-m", "carbon", "corpus", "build", *words]


def make_folder(parent, rank):
    (parent / str(rank)).mkdir()  # fails if a rank is run twice


def test_each_rank_runs_once(tmp_path):
    done = tmp_path / "done"
    done.mkdir()
    step = Step("some", partial(make_folder, done), 40)
    assert run_steps(ExecutorConfig(workers=2), [step], tmp_path / "logs")
    assert {path.name for path in done.iterdir()} == {str(rank) for rank in range(40)}


def kill_worker(rank):
    if rank == 3:
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_worker_ends_the_step(tmp_path):
    step = Step("some", kill_worker, 40)
    with pytest.raises(ChildProcessError, match="a worker process was killed") as raised:
        run_steps(ExecutorConfig(workers=2), [step], tmp_path / "logs")
    assert raised.value.filename == "step some"


@pytest.mark.nightly
def test_ray(genomes, expected, tmp_path):
    if "CARBON_SERVERS" not in os.environ:
        pytest.skip("scripts/test_servers starts Ray")
    settings = ("executor.kind=ray", "executor.workers=2", "executor.memory_gb_per_cpu=1")
    done = subprocess.run(
        command(genomes, tmp_path / "c", *settings),
        cwd=ROOT, capture_output=True, text=True, timeout=400,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "ray" in done.stderr.lower()
    assert read_manifest(tmp_path / "c")["outputs"] == expected


SBATCH = """#!/usr/bin/env bash
# Runs the tasks of an array one after another, as Slurm would, and prints the job's number.
set -e
for word in "$@"; do script=$word; done
echo "$@" >> "$FAKE_SLURM/submitted"
array=$(sed -n 's/^#SBATCH --array=\\([0-9]*\\)-\\([0-9]*\\).*/\\1 \\2/p' "$script")
export SLURM_JOB_ID=1 SLURM_ARRAY_JOB_ID=1 SLURM_NODELIST=here SLURM_NODEID=0
export SLURM_CPUS_PER_TASK=1 SLURM_MEM_PER_CPU=4096
for task in $(seq $array); do
  SLURM_ARRAY_TASK_ID=$task bash "$script" >> "$FAKE_SLURM/output" 2>&1
done
echo "Submitted batch job $(wc -l < "$FAKE_SLURM/submitted")"
"""
SRUN = """#!/usr/bin/env bash
while [[ $1 == -* ]]; do [[ $1 == -n ]] && shift; shift; done
exec "$@"
"""


@pytest.mark.nightly
def test_slurm_scripts_run_the_same_steps(genomes, expected, tmp_path):
    """Its three commands are stood in for; the scripts that they get are the real ones."""
    scontrol = "#!/usr/bin/env bash\necho here\n"
    for name, text in (("sbatch", SBATCH), ("srun", SRUN), ("scontrol", scontrol)):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    path = f"{tmp_path}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
    settings = (
        "executor.kind=slurm", "executor.partition=cpu", f"executor.environment=cd {ROOT}",
    )  # fmt: skip
    done = subprocess.run(
        command(genomes, tmp_path / "c", *settings),
        cwd=ROOT, env=os.environ | {"PATH": path, "FAKE_SLURM": str(tmp_path)},
        capture_output=True, text=True,
    )  # fmt: skip
    log = (tmp_path / "output").read_text() if (tmp_path / "output").exists() else ""
    assert done.returncode == 0, done.stderr + log
    assert "submitted; the corpus will be" in done.stderr
    # After each step datatrove submits one more job, which adds up its statistics.
    submitted = [x for x in (tmp_path / "submitted").read_text().splitlines() if "OFFSET" in x]
    assert len(submitted) == 8  # extract, index, four of deduplication, write, publish
    assert all("--dependency=afterok" in line for line in submitted[1:])
    assert read_manifest(tmp_path / "c")["outputs"] == expected


ATTACKED = """
import os
import signal
import sys
from functools import partial
from pathlib import Path

from data_pipeline import build, executors
from data_pipeline.__main__ import main

STEP, VICTIM = sys.argv[1:3]
run_steps = build.run_steps

def workers_of(driver):
    children = Path(f"/proc/{driver}/task/{driver}/children").read_text().split()
    command = {child: Path(f"/proc/{child}/cmdline").read_bytes() for child in children}
    return [int(child) for child in children if b"spawn_main" in command[child]]

def attack(run, driver, rank):
    run(rank)
    if rank == 0:
        victims = [driver] if VICTIM == "driver" else workers_of(driver)
        for victim in sorted(victims, key=os.getpid().__eq__):  # this process last
            os.kill(victim, signal.SIGKILL)

def run_attacked(config, steps, logs):
    attacked = [
        step._replace(run=partial(attack, step.run, os.getpid())) if step.name == STEP else step
        for step in steps
    ]
    return run_steps(config, attacked, logs)

if __name__ == "__main__":
    build.run_steps = run_attacked
    sys.exit(main(["build", *sys.argv[3:]]))
"""
STEPS = ("extract", "index", "equal", "join", "components", "verify", "write", "publish")


@pytest.mark.nightly
@pytest.mark.parametrize("victim", ["driver", "workers"])
def test_killed_at_each_step_it_goes_on(genomes, expected, tmp_path, victim):
    """SIGKILL to the driver or to all workers once a task of a step is done, step after step.

    `publish` is a task of the driver, which needs no worker any more.
    """
    script, output = tmp_path / "attacked.py", tmp_path / "out" / "c"
    script.write_text(ATTACKED)
    for step in STEPS if victim == "driver" else STEPS[:-1]:
        words = words_of(genomes, output, "executor.workers=2")
        done = subprocess.run(
            [sys.executable, str(script), step, victim, *words], cwd=ROOT, capture_output=True,
            env=os.environ | {"PYTHONPATH": str(ROOT)}, text=True, timeout=400,
        )  # fmt: skip
        if victim == "driver":
            assert done.returncode == -signal.SIGKILL, done.stderr
        else:
            errors = [line for line in done.stderr.splitlines() if "error" in line]
            assert done.returncode == 1 and len(errors) == 1, done.stderr
            assert "a worker process was killed" in errors[0]
    if not output.exists():  # else the last step was done
        assert main(["build", *words_of(genomes, output)]) == 0
    assert read_manifest(output)["outputs"] == expected
    left = {path.name for path in output.parent.iterdir() if not path.name.startswith(".")}
    assert left in ({"c"}, {"c", "c.work"})


SLEEPING = """
import os
import sys
import time
from functools import partial
from pathlib import Path
from data_pipeline.executors import ExecutorConfig, Step, run_steps

def sleep(folder, rank):
    (folder / str(os.getpid())).touch()
    time.sleep(100)

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    step = Step("sleep", partial(sleep, folder), 2)
    run_steps(ExecutorConfig(workers=2), [step], folder / "logs")
"""


def two_numbers(folder):
    names = [path.name for path in folder.iterdir() if path.name.isdigit()]
    return names if len(names) == 2 else None


@pytest.mark.nightly
def test_tasks_end_with_a_killed_driver(tmp_path):
    """Else a task of one recipe would put its result among those of the next."""
    script = tmp_path / "sleeping.py"  # a file, which workers import
    script.write_text(SLEEPING)
    words, path = [sys.executable, str(script), str(tmp_path)], {"PYTHONPATH": str(ROOT)}
    driver = subprocess.Popen(words, env=os.environ | path, start_new_session=True)
    tasks = waits_for(lambda: two_numbers(tmp_path) or driver.poll() is not None)
    assert driver.poll() is None
    driver.kill()
    driver.wait()
    waits_for(lambda: not any(Path("/proc", name).exists() for name in tasks))


def files_in(folder):
    """Return the names of all files of a folder, in which others may make and remove folders."""
    return [name for _, _, names in os.walk(folder) for name in names]


def killed_when(condition, genomes, output):
    """Start the build, kill its whole group as soon as something is so, and start it again."""
    process = subprocess.Popen(
        command(genomes, output), cwd=ROOT, start_new_session=True, stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    waits_for(lambda: condition() or process.poll() is not None)
    assert process.poll() is None, "it had ended before"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not output.exists()


def test_killed_it_goes_on(genomes, expected, tmp_path):
    """SIGKILL to the whole group; the same command finishes the work."""
    output = tmp_path / "c"
    killed_when(
        lambda: any(name.endswith(".parquet") for name in files_in(tmp_path)), genomes, output
    )
    assert main(["build", *words_of(genomes, output)]) == 0
    assert read_manifest(output)["outputs"] == expected
