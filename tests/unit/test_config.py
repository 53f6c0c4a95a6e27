import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pytest

from carbon.config import OneOf, check, from_table, load_config, to_toml, with_overrides
from carbon.errors import ConfigError
from data_pipeline.recipe import BuildConfig
from train.config import TrainConfig
from train.planning.course import Course
from train.recipe import read_recipe

RECIPE = Path(__file__).parents[2] / "train" / "recipes" / "tiny.toml"


@dataclass(frozen=True, kw_only=True)
class Inner:
    rate: float
    kind: Annotated[str, OneOf(("a", "b"))] = "a"

    def __post_init__(self):
        check(self.rate > 0, f"rate = {self.rate}: give more than 0")


@dataclass(frozen=True, kw_only=True)
class Outer:
    name: str
    inner: Inner
    parts: tuple[Inner, ...] = ()
    shares: dict[str, float] = field(default_factory=dict)
    limit: int | None = None
    on: bool = False


GOOD = {
    "name": 'x"\\y\r\x7f',
    "inner": {"rate": 1},
    "parts": [{"rate": 2.5, "kind": "b"}],
    "shares": {"p": 0.5, "my source": 0.25, 'a"b\n': 1.0},
    "on": True,
}


def test_tables_become_values():
    config = from_table(Outer, GOOD, "f")
    assert config.inner == Inner(rate=1.0) and type(config.inner.rate) is float
    assert config.parts == (Inner(rate=2.5, kind="b"),)
    assert config.limit is None


def test_toml_reads_back_to_the_same_value(tmp_path):
    config = from_table(Outer, GOOD, "f")
    (tmp_path / "f.toml").write_text(to_toml(config))
    assert load_config(Outer, tmp_path / "f.toml") == config


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"nmae": "x"}, "f: unknown key 'nmae'; did you mean 'name'?"),
        ({"inner": {"rat": 1}}, "f: inner: unknown key 'rat'; did you mean 'rate'?"),
        ({"inner": {}}, "f: inner: 'rate' is missing"),
        ({"inner": {"rate": "x"}}, "f: inner: rate: expected a float, got 'x'"),
        ({"inner": {"rate": -1}}, "f: inner: rate = -1.0: give more than 0"),
        ({"inner": {"rate": 1, "kind": "c"}}, "f: inner: kind: expected one of 'a', 'b', got 'c'"),
        ({"parts": [{"rate": True}]}, "f: parts.0: rate: expected a float, got True"),
        ({"on": 1}, "f: on: expected a bool, got 1"),
        ({"limit": 1.5}, "f: limit: expected a int, got 1.5"),
        ({"shares": {"p": "q"}}, "f: shares.p: expected a float, got 'q'"),
        ({"inner": {"rate": math.nan}}, "f: inner: rate: expected a finite number, got nan"),
        ({"shares": {"p": math.inf}}, "f: shares.p: expected a finite number, got inf"),
        ({"limit": 2**63}, "f: limit: expected a whole number of less than 2^63, got 9223"),
        ({"name": "a\0b"}, "f: name: expected text without a zero byte, got 'a"),
    ],
)
def test_what_does_not_fit_is_named(change, message):
    with pytest.raises(ConfigError) as error:
        from_table(Outer, GOOD | change, "f")
    assert message in str(error.value)


def test_overrides_reach_into_tables_and_arrays():
    table = with_overrides(
        GOOD, ["inner.rate=3", "parts.0.kind=a", "name=plain text", "limit = 7", "on=false"]
    )
    config = from_table(Outer, table, "f")
    assert (config.inner.rate, config.parts[0].kind, config.name) == (3.0, "a", "plain text")
    assert (config.limit, config.on) == (7, False)
    assert GOOD["inner"] == {"rate": 1}


@pytest.mark.parametrize("override", ["name", "parts.3.rate=1", "parts.x.rate=1", "name.y=1"])
def test_overrides_that_reach_nothing_are_named(override):
    with pytest.raises(ConfigError, match="--set"):
        with_overrides(GOOD, [override])


def test_files_that_are_no_toml(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        load_config(Outer, tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_text("name = \n")
    with pytest.raises(ConfigError, match=r"bad\.toml: not valid TOML: .*line 1"):
        load_config(Outer, tmp_path / "bad.toml")


GOLDEN = Path(__file__).parents[1] / "golden" / "recipes"


@pytest.mark.parametrize("name", [path.name for path in sorted(RECIPE.parent.glob("*.toml"))])
def test_shipped_recipes_are_as_they_were(name):
    """A default that changes, changes recipes: then `tests/golden/recipes` is to change knowingly,
    by writing `to_toml` of the recipe, without its layouts, there."""
    config = from_table(TrainConfig, read_recipe(RECIPE.parent / name, (), 0), name)
    assert to_toml(config) == (GOLDEN / name).read_text()


def test_the_published_recipe():
    """Steps by hand: 256 rows of 8,192 are 2,097,152 tokens, as are 64 of 32,768."""
    table = read_recipe(RECIPE.parent / "carbon_3b.toml")
    course = Course(from_table(TrainConfig, table, "carbon_3b"))
    starts = [(span.first_step, span.context_tokens, span.batch_rows) for span in course.spans]
    assert starts == [
        (0, 8192, 256),
        (47_684, 8192, 256),
        (381_471, 8192, 256),
        (476_839, 32768, 64),
    ]
    assert course.total_steps == 500_681
    assert course.at(47_683).stage.objective == "ce" and course.at(47_684).stage.objective == "fns"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("stages.0.mixture.mrna=0.5", "mixture sums to 1.25, not 1"),
        ("stages.0.mixture={a=0.00005,b=0.99995}", "multiple of 1/10000"),
        ("stages.0.batch_rows=0", "batch_rows = 0"),
        ("model.preset=huge", "expected one of 'tiny', '3m', '5m', 'mini'"),
        ("stages=[]", "at least one"),
        ("optimizer.beta1=2.0", "beta1 = 2.0"),
        ("optimizer.clip_norm=0.0", "clip_norm = 0.0"),
        ("stages.0.warmup_steps=-1", "warmup_steps = -1"),
        ('output=" "', "output = ' ': give a name"),
        ('stages.0.name=""', "name = '': give a name"),
        ("seed=-1", "seed = -1: give 0 or more"),
        ("data.workers=5000", "workers = 5000: give 0 to 1024"),
        ("parallel.timeout_seconds=1000000000000", "timeout_seconds = 1000000000000: give 1 to"),
        ("optimizer.weight_decay=inf", "weight_decay: expected a finite number, got inf"),
        ("checkpoint.every_minutes=-0.5", "every_minutes = -0.5: give 0 or more"),
    ],
)
def test_training_settings_are_checked(override, message):
    with pytest.raises(ConfigError) as error:
        load_config(TrainConfig, RECIPE, [override])
    assert message in str(error.value)


def test_build_settings_are_checked():
    one = {"genome": "g", "annotation": "a"}
    base = {"output": "o", "assemblies": [one]}
    for wrong, message in (
        ({"assemblies": [one | {"species_type": "dragon"}]}, "species_type = 'dragon'"),
        ({"assemblies": [one | {"sources": ["dna"]}]}, "source 'dna': give some of eukaryote"),
        ({"assemblies": [one, one]}, "two assemblies are named 'g'"),
        ({"assemblies": []}, "give at least one of assemblies and files"),
        ({"files": [{"path": "p", "source": "x"}]}, "source 'x'"),
        ({"files": [{"path": "p", "source": "mrna", "test_share": 1.0}]}, "test_share = 1.0"),
        ({"cut": {"flank_bp": -1}}, "flank_bp = -1"),
        ({"keep": {"min_record_bp": 9, "max_record_bp": 8}}, "min_record_bp <= max_record_bp"),
        ({"keep": {"near_identity": 0.5}}, "near_identity: give 0.8 to 1"),
        ({"executor": {"kind": "slurm"}}, "slurm needs executor.partition"),
        ({"evaluations": [{"path": "p", "assembly": "h"}]}, "assembly 'h': there are g"),
        ({"executor": {"cpus_per_task": 0}}, "cpus_per_task = 0: give 1 or more"),
    ):
        with pytest.raises(ConfigError, match=message):
            from_table(BuildConfig, base | wrong, "f")


def test_an_override_makes_the_first_of_an_array():
    words = ["assemblies.0.genome=a.fa", "assemblies.1.genome=b.fa", "output=o"]
    table = with_overrides({}, words)
    assert table == {"assemblies": [{"genome": "a.fa"}, {"genome": "b.fa"}], "output": "o"}
    with pytest.raises(ConfigError, match="'3' is not one of 0 to 1"):
        with_overrides({}, ["assemblies.0.genome=a.fa", "assemblies.3.genome=b.fa"])
