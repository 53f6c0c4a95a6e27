"""Labelled variants read with both alleles: features by stock transformers, runs, and files."""

import json

import numpy as np
import pytest
import torch

from carbon import Reference, load_finetuned
from carbon.cli import main
from carbon.errors import UserError
from carbon.finetune.config import MethodConfig
from carbon.finetune.job import as_config, run_finetune
from carbon.finetune.network import COMBINED, OpenedModel, rows_of
from carbon.finetune.probe import vectors_of
from carbon.genome import Variant, reverse_complement
from carbon.inference.model import Model
from carbon.model import load_model, save_model
from carbon.tokenizer import encode
from tests.helpers.files import random_bases, write_fasta, write_vcf

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
def test_features_are_combined_on_each_strand(network, tmp_path, strands):
    save_model(network, tmp_path / "m")
    opened = OpenedModel(load_model(tmp_path / "m"))
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


def test_features_agree_with_the_embeddings_of_both_alleles(folder, network):
    """[ref, alt - ref] is linear, so that the mean of the strands may be taken before it."""
    opened = OpenedModel(load_model(folder / "base"))
    bases = CHROMOSOMES["c0"]
    variant = Variant("c0", 200, bases[200], transition(bases[200]))
    pair = (bases[176:224], bases[176:200] + variant.alt + bases[201:224])
    (features,) = vectors_of(opened, [None], [pair], MethodConfig(), "ref_and_difference")[:, 0]
    model = Model(load_model(folder / "base"))
    with Reference(folder / "r.fa") as reference:
        (vectors,) = model.embed_variants(reference, [variant], window_bp=WINDOW_BP)
    np.testing.assert_allclose(features[:32], vectors.ref, atol=1e-6)
    np.testing.assert_allclose(features[32:], vectors.alt - vectors.ref, atol=1e-6)


def test_rows_of_a_batch_have_every_ref_first():
    assert rows_of(PAIRS) == [ref for ref, _ in PAIRS] + [alt for _, alt in PAIRS]


@pytest.mark.parametrize(
    ("variant_input", "method"),
    [
        ("ref_and_difference", {"name": "probe"}),
        ("sum_and_distance", {"name": "probe", "layer": 1}),
        ("ref_and_difference", {"name": "lora", "epochs": 0.5, "batch": 16, "dropout": 0.0}),
        pytest.param(
            "sum_and_distance", {"name": "full", "epochs": 0.5}, marks=pytest.mark.nightly
        ),
    ],
)
def test_a_run_is_saved_and_predicts_a_vcf(folder, tmp_path, capsys, variant_input, method):
    output = tmp_path / "out"
    results = run_finetune(as_config(settings(folder, output, variant_input, **method)))
    assert set(results["test"]) == {"model", "constant", "delta"}
    manifest = json.loads((output / "finetune.json").read_text())
    assert manifest["variant_input"] == variant_input
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
    manifests = [
        json.loads((tmp_path / name / "finetune.json").read_text()) for name in ("vcf", "table")
    ]
    assert [manifest["variant_input"] for manifest in manifests] == ["alt", "alt"]


def test_the_delta_is_that_of_carbon_variants(folder, tmp_path):
    """The baseline's one feature; its ranks on test are those of the deltas, either way round."""
    results = run_finetune(as_config(settings(folder, tmp_path / "out")))
    model = Model(load_model(folder / "base"))
    rows = (folder / "v.vcf").read_text().splitlines()
    test = [row.split("\t") for row in rows if row.startswith("c4")]
    variants = [Variant(r[0], int(r[1]) - 1, r[3], r[4]) for r in test]
    with Reference(folder / "r.fa") as reference:
        scores = model.score_variants(reference, variants, window_bp=WINDOW_BP)
        deltas = np.array([score.delta for score in scores])
    labels = np.array(["label=1" in row[7] for row in test])
    above = np.mean([a > b for a in deltas[labels] for b in deltas[~labels]])
    assert results["test"]["delta"]["auroc"]["value"] in (
        pytest.approx(above, abs=1e-9),
        pytest.approx(1 - above, abs=1e-9),
    )


def test_a_cross_validation_reports_every_predictor_and_class(folder, tmp_path):
    table = settings(folder, tmp_path / "out", cross_validate=True)
    table["data"]["consequence"] = "CSQ"
    nested = run_finetune(as_config(table))["cross_validation"]
    assert nested["all"]["examples"] == 100 and nested["all"]["positives"] == 50
    assert set(nested["all"]["scores"]) == {"probe", "composition", "kmers", "-delta", "abs_delta"}
    assert set(nested["all"]["strengths"]) == set(CHROMOSOMES)
    assert set(nested["classes"]) == {"missense", "synonymous"}
    assert nested["left_out"]["rare"].startswith("5 examples: label 1 is on 0 chromosomes")
    assert "rare is left out" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ('data.labels=["LABEL"]', "v.vcf: has no column 'LABEL'"),
        ('data.consequence="CSQ"', "is for method.cross_validate"),
        ("data.window_bp=600", "both alleles are read whole: set data.window_bp to"),
        ("method.name=lora method.cross_validate=true", "is for method.name = 'probe'"),
    ],
)
def test_bad_input_is_one_line(folder, tmp_path, capsys, change, message):
    path = tmp_path / "run.toml"
    path.write_text(as_config(settings(folder, tmp_path / "out")).to_toml())
    overrides = [word for each in change.split() for word in ("--set", each)]
    assert main(["finetune", "--config", str(path), *overrides]) == 2
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1 and message in lines[0]


def test_a_label_for_every_base_needs_one_allele(folder, tmp_path):
    table = settings(folder, tmp_path / "out")
    table["data"]["labels"], table["task"]["type"] = ["BASES"], "bases"
    (tmp_path / "v.vcf").write_text((folder / "v.vcf").read_text().replace("label", "BASES"))
    text = (tmp_path / "v.vcf").read_text()
    for label in "01":
        text = text.replace(f"BASES={label};", f"BASES={label * 20}{'01' * 14};")
    (tmp_path / "v.vcf").write_text(text.replace("Type=Integer", "Type=String"))
    table["data"]["path"] = str(tmp_path / "v.vcf")
    with pytest.raises(UserError, match="labels the bases of one allele; set it to 'alt'"):
        run_finetune(as_config(table))
