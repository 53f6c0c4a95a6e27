"""The notebook of the docs: it has no output, and runs cell by cell without Jupyter."""

import json
from pathlib import Path

import matplotlib
import numpy as np
import pytest

NOTEBOOK = Path(__file__).parents[2] / "docs" / "walkthrough.ipynb"


@pytest.fixture(scope="module")
def notebook():
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def code_of(notebook) -> list[str]:
    return ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]


def test_it_is_a_notebook_of_python_without_output(notebook):
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert cell["cell_type"] in ("code", "markdown")
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
    for each in code_of(notebook):
        compile(each, NOTEBOOK.name, "exec")
    code = "\n".join(code_of(notebook))
    for verb in ("load", "score", "score_variants", "scan", "generate", "embed"):
        assert f"carbon.{verb}(" in code or f"model.{verb}(" in code


@pytest.mark.nightly
def test_it_runs(notebook, monkeypatch):
    monkeypatch.delenv("CARBON_MODEL", raising=False)
    matplotlib.use("Agg")
    names: dict = {}
    for number, code in enumerate(code_of(notebook)):
        exec(compile(code, f"{NOTEBOOK.name}, code cell {number}", "exec"), names)
    plt = names["plt"]
    assert len(plt.get_fignums()) == 4
    plt.close("all")
    assert names["log_p"].shape == (200, 4)
    mass = np.exp(names["log_p"]).sum(axis=1)  # geometric means over frames sum to at most 1
    assert ((mass > 0.5) & (mass < 1 + 1e-5)).all()
    assert np.isfinite(names["deltas"]).all()
    assert [len(text) for text in names["samples"]] == [300] * 8
    assert names["vectors"].shape == (80, 128)
