"""Recipes: what TOML becomes, what is refused, and that shipped recipes stay as they are."""

import math
import pickle
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
from pydantic import Field

from carbon.errors import ConfigError
from carbon.finetune.config import FinetuneConfig
from carbon.io.config import Name, NotEmpty, Recipe, read_table, with_overrides
from data_pipeline.recipe import BuildConfig
from train.config import TrainConfig, read_recipe
from train.schedule import Schedule

ROOT = Path(__file__).parents[2]
RECIPES = ROOT / "train" / "recipes"
GOLDEN = ROOT / "tests" / "golden"


class Inner(Recipe):
    rate: float = Field(gt=0, lt=9)
    kind: Literal["a", "b"] = "a"
    REMOVED: ClassVar = {"speed": "rate says it"}


class Outer(Recipe):
    name: Name
    inner: Inner
    parts: tuple[Inner, ...] = ()
    shares: dict[str, float] = Field(default_factory=dict)
    seeds: Annotated[tuple[int, ...], NotEmpty] = (0,)
    limit: int | None = None
    on: bool = False

    def problems(self) -> Iterator[tuple[str, str]]:
        if self.limit == 13:
            yield "limit", "13 is unlucky; give 12"
            yield "inner.rate", "goes with 12"
        if self.limit == 14:
            yield "", "all of it is wrong"


GOOD = {
    "name": 'x"\\y\r\x7f',
    "inner": {"rate": 1},
    "parts": [{"rate": 2.5, "kind": "b"}],
    "shares": {"p": 0.5, "my source": 0.25, 'a"b\n': 1.0},
    "on": True,
}


def test_tables_become_values():
    config = Outer.from_table(GOOD, "f")
    assert config.inner == Inner(rate=1.0) and type(config.inner.rate) is float
    assert config.parts == (Inner(rate=2.5, kind="b"),)
    assert config.limit is None
    assert Outer(**GOOD) == config == pickle.loads(pickle.dumps(config))


def test_toml_reads_back_to_the_same_value(tmp_path):
    config = Outer.from_table(GOOD, "f")
    (tmp_path / "f.toml").write_text(config.to_toml())
    assert Outer.load(tmp_path / "f.toml") == config
    assert tomllib.loads(config.to_toml())["seeds"] == [0]  # a default


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"xyz": "x"}, "xyz: unknown key; known keys are name, inner, parts, shares, seeds"),
        ({"parts": [{"rate": 1, "rat": 1}]}, "parts.0.rat: unknown key; did you mean 'rate'?"),
        ({"inner": {"rate": 1, "speed": 1}}, "inner.speed: is gone, take it out: rate says it"),
        ({"inner": 3}, "inner: expected a table, got 3"),
        ({"inner": {"rate": 9}}, "inner.rate: expected less than 9, got 9"),
        ({"parts": [{"rate": True}]}, "parts.0.rate: expected a number, got true"),
        ({"parts": {}}, "parts: expected an array, got a table"),
        ({"on": 1}, "on: expected true or false, got 1"),
        ({"shares": {"p": "q"}}, "shares.p: expected a number, got 'q'"),
        ({"shares": [1]}, "shares: expected a table, got an array"),
        ({"shares": {"p": math.inf}}, "shares.p: expected a finite number, got inf"),
        ({"limit": 2**63}, "limit: expected a whole number of less than 2^63, got 9223372036854"),
        ({"name": "a\0b"}, "name: expected text without a zero byte, got 'a"),
        ({"shares": {"a\0b": 1}}, "shares: expected text without a zero byte, got 'a"),
        ({"name": " "}, "name: expected a name, got ' '"),
        ({"seeds": []}, "seeds: expected one or more, got []"),
        ({"limit": 13}, "limit: 13 is unlucky; give 12\nf: inner.rate: goes with 12"),
        ({"limit": 14}, "all of it is wrong"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(ConfigError) as error:
        Outer.from_table(GOOD | change, "f")
    assert str(error.value).startswith(f"f: {message}")
    assert len(str(error.value).splitlines()) == len(message.splitlines())


def test_values_made_in_python_are_checked_too():
    config = Outer.from_table(GOOD, "f")
    assert config.replace(limit=3).limit == 3 and config.limit is None
    with pytest.raises(ConfigError, match="Outer: limit: 13 is unlucky"):
        config.replace(limit=13)
    with pytest.raises(ConfigError, match="Inner: rate: is missing"):
        Inner()
    with pytest.raises(ConfigError, match=r"Outer: inner\.rate: expected a number"):
        Outer(name="x", inner={"rate": "y"})
    with pytest.raises(ValueError, match="frozen"):
        config.limit = 3


def test_overrides_reach_into_tables_and_arrays():
    words = ["inner.rate=3", "parts.0.kind=a", "name=plain text", "limit = 7", "on=false"]
    config = Outer.from_table(with_overrides(GOOD, words), "f")
    assert (config.inner.rate, config.parts[0].kind, config.name) == (3.0, "a", "plain text")
    assert (config.limit, config.on) == (7, False)
    assert GOOD["inner"] == {"rate": 1}


@pytest.mark.parametrize(
    "override",
    ["name", "parts.3.rate=1", "parts.x.rate=1", "name.y=1", "name.y.z=1", "parts.0.rate.z=1"],
)
def test_overrides_that_reach_nothing_are_named(override):
    with pytest.raises(ConfigError, match="--set"):
        with_overrides(GOOD, [override])


def test_an_override_makes_the_first_of_an_array():
    words = ["assemblies.0.genome=a.fa", "assemblies.1.genome=b.fa", "output=o"]
    table = with_overrides({}, words)
    assert table == {"assemblies": [{"genome": "a.fa"}, {"genome": "b.fa"}], "output": "o"}
    with pytest.raises(ConfigError, match="'3' is not one of 0 to 1"):
        with_overrides({}, ["assemblies.0.genome=a.fa", "assemblies.3.genome=b.fa"])


@pytest.mark.parametrize("name", [path.name for path in sorted(RECIPES.glob("*.toml"))])
def test_shipped_recipes_are_as_they_were(name):
    """`tests/golden/recipes` has what they say otherwise than by default."""
    config = TrainConfig.from_table(read_recipe(RECIPES / name, (), 0), name)
    assert config == TrainConfig.load(GOLDEN / "recipes" / name)


@pytest.mark.parametrize(
    ("name", "schema"),
    [("train", TrainConfig), ("corpus", BuildConfig), ("finetune", FinetuneConfig)],
)
def test_defaults_are_as_they_were(name, schema):
    """A default that changes, changes recipes: then it is to change in `tests/golden/defaults`."""
    path = GOLDEN / "defaults" / f"{name}.toml"
    config = schema.load(path)
    given = schema.from_table(read_table(path), name).model_dump(exclude_defaults=True)
    assert schema.from_table(given, name).to_toml() == config.to_toml() == path.read_text()


def test_the_published_recipe():
    """Steps by hand: 256 rows of 8,192 are 2,097,152 tokens, as are 64 of 32,768."""
    table = read_recipe(RECIPES / "carbon_3b.toml")
    schedule = Schedule(TrainConfig.from_table(table, "carbon_3b"))
    starts = [(span.first_step, span.context_tokens, span.batch_rows) for span in schedule.spans]
    assert starts == [
        (0, 8192, 256),
        (47_684, 8192, 256),
        (381_471, 8192, 256),
        (476_839, 32768, 64),
    ]
    assert schedule.total_steps == 500_681
    assert (
        schedule.at(47_683).phase.objective == "ce" and schedule.at(47_684).phase.objective == "fns"
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("phases.0.mixture={a=0.00005,b=0.99995}", "multiple of 1/10000"),
        ("phases.0.batch_rows=0", "phases.0.batch_rows: expected 1 or more, got 0"),
        ("phases=[]", "phases: expected one or more, got []"),
        ("optimizer.clip_norm=0.0", "optimizer.clip_norm: expected more than 0, got 0.0"),
        ("data.workers=5000", "data.workers: expected 1024 or less, got 5000"),
    ],
)
def test_training_settings_are_checked(override, message):
    with pytest.raises(ConfigError) as error:
        TrainConfig.load(RECIPES / "tiny.toml", [override])
    assert message in str(error.value)


def test_build_settings_are_checked():
    one = {"genome": "g", "annotation": "a"}
    base = {"output": "o", "assemblies": [one]}
    for wrong, message in (
        (
            {"assemblies": [one | {"species_type": "dragon"}]},
            "assemblies.0.species_type: expected 'mam', .* got 'dragon'",
        ),
        ({"assemblies": [one, one]}, "two assemblies are named 'g'"),
        ({"assemblies": []}, "assemblies: give at least one of assemblies and files"),
        (
            {"keep": {"min_record_bp": 9, "max_record_bp": 8}},
            "keep.min_record_bp: 9: give max_record_bp = 8 at most",
        ),
        (
            {"executor": {"kind": "slurm"}},
            "executor.partition: is missing; kind = 'slurm' needs it",
        ),
        (
            {"evaluations": [{"path": "p", "assembly": "h"}]},
            "evaluations.0.assembly: 'h': there are g",
        ),
    ):
        with pytest.raises(ConfigError, match=message):
            BuildConfig.from_table(base | wrong, "f")
