"""A run as blocks that processes share: rows and records are those of one process."""

import json
import weakref
from dataclasses import replace
from pathlib import Path

import pytest

from carbon.blocks.crew import Crew
from carbon.blocks.launches import Launch
from carbon.errors import UserError
from eval import answers as answers_module
from eval import shared as shared_module
from eval.records import read_record
from eval.runner import run_suite
from tests.helpers.blocks import Stopped, stop_once_behind
from tests.helpers.eval_runner import LABELLED, TASK, Oracle, answers, records_of, suite_of

NAMES = ["chance", "GC", "Markov-1", "Markov-3", "m"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Eight blocks of a model's 30 examples, and four of the baselines before them."""
    monkeypatch.setattr(answers_module, "_PIECE_EXAMPLES", 4)


def crew(launch="l"):
    return Crew(Launch(launch))


@pytest.mark.parametrize(("task", "context_bp"), [(TASK, None), (LABELLED, 30), (TASK, 3)])
def test_the_records_are_those_of_one_process(folder, task, context_bp):
    """Of which some examples do not fit, or none of them."""
    given = {"task": task, "context_bp": context_bp}
    alone = run_suite(suite_of(folder, output="alone", **given))
    shared = run_suite(suite_of(folder, **given), crew())
    assert [p.name for p in alone] == [p.name for p in shared]
    assert records_of(folder / "out") == records_of(folder / "alone")
    assert not list((folder / "out").rglob(".*"))


def test_who_stops_loses_a_block_and_another_goes_on(folder, monkeypatch):
    asked: list[str] = []

    def run(model, some):
        for result in answers(model, some):
            asked.extend([result["id"]] if model.name == "m" else [])
            yield result

    run_suite(suite_of(folder, output="alone"))
    suite = suite_of(folder, task=replace(TASK, run=run))
    written = stop_once_behind(monkeypatch, 6)
    with pytest.raises(Stopped):
        run_suite(suite, crew())
    assert not (folder / "out").exists()
    with pytest.raises(UserError, match=r"\.out\.blocks: an earlier run was stopped"):
        run_suite(suite, crew("another"))
    with pytest.raises(UserError, match="differs in: toy/GC, toy/Markov-1"):
        run_suite(suite_of(folder, max_samples=9, resume=True), crew("another"))
    # Alone, which goes on with what several have left.
    run_suite(replace(suite, resume=True))
    assert written == list(range(4 + 8))
    lost = [f"e{n}" for n in range(8, 12)]  # of the third block of the model
    assert sorted(asked) == sorted([f"e{n}" for n in range(30)] + lost)
    assert records_of(folder / "out") == records_of(folder / "alone")
    assert not (folder / ".out.blocks").exists()


def test_who_comes_late_does_nothing(folder, capsys):
    run_suite(suite_of(folder), crew())
    before = records_of(folder / "out")
    assert run_suite(suite_of(folder), crew()) is None
    assert "is whole already" in capsys.readouterr().err
    assert records_of(folder / "out") == before
    assert [path.name for path in (folder / ".out.blocks").iterdir()] == ["job.json"]


def test_records_that_are_there_are_left_alone(folder):
    """Of which those of the baselines have been asked for before, by one process."""
    run_suite(replace(suite_of(folder), models=[]))
    before = {path: path.read_bytes() for path in (folder / "out").rglob("*.json*")}
    with pytest.raises(UserError, match="is there already; go on with --resume"):
        run_suite(suite_of(folder), crew())
    assert not (folder / ".out.blocks").exists()
    run_suite(suite_of(folder, resume=True), crew())
    assert {path: path.read_bytes() for path in before} == before
    run_suite(suite_of(folder, output="alone"))
    assert records_of(folder / "out") == records_of(folder / "alone")
    with pytest.raises(UserError, match="is of another max_samples"):
        run_suite(suite_of(folder, max_samples=9, resume=True), crew("another"))


def test_a_merge_that_is_stopped_is_gone_on_with(folder, monkeypatch):
    write, left = shared_module.write_answers, [1, 1]

    def write_or_stop(*given):
        if not left:
            raise Stopped
        left.pop()
        write(*given)

    monkeypatch.setattr(shared_module, "write_answers", write_or_stop)
    with pytest.raises(Stopped):
        run_suite(suite_of(folder), crew())
    assert sorted(p.name for p in (folder / "out/toy").glob("*.json")) == ["GC.json", "chance.json"]
    kept = (folder / "out/toy/GC.json").read_bytes()
    monkeypatch.setattr(shared_module, "write_answers", write)
    run_suite(suite_of(folder, resume=True), crew("another"))
    run_suite(suite_of(folder, output="alone"))
    assert records_of(folder / "out") == records_of(folder / "alone")
    assert (folder / "out/toy/GC.json").read_bytes() == kept


def test_a_record_that_was_removed_on_the_way_is_said(folder, monkeypatch):
    run_suite(replace(suite_of(folder), models=[]))
    stop_once_behind(monkeypatch, 6)
    with pytest.raises(Stopped):
        run_suite(suite_of(folder, resume=True), crew())
    (folder / "out/toy/GC.json").unlink()
    with pytest.raises(UserError, match=r"GC\.json: was there when the run began"):
        run_suite(suite_of(folder, resume=True), crew("another"))


def test_a_journal_of_one_process_is_for_one_process(folder):
    def run(model, some):
        for result in answers(model, some):
            if (model.name, result["id"]) == ("m", "e9"):
                raise Stopped
            yield result

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Stopped):
        patch.setattr(answers_module, "_BATCH_SECONDS", 0.0)
        run_suite(suite_of(folder, task=replace(TASK, run=run)))
    with pytest.raises(UserError, match=r"\.m\.json\.progress: .* --resume --processes 1"):
        run_suite(suite_of(folder, resume=True), crew())
    run_suite(suite_of(folder, resume=True))
    run_suite(suite_of(folder, output="alone"))
    assert records_of(folder / "out") == records_of(folder / "alone")


def test_a_broken_task_is_said_with_its_entrant(folder):
    def broken(model, some):
        for n, result in enumerate(answers(model, some)):
            yield {**result, "score": float("nan") if n == 3 else result["score"]}

    with pytest.raises(UserError, match=r"^toy \(.*\), chance: example 'e3'"):
        run_suite(suite_of(folder, task=replace(TASK, run=broken)), crew())


@pytest.mark.parametrize("shared", [False, True])
def test_one_model_is_in_memory_at_a_time(folder, shared):
    """The first is let go before the second is loaded, whichever way the run is done."""
    suite, alive = suite_of(folder), []

    def load(entrant):
        assert not [model for model in alive if model() is not None]
        model = Oracle(entrant.name, 0.5)
        alive.append(weakref.ref(model))
        return model

    models = [replace(suite.models[0], name=name) for name in "ab"]
    run_suite(replace(suite, models=models, load=load), crew() if shared else None)
    assert len(alive) == 2


@pytest.mark.parametrize(
    ("lengths_bp", "expected"),
    [
        ([10] * 9, [(0, 4), (4, 8), (8, 9)]),
        ([10] * 8, [(0, 4), (4, 8)]),
        ([10, 95, 10, 200, 10], [(0, 2), (2, 4), (4, 5)]),
        ([], []),
    ],
)
def test_pieces_hold_so_many_examples_or_bases(folder, monkeypatch, lengths_bp, expected):
    monkeypatch.setattr(answers_module, "_PIECE_BP", 100)
    suite = suite_of(folder)
    examples = [answers_module.Example(str(n), "", {}, bp) for n, bp in enumerate(lengths_bp)]
    pieces = answers_module.pieces_of(suite.models[0], examples)
    assert [(piece.start, piece.stop) for piece in pieces] == expected
    baseline = next(iter(suite.baselines.of(TASK)))
    assert answers_module.pieces_of(baseline, examples) == [range(len(examples))]


def test_the_folder_of_blocks_lies_beside_that_of_the_records(folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("here").mkdir()
    monkeypatch.chdir("here")
    run_suite(replace(suite_of(folder), output=Path(".")), crew())
    about = (folder / ".here.blocks/job.json").read_text()
    assert json.loads(about[9:])["launch"] == "l"
    assert read_record(folder / "here/toy/m.json").record["counts"]["measured"] == 30
