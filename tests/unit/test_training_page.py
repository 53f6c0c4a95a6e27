"""What docs/training.md says of the recipe's keys, held against the configuration."""

import re
from pathlib import Path

from train.config import OptimizerConfig

PAGE = (Path(__file__).parents[2] / "docs" / "training.md").read_text(encoding="utf-8")


def test_the_optimizer_is_listed_with_its_defaults():
    listed = dict(re.findall(r"^\| `optimizer\.(\w+)` \| ([^ |]+) \|", PAGE, re.MULTILINE))
    defaults = OptimizerConfig().to_table()
    assert listed.pop("name") == f"`{defaults.pop('name')}`"
    assert {name: float(value) for name, value in listed.items()} == defaults
