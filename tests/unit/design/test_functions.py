"""Scoring functions: their values, and a message for each wrong answer."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from carbon.design.functions import (
    FUNCTION_TYPES,
    column_of,
    parse_function,
    running_functions,
)
from carbon.errors import UserError
from carbon.finetune.predict import load_finetuned
from tests.helpers.files import random_bases
from tests.helpers.finetune import BASES as PER_BASE
from tests.helpers.finetune import BINARY, NUMBERS, base_folder, untrained_folder
from tests.helpers.processes import waits_for

NAMES = ["design_7", "design_8", "design_9"]
BASES = ["GGCC", "TTAC", "AAAA"]


def values_of(function, names=NAMES, sequences=BASES):
    with running_functions([function], 300) as (running,):
        return running.values(names, sequences)


def test_a_function_has_a_process_that_answers_many_times_and_ends(functions):
    with running_functions(["python:some_functions:gc"], 60) as (function,):
        assert function.values(NAMES, BASES) == function.values(NAMES, BASES) == [1.0, 0.25, 0.0]
        (running,) = function._engine._running.values()
    with pytest.raises(ProcessLookupError):
        os.kill(running.process.pid, signal.SIGCONT)


def test_a_script_without_a_main_guard_runs_once(functions, tmp_path):
    """`multiprocessing` would import the script again in the process of the function."""
    (tmp_path / "script.py").write_text(
        "from carbon.design.functions import running_functions\n"
        "print('begun', flush=True)\n"
        "with running_functions(['python:some_functions:gc'], 300) as (function,):\n"
        "    print(function.values(['a'], ['GGCC']))\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "begun\n[1.0]\n" and "begun" not in done.stderr


def in_this_process(spec, names, sequences):
    """Compute values as the worker process of a scoring function does."""
    function = parse_function(spec)
    return FUNCTION_TYPES[function.kind].load(function.argument)(names, sequences)


@pytest.mark.parametrize(
    "compute", [in_this_process, pytest.param(values_of, marks=pytest.mark.nightly)]
)
def test_a_finetuned_model_gives_its_predictions(tmp_path, network, compute):
    folder = untrained_folder(base_folder(tmp_path, network), NUMBERS, tmp_path / "numbers")
    sequences = [random_bases(60, seed=n) for n in range(3)]
    spec = f"finetuned:{folder}:b"
    assert parse_function(spec).name == "b"
    predicted = [float(each[1]) for each in load_finetuned(folder).predict(sequences)]
    assert compute(spec, NAMES, sequences) == pytest.approx(predicted, abs=1e-6)


def test_a_finetuned_model_must_give_one_number():
    assert column_of("m:yes", BINARY) == column_of("m", BINARY) == 0
    assert column_of("m:b", NUMBERS) == 1
    for argument, task, message in (
        ("m", NUMBERS, "predicts a, b; give"),
        ("m:no", BINARY, "predicts yes; give"),
        ("m:no", PER_BASE, "every base"),
    ):
        with pytest.raises(UserError, match=message):
            column_of(argument, task)


def no_t(sequences):
    if any(s.startswith("T") for s in sequences):
        raise ValueError("no T\nsecond line")
    return [1] * len(sequences)


@pytest.mark.parametrize(
    ("function", "values"),
    [
        (lambda sequences: [s.count("G") / 4 for s in sequences], [0.5, 0, 0]),
        (lambda sequences: np.linspace(0, 1, len(sequences), dtype="f4"), [0, 0.5, 1]),
        (lambda sequences: torch.tensor([1.0, 2, 3]), [1, 2, 3]),
        ("""command:awk '!/^>/ {print gsub(/[GC]/, "") / 4}'""", [1.0, 0.25, 0.0]),
    ],
)
def test_values(function, values):
    assert values_of(function) == values


@pytest.mark.parametrize(
    ("function", "message", "cause"),
    [
        (lambda sequences: [None for _ in sequences], "design_7: it gave None", None),
        (no_t, "'no_t': design_8: it raised ValueError: no T", ValueError),
        (lambda sequences: 1.0, "design_7 to design_9: it raised TypeError", TypeError),
        ("python:some_functions:absent", "the start: it raised AttributeError", None),
        ("command:sh -c 'cat>/dev/null; echo; echo 1; echo two; echo 3'", "8: it gave 'two'", None),
        ("command:sh -c 'echo 1; echo broken >&2; exit 4'", "it ended (broken)", None),
        ("command:sh -c 'kill -9 $$'", "it ended (SIGKILL)", None),
        ("command:no_such_command", "it cannot be started", None),
    ],
)  # fmt: skip
def test_a_wrong_answer_is_one_line_with_the_record(functions, function, message, cause):
    """The traceback of a callable is kept."""
    with pytest.raises(UserError) as raised:
        values_of(function)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert type(raised.value.__cause__) is (cause or type(None))


def test_wrong_answers_of_one_process(functions):
    with running_functions(["python:some_functions:odd"], 60) as (function,):
        for answers, message in {
            "raises": "'odd': design_8: it raised ValueError: no T",
            "no_numbers": "design_9: it gave 'high'",
            "not_finite": "design_7: it gave nan",
            "too_few": "design_7 to design_9: it gave 1 numbers for 3",
            "no_list": "design_7 to design_9: it raised TypeError",
            "ends": "design_7 to design_9: it ended (exit code 3)",
        }.items():
            with pytest.raises(UserError) as raised:
                function.values(NAMES, [answers, *BASES[1:]])
            assert message in str(raised.value) and "\n" not in str(raised.value)
        assert function.values(NAMES, BASES) == [1.0, 0.25, 0.0]  # of another process


def alive(marker: str) -> bool:
    listed = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    return marker in listed


@pytest.mark.parametrize(
    ("spec", "marker"),
    [
        ("python:some_functions:hangs", "some_functions:hangs"),
        ("command:sh -c 'sleep 601.25; echo 1'", "sleep 601.25"),
    ],
)
def test_what_hangs_is_ended_with_its_children(functions, spec, marker):
    with running_functions([spec], 60) as (function,):
        function._timeout_seconds = 0.2  # the start may take its time
        with pytest.raises(UserError, match=r"design_9: it did not answer in 0\.2 seconds"):
            function.values(NAMES, BASES)
        waits_for(lambda: not alive(marker))


def test_names():
    assert parse_function("python:m:f").name == "f"
    assert parse_function("strength=command:./score.sh --x a=b").name == "strength"
    assert parse_function("command:./score.sh --x a=b").name == "score"
    for wrong, message in {
        "my score=command:cat": "'my score'",
        "command:'a": "closing quotation",
        "command: ": "command",
    }.items():
        with pytest.raises(UserError, match=message):
            parse_function(wrong)
    twice = pytest.raises(UserError, match="two columns would be called 'f'")
    for specs, reserved in ((["python:m:f", "f=python:m:g"], ()), (["python:m:f"], ("f",))):
        with twice, running_functions(specs, 1, reserved):
            pass
