"""A run as blocks: stopped, resumed and by several workers, with the records of one process."""

import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from carbon.errors import UserError
from carbon.parallel.driver import Workers
from carbon.parallel.engines import Answer, Seat
from eval import answers as answers_module
from eval import runner as runner_module
from eval.records import read_record
from eval.runner import Answerer, run_suite
from tests.helpers.eval_runner import LABELLED, TASK, Oracle, answers, records_of, suite_of
from tests.helpers.parallel import Stopped, stop_once_behind

NAMES = ["chance", "GC", "Markov-1", "Markov-3", "m"]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch):
    """Eight blocks of a model's 30 examples, and four of the baselines before them."""
    monkeypatch.setattr(answers_module, "_PIECE_EXAMPLES", 4)


class Several:
    """An engine of three workers in this process, which answer the last block first."""

    size = 3

    def __init__(self, make):
        self.seats, self.sent = [Seat(make) for _ in range(3)], []

    def submit(self, worker, number, payload):
        self.sent.append((worker, number, payload))

    def results(self, seconds):
        worker, number, payload = self.sent.pop()
        yield Answer(worker, number, self.seats[worker].compute(number, payload))

    def close(self):
        pass


def by_several(suite):
    engine = Several(partial(Answerer, suite))
    return run_suite(suite, Workers(engine, resume=suite.resume))


@pytest.mark.parametrize(("task", "context_bp"), [(TASK, None), (LABELLED, 30), (TASK, 3)])
def test_the_records_are_those_of_one_process(folder, task, context_bp):
    """Of which some examples do not fit, or none of them."""
    given = {"task": task, "context_bp": context_bp}
    alone = run_suite(suite_of(folder, output="alone", **given))
    shared = by_several(suite_of(folder, **given))
    assert [p.name for p in alone] == [p.name for p in shared]
    assert records_of(folder / "out") == records_of(folder / "alone")
    assert not list((folder / "out").rglob(".*"))


def test_a_stopped_run_loses_a_block_and_goes_on(folder, monkeypatch):
    asked: list[str] = []

    def run(model, some):
        for result in answers(model, some):
            asked.extend([result["id"]] if model.name == "m" else [])
            yield result

    run_suite(suite_of(folder, output="alone"))
    suite = suite_of(folder, task=replace(TASK, run=run))
    written = stop_once_behind(monkeypatch, 6)
    with pytest.raises(Stopped):
        run_suite(suite)
    # The records that were complete are there.
    names = [path.stem for path in (folder / "out/toy").glob("*.json")]
    assert sorted(names) == sorted(NAMES[:4])
    with pytest.raises(UserError, match="is there already; continue with --resume"):
        run_suite(suite)
    with pytest.raises(UserError, match="is of another max_samples"):
        run_suite(suite_of(folder, max_samples=9, resume=True))
    by_several(replace(suite, resume=True))
    assert sorted(written) == list(range(4 + 8))
    lost = [f"e{n}" for n in range(8, 12)]  # of the third block of the model
    assert sorted(asked) == sorted([f"e{n}" for n in range(30)] + lost)
    assert records_of(folder / "out") == records_of(folder / "alone")
    assert not (folder / ".out.progress").exists()


def test_records_that_are_there_are_left_alone(folder):
    """Of which those of the baselines have been asked for before, by one process."""
    run_suite(replace(suite_of(folder), models=[]))
    before = {path: path.read_bytes() for path in (folder / "out").rglob("*.json*")}
    with pytest.raises(UserError, match="is there already; continue with --resume"):
        by_several(suite_of(folder))
    assert not (folder / ".out.progress").exists()
    by_several(suite_of(folder, resume=True))
    assert {path: path.read_bytes() for path in before} == before
    (folder / "out/toy/GC.json").unlink()
    by_several(suite_of(folder, resume=True))
    run_suite(suite_of(folder, output="alone"))
    assert records_of(folder / "out") == records_of(folder / "alone")
    with pytest.raises(UserError, match="is of another max_samples"):
        by_several(suite_of(folder, max_samples=9, resume=True))


def test_a_merge_that_is_stopped_is_gone_on_with(folder, monkeypatch):
    write, left = runner_module.write_answers, [1, 1]

    def write_or_stop(*given):
        if not left:
            raise Stopped
        left.pop()
        write(*given)

    monkeypatch.setattr(runner_module, "write_answers", write_or_stop)
    with pytest.raises(Stopped):
        by_several(suite_of(folder))
    assert sorted(p.name for p in (folder / "out/toy").glob("*.json")) == ["GC.json", "chance.json"]
    kept = (folder / "out/toy/GC.json").read_bytes()
    monkeypatch.setattr(runner_module, "write_answers", write)
    by_several(suite_of(folder, resume=True))
    run_suite(suite_of(folder, output="alone"))
    assert records_of(folder / "out") == records_of(folder / "alone")
    assert (folder / "out/toy/GC.json").read_bytes() == kept


def test_one_model_is_in_memory_at_a_time(folder):
    """The first is let go before the second is loaded."""
    suite, alive = suite_of(folder), []

    def load(entrant):
        assert not [model for model in alive if model() is not None]
        model = Oracle(entrant.name, 0.5)
        alive.append(weakref.ref(model))
        return model

    models = [replace(suite.models[0], name=name) for name in "ab"]
    run_suite(replace(suite, models=models, load=load))
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


def test_the_journal_lies_beside_the_folder_of_the_records(folder, monkeypatch):
    monkeypatch.chdir(folder)
    Path("here").mkdir()
    monkeypatch.chdir("here")
    stop_once_behind(monkeypatch, 6)
    with pytest.raises(Stopped):
        run_suite(replace(suite_of(folder), output=Path(".")))
    assert (folder / ".here.progress").exists()
    run_suite(replace(suite_of(folder), output=Path("."), resume=True))
    assert not (folder / ".here.progress").exists()
    assert read_record(folder / "here/toy/m.json").record["counts"]["measured"] == 30


def test_a_record_that_is_removed_during_the_run_is_said(folder, monkeypatch):
    run_suite(replace(suite_of(folder), models=[]))
    monkeypatch.setattr(runner_module, "is_written", _with_a_look(runner_module.is_written, folder))
    with pytest.raises(UserError, match=r"GC\.json: was there when the run began"):
        run_suite(suite_of(folder, resume=True))


def _with_a_look(is_written, folder):
    """Have a record removed after the first look at all of them."""
    looks = []

    def looked(path, job):
        looks.append(path)
        if len(looks) == len(NAMES) + 1:
            (folder / "out/toy/GC.json").unlink()
        return is_written(path, job)

    return looked
