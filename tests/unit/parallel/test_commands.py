"""Every command whose blocks workers compute writes the same bytes however they are computed."""

import json
import subprocess
import sys
from contextlib import nullcontext
from itertools import islice

import pytest

from carbon.cli import main
from carbon.model import save_model
from carbon.parallel.driver import Workers
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.parallel import Stopped, in_two_seats, stop_once_behind

BASES = random_bases(900, 4)
LENGTHS_BP = (60, 61, 1, 90, 7, 120) * 22  # 132 sequences, in blocks of 64


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("commands")
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
        for n in range(300, 450)
    ]
    write_vcf(folder / "v.vcf", records)
    (folder / "n.bed").write_text("c\t2\t62\n")
    return folder


def words_of(command, folder, output):
    model = ["--model", f"{folder}/model", "--output", str(output)]
    return {
        "variants": ["variants", *model, "--reference", f"{folder}/r.fa", "--vcf",
                     f"{folder}/v.vcf", "--window", "60"],
        "score": ["score", *model, f"{folder}/s.fa", "--strands", "both"],
        "per_base": ["score", *model, f"{folder}/s.fa", "--per-base"],
        "embed": ["embed", *model, f"{folder}/s.fa"],
        "embed_vcf": ["embed", *model, "--reference", f"{folder}/r.fa", "--vcf",
                      f"{folder}/v.vcf", "--window", "60"],
        "scan": ["scan", *model, "--reference", f"{folder}/r.fa", "--contig", "c", "--window",
                 "120", "--offsets", "0,3"],
        "background": ["background", *model, "--reference", f"{folder}/r.fa", "--window", "60",
                       "--variants-per-kind", "2"],
        "calibration": ["background", *model, "--reference", f"{folder}/r.fa", "--window", "60",
                        "--neighbour-bp", "3", "--neutral", f"{folder}/n.bed",
                        "--protocol", "centered"],
        "generate": ["generate", *model, "--prompts", f"{folder}/p.fa", "-n", "3", "--length",
                     "15", "--forbid", "GATC"],
    }[command]  # fmt: skip


OUTPUTS = [
    ("variants", "vcf.gz"),
    ("score", "tsv"),
    ("scan", "tsv"),
    ("generate", "fa"),
    ("embed_vcf", "npz"),
]
# Formats that other rows write by the same function, and commands whose blocks are alike.
OTHER_OUTPUTS = [
    *(("variants", ending) for ending in ("vcf", "json", "tsv", "parquet")),
    *(("score", ending) for ending in ("json", "parquet")), ("per_base", "tsv"),
    ("per_base", "parquet"), ("embed", "npz"), ("embed", "parquet"), ("embed_vcf", "parquet"),
    *(("scan", ending) for ending in ("parquet", "bw", "worst_delta.bw")), ("background", "json"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "ending", "engine"),
    [
        *(pytest.param(*each, in_two_seats, id=f"{each[0]} in two seats") for each in OUTPUTS),
        pytest.param("score", "tsv", nullcontext, id="score in two processes"),
        *(
            pytest.param(*each, nullcontext, marks=pytest.mark.nightly)
            for each in OUTPUTS + OTHER_OUTPUTS
        ),
    ],
)
def test_two_processes_write_the_bytes_of_none(
    folder, tmp_path, capsys, monkeypatch, command, ending, engine
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    alone, shared = (tmp_path / f"{name}.{ending}" for name in ("alone", "two"))
    assert main(words_of(command, folder, alone)) == 0
    told = capsys.readouterr().out
    with engine():
        assert main([*words_of(command, folder, shared), "--processes", "2"]) == 0
    assert capsys.readouterr().out == told.replace(str(alone), str(shared))
    assert shared.read_bytes() == alone.read_bytes()


@pytest.mark.parametrize(
    ("command", "ending"), [*OUTPUTS, ("embed", "npz"), ("background", "json")]
)
def test_both_workers_start_before_the_first_is_up(folder, tmp_path, monkeypatch, command, ending):
    """Jobs know before they ask for a model that there are at least two blocks."""

    def about(self, blocks=()):
        raise Stopped(len(list(islice(blocks, 2))))

    monkeypatch.setattr(Workers, "about", about)
    monkeypatch.setattr("carbon.inference.scan.job.BLOCK_TOKENS", 20)
    with in_two_seats(), pytest.raises(Stopped, match="2"):
        main([*words_of(command, folder, tmp_path / f"o.{ending}"), "--processes", "2"])


@pytest.mark.parametrize(
    ("command", "ending", "num_blocks"),
    [
        ("score", "json", 3),
        ("generate", "fa", 3),
        ("variants", "vcf.gz", 2),
        ("background", "json", None),
        ("calibration", "json", 3),
        pytest.param("embed_vcf", "npz", 2, marks=pytest.mark.nightly),
        pytest.param("embed", "parquet", 3, marks=pytest.mark.nightly),
    ],
)
def test_a_stopped_run_goes_on_to_the_same_bytes(
    folder, tmp_path, capsys, monkeypatch, command, ending, num_blocks
):
    """Of scan and predict, tests of their own show it."""
    alone, resumed = (tmp_path / f"{name}.{ending}" for name in ("alone", "again"))
    assert main(words_of(command, folder, alone)) == 0
    told = capsys.readouterr().out
    words = words_of(command, folder, resumed)
    kept = stop_once_behind(monkeypatch, 1)
    with pytest.raises(Stopped):
        # Without --resume, one process draws all texts at once and keeps nothing.
        main([*words, "--resume"] if command == "generate" else words)
    assert not resumed.exists() and "continue with --resume" in capsys.readouterr().err
    assert main(words) == 2
    assert "an earlier run was stopped" in capsys.readouterr().err
    for other in (["--tag", "<fungi_species>"], ["--yarn", "4"]):
        assert main([*words, *other, "--resume"]) == 2
        assert "the earlier run differs in: " in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0
    assert kept == list(range(num_blocks or len(kept))) and len(kept) > 1
    assert resumed.read_bytes() == alone.read_bytes()
    assert capsys.readouterr().out == told.replace(str(alone), str(resumed))


@pytest.mark.parametrize("wrong", ["a record", "the model"])
def test_what_workers_cannot_read_is_one_line(folder, tmp_path, capsys, wrong):
    (tmp_path / "bad.fa").write_text(">a\nACGT\n>b\nAC!T\n")
    model = folder if wrong == "a record" else tmp_path  # which has none
    words = ["score", "--model", f"{model}/model", "--output", f"{tmp_path}/o.tsv"]
    sequences = tmp_path / "bad.fa" if wrong == "a record" else folder / "s.fa"
    with in_two_seats():
        assert main([*words, str(sequences), "--processes", "2"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["bad.fa"]


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["score", "s.fa"], "standard output is written by one process"),
        (["score", "-", "--output", "o.tsv"], "standard input is read by one process"),
        (["generate", "--length", "6", "--right", "ACGT"], "a gap (--right) is filled by one"),
    ],
)
def test_streams_and_gaps_are_for_one_process(folder, tmp_path, capsys, monkeypatch, words, reason):
    (tmp_path / "s.fa").write_text(">a\nACGTACGT\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", (tmp_path / "s.fa").open())
    with in_two_seats():
        assert main([*words, "--model", f"{folder}/model", "--processes", "2"]) == 0
    captured = capsys.readouterr()
    assert reason in captured.err and "RAY_ADDRESS have no effect" in captured.err
    rows = (tmp_path / "o.tsv").read_text() if "--output" in words else captured.out
    assert len(rows.splitlines()) > 1


def test_a_draft_is_told_of_for_all_blocks(folder, tmp_path, capsys):
    words = ["generate", "--model", f"{folder}/model", "--prompts", f"{folder}/p.fa", "-n", "2",
             "--length", "9", "--draft", f"{folder}/model", "--output"]  # fmt: skip
    assert main([*words, f"{tmp_path}/alone.fa"]) == 0
    told = capsys.readouterr().err.splitlines()[-1]
    assert told.startswith("the draft proposed ")
    assert main([*words, f"{tmp_path}/blocks.fa", "--resume"]) == 0
    assert told in capsys.readouterr().err.splitlines()
    assert (tmp_path / "blocks.fa").read_bytes() == (tmp_path / "alone.fa").read_bytes()


DRIVER = """
import json, sys
from carbon.cli import main
import carbon.finetune.predict_job, eval.commands
for words in json.loads(sys.argv[1]):
    assert main(words) == 0, words
assert "torch" not in sys.modules
"""


@pytest.mark.nightly
def test_the_driver_never_imports_torch(folder, tmp_path):
    endings = {"variants": "tsv", "generate": "fa", "score": "tsv", "per_base": "parquet",
               "embed": "parquet", "scan": "tsv", "background": "json"}  # fmt: skip
    commands = [
        [*words_of(command, folder, tmp_path / f"{command}.{ending}"), "--processes", "1"]
        for command, ending in endings.items()
    ]
    words = [sys.executable, "-c", DRIVER, json.dumps(commands)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    assert all((tmp_path / f"{command}.{ending}").is_file() for command, ending in endings.items())
