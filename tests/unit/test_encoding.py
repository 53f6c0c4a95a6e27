"""Text files are UTF-8 whatever the locale."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDERS = ("carbon", "data_pipeline", "train", "eval", "demo", "scripts", "bench")
# Of each function that may open text: where its mode stands, if it has one.
OPENS = {"open": 0, "read_text": None, "write_text": None, "fdopen": 1, "TextIOWrapper": None}
BYTES_OR_OTHERS = ("fsspec", "pyBigWig", "Genome", "os", "BGZFile")


def modes_of(call: ast.Call, place: int | None) -> str:
    given = call.args[place : place + 1] if place is not None else []
    given += [word.value for word in call.keywords if word.arg == "mode"]
    return "".join(ast.unparse(each) for each in given)


def without_encoding(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        name = getattr(called, "attr", getattr(called, "id", ""))
        of = ast.unparse(called.value) if isinstance(called, ast.Attribute) else ""
        is_plain_open = isinstance(called, ast.Name) and name == "open"
        place = 1 if is_plain_open or of == "gzip" else OPENS.get(name)
        if name not in OPENS or (name == "open" and of.startswith(BYTES_OR_OTHERS)):
            continue
        mode = modes_of(node, place)
        if "b" in mode or (of == "gzip" and "t" not in mode):
            continue
        if not any(word.arg == "encoding" for word in node.keywords):
            found.append(f"{path.relative_to(ROOT)}:{node.lineno} {ast.unparse(node)}")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_every_text_file_is_opened_as_utf_8(folder):
    paths = sorted((ROOT / folder).rglob("*.py"))
    assert paths and [line for path in paths for line in without_encoding(path)] == []
