"""Code blocks of README and docs: commands have the options they name, Python and TOML are that."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

from tests.helpers.command_lines import check_command

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(DOCS.glob("*.md")),
    *sorted(DOCS.glob("tutorials/*.md")),
]
BLOCK = re.compile(r"```(bash|python|toml)[^\n]*\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks_are_what_they_say(page, capsys):
    for language, block in BLOCK.findall(page.read_text(encoding="utf-8")):
        if language == "python":
            ast.parse(block if not block.startswith('"') else f"{{{block}}}")  # an entry of a table
        elif language == "toml":
            tomllib.loads(block)
        else:
            for line in block.replace("\\\n", " ").splitlines():
                check_command(line, page.name, capsys)
