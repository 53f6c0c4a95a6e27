"""Two scored outputs of one VCF: what `carbon compare` reads, joins, measures and draws."""

import gzip
import json
import os
import re

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from carbon.cli import main
from carbon.compare import read_scored_file
from carbon.compare.compare import agreement, correlations
from carbon.compare.scored_files import KEY, join_alleles, kinds_of, lengths_of, members
from carbon.io.tables import chosen_by_ending
from carbon.model import save_model
from tests.helpers.files import place_gene, random_bases, write_fasta, write_vcf

COLUMNS = {"contig": str, "position": int, "id": str, "ref": str, "alt": str, "delta": float}
SETTINGS = {"model": "m", "window_bp": 60, "k": 6, "delta": "nats"}
FORMATS = ("vcf", "vcf.gz", "tsv", "json", "parquet")


def allele(number, delta, **more):
    """Return a row of an SNV of its own; rows differ by their number."""
    row = {"contig": "c", "position": number + 1, "id": ".", "ref": "A", "alt": "C"}
    return {**row, "delta": delta, **more}


def write_scores(path, rows, settings=SETTINGS, columns=()):
    kinds = COLUMNS | dict(columns)
    with chosen_by_ending(path, "table")(path, kinds, settings) as write:
        for row in rows:
            write([row.get(name) for name in kinds])
    return path


def plain(alleles):
    """Return rows with None for missing values."""
    return alleles.astype(object).where(alleles.notna(), None).to_dict("records")


def compare(*words):
    return main(["compare", *map(str, words)])


def compared(capsys, *words):
    assert compare(*words) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture(scope="module")
def scored(tmp_path_factory, network):
    """One VCF scored in every format, and with another window."""
    folder = tmp_path_factory.mktemp("compare")
    save_model(network, folder / "model")
    bases, gff3, _ = place_gene()
    write_fasta(folder / "r.fa", {"c1": bases})
    (folder / "g.gff3").write_text(gff3.replace("Name=ABC", "Name=A%3BB%2CC"))
    records = [
        f"c1\t{at}\ts{at}\t{bases[at - 1]}\t{','.join('ACGT'.replace(bases[at - 1], ''))}\t.\t.\t."
        for at in range(105, 160, 18)
    ]
    records += [f"c1\t170\t.\t{bases[169:172]}\t{bases[169]},<DEL>\t.\t.\tAF=0.5,0.1"]
    records += [f"c1\t180\tins\t{bases[179]}\t{bases[179]}TTTACA\t.\t.\t."]
    records += [f"c1\t190\tnone\t{bases[189]}\t.\t.\t.\t."]
    vcf = write_vcf(folder / "in.vcf", records)
    words = ["variants", "--model", folder / "model", "--reference", folder / "r.fa"]
    words += ["--vcf", vcf, "--annotation", folder / "g.gff3", "--strands", "both"]
    for window, names in ((60, ["a.tsv"]), (120, [f"b.{ending}" for ending in FORMATS])):
        for name in names:
            done = main([*map(str, words), "--window", str(window), "--output", str(folder / name)])
            assert done == 0
    return folder


class TestFormats:
    def test_every_format_has_the_same_alleles(self, scored):
        expected = pq.read_table(scored / "b.parquet").to_pylist()
        assert any(row["gene"] == "A;B,C" for row in expected)
        assert {row["delta"] is None for row in expected} == {True, False}
        for ending in FORMATS:
            found = read_scored_file(scored / f"b.{ending}")
            assert found.settings["window_bp"] == 120
            for row, of_model in zip(plain(found.alleles), expected, strict=True):
                for name in (*KEY, "reason", "gene", "consequence"):
                    assert row[name] == of_model[name], (ending, name)
                assert row["percentile"] is None
                assert (row["delta"] is None) == (of_model["delta"] is None)
                if row["delta"] is not None:
                    assert row["delta"] == pytest.approx(of_model["delta"], rel=1e-7), ending

    def test_two_formats_compare_as_one(self, scored, tmp_path, capsys):
        b, table = scored / "b.vcf.gz", tmp_path / "t.json"
        found = compared(capsys, scored / "a.tsv", b, "--output", table)
        assert found["settings_that_differ"] == {
            "window_bp": [60, 120], "downstream_bp": [27, 51], "least_context_bp": [6, 18],
        }  # fmt: skip
        assert found["not_scored"] == {"a": {"symbolic_allele": 1}, "b": {"symbolic_allele": 1}}
        assert found["compared"] == len(json.loads(table.read_text())["rows"]) == 4 * 3 + 2
        assert set(found["by_consequence"]) >= {"missense_variant"}


places = st.tuples(
    st.sampled_from("cd"), st.integers(1, 4), st.sampled_from([".", "x"]),
    st.sampled_from(["A", "AC"]), st.sampled_from(["C", "CT", "<DEL>"]),
)  # fmt: skip


def key_table(keys):
    columns = zip(*keys, strict=True) if keys else [[]] * len(KEY)
    arrays = [pa.array(list(c), kind) for c, kind in zip(columns, KEY.values(), strict=True)]
    table = pa.table([*arrays, pa.nulls(len(keys), pa.string())], names=[*KEY, "scored_as"])
    return table.to_pandas()


@given(st.lists(places, unique=True), st.lists(places, unique=True))
def test_join_is_that_of_a_dictionary(a, b):
    found = join_alleles(key_table(a), key_table(b))
    pairs = [(i, b.index(key)) for i, key in enumerate(a) if key in b]
    assert list(zip(found.in_a, found.in_b, strict=True)) == pairs
    assert found.only_in_a.tolist() == [i for i, key in enumerate(a) if key not in b]
    assert found.only_in_b.tolist() == [i for i, key in enumerate(b) if key not in a]


def test_alleles_that_two_files_write_in_different_ways_are_joined(scored, tmp_path, capsys):
    """An SNV padded on both sides and a deletion at another copy of its repeat, in the second."""
    bases = random_bases(120, 5) + "CAAAAAG" + random_bases(120, 6)
    write_fasta(tmp_path / "r.fa", {"c": bases})
    alt, inserted = "ACGT"["ACGT".index(bases[60]) - 1], (80, bases[80], bases[80] + "ACGTACG")
    ways = {
        "a": [(60, bases[60], alt), inserted, (120, "CA", "C")],
        "b": [(59, bases[59:62], bases[59] + alt + bases[61]), inserted, (124, "AAG", "AG")],
    }
    for name, written in ways.items():
        records = [f"c\t{at + 1}\t.\t{r}\t{a}\t.\t.\t." for at, r, a in written]
        vcf = write_vcf(tmp_path / f"{name}.vcf", records)
        words = ["variants", "--model", scored / "model", "--reference", tmp_path / "r.fa"]
        words += ["--vcf", vcf, "--window", "60", "--output", tmp_path / f"{name}.tsv"]
        assert main(list(map(str, words))) == 0
    capsys.readouterr()
    table = tmp_path / "t.json"
    found = compared(capsys, tmp_path / "a.tsv", tmp_path / "b.tsv", "--output", table)
    assert (found["compared"], found["only_in_a"], found["only_in_b"]) == (3, 0, 0)
    rows = json.loads(table.read_text())["rows"]
    assert [(row["position"], row["difference"]) for row in rows] == [(61, 0), (81, 0), (121, 0)]


def test_a_form_that_comes_twice_is_joined_with_nothing():
    """Neither of two ways to write one variant in a file is more that of the other file."""
    a = pa.table({"contig": ["c"] * 2, "position": [8, 9], "id": ["."] * 2, "ref": ["AA", "AA"],
                  "alt": ["A", "A"], "scored_as": ["c:5:CA:C", "c:5:CA:C"]}
                 ).to_pandas()  # fmt: skip
    b = pa.table({"contig": ["c"], "position": [5], "id": ["."], "ref": ["CA"], "alt": ["C"],
                  "scored_as": pa.nulls(1, pa.string())}).to_pandas()  # fmt: skip
    assert [rows.tolist() for rows in join_alleles(a, b)] == [[], [], [0, 1], [0]]
    assert [rows.tolist() for rows in join_alleles(a[1:], b)] == [[0], [0], [], []]


class TestAgreement:
    # Of integers, so that some are equal; of heavy tails, so that ranks say something else.
    random = np.random.default_rng(3)
    a = np.round(random.standard_t(2, size=60) * 2)
    b = np.round(a + random.standard_t(2, size=60))

    def test_correlations_are_those_of_scipy(self):
        found = correlations(self.a, self.b)
        assert found["pearson"]["value"] == pytest.approx(stats.pearsonr(self.a, self.b).statistic)
        assert found["spearman"]["value"] == pytest.approx(
            stats.spearmanr(self.a, self.b).statistic
        )

    def test_intervals_are_those_of_resampled_alleles(self, few_resamples):
        random, draws = np.random.default_rng(0), []
        for _ in range(40):
            drawn = random.integers(60, size=60)
            x, y = self.a[drawn], self.b[drawn]
            draws.append([stats.pearsonr(x, y).statistic, stats.spearmanr(x, y).statistic])
        found = correlations(self.a, self.b).values()
        ends = np.percentile(draws, [2.5, 97.5], axis=0).T
        intervals = [[each["low"], each["high"]] for each in found]
        np.testing.assert_allclose(intervals, ends, rtol=1e-9)

    def test_signs_and_differences(self):
        found = agreement(np.array([1.0, -2.0, 0.0, 4.0]), np.array([3.0, 1.0, 0.0, 8.0]))
        # differences: -2, -3, 0, -4
        assert (found["n"], found["same_sign"], found["mean_difference"]) == (4, 0.75, -2.25)
        assert found["sd_difference"] == pytest.approx(np.std([-2, -3, 0, -4], ddof=1))

    @pytest.mark.parametrize(
        ("a", "b"), [([], []), ([1.0], [2.0]), ([1.0, 1.0, 1.0], [1.0, 2.0, 3.0])]
    )
    def test_what_is_not_defined_is_none(self, a, b):
        found = agreement(np.array(a), np.array(b))
        assert found["pearson"] == {"value": None, "low": None, "high": None}

    def test_a_few_alleles_have_no_interval(self):
        found = correlations(np.arange(9.0), np.arange(9.0) ** 2)["spearman"]
        assert found == {"value": 1.0, "low": None, "high": None}


def test_kinds_and_lengths():
    alleles = [
        ("A", "C"), ("AC", "GT"), ("A", "AC"), ("A", "ACCCCCC"), ("ACG", "A"), ("AAAAAAA", "A"),
        ("A", "A" * 13), ("AC", "GTT"),
    ]  # fmt: skip
    table = pa.table(
        {"ref": [ref for ref, _ in alleles], "alt": [alt for _, alt in alleles]}
    ).to_pandas()
    assert kinds_of(table).tolist() == [
        "SNV", "MNV", "insertion", "insertion", "deletion", "deletion", "insertion", "insertion"
    ]  # fmt: skip
    sixes, others = "indel of 6, 12, ... bp", "indel of another length"
    labels = lengths_of(table, 6)
    assert labels.tolist() == [None, None, others, sixes, others, sixes, sixes, others]
    assert {name: chosen.sum() for name, chosen in members(labels).items()} == {sixes: 3, others: 3}


@pytest.mark.parametrize(
    ("two_k", "group"),
    [(({}, {"k": 2}), "6, 12"), (({"k": 3}, {"k": 3}), "3, 6"), (({"k": 3}, {"k": 2}), "6, 12")],
)
def test_indels_are_grouped_by_the_tokens_of_both_models(tmp_path, capsys, two_k, group):
    rows = [allele(1, 1.0, alt="ACCC"), allele(9, 2.0, alt="ACCCCCC")]
    paths = [write_scores(tmp_path / f"{n}.tsv", rows, SETTINGS | k) for n, k in enumerate(two_k)]
    groups = compared(capsys, *paths)["by_length"]
    assert groups[f"indel of {group}, ... bp"]["n"] == (2 if group == "3, 6" else 1)


class TestTables:
    def test_rows_and_ranks(self, tmp_path, capsys):
        a = write_scores(tmp_path / "a.tsv", [allele(i, d) for i, d in enumerate([3, 1, 1, -5.5])])
        rows = [allele(i, d) for i, d in enumerate([30, 20, -10, -50])]
        b = write_scores(tmp_path / "b.tsv", rows[::-1])  # the order is that of the first file
        compared(capsys, a, b, "--output", tmp_path / "t.parquet")
        table = pq.read_table(tmp_path / "t.parquet")
        assert table["difference"].to_pylist() == [-27, -19, 11, 44.5]
        assert table["rank_a"].to_pylist() == [4, 2.5, 2.5, 1]
        assert table["rank_b"].to_pylist() == [4, 3, 2, 1]
        assert table["rank_difference"].to_pylist() == [0, -0.5, 0.5, 0]
        assert not {"gene", "consequence", "percentile_a"} & set(table.column_names)
        settings = json.loads(table.schema.metadata[b"carbon"])
        assert settings["settings_a"] == SETTINGS and settings["labels"] == ["a.tsv", "b.tsv"]

    def test_top_is_by_ranks_and_not_by_nats(self, tmp_path, capsys):
        a = write_scores(tmp_path / "a.tsv", [allele(i, d) for i, d in enumerate([1, 2, 3, 4])])
        b = write_scores(tmp_path / "b.tsv", [allele(i, d) for i, d in enumerate([3, 1, 2, 900])])
        summary = compared(capsys, a, b, "--top", "1", "--labels", "one,two")
        assert [row["position"] for row in summary["top"]] == [1]
        assert summary["labels"] == ["one", "two"] and summary["settings_that_differ"] == {}
        assert compared(capsys, a, b, "--top", "0")["top"] == []
        few = write_scores(tmp_path / "few.tsv", [allele(i, i) for i in (2, 3, 4)])
        summary = compared(capsys, a, few, "--common")
        assert (summary["compared"], summary["only_in_a"], summary["only_in_b"]) == (2, 2, 1)

    def test_percentiles_are_compared_where_both_have_them(self, tmp_path, capsys):
        kinds = {"percentile": float, "percentile_of": str, "spread": float}
        more = {"percentile_of": "snv", "spread": 1.0}
        x = np.arange(20) / 20
        rows = [allele(i, i % 5, percentile=x[i] if i != 3 else None, **more) for i in range(20)]
        a = write_scores(tmp_path / "a.tsv", rows, columns=kinds)
        other = [row | {"percentile": x[i] ** 2} for i, row in enumerate(rows)]
        b = write_scores(tmp_path / "b.json", other, columns=kinds)
        found = compared(capsys, a, b, "--output", tmp_path / "t.json")["percentiles"]
        x = np.delete(x, 3)
        assert found["n"] == 19 and found["spearman"]["value"] == pytest.approx(1)
        assert found["pearson"]["value"] == pytest.approx(stats.pearsonr(x, x**2).statistic)
        (row, *_) = json.loads((tmp_path / "t.json").read_text())["rows"]
        assert "percentile_b" in row and "spread" not in row and row["percentile_of_a"] == "snv"
        c = write_scores(tmp_path / "c.tsv", [allele(i, i) for i in range(20)])
        assert "percentiles" not in compared(capsys, a, c)

    def test_people_read_it_on_stderr(self, tmp_path, capsys):
        rows = [allele(i, d, gene=f"G{i}") for i, d in enumerate([1, 2, 3, 4])]
        a = write_scores(tmp_path / "a.tsv", rows, columns={"gene": str})
        b = write_scores(
            tmp_path / "b.tsv", [allele(0, 9), *map(allele, [1, 2], [5, 7]), allele(3, None)]
        )
        assert compare(a, b) == 0
        text = capsys.readouterr().err
        assert "both by the same settings" in text and "not scored in b: 1 no reason" in text
        assert re.search(r"^all +3 +-0\.50 +- +-0\.50 +- +1\.00 +-5\.00", text, re.MULTILINE), text
        assert re.search(r"^c:1 +\. +A>C +G0 +1\.00 +9\.00 +1 +3$", text, re.MULTILINE), text


class TestPictures:
    def draw(self, tmp_path, capsys, num_alleles, name="p.svg"):
        random = np.random.default_rng(1)
        rows = [allele(i, float(d), gene=f"GENE{i}") for i, d in
                enumerate(random.normal(size=num_alleles))]  # fmt: skip
        a = write_scores(tmp_path / "a.parquet", rows, columns={"gene": str})
        b = write_scores(
            tmp_path / "b.parquet", [r | {"delta": -r["delta"]} for r in rows], SETTINGS
        )
        words = ("--plot", tmp_path / name, "--labels", "first,second")
        return compared(capsys, a, b, *words), (tmp_path / name).read_bytes()

    def test_points_are_named_and_coloured(self, tmp_path, capsys):
        summary, figure = self.draw(tmp_path, capsys, 30)
        text = figure.decode()
        assert "delta, nats: first" in text and "delta, nats: second" in text
        assert "SNV (30)" in text and "30 alleles, Pearson -1.00" in text
        named = {row["gene"] for row in summary["top"][:8]}
        assert {name for name in re.findall("GENE[0-9]+", text)} == named
        assert self.draw(tmp_path, capsys, 30)[1] == figure


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("link.tsv", "are one file"),
        ("bare.parquet", "no settings"),
        ("cut.parquet", "not a whole Parquet file"),
        ("cut.vcf.gz", "cut off"),
        ("deep.json", "recursion limit"),
        ("digits.json", "too large"),
        ("sparse.json", "larger than 1,073,741,824 bytes; score the VCF with --output"),
        ("pipe.json", "is a device or a pipe"),
    ],
)
def test_what_cannot_be_compared_is_one_line(tmp_path, capsys, other, message):
    """Those of text files are in the table of messages."""
    rows = [allele(i, i) for i in range(3)]
    a = write_scores(tmp_path / "a.tsv", rows)
    (tmp_path / "link.tsv").symlink_to(a)
    write_scores(tmp_path / "bare.parquet", rows, {"protocol": "scan"})
    (tmp_path / "cut.parquet").write_bytes(b"PAR1")
    whole = gzip.compress(write_vcf(tmp_path / "v", ["c\t1\t.\tA\tC\t.\t.\t."]).read_bytes())
    (tmp_path / "cut.vcf.gz").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "deep.json").write_text('{"rows": ' + "[" * 100_000)
    row = f'{{"contig": "c", "position": {"1" * 4000}}}'
    (tmp_path / "digits.json").write_text(f'{{"settings": {{}}, "rows": [{row}]}}')
    with (tmp_path / "sparse.json").open("wb") as file:
        file.truncate(2**40)
    os.mkfifo(tmp_path / "pipe.json")
    assert compare(a, tmp_path / other) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


@pytest.mark.parametrize("ending", ["tsv", "json", "parquet"])
@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ("position", None, "has an allele without position"),
        ("position", -1, "has an allele at a negative position"),
        *((name, None, f"has an allele without {name}") for name in ("contig", "ref", "alt")),
    ],
)
def test_an_allele_without_a_place_or_bases_is_refused(
    tmp_path, capsys, ending, name, value, problem
):
    rows = [allele(0, 0.5), allele(1, 0.5)]
    a = write_scores(tmp_path / "a.tsv", rows)
    b = write_scores(tmp_path / f"b.{ending}", [rows[0], rows[1] | {name: value}])
    assert compare(a, b) == 2
    (line,) = capsys.readouterr().err.splitlines()
    if (ending, name) == ("json", "position"):
        problem = "rows.1.position: "
    assert f"b.{ending}: {problem}" in line


@pytest.mark.parametrize(
    ("value", "problem"),
    [({"position": 7.5}, r"rows\.1\.position: "), ({"delta": True}, r"rows\.1\.delta: ")],
)
def test_a_number_of_another_kind_in_json_is_not_rounded(tmp_path, capsys, value, problem):
    rows = [allele(0, 0.5), allele(1, 0.5)]
    a = write_scores(tmp_path / "a.tsv", rows)
    b = tmp_path / "b.json"
    b.write_text(json.dumps({"settings": SETTINGS, "rows": [rows[0], rows[1] | value]}))
    assert compare(a, b) == 2
    assert re.search(problem, capsys.readouterr().err)
