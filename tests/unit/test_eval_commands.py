"""The commands, from the words of a command line to files."""

import json
import shutil

import datasets
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from huggingface_hub import constants
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from carbon.inference import load
from carbon.inference.held_out import choose_sites, recovered_shares
from carbon.model import save_model
from eval import commands, tasks
from eval.__main__ import main
from eval.records import read_record, read_rows
from eval.tasks import TASKS
from tests.helpers.files import random_bases, write_fasta

pytestmark = pytest.mark.usefixtures("few_resamples")
TEST_RECORDS = [random_bases(900, 1), random_bases(700, 2)]


@pytest.fixture(scope="module")
def material(network, tmp_path_factory):
    """Two models, training sequences, and the sites of a probe as a dataset."""
    tmp_path = tmp_path_factory.mktemp("material")
    save_model(network, tmp_path / "run" / "export")
    vocabulary = {"<s>": 0, "<unk>": 1, "A": 2, "C": 3, "G": 4, "T": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    config = GPT2Config(vocab_size=6, n_positions=300, n_embd=8, n_layer=1, n_head=1)
    GPT2LMHeadModel(config).save_pretrained(tmp_path / "letters")
    stock = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", unk_token="<unk>")
    stock.save_pretrained(tmp_path / "letters")
    write_fasta(tmp_path / "train.fa", {"c": random_bases(3000, 3)})
    (tmp_path / "data").mkdir()
    rows = [
        {"sequence": prompt, "label": target, "type": f"<{'mam' if n % 2 else 'fng'}>"}
        for n, (prompt, target) in enumerate(choose_sites(TEST_RECORDS, 20, 252, seed=0))
    ]
    table = pa.Table.from_pylist(rows)
    pq.write_table(table, tmp_path / "data" / "sequence_recovery.parquet")
    return tmp_path


@pytest.fixture
def folder(material, tmp_path):
    return shutil.copytree(material, tmp_path, dirs_exist_ok=True)


def words_of(folder, *more: object, output="out") -> list[str]:
    given = ["--train", folder / "train.fa", "--data", folder / "data", "--output", folder / output]
    return ["run", "--model", str(folder / "run" / "export"), *map(str, given), *map(str, more)]


def test_what_a_probe_of_training_measures_is_what_is_run(folder, capsys):
    """`train` takes its probes by `recovered_shares`: the same sites give the same number."""
    assert main(words_of(folder, "--orders", "1")) == 0
    record = read_record(folder / "out/sequence_recovery/run.json").record
    sites = choose_sites(TEST_RECORDS, 20, 252, seed=0)
    model = load(folder / "run" / "export")
    for mode, found in (
        ("token", record["summary"]["value"]),
        ("base", record["summary"]["others"]["base_mode"]),
    ):
        assert found["value"] == pytest.approx(recovered_shares(model, sites, mode, 0).mean())
    out, err = capsys.readouterr()
    lines = [json.loads(line) for line in out.splitlines()]
    assert {line["task"] for line in lines} == {"sequence_recovery"}
    assert [line["model"] for line in lines] == ["chance", "GC", "Markov 1", "run"]
    assert "brca2 is left out: no " in err
    # The numbers of an example do not depend on what it is read with.
    assert main(words_of(folder, "--orders", "1", "--max-samples", 3, output="few")) == 0
    whole, few = (
        {row["id"]: row["hits"] for row in read_rows(folder / f"{o}/sequence_recovery/run.jsonl")}
        for o in ("out", "few")
    )
    assert len(few) == 3 and few.items() <= whole.items()


def test_models_of_two_kinds_in_two_dtypes_and_a_report(folder, capsys):
    words = words_of(folder, "--model", f"letters={folder / 'letters'}", "--preset", "smoke",
                     "--max-samples", 3, "--dtype", "float32,bfloat16,float32")  # fmt: skip
    assert main(words) == 0
    names = {path.stem for path in (folder / "out/sequence_recovery").glob("*.json")}
    assert names == {"chance", "GC", "Markov-1", "Markov-3", "Markov-6", "run", "run-bfloat16",
                     "letters", "letters-bfloat16"}  # fmt: skip
    record = read_record(folder / "out/sequence_recovery/letters.json").record
    assert record["counts"]["measured"] == 3 and record["model"]["context_bp"] == 299
    # With a prompt of n letters: n, <s> and 29 that are read again, for each of two modes.
    table = pq.read_table(folder / "data/sequence_recovery.parquet")
    chosen = read_rows(folder / "out/sequence_recovery/letters.jsonl")
    lengths = [len(table["sequence"][int(row["id"]) - 1].as_py()) for row in chosen]
    assert record["cost"]["tokens"] == 2 * sum(n + 1 + 29 for n in lengths)
    capsys.readouterr()
    assert main(["report", str(folder / "out"), "--output", str(folder / "page")]) == 0
    assert capsys.readouterr().out == f"{folder / 'page' / 'report.html'}\n"
    page = (folder / "page/report.html").read_text()
    assert "float32 against bfloat16" in page and "letters bfloat16" in page
    assert main(words) == 2
    assert "continue with --resume" in capsys.readouterr().err
    assert main([*words, "--resume"]) == 0


def test_a_task_is_its_folder_alone(folder, tmp_path, monkeypatch, capsys):
    """A new folder is listed, built, run and reported."""
    package = tmp_path / "more_tasks" / "scratch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(
        "from dataclasses import replace\n"
        "from eval.tasks.sequence_recovery import TASK as RECOVERY\n"
        "from eval.tasks.common.building import write_dataset\n"
        "def build(output, *, letters: int):\n"
        '    """Write a row.\n\n    Args:\n        letters: bases of the prompt.\n    """\n'
        "    row = {'sequence': 'ACGT' * letters, 'label': 'ACGTAC' * 5, 'type': 'x'}\n"
        "    return write_dataset(output, [row] * 3, {}, [], {})\n"
        "TASK = replace(RECOVERY, name='scratch', hub_id=None, build=build, published={})\n"
    )
    monkeypatch.setattr(tasks, "__path__", [*tasks.__path__, str(package.parent)])
    every = tasks.tasks_of()
    monkeypatch.setattr(commands, "TASKS", every)
    assert [name for name in every if name != "scratch"] == list(TASKS)
    with pytest.raises(SystemExit):
        main(["build", "scratch", "--help"])
    assert "--letters LETTERS  bases of the prompt." in capsys.readouterr().out
    data, out = str(folder / "scratch.parquet"), str(folder / "out")
    assert main(["build", "scratch", "--output", data, "--letters", "30"]) == 0
    assert main(["list", "--data", str(folder)]) == 0
    assert f"data       {data}; looked for: " in capsys.readouterr().out
    words = words_of(folder, "--tasks", "scratch", "--orders", "1")
    words[words.index("--data") + 1] = str(folder)
    assert main(words) == 0
    assert main(["report", out]) == 0
    assert "<h2>scratch</h2>" in (folder / "out/report.html").read_text()
    results = json.loads((folder / "out/results.json").read_text())["tasks"]["scratch"]
    record = read_record(folder / "out/scratch/run.json").record["summary"]["value"]
    assert record.items() <= results["values"]["run"].items()
    assert results["differences"][0]["first"] == "run"


@pytest.fixture
def no_hub(monkeypatch, tmp_path):
    """No network, an empty cache of datasets, and no model that may be loaded."""
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")

    def load_any(*_, **__):
        raise AssertionError("the model is loaded before its datasets are looked up")

    monkeypatch.setattr("eval.models.load_any", load_any)


def test_without_a_network_a_run_fails_at_once_and_names_the_build(folder, capsys, no_hub):
    words = ["--train", folder / "train.fa", "--output", folder / "out"]
    assert main(["run", "--model", str(folder / "run/export"), *map(str, words)]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "`carbon eval build sequence_recovery --output FOLDER/" in line
    missing = line.removeprefix("error: ").partition(":")[0].split(", ")
    assert missing == [task.name for task in TASKS.values() if task.hub_id]
    assert "HF_HUB_OFFLINE is set" in line and not (folder / "out").exists()


def test_datasets_that_are_here_need_no_network_and_a_model_of_the_hub_does(folder, capsys, no_hub):
    words = words_of(folder, "--tasks", "sequence_recovery", "--orders", "1")
    words[words.index("--model") + 1] = "owner/absent"
    assert main(words) == 2
    assert "owner/absent: there is no such folder" in capsys.readouterr().err
    assert not (folder / "out").exists()


def test_list_says_what_runs_offline(folder, capsys, no_hub, monkeypatch):
    assert main(["list", "--data", str(folder / "data")]) == 0
    out = capsys.readouterr().out
    assert out.count("  offline    yes: ") == 1
    assert f"  offline    yes: {folder}/data/sequence_recovery.parquet\n" in out
    assert "runs offline: sequence_recovery; fine-tune recipes" in out
    assert "needs the Hub, or a build and --data FOLDER: genomic_niah, " in out
    assert main(["list"]) == 0
    assert "runs offline: no task; fine-tune recipes" in capsys.readouterr().out

    def load_dataset(name, **which):
        assert datasets.config.HF_HUB_OFFLINE
        if which.get("data_files") != TASKS["brca2"].hub_file or name != TASKS["brca2"].hub_id:
            raise ConnectionError("not in the cache")
        columns = {column: ["A"] if kind is str else [1]
                   for column, kind in TASKS["brca2"].columns.items()}  # fmt: skip
        return datasets.DatasetDict(train=datasets.Dataset(pa.table(columns)))

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    assert main(["list"]) == 0
    assert "runs offline: brca2; fine-tune recipes" in capsys.readouterr().out
    assert not datasets.config.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "brca2"], "brca2: no dataset: "),
        (["--data", "other"], "--data other: is given twice for all tasks"),
        (["--train", "absent.fa"], "--train absent.fa: no such file"),
        (["--model", "x/run"], "'run' is taken; write NAME=x/run"),
        (["--model", "absent"], "absent: no such model folder"),
    ],
)
def test_mistakes_are_said_before_anything_is_loaded(folder, capsys, words, message):
    assert main([*words_of(folder), *words]) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]
    assert not (folder / "out").exists()
