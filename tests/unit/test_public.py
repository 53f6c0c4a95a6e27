import os
import subprocess
import sys

import pytest

import carbon


def test_all_names_are_there_and_no_other():
    assert sorted(carbon.__all__) == sorted([*carbon._HOMES, *carbon._MODULES, "__version__"])
    for name in carbon.__all__:
        assert getattr(carbon, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'scan_everything'"):
        _ = carbon.scan_everything


@pytest.mark.parametrize(
    "statement",
    [
        "import carbon",
        "import carbon; carbon.reverse_complement('A')",
        "import carbon; carbon.encode('ACGT')",
        "from carbon.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    ],
)
def test_torch_is_imported_only_when_needed(statement):
    code = f"{statement}\nimport sys; assert 'torch' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("given", "spins"),
    [
        ({}, "10000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, None),
    ],
)
def test_waiting_threads_give_their_core_up_unless_the_user_says_otherwise(given, spins):
    code = "import carbon, os; print(os.environ.get('GOMP_SPINCOUNT'))"
    names = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    environment = {k: v for k, v in os.environ.items() if k not in names} | given
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout == f"{spins}\n", done.stderr
