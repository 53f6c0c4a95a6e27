"""Helps: options of the command alone, in groups, with two examples that work and a guide."""

import argparse
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from carbon.cli import COMMANDS, main
from carbon.commands.examples import GUIDES
from carbon.commands.packages import PACKAGES
from tests.helpers.command_lines import check_command

ROOT = Path(__file__).parents[2]
RUN = ("models", "convert", "doctor", "tokenize", "generate", "next", "score", "embed", "variants",
       "scan", "dependency", "design")  # fmt: skip


def parsers_in(parser):
    """Return a parser and those of its subcommands."""
    inner = [
        each
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for each in action.choices.values()
    ]
    return [parser, *(p for each in inner for p in parsers_in(each))]


PARSERS = {
    parser.prog: parser
    for package in PACKAGES.values()
    for parser in parsers_in(import_module(f"{package}.__main__")._parser())
}


def folded(text: str) -> list[str]:
    """Return the lines of an epilogue, with those that a shell joins as one."""
    return text.replace(" \\\n ", "").splitlines()


def test_every_command_has_a_guide_and_two_examples_that_parse(capsys):
    assert GUIDES.keys() == COMMANDS.keys() - PACKAGES.keys()
    for name, guide in GUIDES.items():
        assert (ROOT / guide.page).is_file()
        for example in guide.examples:
            assert f"carbon {name}" in example
            check_command(example, name, capsys)


@pytest.mark.parametrize("program", PARSERS)
def test_a_package_shows_a_guide_and_two_examples_that_parse(program, capsys):
    first, *lines, _, guide = folded(PARSERS[program].epilog)
    examples = [line for line in lines if line]
    assert first == "Examples:" and len(examples) == 2
    assert (ROOT / guide.removeprefix("Guide: ")).is_file()
    for example in examples:
        check_command(example, program, capsys)


@pytest.mark.parametrize("program", PARSERS)
def test_every_option_of_a_package_has_a_help(program):
    parser = PARSERS[program]
    assert parser.description
    commands = argparse._SubParsersAction
    actions = [action for action in parser._actions if not isinstance(action, commands)]
    assert [action.dest for action in actions if not action.help] == []


def test_a_subcommand_shows_its_own_options(capsys):
    assert main(["train", "export", "--help"]) == 0
    text = capsys.readouterr().out
    assert "--output DIR" in text and "--dry-run" not in text and "--rows" not in text
    assert main(["train", "--help"]) == 0
    text = capsys.readouterr().out
    assert "[default: 0.4]" in text and "--rows" not in text and "--output" not in text
    assert main(["train", "export", "--config", "x.toml", "--output", "m", "--rows", "3"]) == 2
    assert "there is no option --rows" in capsys.readouterr().err


@pytest.mark.nightly
@pytest.mark.timeout(3600)  # two dozen commands, one after the other
def test_the_examples_run(tmp_path):
    (tmp_path / "my_functions.py").write_text(
        "def cpg(sequences):\n    return [s.count('CG') for s in sequences]\n"
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    for name in RUN:
        for example in GUIDES[name].examples:
            done = subprocess.run(
                ["bash", "-c", example], cwd=tmp_path, env=os.environ | {"PATH": path},
                capture_output=True, text=True,
            )  # fmt: skip
            assert done.returncode == 0, f"{example}\n{done.stderr}"
