"""Numbers of every base: bigWig files read at the intervals of a BED, learned and predicted."""

import numpy as np
import pyBigWig
import pytest

import carbon
from carbon.errors import UserError
from carbon.finetune.config import DataConfig, MethodConfig, TaskConfig
from carbon.finetune.data import prepare, read_labels
from carbon.finetune.probe import kmers_averager, read_kmers
from carbon.finetune.readers import read_rows
from carbon.finetune.split import Examples
from carbon.finetune.tasks import LabelTask
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.finetune import base_folder, finetuned_of, strict_json, write_rows

GENOME = random_bases(1200)
UNKNOWN = ("", "NA")


def write_track(path, values):
    """Write a bigWig with these values of the contig; bases with NaN have none."""
    with pyBigWig.open(str(path), "w") as sink:
        sink.addHeader([("chr1", len(values))])
        known = np.flatnonzero(~np.isnan(values)).tolist()
        ends = [start + 1 for start in known]
        sink.addEntries(["chr1"] * len(known), known, ends=ends, values=values[known].tolist())


@pytest.fixture
def tracks():
    """Whether a base is C or G, with unknown bases; and twice whether it is A or T."""
    strong = np.array([float(base in "CG") for base in GENOME])
    weak = 2 * (1 - strong)
    strong[100:110] = np.nan
    return {"strong": strong, "weak": weak}


@pytest.fixture
def data(tmp_path, tracks):
    write_fasta(tmp_path / "g.fa", {"chr1": GENOME})
    for name, values in tracks.items():
        write_track(tmp_path / f"{name}.bw", values)
    places = [
        (start, start + 31 + start % 3, "+-"[start // 40 % 2]) for start in range(0, 1160, 40)
    ]
    lines = [f"chr1\t{start}\t{end}\tx{start}\t0\t{strand}\n" for start, end, strand in places]
    (tmp_path / "p.bed").write_text("".join(lines))
    return DataConfig(
        path="p.bed", folder=str(tmp_path), reference=str(tmp_path / "g.fa"),
        tracks={name: f"{name}.bw" for name in tracks}, homology="kmers",
        split={"validation_share": 0.25, "test_share": 0.25},
    )  # fmt: skip


def test_labels_are_the_values_along_the_strand(data, tracks):
    prepared = prepare(data, TaskConfig(type="tracks", transform="none"), 6)
    examples = prepared.examples
    assert prepared.task.names == ("strong", "weak") and examples.labels.shape[1] == 2
    # Bases 100 to 110 lie in the window from 80 to 113.
    assert prepared.notes[:2] == (
        f"Track strong: 10 of {len(examples.labels):,} bases have no value.",
        f"Track weak: 0 of {len(examples.labels):,} bases have no value.",
    )
    for n, name in enumerate(examples.names):
        start, end = map(int, name.split(":")[1].split("(")[0].split("-"))
        expected = np.stack([values[start - 1 : end] for values in tracks.values()], axis=1)
        turned = expected[::-1] if name.endswith("(-)") else expected
        np.testing.assert_array_equal(examples.labels[examples.rows_of(n)], turned)


def test_a_window_beyond_a_track_or_on_another_contig_is_unknown(data, tmp_path, tracks):
    write_fasta(tmp_path / "g.fa", {"chr1": GENOME, "chr2": GENOME[:100]})
    write_track(tmp_path / "strong.bw", tracks["weak"][:1100])
    (tmp_path / "p.bed").write_text("chr1\t1090\t1110\nchr2\t0\t20\n")
    one, other = read_rows(data, 6).labels["strong"]
    np.testing.assert_array_equal(one[:10], tracks["weak"][1090:1100])
    assert np.isnan(one[10:]).all() and np.isnan(other).all()
    assert "It lacks 1 contigs of the intervals: 'chr2'." in read_rows(data, 6).notes[0]


def test_a_track_may_name_contigs_like_the_bed_or_like_the_reference(data, tmp_path, tracks):
    """The BED and the bigWig have chr1, the reference has 1; or only the bigWig differs."""
    expected = read_rows(data, 6).labels["weak"]
    write_fasta(tmp_path / "g.fa", {"1": GENOME})
    found = read_rows(data.model_copy(update={"contigs": "chr"}), 6).labels["weak"]
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]
    bed = (tmp_path / "p.bed").read_text().replace("chr1", "1")
    (tmp_path / "p.bed").write_text(bed)
    with pytest.raises(UserError, match=r"strong\.bw: has contigs such as 'chr1'.*--contigs chr"):
        read_rows(data, 6)
    found = read_rows(data.model_copy(update={"contigs": "chr"}), 6).labels["weak"]
    assert [each.tolist() for each in found] == [each.tolist() for each in expected]


def test_a_probe_fits_the_numbers_of_each_base_of_a_six_mer(base):
    """Rows are 6-mers, forward and then turned; columns are bases, and tracks within a base."""
    examples = Examples(
        names=("a", "b"), sequences=(GENOME[:8], GENOME[:13]), splits=("train",) * 2,
        labels=np.arange(42, dtype=np.float32).reshape(21, 2), groups=("", ""), per_base=True,
    )  # fmt: skip
    task, method = LabelTask("tracks", ("x", "y"), "mse"), MethodConfig(name="probe")
    _, opened = finetuned_of(base, task, method)
    found = read_kmers(kmers_averager(opened, [None]), examples, method, 0)
    expected = []
    for n in range(2):
        values = examples.labels[examples.rows_of(n)]
        for strand in (values, values[::-1]):
            padded = [*strand.ravel().tolist(), *[np.nan] * (-2 * len(strand) % 12)]
            expected += [padded[first : first + 12] for first in range(0, len(padded), 12)]
    np.testing.assert_array_equal(found.labels, expected)


@pytest.mark.parametrize("method", ["probe", "lora"])
def test_tracks_are_learned_and_predicted_base_by_base(data, tmp_path, network, no_pages, method):
    base_folder(tmp_path, network)
    config = {
        "model": str(tmp_path / "base"), "output": str(tmp_path / "out"),
        "data": data.model_dump(), "task": {"type": "tracks"},
        "method": {"name": method, "epochs": 0.5, "batch": 8}, "baselines": ["kmers"],
    }  # fmt: skip
    results = carbon.finetune.run(None, config)
    # The k-mer baseline sees the base itself: both tracks, not exchanged, are found exactly.
    for name in ("strong", "weak"):
        assert results["test"]["kmers"][f"pearson[{name}]"]["value"] > 0.99
    assert strict_json(tmp_path / "out" / "results.json") == results
    (found,) = carbon.load_finetuned(tmp_path / "out").predict([GENOME[:50]])
    assert found.shape == (50, 2) and np.isfinite(found).all()


def test_a_wrong_track_is_named(data, tmp_path):
    (tmp_path / "weak.bw").write_bytes(b"text")
    with pytest.raises(UserError, match=r"weak\.bw: is not a bigWig"):
        read_rows(data, 6)
    (tmp_path / "weak.bw").unlink()
    with pytest.raises(UserError, match=r"weak\.bw: no such file"):
        read_rows(data, 6)


def test_a_table_may_hold_the_numbers_of_each_base(tmp_path):
    rows = [("a", "ACG", "1 NA 3"), ("b", "AC", "4,5")]
    config = DataConfig(path=str(write_rows(tmp_path / "t.csv", rows)))
    named = read_labels(read_rows(config, 6), TaskConfig(type="tracks"), UNKNOWN)
    np.testing.assert_array_equal(named.labels[:, 0], [1, np.nan, 3, 4, 5])
    for wrong, message in (("1 2", "2 numbers in 'label' and 3 bases"), ("1 x 3", "has text in")):
        path = write_rows(tmp_path / "w.csv", [("a", "ACG", wrong)])
        with pytest.raises(UserError, match=rf"w.csv line 2: .*{message}"):
            read_labels(
                read_rows(DataConfig(path=str(path)), 6), TaskConfig(type="tracks"), UNKNOWN
            )


def test_what_tracks_do_not_go_with(data, tmp_path):
    path = write_rows(tmp_path / "t.csv", [("a", "ACG", "1 2 3")])
    with pytest.raises(UserError, match=r"task\.names: 2 for 1 columns of labels"):
        two = TaskConfig(type="tracks", names=("x", "y"))
        read_labels(read_rows(DataConfig(path=str(path)), 6), two, UNKNOWN)
    with pytest.raises(UserError, match=r"t\.csv: data\.tracks is for a BED, not for csv"):
        read_rows(data.replace(path=path.name, reference=""), 6)
