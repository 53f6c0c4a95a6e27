"""A recipe that has gained a key: what an older checkpoint does not name has its default."""

from pydantic import Field

from carbon.io.config import Recipe
from train.saved import with_defaults


class Part(Recipe):
    rows: int
    new: str = "x"


class Stage(Recipe):
    name: str
    shares: dict[str, float] = Field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    new: float = 0.5


class Table(Recipe):
    old: int = 1
    new: tuple[str, ...] = ("a", "b")


class Run(Recipe):
    seed: int
    stages: tuple[Stage, ...]
    table: Table = Table()
    new_table: Table = Table(old=3)
    new: bool = False


def run(*stages: Stage) -> Run:
    return Run(seed=1, stages=stages, table=Table(old=9, new=("z",)), new=True)


def test_absent_keys_have_their_defaults_at_any_depth():
    config = run(Stage(name="s", new=0.7, parts=(Part(rows=4, new="y"),)))
    before = {
        "seed": 7,
        "stages.0.name": "t",
        "stages.0.parts.0.rows": 4,
        "table.old": 9,
        "new_table.old": 2,
    }
    assert with_defaults(config, before) == before | {
        "stages.0.new": 0.5,
        "stages.0.parts.0.new": "x",
        "table.new": ["a", "b"],
        "new_table.new": ["a", "b"],
        "new": False,
    }


def test_a_new_array_of_tables_was_empty():
    before = {"stages.0.name": "s", "stages.0.new": 0.5}
    assert with_defaults(run(Stage(name="s")), before)["stages.0.parts"] == []
    longer = with_defaults(run(Stage(name="s", parts=(Part(rows=4),))), before)
    assert not [name for name in longer if name.startswith("stages.0.parts")]


def test_a_stage_that_was_not_there_is_no_new_key():
    found = with_defaults(run(Stage(name="s"), Stage(name="t")), {"stages.0.name": "s"})
    assert "stages.0.new" in found
    assert not [name for name in found if name.startswith("stages.1")]


def test_what_has_no_default_stays_absent():
    assert "seed" not in with_defaults(run(Stage(name="s")), {})
