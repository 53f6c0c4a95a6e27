"""What all tests share is built once for as long as the sources are the same."""

import hashlib
import shutil
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import torch
from filelock import FileLock

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "test-artefacts" / "cache"
_SOURCES = ("carbon/", "data_pipeline/", "train/", "tests/helpers/", "tests/**/conftest.py")
_KEPT = 3


def built(name: str, build: Callable[[Path], object]) -> Path:
    """Return a folder that `build` has filled, in this run of the tests or in an earlier one.

    Processes that need it at once wait for the first of them. Tests that change it copy it.
    """
    folder = FOLDER / digest_of_sources() / name
    whole = folder.with_name(f"{name}.whole")
    if not whole.exists():
        if not folder.parent.exists():
            _forget_old()
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f"{name}.lock")):
            if not whole.exists():
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir()
                build(folder)
                whole.touch()
    return folder


@cache
def digest_of_sources() -> str:
    """Return a digest of all that decides what is built: our code, and the versions beneath it."""
    found = hashlib.sha256(f"{sys.version} {torch.__version__}".encode())
    for pattern in _SOURCES:
        for path in sorted(ROOT.glob(f"{pattern}**/*" if pattern.endswith("/") else pattern)):
            if path.suffix in (".py", ".toml", ".json"):
                found.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return found.hexdigest()[:16]


def _forget_old() -> None:
    """Remove what earlier sources have built, but for the latest."""
    folders = sorted(FOLDER.glob("*"), key=lambda path: path.stat().st_mtime)
    for folder in folders[:-_KEPT]:
        shutil.rmtree(folder, ignore_errors=True)
