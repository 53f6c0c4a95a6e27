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


ENVIRONMENT_OF_THREADS = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")


def printed_by(code: str, given: dict[str, str]) -> str:
    kept = {k: v for k, v in os.environ.items() if k not in ENVIRONMENT_OF_THREADS}
    done = subprocess.run(
        [sys.executable, "-c", code], env=kept | given, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_import_leaves_the_environment_as_it_is():
    code = "import os; before = dict(os.environ); import carbon; print(os.environ == before)"
    assert printed_by(code, {}) == "True\n"


@pytest.mark.parametrize(
    ("given", "spins"),
    [
        ({}, "10000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "active"}, None),
    ],
)
def test_threads_of_a_command_stop_spinning_soon_unless_the_user_says_otherwise(given, spins):
    """A command sets it before it imports torch, which reads it."""
    code = (
        "import os, sys; from carbon.console import run_command; run_command(lambda: "
        "print(os.environ.get('GOMP_SPINCOUNT'), 'torch' in sys.modules))"
    )
    assert printed_by(code, given) == f"{spins} False\n"
