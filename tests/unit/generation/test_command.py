"""`carbon generate`: what its records say, and that each can be drawn again alone."""

import re

import pytest

from carbon.cli import main
from carbon.inference import Constraints
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta
from tests.helpers.generation import keeps


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network, likeness):
    folder = tmp_path_factory.mktemp("generate")
    save_model(network, folder / "model")
    save_model(likeness.model.network, folder / "draft")
    write_fasta(folder / "p.fa", {"one": random_bases(100), "two": "ACGTA"})
    return folder


def run(folder, *words: str) -> int:
    return main(["generate", "--model", str(folder / "model"), "--length", "70", *words])


def test_headers_tell_how_it_was_drawn(folder, capsys):
    words = (
        "--prompts {f}/p.fa -n 2 --seed 3 --mode chain --temperature 0.9 --top-k 3 --top-p 0.8 "
        "--min-p 0.1 --repetition-penalty 0.2 --forbid GAATTC AAAA --forbid TTTT "
        "--require GGCC --gc 0.3 0.7 --gc-window 35 --no-stop 0 --tag <fungi_species> "
        "--draft {f}/draft --output {f}/out.fa"
    )
    assert run(folder, *words.format(f=folder).split()) == 0
    captured = capsys.readouterr()
    assert captured.out == "" and "bases: 280/280" in captured.err
    assert re.search(r"draft proposed \d+ 6-mers, of which \d+\.\d %", captured.err)
    lines = (folder / "out.fa").read_text().splitlines()
    assert [line.split()[0] for line in lines[::3]] == [">one_0", ">one_1", ">two_0", ">two_1"]
    assert [len(line) for line in lines[1:3]] == [60, 10]
    facts = dict(word.split("=") for word in lines[6].split()[1:])
    assert facts == {
        "sample": "0", "prompt_bp": "5", "model": f"{folder}/model", "dtype": "float32",
        "draft": f"{folder}/draft", "draft_tokens": "4", "seed": "3", "tags": "<fungi_species>",
        "mode": "chain", "temperature": "0.9", "top_k": "3", "top_p": "0.8", "min_p": "0.1",
        "repetition_penalty": "0.2", "repetition_window_bp": "1200", "forbid": "GAATTC,AAAA,TTTT",
        "require": "GGCC", "gc": "0.3-0.7", "gc_window_bp": "35", "no_stop_frame": "0",
    }  # fmt: skip
    constraints = Constraints(("GAATTC", "AAAA", "TTTT"), ("GGCC",), (0.3, 0.7), 35, 0)
    assert keeps(constraints, "ACGTA", lines[7] + lines[8])


def test_the_sample_of_a_header_is_the_key_of_its_random_numbers(folder, capsys):
    """Whatever is asked for beside it."""
    prompts = write_fasta(folder / "twice.fa", {"a": "ACGTA", "b": "GG", "c": "acgta"})
    assert run(folder, "--prompts", str(prompts), "-n", "2") == 0
    records = capsys.readouterr().out.split(">")[1:]
    names = dict(re.match(r"(\S+) sample=(\d)", record).groups() for record in records)
    # Prompt c is prompt a again: its samples come after the two of a.
    assert names == {"a_0": "0", "a_1": "1", "b_0": "0", "b_1": "1", "c_0": "2", "c_1": "3"}
    assert run(folder, "--prompt", "ACGTA", "-n", "4") == 0
    alone = [record.split("\n")[1:] for record in capsys.readouterr().out.split(">")[1:]]
    of_prompt = [record.split("\n")[1:] for record in records if record[0] != "b"]
    assert of_prompt == alone


def test_a_gap_is_filled(folder, capsys):
    words = ["--prompt", "ACGTA", "--right", "GGATC", "--candidates", "5", "-n", "2"]
    assert run(folder, *words) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[::3]] == [">filling_0", ">filling_1"]
    facts = dict(word.split("=") for word in lines[0].split()[1:])
    assert (facts["rank"], facts["candidates"], facts["right_bp"]) == ("0", "5", "5")
    parts = float(facts["gap_log_likelihood"]) + float(facts["right_log_likelihood"])
    assert float(facts["score"]) == pytest.approx(parts, abs=2e-4)


def test_equal_fillings_are_counted(folder, capsys):
    words = ["--prompt", "ACGTA", "--right", "GGATC", "--temperature", "0", "-n", "3"]
    assert run(folder, *words) == 0
    captured = capsys.readouterr()
    assert captured.out.count(">") == 1
    assert "the 16 candidates have 1 distinct fillings, fewer than -n 3" in captured.err


@pytest.mark.parametrize(
    "words",
    [
        "--draft no/such/model", "--draft-tokens 0 --draft {f}/draft", "--draft-tokens 4",
        "--right ACG --prompts {f}/p.fa", "--right ACG --candidates 0",
        "--right ACG --candidates 4 -n 5", "--right ACG -n 17", "--candidates 4", "-n 0",
        "--prompts {f}/p.fa -n 500001",
    ],
)  # fmt: skip
def test_mistakes_leave_nothing_behind(folder, capsys, words):
    before = sorted(folder.iterdir())
    assert run(folder, *words.format(f=folder).split(), "--output", f"{folder}/new.fa") == 2
    captured = capsys.readouterr()
    assert captured.out == "" and sorted(folder.iterdir()) == before
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1


def test_an_output_that_is_the_input(folder, tmp_path, capsys):
    prompts = write_fasta(tmp_path / "p.fa", {"one": "ACGT"})
    (tmp_path / "link.fa").symlink_to(prompts)
    assert run(folder, "--prompts", str(prompts), "--output", str(tmp_path / "link.fa")) == 2
    assert "link.fa: is an input too" in capsys.readouterr().err
    assert prompts.read_text() == ">one\nACGT\n"
