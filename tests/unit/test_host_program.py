"""What a program that uses `carbon` keeps: settings of torch, signals, streams, progress."""

import io
import os
import random
import re
import shutil
import signal
import sys
import warnings
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import carbon
from carbon.model import save_model
from tests.helpers.files import random_bases, write_fasta, write_vcf
from tests.helpers.finetune import motif_rows, run_config, write_rows

BASES = random_bases(400, 3)


def state():
    """Return everything that torch, NumPy and Python keep for a whole program."""
    backends = torch.backends
    return {
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": (
            torch.get_float32_matmul_precision(),
            backends.cuda.matmul.allow_tf32,
            backends.cudnn.allow_tf32,
            backends.cudnn.benchmark,
            backends.cudnn.deterministic,
        ),
        "random": torch.get_rng_state().tolist(),
        "numpy": repr(np.random.get_state()),
        "python": random.getstate(),
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "signals": {each: signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGINT)},
        "warnings": list(warnings.filters),
        "streams": (sys.stdout, sys.stderr),
        "main": sys.modules["__main__"],
    }


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("host")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {"c": BASES})
    alt = "ACGT"["ACGT".index(BASES[199]) - 1]
    write_vcf(folder / "v.vcf", [f"c\t200\t.\t{BASES[199]}\t{alt}\t.\t.\t."])
    return folder


def lengths(sequences):
    return list(map(len, sequences))


def uses(folder):
    """Yield a name and a call for each way to use a model."""
    model = carbon.load(folder / "model")
    place = {"reference": folder / "r.fa", "window_bp": 60}
    interval = carbon.Interval("c", 20, 60)
    reference = carbon.Reference(folder / "r.fa")
    yield "load", lambda: carbon.load(folder / "model", dtype="bfloat16")
    yield "score", lambda: list(model.score([BASES], strands="both"))
    yield "score_vcf", lambda: model.score_vcf(folder / "v.vcf", **place)
    yield "score_fasta", lambda: model.score_fasta(folder / "r.fa", per_base=True)
    yield "embed_fasta", lambda: model.embed_fasta(folder / "r.fa")
    yield "scan_region", lambda: model.scan_region("c:21-60", **place)
    yield "dependency", lambda: model.dependency(reference, interval, window_bp=60)
    yield "generate", lambda: model.generate(["ACG"], 12, seed=5)
    yield "continuous", lambda: model.generate(["ACG" * 4], 12, seed=5, engine="continuous")
    yield "infill", lambda: model.infill(BASES[:60], BASES[66:120], 6, candidates=2)
    yield "design", lambda: carbon.design.run(model, [lengths], length_bp=12, calls=4, batch=2)


def trainings(folder):
    """Yield a name and a call for each way to train a model, and to use a trained one.

    The libraries of the trainers are imported before: some set variables and filters at import.
    """
    import sklearn.linear_model  # noqa: F401
    from trl.trainer.grpo_trainer import GRPOTrainer  # noqa: F401

    shutil.copytree(folder / "model", folder / "base", dirs_exist_ok=True)
    write_rows(folder / "data.csv", motif_rows())
    for method in ("probe", "lora"):
        config = run_config(folder, name=method, epochs=0.1) | {"output": str(folder / method)}
        yield f"finetune {method}", partial(carbon.finetune.run, None, config)
    yield "predict", lambda: list(carbon.load_finetuned(folder / "lora").predict([BASES[:60]]))
    options = {"device": "cpu", "length_bp": 12, "steps": 1, "group": 4}
    yield "rl", lambda: carbon.rl.run(folder / "model", [lengths], folder / "rl", **options)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kinds", [uses, trainings])
def test_a_program_keeps_its_settings(folder, kinds, capsys):
    """The settings are not the defaults, so that a reset to these would show."""
    threads, dtype, precision = (
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.get_float32_matmul_precision(),
    )
    calls = list(kinds(folder))
    torch.set_num_threads(2)
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(123)
    random.seed(4)
    np.random.seed(5)
    before = state()
    try:
        for name, call in calls:
            call()
            after = state()
            changed = [key for key in before if after[key] != before[key]]
            assert not changed, (name, changed)
            assert not re.search(r"\d/\d", capsys.readouterr().err), name
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(dtype)
        torch.set_float32_matmul_precision(precision)


def test_no_progress_where_there_is_no_terminal(folder, capsys):
    model = carbon.load(folder / "model")
    model.score_vcf(folder / "v.vcf", reference=folder / "r.fa", window_bp=60)
    assert capsys.readouterr() == ("", "")


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("is_notebook", [False, True])
def test_a_bar_on_a_terminal_and_in_a_notebook(folder, monkeypatch, is_notebook):
    model = carbon.load(folder / "model")
    if is_notebook:
        shell = SimpleNamespace(kernel=object())
        monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    shown = io.StringIO() if is_notebook else Terminal()
    monkeypatch.setattr(sys, "stderr", shown)
    model.score_vcf(folder / "v.vcf", reference=folder / "r.fa", window_bp=60)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.getvalue())
    assert "scoring variants" in text and "1/1" in text
