"""Scoring functions: what they answer, and every wrong answer."""

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch

from carbon.design.functions import LOADERS, column_of, parse_function, start_functions
from carbon.errors import UserError
from carbon.finetune.predict import load_finetuned
from tests.helpers.files import random_bases
from tests.helpers.finetune import BASES as OF_BASES
from tests.helpers.finetune import BINARY, NUMBERS, base_folder, untrained_folder
from tests.helpers.processes import waits_for

NAMES = ["design_7", "design_8", "design_9"]
BASES = ["GGCC", "TTAC", "AAAA"]


def asked(spec):
    (function,) = start_functions([spec], 60)
    try:
        return function.values(NAMES, BASES)
    finally:
        function.close()


def test_a_function_has_a_process_that_answers_many_times_and_ends(functions):
    (function,) = start_functions(["python:some_functions:gc"], 60)
    for _ in range(2):
        assert function.values(NAMES, BASES) == [1.0, 0.25, 0.0]
    (number,) = function._process.pids()
    function.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, signal.SIGCONT)


def test_a_script_without_a_main_guard_runs_once(functions, tmp_path):
    """`multiprocessing` would import the script again in the process of the function."""
    (tmp_path / "script.py").write_text(
        "from carbon.design.functions import start_functions\n"
        "print('begun', flush=True)\n"
        "(function,) = start_functions(['python:some_functions:gc'], 300)\n"
        "print(function.values(['a'], ['GGCC']))\n"
        "function.close()\n"
    )
    done = subprocess.run(
        [sys.executable, tmp_path / "script.py"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "begun\n[1.0]\n" and "begun" not in done.stderr


def test_a_command_reads_fasta():
    assert asked("""command:awk '!/^>/ {print gsub(/[GC]/, "") / 4}'""") == [1.0, 0.25, 0.0]


def in_this_process(spec, names, sequences):
    """Compute values as the worker process of a scoring function does."""
    function = parse_function(spec)
    return LOADERS[function.kind](function.argument)(sequences)


def in_its_own_process(spec, names, sequences):
    (function,) = start_functions([spec], 300)
    found = function.values(names, sequences)
    function.close()
    return found


@pytest.mark.parametrize(
    "answer", [in_this_process, pytest.param(in_its_own_process, marks=pytest.mark.nightly)]
)
def test_a_finetuned_model_gives_what_it_predicts(tmp_path, network, answer):
    folder = untrained_folder(base_folder(tmp_path, network), NUMBERS, tmp_path / "numbers")
    sequences = [random_bases(60, seed=n) for n in range(3)]
    spec = f"finetuned:{folder}:b"
    assert parse_function(spec).name == "b"
    predicted = list(load_finetuned(folder).predict(sequences))
    found = answer(spec, NAMES, sequences)
    assert found == pytest.approx([float(each[1]) for each in predicted], abs=1e-6)


@pytest.mark.parametrize(
    ("what", "question", "message"),
    [
        ("m", NUMBERS, "predicts a, b; give"),
        ("m:no", BINARY, "predicts yes; give"),
        ("m:no", OF_BASES, "every base"),
    ],
)
def test_a_finetuned_model_must_give_one_number(what, question, message):
    assert column_of("m:yes", BINARY) == column_of("m", BINARY) == 0
    assert column_of("m:b", NUMBERS) == 1
    with pytest.raises(UserError, match=message):
        column_of(what, question)


def test_a_callable_may_give_lists_and_arrays():
    assert asked(lambda sequences: [s.count("G") / 4 for s in sequences]) == [0.5, 0, 0]
    assert asked(lambda sequences: np.linspace(0, 1, len(sequences), dtype="f4")) == [0, 0.5, 1]
    assert asked(lambda sequences: torch.tensor([1.0, 2, 3])) == [1, 2, 3]


def no_t(sequences):
    if any(s.startswith("T") for s in sequences):
        raise ValueError("no T\nsecond line")
    return [1] * len(sequences)


@pytest.mark.parametrize(
    ("function", "message", "cause"),
    [
        (lambda sequences: [None for _ in sequences], "design_7: it gave 'None'", None),
        (no_t, "'no_t': design_8: it raised ValueError: no T", ValueError),
        (lambda sequences: 1.0, "design_7 to design_9: it raised TypeError", TypeError),
    ],
)
def test_a_callable_that_answers_wrongly(function, message, cause):
    """The name of the record is told, and the traceback is kept."""
    with pytest.raises(UserError) as raised:
        asked(function)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert type(raised.value.__cause__) is (cause or type(None))


def test_a_wrong_answer_is_one_line_with_the_record(functions):
    (function,) = start_functions(["python:some_functions:odd"], 60)
    for answers, message in {
        "raises": "'odd': design_8: it raised ValueError: no T",
        "no_numbers": "design_9: it gave \"'high'\"",
        "not_finite": "design_7: it gave nan",
        "too_few": "design_7 to design_9: it gave 1 numbers for 3",
        "no_list": "design_7 to design_9: it raised TypeError",
        "ends": "design_7 to design_9: it ended (exit code 3)",
    }.items():
        with pytest.raises(UserError) as raised:
            function.values(NAMES, [answers, *BASES[1:]])
        assert message in str(raised.value) and "\n" not in str(raised.value)
    function.close()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("python:some_functions:absent", "the start: it raised AttributeError"),
        ("command:sh -c 'cat > /dev/null; echo; echo 1; echo two; echo 3'", "design_8: it gave"),
        ("command:sh -c 'cat > /dev/null; echo inf; echo 1; echo 2'", "design_7: it gave inf"),
        ("command:sh -c 'echo 1; echo broken >&2; exit 4'", "it ended (broken)"),
        ("command:sh -c 'kill -9 $$'", "it ended (SIGKILL)"),
        ("command:no_such_command", "it cannot be started"),
    ],
)
def test_a_process_that_answers_wrongly(functions, spec, message):
    with pytest.raises(UserError) as raised:
        asked(spec)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def alive(marker: str) -> bool:
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    return any(marker in line for line in found.splitlines())


@pytest.mark.parametrize(
    ("spec", "marker"),
    [
        ("python:some_functions:hangs", "some_functions:hangs"),
        ("command:sh -c 'sleep 601.25; echo 1'", "sleep 601.25"),
    ],
)
def test_what_hangs_is_ended_with_its_children(functions, spec, marker):
    (function,) = start_functions([spec], 60)
    function._timeout_seconds = 0.2  # the start may take its time
    with pytest.raises(UserError, match=r"design_7 to design_9: it did not answer in 0\.2 seconds"):
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
    with pytest.raises(UserError, match="two columns would be called 'f'"):
        start_functions(["python:m:f", "f=python:m:g"], 1)
    with pytest.raises(UserError, match="two columns would be called 'f'"):
        start_functions(["python:m:f"], 1, ("f",))
