"""`carbon predict`: files in, files out, against `Adapted.predict` of the same sequences."""

import json

import numpy as np
import pyarrow.parquet as pq
import pysam
import pytest

from carbon.adapt import prediction_files
from carbon.adapt.config import WayConfig
from carbon.adapt.loading import load_adapted, write_adapted
from carbon.adapt.prediction_sources import PredictJob
from carbon.adapt.predictor import Adapted
from carbon.cli import main
from carbon.genome import reverse_complement
from tests.helpers.adapt import BASES, BINARY, NUMBERS, adapted_of, base_folder
from tests.helpers.files import random_bases, write_fasta

GENOME = random_bases(600)


@pytest.fixture(params=[NUMBERS], ids=lambda q: q.kind)
def folder(request, tmp_path, network):
    return make(tmp_path, network, request.param)


def make(tmp_path, network, question, **more):
    adapted, opened = adapted_of(
        base_folder(tmp_path, network), question, WayConfig(name="full", **more)
    )
    made = tmp_path / "adapted"
    made.mkdir()
    write_adapted(made, adapted.network, opened, adapted.manifest)
    return made


def predict(folder, source, output, *more):
    return main(["predict", "--model", str(folder), str(source), "--output", str(output), *more])


def table(path):
    lines = path.read_text().splitlines()
    names = lines[1].split("\t")
    return [dict(zip(names, line.split("\t"), strict=True)) for line in lines[2:]]


def test_sequences(tmp_path, folder, capsys):
    sequences = {"a": random_bases(100), "b": random_bases(31), "none": "NNNN"}
    write_fasta(tmp_path / "in.fa", sequences)
    expected = np.stack(list(load_adapted(folder).predict(sequences.values())))
    assert predict(folder, tmp_path / "in.fa", tmp_path / "out.tsv") == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["records"] == 3 and "1 sequences have no known base" in told.err
    rows = table(tmp_path / "out.tsv")
    assert [row["name"] for row in rows] == list(sequences)
    assert (rows[2]["predicted_a"], rows[2]["predicted_b"]) == (".", ".")
    found = [[float(row[f"predicted_{x}"]) for x in "ab"] for row in rows[:2]]
    np.testing.assert_allclose(found, expected[:2], atol=1e-6)
    assert predict(folder, tmp_path / "in.fa", tmp_path / "out.parquet") == 0
    of = pq.read_table(tmp_path / "out.parquet")
    assert of["predicted_a"].to_pylist()[2] is None
    np.testing.assert_allclose(of["predicted_b"].to_pylist()[:2], expected[:2, 1], atol=1e-6)


def test_every_base(tmp_path, network):
    folder = make(tmp_path, network, BASES)
    sequences = {"a": random_bases(20), "b": random_bases(13)}
    write_fasta(tmp_path / "in.fa", sequences)
    assert predict(folder, tmp_path / "in.fa", tmp_path / "out.tsv") == 0
    rows = table(tmp_path / "out.tsv")
    expected = np.concatenate(list(load_adapted(folder).predict(sequences.values())))
    assert "".join(row["base"] for row in rows) == "".join(sequences.values())
    assert [int(row["position"]) for row in rows] == [*range(1, 21), *range(1, 14)]
    found = [[float(row[f"predicted_{name}"]) for name in BASES.names] for row in rows]
    np.testing.assert_allclose(found, expected, atol=1e-6)
    np.testing.assert_allclose(np.sum(found, axis=1), 1, atol=1e-5)


def test_places(tmp_path, folder):
    write_fasta(tmp_path / "g.fa", {"chr1": GENOME})
    (tmp_path / "in.bed").write_text("chr1\t10\t90\tx\t0\t+\nchr1\t100\t161\ty\t0\t-\n")
    arguments = ("--reference", str(tmp_path / "g.fa"), "--strands", "forward")
    assert predict(folder, tmp_path / "in.bed", tmp_path / "out.tsv", *arguments) == 0
    expected = list(
        load_adapted(folder).predict(
            [GENOME[10:90], reverse_complement(GENOME[100:161])], strands="forward"
        )
    )
    rows = table(tmp_path / "out.tsv")
    assert [(r["contig"], r["start"], r["end"], r["name"]) for r in rows] == [
        ("chr1", "10", "90", "x"),
        ("chr1", "100", "161", "y"),
    ]
    np.testing.assert_allclose(
        [float(r["predicted_a"]) for r in rows], [e[0] for e in expected], atol=1e-6
    )


def test_places_that_are_not_read_as_they_are(tmp_path, folder, capsys):
    """Of places of 80, 100, 120 and 100 bp (at 550, the contig ends at 600), in windows of 100."""
    write_fasta(tmp_path / "g.fa", {"chr1": GENOME})
    places = ((10, 90), (100, 200), (300, 420), (500, 600))
    (tmp_path / "in.bed").write_text("".join(f"chr1\t{a}\t{b}\n" for a, b in places))
    arguments = ("--reference", str(tmp_path / "g.fa"), "--window")
    assert predict(folder, tmp_path / "in.bed", tmp_path / "out.tsv", *arguments, "100") == 0
    assert (
        "in.bed: windows of 100 bp around the middle were read, more of 1 and less of 1 of 4 places"
        " than the interval itself; --window 0 reads the intervals as they are"
    ) in capsys.readouterr().err
    expected = list(load_adapted(folder).predict([GENOME[0:100]]))
    rows = table(tmp_path / "out.tsv")
    assert float(rows[0]["predicted_a"]) == pytest.approx(float(expected[0][0]), abs=1e-6)
    assert predict(folder, tmp_path / "in.bed", tmp_path / "out2.tsv", *arguments, "0") == 0
    assert "interval" not in capsys.readouterr().err


def test_bases_without_a_prediction_are_counted(tmp_path, network, capsys):
    folder = make(tmp_path, network, BASES)
    write_fasta(tmp_path / "in.fa", {"a": random_bases(300), "b": "NNNN", "c": random_bases(9)})
    output = tmp_path / "out.tsv"
    assert predict(folder, tmp_path / "in.fa", output, "--too-long", "cut") == 0
    told = capsys.readouterr()
    # 282 of the 300 bases fit.
    assert json.loads(told.out)["bases_without"] == 18 and "18 bases of other seq" in told.err
    assert json.loads(told.out)["without"] == 1


@pytest.mark.parametrize("name", ["model/model.safetensors", "names.tsv"])
def test_other_content_under_the_same_name_is_another_job(tmp_path, folder, name):
    (tmp_path / "in.bed").write_text("1\t10\t90\n")
    (tmp_path / "names.tsv").write_text("1\tchr1\n")
    write_fasta(tmp_path / "g.fa", {"chr1": GENOME})
    job = PredictJob(
        model=folder,
        source=tmp_path / "in.bed",
        output=tmp_path / "out.tsv",
        reference=tmp_path / "g.fa",
        contigs=str(tmp_path / "names.tsv"),
    )
    before = prediction_files._fingerprints(job)
    assert prediction_files._fingerprints(job) == before
    path = folder / name if "/" in name else tmp_path / name
    path.write_bytes(path.read_bytes() + b"\n")
    assert prediction_files._fingerprints(job) != before


class TestVariants:
    def vcf(self, tmp_path):
        other = {"A": "C", "C": "G", "G": "T", "T": "A"}[GENOME[299]]
        lines = [
            "##fileformat=VCFv4.3",
            "##contig=<ID=chr1,length=600>",
            '##INFO=<ID=DP,Number=1,Type=Integer,Description="depth">',
            "#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO",
            f"chr1\t300\tv1\t{GENOME[299]}\t{other},<DEL>\t.\t.\tDP=3",
            f"chr1\t400\t.\t{GENOME[399:403]}\t{GENOME[399]}\t.\t.\t.",
        ]
        (tmp_path / "in.vcf").write_text("\n".join(lines) + "\n")
        write_fasta(tmp_path / "g.fa", {"chr1": GENOME})
        return other

    def sequences(self, other):
        return {
            "v1": (GENOME[249:349], GENOME[249:299] + other + GENOME[300:349]),
            "v2": (GENOME[349:449], GENOME[349:400] + GENOME[403:452]),
        }

    def expected(self, folder, other):
        adapted = load_adapted(folder)
        of = self.sequences(other).items()
        return {n: np.stack(list(adapted.predict(pair))) for n, pair in of}

    def test_alt_ref_and_difference(self, tmp_path, folder):
        expected = self.expected(folder, self.vcf(tmp_path))
        more = ("--reference", str(tmp_path / "g.fa"), "--window", "100")
        assert predict(folder, tmp_path / "in.vcf", tmp_path / "out.vcf.gz", *more) == 0
        first, second = pysam.VariantFile(str(tmp_path / "out.vcf.gz"))
        assert (tmp_path / "out.vcf.gz.tbi").exists() and first.info["DP"] == 3
        for n, key in enumerate(("PREDICTED_A", "PREDICTED_B")):
            ref, alt = expected["v1"][:, n]
            assert first.info[key][0] == pytest.approx(alt, abs=1e-6)
            assert first.info[f"{key}_REF"][0] == pytest.approx(ref, abs=1e-6)
            assert first.info[f"{key}_DELTA"][0] == pytest.approx(alt - ref, abs=1e-6)
            assert first.info[key][1] is None
            alt_2 = expected["v2"][1, n]
            assert second.info[key][0] == pytest.approx(alt_2, abs=1e-6)
        assert first.info["PREDICTED_REASON"][1] is not None
        assert "PREDICTED_REASON" not in second.info
        assert predict(folder, tmp_path / "in.vcf", tmp_path / "out.tsv", *more) == 0
        rows = table(tmp_path / "out.tsv")
        assert len(rows) == 3 and rows[1]["predicted_a"] == "."
        assert float(rows[0]["predicted_a_delta"]) == pytest.approx(
            expected["v1"][1, 0] - expected["v1"][0, 0], abs=1e-6
        )

    def test_how_a_variant_is_written_changes_nothing_but_where_offsets_count_from(
        self, tmp_path, network
    ):
        """Padded by three bases on the left and two on the right: POS lies three bases earlier."""
        folder, other = make(tmp_path, network, BASES), self.vcf(tmp_path)
        padded = f"{GENOME[296:302]}\t{GENOME[296:299]}{other}{GENOME[300:302]}"
        with (tmp_path / "in.vcf").open() as source:
            *header, plain, _ = source.read().splitlines()
        plain = plain.replace(",<DEL>", "")
        records = [f"chr1\t297\t.\t{padded}\t.\t.\t.", plain]
        (tmp_path / "in.vcf").write_text("\n".join([*header, *records]) + "\n")
        more = ("--reference", str(tmp_path / "g.fa"), "--window", "100")
        assert predict(folder, tmp_path / "in.vcf", tmp_path / "out.tsv", *more) == 0
        first, second = table(tmp_path / "out.tsv")
        for name in BASES.names:
            for side in ("", "_ref", "_delta"):
                assert first[f"predicted_{name}{side}"] == second[f"predicted_{name}{side}"]
            offsets = (int(row[f"predicted_{name}_offset"]) for row in (first, second))
            assert next(offsets) == next(offsets) + 3

    def test_of_every_base_the_largest_change(self, tmp_path, network):
        """Held against a walk over the bases, one by one, in dictionaries by place."""
        folder, other = make(tmp_path, network, BASES), self.vcf(tmp_path)
        with (tmp_path / "in.vcf").open("a") as sink:
            sink.write(f"chr1\t590\tv3\t{GENOME[589]}\t{GENOME[589]}CCCTT\t.\t.\t.\n")
        more = ("--reference", str(tmp_path / "g.fa"), "--window", "100")
        assert predict(folder, tmp_path / "in.vcf", tmp_path / "out.tsv", *more) == 0
        assert predict(folder, tmp_path / "in.vcf", tmp_path / "out.vcf", *more) == 0
        rows = [row for row in table(tmp_path / "out.tsv") if row["reason"] == "."]
        records = list(pysam.VariantFile(str(tmp_path / "out.vcf")))
        sequences = self.sequences(other)
        ends = (GENOME[539:600], GENOME[539:590] + "CCCTT" + GENOME[590:600])
        sequences = [*sequences.values(), ends]
        alleles = [(1, 1), (4, 1), (1, 6)]
        for row, record, pair, (ref_bp, alt_bp) in zip(
            rows, records, sequences, alleles, strict=True
        ):
            ref, alt = load_adapted(folder).predict(pair)
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
                told = record.info[f"{key.upper()}_OFFSET"][0]
                assert told == most[0] == int(row[key + "_offset"])

    def test_predicted_twice_or_of_another_reference(self, tmp_path, folder, capsys):
        self.vcf(tmp_path)
        more = ("--reference", str(tmp_path / "g.fa"), "--window", "100")
        assert predict(folder, tmp_path / "in.vcf", tmp_path / "one.vcf", *more) == 0
        assert predict(folder, tmp_path / "one.vcf", tmp_path / "two.vcf", *more) == 2
        assert "has predictions already" in capsys.readouterr().err
        write_fasta(tmp_path / "g.fa", {"chr1": reverse_complement(GENOME)})
        assert predict(folder, tmp_path / "in.vcf", tmp_path / "two.vcf", *more) == 2
        assert not (tmp_path / "two.vcf").exists()


def test_a_run_that_was_stopped_goes_on(tmp_path, network, monkeypatch):
    folder = make(tmp_path, network, BINARY)
    monkeypatch.setattr(prediction_files, "_BLOCK_ITEMS", 4)
    write_fasta(tmp_path / "in.fa", {f"s{n}": random_bases(20 + n) for n in range(18)})
    assert predict(folder, tmp_path / "in.fa", tmp_path / "whole.tsv") == 0
    whole, calls = Adapted.predict_block, []

    def stops(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Adapted, "predict_block", stops)
        assert predict(folder, tmp_path / "in.fa", tmp_path / "out.tsv") != 0
    assert not (tmp_path / "out.tsv").exists()
    assert predict(folder, tmp_path / "in.fa", tmp_path / "out.tsv") == 2
    counted = []
    monkeypatch.setattr(
        Adapted, "predict_block", lambda self, *a: counted.append(1) or whole(self, *a)
    )
    assert predict(folder, tmp_path / "in.fa", tmp_path / "out.tsv", "--resume") == 0
    assert len(counted) == 3  # of five blocks, two were kept
    assert (tmp_path / "out.tsv").read_bytes() == (tmp_path / "whole.tsv").read_bytes()


@pytest.mark.parametrize(
    ("source", "more", "wrong"),
    [
        ("in.fa", (), "record 'long': has 500 bp, the model reads 282"),
        ("in.fa", ("--reference", "in.fa"), "has its own sequences"),
        ("in.bed", (), "give --reference"),
        ("none.fa", (), "no such file"),
        ("in.bed", ("--reference", "in.fa"), "in.bed line 1"),
    ],
)
def test_what_is_wrong_is_one_line(tmp_path, folder, monkeypatch, capsys, source, more, wrong):
    monkeypatch.chdir(tmp_path)
    write_fasta(tmp_path / "in.fa", {"long": random_bases(500)})
    (tmp_path / "in.bed").write_text("chr7\t0\t9\n")
    assert predict(folder, source, "out.tsv", *more) == 2
    told = capsys.readouterr().err
    assert wrong in told.splitlines()[-1]
    assert not (tmp_path / "out.tsv").exists()


def test_two_processes_write_the_bytes_of_none(tmp_path, folder, capsys):
    """Of 300 sequences the first block takes 256."""
    sequences = {f"s{n}": random_bases(6 + n % 50, n) for n in range(300)}
    write_fasta(tmp_path / "in.fa", sequences)
    assert predict(folder, tmp_path / "in.fa", tmp_path / "alone.parquet") == 0
    told = capsys.readouterr().out
    shared = predict(folder, tmp_path / "in.fa", tmp_path / "shared.parquet", "--processes", "2")
    assert shared == 0
    assert capsys.readouterr().out == told.replace("alone", "shared")
    alone, shared = ((tmp_path / f"{name}.parquet").read_bytes() for name in ("alone", "shared"))
    assert alone == shared
