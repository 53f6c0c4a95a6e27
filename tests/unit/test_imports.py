"""What is imported: no circles, no torch before it is needed, `carbon` alone in the wheel.

Which module may import which is in pyproject.toml, for import-linter.
"""

import os
import re
import subprocess
import sys
import zipfile
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest

import carbon.console
from tests.helpers.files import random_bases, write_fasta

ROOT = Path(__file__).parents[2]
KNOWN_BEFORE_A_RUN = """
import os, sys
before = dict(os.environ)
import carbon.cli, data_pipeline.recipe, train.__main__, train.planning.plan
import data_pipeline.__main__, eval.__main__, demo.__main__
assert os.environ == before
carbon.reverse_complement("A"), carbon.encode("ACGT")
from train.config import TrainConfig
TrainConfig.load("train/recipes/tiny.toml")
for words in ([], *([command] for command in carbon.cli.COMMANDS)):
    assert carbon.cli.main([*words, "--help"]) == 0
slow = "torch transformers matplotlib datatrove fsspec pandas requests scipy gradio datasets"
print([name for name in slow.split() if name in sys.modules])
"""
A_BUILD = """
import sys
from data_pipeline.__main__ import main
assert main(sys.argv[1:]) == 0
assert {"numpy", "pyarrow", "pysam"} <= sys.modules.keys()
slow = "datatrove fsspec jinja2 requests scipy torch transformers"  # pyarrow imports pandas
print([name for name in slow.split() if name in sys.modules])
"""


GLOBALS = """
import importlib, os, pkgutil, torch

def state():
    b = torch.backends
    return dict(
        threads=(torch.get_num_threads(), torch.get_num_interop_threads()),
        dtype=torch.get_default_dtype(), device=torch.get_default_device(),
        gradients=torch.is_grad_enabled(), random=torch.get_rng_state().tolist(),
        deterministic=torch.are_deterministic_algorithms_enabled(),
        precision=(torch.get_float32_matmul_precision(), b.cudnn.allow_tf32,
                   b.cuda.matmul.allow_tf32, b.cudnn.benchmark, b.cudnn.deterministic),
        attention=(b.cuda.flash_sdp_enabled(), b.cuda.mem_efficient_sdp_enabled(),
                   b.cuda.math_sdp_enabled(), b.cuda.cudnn_sdp_enabled()),
        cuda=torch.cuda.is_initialized(),
    )

import torch._inductor.codecache  # torch itself sets TORCHINDUCTOR_CACHE_DIR on its import
before = state(), dict(os.environ)
import carbon
for module in pkgutil.walk_packages(carbon.__path__, "carbon."):
    if not module.name.endswith("__main__"):
        importlib.import_module(module.name)
assert (state(), dict(os.environ)) == before
"""


def test_no_modules_import_one_another_in_a_circle():
    """Imports inside functions and for types alone count as well."""
    graph = grimp.build_graph("carbon", "data_pipeline", "train", "eval", "demo", cache_dir=None)
    imports = {each: graph.find_modules_directly_imported_by(each) for each in graph.modules}
    TopologicalSorter(imports).prepare()


def test_what_is_known_before_a_run_takes_no_torch():
    """A recipe is read and planned, and `--help` is printed, without what takes seconds to load."""
    done = subprocess.run(
        [sys.executable, "-c", KNOWN_BEFORE_A_RUN], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "[]"), done.stderr


@pytest.mark.nightly
def test_importing_all_of_carbon_changes_no_variable_and_no_global_of_torch():
    """And it leaves CUDA uninitialised, since workers are forked after it."""
    done = subprocess.run(
        [sys.executable, "-c", GLOBALS], cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    assert done.returncode == 0, done.stderr


def test_a_build_imports_what_it_needs(tmp_path):
    """And no other module whose import takes a share of a small build's time."""
    genome = write_fasta(tmp_path / "x.fa", {"c": random_bases(5000, 1)})
    settings = (f"output={tmp_path}/c", f"assemblies.0.genome={genome}", "keep.near_identity=1")
    words = ["build", *(word for setting in settings for word in ("--set", setting))]
    done = subprocess.run(
        [sys.executable, "-c", A_BUILD, *words], cwd=ROOT, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["[]"]), done.stderr


def test_the_wheel_holds_carbon_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.startswith("carbon_dna-")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"carbon"}
    assert "carbon/py.typed" in names and "carbon/genome/fasta.py" in names


@pytest.mark.parametrize(
    ("given", "spins"),
    [({}, "10000"), ({"GOMP_SPINCOUNT": "7"}, "7"), ({"OMP_WAIT_POLICY": "active"}, None)],
)
def test_threads_stop_spinning_soon_unless_the_user_says_otherwise(given, spins, monkeypatch):
    """A command sets it before it imports torch, which reads it."""
    seen = []
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    carbon.console.run_command(lambda: seen.append(os.environ.get("GOMP_SPINCOUNT")) or 0)
    assert seen == [spins]


def test_the_paths_of_the_architecture_page_are_short_and_name_files_of_the_library():
    page = (ROOT / "docs/developers/architecture.md").read_text(encoding="utf-8")
    paths = [re.findall(r"^\d+\. `([\w/]+\.py)`", part, re.M) for part in page.split("\n### ")[1:]]
    assert len(paths) == 4
    for files in paths:
        assert 5 < len(files) <= 12
        assert [file for file in files if not (ROOT / "carbon" / file).is_file()] == []
