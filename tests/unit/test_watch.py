"""What is found in curves, and above all what is not."""

import math

import numpy as np

from train.watch import gap_widens, rises_persistently


def noise(n: int, deviation: float) -> np.ndarray:
    return deviation * np.random.default_rng(0).normal(size=n)


class TestRises:
    def norms(self, *levels: float, window: int = 200) -> list[float]:
        flat = np.repeat(levels, window)
        return (flat * np.exp(noise(len(flat), 0.2))).tolist()

    def test_three_windows_above_the_least_before(self):
        assert rises_persistently(self.norms(2, 1, 1.2, 1.8, 1.8, 1.9))
        assert not rises_persistently(self.norms(2, 1, 1.2, 1.8, 1.8))  # only two so far
        assert not rises_persistently(self.norms(2, 1, 1.8, 1.8, 1.9, 1.2))  # it has come back
        assert not rises_persistently(self.norms(1, 1.1, 1.2, 1.3, 1.4, 1.4))

    def test_it_waits_for_whole_windows(self):
        norms = self.norms(1, 1, 2, 2, 2)
        assert [rises_persistently(norms[:n]) for n in (0, 200, 999, 1000, 1001, 1199)] == [
            False, False, False, True, True, True
        ]  # fmt: skip

    def test_spikes_and_steps_without_a_norm_are_no_rise(self):
        norms = np.array(self.norms(1, 1, 1, 1, 1))
        norms[np.random.default_rng(1).integers(400, 1000, 120)] = 1000.0
        norms[450:520] = math.nan
        assert not rises_persistently(norms.tolist())
        norms[400:1000] = math.inf
        assert rises_persistently(norms.tolist())


class TestGap:
    def test_a_line_that_rises(self):
        assert gap_widens([0.0, 0.004, 0.011, 0.015, 0.021])
        assert gap_widens([0.5, 0.0, 0.0, 0.004, 0.011, 0.015, 0.021])  # the last five
        assert not gap_widens([0.0, 0.004, 0.011, 0.015])
        assert not gap_widens([0.0, 0.0008, 0.0021, 0.0029, 0.0041])  # too small to matter
        assert not gap_widens([0.021, 0.015, 0.011, 0.004, 0.0])
        assert not gap_widens([0.02] * 5)
        assert not gap_widens([0.0, 0.02, 0.001, 0.03, 0.01])  # no line

    def test_gaps_without_a_trend_pass_for_one_in_a_hundred(self):
        random = np.random.default_rng(0)
        found = [gap_widens((0.02 + 0.004 * random.normal(size=5)).tolist()) for _ in range(4000)]
        assert 0.005 < np.mean(found) < 0.016
