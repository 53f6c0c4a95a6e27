"""What the launch files prepare, with a Python, an srun and a scontrol that only tell."""

import os
import resource
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LAUNCH = ROOT / "scripts" / "launch"
TELLS = """#!/usr/bin/env bash
echo "memory $PYTORCH_ALLOC_CONF"
echo "files $(ulimit -n)"
echo "words $*"
"""


@pytest.mark.parametrize(
    ("name", "given"), [("torchrun.sh", None), ("slurm.sh", "garbage_collection_threshold:0.8")]
)
def test_processes_find_memory_and_files_prepared(name, given, tmp_path):
    python = tmp_path / ".venv" / "bin" / "python"
    python.parent.mkdir(parents=True)
    programs = {python: TELLS, tmp_path / "srun": '#!/bin/sh\nshift\nexec "$@"\n',
                tmp_path / "scontrol": "#!/bin/sh\necho node1\n"}  # fmt: skip
    for path, text in programs.items():
        path.write_text(text, encoding="utf-8")
        path.chmod(0o755)
    environment = {
        "PATH": f"{tmp_path}:{os.environ['PATH']}",
        **{f"SLURM_{name}": "1" for name in ("JOB_NODELIST", "NNODES", "JOB_ID")},
        **({"PYTORCH_ALLOC_CONF": given} if given else {}),
    }
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    done = subprocess.run(
        [LAUNCH / name, "--config", "x.toml"], cwd=tmp_path, env=environment,
        capture_output=True, text=True, timeout=60,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, most)),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    memory, files, words = done.stdout.splitlines()
    assert memory == f"memory {given or 'expandable_segments:True'}"
    assert files == f"files {most}"
    assert words.endswith("-m train --resume auto --config x.toml")
