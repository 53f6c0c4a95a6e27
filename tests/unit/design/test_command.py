"""A search that is written to a file, from Python and by `carbon design`."""

import hashlib
import json
from functools import partial

import pyarrow.parquet as pq
import pytest
from Bio.Seq import Seq

import carbon
from carbon.cli import main
from carbon.design.job import changed_rules
from carbon.design.rules import Rules
from carbon.errors import UserError
from carbon.genome import read_sequences
from carbon.genome.sequences import read_records
from carbon.inference import Constraints
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("design")
    save_model(network, folder / "model")
    write_fasta(folder / "start.fa", {"one": "ATGAAAGCTGAATTCGGTTAA"})
    return folder


def command(folder, *words):
    return main(
        ["design", "--model", str(folder / "model"), "--calls", "48", "--batch", "16",
         *map(str, words)]
    )  # fmt: skip


GC = ["--function", "python:some_functions:gc"]


def gc(sequences):
    return [(s.count("G") + s.count("C")) / len(s) for s in sequences]


def test_formats_agree_and_headers_tell_where_it_comes_from(folder, functions):
    def at(sequences):
        return [1 - value for value in gc(sequences)]

    write_fasta(functions / "records.fa", {"r1": random_bases(500, 1)})
    model = carbon.load(folder / "model")
    outputs = ["o.fa", "o.tsv", "o.json", "o.parquet"]
    carbon.design.run(
        model, [gc, at], length_bp=30, calls=32, num_designs=5, records="records.fa", output=outputs
    )
    rows = pq.read_table("o.parquet").to_pylist()
    assert json.loads((functions / "o.json").read_text())["rows"] == rows and len(rows) == 5
    records = list(read_records(functions / "o.fa"))
    assert [(r.name, r.bases) for r in records] == [(r["name"], r["bases"]) for r in rows]
    first = dict(word.split("=", 1) for word in records[0].description.split())
    assert first["strategy"] == "beam" and first["seed"] == "0"
    weights = (folder / "model" / "model.safetensors").read_bytes()
    assert first["weights_file_sha256"] == hashlib.sha256(weights).hexdigest()
    assert (first["length_bp"], first["initial_temperature"]) == ("30", "1.2")
    assert first["functions"] == "gc=callable:gc,at=callable:at"
    assert float(first["gc"]) == pytest.approx(rows[0]["gc"]) and "carbon" in first
    settings, header, *_ = (functions / "o.tsv").read_text().splitlines()
    assert json.loads(settings[2:])["goals"] == "maximize,maximize"
    assert header.split("\t") == list(rows[0])
    assert not list(functions.glob(".o*"))


def test_the_rules_that_were_given_are_told():
    rules = Rules(
        constraints=Constraints(protein="MKA", gc=(0.3, 0.6)), sites=("EcoRI",), most_run_bp=4
    )
    given = {"protein": "MKA", "gc": "0.3,0.6", "sites": "EcoRI", "most_run_bp": "4"}
    assert changed_rules(rules) == given
    assert changed_rules(Rules()) == {}


def test_a_search_goes_on_where_a_function_failed(folder, functions, capsys):
    """A callable that fails at its third batch loses nothing; the table is that of the command."""
    is_well, asked = False, []

    def gc(sequences):
        if len(asked) == 2 and not is_well:
            raise RuntimeError("not today")
        asked.append(list(sequences))
        return [(s.count("G") + s.count("C")) / len(s) for s in sequences]

    model = carbon.load(folder / "model")
    search = partial(carbon.design.run, model, [gc], length_bp=30, calls=48, num_designs=48)
    with pytest.raises(UserError, match=r"function 'gc': design_\d+: it raised Runtime"):
        search(output="o.tsv")
    assert not (functions / "o.tsv").exists() and "--resume" in capsys.readouterr().err
    with pytest.raises(UserError, match="--resume"):
        search(output="o.tsv")
    with pytest.raises(UserError, match="the earlier run differs in: seed"):
        search(output="o.tsv", resume=True, seed=9)
    is_well = True
    designs = search(output="o.tsv", resume=True, timeout_seconds=99)
    measured = [bases for batch in asked for bases in batch]
    assert len(measured) == len(set(measured)) == 48
    assert designs == search()

    assert command(folder, *GC, "--length", 30, "-n", 48, "--output", "command.tsv") == 0
    summary = json.loads(capsys.readouterr().out)
    assert (summary["calls"], summary["designs"]) == (48, len(designs))
    assert "start_keeps_rules" not in summary  # without --start
    settings, *rows = (functions / "o.tsv").read_text().splitlines()
    assert json.loads(settings[2:])["functions"] == "gc=callable:gc"
    assert rows == (functions / "command.tsv").read_text().splitlines()[1:]
    assert not list(functions.glob(".o*"))


def test_the_protein_of_a_start(folder, functions, capsys):
    words = ["--start", folder / "start.fa", "--protein", "--sites", "EcoRI", "--calls", 16]
    assert command(folder, *GC, *words, "-n", 16, "--output", "o.fa") == 0
    assert json.loads(capsys.readouterr().out)["start_keeps_rules"] is False
    designs = [bases for _, bases in read_sequences(functions / "o.fa")]
    assert {str(Seq(bases).translate()) for bases in designs} == {"MKAEFG*"}
    assert len(designs) > 5 and not any("GAATTC" in bases for bases in designs)
