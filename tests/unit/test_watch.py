"""What is found in curves, and above all what is not."""

import math

import numpy as np
import pytest

from train.watch import Stair, gap_widens, rises_persistently, staircase


def noise(n: int, deviation: float, seed: int = 0, heavy: bool = False) -> np.ndarray:
    random = np.random.default_rng(seed)
    if heavy:
        return deviation * random.standard_t(3, n) / math.sqrt(3)
    return deviation * random.normal(size=n)


def descent(n: int, deviation: float, seed: int = 0, power: float = 0.3, heavy: bool = False):
    steps = np.arange(1, n + 1)
    return 0.8 + 0.6 * steps**-power + noise(n, deviation, seed, heavy)


class TestRises:
    def norms(self, *levels: float, window: int = 200) -> list[float]:
        flat = np.repeat(levels, window)
        return (flat * np.exp(noise(len(flat), 0.2))).tolist()

    def test_three_windows_above_the_least_before(self):
        assert rises_persistently(self.norms(2, 1, 1.2, 1.8, 1.8, 1.9))
        assert not rises_persistently(self.norms(2, 1, 1.2, 1.8, 1.8))  # only two so far
        assert not rises_persistently(self.norms(2, 1, 1.8, 1.8, 1.9, 1.2))  # it has come back
        assert not rises_persistently(self.norms(1, 1.1, 1.2, 1.3, 1.4, 1.4))
        assert rises_persistently(self.norms(1, 1.3, 1.3, 1.3), factor=1.2)
        assert rises_persistently(self.norms(1, 2), windows=1)

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
        assert gap_widens([0.001, 0.002, 0.003], probes=3, least=0.0)
        assert not gap_widens([0.0, 0.004, 0.011, 0.015])
        assert not gap_widens([0.0, 0.0008, 0.0021, 0.0029, 0.0041])  # too small to matter
        assert not gap_widens([0.021, 0.015, 0.011, 0.004, 0.0])
        assert not gap_widens([0.02] * 5)
        assert not gap_widens([0.0, 0.02, 0.001, 0.03, 0.01])  # no line

    def test_gaps_without_a_trend_pass_for_one_in_a_hundred(self):
        random = np.random.default_rng(0)
        found = [gap_widens((0.02 + 0.004 * random.normal(size=5)).tolist()) for _ in range(4000)]
        assert 0.005 < np.mean(found) < 0.016

    def test_too_few_for_an_error(self):
        with pytest.raises(ValueError, match="probes = 2"):
            gap_widens([1, 2, 3], probes=2)


class TestStaircase:
    @pytest.mark.parametrize(
        ("deviation", "power", "heavy"),
        [(0, 0.1, False), (0.002, 0.7, True), (0.01, 0.3, True), (0.05, 0.1, False)],
    )
    def test_a_smooth_descent_has_none(self, deviation, power, heavy):
        for seed in range(3):
            for n in (1000, 8000):
                assert staircase(descent(n, deviation, seed, power, heavy)) == []

    @pytest.mark.parametrize(("deviation", "steps_off"), [(0, 0), (0.002, 0), (0.01, 2), (0.03, 9)])
    def test_a_step_is_found_where_it_is(self, deviation, steps_off):
        for seed in range(5):
            losses = descent(3000, deviation, seed)
            losses[1700 + seed :] -= 0.05
            (stair,) = staircase(losses)
            assert abs(stair.step - 1700 - seed) <= steps_off
            assert stair.height_nats == pytest.approx(0.05, abs=0.002 + deviation / 2)
            assert stair.width_steps <= 2

    def test_several_steps_and_slow_ones(self):
        losses = descent(6000, 0.003)
        losses[2000:] -= 0.05
        losses[2400:] -= 0.03
        losses -= 0.06 * np.clip((np.arange(6000) - 3970) / 60, 0, 1)
        found = staircase(losses)
        assert [stair.step for stair in found] == [
            pytest.approx(place, abs=3) for place in (2000, 2400, 4000)
        ]
        assert [stair.height_nats for stair in found] == [
            pytest.approx(height, abs=0.006) for height in (0.05, 0.03, 0.06)
        ]
        assert [stair.width_steps for stair in found] == [1, 1, pytest.approx(60, abs=20)]

    def test_a_boundary_is_no_stair(self):
        losses = descent(3000, 0.003)
        losses[1000:] -= 0.2
        losses[2000:] -= 0.05
        assert [s.step for s in staircase(losses, boundaries=[1000])] == [2000]
        assert staircase(losses, boundaries=[2000, 1000, 0, 3000, 9999]) == []
        assert len(staircase(losses)) == 2

    def test_what_else_comes_down_is_no_stair(self):
        steps = np.arange(1, 6001)
        base = descent(6000, 0.005)
        decay = base - 0.1 * np.clip((steps - 5000) / 1000, 0, 1)
        slow = base - 0.2 / (1 + np.exp(-(steps - 3000) / 150))
        assert staircase(decay) == staircase(slow) == []
        spikes = base.copy()
        spikes[np.random.default_rng(0).integers(0, 6000, 40)] += 3.0
        bumps = base.copy()
        for first, length in ((500, 3), (1000, 30), (2000, 150), (4000, 700)):
            bumps[first : first + length] += 0.3
        relaxed = base + 0.3 * np.exp(-(steps - 2000) / 60) * (steps >= 2000)
        assert staircase(spikes) == staircase(bumps) == staircase(relaxed) == []

    def test_what_is_too_low_is_left_out(self):
        losses = descent(3000, 0.0005)
        losses[1500:] -= 0.008
        assert staircase(losses) == []
        assert [s.step for s in staircase(losses, least=0.005)] == [1500]

    def test_odd_lists(self):
        assert staircase([]) == staircase([1.0]) == staircase([math.nan] * 900) == []
        assert staircase([1.0] * 1000) == []
        flat = [1.0] * 500 + [0.9] * 500
        assert staircase(flat) == [Stair(500, pytest.approx(0.1), 1)]
        flat[200] = flat[201] = flat[700] = math.nan
        flat[490] = math.inf
        assert [s.step for s in staircase(flat)] == [500]
