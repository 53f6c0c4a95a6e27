"""Labelled variants read with both alleles: features by stock transformers, runs, and files."""

import json
from functools import partial

import numpy as np
import pytest
import torch

from carbon import Reference, load_finetuned
from carbon.cli import main
from carbon.errors import UserError
from carbon.finetune import data, job, nested
from carbon.finetune.config import MethodConfig
from carbon.finetune.data import prepare
from carbon.finetune.job import as_config, run_finetune
from carbon.finetune.nested import checked_examples, chromosomes_of
from carbon.finetune.network import COMBINED, OpenedModel
from carbon.finetune.probe import vectors_of
from carbon.finetune.readers import pair_of
from carbon.finetune.report import write_pages
from carbon.finetune.results import read_findings
from carbon.finetune.split import Examples, LabelledVariant
from carbon.genome import Variant, reverse_complement
from carbon.inference.model import Model
from carbon.model import load_model, save_model
from carbon.tokenizer import encode
from carbon.uncertainty import bootstrap
from tests.helpers.files import random_bases, write_fasta, write_vcf

pytestmark = pytest.mark.usefixtures("no_pages")
CHROMOSOMES = {f"c{n}": random_bases(400, 50 + n) for n in range(5)}
WINDOW_BP = 48
HEADER = (
    '##INFO=<ID=label,Number=A,Type=Integer,Description="x">\n'
    '##INFO=<ID=CSQ,Number=A,Type=String,Description="x">\n'
)


def transition(base: str) -> str:
    return base.translate(str.maketrans("ACGT", "GTAC"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    """SNVs of five chromosomes; a transition is labelled 1, a transversion to A or C 0."""
    folder = tmp_path_factory.mktemp("alleles")
    save_model(network, folder / "base")
    write_fasta(folder / "r.fa", CHROMOSOMES)
    records = []
    for name, bases in CHROMOSOMES.items():
        for number, at in enumerate(range(40, 360, 16)):
            ref = bases[at]
            label = number % 2
            alt = transition(ref) if label else ("C" if ref in "AG" else "A")
            consequence = "rare" if number == 0 else ("missense", "synonymous")[number % 4 // 2]
            info = f"label={label};CSQ={consequence}"
            records.append(f"{name}\t{at + 1}\t.\t{ref}\t{alt}\t.\t.\t{info}")
    write_vcf(folder / "v.vcf", records, HEADER)
    return folder


def settings(folder, output, variant_input="ref_and_difference", **method):
    return {
        "model": str(folder / "base"),
        "output": str(output),
        "data": {
            "path": str(folder / "v.vcf"),
            "reference": str(folder / "r.fa"),
            "window_bp": WINDOW_BP,
            "variant_input": variant_input,
            "split": {"by": "contig", "validation": ["c3"], "test": ["c4"]},
        },
        "task": {"type": "binary"},
        "method": {"name": "probe", **method},
        "baselines": ["constant", "delta"],
    }


def slow_vector(network, bases: str) -> np.ndarray:
    """Return the mean over known bases of the last states of one sequence, by stock code."""
    ids = torch.from_numpy(encode(bases).ids)[None]
    with torch.inference_mode():
        states = network(ids, output_hidden_states=True).hidden_states[-1][0].double().numpy()
    return np.mean([states[1 + i // 6] for i in range(len(bases))], axis=0)


PAIRS = [(random_bases(48, n), random_bases(48 + n % 2, 90 + n)) for n in range(3)]


@pytest.mark.parametrize("strands", ["forward", "both"])
def test_features_are_combined_on_each_strand(network, folder, strands):
    opened = OpenedModel(load_model(folder / "base"))
    method = MethodConfig(name="probe", strands=strands)
    ways = {
        "ref_and_difference": lambda ref, alt: [ref, alt - ref],
        "sum_and_distance": lambda ref, alt: [ref + alt, abs(alt - ref)],
    }
    assert ways.keys() == COMBINED.keys()
    for name, combine in ways.items():
        found = vectors_of(opened, [None], PAIRS, method, name)[:, 0]
        for row, pair in zip(found, PAIRS, strict=True):
            turned = [tuple(map(reverse_complement, pair))] if strands == "both" else []
            each = [
                np.concatenate(combine(*(slow_vector(network, s) for s in alleles)))
                for alleles in [pair, *turned]
            ]
            np.testing.assert_allclose(row, np.mean(each, axis=0), atol=1e-5)


@pytest.mark.parametrize(
    ("variant_input", "method"),
    [
        ("sum_and_distance", {"name": "probe", "layer": 1}),
        ("ref_and_difference", {"name": "lora", "epochs": 0.5, "batch": 16, "dropout": 0.0}),
        pytest.param(
            "sum_and_distance", {"name": "full", "epochs": 0.5}, marks=pytest.mark.nightly
        ),
    ],
)
def test_a_run_is_saved_and_predicts_a_vcf(
    folder, tmp_path, capsys, monkeypatch, variant_input, method
):
    output = tmp_path / "out"
    results = run_finetune(as_config(settings(folder, output, variant_input, **method)))
    assert set(results["test"]) == {"model", "constant", "delta"}
    manifest = json.loads((output / "finetune.json").read_text())
    assert manifest["variant_input"] == variant_input
    card = write_pages(output, read_findings(output))[1].read_text()
    assert f"| features of both alleles | {variant_input} |" in card
    assert "calls.vcf" in card and "new.fa" not in card  # it refuses single sequences
    monkeypatch.chdir(tmp_path)
    code = card.partition("```python\n")[2].partition("```")[0]
    exec(code.replace("FOLDER_OF_THE_BASE_MODEL", str(folder / "base")), {})
    rows = [line.split("\t") for line in (output / "predictions.tsv").read_text().splitlines()]
    tested = {row[0]: float(row[-1]) for row in rows[2:] if row[1] == "test"}
    capsys.readouterr()
    words = ["predict", "--model", str(output), "--reference", str(folder / "r.fa")]
    assert main([*words, str(folder / "v.vcf"), "--output", str(tmp_path / "p.tsv")]) == 0
    lines = [line.split("\t") for line in (tmp_path / "p.tsv").read_text().splitlines()][1:]
    header = lines[0]
    assert header[5:] == ["predicted_1", "reason"]
    predicted = [float(row[5]) for row in lines[1:] if row[0] == "c4"]
    np.testing.assert_allclose(predicted, list(tested.values()), atol=1e-6)

    finetuned = load_finetuned(output)
    bases = CHROMOSOMES["c4"]
    pair = (bases[16:64], bases[16:40] + lines[-20][4] + bases[41:64])
    (from_pair,) = finetuned.predict([pair])
    np.testing.assert_allclose(from_pair, predicted[:1], atol=1e-6)
    with pytest.raises(UserError, match="sequence 1: this model reads both alleles"):
        list(finetuned.predict([bases[:48]]))
    write_fasta(tmp_path / "s.fa", {"s": bases[:48]})
    words = ["predict", "--model", str(output), str(tmp_path / "s.fa"), "--output"]
    assert main([*words, str(tmp_path / "q.tsv")]) == 2
    assert "reads both alleles of variants" in capsys.readouterr().err
    with pytest.raises(UserError, match="too_long = 'tile': this model reads both alleles"):
        finetuned.predict(PAIRS, too_long="tile")
    long = random_bases(finetuned.room_bp + 1, 1)
    with pytest.raises(UserError, match="give shorter windows"):
        list(finetuned.predict([(long, long)]))


def test_alt_reads_what_a_table_of_alt_windows_holds(folder, tmp_path):
    """The saved head has the same bytes, so that runs of one allele are what they were."""
    rows = [line.split("\t") for line in (folder / "v.vcf").read_text().splitlines()]
    lines = ["name,sequence,label,contig"]
    for contig, position, _, _, alt, _, _, info in (row for row in rows if row[0][0] == "c"):
        at, bases = int(position) - 1, CHROMOSOMES[contig]
        window = bases[at - 24 : at] + alt + bases[at + 1 : at + 24]
        lines.append(f"{contig}:{position},{window},{info[6]},{contig}")
    (tmp_path / "t.csv").write_text("\n".join(lines) + "\n")
    of_vcf = settings(folder, tmp_path / "vcf", "alt")
    of_table = settings(folder, tmp_path / "table")
    of_table["data"] = {
        "path": str(tmp_path / "t.csv"), "name": "name",
        "split": of_vcf["data"]["split"] | {"column": "contig"},
    }  # fmt: skip
    for table in (of_vcf, of_table):
        run_finetune(as_config(table | {"baselines": []}))
    heads = [(tmp_path / name / "head.safetensors").read_bytes() for name in ("vcf", "table")]
    assert heads[0] == heads[1]


def test_the_delta_is_that_of_carbon_variants(folder, tmp_path):
    """The baseline's one feature; its ranks on test are those of the deltas, either way round."""
    results = run_finetune(as_config(settings(folder, tmp_path / "out")))
    model = Model(load_model(folder / "base"))
    rows = (folder / "v.vcf").read_text().splitlines()
    test = [row.split("\t") for row in rows if row.startswith("c4")]
    variants = [Variant(r[0], int(r[1]) - 1, r[3], r[4]) for r in test]
    with Reference(folder / "r.fa") as reference:
        scores = model.score_variants(reference, variants, protocol="centered", window_bp=WINDOW_BP)
        deltas = np.array([score.delta for score in scores])
    labels = np.array(["label=1" in row[7] for row in test])
    above = np.mean([a > b for a in deltas[labels] for b in deltas[~labels]])
    assert results["test"]["delta"]["auroc"]["value"] in (
        pytest.approx(above, abs=1e-9),
        pytest.approx(1 - above, abs=1e-9),
    )


def test_a_cross_validation_reports_every_predictor_and_class(folder, tmp_path, monkeypatch):
    monkeypatch.setattr(nested, "LOGISTIC_C", (0.01, 1.0))
    monkeypatch.setattr(nested, "bootstrap", partial(bootstrap, num_resamples=20))
    table = settings(folder, tmp_path / "out", cross_validate=True)
    table["data"]["consequence"] = "CSQ"
    found = run_finetune(as_config(table))["cross_validation"]
    assert found["all"]["examples"] == 100 and found["all"]["positives"] == 50
    assert set(found["all"]["scores"]) == {"probe", "composition", "kmers", "-delta", "abs_delta"}
    assert set(found["all"]["strengths"]) == set(CHROMOSOMES)
    assert set(found["classes"]) == {"missense", "synonymous"}
    assert found["left_out"]["rare"].startswith("5 examples: label 1 is on 0 chromosomes")


@pytest.fixture
def no_fit(monkeypatch):
    """Let a run that gets as far as fitting fail."""
    monkeypatch.setattr(job, "_run", lambda *args, **kwargs: pytest.fail("it began to fit"))


def write_labels_of_bases(folder, tmp_path):
    """Write the VCF with 34 labels in place of each, and return its path."""
    text = (folder / "v.vcf").read_text().replace("label", "BASES")
    for label in "01":
        text = text.replace(f"BASES={label};", f"BASES={label * 20}{'01' * 14};")
    (tmp_path / "v.vcf").write_text(text.replace("Type=Integer", "Type=String"))
    return str(tmp_path / "v.vcf")


@pytest.mark.parametrize(
    ("data", "method", "message"),
    [
        ({"consequence": "CSQ"}, {}, "is for method.cross_validate"),
        ({"window_bp": 600}, {}, "both alleles are read whole: set data.window_bp to"),
        ({}, {"name": "lora", "cross_validate": True}, "is for method.name = 'probe'"),
        ({"window_bp": 8, "variant_input": "alt"}, {}, "delta: a window of 8 bp does not fit"),
        ({"few": "chromosomes"}, {"cross_validate": True}, "label 0 is on 2 chromosomes"),
        ({"labels": ["BASES"]}, {}, "labels the bases of one allele; set it to 'alt'"),
    ],
)
def test_what_does_not_go_together_is_refused_before_the_fit(
    folder, tmp_path, no_fit, data, method, message
):
    table = settings(folder, tmp_path / "out", **method)
    if data.pop("few", None):
        lines = (folder / "v.vcf").read_text().splitlines(keepends=True)
        few = [line for line in lines if not line.startswith(("c2", "c3", "c4"))]
        (tmp_path / "v.vcf").write_text("".join(few))
        shares = {"by": "random", "validation_share": 0.3, "test_share": 0.3}
        data = {"path": str(tmp_path / "v.vcf"), "split": shares}
    if "labels" in data:
        table["task"]["type"] = "bases"
        data = data | {"path": write_labels_of_bases(folder, tmp_path)}
    table["data"] |= data
    with pytest.raises(UserError, match=message):
        run_finetune(as_config(table))


@pytest.mark.parametrize("alt", ["A", "AGGTACCA"])
def test_an_indel_does_not_shift_the_6mers_after_it(folder, alt):
    """Windows and features are those of `carbon embed --vcf` on the forward strand."""
    bases = CHROMOSOMES["c1"]
    at = bases.index("A", 150)
    variant = Variant("c1", at, bases[at : at + 3], alt)
    model = Model(load_model(folder / "base"))
    with Reference(folder / "r.fa") as reference:
        ref_window, alt_window = pair_of(reference, variant, WINDOW_BP, 6)
        (vectors,) = model.embed_variants(
            reference, [variant], window_bp=WINDOW_BP, strands="forward"
        )
    after = bases[at + 3 : at + 15]
    starts = {len(window[: window.index(after)]) % 6 for window in (ref_window, alt_window)}
    turned = reverse_complement(bases[at - 12 : at])
    reverse = [reverse_complement(window) for window in (ref_window, alt_window)]
    assert len(starts) == 1 and len({window.index(turned) % 6 for window in reverse}) == 1
    opened = OpenedModel(load_model(folder / "base"))
    method = MethodConfig(strands="forward")
    pair = (ref_window, alt_window)
    (features,) = vectors_of(opened, [None], [pair], method, "ref_and_difference")[:, 0]
    np.testing.assert_allclose(features[:32], vectors.ref, atol=1e-6)
    np.testing.assert_allclose(features[32:], vectors.alt - vectors.ref, atol=1e-6)


def test_windows_that_would_be_cut_before_the_variant_are_refused():
    """Of 100 bp around base 50, counted from 0, the first 51 are needed."""
    variants = (LabelledVariant(Variant("c", 50, "A", "C")),)
    label = np.zeros((1, 1), np.float32)
    examples = Examples(("v",), ("A" * 100,), label, ("train",), ("",), variants=variants)
    cut = MethodConfig(too_long="truncate")
    data._check_long([0], examples, cut, room_bp=51)
    with pytest.raises(UserError, match=r"end before the variant: set data\.window_bp to 50 or"):
        data._check_long([0], examples, cut, room_bp=50)


def test_the_deltas_read_what_fits_the_context(folder, tmp_path, network):
    """The context is shorter than the windows, which are truncated."""
    context_bp = (network.config.max_position_embeddings - 1) * 6
    bases = {name: random_bases(context_bp + 200, 70 + n) for n, name in enumerate(CHROMOSOMES)}
    write_fasta(tmp_path / "r.fa", bases)
    records = []
    for name, text in bases.items():
        for number, at in enumerate(range(60, 120, 10)):
            ref, info = text[at], f"label={number % 2};CSQ=x"
            records.append(f"{name}\t{at + 1}\t.\t{ref}\t{transition(ref)}\t.\t.\t{info}")
    write_vcf(tmp_path / "v.vcf", records, HEADER)
    table = settings(folder, tmp_path / "out", "alt", too_long="truncate")
    table["data"] |= {
        "path": str(tmp_path / "v.vcf"), "reference": str(tmp_path / "r.fa"),
        "window_bp": context_bp + 100,
    }  # fmt: skip
    results = run_finetune(as_config(table))
    assert "delta" in results["test"]
    assert f"The deltas are of {context_bp} bp" in " ".join(results["notes"])


def test_a_cross_validation_of_a_vcf_is_by_contig_whatever_divides_it(folder, tmp_path):
    lines = (folder / "v.vcf").read_text().splitlines(keepends=True)
    rare = [line.replace("missense", "rare") if line.startswith("c0") else line for line in lines]
    (tmp_path / "v.vcf").write_text("".join(rare))
    table = settings(folder, tmp_path / "out", cross_validate=True)
    table["data"]["path"] = str(tmp_path / "v.vcf")
    table["data"]["split"] = {"by": "group", "column": "CSQ", "test": ["missense"],
                              "validation": ["synonymous"]}  # fmt: skip
    prepared = prepare(as_config(table).data, as_config(table).task, 6)
    assert set(prepared.examples.groups) == {"missense", "synonymous", "rare"}
    assert set(chromosomes_of(checked_examples(prepared.examples))) == set(CHROMOSOMES)


def test_a_point_is_no_consequence(folder, tmp_path):
    text = (folder / "v.vcf").read_text().replace("CSQ=rare", "CSQ=.", 1)
    (tmp_path / "v.vcf").write_text(text)
    table = settings(folder, tmp_path / "out", cross_validate=True)
    table["data"] |= {"path": str(tmp_path / "v.vcf"), "consequence": "CSQ"}
    with pytest.raises(UserError, match=r"record 1 \(c0:41\): has no CSQ; add it"):
        prepare(as_config(table).data, as_config(table).task, 6)


def test_a_label_for_every_base_has_no_delta(folder, tmp_path):
    table = settings(folder, tmp_path / "out", "alt")
    table["data"] |= {"path": write_labels_of_bases(folder, tmp_path), "labels": ["BASES"]}
    table["task"]["type"] = "bases"
    results = run_finetune(as_config(table))
    assert set(results["test"]) == {"model", "constant"}
