"""All panels: the answer, the program and the commands agree; examples, links and wrong questions.

What the numbers of a panel are held against lies in the files that are named after it.
"""

import ast
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import LlamaForCausalLM

from carbon.errors import TypedError, UserError
from carbon.genome import Interval
from carbon.genome.genome import Genome
from carbon.inference import load
from carbon.model import save_model
from demo.allowed_models import AllowedModels
from demo.fields import checked_values
from demo.lab import Lab
from demo.panels import PANELS
from tests.conftest import small_config
from tests.helpers.demo import (
    GENE,
    answered,
    downloads_of,
    make_full_lab,
    panel_of,
    printed_by,
    run_commands,
    visited,
    write_genome,
    write_predictor,
)
from tests.helpers.files import random_bases, write_vcf
from tests.helpers.finetune import BASES, NUMBERS
from tests.helpers.run_lines import step_line, write_run

HOSTILE = "<img/src=x/onerror=alert(1)>"
NAMES = [panel.name for panel in PANELS]


@pytest.fixture(scope="module")
def lab(model, tmp_path_factory):
    lab = make_full_lab(tmp_path_factory.mktemp("lab"), model)
    for name, question in (("fine-tuned/genes", BASES), ("fine-tuned/numbers", NUMBERS)):
        write_predictor(lab, name, question)
    torch.manual_seed(7)
    save_model(LlamaForCausalLM(small_config()), lab.runs / "other")
    lab.allowed = AllowedModels({"other": str(lab.runs / "other")}, False, load)
    return lab


@pytest.fixture
def variants(lab, tmp_path):
    """Four alleles: an SNV with a symbolic one, a deletion, and a wrong REF."""
    bases = lab.genome.reference.fetch(Interval("c1", 0, 1400))
    wrong = "A" if bases[699] != "A" else "C"
    return write_vcf(tmp_path / "mine.vcf", [
        f"c1\t300\t.\t{bases[299]}\t{bases[299]}T,<DEL>\t.\t.\t.",
        f"c1\t400\t.\t{bases[399:402]}\t{bases[399]}\t.\t.\t.",
        f"c1\t700\t.\t{wrong}\tT\t.\t.\t.",
    ])  # fmt: skip


@pytest.fixture
def uploads(lab, variants):
    """The genome of the lab as files of a visitor, next to the variants."""
    write_genome(variants.parent)
    bases = lab.genome.reference.fetch(Interval("c1", 0, 1400))
    rows = (f"{at + 1:>9} {bases[at : at + 60]}\n" for at in range(0, 1400, 60))
    (variants.parent / "mine.gb").write_text(
        f"LOCUS       c1       1400 bp    DNA     linear   UNK 01-JAN-2020\n"
        f"ACCESSION   c1\nFEATURES             Location/Qualifiers\n"
        f'     gene            101..1000\n                     /gene="{GENE}"\n'
        f"ORIGIN\n{''.join(rows)}//\n"
    )
    return variants.parent


def table_of(name):
    return pd.read_csv(name, sep="\t", comment="#")


def agree_start(result, printed, told):
    assert printed[0] == result["best_kmer"]
    assert ast.literal_eval(printed[1]) == result["marginals"]
    assert told[0].splitlines()[2].split("\t")[0] == result["best_kmer"]


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
QUESTIONS = [
    ("start", {}),
    ("variant", {"vcf": ["mine.vcf"], "map_bp": 8}),
    ("variant", {"genome": ["mine.gb"], "vcf": ["mine.vcf"], "map_bp": 8}),
    ("compare", {"input": GENE}),
    ("predict", {"model": "activity", "sequences": PASTED, "variant": "snv", "window_bp": 60}),
    ("predict", {"model": "fine-tuned/genes", "sequences": PASTED}),
]
OTHER_QUESTIONS = [
    ("variant", {"genome": ["genes.gff3", "genome.fa"], "map_bp": 8}),
    ("variant", {"input": "Y2* of abc", "alleles": "ABC:c.30del", "strands": "forward"}),
    ("compare", {"input": random_bases(150, 2), "base_model": "other"}),
    ("predict", {"model": "fine-tuned/numbers", "sequences": PASTED, "variant": "snv",
                 "window_bp": 60, "strands": "forward"}),
]  # fmt: skip


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


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_answered_and_links_restore_them(lab, name):
    panel = panel_of(lab, name)
    less = {"write": {"calls": 16, "length_bp": 60}, "gene": {"phases": ["0"]}}.get(name, {})
    _, _, shown = visited(panel, **less)
    assert set(shown) == {view.name for view in panel.views}
    for example in panel.examples():
        given = example.values | less
        values, _, shown = visited(panel, **given)
        assert set(shown) == {view.name for view in panel.views}
        link = urlsplit(panel.link(given))
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
def test_names_are_shown_and_not_run(hostile, name):
    named = "".join(f">{HOSTILE}{n} label={HOSTILE}\n{random_bases(90, n)}\n" for n in range(3))
    given = {"sequences": named} if name == "predict" else {}
    _, _, shown = visited(panel_of(hostile, name), **given)
    seen = str([without_payload(view) for view in shown.values()])
    assert "<img" not in seen and "<b>AC" not in seen
    if name != "write":  # which show no name
        assert "&lt;img" in seen


WRONG = [
    ("gene", {"input": "nothing"}, "nothing"),
    ("gene", {"input": "c9:1-10"}, "c9"),
    ("gene", {"input": "c1:10-5"}, "reversed.*c1:5-10"),
    ("gene", {"input": "c1:1-99999"}, "1 to 1400"),
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
    ("inside", {"fixed": "AC"}, "six letters"),
    ("inside", {"input": "ACGTACGTN"}, "last six bases"),
    ("inside", {"run": "../a_run"}, "there is no"),
    ("inside", {"run": "/etc"}, "there is no"),
    ("start", {"input": "nowhere"}, "'nowhere'"),
    ("start", {"input": "MAVSKVYARSVYDSRGN"}, "looks like a protein"),
    ("variant", {"input": ""}, "nothing is given"),
    ("variant", {"input": "chr1"}, "'chr1'"),
    ("variant", {"input": "c1:0 A>T"}, "from 1"),
    ("variant", {"input": "c1:2000 A>T"}, "past the contig"),
    ("variant", {"input": "c1:114 A>T"}, "REF is A"),
    ("variant", {"input": "c1:114 T>T"}, "same as reference"),
    ("variant", {"alleles": "ABC"}, "'ABC' is not a variant"),
    ("variant", {"alleles": "c1:114 T>A\n" * 13}, "12 at most"),
    ("compare", {"input": "nowhere"}, "'nowhere'"),
    ("compare", {"input": "N" * 40}, "no base"),
    ("compare", {"other_model": "elsewhere"}, "'elsewhere'"),
    ("predict", {"sequences": ""}, "no sequence"),
    ("predict", {"sequences": "ACGT\nMKLV"}, "not a DNA letter"),
    ("predict", {"sequences": "\n".join(["ACGT"] * 51)}, "51 sequences"),
    ("predict", {"sequences": "A" * 5000}, "5000 bp"),
    ("predict", {"variant": "c1:10 A>C"}, "around the variant"),
    ("predict", {"variant": "c9:10 A>C", "window_bp": 60}, "'c9'"),
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
    ("write", "input", PROTEIN),
    ("write", "forbid", f"ACGT {PROTEIN}"),
    ("write", "require", PROTEIN),
    ("inside", "kmer", "AAAIQQ"),
    ("inside", "fixed", "A..IQ."),
    ("start", "input", PROTEIN),
    ("variant", "input", PROTEIN),
    ("predict", "sequences", f"ACGT\n{PROTEIN}"),
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
