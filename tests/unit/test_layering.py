"""The house: who may import whom."""

import ast
import subprocess
import sys
import zipfile
from collections.abc import Container
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("data_pipeline", "train", "eval", "demo")
# Parts of carbon that may not know one another, or a library.
FORBIDDEN = {
    "carbon/genome": ("torch", "transformers", "carbon.tokenizer", "carbon.model", "carbon.losses",
                      "carbon.corpus", "carbon.inference"),
    "carbon/tokenizer": ("torch", "carbon.model", "carbon.losses", "carbon.corpus",
                         "carbon.inference"),
    "carbon/losses": ("carbon.model", "carbon.corpus", "carbon.inference"),
    "carbon/model": ("carbon.losses", "carbon.corpus", "carbon.inference"),
    "carbon/corpus": ("torch", "carbon.model", "carbon.losses", "carbon.inference"),
    "carbon/config.py": ("numpy", "torch", "pyarrow"),
    "carbon/objectives.py": ("numpy", "torch", "carbon.losses"),
}  # fmt: skip


def imported_modules(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
    return names


def imported_homes(path: Path, homes: Container[str]) -> set[str]:
    """Return the modules of ours that a file imports: a name's own, where the name is a module."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in homes else node.module for name in names}
    return {name for name in found if name in homes}


def offends(module: str, forbidden: str) -> bool:
    return module == forbidden or module.startswith(forbidden + ".")


def violations(folder: Path, forbidden: tuple[str, ...]) -> list[str]:
    paths = [folder] if folder.suffix == ".py" else sorted(folder.rglob("*.py"))
    assert paths, folder
    return [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in paths
        for module in sorted(imported_modules(path))
        if any(offends(module, f) for f in forbidden)
    ]


def test_carbon_imports_no_room():
    assert violations(ROOT / "carbon", (*ROOMS, "scripts", "tests")) == []


@pytest.mark.parametrize("room", [room for room in ROOMS if (ROOT / room).is_dir()])
def test_rooms_import_no_other_room(room):
    others = tuple(other for other in ROOMS if other != room)
    assert violations(ROOT / room, (*others, "scripts", "tests")) == []


@pytest.mark.parametrize("part", FORBIDDEN)
def test_parts_of_carbon_keep_apart(part):
    assert violations(ROOT / part, FORBIDDEN[part]) == []


def circle_in(imports: dict[str, set[str]]) -> list[str]:
    """Return modules that import one another in a circle, none if there is no circle."""
    while imports:
        imported = set().union(*imports.values())
        inside = {m: names & imports.keys() for m, names in imports.items() if m in imported}
        inside = {module: names for module, names in inside.items() if names}
        if inside == imports:
            return sorted(imports)
        imports = inside
    return []


def test_no_modules_import_one_another_in_a_circle():
    """Imports inside functions and for types alone count as well."""
    homes = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for room in ("carbon", *ROOMS)
        for path in (ROOT / room).rglob("*.py")
    }
    imports = {module: imported_homes(path, homes) - {module} for module, path in homes.items()}
    assert circle_in(imports) == []
    circle = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert circle_in(circle) == ["a", "b", "c"]


def test_the_walk_finds_a_violation(tmp_path):
    (tmp_path / "bad.py").write_text("def f():\n    from train.config import TrainConfig\n")
    assert imported_modules(tmp_path / "bad.py") == {"train.config"}
    assert offends("train.config", "train") and not offends("trainer", "train")


def test_the_wheel_holds_carbon_alone(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.iterdir()
    assert wheel.name.startswith("carbon_dna-")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"carbon"}
    assert "carbon/py.typed" in names and "carbon/genome/fasta.py" in names


def test_the_changelog_opens_with_the_version():
    from carbon import __version__

    headings = [x for x in (ROOT / "CHANGELOG.md").read_text().splitlines() if x.startswith("## ")]
    assert headings[0].startswith(f"## {__version__}")


def test_functions_and_files_stay_short():
    """Style: a function of more than 60 lines or a file of more than 420 is looked at again."""
    paths = [p for room in ("carbon", *ROOMS, "scripts") for p in (ROOT / room).rglob("*.py")]
    for path in paths:
        text = path.read_text()
        assert text.count("\n") <= 420, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and "parser" not in node.name:
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"
