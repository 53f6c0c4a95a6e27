"""Slurm's launch script, run with fakes of Slurm and Ray; the Kubernetes manifest."""

import os
import re
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SCRIPTS = ROOT / "scripts"
RAY = """#!/usr/bin/env bash
echo "ray $* $RAY_AUTH_MODE ${#RAY_AUTH_TOKEN}" >> "$LOG"
[[ $* == *--block* ]] && exec sleep 100
exit 0
"""
SRUN = """#!/usr/bin/env bash
echo "srun $1 $2 $3 $4 $5" >> "$LOG"
shift 7  # the options, one without a value
exec "$@"
"""
PYTHON = """#!/usr/bin/env bash
echo "python $* at $RAY_ADDRESS" >> "$LOG"
sleep 0.5
exit "$CODE"
"""


@pytest.fixture
def slurm(tmp_path):
    """Return a function that runs the script in a job, and returns exit code and log."""
    (tmp_path / "bin").mkdir()
    for name, text in {"ray": RAY, "srun": SRUN, "python": PYTHON}.items():
        path = tmp_path / "bin" / name
        path.write_text(text)
        path.chmod(0o755)

    def run(nodes, code=0, **more):
        log = tmp_path / "log"
        log.write_text("")
        environment = {
            "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHON": f"{tmp_path}/bin/python",
            "LOG": str(log), "CODE": str(code), "SLURM_NNODES": str(nodes), "SLURM_JOB_ID": "70123",
            "HEAD": "10.0.0.1", **more,
        }  # fmt: skip
        done = subprocess.Popen(
            [SCRIPTS / "launch" / "ray_slurm.sh", "variants", "--output", "o"],
            env=environment,
            start_new_session=True,
        )
        code = done.wait(60)
        with suppress(ProcessLookupError):
            os.killpg(done.pid, 9)  # as Slurm ends the processes of a job
        return code, log.read_text().splitlines()

    return run


@pytest.mark.parametrize("code", [2, pytest.param(0, marks=pytest.mark.nightly)])
def test_a_job_of_three_nodes(slurm, code):
    ended, log = slurm(3, code)
    assert ended == code
    head, *middle, last = log
    assert head == (
        "ray start --head --node-ip-address 10.0.0.1 --port 20123 --include-dashboard false "
        "token 64"
    )
    assert last == "ray stop token 64"
    assert "python -m carbon variants --output o at 10.0.0.1:20123" in middle
    assert "ray start --address 10.0.0.1:20123 --block token 64" in middle
    assert "srun --nodes 2 --ntasks-per-node 1 --exclude" in middle


def test_a_job_of_one_node_that_was_requeued(slurm):
    ended, log = slurm(1, SLURM_RESTART_COUNT="1", MODULE="eval")
    assert ended == 0 and not [line for line in log if line.startswith("srun")]
    assert "python -m eval variants --output o --resume at 10.0.0.1:20123" in log


@pytest.mark.nightly
def test_a_job_without_an_address_takes_that_of_its_host(slurm):
    _, log = slurm(1, HEAD="")
    (address,) = re.findall(r"at (\S+):20123", "\n".join(log))
    assert re.fullmatch(r"[\d.]+|[\da-f:]+", address)


def test_the_manifest_of_kubernetes():
    job = yaml.safe_load((SCRIPTS / "launch" / "kuberay.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    cluster = job["spec"]["rayClusterSpec"]
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    for group in groups:
        (container,) = group["template"]["spec"]["containers"]
        names = [each["name"] for each in container["env"]]
        assert names[:2] == ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN"]
        volumes = {volume["name"] for volume in group["template"]["spec"]["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    assert all(isinstance(value, str) for value in groups[0]["rayStartParams"].values())
    assert groups[1]["minReplicas"] <= groups[1]["replicas"] <= groups[1]["maxReplicas"]
    assert "--ray $(hostname -i):6379 --resume" in job["spec"]["entrypoint"]
