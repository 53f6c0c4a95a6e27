"""Every verb that processes share writes, from blocks, the bytes that one process writes."""

import json

import pytest

from carbon.cli import main
from carbon.model import save_model
from tests.helpers.blocks import Stopped, stop_once_behind
from tests.helpers.files import random_bases, write_fasta, write_vcf

BASES = random_bases(900, 4)
LENGTHS_BP = (60, 61, 1, 290, 7) * 29  # 145 sequences, of which blocks take 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("verbs")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": BASES})
    sequences = [(f"s{n}", random_bases(size, n)) for n, size in enumerate(LENGTHS_BP)]
    # 48 prompts, among them equal ones: their samples lie in all three blocks.
    prompts = {f"p{n}": "ACGTACGT"[n % 4 :] for n in range(48)}
    write_fasta(folder / "p.fa", prompts)
    sequences[3] = ("none", "NNNN")
    write_fasta(folder / "s.fa", dict(sequences))
    records = [
        f"c\t{n}\t.\t{BASES[n - 1]}\t{'ACGT'['ACGT'.index(BASES[n - 1]) - 1]}\t.\t.\t."
        for n in range(300, 600)
    ]
    write_vcf(folder / "v.vcf", records)
    return folder


def words_of(verb, folder, output):
    model = ["--model", f"{folder}/model", "--output", str(output)]
    return {
        "variants": ["variants", *model, "--reference", f"{folder}/r.fa", "--vcf",
                     f"{folder}/v.vcf", "--window", "60"],
        "score": ["score", *model, f"{folder}/s.fa", "--strands", "both"],
        "per_base": ["score", *model, f"{folder}/s.fa", "--per-base"],
        "embed": ["embed", *model, f"{folder}/s.fa"],
        "generate": ["generate", *model, "--prompts", f"{folder}/p.fa", "-n", "3", "--length",
                     "15", "--forbid", "GATC"],
    }[verb]  # fmt: skip


VERBS = [
    ("variants", "tsv"), ("score", "tsv"), ("per_base", "parquet"), ("embed", "parquet"),
    ("generate", "fa"),
]  # fmt: skip


@pytest.mark.parametrize(("verb", "ending"), VERBS)
def test_from_blocks_come_the_bytes_of_one_process(
    folder, tmp_path, capsys, monkeypatch, verb, ending
):
    """Stopped behind the second block of three, and gone on with."""
    alone, shared = tmp_path / f"alone.{ending}", tmp_path / f"shared.{ending}"
    assert main(words_of(verb, folder, alone)) == 0
    told = capsys.readouterr().out
    monkeypatch.setenv("CARBON_LAUNCH", "l")
    written = stop_once_behind(monkeypatch, 2)
    with pytest.raises(Stopped):
        main(words_of(verb, folder, shared))
    assert not shared.exists() and "go on with --resume" in capsys.readouterr().err
    monkeypatch.setenv("CARBON_LAUNCH", "another")
    assert main(words_of(verb, folder, shared)) == 2
    assert "an earlier run was stopped" in capsys.readouterr().err
    assert main([*words_of(verb, folder, shared), "--tag", "<fungi_species>", "--resume"]) == 2
    assert "differs in: tags; give the same" in capsys.readouterr().err
    assert main([*words_of(verb, folder, shared), "--resume"]) == 0
    assert written == [0, 1, 2]
    assert shared.read_bytes() == alone.read_bytes()
    assert capsys.readouterr().out == told.replace(str(alone), str(shared))
    # Another process of the launch that comes late says nothing on stdout.
    assert main(words_of(verb, folder, shared)) == 0
    late = capsys.readouterr()
    assert late.out == "" and "is whole already" in late.err


def test_a_record_that_the_model_cannot_read_is_named_from_blocks_too(
    folder, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("CARBON_LAUNCH", "l")
    write_fasta(tmp_path / "bad.fa", {"a": "ACGT", "b": "AC!T"})
    words = ["score", "--model", f"{folder}/model", "--output", f"{tmp_path}/o.tsv"]
    assert main([*words, f"{tmp_path}/bad.fa"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.fa"]


def test_what_goes_through_a_pipe_is_for_one_process(folder, tmp_path, capsys, monkeypatch):
    words = ["score", "--model", f"{folder}/model", f"{folder}/s.fa"]
    assert main([*words, "--processes", "2"]) == 2
    assert "standard output is written by one process" in capsys.readouterr().err
    monkeypatch.setenv("CARBON_LAUNCH", "l")
    assert main(words) == 0
    header = capsys.readouterr().out.splitlines()[0]
    assert json.loads(header[2:])["by"] == "chain"


def test_the_share_of_a_draft_is_of_all_blocks(folder, tmp_path, capsys, monkeypatch):
    words = [*words_of("generate", folder, tmp_path / "alone.fa"), "--draft", f"{folder}/model"]
    assert main(words) == 0
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("the draft proposed ")
    monkeypatch.setenv("CARBON_LAUNCH", "l")
    words[words.index(f"{tmp_path}/alone.fa")] = f"{tmp_path}/shared.fa"
    assert main(words) == 0
    assert capsys.readouterr().err.splitlines()[-1] == told
    assert (tmp_path / "shared.fa").read_bytes() == (tmp_path / "alone.fa").read_bytes()
