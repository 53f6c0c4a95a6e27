"""`carbon design` from the shell's side."""

import json
import re
from functools import partial

import pyarrow.parquet as pq
import pytest

import carbon
from carbon.cli import main
from carbon.design.job import rules_given
from carbon.design.rules import Rules
from carbon.errors import UserError
from carbon.genome import read_sequences
from carbon.genome.sequences import read_records
from carbon.inference import Constraints
from carbon.model import LoadedModel, save_model
from carbon.tokenizer import NATIVE
from tests.helpers.files import random_bases, write_fasta


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("design")
    save_model(network, folder / "model")
    write_fasta(folder / "start.fa", {"one": "ATGAAAGCTGAATTCGGTTAA"})
    return folder


def command(folder, *words, calls=48):
    return main(
        ["design", "--model", str(folder / "model"), "--calls", str(calls), "--batch", "16",
         *map(str, words)]
    )  # fmt: skip


GC = ["--oracle", "python:some_oracles:gc"]


def test_formats_agree_and_headers_tell_where_it_comes_from(folder, functions, capsys):
    words = [*GC, "--oracle", "python:some_oracles:at", "--length", 30, "-n", 5]
    write_fasta(functions / "records.fa", {"r1": random_bases(500, 1)})
    words += ["--records", functions / "records.fa"]
    for name in ("o.fa", "o.tsv", "o.json", "o.parquet"):
        assert command(folder, *words, "--output", functions / name) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (summary["calls"], summary["designs"]) == (48, 5)
    rows = pq.read_table(functions / "o.parquet").to_pylist()
    assert json.loads((functions / "o.json").read_text())["rows"] == rows
    records = list(read_records(functions / "o.fa"))
    assert [(r.name, r.bases) for r in records] == [(r["name"], r["bases"]) for r in rows]
    first = dict(word.split("=", 1) for word in records[0].description.split())
    assert first["way"] == "beam" and first["seed"] == "0" and len(first["model_sha256"]) == 64
    assert (first["length_bp"], first["hot"], first["cold"]) == ("30", "1.2", "0.8")
    assert first["oracles"] == "gc=python:some_oracles:gc,at=python:some_oracles:at"
    assert float(first["gc"]) == pytest.approx(rows[0]["gc"]) and "carbon" in first
    settings, header, *_ = (functions / "o.tsv").read_text().splitlines()
    assert json.loads(settings[2:])["goals"] == "most,most"
    assert header.split("\t") == list(rows[0])
    assert not list(functions.glob(".o*"))


def test_the_rules_that_were_given_are_told():
    rules = Rules(
        constraints=Constraints(protein="MKA", gc=(0.3, 0.6)), sites=("EcoRI",), most_run_bp=4
    )
    given = {"protein": "MKA", "gc": "0.3,0.6", "sites": "EcoRI", "most_run_bp": "4"}
    assert rules_given(rules) == given
    assert rules_given(Rules()) == {}


def test_it_goes_on_where_an_oracle_failed(folder, functions, capsys):
    """The oracle fails at its third batch until a file is there."""
    (functions / "moody.py").write_text(
        "import os, some_oracles\n"
        "calls = 0\n"
        "def gc(sequences):\n"
        "    global calls\n"
        "    calls += 1\n"
        "    open('asked', 'a').write(f'{len(sequences)}\\n')\n"
        "    if calls > 2 and not os.path.exists('well'):\n"
        "        raise RuntimeError('not today')\n"
        "    return some_oracles.gc(sequences)\n"
    )
    words = ["--oracle", "python:moody:gc", "--length", 30, "-n", 48]
    assert command(folder, *words, "--output", "o.tsv") == 2
    message = capsys.readouterr().err
    assert re.search(r"oracle 'gc': design_\d+: it raised RuntimeError: not today; mend", message)
    before = [int(line) for line in (functions / "asked").read_text().split()][:2]
    assert "go on with --resume" in message and not (functions / "o.tsv").exists()
    assert command(folder, *words, "--output", "o.tsv") == 2
    assert "an earlier run was stopped; go on with --resume" in capsys.readouterr().err
    assert command(folder, *words, "--output", "o.tsv", "--resume", "--seed", 9) == 2
    assert "the earlier run differs in: seed" in capsys.readouterr().err
    (functions / "well").touch()
    (functions / "asked").unlink()
    assert command(folder, *words, "--output", "o.tsv", "--resume", "--timeout", 99) == 0
    after = [int(line) for line in (functions / "asked").read_text().split()]
    assert sum(before + after) == 48
    assert command(folder, *words, "--output", "again.tsv") == 0
    assert (functions / "o.tsv").read_bytes() == (functions / "again.tsv").read_bytes()


def test_from_python_as_by_the_command(folder, functions):
    """A callable that fails at its third batch loses nothing; the table is that of the command."""
    is_well, asked = False, []

    def gc(sequences):
        if len(asked) == 2 and not is_well:
            raise RuntimeError("not today")
        asked.append(list(sequences))
        return [(s.count("G") + s.count("C")) / len(s) for s in sequences]

    model = carbon.load(folder / "model")
    search = partial(model.design, [gc], length_bp=30, calls=48, num_designs=48)
    with pytest.raises(UserError, match=r"oracle 'gc': design_\d+: it raised Runtime"):
        search(output="o.tsv")
    with pytest.raises(UserError, match="an earlier run was stopped"):
        search(output="o.tsv")
    with pytest.raises(UserError, match="the earlier run differs in: seed"):
        search(output="o.tsv", resume=True, seed=9)
    is_well = True
    designs = search(output="o.tsv", resume=True)
    measured = [bases for batch in asked for bases in batch]
    assert len(measured) == len(set(measured)) == 48
    assert designs == search()
    assert command(folder, *GC, "--length", 30, "-n", 48, "--output", "command.tsv") == 0
    settings, *rows = (functions / "o.tsv").read_text().splitlines()
    assert json.loads(settings[2:])["oracles"] == "gc=callable:gc"
    assert rows == (functions / "command.tsv").read_text().splitlines()[1:]
    assert not list(functions.glob(".o*"))


def test_a_model_that_lies_nowhere_writes_nothing(functions, network):
    model = carbon.Carbon(LoadedModel(network, NATIVE))
    with pytest.raises(UserError, match="the model was not loaded from a folder"):
        model.design([len], length_bp=30, output="o.tsv")
    assert not (functions / "o.tsv").exists()


def test_the_protein_of_a_start(folder, functions, capsys):
    words = [*GC, "--start", folder / "start.fa", "--protein", "--sites", "EcoRI", "-n", 48]
    assert command(folder, *words, "--output", "o.fa") == 0
    assert json.loads(capsys.readouterr().out)["start_keeps_rules"] is False
    from Bio.Seq import Seq

    designs = [bases for _, bases in read_sequences(functions / "o.fa")]
    assert {str(Seq(bases).translate()) for bases in designs} == {"MKAEFG*"}
    assert len(designs) > 10 and not any("GAATTC" in bases for bases in designs)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*GC, "--output", "o.txt", "--length", 9], "end the output with one of .fa"),
        ([*GC, "--output", "o.fa"], "no length: give one"),
        ([*GC, "--output", "o.fa", "--protein"], "--protein: give its letters, or a --start"),
        ([*GC, "--output", "o.fa", "--length", 9, "--goal", "up"], "goal 'up': give most"),
        (["--oracle", "x", "--output", "o.fa", "--length", 9], "oracle 'x': give one of"),
        ([*GC, "--output", "o.fa", "--start", "absent.fa"], "absent.fa: no such file"),
        ([*GC, "--output", "no/o.fa", "--length", 9], "the folder no does not exist"),
        ([*GC, "--output", "o.fa", "--length", 9, "--sites", "Eco"], "site 'Eco'"),
    ],
)
def test_mistakes_leave_nothing_behind(folder, functions, capsys, words, message):
    before = sorted(functions.iterdir())
    assert command(folder, *words) == 2
    assert message in capsys.readouterr().err
    assert [path for path in sorted(functions.iterdir()) if path.name != "__pycache__"] == before
