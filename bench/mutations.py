"""Do the tests detect seeded faults? `python bench/mutations.py mark|try TREE ...`.

`mutations.toml` lists faults, each a single change of the source. TREE is a clone of the repository
with its own environment; both commands change it:

1. `mark TREE` inserts lines that record which test runs the place of a fault. Then run all tests of
   TREE with `CARBON_MARKS=FOLDER` and `--junitxml=REPORT`. Processes that tests start are recorded
   too.
2. `git checkout .` in TREE, then `try TREE --marks FOLDER --report REPORT --table TABLE`: for each
   fault, run only the test files that reach it, the quickest first, until one fails. The command
   skips faults that TABLE (JSON lines) already has, so it continues where it was stopped.
"""

import argparse
import ast
import json
import os
import subprocess
import tomllib
import xml.etree.ElementTree as ElementTree
from collections import defaultdict
from pathlib import Path

FAULTS = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
QUICK_SECONDS = 15.0
MOST_SECONDS = 1200
MARKER = '''"""Note which test runs a line."""

import os

_noted = set()


def mark(fault):
    folder, test = os.environ.get("CARBON_MARKS"), os.environ.get("PYTEST_CURRENT_TEST", "")
    if folder and (fault, test) not in _noted:
        _noted.add((fault, test))
        with open(os.path.join(folder, fault), "a") as file:
            file.write(test.partition("::")[0] + "\\n")
'''


def main() -> None:
    """Run the given command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(required=True)
    marking = commands.add_parser("mark")
    marking.add_argument("tree", type=Path)
    marking.set_defaults(run=lambda given: mark(given.tree))
    trying = commands.add_parser("try")
    trying.add_argument("tree", type=Path)
    for name in ("marks", "report", "table"):
        trying.add_argument(f"--{name}", type=Path, required=True)
    trying.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"))
    trying.set_defaults(run=try_all)
    given = parser.parse_args()
    given.run(given)


def mark(tree: Path) -> None:
    """Insert lines that record which tests run the places of the faults."""
    (tree / "carbon" / "_marker.py").write_text(MARKER, encoding="utf-8")
    for file in {fault["file"] for fault in FAULTS.values()}:
        text = (tree / file).read_text(encoding="utf-8")
        lines = text.splitlines(keepends=True)
        places = {
            statement_at(text, fault.get("mark", fault["old"])): name
            for name, fault in FAULTS.items()
            if fault["file"] == file
        }
        for statement, name in sorted(places.items(), key=lambda place: -place[0].lineno):
            call = f'__import__("carbon._marker", fromlist=["mark"]).mark("{name}")\n'
            lines.insert(statement.lineno - 1, " " * statement.col_offset + call)
        (tree / file).write_text("".join(lines), encoding="utf-8")


def statement_at(text: str, part: str) -> ast.stmt:
    """Return the innermost statement of a source that contains the only occurrence of a text.

    Raises:
        ValueError: the text does not occur exactly once.
    """
    if text.count(part) != 1:
        raise ValueError(f"{part!r} stands {text.count(part)} times")
    line = text[: text.index(part) + len(part)].count("\n") + 1
    around = [
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    return max(around, key=lambda node: (node.lineno, node.col_offset))


def try_all(given: argparse.Namespace) -> None:
    """Try the faults that are missing from the table, and append a line for each."""
    done = {json.loads(line)["fault"] for line in lines_of(given.table)}
    seconds = seconds_of(given.report)
    part, parts = given.part
    for name in [name for name in list(FAULTS)[part::parts] if name not in done]:
        files = sorted(set(lines_of(given.marks / name)) - {""}, key=lambda file: seconds[file])
        caught_by = first_failure(given.tree, FAULTS[name], files, seconds)
        row = {"fault": name, "caught_by": caught_by, "num_files": len(files)}
        with given.table.open("a", encoding="utf-8") as table:
            table.write(json.dumps(row) + "\n")
        print(f"{name:<40} {caught_by or 'SURVIVES'}", flush=True)


def first_failure(
    tree: Path, fault: dict[str, str], files: list[str], seconds: dict[str, float]
) -> str | None:
    """Return the first test that fails with a fault in the tree; None if none fails."""
    path = tree / fault["file"]
    text = path.read_text(encoding="utf-8")
    statement_at(text, fault["old"])
    quick = [file for file in files if seconds[file] < QUICK_SECONDS]
    slow = [file for file in files if seconds[file] >= QUICK_SECONDS]
    path.write_text(text.replace(fault["old"], fault["new"]), encoding="utf-8")
    try:
        batches = [quick, *([file] for file in slow)]
        return next(filter(None, (failure(tree, some) for some in batches if some)), None)
    finally:
        path.write_text(text, encoding="utf-8")


def failure(tree: Path, files: list[str]) -> str | None:
    """Return the first test of these files that fails; `-x` ends the run at that test."""
    python, options = tree / ".venv/bin/python", ["-x", "-q", "-rfE", "-p", "no:cacheprovider"]
    try:
        done = subprocess.run(
            [python, "-m", "pytest", *options, "-m", "not nightly", *files],
            cwd=tree, capture_output=True, text=True,
            timeout=MOST_SECONDS, env=os.environ | {"OMP_NUM_THREADS": "1"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no end within {MOST_SECONDS} s: {files[0]}, ..."
    if done.returncode == 0:
        return None
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return failed[0].partition(" - ")[0] if failed else done.stdout[-300:] + done.stderr[-300:]


def seconds_of(report: Path) -> dict[str, float]:
    """Return the seconds of each test file from a JUnit report; 0 for a missing file."""
    found: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("file") or case.attrib["classname"].replace(".", "/") + ".py"
        found[file] += float(case.attrib["time"])
    return found


def lines_of(path: Path) -> list[str]:
    """Return the lines of a file; empty if the file does not exist."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


if __name__ == "__main__":
    main()
