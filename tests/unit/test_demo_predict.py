"""The demo's predictions of models that learned labels."""

import contextlib
import io
import json
import shlex
import urllib.parse
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from carbon.adapt.config import WayConfig
from carbon.adapt.loading import load_adapted, write_adapted
from carbon.cli import main
from carbon.errors import UserError
from demo.fields import checked_values
from demo.panels.predict import Predict
from tests.helpers.adapt import BASES, BINARY, NUMBERS, adapted_of
from tests.helpers.demo import make_lab
from tests.helpers.files import random_bases

QUESTIONS = {"promoter": BINARY, "numbers": NUMBERS, "genes": BASES}


@pytest.fixture(scope="module")
def lab(tmp_path_factory, model):
    lab = make_lab(tmp_path_factory.mktemp("lab"), model)
    for name, question in QUESTIONS.items():
        way = WayConfig(name="full", dropout=0.0)
        adapted, opened = adapted_of(lab.runs / "model", question, way, seed=len(name))
        folder = lab.runs / "adapted" / name
        folder.mkdir(parents=True)
        write_adapted(folder, adapted.network, opened, adapted.manifest)
    return lab


@pytest.fixture
def panel(lab):
    return Predict(lab)


def ask(panel, **given):
    values = checked_values(panel.fields, given)
    *_, result = panel.answer(values)
    json.dumps(result, allow_nan=False)
    return values, result


def download_of(panel, values, result, name):
    markup = panel.show(values, result)["tables"]
    start = markup.index("data:", markup.index(f'download="{name}"'))
    return urllib.parse.unquote(markup[start : markup.index('"', start)].split(",", 1)[1])


def variant_of(lab, at=400):
    base = lab.genome.reference.fetch(lab.genome.place(f"c1:{at}-{at}", 0, 10))
    return f"c1:{at} {base}>{'A' if base != 'A' else 'C'}"


def test_folders_are_offered_the_newest_first(panel):
    newest, *names = panel.fields[0].choices
    assert newest == "newest" and names[0] == "adapted/genes"
    assert set(names) == {f"adapted/{name}" for name in QUESTIONS}


def test_it_opens_with_pieces_of_the_genome(panel, lab):
    _, result = ask(panel)
    assert result["names"] == ["c1:111-350(+)", "c1:1001-1240(+)"]  # coding, and behind the gene
    assert result["sequences"][0] == lab.genome.reference.fetch(
        lab.genome.place("c1:111-350", 0, 400)
    )


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("strands", ["as learned", "forward"])
def test_predictions_are_those_of_the_folder(panel, lab, name, strands):
    text = f">one\n{random_bases(40)}\n>two more\n{random_bases(61, 1)}\n"
    values, result = ask(panel, model=f"adapted/{name}", sequences=text, strands=strands)
    given = None if strands == "as learned" else strands
    expected = load_adapted(lab.runs / "adapted" / name).predict(
        [random_bases(40), random_bases(61, 1)], strands=given
    )
    for ours, other in zip(result["predictions"], expected, strict=True):
        np.testing.assert_allclose(np.array(ours, dtype=float), other, atol=1e-5)
    figure = panel.show(values, result)["figure"]
    assert len(figure["data"]) == len(QUESTIONS[name].output_names)
    length = 40 if name == "genes" else 2
    assert all(len(trace["y"]) == length for trace in figure["data"])


@pytest.mark.parametrize("name", QUESTIONS)
def test_python_and_command_give_the_same(panel, lab, tmp_path, monkeypatch, name):
    given = {} if name == "genes" else {"variant": variant_of(lab), "window_bp": 60}
    values, result = ask(
        panel, model=f"adapted/{name}", sequences=f"{random_bases(40)}\n{random_bases(50)}", **given
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "sequences.fa").write_text(download_of(panel, values, result, "sequences.fa"))
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(panel.python(values), {})
    lines = [line.split() for line in out.getvalue().splitlines()]
    for line, found in zip(lines[:2], result["predictions"], strict=True):
        np.testing.assert_allclose([float(x) for x in line[1:]], np.ravel(found), atol=1e-5)

    commands = [line for line in panel.command(values).splitlines() if line.startswith("carbon")]
    shown = pd.read_csv(
        io.StringIO(download_of(panel, values, result, "predictions.tsv")), sep="\t"
    )
    assert main(shlex.split(commands[0])[1:]) == 0
    table = pd.read_csv("predictions.tsv", sep="\t", comment="#")
    assert list(table.columns) == list(shown.columns) and len(table) == len(shown)
    numbers = [column for column in table if column.startswith("predicted")]
    np.testing.assert_allclose(table[numbers], shown[numbers], atol=1e-4)
    if given:
        contig, change = given["variant"].split(":")
        position, _, alleles = change.partition(" ")
        ref, alt = alleles.split(">")
        (tmp_path / "variant.vcf").write_text(
            "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
            f"{contig}\t{position}\t.\t{ref}\t{alt}\t.\t.\t.\n"
        )
        assert main(shlex.split(commands[1])[1:]) == 0
        row = pd.read_csv("variant.tsv", sep="\t", comment="#").iloc[0]
        compared = result["variant"]
        for n, output in enumerate(result["outputs"]):
            for side, key in (("alt", ""), ("ref", "_ref"), ("delta", "_delta")):
                assert compared[side][n] == pytest.approx(row[f"predicted_{output}{key}"], abs=1e-4)


def test_hostile_names_are_shown(panel):
    hostile = "<img/src=x/onerror=alert(1)>"
    values, result = ask(panel, model="adapted/promoter", sequences=f">{hostile}\nACGTACGT")
    shown = panel.show(values, result)
    assert hostile not in json.dumps(shown) and "&lt;img" in shown["tables"]


def test_sequences_without_a_known_base_have_no_prediction(panel):
    values, result = ask(panel, model="adapted/promoter", sequences="NNNNNNN\nACGTAC")
    assert result["predictions"][0] == [None] and result["predictions"][1] != [None]
    assert panel.show(values, result)["tables"]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"sequences": ""}, "no sequence is given"),
        ({"sequences": "ACGT\nMKLV"}, "not a DNA letter"),
        ({"sequences": "\n".join(["ACGT"] * 51)}, "51 sequences; give 50"),
        ({"sequences": "A" * 5000}, "sequence_1: has 5000 bp"),
        ({"variant": "c1:10 A>C"}, "around the variant: 0; give 2 to"),
        ({"variant": "c9:10 A>C", "window_bp": 60}, "no contig 'c9'"),
        ({"variant": "c1:400 ACGTTGCATG>C", "window_bp": 60}, "ref mismatch"),
        ({"variant": "c1", "window_bp": 60}, "c1"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(panel, lab, given, message):
    with pytest.raises(UserError, match=message) as caught:
        ask(panel, model="adapted/promoter", **given)
    assert str(lab.runs) not in str(caught.value)


def test_a_variant_of_a_label_of_every_base(panel, lab):
    with pytest.raises(UserError, match="labels every base"):
        ask(panel, model="adapted/genes", variant=variant_of(lab), window_bp=60)


def test_a_long_allele(panel, lab):
    variant = variant_of(lab) + "A" * 40
    with pytest.raises(UserError, match="longer than half"):
        ask(panel, model="adapted/promoter", variant=variant, window_bp=60)


def test_a_base_model_that_is_another_is_told_without_folders(lab, tmp_path, model):
    other = make_lab(tmp_path, model)
    adapted, opened = adapted_of(other.runs / "model", BINARY, WayConfig(name="lora", dropout=0.0))
    folder = other.runs / "mine"
    folder.mkdir()
    manifest = replace(adapted.manifest, base_sha256="0" * 64)
    write_adapted(folder, adapted.network, opened, manifest)
    with pytest.raises(UserError, match="other weights") as caught:
        ask(Predict(other))
    assert str(tmp_path) not in str(caught.value)


def test_no_folder_at_all(tmp_path, model):
    with pytest.raises(UserError, match="carbon adapt --config"):
        ask(Predict(make_lab(tmp_path, model)))
