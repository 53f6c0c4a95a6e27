"""Tables of modules: what lies in a folder stands in its table, and the pages name it."""

import re
from importlib import import_module
from pathlib import Path

import pytest

from carbon.cli import VERBS, _parser
from carbon.inference.scan import SCAN_WRITERS
from carbon.tables import TABLE_WRITERS
from demo.panel import Panel
from demo.panels import PANELS
from eval.tasks import TASKS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "extending.md"


def modules_in(folder: str) -> list[str]:
    """Return the names of the modules and folders that lie in a folder of code."""
    inside = (ROOT / folder).glob("[!_]*")
    return [
        path.stem for path in inside if path.suffix == ".py" or (path / "__init__.py").is_file()
    ]


def test_each_verb_is_in_the_table():
    found = {import_module(f"carbon.verbs.{name}") for name in modules_in("carbon/verbs")}
    assert {verb for verb in found if hasattr(verb, "add_parser")} == set(VERBS)


def test_each_task_is_in_the_table():
    found = [import_module(f"eval.tasks.{name}") for name in modules_in("eval/tasks")]
    assert {task.TASK.name for task in found if hasattr(task, "TASK")} == TASKS.keys()


def test_each_panel_is_in_the_table():
    for name in modules_in("demo/panels"):
        import_module(f"demo.panels.{name}")
    assert set(Panel.__subclasses__()) >= set(PANELS)
    assert {p for p in Panel.__subclasses__() if p.__module__.startswith("demo.")} == set(PANELS)


def test_each_bench_is_in_the_table():
    source = (ROOT / "bench" / "run.py").read_text()
    (table,) = re.findall(r"BENCHES = \((.*?)\)", source, re.DOTALL)
    assert set(re.findall(r'"(\w+)"', table)) == set(modules_in("bench/rooms"))


@pytest.mark.parametrize(
    ("page", "endings"),
    [("scanning.md", SCAN_WRITERS), ("scoring.md", [".vcf", ".vcf.gz", *TABLE_WRITERS])],
)
def test_each_output_format_is_on_its_page(page, endings):
    text = (ROOT / "docs" / page).read_text()
    assert [ending for ending in endings if f"`{ending}`" not in text] == []


def test_the_help_of_a_scan_names_each_ending(capsys):
    with pytest.raises(SystemExit):
        _parser().parse_args(["scan", "--help"])
    text = capsys.readouterr().out
    assert [ending for ending in SCAN_WRITERS if ending not in text] == []


def test_the_places_that_a_newcomer_is_sent_to_are_there():
    named = re.findall(r"`(\w+/[\w/.-]*(?:\.py|\.md|/))`", PAGE.read_text())
    assert len(named) > 20
    assert [name for name in named if not (ROOT / name).exists()] == []
