"""Oracles: what they answer, and every way to answer wrongly."""

import os
import signal
import subprocess
import time

import numpy as np
import pytest
import torch

from carbon.design.oracles import named_oracle, started
from carbon.errors import UserError

NAMES = ["design_7", "design_8", "design_9"]
BASES = ["GGCC", "TTAC", "AAAA"]


def asked(spec, seconds=30.0):
    (oracle,) = started([spec], seconds)
    try:
        return oracle.values(NAMES, BASES)
    finally:
        oracle.close()


COUNTING = """command:awk '!/^>/ {print gsub(/[GC]/, "") / 4}'"""


@pytest.mark.parametrize(
    "spec", ["python:some_oracles:gc", COUNTING, lambda s: [x.count("G") / 4 + x.count("C") / 4
                                                           for x in s]]
)  # fmt: skip
def test_values(functions, spec):
    assert asked(spec) == [1.0, 0.25, 0.0]


def no_t(sequences):
    if any(s.startswith("T") for s in sequences):
        raise ValueError("no T\nsecond line")
    return [1] * len(sequences)


@pytest.mark.parametrize(
    ("function", "message", "cause"),
    [
        (lambda sequences: [None for _ in sequences], "design_7: it gave 'None', which", None),
        (no_t, "'no_t': design_8: it raised ValueError: no T; mend", ValueError),
        (lambda sequences: 1.0, "design_7 to design_9: it raised TypeError", TypeError),
    ],
)
def test_a_callable_that_answers_wrongly(function, message, cause):
    """The name of the record is told, and the traceback is kept."""
    with pytest.raises(UserError) as raised:
        asked(function)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert type(raised.value.__cause__) is (cause or type(None))


def test_a_callable_may_give_arrays():
    assert asked(lambda sequences: np.linspace(0, 1, len(sequences), dtype="f4")) == [0, 0.5, 1]
    assert asked(lambda sequences: torch.tensor([1.0, 2, 3])) == [1, 2, 3]


def test_one_process_answers_many_times(functions):
    (oracle,) = started(["python:some_oracles:gc"], 30)
    for _ in range(3):
        assert oracle.values(["a"], ["GGTT"]) == [0.5]
    oracle.close()


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("python:some_oracles:raises", "'raises': design_8: it raised ValueError: no T; mend"),
        ("python:some_oracles:no_numbers", "design_9: it gave \"'high'\", which is no number"),
        ("python:some_oracles:not_finite", "design_7: it gave nan, which is not finite"),
        ("python:some_oracles:too_few", "design_7 to design_9: it gave 1 numbers for 3"),
        ("python:some_oracles:ends", "design_7 to design_9: it has ended (exit code 3)"),
        ("python:some_oracles:no_list", "design_7 to design_9: it raised TypeError"),
        ("python:some_oracles:absent", "the start: it raised AttributeError"),
        ("python:absent_module:f", "the start: it raised ModuleNotFoundError"),
        ("command:sh -c 'cat > /dev/null; echo; echo 1; echo two; echo 3'", "design_8: it gave"),
        ("command:sh -c 'cat > /dev/null; echo inf; echo 1; echo 2'", "design_7: it gave inf"),
        ("command:sh -c 'echo 1; echo broken >&2; exit 4'", "it has ended (broken)"),
        ("command:sh -c 'kill -9 $$'", "it has ended (SIGKILL)"),
        ("command:no_such_command", "it cannot be started (No such file"),
    ],
)
def test_a_wrong_answer_is_one_line_with_the_record(functions, spec, message):
    with pytest.raises(UserError) as raised:
        asked(spec)
    assert message in str(raised.value) and "\n" not in str(raised.value)


def alive(marker: str) -> bool:
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True).stdout
    return any(marker in line for line in found.splitlines())


@pytest.mark.parametrize(
    "spec", ["python:some_oracles:hangs", "command:sh -c 'sleep 61.25; echo 1'"]
)
def test_what_hangs_is_ended_with_its_children(functions, spec):
    with pytest.raises(UserError, match=r"design_7 to design_9: it did not answer in 2 seconds"):
        asked(spec, 2.0)
    time.sleep(0.1)
    assert not alive("sleep 61.25") and not alive("some_oracles:hangs")


def test_a_closed_oracle_leaves_no_process(functions):
    (oracle,) = started(["python:some_oracles:gc"], 30)
    number = oracle._process.pid
    oracle.close()
    with pytest.raises(ProcessLookupError):
        os.kill(number, signal.SIGCONT)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("some_oracles:gc", "give one of adapted:FOLDER[:LABEL], python:MODULE:FUNCTION, command"),
        ("python:some_oracles", "give python:MODULE:FUNCTION"),
        ("adapted:absent", "has no adapt.json"),
        ("command: ", "give a command"),
        ("my score=command:cat", "its name 'my score' is no word"),
        ("command:'a", "no closing quotation"),
    ],
)
def test_what_can_be_no_oracle(spec, message):
    with pytest.raises(UserError) as raised:
        named_oracle(spec)
    assert message in str(raised.value)


def test_names(functions):
    assert named_oracle("python:m:f").name == "f"
    assert named_oracle("strength=command:./score.sh --x a=b").name == "strength"
    assert named_oracle("command:./score.sh --x a=b").name == "score"
    with pytest.raises(UserError, match="two columns would be called 'f'"):
        started(["python:m:f", "f=python:m:g"], 1)
    with pytest.raises(UserError, match="two columns would be called 'f'"):
        started(["python:m:f"], 1, ("f",))
