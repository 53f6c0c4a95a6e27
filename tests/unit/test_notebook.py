"""The notebook of the docs: it has no output, and runs in Jupyter."""

import json
from pathlib import Path

import pandas as pd
import pytest
from traitlets.config import Config

NOTEBOOK = Path(__file__).parents[2] / "docs" / "walkthrough.ipynb"


CHECK = """
alone = model.score_vcf(vcf, reference=yeast.genome)
assert [row["delta"] for row in alone] == variants["delta"].tolist() and len(variants) == 20
others = variants[variants["gene"] == "ENO2"].drop(strongest.index)
assert (strongest["gene"] == "ENO2").all() and len(strongest) == 5
assert strongest["delta"].max() <= others["delta"].min()
"""


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


@pytest.mark.nightly
def test_it_runs_in_jupyter_with_two_processes(tmp_path, monkeypatch):
    """A kernel has an event loop and no terminal: the bar is on, and the deltas are the same."""
    monkeypatch.chdir(tmp_path)  # the kernel's sockets have relative names
    nbclient = pytest.importorskip("nbclient")
    nbformat = pytest.importorskip("nbformat")
    ran = nbformat.read(NOTEBOOK, as_version=4)
    for cell in ran.cells:
        cell.source = cell.source.replace("yeast.annotation)", "yeast.annotation, processes=2)")
        cell.source = cell.source.replace("453_000), 100)", "453_000), 20)")
    last = next(n for n, cell in enumerate(ran.cells) if "model.close()" in cell.source)
    ran.cells.insert(last, nbformat.v4.new_code_cell(CHECK))
    nbclient.NotebookClient(
        ran,
        timeout=600,
        startup_timeout=300,
        kernel_name="python3",
        config=Config({"KernelManager": {"transport": "ipc"}}),
        resources={"metadata": {"path": str(tmp_path)}},
    ).execute()
    assert len(pd.read_csv(tmp_path / "eno2.csv")) == 20
    shown = "".join(
        output.get("text", "")
        for cell in ran.cells
        if "processes=2" in cell.source
        for output in cell.outputs
    )
    assert "scoring variants" in shown and "20/20" in shown
