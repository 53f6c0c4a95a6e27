"""All panels: the answer, the program and the commands agree; examples, links and wrong questions.

What the numbers of a panel are held against lies in the files that are named after it.
"""

import ast
import json
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pandas as pd
import pytest

from carbon.errors import TypedError, UserError
from carbon.genome import Interval
from carbon.genome.genome import Genome
from carbon.inference import load
from demo.fields import checked_values
from demo.lab import Lab
from demo.models import AllowedModels
from demo.panels import PANELS
from demo.panels.gene import CONSTRAINT, MAP, TRACK
from tests.helpers.demo import (
    GENE,
    allow_other,
    answered,
    cover_little,
    downloads_of,
    four_alleles,
    make_full_lab,
    panel_of,
    printed_by,
    run_commands,
    visited,
    write_genome,
    write_predictor,
)
from tests.helpers.files import random_bases
from tests.helpers.finetune import BASES, NUMBERS
from tests.helpers.run_lines import step_line, write_run

HOSTILE = "<img/src=x/onerror=alert(1)>"
NAMES = [panel.name for panel in PANELS]


@pytest.fixture(scope="module")
def lab(model, tmp_path_factory):
    lab = make_full_lab(tmp_path_factory.mktemp("lab"), model)
    for name, question in (("fine-tuned/genes", BASES), ("fine-tuned/numbers", NUMBERS)):
        write_predictor(lab, name, question)
    allow_other(lab)
    return lab


@pytest.fixture
def uploads(lab, tmp_path):
    """Four alleles, and the genome of the lab as files of a visitor."""
    four_alleles(lab, tmp_path / "mine.vcf")
    write_genome(tmp_path)
    bases = lab.genome.reference.fetch(Interval("c1", 0, 1400))
    rows = (f"{at + 1:>9} {bases[at : at + 60]}\n" for at in range(0, 1400, 60))
    (tmp_path / "mine.gb").write_text(
        f"LOCUS       c1       1400 bp    DNA     linear   UNK 01-JAN-2020\n"
        f"ACCESSION   c1\nFEATURES             Location/Qualifiers\n"
        f'     gene            101..1000\n                     /gene="{GENE}"\n'
        f"ORIGIN\n{''.join(rows)}//\n"
    )
    return tmp_path


def table_of(name):
    return pd.read_csv(name, sep="\t", comment="#")


def agree_start(result, printed, told):
    assert printed[0] == result["best_kmer"]
    assert ast.literal_eval(printed[1]) == result["marginals"]
    assert told[0].splitlines()[2].split("\t")[0] == result["best_kmer"]


def agree_gene(result, printed, told):
    rows = [line.split() for line in printed]
    if "dependency" in result:
        for found in (np.array(rows, float), np.load("map.npz")["dependency"]):
            np.testing.assert_allclose(found, result["dependency"], atol=2e-3)
        return
    assert "".join(row[0] for row in rows) == result["bases"]
    expected = np.array(result["log_probabilities"])
    np.testing.assert_allclose([[float(x) for x in row[1:]] for row in rows], expected, atol=2e-3)
    np.testing.assert_allclose(table_of("scan.tsv")[list("ACGT")], expected, atol=2e-3)


def agree_write(result, printed, told):
    if "candidates" in result:
        best, table = result["candidates"][0]["value"], table_of("designs.tsv")
        assert float(printed[0].split()[1].rstrip("}")) == best
        assert table.iloc[0, 1] == pytest.approx(best)
        return
    assert printed == [result["bases"]]
    assert "".join(told[0].splitlines()[1:]) == result["bases"]


def agree_inside(result, printed, told):
    forward = result["readings"][0]["tokens"]
    for name, line in zip(("native id", "hybrid id"), printed, strict=False):
        assert json.loads(line)[-11:] == [token[name] for token in forward][-11:]
    assert printed[2:12] == [f"{top['kmer']} {top['probability']}" for top in result["top"]]
    assert json.loads(printed[12]) == result["conditional_marginals"]
    for line, loss in zip(printed[13:], result["losses"], strict=True):
        kmer, *nats = line.split()
        assert kmer == loss["kmer"]
        expected = [loss["cross_entropy_nats"], loss["fns_nats"]]
        assert [float(x) for x in nats] == pytest.approx(expected, rel=1e-6)
    rows = [line.split("\t") for line in told[1].splitlines()[2:]]
    assert [row[0] for row in rows[:10]] == [top["kmer"] for top in result["top"]]


def agree_variant(result, printed, told):
    """Headline, side by side, heat map and strip have one delta for one variant."""
    whole = [line for line in printed if len(line.split()) == 5]  # others are of the VCF
    lines = [line.rsplit(maxsplit=3) for line in whole]
    printed_deltas = {text: float(delta) for text, delta, *_ in lines if delta != "None"}
    alleles = {row["variant"]: row["delta"] for row in result["alleles"]}
    assert result["delta"] == alleles[result["variant"]]
    for text, delta in alleles.items():
        assert printed_deltas[text] == pytest.approx(delta, abs=1e-6)
    contig, _, span = result["window"].rpartition(":")
    first = int(span.split("-")[0])
    for at, (ref, row) in enumerate(zip(result["bases"], result["deltas"], strict=True), first):
        for alt, delta in zip("ACGT", row, strict=True):
            if ref in "ACGT" and alt != ref:
                assert printed_deltas[f"{contig}:{at} {ref}>{alt}"] == pytest.approx(
                    delta, abs=1e-6
                )
    scored = table_of("side_by_side.tsv")
    assert sorted(scored["delta"]) == pytest.approx(sorted(alleles.values()), abs=1e-5)
    if "vcf" in result:
        rows = table_of("variants.tsv").replace(".", np.nan)
        reasons = [r if isinstance(r, str) else None for r in rows["reason"]]
        assert reasons == [row["reason"] for row in result["vcf"]]
        expected = np.array([row["delta"] for row in result["vcf"]], float)
        np.testing.assert_allclose(rows["delta"].astype(float), expected, atol=1e-5)
        assert result["variant"].startswith("c1:300 ")  # the first of the VCF


def agree_compare(result, printed, told):
    for side, line in zip(("this", "other"), printed, strict=True):
        total, mean = map(float, line.split())
        (row,) = table_of(f"{side}.tsv").to_dict("records")
        assert result[side]["nats_per_base"] == pytest.approx(mean)
        assert result[side]["log_likelihood"] == pytest.approx(total)
        assert row["log_likelihood"] == pytest.approx(total, rel=1e-5)
        assert sum(result[side]["log_p"]) == pytest.approx(total, rel=1e-5)


def agree_predict(result, printed, told):
    lines = [line.split() for line in printed]
    sequences = len(result["predictions"])
    for line, found in zip(lines[:sequences], result["predictions"], strict=True):
        np.testing.assert_allclose([float(x) for x in line[1:]], np.ravel(found), atol=1e-5)
    shown, table = pd.read_csv("shown.tsv", sep="\t"), table_of("predictions.tsv")
    assert list(table.columns) == list(shown.columns) and len(table) == len(shown)
    if "predicted" in table:
        assert table["predicted"].tolist() == shown["predicted"].tolist()
    numbers = [column for column in table if column.startswith("predicted_")]
    np.testing.assert_allclose(table[numbers], shown[numbers], atol=1e-4)
    if compared := result.get("variant"):
        (row,) = table_of("variant.tsv").to_dict("records")
        for n, output in enumerate(result["outputs"]):
            for side, key in (("alt", ""), ("ref", "_ref"), ("delta", "_delta")):
                assert compared[side][n] == pytest.approx(row[f"predicted_{output}{key}"], abs=1e-4)


PASTED = f"{random_bases(40)}\n{random_bases(50)}"
PLACE = {"input": "c1:300-320", "phases": ["0", "3"]}
FORWARD = {"strands": "forward", "window_bp": 96}
RULES = {"forbid": "GAATTC TTTT", "require": "GGG", "gc_least": 0.3, "gc_most": 0.7}
KMER = {"input": "ACGTTGCATTAGCATGAC" * 4 + "TTGACA", "fixed": "G..A.."}
QUESTIONS = [
    ("start", {}),
    *(("gene", PLACE | {"view": view}) for view in (TRACK, CONSTRAINT, MAP)),
    ("variant", {"vcf": ["mine.vcf"], "map_bp": 8}),
    ("variant", FORWARD | {"input": "Y2* of abc", "alleles": "ABC:c.30del", "map_bp": 8}),
    ("write", RULES | {"input": "acgtacgta", "length_bp": 36}),
    ("write", {"mode": "base", "temperature": 0.7, "top_p": 0.9, "seed": 5, "length_bp": 36}),
    ("write", {"goal": "GC window", "calls": 16, "length_bp": 48, "input": ""}),
    ("inside", KMER),
    ("compare", {"input": GENE}),
    ("predict", {"model": "activity", "sequences": PASTED, "variant": "snv", "window_bp": 60}),
    ("predict", {"model": "fine-tuned/genes", "sequences": PASTED}),
]
OTHER_QUESTIONS = [
    ("variant", {"genome": ["mine.gb"], "vcf": ["mine.vcf"], "map_bp": 8}),
    ("variant", {"genome": ["genes.gff3", "genome.fa"], "map_bp": 8}),
    ("write", {"input": "acgtacgta", "no_stop_frame": "0", "length_bp": 60}),
    ("write", {"protein": "MSKGEEL"}),
    ("compare", {"input": random_bases(150, 2), "base_model": "other"}),
    ("predict", FORWARD | {"model": "fine-tuned/numbers", "sequences": PASTED, "variant": "snv"}),
]


@pytest.mark.parametrize(
    ("name", "given"),
    [*QUESTIONS, *(pytest.param(*each, marks=pytest.mark.nightly) for each in OTHER_QUESTIONS)],
)
def test_the_answer_the_program_and_the_commands_give_the_same(
    lab, uploads, name, given, monkeypatch, capsys
):
    monkeypatch.chdir(uploads)
    panel = panel_of(lab, name).with_model(given.get("base_model", "model"))
    if given.get("variant") == "snv":
        base = lab.genome.reference.fetch(lab.genome.place("c1:400-400", 0, 10))
        given = given | {"variant": f"c1:400 {base}>{'A' if base != 'A' else 'C'}"}
    values, result, shown = visited(panel, **given)
    saved = downloads_of(shown)
    for file, text in saved.items():
        Path(file).write_text(text)
    Path("shown.tsv").write_text(saved.get("predictions.tsv", ""))  # the command writes its own
    printed = printed_by(panel.python(values))
    told = run_commands(panel.command(values), capsys)
    globals()[f"agree_{name}"](result, printed, told)


LESS = {
    "write": {"calls": 16, "length_bp": 48},
    "gene": {"phases": ["0"]},
    "variant": {"map_bp": 6},
}


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_answered_and_links_restore_them(lab, name, monkeypatch):
    cover_little(monkeypatch)
    panel, less = panel_of(lab, name), LESS.get(name, {})
    names = [field.name for field in panel.fields if not field.more]
    assert len(set(names) - {"base_model"}) <= 3  # before the button
    for given in ({}, *(example.values for example in panel.examples())):
        values, _, shown = visited(panel, **given | less)
        assert set(shown) == {view.name for view in panel.views}
        link = urlsplit(panel.link(given | less))
        restored = dict(parse_qsl(link.query, keep_blank_values=True))
        assert link.path == panel.path and checked_values(panel.fields, restored) == values


@pytest.fixture(scope="module")
def hostile(model, tmp_path_factory):
    """A genome, a gene, a training and a stage whose names are markup."""
    folder = tmp_path_factory.mktemp("hostile")
    lab = make_full_lab(folder, model)
    fasta, gff = write_genome(folder, HOSTILE)
    gff.write_text(gff.read_text().replace(f"Name={GENE}", f"Name={HOSTILE.replace('=', '%3D')}"))
    events = [{"step": 1, "event": HOSTILE, "message": HOSTILE}]
    lines = [step_line(n, HOSTILE) for n in range(1, 61)]
    write_run(lab.runs / "a_run", lines, [], events, first=HOSTILE)
    allowed = AllowedModels({"other": lab.model_name}, False, load)
    genome, known = Genome.open(fasta, gff), {HOSTILE: f"{HOSTILE}."}
    return Lab(model, lab.model_name, genome, folder, known, allowed=allowed)


def without_payload(view):
    """Return a figure without what its clicks ask for, which nobody sees."""
    traces = view.get("data", ()) if isinstance(view, dict) else ()
    return view if not traces else view | {
        "data": [{key: each for key, each in trace.items() if key != "customdata"}
                 for trace in traces]
    }  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_are_shown_and_not_run(hostile, name, monkeypatch):
    cover_little(monkeypatch)
    named = "".join(f">{HOSTILE}{n} label={HOSTILE}\n{random_bases(90, n)}\n" for n in range(3))
    given = {"sequences": named} if name == "predict" else LESS.get(name, {})
    _, _, shown = visited(panel_of(hostile, name), **given)
    seen = str([without_payload(view) for view in shown.values()])
    assert "<img" not in seen and "<b>AC" not in seen
    if name != "write":  # which show no name
        assert "&lt;img" in seen


WRONG = [
    ("gene", {"view": "map"}, "there is no"),
    ("write", {"input": "ATGEFILQPA"}, "protein"),
    ("write", {"protein": "ATGGCCAAGATG"}, "looks like DNA"),
    ("write", {"protein": "MSK1"}, "protein"),
    ("write", {"forbid": "A C G T"}, "constraints|cannot"),
    ("write", {"gc_least": 0.9, "gc_most": 0.1}, "ascending"),
    ("write", {"goal": "python:os:system"}, "there is no"),
    ("write", {"goal": "finetuned: nothing"}, "there is no"),
    ("write", {"goal": "GC window", "length_bp": 301}, "at most 300"),
    ("inside", {"kmer": "<b>x.."}, "six letters"),
    ("inside", {"input": "ACGTACGTN"}, "last six bases"),
    ("inside", {"run": "../a_run"}, "there is no"),
    ("start", {"input": "nowhere"}, "'nowhere'"),
    ("variant", {"input": "c1:0 A>T"}, "from 1"),
    ("variant", {"input": "c1:2000 A>T"}, "past the contig"),
    ("variant", {"input": "c1:114 A>T"}, "REF is A"),
    ("variant", {"alleles": "ABC"}, "'ABC' is not a variant"),
    ("variant", {"alleles": "c1:114 T>A\n" * 13}, "12 at most"),
    ("compare", {"input": "N" * 40}, "no base"),
    ("compare", {"other_model": "elsewhere"}, "'elsewhere'"),
    ("predict", {"sequences": ""}, "no sequence"),
    ("predict", {"sequences": "ACGT\nMKLV"}, "not a DNA letter"),
    ("predict", {"sequences": "\n".join(["ACGT"] * 51)}, "51 sequences"),
    ("predict", {"sequences": "A" * 5000}, "5000 bp"),
    ("predict", {"variant": "c1:10 A>C"}, "around the variant"),
    ("predict", {"variant": "c1:400 ACGTTGCATG>C", "window_bp": 60}, "ref mismatch"),
    ("predict", {"variant": f"c1:114 T>{'A' * 41}", "window_bp": 60}, "longer than half"),
    (
        "predict",
        {"model": "fine-tuned/genes", "variant": "c1:114 T>A", "window_bp": 60},
        "every base",
    ),
]


PROTEIN = "MKTAYIAKQRQISFVKSHFSRQ"  # M, K, T, A and Y are letters of DNA
LETTERS = [
    ("gene", "input", f">a\nACGT\n{PROTEIN}"),
    ("write", "forbid", f"ACGT {PROTEIN}"),
    ("write", "require", PROTEIN),
    ("inside", "kmer", "AAAIQQ"),
    ("variant", "input", PROTEIN),
    ("predict", "sequences", f">a\nAC\n>b\n{PROTEIN}"),
]


@pytest.mark.parametrize(("name", "field", "text"), LETTERS)
def test_the_first_wrong_letter_is_named_and_marked(lab, name, field, text):
    model = {"model": "activity"} if name == "predict" else {}
    with pytest.raises(TypedError, match="letter") as raised:
        answered(panel_of(lab, name), {field: text} | model)
    assert raised.value.text[raised.value.at] == "I"


@pytest.mark.parametrize(("name", "given", "message"), WRONG)
def test_what_makes_no_sense_is_told_without_folders(lab, name, given, message):
    panel = panel_of(lab, name)
    if name == "predict":
        given = {"model": "activity"} | given
    with pytest.raises(UserError, match=message) as told:
        answered(panel, given)
    if name in ("predict", "write", "inside"):  # the page hides the genome's folder
        assert str(lab.runs) not in str(told.value)
