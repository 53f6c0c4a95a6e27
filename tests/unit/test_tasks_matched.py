"""Matched variants by consequence: metrics against scikit-learn and by hand, and a random model."""

import json
from collections import Counter
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import average_precision_score

from carbon.errors import UserError
from carbon.finetune import nested
from carbon.finetune.nested import nested_probe
from carbon.model import save_model
from eval.__main__ import main
from eval.contract import Options
from eval.metrics import METRICS
from eval.models import CarbonModel
from eval.tasks import TASKS
from eval.tasks.common import matched
from eval.tasks.common.references import AnyName
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.tasks_build import write_listing

CHROMOSOMES = {name: random_bases(900, 10 + n) for n, name in enumerate(["1", "2", "3", "5", "X"])}


def rows(per_chromosome=32, subsets=("missense", "splicing")):
    """Return SNVs in the published columns, each second one a positive."""
    found = []
    for chrom, bases in CHROMOSOMES.items():
        for n in range(per_chromosome):
            at = 60 + 18 * n
            alt = "ACGT"["CGTA".index(bases[at])]
            found.append({
                "chrom": chrom, "pos": at + 1, "ref": bases[at], "alt": alt, "label": n % 2 == 0,
                "subset": subsets[n // 2 % len(subsets)], "match_group": n // 2,
                "mavedb_urn": "urn:1",
            })  # fmt: skip
    return found


@pytest.fixture
def few_fits(monkeypatch):
    """Choose between two strengths; that all are compared is held where probes are tested."""
    monkeypatch.setattr(nested, "LOGISTIC_C", (0.01, 0.1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("matched")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", CHROMOSOMES)
    pq.write_table(pa.Table.from_pylist(rows()), folder / "d.parquet")
    return folder


def asked(folder, name="mendelian_matched", table=None, **options):
    task = TASKS[name]
    table = task.read(folder / "d.parquet") if table is None else table
    options = Options(reference=folder / "r.fa", sizes={"window_bp": 60}, **options)
    return task.examples(table, options)


def toy_results():
    """Return results of two classes that count and one that does not; scores have ties."""
    random = np.random.default_rng(0)
    found = []
    for name, positives, controls in (("a", 30, 90), ("b", 40, 60), ("rare", 29, 200)):
        for n in range(positives + controls):
            label = int(n < positives)
            delta = float(np.round(-label + random.normal(), 1))
            found.append({
                "id": f"{name}{n}", "group": name, "set": name, "unit": f"{name} {n // 4}",
                "label": label, "minus_delta": -delta, "abs_delta": abs(delta), "score": -delta,
            })  # fmt: skip
    return found


def test_average_precision_and_macro_average_are_those_of_scikit_learn(few_resamples):
    results = toy_results()
    summary = matched.summarise(results, "minus_delta")
    expected = {
        score: {
            name: average_precision_score(
                [r["label"] for r in results if r["set"] == name],
                [r[score] for r in results if r["set"] == name],
            )
            for name in ("a", "b")
        }
        for score in ("minus_delta", "abs_delta")
    }
    for score, of_classes in expected.items():
        table = summary.groups[f"average precision by {score}"]
        assert {k: v.value for k, v in table.items()} == pytest.approx(of_classes)
    assert summary.value.value == pytest.approx(np.mean(list(expected["minus_delta"].values())))
    assert summary.others["abs_delta"].value == pytest.approx(
        np.mean(list(expected["abs_delta"].values()))
    )
    assert "rare is left out: 29 positives of 229" in summary.notes


def test_a_comparison_is_of_the_classes_that_the_headline_counts(few_resamples):
    """The report compares the results of a record, those of small classes among them."""
    results = toy_results()
    task = TASKS["mendelian_matched"]
    compared = METRICS[task.metric].of(results)(np.ones(len(results)))
    assert compared == pytest.approx(task.summarise(results).value.value)


def test_a_column_of_the_dataset_has_one_score(few_resamples):
    columns = [
        {name: value for name, value in result.items() if not name.endswith("_delta")}
        for result in toy_results()
    ]
    summary, of_model = (
        matched.summarise(results, "minus_delta") for results in (columns, toy_results())
    )
    assert summary.value == of_model.value
    assert list(summary.groups) == ["average precision by score"]
    assert not any("chosen beforehand" in note for note in summary.notes)


def test_the_interval_draws_match_groups_whole():
    """A tenth of the draws is as wide: groups of ten equal rows hold no more than one row each."""
    results = [r for r in toy_results() if r["set"] == "b"]
    copies = [{**r, "id": f"{r['id']}.{n}", "unit": r["id"]} for r in results for n in range(10)]
    singles = [{**r, "unit": r["id"]} for r in results]
    of_copies, of_singles = (
        matched.summarise(some, "minus_delta").value for some in (copies, singles)
    )
    assert of_copies.value == pytest.approx(of_singles.value)
    assert (of_copies.high - of_copies.low) == pytest.approx(
        of_singles.high - of_singles.low, rel=0.15
    )


def test_development_and_final_chromosomes_are_apart(folder):
    development = asked(folder)
    assert {e.data["columns"]["chrom"] for e in development} == {"1", "3", "5", "X"}
    table = pa.Table.from_pylist([{**r, "subset": "a"} for r in rows(46) for _ in range(2)])
    final = asked(folder, table=table, final=True)
    assert {e.data["columns"]["chrom"] for e in final} == {"2"}
    assert not matched.DEVELOPMENT & matched.FINAL


def test_variants_on_chromosomes_of_neither_set_are_counted(folder, capsys):
    listed = rows(46)
    listed += [{**listed[0], "chrom": name} for name in ("chrM", "HG1", "chrM")]
    assert len(asked(folder, table=pa.Table.from_pylist(listed))) == 4 * 46
    assert "3 variants are on no chromosome of either set, as on M (2), HG1 (1)" in (
        capsys.readouterr().err
    )


def ref_and_difference(variant):
    return [variant.ref, variant.alt - variant.ref]


def sum_and_size_of_difference(variant):
    """The same with both alleles exchanged."""
    return [variant.ref + variant.alt, abs(variant.alt - variant.ref)]


@pytest.mark.parametrize(
    ("name", "combined", "groups"),
    [
        ("mendelian_matched", ref_and_difference, ("missense", "splicing")),
        ("complex_matched", sum_and_size_of_difference, ("splicing",)),
    ],
)
def test_a_model_gives_every_score_and_the_probe_of_each_class(
    folder, model, few_fits, name, combined, groups
):
    examples = [example for example in asked(folder, name) if example.group in groups]
    assert all(a.together <= b.together for a, b in pairwise(examples))
    results = list(TASKS[name].run(CarbonModel(model, "m"), examples))
    assert [result["id"] for result in results] == [example.id for example in examples]
    reference = AnyName(folder / "r.fa")
    variants = [example.data["variant"] for example in examples]
    options = {"protocol": "centered", "window_bp": 60}
    scores = list(model.score_variants(reference, variants, **options))
    assert [r["minus_delta"] for r in results] == [-score.delta for score in scores]
    assert [r["abs_delta"] for r in results] == [abs(score.delta) for score in scores]
    headline = "abs_delta" if name == "complex_matched" else "minus_delta"
    assert [r["score"] for r in results] == [r[headline] for r in results]
    names = ("jsd", "embedding_distance")
    slow = list(model.score_variants(reference, variants, scores=names, **options))
    for score in names:
        assert [r.get(score) for r in results] == [getattr(each, score) for each in slow]
    for group in groups:
        of_class = [n for n, result in enumerate(results) if result["group"] == group]
        embedded = model.embed_variants(reference, [variants[n] for n in of_class], window_bp=60)
        features = np.stack([np.concatenate(combined(variant)) for variant in embedded])
        labels = np.array([results[n]["label"] for n in of_class])
        probe = nested_probe(features, labels, [results[n]["chrom"] for n in of_class])
        np.testing.assert_allclose([results[n]["probe"] for n in of_class], probe.scores)


def test_a_run_writes_every_score_and_its_record_of_before_the_option_final_resumes(
    folder, tmp_path, capsys, few_fits, few_resamples
):
    words = ["run", "--tasks", "complex_matched", "--model", f"m={folder}/model", "--reference",
             str(folder / "r.fa"), "--data", f"complex_matched={folder}/d.parquet", "--train",
             str(folder / "r.fa"), "--orders", "1", "--output", str(tmp_path)]  # fmt: skip
    assert main(words) == 0
    path = tmp_path / "complex_matched" / "m.json"
    record = json.loads(path.read_text())
    others = {"minus_delta", "jsd", "embedding_distance", "probe"}
    assert set(record["summary"]["others"]) == others
    assert "by abs_delta, which was chosen beforehand" in record["summary"]["notes"][0]
    chance = json.loads((tmp_path / "complex_matched" / "chance.json").read_text())
    assert set(chance["summary"]["others"]) == {"minus_delta"}  # it has no states for a probe
    del record["options"]["final"]
    path.write_text(json.dumps(record))
    before = path.stat().st_mtime_ns
    assert main([*words, "--resume"]) == 0 and path.stat().st_mtime_ns == before
    assert main([*words, "--resume", "--final"]) == 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda row: {**row, "chrom": "22"}, "has no variant on the chromosomes"),
        (lambda row: {**row, "label": False}, "only label 0"),
        (lambda row: {**row, "subset": row["chrom"] + str(row["match_group"] % 9)},
         "no class has 30 positives"),
    ],
)  # fmt: skip
def test_a_table_that_cannot_be_measured_is_refused(folder, change, message):
    with pytest.raises(UserError, match=message):
        asked(folder, table=pa.Table.from_pylist([change(row) for row in rows()]))


@pytest.mark.parametrize("name", ["mendelian_matched", "saturation_editing"])
def test_the_builder_writes_what_the_task_reads(folder, tmp_path, name):
    task, table, listing = TASKS[name], tmp_path / "o.parquet", tmp_path / "list.tsv"
    if name == "saturation_editing":  # each study is measured apart
        write_listing(listing, [{k: row[k] for k in row if k != "mavedb_urn"} for row in rows()])
        with pytest.raises(UserError, match="has no column 'mavedb_urn'"):
            task.build(table, table=listing, reference=folder / "r.fa")
    write_listing(
        listing, [{**row, "subset": ""} if not n else row for n, row in enumerate(rows())]
    )
    with pytest.raises(UserError, match="variant 1: has no subset"):
        task.build(table, table=listing, reference=folder / "r.fa")
    write_listing(listing, rows())
    assert task.build(table, table=listing, reference=folder / "r.fa").rows == len(rows())
    built = task.read(table)
    assert built["label"].to_pylist() == [int(row["label"]) for row in rows()]
    assert len(asked(folder, name, built)) == 4 * 32


def test_classes_without_a_probe_are_left_out_of_a_second_macro_average(few_resamples):
    results = [{**r, "probe": r["abs_delta"]} if r["set"] == "a" else r for r in toy_results()]
    summary = matched.summarise(results, "minus_delta")
    of_class = summary.groups["average precision by minus_delta"]
    both = summary.others["minus_delta, classes with a probe"]
    assert both.value == of_class["a"].value != summary.value.value
    every = [{**r, "probe": r["abs_delta"]} for r in toy_results()]
    assert "minus_delta, classes with a probe" not in matched.summarise(every, "minus_delta").others


def test_a_class_is_large_enough_by_study_and_by_what_is_scored(folder):
    """64 positives in two consequences; a study has 4 or 5 of each."""
    table = [{**row, "mavedb_urn": f"urn:{row['match_group']}"} for row in rows()]
    with pytest.raises(UserError, match="no class has 30 positives, the largest has 4"):
        asked(folder, "saturation_editing", pa.Table.from_pylist(table))
    table = [{**row, "alt": row["alt"] + "A"} if row["label"] else row for row in rows()]
    with pytest.raises(UserError, match="no class has 30 positives, the largest has 0"):
        asked(folder, table=pa.Table.from_pylist(table))


def test_fewer_samples_are_whole_match_groups(folder):
    examples = asked(folder, max_samples=125)
    units = Counter(example.data["columns"]["unit"] for example in examples)
    # Four chromosomes have 16 groups each of one name: 2 rows of a group on each of them.
    assert set(units.values()) == {8} and len(examples) == 120
    assert {example.id for example in examples} < {example.id for example in asked(folder)}
    other = asked(folder, max_samples=125, seed=2)
    assert {example.id for example in other} != {example.id for example in examples}


def test_variants_without_a_match_group_are_drawn_alone(folder):
    table = [{**row, "match_group": ""} for row in rows()]
    examples = asked(folder, "saturation_editing", pa.Table.from_pylist(table))
    assert len({example.data["columns"]["unit"] for example in examples}) == len(examples)
