"""The table of a GPU: a row that fails, or takes too long, says so and stops nothing else."""

import pytest

from bench import gpu

pytestmark = pytest.mark.nightly


def test_a_row_is_told():
    row = gpu.guarded("kernel", toy=True, limit_seconds=120)
    assert set(row) == {"GB_per_s", "share_of_copy"}
    assert all(value > 0 for value in row.values())


def test_a_row_that_fails_is_told():
    assert gpu.guarded("kernel", toy=True, limit_seconds=0) == {"failed": "no time was left"}
    late = gpu.guarded("kernel", toy=True, limit_seconds=1)
    assert late == {"failed": "not done within 1 s"}
    assert "invalid choice" in gpu.guarded("none", toy=True, limit_seconds=60)["failed"]
