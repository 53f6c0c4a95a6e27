"""Datasets of the tasks: how they are read, and what is said of those that are broken."""

import os

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from carbon.errors import GenomeError, UserError
from carbon.genome import GENETIC_CODE, Interval, Reference
from carbon.genome.codon_usage import favourites, read_codon_usage
from eval.baselines import UniformModel
from eval.contract import Model, Options
from eval.data import find_data, identity_of
from eval.tables import drawn, files_of, load
from eval.tasks import TASKS
from eval.tasks.common.recovery import hits_of
from eval.tasks.common.references import AnyName, Windows
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.tasks import OTHER, clinvar_table, pairs_table, recovery_table, windows_table


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def written(table: pa.Table, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path)
    return path


def without(table: pa.Table, *columns: str) -> pa.Table:
    return table.drop_columns(list(columns))


def changed(table: pa.Table, row: int, **values) -> pa.Table:
    rows = table.to_pylist()
    rows[row] |= values
    return pa.Table.from_pylist(rows, schema=table.schema)


def test_a_file_and_a_folder_are_read(tmp_path):
    table = recovery_table(6)
    path = written(table, tmp_path / "data" / "a.parquet")
    written(table.slice(0, 2), tmp_path / "data" / "b.parquet")
    task = TASKS["sequence_recovery"]
    assert task.read(path).to_pylist() == table.to_pylist()
    assert task.read(str(tmp_path / "data")).num_rows == 8


def test_every_cell_of_niah_is_asked_for(monkeypatch):
    asked = []
    row = {"uid": "u", "prompt": "A", "value": "C", "negative_sequence": "AG"}

    def load_dataset(path, **which):
        asked.append(which["name"])
        return datasets.Dataset(pa.table({k: [v] for k, v in row.items()} | {
            "context_length_tokens": [4096], "extra": [1]}))  # fmt: skip

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    table = TASKS["genomic_niah"].read("HuggingFaceBio/genome-niah")
    assert len(asked) == 24 and {"niah_4k", "niah_128k", "niah_neardup_d1_64k"} <= set(asked)
    assert table["level"].to_pylist() == ["plain"] * 6 + ["d4"] * 6 + ["d2"] * 6 + ["d1"] * 6


SYNONYMOUS = [f"perturbation-bench/syn_{species}/test-0.parquet" for species in ("human", "mouse")]


@pytest.mark.parametrize(
    ("name", "table", "files"),
    [
        ("brca2", windows_table(4), ["brca2-vep/brca2_vep.parquet"]),
        ("synonymous_codons", pairs_table(3), SYNONYMOUS),
    ],
)
def test_copies_of_published_datasets_are_found_in_a_folder(tmp_path, name, table, files):
    """As they lie on the Hub, in the folder itself or in one of the dataset's name."""
    paths = [written(table, tmp_path / "[all]" / file) for file in files]
    for folder in (tmp_path / "[all]", *([] if name == "brca2" else [paths[0].parents[1]])):
        place = find_data(TASKS[name], {"": str(folder)})
        assert place is not None and files_of(place) == paths
        assert TASKS[name].read(place).num_rows == len(files) * table.num_rows
        assert len(identity_of(place).split()) == len(files)
    assert find_data(TASKS["clinvar_coding"], {"": str(tmp_path / "[all]")}) is None


def test_the_level_of_niah_is_that_of_the_folder(tmp_path):
    row = {"uid": "u", "prompt": "A", "value": "C", "negative_sequence": "AG"}
    table = pa.Table.from_pylist([row | {"context_length_tokens": 4096}])
    for name in ("niah_4k", "niah_neardup_d2_4k"):
        written(table, tmp_path / "genome-niah" / name / "test-0.parquet")
    place = find_data(TASKS["genomic_niah"], {"": str(tmp_path)})
    assert sorted(TASKS["genomic_niah"].read(place)["level"].to_pylist()) == ["d2", "plain"]


def test_what_cannot_be_read_is_said_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "bad.parquet").write_text("no parquet")
    (tmp_path / "hollow").mkdir()
    written(pairs_table(0), tmp_path / "empty.parquet")
    os.mkfifo(tmp_path / "pipe.parquet")
    written(pa.table({"text": ["ACGT"], "more": [1]}), tmp_path / "other.parquet")
    typed = pairs_table(1).set_column(0, "original_sequence", [[1]])
    written(typed, tmp_path / "typed.parquet")
    written(changed(pairs_table(2), 1, sequence=None), tmp_path / "gap.parquet")
    for name, words in (
        ("bad.parquet", "cannot be read as a dataset"),
        ("absent.parquet", "no such file"),
        ("empty.parquet", "has no row"),
        ("hollow", "no Parquet file"),
        ("pipe.parquet", "is not a regular file"),
        ("other.parquet", "'original_sequence'.*it has 'text', 'more'"),
        ("typed.parquet", "column 'original_sequence' is int64; it must be str"),
        ("gap.parquet", "row 2: has no 'sequence'"),
    ):
        with pytest.raises(UserError, match=words) as raised:
            TASKS["triplet_expansion"].read(tmp_path / name)
        assert "\n" not in str(raised.value)

    def load_dataset(name, **which):
        raise ConnectionError("no route\nto host")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(UserError, match=r"a/b: cannot be read as a dataset \(no route\)"):
        load("a/b", "a/b")


@given(st.integers(1, 60), st.integers(0, 80), st.integers(0, 3))
def test_drawn_rows_follow_from_the_seed(num_rows, most, seed):
    chosen = drawn(num_rows, most, seed)
    assert chosen == sorted(set(chosen)) and len(chosen) == min(num_rows, most)
    assert set(chosen) <= set(range(num_rows))
    # More samples are the fewer and others.
    assert set(chosen) <= set(drawn(num_rows, most + 5, seed))
    assert drawn(num_rows, None, seed) == list(range(num_rows))
    assert drawn(100, 10, seed) != drawn(100, 10, seed + 1)


@pytest.mark.parametrize(
    ("name", "table", "words"),
    [
        ("sequence_recovery", changed(recovery_table(2), 1, label="ACGT"), "row 2: label has 4"),
        ("sequence_recovery", changed(recovery_table(2), 1, sequence="ACG"), "row 2: sequence"),
        ("sequence_recovery", changed(recovery_table(2), 1, label="ACG!" * 32), "row 2 label: '!'"),
        ("synonymous_codons", changed(pairs_table(2), 1, sequence="!" * 90), "row 2 sequence: '!'"),
        ("triplet_expansion", changed(pairs_table(2), 0, sequence="AC"), "row 1.*90.*2"),
        ("brca2", changed(windows_table(9), 4, ref_seq="ACGT"), "row 5: .*not of one length"),
        ("brca2", changed(windows_table(9), 4, alt="N"), "row 5: is .>N, but"),
        ("traitgym_mendelian", windows_table(9, positive=0), "only label 0"),
        ("traitgym_mendelian", changed(windows_table(9), 4, label=7), "row 5: label 7"),
        ("brca2", changed(windows_table(2), 0, **{"class": "VUS"}), "1 variants with only label"),
    ],
)
def test_broken_rows_are_named(name, table, words):
    with pytest.raises(UserError, match=words):
        list(TASKS[name].run(UniformModel(), TASKS[name].examples(table, Options())))


def test_clinvar_needs_the_right_genome(tmp_path):
    """One REF of few may disagree; more of 40 are another assembly."""
    bases = random_bases(900, seed=5)
    task, table = TASKS["clinvar_coding"], clinvar_table("7", bases, 40, 200)
    with pytest.raises(UserError, match="--reference"):
        task.examples(table, Options())
    options = Options(reference=write_fasta(tmp_path / "g.fa", {"chr7": bases}))
    assert len(task.examples(table, options)) == 40
    other = Options(reference=write_fasta(tmp_path / "o.fa", {"8": bases}))
    with pytest.raises(GenomeError, match="no contig '7'"):
        task.examples(table, other)
    for number in (3, 4):
        ref = table["ref"][number].as_py()
        table = changed(table, number, ref=OTHER[ref], alt=ref)
        if number == 3:
            (skipped,) = (e for e in task.examples(table, options) if e.data["skip"])
            assert skipped.data["skip"] == "REF is not in the reference"
    with pytest.raises(GenomeError, match=r"2 of 40 variants disagree.*assembly"):
        task.examples(table, options)


def test_single_rows_that_do_not_fit_are_skipped_with_a_reason(tmp_path):
    bases = random_bases(900, seed=5)
    fasta = write_fasta(tmp_path / "g.fa", {"7": bases})
    task = TASKS["clinvar_coding"]
    table = clinvar_table("7", bases, 200, 200)
    table = changed(table, 3, ref="T" if bases[209] != "T" else "A")
    table = changed(table, 9, ref=bases[227:229], alt="A")

    class Zero(Model):
        def deltas(self, reference, variants, reading):
            assert reading == ("right_end", 96, "forward")
            return [0.5] * len(variants)

    options = Options(reference=fasta, sizes={"window_bp": 96})
    results = list(task.run(Zero(), task.examples(table, options)))
    skipped = {result["id"].split(":")[0]: result["skipped"] for result in results
               if "skipped" in result}  # fmt: skip
    assert skipped == {"4": "REF is not in the reference", "10": "is not a single-base change"}
    assert {result["score"] for result in results if "score" in result} == {-0.5}


def test_one_region_is_kept(tmp_path):
    table = clinvar_table("7", random_bases(900), 6, 10)
    regions = ["coding", "non_coding", "coding", "Noncoding", "coding", "coding"]
    path = written(table.append_column("region", pa.array(regions)), tmp_path / "c.parquet")
    assert TASKS["clinvar_coding"].read(path).num_rows == 4
    assert TASKS["clinvar_noncoding"].read(path).num_rows == 2
    alone = written(without(table, "variant_type"), tmp_path / "alone" / "a.parquet")
    assert TASKS["clinvar_noncoding"].read(alone).num_rows == 6
    other = table.append_column("region", pa.array(["mito"] * 6))
    with pytest.raises(UserError, match="no row of region 'coding', but of mito"):
        TASKS["clinvar_coding"].read(written(other, tmp_path / "o" / "o.parquet"))


def test_either_name_of_a_contig_is_read(tmp_path):
    bases = {"chr1": random_bases(50), "chrM": random_bases(40, seed=1)}
    with AnyName(write_fasta(tmp_path / "g.fa", bases)) as reference:
        for name, contig in (("1", "chr1"), ("chr1", "chr1"), ("MT", "chrM"), ("chrM", "chrM")):
            assert reference.fetch(Interval(name, 3, 20)) == bases[contig][3:20]
            assert reference.contig_lengths_bp[name] == len(bases[contig])


def test_windows_read_as_contigs():
    table = pa.table({"ref_seq": pa.chunked_array([["ACGT", "GGGTT"], ["ACGT"]])})
    windows = Windows(table, "ref_seq")
    assert windows.names == ["window-1", "window-2", "window-1"]
    assert windows.contig_lengths_bp == {"window-1": 4, "window-2": 5}
    assert windows.fetch(Interval("window-2", 1, 4)) == "GGT"
    assert windows.fetch(Interval("window-1", 0, 4)) == "ACGT"
    assert isinstance(windows, Reference)
    for wrong in (Interval("window-3", 0, 1), Interval("window-1", 0, 5)):
        with pytest.raises(GenomeError, match="not in the windows"):
            windows.fetch(wrong)


USAGE = [f"{aa},{codon.replace('T', 'U')},0.5" for codon, aa in sorted(GENETIC_CODE.items())]
USAGE_HEADER = "amino_acid,codon,relative_frequency"


def test_codon_tables(tmp_path):
    path = tmp_path / "usage.csv"
    lines = [line.replace("0.5", "0.9") if line.startswith("F,UUU") else line for line in USAGE]
    path.write_text("\n".join([USAGE_HEADER, *lines]))
    best = favourites(read_codon_usage(path))
    assert len(best) == 20 and "*" not in best
    assert (best["F"], best["M"], best["A"]) == ("TTT", "ATG", "GCA")  # of equals the first


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (["a,b", *USAGE], "has no column amino_acid"),
        ([USAGE_HEADER, *USAGE[:-1]], "has no TTT"),
        ([USAGE_HEADER, *USAGE, USAGE[0]], "line 66: AAA stands twice"),
        ([USAGE_HEADER, "M,AAA,0.1"], "line 2: AAA is not M"),
        ([USAGE_HEADER, "K,AAA"], "line 2: frequency"),
        (["\udcff"], "cannot be read"),
    ],
)
def test_codon_tables_that_are_broken(tmp_path, lines, words):
    path = tmp_path / "usage.csv"
    path.write_text("\n".join(lines), errors="surrogateescape")
    with pytest.raises(UserError, match=words):
        read_codon_usage(path)


def test_prompts_are_the_last_whole_6_mers():
    table = recovery_table(3, prompt_bp=125)
    asked = []

    class Listener:
        context_bp = None

        @staticmethod
        def generate(prompts, length_bp, mode):
            asked.append((mode, prompts))
            return ["A" * length_bp] * len(prompts)

    task = TASKS["sequence_recovery"]
    for most_bp, prompt_bp in ((6144, 120), (65, 60)):
        examples = task.examples(table, Options(sizes={"prompt_bp": most_bp}))
        assert [example.needs_bp for example in examples] == [prompt_bp + 30] * 3
        list(task.run(Listener(), examples))
        expected = [sequence[-prompt_bp:] for sequence in table["sequence"].to_pylist()]
        assert asked[-2:] == [("token", expected), ("base", expected)]


@given(st.text("ACGT", min_size=30, max_size=30), st.text("ACGTN", min_size=30, max_size=30))
def test_recovery_is_counted_as_a_slow_loop_does(text, target):
    right = 0
    for place in range(30):
        if text[place] == target[place]:
            right += 1
    hits = hits_of(text, target)
    assert hits.count("1") == right and len(hits) == 30
    assert hits_of(text[:7], target) == hits[:7] + "0" * 23  # what is not there is not right


def test_positions_of_recovery():
    more = {"group": "g", "base_mode": 0.5, "base_hits": "01" * 15}
    results = [
        {"id": hits, "score": hits.count("1") / 30, "hits": hits, **more}
        for hits in ("1" * 30, "10" * 15)
    ]
    summary = TASKS["sequence_recovery"].summarise(results)
    assert (summary.value.value, summary.others["base_mode"].value) == (pytest.approx(0.75), 0.5)
    curve = summary.curves["recovery_by_position"]
    assert curve.x == list(range(1, 31)) and curve.y == [1.0, 0.5] * 15
    assert np.mean(summary.curves["recovery_by_position_base_mode"].y) == 0.5
