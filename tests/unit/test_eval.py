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
from eval.__main__ import main
from eval.heldout.likelihood import heldout_likelihood
from eval.heldout.meaning import meaning_of
from eval.heldout.overlap import overlap_clause, overlap_with_train
from eval.heldout.recovery import sequence_recovery
from eval.heldout.report import write_report
from eval.heldout.variants import read_scored, variant_auroc
from eval.markov import Markov
from tests.helpers.files import random_bases, write_fasta, write_vcf

TRAIN = ["ACGTTGCAACGNTTACGACG", "GGGATTACAGGG", "acgt" * 9]


@pytest.mark.parametrize("order", [0, 1, 2, 3])
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
    recovery = sequence_recovery(model, train, test, 40, seed=0)
    assert 0 <= recovery["low"] <= recovery["value"] <= recovery["high"] <= 1
    _prompt, _target = choose_sites(test, 40, 252, 0)[0]
    sites = choose_sites(test, 40, 252, 0)
    texts = [model.generate([prompt], 30, temperature=0)[0] for prompt, _ in sites]
    shares = [
        sum(a == b for a, b in zip(text, target, strict=True)) / 30
        for text, (_, target) in zip(texts, sites, strict=True)
    ]
    assert recovery["value"] == pytest.approx(np.mean(shares))
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


def test_what_a_good_number_is(model):
    """Beside the number stand knowing nothing, the best Markov model, and what is published."""
    train, test = ["ACGGT" * 400], ["ACGGT" * 120]
    likelihood = heldout_likelihood(model, train, test, 10_000, seed=0)
    told = meaning_of("heldout_likelihood", likelihood)
    every = [*likelihood["markov"], *likelihood["others"].values()]
    best = min(each["value"] for each in every)
    assert "1.386 is knowing nothing (ln 4)" in told
    assert (
        f"the best Markov model ({likelihood['best_markov'].replace('_', ' ')}) {best:.4f}" in told
    )
    for ahead, words in (
        ((-0.046, -0.144, 0.013), "No difference is shown between this model and the best Markov "
         "model: -0.0460 [-0.1440, 0.0130], an interval that includes 0."),
        ((-0.046, -0.144, -0.013), "This model is behind the best Markov model by 0.0460 [0.01"),
        ((0.02, 0.01, 0.03), "This model is ahead of the best Markov model by 0.0200 [0.0100, "),
    ):  # fmt: skip
        difference = dict(zip(("value", "low", "high"), ahead, strict=True))
        told = meaning_of("heldout_likelihood", likelihood | {"ahead_of_best": difference})
        assert words in told and "worse" not in told
    recovery = sequence_recovery(model, train, test, 20, seed=0)
    told = meaning_of("sequence_recovery", recovery)
    assert f"reaches {recovery['markov'][recovery['best_markov_order']]['value']:.3f} here" in told
    assert "0.25 is chance" in told and "Carbon-8B 0.640" in told and "report" in told
    told = meaning_of("variant_auroc", {"value": 0.7, "markov_6": {"value": 0.6}})
    assert "0.5 is chance" in told and "reaches 0.600" in told


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
    assert overlap_clause(none) == "none of its 10 31-mers occurs in training records"
    short = overlap_with_train(["A" * 40], ["C" * 30])
    assert short["value"] is None and "too short" in overlap_clause(short)
    few = none | {"num_shared": 1, "num_kmers": 5000, "value": 1 / 5000}
    assert overlap_clause(few).startswith("less than 0.1% of its 31-mers also occur")
    assert "copies" in meaning_of("overlap_with_train", few)


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


def test_variants_are_asked_for_before_anything_is_loaded(capsys, tmp_path):
    words = ["heldout", "--model", "absent", "--corpus", "absent", "--output", f"{tmp_path}/out"]
    assert main([*words, "--tasks", "variant_auroc"]) == 2
    assert "give --vcf (scored) and --reference" in capsys.readouterr().err
    assert main([*words, "--tasks", "nothing"]) == 2
    assert "choose from sequence_recovery" in capsys.readouterr().err
    assert main(words) == 2
    assert "absent: no such model folder" in capsys.readouterr().err


def metrics_of(objectives):
    return [
        {"step": n, "tokens": 100 * n, "objective": objective, "nats_per_base": 1.4 - n / 100,
         "marginal_nats_per_base": 1.4 - n / 200}
        for n, objective in enumerate(objectives, start=1)
    ]  # fmt: skip


def test_the_report_says_when_a_model_does_not_beat_markov(tmp_path):
    estimate = {"value": 1.4, "low": 1.3, "high": 1.5, "num_samples": 9}
    behind = {"value": -0.1, "low": -0.2, "high": -0.05, "num_samples": 9}
    results = {
        "heldout_likelihood": estimate
        | {"num_bases": 100, "markov": [estimate] * 7, "resampled": "records"}
        | {"best_markov": "order_0", "share_ahead_of_best": estimate}
        | {"ahead_of_order_6": behind, "ahead_of_best": behind | {"high": 0.1}}
    }
    (tmp_path / "results.json").write_text(json.dumps(results))
    lines = [json.dumps(m) + "\n" for m in metrics_of(["ce"] * 30 + ["fns"] * 20)]
    (tmp_path / "metrics.jsonl").write_text("".join(lines))
    pages = []
    for name in ("a.html", "b.html"):
        write_report(
            tmp_path / name, title="T <x>", run=tmp_path, results=tmp_path / "results.json",
            generated=None,
        )  # fmt: skip
        pages.append((tmp_path / name).read_text())
    assert pages[0] == pages[1]
    opening = pages[0].split("<h2>")[0]
    assert "The model is behind the order-6 Markov model by 0.1000 [0.0500, 0.2000]." in opening
    assert "No difference is shown between the model and the best Markov model (order 0)" in opening
    assert "behind the best Markov model" not in pages[0]
    assert "how much of it also occurs in the training records was not measured" in opening
    assert "never read" not in opening
    results["heldout_likelihood"] |= {
        "best_markov": "codon_periodic",
        "others": {"codon_periodic": estimate},
        "ahead_of_best": {"value": -0.25, "low": -0.3, "high": -0.2},
        "share_ahead_of_best": estimate,
        "resampled": "genes",
    }
    results["overlap_with_train"] = overlap_with_train(["A" * 40], ["A" * 40 + "C" * 40])
    (tmp_path / "results.json").write_text(json.dumps(results))
    write_report(
        tmp_path / "c.html", title="", run=tmp_path, results=tmp_path / "results.json",
        generated=None,
    )  # fmt: skip
    opening = (tmp_path / "c.html").read_text().split("<h2>")[0]
    assert "is behind the best Markov model (codon periodic) by 0.2500 [0.2000, 0.3000]." in opening
    # Of the 50 31-mers the first 10 are all A.
    assert "20.0% of its 31-mers also occur in the training records (10 of 50)" in opening
    assert "<svg" in pages[0].split("<h2>In short")[0]  # the loss, where recovery has no picture
    assert "At step 31" in pages[0] and "<svg" in pages[0] and "T &lt;x&gt;" in pages[0]
    assert not any(word in pages[0] for word in ("src=", "<link", "<script", "@import"))


def test_what_a_report_lacks_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"metrics\.jsonl: no such file"):
        write_report(tmp_path / "r.html", title="", run=tmp_path, results=tmp_path, generated=None)
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"st')
    with pytest.raises(ConfigError, match=r"metrics\.jsonl line 2: is not valid JSON"):
        write_report(tmp_path / "r.html", title="", run=tmp_path, results=tmp_path, generated=None)
