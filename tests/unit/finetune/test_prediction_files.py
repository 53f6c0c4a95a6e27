"""`carbon predict`: files in, files out, against `FinetunedModel.predict` of the same sequences."""

import json

import numpy as np
import pysam
import pytest

from carbon.cli import main
from carbon.finetune import predict_job
from carbon.finetune.predict import FinetunedModel, load_finetuned
from carbon.finetune.predict_job import columns_of, keys_of
from carbon.finetune.tasks import LabelTask, Transform
from carbon.genome import Variant, reverse_complement
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.finetune import BASES, NUMBERS
from tests.helpers.processes import interrupted_after

GENOME = random_bases(600)


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """Run in an empty folder, but for a reference."""
    monkeypatch.chdir(tmp_path)
    write_fasta(tmp_path / "g.fa", {"chr1": GENOME})
    return tmp_path


@pytest.fixture
def numbers(untrained):
    return untrained(NUMBERS)


@pytest.fixture
def bases(untrained):
    return untrained(BASES)


def predict(folder, source, output, *more):
    return main(["predict", "--model", str(folder), source, "--output", output, *more])


def table(path):
    lines = path.read_text().splitlines()
    names = lines[1].split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines[2:]]


def test_sequences(here, numbers, capsys):
    sequences = {"a": random_bases(100), "b": random_bases(31), "none": "NNNN"}
    write_fasta(here / "in.fa", sequences)
    expected = np.stack(list(load_finetuned(numbers).predict(sequences.values())))
    assert predict(numbers, "in.fa", "out.tsv") == 0
    notes = capsys.readouterr()
    assert json.loads(notes.out)["records"] == 3 and "1 sequences have no known base" in notes.err
    rows = table(here / "out.tsv")
    assert [row["name"] for row in rows] == list(sequences)
    assert (rows[2]["predicted_a"], rows[2]["predicted_b"]) == (".", ".")
    found = [[float(row[f"predicted_{x}"]) for x in "ab"] for row in rows[:2]]
    np.testing.assert_allclose(found, expected[:2], atol=1e-6)


def test_every_base(here, bases, capsys):
    sequences = {"a": random_bases(20), "b": random_bases(13)}
    write_fasta(here / "in.fa", sequences)
    assert predict(bases, "in.fa", "out.tsv") == 0
    rows = table(here / "out.tsv")
    expected = np.concatenate(list(load_finetuned(bases).predict(sequences.values())))
    assert "".join(row["base"] for row in rows) == "".join(sequences.values())
    assert [int(row["position"]) for row in rows] == [*range(1, 21), *range(1, 14)]
    found = [[float(row[f"predicted_{name}"]) for name in BASES.names] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(np.sum(found, axis=1), 1, atol=1e-5)

    write_fasta(here / "in.fa", {"a": random_bases(300), "b": "NNNN", "c": random_bases(9)})
    capsys.readouterr()
    assert predict(bases, "in.fa", "cut.tsv", "--too-long", "truncate") == 0
    notes = json.loads(capsys.readouterr().out)
    assert notes["bases_without"] == 18 and notes["without"] == 1  # 282 of the 300 bases fit


@pytest.mark.parametrize("names", [("one",), ("no", "yes")])
def test_a_class_has_its_name_and_a_single_number_has_none(here, untrained, names):
    """Beyond one half is the second of two classes; a lone number may be anything."""
    number = LabelTask("numbers", names, "mse", (Transform("none", mean=5.0),))
    task = number if len(names) == 1 else LabelTask("binary", names, "binary_cross_entropy")
    write_fasta(here / "in.fa", {"a": random_bases(100), "b": random_bases(31), "c": "NN"})
    assert predict(untrained(task), "in.fa", "out.tsv") == 0
    rows = table(here / "out.tsv")
    assert ("predicted" in rows[0]) == (len(names) == 2)
    for row in rows if len(names) == 2 else ():
        probability = row["predicted_yes"]
        expected = "." if probability == "." else names[float(probability) > 0.5]
        assert row["predicted"] == expected


def test_places(here, numbers):
    (here / "in.bed").write_text("chr1\t10\t90\tx\t0\t+\nchr1\t100\t161\ty\t0\t-\n")
    assert predict(numbers, "in.bed", "out.tsv", "--reference", "g.fa", "--strands", "forward") == 0
    sequences = [GENOME[10:90], reverse_complement(GENOME[100:161])]
    expected = list(load_finetuned(numbers).predict(sequences, strands="forward"))
    rows = table(here / "out.tsv")
    places = [tuple(row[key] for key in ("contig", "start", "end", "name")) for row in rows]
    assert places == [("chr1", "10", "90", "x"), ("chr1", "100", "161", "y")]
    found = [float(row["predicted_a"]) for row in rows]
    np.testing.assert_allclose(found, [each[0] for each in expected], atol=1e-6)


def test_places_that_are_not_read_as_they_are(here, numbers, capsys):
    """Of places of 80, 100, 120 and 100 bp (at 550, the contig ends at 600), in windows of 100."""
    places = ((10, 90), (100, 200), (300, 420), (500, 600))
    (here / "in.bed").write_text("".join(f"chr1\t{a}\t{b}\n" for a, b in places))
    assert predict(numbers, "in.bed", "out.tsv", "--reference", "g.fa", "--window", "100") == 0
    assert "longer in 1 and shorter in 1 of 4 places" in capsys.readouterr().err
    (expected,) = load_finetuned(numbers).predict([GENOME[0:100]])
    found = float(table(here / "out.tsv")[0]["predicted_a"])
    assert found == pytest.approx(float(expected[0]), abs=1e-6)


class TestVariants:
    WINDOWS = ("--reference", "g.fa", "--window", "100")
    OTHER = {"A": "C", "C": "G", "G": "T", "T": "A"}[GENOME[299]]
    SNV = f"chr1\t300\tv1\t{GENOME[299]}\t{OTHER}"
    DELETION = f"chr1\t400\t.\t{GENOME[399:403]}\t{GENOME[399]}"
    INSERTION = f"chr1\t590\tv3\t{GENOME[589]}\t{GENOME[589]}CCCTT"
    # What each is read as: the window around it with REF and with ALT.
    PAIRS = (
        (GENOME[249:349], GENOME[249:299] + OTHER + GENOME[300:349]),
        (GENOME[349:449], GENOME[349:400] + GENOME[403:452]),
        (GENOME[539:600], GENOME[539:590] + "CCCTT" + GENOME[590:600]),
    )

    def write(self, here, *records):
        header = (
            "##contig=<ID=chr1,length=600>\n"
            '##INFO=<ID=DP,Number=1,Type=Integer,Description="depth">\n'
        )
        write_vcf(here / "in.vcf", [f"{record}\t.\t.\tDP=3" for record in records], header)

    def test_alt_ref_and_difference(self, here, numbers, capsys):
        self.write(here, f"{self.SNV},<DEL>", self.DELETION)
        predicted = load_finetuned(numbers).predict
        one, two = (np.stack(list(predicted(pair))) for pair in self.PAIRS[:2])
        assert predict(numbers, "in.vcf", "out.vcf.gz", *self.WINDOWS) == 0
        first, second = pysam.VariantFile("out.vcf.gz")
        assert (here / "out.vcf.gz.tbi").exists() and first.info["DP"] == 3
        for n, key in enumerate(("PREDICTED_A", "PREDICTED_B")):
            ref, alt = one[:, n]
            assert first.info[key][0] == pytest.approx(alt, abs=1e-6)
            assert first.info[f"{key}_REF"][0] == pytest.approx(ref, abs=1e-6)
            assert first.info[f"{key}_DELTA"][0] == pytest.approx(alt - ref, abs=1e-6)
            assert first.info[key][1] is None
            assert second.info[key][0] == pytest.approx(two[1, n], abs=1e-6)
        assert first.info["PREDICTED_REASON"][1] is not None
        assert "PREDICTED_REASON" not in second.info
        assert predict(numbers, "out.vcf.gz", "two.vcf", *self.WINDOWS) == 2
        assert "has predictions already" in capsys.readouterr().err
        write_fasta(here / "g.fa", {"chr1": reverse_complement(GENOME)})
        assert predict(numbers, "in.vcf", "two.vcf", *self.WINDOWS) == 2
        assert not (here / "two.vcf").exists()

    def test_how_a_variant_is_written_changes_nothing_but_where_offsets_count_from(
        self, here, bases
    ):
        """Padded by three bases on the left and two on the right: POS lies three bases earlier."""
        padded = f"{GENOME[296:302]}\t{GENOME[296:299]}{self.OTHER}{GENOME[300:302]}"
        self.write(here, f"chr1\t297\t.\t{padded}", self.SNV)
        assert predict(bases, "in.vcf", "out.tsv", *self.WINDOWS) == 0
        first, second = table(here / "out.tsv")
        for name in BASES.names:
            for side in ("", "_ref", "_delta"):
                assert first[f"predicted_{name}{side}"] == second[f"predicted_{name}{side}"]
            offsets = (int(row[f"predicted_{name}_offset"]) for row in (first, second))
            assert next(offsets) == next(offsets) + 3

    def test_of_every_base_the_largest_change(self, here, bases):
        """Held against a walk over the bases, one by one, in dictionaries by place."""
        self.write(here, self.SNV, self.DELETION, self.INSERTION)
        assert predict(bases, "in.vcf", "out.tsv", *self.WINDOWS) == 0
        alleles = [(1, 1), (4, 1), (1, 6)]
        for row, pair, (ref_bp, alt_bp) in zip(
            table(here / "out.tsv"), self.PAIRS, alleles, strict=True
        ):
            ref, alt = load_finetuned(bases).predict(pair)
            for n, name in enumerate(BASES.names):
                of_ref = {(at - 50, 0): p for at, p in enumerate(ref[:, n])}
                of_alt = {}
                for at, p in enumerate(alt[:, n], start=-50):
                    if at < min(ref_bp, alt_bp):
                        of_alt[at, 0] = p
                    elif at < alt_bp:
                        of_alt[ref_bp - 1, at] = p  # inserted
                    else:
                        of_alt[at - alt_bp + ref_bp, 0] = p
                last = min(max(of_ref)[0], max(of_alt)[0])
                where = [at for at in {**of_ref, **of_alt} if at[0] <= last]
                most = max(where, key=lambda at: abs(of_alt.get(at, 0) - of_ref.get(at, 0)))
                with_alt, with_ref = of_alt.get(most, 0), of_ref.get(most, 0)
                key = f"predicted_{name}"
                found = [float(row[key + side]) for side in ("", "_ref", "_delta", "_offset")]
                expected = [with_alt, with_ref, with_alt - with_ref, most[0]]
                np.testing.assert_allclose(found, expected, atol=1e-5)

    def test_a_number_is_compared_where_both_alleles_have_bases(self, here, untrained):
        """Numbers of about 100: 0 for a base that one allele lacks would be the largest change."""
        task = LabelTask("tracks", ("x", "y"), "mse", (Transform("none", mean=100.0),) * 2)
        folder = untrained(task)
        self.write(here, self.DELETION, self.INSERTION)
        assert predict(folder, "in.vcf", "out.tsv", *self.WINDOWS) == 0
        # Of REF and ALT, (first base after the shorter allele, bases that follow both alleles).
        pieces = [((54, 51), 46), ((51, 56), 10)]
        model = load_finetuned(folder)
        for row, pair, (after, after_bp) in zip(
            table(here / "out.tsv"), self.PAIRS[1:], pieces, strict=True
        ):
            ref, alt = (
                np.concatenate([values[:51], values[start : start + after_bp]])
                for values, start in zip(model.predict(pair), after, strict=True)
            )
            for n, name in enumerate(task.names):
                delta = float(row[f"predicted_{name}_delta"])
                change = alt[:, n] - ref[:, n]
                at = int(np.abs(change).argmax())
                assert abs(delta) < 50 and delta == pytest.approx(change[at], abs=1e-5)
                offset = at - 50 if at < 51 else at - 51 + after[0] - 50
                assert int(row[f"predicted_{name}_offset"]) == offset

    def test_alleles_without_a_common_base_have_no_change_of_numbers(self):
        values, absent = np.full((1, 2), np.nan, dtype=np.float32), predict_job.ABSENT_NUMBER
        variant = Variant("c", 5, "A", "T")
        changes = predict_job.largest_changes(values, values, variant, 0, absent=absent)
        assert np.isnan(changes).all() and changes.shape == (2, 4)


@pytest.mark.parametrize("names", [("x", "x_ref"), ("x", "X!"), ("a", "b"), ("reason", "b")])
def test_columns_and_keys_of_outputs_are_distinct(names):
    suffixes = ("", "_REF", "_DELTA")
    keys = [key + suffix for key in keys_of(names, suffixes) for suffix in suffixes]
    assert len({*keys, "PREDICTED_REASON"}) == 7
    columns = [c + s.lower() for c in columns_of(names, suffixes) for s in suffixes]
    assert len(set(columns)) == 6
    assert keys_of(("a", "b"), suffixes) == ["PREDICTED_A", "PREDICTED_B"]
    assert columns_of(("x", "X!"), suffixes) == ["predicted_x", "predicted_X!"]
    assert columns_of(("x", "x_ref"), suffixes) == ["predicted_x_1", "predicted_x_ref_2"]


def test_a_run_that_was_stopped_goes_on(here, numbers, monkeypatch):
    monkeypatch.setattr(predict_job, "_BLOCK_RECORDS", 4)
    write_fasta(here / "in.fa", {f"s{n}": random_bases(20 + n) for n in range(18)})
    assert predict(numbers, "in.fa", "whole.parquet") == 0
    whole, calls = FinetunedModel.predict_block, []
    with monkeypatch.context() as patch:
        patch.setattr(FinetunedModel, "predict_block", interrupted_after(2, whole))
        assert predict(numbers, "in.fa", "out.parquet") != 0
    assert not (here / "out.parquet").exists()
    assert predict(numbers, "in.fa", "out.parquet") == 2

    def counted(*arguments, **options):
        calls.append(1)
        return whole(*arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(FinetunedModel, "predict_block", counted)
        assert predict(numbers, "in.fa", "out.parquet", "--resume") == 0
    assert len(calls) == 3  # of five blocks, two were kept
    assert (here / "out.parquet").read_bytes() == (here / "whole.parquet").read_bytes()


@pytest.mark.nightly
def test_two_processes_write_the_bytes_of_none(here, numbers, monkeypatch, capsys):
    monkeypatch.setattr(predict_job, "_BLOCK_RECORDS", 4)
    write_fasta(here / "in.fa", {f"s{n}": random_bases(20 + n) for n in range(18)})
    assert predict(numbers, "in.fa", "whole.parquet") == 0
    notes = capsys.readouterr().out
    assert predict(numbers, "in.fa", "share.parquet", "--processes", "2") == 0
    assert capsys.readouterr().out == notes.replace("whole", "share")
    assert (here / "share.parquet").read_bytes() == (here / "whole.parquet").read_bytes()


@pytest.mark.parametrize(
    ("source", "more", "wrong"),
    [
        ("in.fa", (), "record 'long': has 500 bp, the model reads 282"),
        ("in.fa", ("--window", "100"), "has its own sequences; remove --window"),
        ("in.fa", ("--contigs", "chr"), "has its own sequences; remove --contigs"),
        ("in.bed", (), "give --reference"),
        ("in.bed", ("--reference", "in.fa"), "in.bed line 1"),
    ],
)
def test_what_is_wrong_is_one_line(here, numbers, capsys, source, more, wrong):
    write_fasta(here / "in.fa", {"long": random_bases(500)})
    (here / "in.bed").write_text("chr7\t0\t9\n")
    assert predict(numbers, source, "out.tsv", *more) == 2
    assert wrong in capsys.readouterr().err.splitlines()[-1]
    assert not (here / "out.tsv").exists()
