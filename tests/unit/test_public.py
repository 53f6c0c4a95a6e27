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
