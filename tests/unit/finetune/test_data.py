"""Files of every form give the same examples; what is refused is told."""

import gzip
import hashlib
import random
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from carbon.errors import ConfigError, UserError
from carbon.finetune.config import (
    METHODS,
    METHODS_OF_KEY,
    SPLITS,
    DataConfig,
    FinetuneConfig,
    MethodConfig,
    SplitConfig,
    TaskConfig,
)
from carbon.finetune.data import files_of, prepare, read_labels
from carbon.finetune.readers import read_rows
from carbon.genome import reverse_complement
from tests.helpers.files import random_bases, write_fasta, write_vcf

CONTIG = random_bases(2000, seed=1)
PLACES = [(60 * i, 60 * i + 50) for i in range(12)]
NAMES = [f"e{i}" for i in range(len(PLACES))]
SEQUENCES = [CONTIG[a:b] for a, b in PLACES]
LABELS = ["yes" if i % 3 else "no" for i in range(len(PLACES))]
ACTIVITY = [round(0.5 * i - 2, 2) for i in range(len(PLACES))]
COLUMNS = {"id": NAMES, "seq": SEQUENCES, "label": LABELS, "activity": ACTIVITY}
ASKED = {"sequence": "seq", "name": "id", "labels": ("label",)}


def write_text(path, between, columns=COLUMNS):
    rows = [columns, *zip(*columns.values(), strict=True)]
    text = "".join(between.join(map(str, row)) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return str(path)


def csv_config(folder):
    return DataConfig(path=write_text(folder / "x.csv", ","), **ASKED)


def packed_tsv_config(folder):
    return DataConfig(path=write_text(folder / "x.tsv.gz", "\t"), **ASKED)


def parquet_config(folder):
    pq.write_table(pa.table(COLUMNS), folder / "x.parquet")
    return DataConfig(path=str(folder / "x.parquet"), **ASKED)


def datasets_config(folder):
    import datasets

    datasets.Dataset.from_dict(COLUMNS).save_to_disk(folder / "set")
    return DataConfig(path=str(folder / "set"), **ASKED)


def fasta_config(folder):
    order = random.Random(0).sample(range(len(NAMES)), len(NAMES))
    write_fasta(folder / "x.fa", {NAMES[i]: SEQUENCES[i] for i in order} | {"more": "ACGT"})
    table = write_text(folder / "t.tsv", "\t", {k: COLUMNS[k] for k in ("id", "label")})
    return DataConfig(path=str(folder / "x.fa"), table=table, name="id", labels=("label",))


def bed_config(folder):
    write_fasta(folder / "ref.fa", {"chr1": CONTIG})
    lines = [
        f"1\t{a}\t{b}\t{name}\t0\t+\t{label}\n"
        for (a, b), name, label in zip(PLACES, NAMES, LABELS, strict=True)
    ]
    header = "#chrom\tstart\tend\tid\tscore\tstrand\tlabel\n"
    (folder / "x.bed").write_text(header + "".join(lines))
    return DataConfig(
        path=str(folder / "x.bed"), reference=str(folder / "ref.fa"), contigs="chr", name="id"
    )


@pytest.mark.parametrize(
    "config_of",
    [csv_config, packed_tsv_config, parquet_config, datasets_config, fasta_config, bed_config],
)  # fmt: skip
def test_every_form_gives_the_same_examples(config_of, tmp_path):
    rows = read_rows(config_of(tmp_path), 6)
    assert list(rows.names) == NAMES
    assert [sequence.upper() for sequence in rows.sequences] == SEQUENCES
    answers = read_labels(rows, TaskConfig(type="binary"), ("",))
    assert answers.names == ("no", "yes")
    assert answers.labels[:, 0].tolist() == [float(i % 3 > 0) for i in range(len(NAMES))]
    assert str(tmp_path) in rows.where(3)


def test_tables_keep_their_types_and_their_lines(tmp_path):
    for config_of in (csv_config, parquet_config):
        config = config_of(tmp_path).replace(labels=("activity",))
        answers = read_labels(read_rows(config, 6), TaskConfig(type="numbers"), ())
        assert answers.labels[:, 0].tolist() == ACTIVITY
    assert read_rows(csv_config(tmp_path), 6).where(0).endswith("x.csv line 2")


def test_rows_are_kept_and_split_by_the_text_of_numbers_and_booleans(tmp_path):
    table = pa.table({
        "sequence": ["ACGT", "ACGG", "ACGC"], "label": [0, 1, 0],
        "fold": [1.0, 2.0, 1.5], "used": [True, False, True],
    })  # fmt: skip
    pq.write_table(table, tmp_path / "x.parquet")
    config = DataConfig(path=str(tmp_path / "x.parquet"))
    for keep, expected in (
        ({"fold": ("1", "1.5")}, ["ACGT", "ACGC"]),
        ({"used": ("true",)}, ["ACGT", "ACGC"]),
        ({"used": ("false",), "fold": ("2",)}, ["ACGG"]),
    ):
        assert list(read_rows(config.replace(keep=keep), 6).sequences) == expected
    for column, texts in (("fold", ["1", "2", "1.5"]), ("used", ["true", "false", "true"])):
        split = SplitConfig(by="group", column=column)
        assert read_rows(config.replace(split=split), 6).columns == {column: texts}


def test_labels_of_every_base_of_a_bed_run_along_the_strand(tmp_path):
    write_fasta(tmp_path / "ref.fa", {"chr1": "AACCC"})
    (tmp_path / "x.bed").write_text("chr1\t0\t5\ta\t0\t-\tgggtt\n")
    config = DataConfig(
        path=str(tmp_path / "x.bed"), reference=str(tmp_path / "ref.fa"), labels=("7",)
    )
    rows = read_rows(config, 6)
    assert list(rows.sequences) == ["GGGTT"] and rows.labels["7"] == ["gggtt"]


def test_a_row_may_be_of_millions_of_bases(tmp_path):
    columns = {"sequence": ["ACGT" * 700_000, "A"], "label": [0, 1]}
    for name, between in (("x.csv", ","), ("x.tsv.gz", "\t")):
        rows = read_rows(DataConfig(path=write_text(tmp_path / name, between, columns)), 6)
        assert [len(sequence) for sequence in rows.sequences] == [2_800_000, 1]


def test_places_of_the_reverse_strand_and_windows(tmp_path):
    write_fasta(tmp_path / "ref.fa", {"chr1": CONTIG})
    bed = tmp_path / "x.bed"
    bed.write_text(
        "chr1\t100\t151\ta\t0\t-\t1\nchr1\t0\t11\tb\t0\t+\t0\nchr1\t1990\t2000\tc\t0\t.\t1\n"
    )
    config = DataConfig(path=str(bed), reference=str(tmp_path / "ref.fa"), labels=("7",), name="4")
    rows = read_rows(config, 6)
    assert rows.sequences[0] == reverse_complement(CONTIG[100:151])
    assert rows.labels["7"] == ["1", "0", "1"] and rows.contigs == ["chr1"] * 3
    windows = read_rows(config.replace(window_bp=20), 6).sequences
    # The middle of 100 to 151 is 125; of 0 to 11, 5, and the contig begins at 0.
    expected = [reverse_complement(CONTIG[115:135]), CONTIG[0:15], CONTIG[1985:2000]]
    assert windows == expected


def test_a_vcf_gives_the_window_with_each_alt_in_it(tmp_path):
    contig = "A" * 50 + "CGT" + "T" * 47
    write_fasta(tmp_path / "ref.fa", {"chr1": contig})
    info = (
        '##INFO=<ID=EFFECT,Number=A,Type=Float,Description="e">\n'
        '##INFO=<ID=BAD,Number=0,Type=Flag,Description="b">\n'
        "##contig=<ID=chr1,length=100>\n"
    )
    records = [
        "chr1\t51\t.\tC\tG,CAA\t.\t.\tEFFECT=0.5,-2;BAD",
        "chr1\t52\t.\tGT\tG\t.\t.\tEFFECT=1",
        "chr1\t53\t.\tT\t<DEL>\t.\t.\tEFFECT=1",
    ]
    path = str(write_vcf(tmp_path / "x.vcf", records, info))
    config = DataConfig(
        path=path, reference=str(tmp_path / "ref.fa"), labels=("EFFECT", "BAD"), window_bp=10,
        variant_input="alt",
    )  # fmt: skip
    rows = read_rows(config, 6)
    # Five bases before, then ALT, then what fits.
    assert rows.sequences == ["AAAAAGGTTT", "AAAAACAAGT", "AAAACGTTTT"]
    assert rows.labels == {"EFFECT": ["0.5", "-2", "1"], "BAD": ["1", "1", "0"]}
    assert rows.names == ["chr1:51 C>G", "chr1:51 C>CAA", "chr1:52 GT>G"]
    assert rows.notes == (
        f"{path}: 1 alleles are skipped: not a sequence of ACGT, or longer than half of the "
        "window.",
    )
    with pytest.raises(UserError, match=r"has no column 'EFECT' .*did you mean 'EFFECT'"):
        read_rows(config.replace(labels=("EFECT",)), 6)
    with pytest.raises(UserError, match=r"give data\.window_bp"):
        read_rows(config.replace(window_bp=0), 6)


def test_files_and_splits_of_datasets_are_parts(tmp_path):
    import datasets

    files, sets = {}, {}
    for number, split in enumerate(SPLITS):
        chosen = {k: v[4 * number : 4 * number + 4] for k, v in COLUMNS.items()}
        files[split] = write_text(tmp_path / f"{split}.csv", ",", chosen)
        sets["dev" if split == "validation" else split] = datasets.Dataset.from_dict(chosen)
    datasets.DatasetDict(sets).save_to_disk(tmp_path / "set")
    asked = {"sequence": "seq", "labels": ("label",)}
    config = DataConfig(files=files, split=SplitConfig(by="files"), **asked)
    found = prepare(config, TaskConfig(type="binary"), 6)
    by_column = SplitConfig(by="column", column="split")
    other = prepare(
        DataConfig(path=str(tmp_path / "set"), split=by_column, **asked),
        TaskConfig(type="binary"),
        6,
    )
    for each in (found, other):
        assert each.examples.splits == ("train",) * 4 + ("validation",) * 4 + ("test",) * 4
        assert each.examples.split("test").sequences == tuple(SEQUENCES[8:])
    assert found.split_sha256 == other.split_sha256


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        (("acgtn", "RYSWK", "ACGTt", "ttttt"), ("ACGTN", "RYSWK", "ACGTT", "TTTTT")),
        (("ACGUu", "uuGGU"), ("ACGTT", "TTGGT")),  # RNA as its DNA
    ],
)
def test_letters_of_every_case_and_code_are_taken(tmp_path, read, expected):
    rests = [random_bases(40, seed=i) for i in range(20)]
    sequences = [read[i % len(read)] + rest for i, rest in enumerate(rests)]
    path = write_text(tmp_path / "y.csv", ",", {"sequence": sequences, "label": range(20)})
    split = SplitConfig(by="random", validation_share=0.3, test_share=0.3, seed=3)
    found = prepare(DataConfig(path=path, split=split), TaskConfig(type="numbers"), 6).examples
    assert list(found.sequences) == [expected[i % len(read)] + x for i, x in enumerate(rests)]


def test_a_protein_of_letters_of_dna_is_refused_as_when_it_is_predicted(tmp_path):
    sequences = [random_bases(40, seed=1), "MAVSKVYARSVYDSRGN"]
    path = write_text(tmp_path / "y.csv", ",", {"sequence": sequences, "label": [0, 1]})
    with pytest.raises(UserError, match=r"y\.csv line 3: 13 of 17 letters .* a protein\?"):
        prepare(DataConfig(path=path), TaskConfig(type="binary"), 6)


@pytest.mark.parametrize("labels", ["001100", "0 0 1 1 0 0", [0, 0, 1, 1, 0, 0]])
def test_a_label_of_every_base(tmp_path, labels):
    columns = {"sequence": [random_bases(6, seed=i) for i in range(4)], "label": [labels] * 4}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    config = DataConfig(path=str(tmp_path / "b.parquet"), split=SplitConfig(folds=3, seed=2))
    found = prepare(config, TaskConfig(type="bases", class_weights="balanced"), 6)
    assert found.examples.labels.shape == (24, 1) and found.task.names == ("0", "1")
    assert found.examples.labels[:6, 0].tolist() == [0, 0, 1, 1, 0, 0]
    assert found.task.class_weights == pytest.approx((0.75, 1.5))  # 6 / (2 x 4), 6 / (2 x 2)
    test = found.examples.split("test")
    assert len(test.labels) == sum(map(len, test.sequences)) and test.per_base


MANY = {
    "sequence": [random_bases(50, seed=i) for i in range(60)],
    "label": ["a", "b", "c"] * 20,
    "y": [str(i) for i in range(60)],
}


@pytest.mark.parametrize(
    ("columns", "data", "task", "message"),
    [
        (MANY, {}, {"names": ("a", "b")}, r"line 4: label 'c'"),
        (MANY, {}, {"names": ("a", "b", "c", "d")}, r"class 'd' has 0 examples"),
        (MANY | {"y": ["1"] * 59 + ["inf"]}, {"labels": ("y",)}, {"type": "numbers"}, "'inf'"),
        (MANY | {"y": ["1"] * 60}, {"labels": ("y",)}, {"type": "numbers"}, "train"),
        (MANY, {"labels": ("y",)}, {"type": "labels"}, r"line 4: '2' .* is not 0 or 1"),
        (MANY, {"labels": ("label", "y")}, {}, "one column"),
        (MANY, {"split": SplitConfig(by="column", column="part")}, {}, "no column 'part'"),
        (MANY, {"sequence": "a\nb"}, {}, r"no column 'a\\nb'"),
    ],
)  # fmt: skip
def test_wrong_labels_are_told_in_one_line(tmp_path, columns, data, task, message):
    path = write_text(tmp_path / "x.csv", ",", columns)
    with pytest.raises(UserError) as error:
        prepare(DataConfig(path=path, **data), TaskConfig(**{"type": "classes"} | task), 6)
    assert re.search(message, str(error.value)), str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.csv", "sequence,label\n", "has no example"),
        ("x.csv", "sequence,label\nACGT,1,2\n", "CSV parse error"),
        ("x.csv", "sequence,label,label\nA,1,1\n", "column 'label' occurs 2 times"),
        ("x.csv", 'sequence,"a\tb"\nA,1\n', "line breaks, tabs or other characters"),
        ("x.parquet", "PAR1", "not a whole Parquet file"),
        ("none", None, "datasets cannot read it"),
    ],
)
def test_broken_files_are_told_in_one_line(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError) as error:
        read_rows(DataConfig(path=str(tmp_path / name)), 6)
    assert f"{name}: " in str(error.value) and message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_row_without_a_sequence_in_the_fasta(tmp_path):
    config = fasta_config(tmp_path)
    write_fasta(tmp_path / "x.fa", {"e0": "ACGT"})
    with pytest.raises(UserError, match=r"t.tsv line 3: no sequence 'e1' in .*x.fa"):
        read_rows(config, 6)


TABLE = {"model": "m", "output": "o", "data": {"path": "x"}, "task": {"type": "numbers"}}


def test_the_defaults_of_a_method():
    """The other defaults are in tests/golden/defaults."""
    ways = [MethodConfig(name=name).resolved() for name in METHODS]
    assert [method.learning_rate for method in ways] == [None, 3e-4, 5e-5]
    assert [method.batch for method in ways] == [None, 32, 32]
    assert [method.epochs for method in ways] == [None, 8, 5]
    assert [method.alpha for method in ways] == [None, 16, None]
    assert set(METHODS_OF_KEY) < set(MethodConfig.model_fields)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"data": {}}, "either path, or files"),
        ({"task": {"type": "binary", "loss": "mse"}}, "binary_cross_entropy"),
        ({"data": {"path": "x", "split": {"by": "group"}}}, "column"),
        ({"data": {"path": "x", "split": {"folds": 2}}}, "folds: 2: give 0, or 3"),
        ({"data": {"path": "x", "split": {"by": "column", "column": "c", "folds": 3}}}, "folds"),
        ({"task": {"type": "numbers", "class_weights": "balanced"}}, "class_weights"),
        ({"data": {"path": "x.fa", "table": "t", "label_after": "|"}}, "label_after"),
        ({"data": {"path": "x.fa", "tables": {"train": "t"}}}, "tables"),
        ({"task": {"type": "tracks", "calibration": "platt"}}, "calibration: tracks have no"),
        ({"data": {"path": "x", "tracks": {"a": "a.bw"}}}, "set it to 'tracks'"),
        ({"data": {"path": "x", "split": {"by": "homology", "column": "c"}}}, "takes? out column"),
        ({"search": {"data.path": ["a", "b"]}}, "search.data.path: give keys of method"),
        ({"search": {"method.rank": []}}, "method.rank: expected one or more"),
    ],
)
def test_what_does_not_go_together(wrong, message):
    with pytest.raises(ConfigError, match=message):
        FinetuneConfig.from_table(TABLE | wrong, "x.toml")


def test_the_configuration_of_the_page_is_one():
    page = (Path(__file__).parents[3] / "docs/finetuning.md").read_text()
    text, search = re.findall("```toml\n(.*?)```", page, re.DOTALL)
    config = FinetuneConfig.from_table(tomllib.loads(text + search), "finetuning.md")
    assert config.data.split.column == "gene"
    assert len(config.trials()) == 6  # three rates, two ranks
    assert config.trials()[1] == {"method.learning_rate": 1e-4, "method.rank": 16}


def test_torch_is_not_loaded_to_read_a_configuration_or_data():
    code = "import sys, carbon.finetune.data; assert not {'torch', 'sklearn'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_hashes_of_the_files_that_were_read(tmp_path):
    (tmp_path / "a.fa").write_bytes(b"one")
    (tmp_path / "b.tsv").write_bytes(b"two")
    found = files_of(DataConfig(path=str(tmp_path / "a.fa"), table=str(tmp_path / "b.tsv")))
    names = [(each["role"], each["name"]) for each in found]
    assert names == [("data", "a.fa"), ("table", "b.tsv")]
    assert found[0]["sha256"] == hashlib.sha256(b"one").hexdigest()
    within = DataConfig(folder=str(tmp_path), path="a.fa", table="b.tsv", reference="no.fa")
    assert files_of(within) == found
    splits = dict.fromkeys(("train", "test"), "a.fa")
    split = DataConfig(folder=str(tmp_path), files=splits, tables=dict.fromkeys(splits, "b.tsv"),
                       split=SplitConfig(by="files"))  # fmt: skip
    assert [each["role"] for each in files_of(split)] == [
        "train", "test", "table of train", "table of test",
    ]  # fmt: skip
    assert files_of(DataConfig(path="an/id-of-the-hub")) == ()
    (tmp_path / "set/train").mkdir(parents=True)
    (tmp_path / "set/train/0.arrow").write_bytes(b"one")
    (folder,) = files_of(DataConfig(path=str(tmp_path / "set")))
    line = f"{hashlib.sha256(b'one').hexdigest()}  train/0.arrow"  # as sha256sum writes it
    assert folder["sha256"] == hashlib.sha256(line.encode()).hexdigest()
