"""What a quickstart was asked for, which its folder remembers."""

import argparse
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

Asked = dict[str, Any]


def remembered(asked: argparse.Namespace, files: Mapping[str, Path]) -> Asked:
    """Return the arguments; files by the place they lead to, their size and their time.

    The output folder is where this is found, so it is left out.

    Args:
        asked: the parsed arguments.
        files: behind links, by their argument.
    """
    kept = {name: value for name, value in vars(asked).items() if name != "output"}
    return kept | {name: _told_file(path) for name, path in files.items()}


def differences(before: Asked, now: Asked) -> list[str]:
    """Say of each argument that is another what it was and what it is.

    >>> differences({"seed": 0, "genome_bp": 5}, {"seed": 9, "genome_bp": 5})
    ['--seed was 0, is 9']
    """
    return [
        f"{_option(name)} was {_told(before.get(name))}, is {_told(now.get(name))}"
        for name in (*now, *(name for name in before if name not in now))
        if before.get(name) != now.get(name)
    ]


def _option(name: str) -> str:
    return "--set" if name == "overrides" else "--" + name.replace("_", "-")


def _told(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value)) or "not given"
    return "not given" if value in (None, "") else str(value)


def _told_file(path: Path) -> str:
    status = path.stat()
    return f"{path} ({status.st_size:,} bytes of {datetime.fromtimestamp(status.st_mtime)})"
