"""Published tasks: files of the published formats are read, and every recipe is a run."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.cli import main
from carbon.errors import ConfigError, UserError
from carbon.finetune.config import DataConfig, SplitConfig, TaskConfig
from carbon.finetune.data import prepare
from carbon.finetune.readers import read_rows
from carbon.finetune.recipes import read_run, recipe_of, recipes
from carbon.finetune.tasks import TASK_TYPES, LabelTask
from eval.__main__ import main as eval_main
from tests.helpers.files import random_bases, write_fasta

GIVEN = ("model=m", "output=o")
FLANKS = ("TGCATTTTTTTCACATC", "GGTTACGGCTGTT")  # of the random promoters


def sequences(number, length_bp, seed):
    return [random_bases(length_bp, seed=1000 * seed + n) for n in range(number)]


def write_lines(path, rows, between="\t"):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(between.join(map(str, row)) + "\n" for row in rows))


def prepared(config):
    return prepare(config.data, config.task, 6)


def assign_splits(found):
    return {split: len(found.examples.split(split)) for split in ("train", "validation", "test")}


def test_the_nucleotide_transformer_suite_is_read(tmp_path):
    """One table with sequence, name, label and task."""
    splits = {"train": sequences(40, 30, 1), "test": sequences(10, 30, 2)}
    rows = [
        (sequence, f"chr1:{n}", n % 2, task, split)
        for split, found in splits.items()
        for n, sequence in enumerate(found)
        for task in ("promoter_all", "enhancers")
    ]
    names = ("sequence", "name", "label", "task", "split")
    table = dict(zip(names, zip(*rows, strict=True), strict=True))
    pq.write_table(pa.table(table), tmp_path / "all.parquet")
    more = (f"data.path={tmp_path}/all.parquet", "data.format=parquet")
    found = prepared(read_run("nt_promoter_all", (*GIVEN, *more)))
    counts = assign_splits(found)
    assert counts["test"] == 10 and counts["train"] + counts["validation"] == 40
    test = found.examples.split("test")
    assert test.sequences == tuple(splits["test"]) and test.labels[:, 0].tolist() == [0, 1] * 5
    assert "skip 50 rows" in found.notes[0]  # of the other task


def test_labels_in_the_names_of_a_fasta_are_read(tmp_path):
    """As in the first release of the suite: `>name|label`."""
    splits = {"train": sequences(40, 30, 1), "test": sequences(10, 30, 2)}
    for split, found in splits.items():
        write_fasta(tmp_path / f"{split}.fna", {f"EP{n}|{n % 2}": s for n, s in enumerate(found)})
    config = DataConfig(
        files={split: f"{split}.fna" for split in splits}, folder=str(tmp_path), label_after="|",
        split=SplitConfig(by="files", validation_share=0.1),
    )  # fmt: skip
    test = prepare(config, TaskConfig(type="binary"), 6).examples.split("test")
    assert test.sequences == tuple(splits["test"]) and test.labels[:, 0].tolist() == [0, 1] * 5
    write_fasta(tmp_path / "x.fa", {"a|1": "ACGT", "b": "ACGT"})
    with pytest.raises(UserError, match=r"'b' has no '\|' \(data.label_after\)"):
        read_rows(DataConfig(path=str(tmp_path / "x.fa"), label_after="|"), 6)


def test_deepstarr_is_read(tmp_path):
    """FASTA, and beside each a table in its order; both strands of a fragment are records."""
    for seed, split in enumerate(("Train", "Val", "Test")):
        found = sequences(8, 60, seed)
        write_fasta(tmp_path / f"Sequences_{split}.fa",
                    {f"chr2L_{n}_{n + 248}_+_peak": s for n, s in enumerate(found)})  # fmt: skip
        header = ("Dev_log2_enrichment", "Hk_log2_enrichment", "Dev_log2_enrichment_scaled")
        rows = [(n / 4 + seed, -n / 2, 0.0) for n in range(8)]
        write_lines(tmp_path / f"Sequences_activity_{split}.txt", [header, *rows])
    config = read_run("deepstarr", (*GIVEN, f"data.folder={tmp_path}"))
    found = prepared(config)
    test = found.examples.split("test")
    assert test.sequences == tuple(sequences(8, 60, 2))
    assert test.labels.tolist() == [[n / 4 + 2, -n / 2] for n in range(8)]
    assert found.task.names == ("Dev_log2_enrichment", "Hk_log2_enrichment")
    write_lines(tmp_path / "Sequences_activity_Val.txt", [header, *rows[:-1]])
    with pytest.raises(UserError, match=r"Sequences_Val.fa: has 8 sequences, and .*Val.txt 7 rows"):
        prepared(config)


def test_random_promoters_are_read(tmp_path):
    """Sequence and expression, no header; the flanks stand in the file."""
    whole = {p: [s.join(FLANKS) for s in sequences(n, 80, seed)]
             for seed, (p, n) in enumerate({"train": 120, "test": 5}.items())}  # fmt: skip
    names = {"train": "train_sequences", "test": "filtered_test_data_with_MAUDE_expression"}
    for split, found in whole.items():
        rows = [(s, n % 17 + (split == "test") / 8) for n, s in enumerate(found)]
        write_lines(tmp_path / f"{names[split]}.txt", rows)
    more = (f"data.folder={tmp_path}", "data.split.validation_share=0.2")
    config = read_run("dream_2022", (*GIVEN, *more))
    found = prepared(config)
    test = found.examples.split("test")
    assert [len(s) for s in test.sequences] == [110] * 5 and test.sequences == tuple(whole["test"])
    assert test.labels[:, 0].tolist() == [n + 0.125 for n in range(5)]
    assert sum(assign_splits(found).values()) == 125
    assert read_rows(config.data, 6).where(0).endswith("train_sequences.txt line 1")


def test_malinois_is_read(tmp_path):
    """Chromosomes are the parts, three numbers labels; large standard errors are passed over."""
    lines = ("K562", "HepG2", "SKNSH")
    header = ["IDs", "chr", "data_project", "OL", "class", *(f"{x}_log2FC" for x in lines),
              *(f"{x}_lfcSE" for x in lines), "sequence"]  # fmt: skip
    rows = []
    for n, sequence in enumerate(sequences(48, 50, 3)):
        errors = [0.2, "NA" if n == 5 else 0.3, 1.0 if n == 4 else 0.9]
        chrom = ("1", "2", "7", "13", "19", "21", "X", "22")[n % 8]
        values = (n / 8, -n / 8, n % 3)
        rows.append((f"id{n}", chrom, "UKBB", 27, "ref", *values, *errors, sequence))
    write_lines(tmp_path / "table.txt", [header, *rows])
    config = read_run("malinois", (*GIVEN, f"data.path={tmp_path}/table.txt"))
    found = prepared(config)
    # Rows 4 and 5 are of chromosomes 19 and 21: of 18 for validation 16 are left.
    assert assign_splits(found) == {"train": 18, "validation": 16, "test": 12}
    assert set(found.examples.split("test").groups) == {"7", "13"}
    assert found.examples.split("test").labels[0].tolist() == [2 / 8, -2 / 8, 2]
    assert "skip 2 rows" in found.notes[0]
    assert read_rows(config.data, 6).where(4).endswith("table.txt line 8")  # two rows are left out
    rows[3] = (*rows[3][:-2], "much", rows[3][-1])
    write_lines(tmp_path / "table.txt", [header, *rows])
    with pytest.raises(UserError, match=r"line 5: 'much' in column 'SKNSH_lfcSE' \(data.below\)"):
        prepared(config)


def test_every_recipe_is_a_run_with_figures_that_a_run_measures():
    for name, recipe in recipes().items():
        config = read_run(name, GIVEN)
        task = config.task
        is_number = TASK_TYPES[task.type].is_number
        num_columns = len(config.data.labels)
        rows = np.tile(np.arange(4.0)[:, None], (1, max(num_columns, 2)))
        labels = rows[:, :num_columns] if is_number else rows[:, :1] % 2
        names = config.data.labels if is_number else ("0", "1")
        validate, _ = LabelTask(task.type, tuple(names), "").statistics(rows, labels)
        for score, values in recipe.published.items():
            assert score in validate, (name, score)
            assert values and all(-1 < value < 1 for value in values.values()), name
        assert recipe.description and recipe.source and recipe.notes, name


def test_a_file_comes_before_a_recipe_and_a_mistyped_name_is_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'deepstarr'"):
        read_run("deepstar", GIVEN)
    with pytest.raises(ConfigError, match="deepstarr: model: is missing"):
        read_run("deepstarr")
    assert recipe_of("deepstarr") is recipes()["deepstarr"]
    (tmp_path / "deepstarr").write_text("output = 'o'\n")
    assert recipe_of("deepstarr") is None
    with pytest.raises(ConfigError, match="model: is missing"):
        read_run("deepstarr")


def test_a_recipe_runs_and_tells_the_published_figures(tmp_path, base, capsys, no_pages):
    for seed, (name, number) in enumerate({"train": 24, "dev": 8, "test": 8}.items()):
        rows = [(s, n % 2) for n, s in enumerate(sequences(number, 40, seed))]
        write_lines(tmp_path / f"{name}.csv", [("sequence", "label"), *rows], ",")
    command = ["finetune", "--config", "gue_prom_core_all"]
    for value in (f"model={base}", f"output={tmp_path}/out", f"data.folder={tmp_path}",
                  "method.name=probe", 'baselines=["constant"]'):  # fmt: skip
        command += ["--set", value]
    assert main(command) == 0
    notes = json.loads(capsys.readouterr().out)
    assert notes["published"]["mcc"]["DNABERT 3-mer"] == 0.7092


def test_the_list_of_tasks_has_the_recipes(capsys):
    assert eval_main(["list"]) == 0
    lines = capsys.readouterr().out
    assert all(f"carbon finetune --config {name})" in lines for name in recipes())
