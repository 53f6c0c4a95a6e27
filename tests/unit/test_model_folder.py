"""Model folders that do not fit themselves: one line, before anything is built from them."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from huggingface_hub import constants
from safetensors.numpy import load_file, save_file

from carbon.cli import main
from carbon.errors import ModelError
from carbon.model import folder as folder_module
from carbon.model import load_model, model_folder, save_model
from carbon.model.folder import hub_folder, why_unreachable

CONFIG, WEIGHTS, TOKENIZER = "config.json", "model.safetensors", "tokenizer.json"
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def whole(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("folder") / "m"
    save_model(network, folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "m")


def with_config(**changes):
    def change(folder):
        config = json.loads((folder / CONFIG).read_text()) | changes
        (folder / CONFIG).write_text(json.dumps(config))

    return change


def with_text(name, text):
    return lambda folder: (folder / name).write_text(text)


def with_tensors(change):
    def rewrite(folder):
        tensors = load_file(folder / WEIGHTS)
        change(tensors)
        save_file(tensors, folder / WEIGHTS)

    return rewrite


def with_ids(change):
    def rewrite(folder):
        table = json.loads((folder / TOKENIZER).read_text())
        change(table["model"]["vocab"])
        (folder / TOKENIZER).write_text(json.dumps(table))

    return rewrite


def in_shards(name, has_file=False):
    def rewrite(folder):
        if has_file:
            (folder / name).parent.mkdir(exist_ok=True)
            shutil.copy(folder / WEIGHTS, folder / name)
        names = dict.fromkeys(load_file(folder / WEIGHTS), name)
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))
        (folder / WEIGHTS).unlink()

    return rewrite


def swap(ids):
    ids["AAAAAA"], ids["AAAAAT"] = ids["AAAAAT"], ids["AAAAAA"]


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (with_text(CONFIG, "[" * 100_000), "config.json: Invalid JSON: recursion"),
        (with_text(CONFIG, '{"vocab_size": ' + "9" * 5000 + "}"), "number out of range"),
        (with_text(CONFIG, "[]"), "config.json: Input should be an object"),
        (lambda f: (f / CONFIG).unlink(), "has no config.json"),
        (with_config(model_type="gpt2"), "model_type is 'gpt2'"),
        (with_config(vocab_size=4000), "4000 rows"),
        (with_config(num_hidden_layers=10**8), "100000000 layers, the weights have 2"),
        (with_config(num_hidden_layers="2"), "num_hidden_layers is '2'"),
        (with_config(num_attention_heads=0), "num_attention_heads is 0"),
        (with_config(max_position_embeddings=10**30), "max_position_embeddings is 1000"),
        (with_config(hidden_size=10**9), "is (4224, 32), by config.json it would be"),
        (with_config(head_dim=16), "is (32, 32), by config.json it would be (64, 32)"),
        (with_config(attention_bias=True), "lack 8 tensors such as model.layers.0.self_attn"),
        (with_config(carbon_tags=["<x>" * 999]), "carbon_tags in config.json has '<x><x>"),
        (with_tensors(lambda t: t.pop("model.norm.weight")), "lack 1 tensors such as model.norm"),
        (with_tensors(lambda t: t.update(extra=np.zeros(1))), "'extra'"),
        (with_tensors(lambda t: t.update({"model.norm.weight": np.zeros(32, "i8")})), "is I64"),
        (lambda f: (f / WEIGHTS).write_bytes(b"\xff" * 8 + b"{"), "the model cannot be loaded"),
        (lambda f: os.truncate(f / WEIGHTS, 99_999), "the model cannot be loaded"),
        (lambda f: (f / WEIGHTS).unlink(), "has no *.safetensors weights"),
        (in_shards("../out.safetensors", has_file=True), "is to name files of this folder"),
        (in_shards("a.safetensors"), "a.safetensors: no such file"),
        (with_ids(swap), "AAAAAA is 129, for Carbon 128"),
        (with_ids(lambda ids: ids.pop("CCCCCC")), "CCCCCC is 'missing', for Carbon 2858"),
        (with_text(TOKENIZER, '{"model": {"type": "BPE"}}'), "tokenizer.json: is of another"),
    ],
)
def test_what_does_not_fit_is_one_line(folder, capsys, break_it, message):
    break_it(folder)
    assert main(["info", str(folder)]) == 2
    captured = capsys.readouterr()
    (line,) = captured.err.splitlines()
    assert line.startswith(f"error: {folder}") and message in line and len(line) < 600
    assert captured.out == ""
    with pytest.raises(ModelError):
        load_model(folder)


def test_a_folder_of_links_and_shards_is_read(folder, tmp_path):
    in_shards("a.safetensors", has_file=True)(folder)
    (tmp_path / "blobs").mkdir()
    for path in list(folder.iterdir()):
        shutil.move(path, tmp_path / "blobs" / path.name)
        path.symlink_to(tmp_path / "blobs" / path.name)
    assert model_folder(folder).config["num_hidden_layers"] == 2
    (folder / TOKENIZER).unlink()
    assert len(model_folder(folder).shapes) == 20


def test_what_is_no_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "file").write_text("")
    for name in ("absent", "runs/absent", "./a/b", "/a/b", "a/b/c", "~/a", "a/"):
        with pytest.raises(ModelError, match="no such model folder"):
            model_folder(name)
    with pytest.raises(ModelError, match="file: is not a folder"):
        model_folder("file")


@pytest.mark.parametrize(
    ("endpoint", "reason"),
    [
        ("refuses", "127.0.0.1: connection refused"),
        ("is silent", "127.0.0.1: no answer within 0.3 s"),
        ("has no name", "no.such.host.invalid: "),
        ("is off", "HF_HUB_OFFLINE is set"),
        ("answers", None),
    ],
)
def test_why_the_hub_cannot_be_asked_is_known_soon(monkeypatch, tmp_path, endpoint, reason):
    server = socket.create_server(("127.0.0.1", 0))
    at = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setattr(folder_module, "_SECONDS_TO_ANSWER", 0.3)
    if endpoint == "refuses":
        server.close()
    elif endpoint == "answers":
        answer = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"
        threading.Thread(target=lambda: server.accept()[0].sendall(answer), daemon=True).start()
        monkeypatch.setattr(folder_module, "_SECONDS_TO_ANSWER", 60)
    elif endpoint == "has no name":
        at = "http://no.such.host.invalid"
    monkeypatch.setattr(constants, "ENDPOINT", at)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", endpoint == "is off")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    hub_folder.cache_clear()
    if reason is None:
        assert why_unreachable() is None
    else:
        with pytest.raises(ModelError, match=reason):
            model_folder("owner/name-that-is-not-there")
    server.close()


def test_what_is_wrong_is_known_without_torch_and_info_too(whole, tmp_path):
    """One process: any import of torch or transformers in it is an error."""
    wrong = [
        ["info", "no/such/folder"],
        ["score", "--model", "none", "absent.fa"],
        ["score", "--model", "none", str(tmp_path / "there.fa")],
        ["embed", "--model", "none", "absent.fa", "--output", "x.parquet"],
        ["convert", "none", "x"],
        ["generate", "--model", "none", "--length", "6"],
        ["variants", "--model", "m", "--reference", "a.fa", "--vcf", "b", "--output", "o.tsv"],
        ["scan", "--model", "m", "--reference", "a.fa", "--contig", "c", "--output", "o.tsv"],
    ]
    (tmp_path / "there.fa").write_text(">a\nACGT\n")
    script = (
        "import sys; sys.modules['torch'] = sys.modules['transformers'] = None\n"
        "from carbon.cli import main\n"
        f"assert main(['info', {str(whole)!r}]) == 0\n"
        f"assert [main(words) for words in {wrong!r}] == [2] * {len(wrong)}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, cwd=tmp_path, check=False,
        env={"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    # 4224 x 32 rows; 2 layers of 32 x 32 (q, o), 32 x 16 (k, v), 3 x 32 x 48, two norms; a norm.
    assert json.loads(done.stdout)["parameters"] == 135_168 + 2 * (3072 + 4608 + 64) + 32
    assert len(done.stderr.splitlines()) == len(wrong)


def test_python_m_carbon_is_carbon():
    done = subprocess.run(
        [sys.executable, "-m", "carbon", "--help"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("Usage: carbon ")
