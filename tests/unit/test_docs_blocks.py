"""Code blocks of README and docs: commands have the options they name, Python and TOML are that."""

import ast
import importlib
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from carbon.cli import parse
from carbon.commands.packages import PACKAGES
from carbon.errors import UserError

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("tutorials/*.md")),
]
PARSERS = {
    **{f"carbon {command}": f"{package}.__main__" for command, package in PACKAGES.items()},
    "carbon": "carbon.cli",
    "python -m train.launch": "train.__main__",
}
BLOCK = re.compile(r"```(bash|python|toml)[^\n]*\n(.*?)```", re.DOTALL)


def command_of(line: str) -> tuple[str, list[str]] | None:
    """Return the parser of a command line and the words for it, of one that is ours."""
    line = re.split(r" \|(?:$| )| [0-9]*>| < | && | &$|; ", line)[0].replace(".venv/bin/", "")
    launch = re.match(r"torchrun .*?-m train ?(.*)", line)
    if launch:
        return "train.__main__", shlex.split(launch[1], comments=True)
    for name, module in PARSERS.items():
        if line == name or line.startswith(f"{name} "):
            return module, shlex.split(line.removeprefix(name), comments=True)
    return None


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_are_what_they_say(page, capsys):
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(block if not block.startswith('"') else f"{{{block}}}")  # an entry of a table
        elif language == "toml":
            tomllib.loads(block)
        else:
            for line in block.replace("\\\n", " ").splitlines():
                check_command(line, page, capsys)


def check_command(line: str, page: Path, capsys) -> None:
    found = command_of(line.strip())
    if found is None or not found[1] or "..." in found[1] or "train.launch" in line:
        return
    module, words = found
    if module == "carbon.cli":
        try:
            parse(words)
        except UserError as error:
            raise AssertionError(f"{page.name}: {line}\nerror: {error}") from None
        return
    try:
        importlib.import_module(module)._parser().parse_args(words)
    except SystemExit as end:
        assert end.code == 0, f"{page.name}: {line}\n{capsys.readouterr().err}"


def test_a_command_that_is_wrong_is_seen(capsys):
    check_command("carbon score --model M genes.fa  # as it should be", ROOT, capsys)
    for wrong in ("carbon score --modle M genes.fa", "carbon eval rum", "carbon scan --model M"):
        with pytest.raises(AssertionError, match="error: "):
            check_command(wrong, ROOT, capsys)
