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
    "carbon/box": ("numpy", "torch", "carbon.genome", "carbon.tokenizer", "carbon.model",
                   "carbon.inference"),
    "carbon/tokenizer": ("torch", "carbon.model", "carbon.losses", "carbon.corpus",
                         "carbon.inference"),
    "carbon/losses": ("carbon.model", "carbon.corpus", "carbon.inference"),
    "carbon/model": ("carbon.losses", "carbon.corpus", "carbon.inference"),
    "carbon/corpus": ("torch", "carbon.model", "carbon.losses", "carbon.inference"),
    "carbon/comparison": ("torch", "transformers", "carbon.tokenizer", "carbon.model",
                          "carbon.losses", "carbon.corpus", "carbon.inference"),
    "carbon/adapt/config.py": ("torch", "transformers", "sklearn", "pyarrow"),
    "carbon/adapt/question.py": ("transformers", "sklearn"),
    "carbon/metrics.py": ("torch", "sklearn"),
    "carbon/config.py": ("numpy", "torch", "pyarrow"),
    "carbon/options.py": ("numpy", "torch", "carbon.genome", "carbon.tokenizer", "carbon.model",
                          "carbon.losses", "carbon.corpus", "carbon.inference"),
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


# Folders and modules of a room: each may import those before it, none behind it.
LINES = {
    "train": (
        *("watch", "choices", "model_config", "compute_config", "learners_config", "config"),
        *("recipe", "start", "planning", "network", "run_folder", "learners", "loop", "launch"),
        "__main__",
    ),
    "data_pipeline": (
        *("running", "records", "sources", "recipe", "reading", "duplicates", "steps"),
        *("publishing", "build", "estimate", "inspecting", "simulation", "ncbi", "__main__"),
    ),
}


def backwards_in(room: str, imports: dict[str, set[str]]) -> list[str]:
    """Return what modules of a room import from behind them in its line."""

    def place(module: str) -> int:
        return LINES[room].index(module.split(".")[1])

    return [
        f"{module} imports {name}"
        for module, names in imports.items()
        for name in sorted(names)
        if name.startswith(f"{room}.") and place(name) > place(module)
    ]


@pytest.mark.parametrize("room", LINES)
def test_a_room_is_a_line(room):
    """Imports inside functions and for types alone count as well."""
    paths = sorted((ROOT / room).rglob("*.py"))
    imports = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts): imported_modules(path)
        for path in paths
        if path != ROOT / room / "__init__.py"
    }
    assert {module.split(".")[1] for module in imports} == set(LINES[room])
    assert backwards_in(room, imports) == []


def test_the_line_finds_what_looks_back():
    wrong = {"train.planning.planner": {"train.loop.data", "train.config", "carbon.config"}}
    assert backwards_in("train", wrong) == ["train.planning.planner imports train.loop.data"]


def test_what_is_known_before_a_run_takes_no_torch():
    """A recipe is read and planned, and `--help` is printed, without what takes seconds to load."""
    folders = ("choices", "planning")
    paths = [path for folder in folders for path in (ROOT / "train" / folder).glob("*.py")]
    modules = [f"train.{path.parent.name}.{path.stem}" for path in paths]
    code = f"""
import importlib, sys
for module in {["train.__main__", "data_pipeline.recipe", *modules]}:
    importlib.import_module(module)
from carbon.config import load_config
from train.config import TrainConfig
load_config(TrainConfig, "train/recipes/tiny.toml")
print([name for name in ("torch", "transformers", "matplotlib") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


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


def test_the_demo_stays_small():
    files = [f for kind in ("py", "css", "js") for f in (ROOT / "demo").rglob(f"*.{kind}")]
    assert sum(len(file.read_text(encoding="utf-8").splitlines()) for file in files) < 5000


def test_functions_and_files_stay_short():
    """Style: a function of more than 60 lines or a file of more than 420 is looked at again."""
    paths = [p for room in ("carbon", *ROOMS, "scripts") for p in (ROOT / room).rglob("*.py")]
    for path in paths:
        text = path.read_text()
        assert text.count("\n") <= 420, path
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef) and "parser" not in node.name:
                assert node.end_lineno - node.lineno < 60, f"{path}: {node.name}"
