"""What the tests of eval_runner share."""

from functools import cache

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eval import cost
from tests.helpers.files import random_bases, write_fasta

SOFTWARE = cache(cost.software)


@pytest.fixture
def folder(tmp_path):
    rows = [
        {"prompt": random_bases(20 + 10 * (n % 3), n), "group": "ab"[n % 2], "phyloP": n / 30}
        for n in range(30)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "toy.parquet")
    write_fasta(tmp_path / "train.fa", {"c": random_bases(2000, 99)})
    return tmp_path


@pytest.fixture(autouse=True)
def software_asked_once(few_resamples, monkeypatch):
    """Each record names versions and revision, which git is a process for."""
    monkeypatch.setattr(cost, "software", SOFTWARE)
