"""The demo's page of tokens."""

import contextlib
import io
import json
import shlex

import numpy as np
import pytest

from carbon.cli import main
from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.genome.opened import Genome
from carbon.tokenizer import HYBRID, NATIVE, encode
from carbon.tokenizer.readings import fasta_of_ways
from demo.fields import checked_values
from demo.lab import Lab
from demo.panels.tokenizer import Tokenizer
from tests.helpers.files import place_gene, write_fasta


@pytest.fixture
def panel(model, tmp_path) -> Tokenizer:
    fasta = write_fasta(tmp_path / "genome.fa", {"c1": place_gene()[0]})
    return Tokenizer(Lab(model, "MODEL", Genome.open(fasta, None), tmp_path))


def ask(panel, **given):
    values = checked_values(panel.fields, given)
    *_, result = panel.answer(values)
    json.dumps(result)
    return values, result


def ids(result, name, column):
    (reading,) = [r for r in result["readings"] if r["name"] == name]
    return [token[column] for token in reading["tokens"]]


def run_python(program):
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(program, {})
    return out.getvalue().splitlines()


def test_ids_mask_and_places(panel):
    # ACGTAC is 0 2 3 1 0 2 in digits: 2*256 + 3*64 + 16 + 2 = 722.
    _, result = ask(panel, text="acgtac gtnac", shift="1")
    tokens = result["readings"][0]["tokens"]
    assert [t["native_id"] for t in tokens] == [2, 722 + 128, 1]
    assert [t["hybrid_id"] for t in tokens] == [151_669, 722 + 151_672, 151_671]
    assert [t["known"] for t in tokens] == ["", "111111", "110110"]
    assert [t["span"] for t in tokens] == [None, [1, 6], [7, 11]]
    assert [t["text"] for t in tokens] == ["<dna>", "acgtac", "gtnac"]


@pytest.mark.parametrize("shift", [0, 2, 5])
def test_readings_are_those_of_the_library(panel, shift):
    text = "ATGGCCAAGTTTNCCGGATTACAGRTTGA"
    _, result = ask(panel, text=text, shift=str(shift))
    names = ["frame 0"] + [f"frame {shift}"] * bool(shift) + ["reverse complement"]
    assert [r["name"] for r in result["readings"]] == names
    for name, bases in (
        (f"frame {shift}", text[shift:]),
        ("reverse complement", reverse_complement(text)),
    ):
        for column, vocabulary in (("native_id", NATIVE), ("hybrid_id", HYBRID)):
            assert ids(result, name, column) == encode(bases, vocabulary).ids.tolist()


def test_python_prints_the_ids(panel):
    values, result = ask(panel, text="ACGTNACGTACGT", shift="3")
    printed = run_python(panel.python(values))
    expected = [
        ids(result, name, column)
        for name in ("frame 0", "frame 3", "reverse complement")
        for column in ("native_id", "hybrid_id")
    ]
    assert [json.loads(line.split("]")[0] + "]") for line in printed] == expected


def test_command_prints_the_ids(panel, tmp_path, monkeypatch, capsys):
    values, result = ask(panel, text="ACGTNACGTACGTR", shift="4")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sequence.fa").write_text(fasta_of_ways(result["bases"], 4))
    comment, *commands = panel.command(values).splitlines()
    assert comment.startswith("# sequence.fa")
    for line, column in zip(commands, ("native_id", "hybrid_id"), strict=True):
        assert main(shlex.split(line)[1:]) == 0
        rows = [row.split("\t") for row in capsys.readouterr().out.splitlines()[1:]]
        found = {row[0].replace("_", " "): np.array(row[3].split(), int).tolist() for row in rows}
        assert found == {r["name"]: ids(result, r["name"], column) for r in result["readings"]}


def test_text_with_tags(panel):
    text = "<fungi_species><dna>CCCCCCTATAAA</dna> and CCCCCC"
    values, result = ask(panel, text=text)
    native = ids(result, "as written, native", "native_id")
    assert native[:5] == [NATIVE.tag_ids(("<fungi_species>",))[0], 2, 128 + 2730, 128 + 1088, 3]
    assert ids(result, "as written, hybrid", "hybrid_id") == [151_669, 154_402, 152_760, 151_670]
    assert "Qwen3" in result["missing"] and "Qwen3" in panel.show(values, result)["tokens"]
    assert result["bases"] == "CCCCCCTATAAA"
    printed = run_python(panel.python(values))
    assert json.loads(printed[0]) == native
    assert json.loads(printed[1]) == ids(result, "as written, hybrid", "hybrid_id")


def test_text_without_dna_has_no_frames(panel):
    values, result = ask(panel, text="<dna></dna>")
    assert result["bases"] == "" and len(result["readings"]) == 2
    assert panel.show(values, result)["frames"] == ""


@pytest.mark.parametrize(
    ("text", "message"),
    [("", "nothing is given"), ("ACGTZ", "'Z' is not a DNA letter"), ("A", "passes over all 1")],
)
def test_what_makes_no_sense(panel, text, message):
    with pytest.raises(UserError, match=message):
        ask(panel, text=text)


def test_a_long_text_is_refused(panel):
    with pytest.raises(UserError, match="1,200 at most"):
        ask(panel, text="A" * 1201)


def test_markup_is_shown(panel):
    text = "<img src=x onerror=alert(1)><dna><b>AC&GT</b></dna>"
    values, result = ask(panel, text=text)
    shown = "".join(panel.show(values, result).values())
    assert "<img" not in shown and "<b>" not in shown and "&lt;" in shown


def test_examples_are_answered(panel):
    for example in panel.examples():
        values, result = ask(panel, **example.values)
        assert panel.show(values, result)["tokens"]
