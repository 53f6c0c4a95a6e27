"""Command lines of documents and helps, given to the parsers of their programs."""

import importlib
import re
import shlex

from carbon.cli import parse
from carbon.commands.packages import PACKAGES
from carbon.errors import UserError

PARSERS = {
    **{f"carbon {command}": f"{package}.__main__" for command, package in PACKAGES.items()},
    "carbon": "carbon.cli",
    "python -m train.launch": "train.__main__",
}


def command_of(line: str) -> tuple[str, list[str]] | None:
    """Return the parser of a command line and the words for it, of one that is ours."""
    line = re.split(r" \|(?:$| )| [0-9]*>| < | && | &$|; ", line)[0].replace(".venv/bin/", "")
    launch = re.match(r"torchrun .*?-m train ?(.*)", line)
    if launch:
        return "train.__main__", shlex.split(launch[1], comments=True)
    line = re.sub(r"^torchrun .*?-m carbon ", "carbon ", line)
    for name, module in PARSERS.items():
        if line == name or line.startswith(f"{name} "):
            return module, shlex.split(line.removeprefix(name), comments=True)
    return None


def check_command(line: str, place: str, capsys) -> None:
    """Fail if a command line is ours and its parser refuses it."""
    found = command_of(line.strip())
    if found is None or not found[1] or "..." in found[1] or "train.launch" in line:
        return
    module, words = found
    if module == "carbon.cli":
        try:
            parse(words)
        except UserError as error:
            raise AssertionError(f"{place}: {line}\nerror: {error}") from None
        return
    try:
        importlib.import_module(module)._parser().parse_args(words)
    except SystemExit as end:
        assert end.code == 0, f"{place}: {line}\n{capsys.readouterr().err}"
