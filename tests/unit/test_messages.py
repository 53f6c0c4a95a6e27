"""What commands say of malformed input: a line for each mistake, exit code 2, and nothing written.

`tests/golden/messages/*.toml` has a table for each case: `files` by their names, the `command`, and
the `message`, the last lines that it writes to stderr; `TMP` there stands for the folder. A case
may set variables of the `environment`. One that is refused `before_group` starts no process group.
"""

import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "golden" / "messages"
CASES = {
    f"{path.stem}.{name}": case
    for path in sorted(FOLDER.glob("*.toml"))
    for name, case in tomllib.loads(path.read_text(encoding="utf-8")).items()
}
PROGRAMS = {
    "carbon": "carbon.cli",
    "train": "train.__main__",
    "data_pipeline": "data_pipeline.__main__",
    "eval": "eval.__main__",
}


@pytest.mark.usefixtures("loaded_once")
@pytest.mark.parametrize("name", CASES)
def test_malformed_input_is_named(name, tmp_path, monkeypatch, capsys):
    case = CASES[name]
    monkeypatch.chdir(tmp_path)
    for file, text in case["files"].items():
        Path(file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).write_bytes(text.encode())
    for variable, value in case.get("environment", {}).items():
        monkeypatch.setenv(variable, value)
    if case.get("before_group"):
        monkeypatch.setattr("torch.distributed.init_process_group", None)
    program, *words = shlex.split(case["command"])
    try:
        code = import_module(PROGRAMS[program]).main(words)
    except SystemExit as end:  # as argparse ends
        code = end.code
    said = capsys.readouterr().err.splitlines()
    wanted = case["message"].splitlines()
    assert [line.replace(str(tmp_path), "TMP") for line in said[-len(wanted) :]] == wanted
    assert code == 2
    written = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    indices = {file for file in written if file.endswith((".fai", ".gzi"))}  # beside a FASTA
    assert written - indices == set(case["files"])
