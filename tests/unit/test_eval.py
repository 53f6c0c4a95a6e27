"""Held-out likelihood, recovery and variants against counting, and the report about them."""

import json
import math
from collections import Counter

import numpy as np
import pysam
import pytest

from carbon.errors import ConfigError, CorpusError, GenomeError
from carbon.genome import Reference, reverse_complement
from carbon.inference.held_out import choose_sites
from carbon.uncertainty import bootstrap, mean, ratio
from eval.heldout.likelihood import heldout_likelihood
from eval.heldout.markov import Markov
from eval.heldout.meaning import meaning_of
from eval.heldout.overlap import overlap_clause, overlap_with_train
from eval.heldout.recovery import sequence_recovery
from eval.heldout.report import write_report
from eval.heldout.variants import read_scored, variant_auroc
from tests.helpers.files import random_bases, write_fasta, write_vcf

TRAIN = ["ACGTTGCAACGNTTACGACG", "GGGATTACAGGG", "acgt" * 9]


@pytest.mark.parametrize("order", [0, 3])
def test_markov_against_a_dictionary(order):
    counts = Counter()
    for sequence in TRAIN:
        text = sequence.upper()
        for i in range(len(text) - order):
            word = text[i : i + order + 1]
            if set(word) <= set("ACGT"):
                counts[word] += 1
    markov = Markov(order, TRAIN)
    test = "ACGGTNACGTTGA"
    found = markov.log_likelihoods(test)
    for i in range(len(test)):
        word = test[max(0, i - order) : i + 1]
        if i < order or "N" in word:
            assert math.isnan(found[i])
            continue
        total = sum(counts[word[:-1] + base] + 1 for base in "ACGT")
        assert found[i] == pytest.approx(math.log((counts[word] + 1) / total))


def test_markov_continues_greedily():
    markov = Markov(2, ["ACGACGACGACG"])
    assert markov.continuation("TTAC", 7) == "GACGACG"
    assert Markov(0, ["GGGGA"]).continuation("ACGT", 3) == "GGG"


def test_bootstrap_of_a_mean_has_the_width_of_theory():
    values = np.random.default_rng(0).normal(5, 2, 400)
    estimate = mean(values)
    standard_error = values.std() / 20  # the square root of 400
    assert estimate.value == pytest.approx(values.mean())
    assert estimate.high - estimate.low == pytest.approx(2 * 1.96 * standard_error, rel=0.1)
    assert estimate == mean(values) and estimate.num_samples == 400


def test_ratio_weighs_records_by_their_bases():
    estimate = ratio(np.array([10.0, 1.0]), np.array([10.0, 4.0]))
    assert estimate.value == pytest.approx(11 / 14)
    assert (estimate.low, estimate.high) == (pytest.approx(0.25), pytest.approx(1.0))


def test_undefined_resamples_are_left_out():
    estimate = bootstrap(lambda w: float("nan") if w.min() == 0 else 1.0, 2)
    assert (estimate.low, estimate.high) == (1.0, 1.0)


def test_sites_lie_in_their_records():
    records = [random_bases(400, 1), random_bases(100, 2), random_bases(900, 3), "N" * 500]
    sites = choose_sites(records, 60, most_prompt_bp=300, seed=0)
    assert len(sites) == len(set(sites)) == 60
    for prompt, target in sites:
        assert any(prompt + target in record for record in records)
        assert len(target) == 30 and len(prompt) in (120, 240)
    assert sites == choose_sites(records, 60, most_prompt_bp=300, seed=0)
    assert len(choose_sites(records[1:2], 5, most_prompt_bp=300, seed=0)) == 0


def test_recovery_and_likelihood_of_a_model(model):
    train, test = [random_bases(2000, 1)], [random_bases(600, 2), random_bases(700, 3)]
    recovery = sequence_recovery(model, train, test, 20, seed=0)
    assert 0 <= recovery["low"] <= recovery["value"] <= recovery["high"] <= 1
    sites = choose_sites(test, 20, 252, 0)
    texts = [model.generate([prompt], 30, temperature=0)[0] for prompt, _ in sites]
    shares = [
        sum(a == b for a, b in zip(text, target, strict=True)) / 30
        for text, (_, target) in zip(texts, sites, strict=True)
    ]
    assert recovery["value"] == pytest.approx(np.mean(shares))
    assert "0.25 is chance" in meaning_of("sequence_recovery", recovery)
    likelihood = heldout_likelihood(model, train, test, 10_000, seed=0)
    assert likelihood["num_bases"] == 600 + 700 - 12
    assert likelihood["markov"][0]["value"] == pytest.approx(np.log(4), abs=0.02)
    assert heldout_likelihood(model, train, test, 650, seed=0)["num_bases"] < 650


def test_auroc_against_counting_pairs(tmp_path):
    random = np.random.default_rng(1)
    reference = Reference(write_fasta(tmp_path / "r.fa", {"c": random_bases(900, 5)}))
    records, truth = [], []
    for position in range(20, 800, 10):
        label = int(random.random() < 0.4)
        delta = round(float(random.normal(-label)), 3)
        effect = "nonsense" if label else "synonymous"
        base = random_bases(900, 5)[position - 1]
        alt = "A" if base != "A" else "C"
        records.append(
            f"c\t{position}\t.\t{base}\t{alt}\t.\t.\t"
            f"LABEL={label};EFFECT={effect};CARBON_DELTA={delta}"
        )
        truth.append((label, delta))
    header = (
        '##contig=<ID=c,length=900>\n##INFO=<ID=LABEL,Number=1,Type=Integer,Description="x">\n'
        '##INFO=<ID=EFFECT,Number=1,Type=String,Description="x">\n'
        '##INFO=<ID=CARBON_DELTA,Number=A,Type=Float,Description="x">\n'
    )
    vcf = write_vcf(tmp_path / "v.vcf", records, header)
    scores = read_scored(vcf, reference, Markov(2, [random_bases(900, 5)]))
    renamed = Reference(write_fasta(tmp_path / "chr.fa", {"chrc": random_bases(900, 5)}))
    again = read_scored(vcf, renamed, Markov(2, [random_bases(900, 5)]), "chr")
    assert np.array_equal(again.markov_delta, scores.markov_delta)
    found = variant_auroc(scores)
    pairs = [
        (d > c) + (d == c) / 2
        for label, c in truth if label
        for other, d in truth if not other
    ]  # fmt: skip
    assert found["value"] == pytest.approx(np.mean(pairs))
    assert found["by_effect"]["nonsense"]["value"] == pytest.approx(np.mean(pairs))
    assert (found["num_damaging"], found["num_controls"]) == (
        sum(label for label, _ in truth), sum(1 - label for label, _ in truth)
    )  # fmt: skip
    assert pysam.VariantFile(str(vcf)).header.info["LABEL"]


@pytest.mark.parametrize(
    ("ahead", "words"),
    [
        ((-0.046, -0.144, 0.013), "No difference is shown between this model and the best Markov "
         "model: -0.0460 [-0.1440, 0.0130], an interval that includes 0."),
        ((-0.046, -0.144, -0.013), "This model is behind the best Markov model by 0.0460 [0.01"),
        ((0.02, 0.01, 0.03), "This model is ahead of the best Markov model by 0.0200 [0.0100, "),
    ],
)  # fmt: skip
def test_a_model_is_told_ahead_or_behind_by_its_interval_alone(ahead, words):
    difference = dict(zip(("value", "low", "high"), ahead, strict=True))
    each = {"value": 1.3}
    likelihood = {"value": 1.3, "markov": [each], "others": {"codon_periodic": {"value": 1.25}}}
    likelihood |= {"best_markov": "codon_periodic", "ahead_of_best": difference}
    told = meaning_of("heldout_likelihood", likelihood)
    assert words in told and "the best Markov model (codon periodic) 1.2500" in told


def test_31_mers_of_held_out_records_are_looked_for_on_both_strands_of_training_records():
    train = random_bases(500, 1)
    copied = reverse_complement(train[100:200])  # 100 - 30 of its 31-mers are of the copy alone
    test = [random_bases(200, 2) + copied.lower(), copied[:50], "ACGT" * 5, random_bases(60, 3)]
    found = overlap_with_train(iter([train, ""]), test)
    # 31-mers: 300 - 30, 50 - 30, none of 20 bases, 60 - 30.
    assert (found["num_kmers"], found["num_shared"]) == (270 + 20 + 30, 70 + 20)
    assert found["value"] == pytest.approx(90 / 320)
    assert (found["num_records_half_shared"], found["num_samples"], found["k"]) == (1, 4, 31)
    unknown = overlap_with_train([train], [copied[:45] + "N" + copied[46:]])
    assert (unknown["num_kmers"], unknown["num_shared"]) == (15 + 24, 39)


def test_overlap_is_said_whatever_it_is():
    none = overlap_with_train(["A" * 40], ["C" * 40])
    assert overlap_clause(none).startswith("none of its 10 31-mers")
    short = overlap_with_train(["A" * 40], ["C" * 30])
    assert short["value"] is None and "too short" in overlap_clause(short)
    few = none | {"num_shared": 1, "num_kmers": 5000, "value": 1 / 5000}
    assert overlap_clause(few).startswith("less than 0.1%")
    assert "not measured" in overlap_clause(None)


def test_nothing_to_measure_is_said(model, tmp_path):
    with pytest.raises(CorpusError, match="no site to recover"):
        sequence_recovery(model, TRAIN, ["ACGT"], 5, seed=0)
    with pytest.raises(CorpusError, match="no base to measure"):
        heldout_likelihood(model, TRAIN, ["NNNNNNNNNNN"], 100, seed=0)
    reference = Reference(write_fasta(tmp_path / "r.fa", {"c": "ACGTACGT"}))
    for info, message in ((".", "record 1: needs LABEL"), ("LABEL=1", "both labels")):
        vcf = write_vcf(tmp_path / "v.vcf", [f"c\t3\t.\tG\tA\t.\t.\t{info}"])
        with pytest.raises(GenomeError, match=message):
            read_scored(vcf, reference, Markov(0, TRAIN))


def test_the_report_says_when_a_model_does_not_beat_markov(tmp_path):
    estimate = {"value": 1.4, "low": 1.3, "high": 1.5, "num_samples": 9}
    behind = {"value": -0.1, "low": -0.2, "high": -0.05, "num_samples": 9}
    likelihood = estimate | {
        "num_bases": 100, "markov": [estimate] * 7, "resampled": "records",
        "best_markov": "order_0", "share_ahead_of_best": estimate,
        "ahead_of_order_6": behind, "ahead_of_best": behind | {"high": 0.1},
    }  # fmt: skip
    overlap = overlap_with_train(["A" * 40], ["A" * 40 + "C" * 40])
    results = {"heldout_likelihood": likelihood, "overlap_with_train": overlap}
    (tmp_path / "results.json").write_text(json.dumps(results))
    metrics = [
        {"step": n, "tokens": 100 * n, "objective": "ce" if n <= 30 else "fns",
         "nats_per_base": 1.4 - n / 100, "marginal_nats_per_base": 1.4 - n / 200}
        for n in range(1, 51)
    ]  # fmt: skip
    (tmp_path / "metrics.jsonl").write_text("".join(f"{json.dumps(m)}\n" for m in metrics))
    write_report(
        tmp_path / "r.html", title="T <x>", run=tmp_path, results=tmp_path / "results.json",
        generated=None,
    )  # fmt: skip
    page = (tmp_path / "r.html").read_text()
    opening = page.split("<h2>")[0]
    assert "behind the order-6 Markov model by 0.1000 [0.0500, 0.2000]." in opening
    assert "No difference is shown between the model and the best Markov model" in opening
    # Of the 50 31-mers the first 10 are all A.
    assert "(10 of 50)" in opening and "At step 31" in page and "T &lt;x&gt;" in page


def test_what_a_report_lacks_is_named(tmp_path):
    for lines, message in (
        ("", r"metrics\.jsonl: no such file"),
        ('{"step": 1}\n{"st', r"metrics\.jsonl line 2: Invalid JSON"),
    ):
        if lines:
            (tmp_path / "metrics.jsonl").write_text(lines)
        with pytest.raises(ConfigError, match=message):
            write_report(
                tmp_path / "r.html", title="", run=tmp_path, results=tmp_path, generated=None
            )
