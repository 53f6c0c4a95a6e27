"""How a model learned a region: the file, what is reckoned of it, and the bundled one."""

import math

import numpy as np
import pytest

import carbon
from carbon.errors import UserError
from carbon.genome import Interval, Reference, Transcript, read_annotation
from carbon.pretrained import BUNDLED_MODELS
from demo.coding import codon_positions
from demo.learning_curves import Learning, nats_of, read_learning, write_learning
from tests.helpers.bundled_model import real_entry

NATS = np.array([[1.5, 1.25, 0.5, np.nan, 1.0], [0.25, 0.0, 2.0, np.nan, 1.5]], dtype=np.float16)
LEARNED = Learning(Interval("c1", 10, 15), (0, 25), NATS)


@pytest.fixture(scope="module")
def kept():
    return read_learning(real_entry("yeast").learning)


@pytest.fixture(scope="module")
def eno2():
    entry = real_entry("yeast")
    with Reference(entry.genome) as genome:
        genes = read_annotation(entry.annotation, genome).genes
    return genes, next(gene for gene in genes if gene.name == "ENO2").transcripts[0]


def test_a_file_is_read_as_it_was_written_and_equal_values_give_equal_bytes(tmp_path):
    one, other = tmp_path / "a.npz", tmp_path / "b.npz"
    write_learning(one, LEARNED)
    write_learning(other, LEARNED)
    found = read_learning(one)
    assert (found.interval, found.steps) == (LEARNED.interval, LEARNED.steps)
    np.testing.assert_array_equal(found.nats_per_base, NATS)
    assert found.nats_per_base.dtype == np.float16
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.parametrize("content", [b"", b"no archive", b"PK\x03\x04torn", None])
def test_another_file_is_refused(tmp_path, content):
    path = tmp_path / "a.npz"
    if content is None:
        np.savez(path, steps=np.arange(3))
    else:
        path.write_bytes(content)
    with pytest.raises(UserError, match="holds no scans of a training"):
        read_learning(path)


def test_bits_are_what_is_known_beyond_a_fair_die():
    bits = LEARNED.known_bits
    assert bits[0, 0] == pytest.approx(2 - 1.5 / math.log(2))
    assert bits[1, 1] == 2.0 and math.isnan(bits[0, 3])
    # Means of three, without the unknown base and what lies outside.
    smooth = LEARNED.smoothed_bits(3)
    assert smooth[0, 0] == pytest.approx(bits[0, :2].mean())
    assert smooth[1, 2] == pytest.approx(bits[1, 1:3].mean())
    assert smooth[1, 4] == pytest.approx(bits[1, 4])
    assert LEARNED.mean_bits([10, 12, 99]).tolist() == pytest.approx(bits[:, [0, 2]].mean(axis=1))
    assert np.isnan(LEARNED.mean_bits([15])).all()


@pytest.mark.parametrize(
    ("strand", "phase", "expected"),
    [("+", 0, (3, 4, 5, 9, 10, 11)), ("-", 0, (11, 10, 9, 5, 4, 3)), ("-", 2, (9, 5, 4, 3))],
)
def test_positions_of_codons_go_along_the_strand(strand, phase, expected):
    cds = ((3, 6), (9, 12))
    transcript = Transcript("t", "c1", strand, cds, cds, False, "here", phase_bp=phase)
    assert codon_positions(transcript) == expected


def test_the_box_keeps_scans_and_not_weights(kept):
    assert BUNDLED_MODELS["yeast"].learning.stat().st_size < 300_000
    assert kept.steps == (0, 25, 50, 100, 150, 200, 300, 500, 700, 1000, 3000, 9000)
    assert kept.nats_per_base.shape == (12, kept.interval.length_bp)


def test_the_last_scan_is_what_the_bundled_model_says_now(kept):
    with Reference(real_entry("yeast").genome) as genome:
        now = nats_of(carbon.load("yeast"), genome, kept.interval)
    np.testing.assert_allclose(kept.nats_per_base[-1], now, rtol=2**-10, atol=1e-4)


@pytest.mark.nightly
def test_what_the_demo_says_of_each_step_is_so(kept, eno2):
    """The captions of `demo.learning`, by numbers."""
    genes, transcript = eno2
    along = codon_positions(transcript)
    taken = {at for g in genes for at in range(g.interval.start, g.interval.end)}
    between = [at for at in range(kept.interval.start, kept.interval.end) if at not in taken]
    one, two, three = (dict(zip(kept.steps, kept.mean_bits(along[n::3]), strict=True))
                       for n in range(3))  # fmt: skip
    gene = dict(zip(kept.steps, kept.mean_bits(along), strict=True))
    outside = dict(zip(kept.steps, kept.mean_bits(between), strict=True))
    assert abs(gene[0]) < 0.05 and abs(outside[0]) < 0.05, "a fair die, but for luck"
    assert outside[25] > 0.05 and gene[25] < 0.02, "between genes first, and hardly in the gene"
    assert one[50] < two[50], "no codons yet"
    for step in (100, 150, 200, 300):
        assert one[step] > two[step] > three[step], "the first base of codons is known best"
    assert one[500] > two[500] and one[500] > three[500], (
        "and still is, when base 3 overtakes base 2"
    )
    assert gene[150] < outside[150], "it does not yet stand out"
    for step in (300, 500, 700, 1000, 3000, 9000):
        assert gene[step] > outside[step], "the gene lights up"
    for step in (500, 700, 1000, 3000, 9000):
        assert three[step] > two[step], "the third base has overtaken the second"
    others = [g for g in genes if g.interval.overlaps(kept.interval) and g.name != "ENO2"]
    assert len(others) == 2
    for other in others:
        mean = kept.mean_bits(range(other.interval.start, other.interval.end))[-1]
        assert mean < 0.3 * gene[9000], "its neighbours hardly do"
