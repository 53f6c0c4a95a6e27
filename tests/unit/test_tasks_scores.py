"""What the tasks make of a model: of one that knows, of one that does not, and of Carbon itself."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.errors import UserError
from carbon.genome import reverse_complement
from carbon.tokenizer import K
from eval import metrics
from eval.baselines import UniformModel
from eval.contract import Model, Options
from eval.models import CarbonModel
from eval.tasks import TASKS
from eval.tasks.common.building import Source
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.tasks import Oracle, clinvar_table, pairs_table, recovery_table, windows_table

GENOME = random_bases(24_000, seed=11)


@pytest.fixture(scope="module")
def fasta(tmp_path_factory):
    return write_fasta(tmp_path_factory.mktemp("genome") / "g.fa", {"7": GENOME})


@pytest.fixture(scope="module")
def haystacks(tmp_path_factory, fasta) -> pa.Table:
    task = TASKS["genomic_niah"]
    output = tmp_path_factory.mktemp("niah") / "n.parquet"
    task.build(output, sources=[Source("x", fasta)], context_length_tokens=[400], num_examples=20)
    return pq.read_table(output)


TABLES = {
    "clinvar_coding": lambda: clinvar_table("7", GENOME, 900, 600),
    "clinvar_noncoding": lambda: clinvar_table("7", GENOME, 900, 600),
    "sequence_recovery": lambda: recovery_table(150),
    "brca2": lambda: windows_table(900),
    "traitgym_mendelian": lambda: windows_table(1500, positive=0.1),
    "triplet_expansion": lambda: pairs_table(600),
    "synonymous_codons": lambda: pairs_table(600),
}
"""Enough rows for chance to be near its mean."""
NAMES = [*TABLES, "genomic_niah"]


def table_of(name: str, haystacks: pa.Table) -> pa.Table:
    return TABLES[name]() if name in TABLES else haystacks


def options_for(name: str, fasta) -> Options:
    return Options(reference=fasta if name.startswith("clinvar") else None)


def results_of(name: str, model: Model, table: pa.Table, options: Options) -> list[dict]:
    task = TASKS[name]
    examples = task.examples(table, options)
    results = list(task.run(model, examples))
    assert [result["id"] for result in results] == [example.id for example in examples]
    assert len({result["id"] for result in results}) == len(results)
    return results


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_knows_scores_one(name, haystacks, fasta, few_resamples):
    table = table_of(name, haystacks).slice(0, 100)
    results = results_of(name, Oracle(table), table, options_for(name, fasta))
    summary = TASKS[name].summarise(results)
    assert summary.value.value == 1.0
    assert summary.value.low == summary.value.high == 1.0
    assert all(estimate.value == 1.0 for t in summary.groups.values() for estimate in t.values())


BINARY = ("roc precision_recall", "auprc_trapezoid")
SHOWN = {
    "clinvar_coding": ("group", *BINARY),
    "clinvar_noncoding": ("group", *BINARY),
    "sequence_recovery": ("group group_base_mode", "recovery_by_position", "base_mode"),
    "brca2": ("", *BINARY),
    "traitgym_mendelian": ("consequence", "roc precision_recall", "auroc"),
    "triplet_expansion": ("group", "", ""),
    "synonymous_codons": ("group", "", ""),
    "genomic_niah": ("level context", "", "base_accuracy likelihood_correct"),
}
"""Groups, curves and other metrics of the report."""


@pytest.mark.parametrize("name", NAMES)
def test_a_model_that_knows_nothing_is_at_chance_and_the_report_has_what_it_needs(
    name, haystacks, fasta, few_resamples
):
    table = table_of(name, haystacks)
    task = TASKS[name]
    summary = task.summarise(results_of(name, UniformModel(), table, options_for(name, fasta)))
    chance = 0.1 if name == "traitgym_mendelian" else task.chance  # its table's share of positives
    assert summary.value.value == pytest.approx(chance, abs=0.04)
    if name == "genomic_niah":
        assert summary.value.value == 0
        assert summary.others["base_accuracy"].value == pytest.approx(0.25, abs=0.05)
    found = summary.groups, summary.curves, summary.others
    for shown, expected in zip(found, SHOWN[name], strict=True):
        assert set(expected.split()) <= set(shown)


@pytest.mark.parametrize(
    ("likelihoods", "scores"),
    [([0.0] * 4, [0.0, 0.0]), ([float("nan"), -1.0, -2.0, -3.0], [float("nan"), 1.0])],
)
def test_a_tie_is_a_miss_and_what_is_no_number_is_none(likelihoods, scores):
    class Said(UniformModel):
        def log_likelihoods(self, sequences):
            return np.array(likelihoods)

    results = results_of("triplet_expansion", Said(), pairs_table(2), Options())
    assert [result["score"] for result in results] == pytest.approx(scores, nan_ok=True)


def test_rows_of_one_uid_are_told_apart(haystacks):
    """Each configuration may count from 0."""
    rows = [row | {"uid": str(n % 20)} for n, row in enumerate(haystacks.to_pylist())]
    table = pa.Table.from_pylist(rows, schema=haystacks.schema)
    results = results_of("genomic_niah", Oracle(table), table, Options())
    assert len(results) == 80 and {r["group"] for r in results} == {"plain", "d4", "d2", "d1"}


def test_levels_of_one_haystack_are_drawn_together(haystacks):
    """A model that knows half of the values knows them on all four levels: 20 samples, not 80."""
    values = haystacks["value"].to_pylist()
    known = set(sorted(set(values))[::2])

    class Half(Oracle):
        def recall(self, prompt, length_bp, endings):
            value, likelihoods = super().recall(prompt, length_bp, endings)
            return (value if value in known else "A" * 24), likelihoods

    results = results_of("genomic_niah", Half(haystacks), haystacks, Options())
    found = TASKS["genomic_niah"].summarise(results)
    expected = 2 * 1.96 * 0.5 / np.sqrt(20)
    assert found.value.value == 0.5
    for estimate in (found.value, *found.groups["level"].values()):
        assert estimate.high - estimate.low == pytest.approx(expected, rel=0.15)
    # Rows of one level and value are drawn together too.
    copies = [{**result, "id": f"{n} {result['id']}"} for n in range(9) for result in results]
    for estimate in TASKS["genomic_niah"].summarise(copies).groups["level"].values():
        assert estimate.high - estimate.low == pytest.approx(expected, rel=0.15)


@pytest.fixture(scope="module")
def carbon(model) -> CarbonModel:
    return CarbonModel(model, "tiny")


def windows_in(sequences, carbon) -> np.ndarray:
    return carbon.log_likelihoods(list(sequences))


def test_clinvar_is_the_next_base_behind_the_context(carbon, fasta):
    """log(p(REF) / p(ALT)) after what fits of 96 bases, in whole 6-mers from the variant on."""
    table = clinvar_table("7", GENOME, 40, 25)
    options = Options(reference=fasta, sizes={"window_bp": 96})
    rows = {f"{n + 1}": row for n, row in enumerate(table.to_pylist())}
    results = results_of("clinvar_coding", carbon, table, options)
    for result in results:
        row = rows[result["id"].split(":")[0]]
        before_bp = min(96, row["pos"] - 1) // K * K
        prompt = GENOME[row["pos"] - 1 - before_bp : row["pos"] - 1]
        p = dict(zip("ACGT", carbon.next_base([prompt])[0], strict=True))
        expected = np.log(p[row["ref"]] / p[row["alt"]])
        assert result["score"] == pytest.approx(expected, abs=2e-5)
        assert result["label"] == row["label"]


@pytest.mark.parametrize(
    ("name", "turns"), [("brca2", (str,)), ("traitgym_mendelian", (str, reverse_complement))]
)
def test_scores_are_the_mean_difference_of_both_windows_in_full(carbon, name, turns):
    """Of the forward strand, or of both."""
    table = windows_table(30, window_bp=96, positive=0.3)
    results = results_of(name, carbon, table, Options(sizes={"window_bp": 96}))
    by_row = {int(result["id"].split(":")[0]) - 1: result["score"] for result in results}
    rows = table.to_pylist()
    expected = np.zeros(30)
    for turn in turns:
        expected += windows_in((turn(r["ref_seq"]) for r in rows), carbon)
        expected -= windows_in((turn(r["var_seq"]) for r in rows), carbon)
    assert [by_row[n] for n in range(30)] == pytest.approx(expected / len(turns), abs=2e-4)


@pytest.mark.parametrize(
    ("name", "metric", "protocol", "scores"),
    [
        ("brca2", "auroc", None, "abs_delta jsd embedding_distance"),
        ("traitgym_mendelian", "average_precision_by_chromosome", None,
         "abs_delta jsd embedding_distance"),
        ("clinvar_coding", "auroc", None, "abs_delta"),  # right_end compares no base after ALT
        ("clinvar_coding", "auroc", "tiled", "abs_delta jsd embedding_distance"),
    ],
)  # fmt: skip
def test_other_scores_stand_next_to_the_delta(
    carbon, fasta, few_resamples, name, metric, protocol, scores
):
    """The deltas have the bits of a pass for deltas alone; each score is measured by itself."""
    clinvar = name == "clinvar_coding"
    table = clinvar_table("7", GENOME, 40, 25) if clinvar else windows_table(40, window_bp=96)
    options = Options(
        reference=fasta if clinvar else None, protocol=protocol, sizes={"window_bp": 96}
    )
    results = results_of(name, carbon, table, options)
    examples = TASKS[name].examples(table, options)
    first, variants = examples[0].data, [example.data["variant"] for example in examples]
    deltas = carbon.deltas(first["reference"], variants, first["reading"])
    assert [result["score"] for result in results] == [-delta for delta in deltas]
    summary = TASKS[name].summarise(results)
    found = {n.partition(" by ")[2] for n in summary.others if n.startswith(f"{metric} by ")}
    assert found == set(scores.split())
    for score in found:
        ranked = [{**result, "score": result[score]} for result in results]
        cluster = TASKS[name].cluster
        assert summary.others[f"{metric} by {score}"] == metrics.estimate(ranked, metric, cluster)
    assert "the headline is by minus the delta, which was chosen beforehand" in summary.notes


def test_pairs_are_compared_by_their_likelihoods_in_full(carbon):
    table = pairs_table(20)
    results = results_of("synonymous_codons", carbon, table, Options())
    real, changed = (
        windows_in(table[name].to_pylist(), carbon) for name in ("original_sequence", "sequence")
    )
    found = [result["difference_nats"] for result in results]
    assert found == pytest.approx(real - changed, abs=2e-4)
    assert [result["score"] for result in results] == [float(d > 0) for d in found]


def niah_row(prompt: str, value: str, wrong: str, tokens: int) -> dict:
    return {"uid": "u", "prompt": prompt, "value": value, "negative_sequence": prompt + wrong,
            "context_length_tokens": tokens, "level": "plain"}  # fmt: skip


def test_a_haystack_is_read_once(carbon, read_tokens):
    """Prompt, 24 bases to recall and two endings: no token of the prompt goes in twice."""
    value, wrong = random_bases(24, seed=1), random_bases(24, seed=2)
    prompt = random_bases(60, seed=3) + value + random_bases(60, seed=4)
    table = pa.Table.from_pylist([niah_row(prompt, value, wrong, 60)])
    (result,) = results_of("genomic_niah", carbon, table, Options())
    read = list(read_tokens)
    prompt_tokens = 1 + len(prompt) // K
    value_tokens = len(value) // K
    assert max(read) == prompt_tokens and read.count(prompt_tokens) == 1
    assert sum(read) <= prompt_tokens + 3 * (value_tokens - 1)
    # The same by three readings in full.
    text = carbon.generate([prompt], 24)[0]
    likelihoods = carbon.log_likelihoods([prompt + value, prompt + wrong])
    assert result["margin_nats"] == pytest.approx(likelihoods[0] - likelihoods[1], abs=1e-4)
    assert result["score"] == float(text == value)
    assert result["base_accuracy"] == np.mean([a == b for a, b in zip(text, value, strict=True)])
    assert result["depth_percent"] == 25  # (60 - 24) of 144 bases


def test_a_prompt_of_just_the_context_loses_its_first_6_mers():
    """`<dna>` and the value take 1 + 4 of the tokens, so that 5 6-mers go."""
    value, wrong = random_bases(24, seed=1), random_bases(24, seed=2)
    full = random_bases(180, seed=3) + value + random_bases(36, seed=4)
    asked = []

    class Listener:
        @staticmethod
        def recall(prompt, length_bp, endings):
            asked.append(prompt)
            return value, np.zeros(2)

    task = TASKS["genomic_niah"]
    for tokens, lost_bp in ((len(full) // K, 30), (len(full) // K + 5, 0), (10, 0)):
        table = pa.Table.from_pylist([niah_row(full, value, wrong, tokens)])
        (example,) = task.examples(table, Options())
        list(task.run(Listener(), [example]))
        assert asked[-1] == full[lost_bp:] and example.needs_bp == len(full) - lost_bp + 24


@pytest.mark.parametrize(
    ("value", "wrong", "words"),
    [
        ("TTTTTTTT", "AAAAAAAA", "row 1: value must stand in prompt"),
        ("ACGTACGT", "AAAA", "row 1: value must stand in prompt"),
        ("", "", "row 1 value: is empty"),
    ],
)
def test_a_broken_haystack_is_named(value, wrong, words):
    task = TASKS["genomic_niah"]
    table = pa.Table.from_pylist([niah_row("ACGT" * 20, value, wrong, 20)])
    with pytest.raises(UserError, match=words):
        list(task.run(None, task.examples(table, Options())))
