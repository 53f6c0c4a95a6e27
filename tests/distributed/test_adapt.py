"""`carbon adapt` on two processes against one."""

import json
import subprocess

import numpy as np
import pytest

from tests.helpers.adapt import BASES, BINARY, base_folder, examples_of
from tests.helpers.warm import warm_python


def write_run(tmp_path, network, question, output):
    base_folder(tmp_path, network)
    examples = examples_of(question, 60)
    lines = ["id\tsequence\tlabel\tpart"]
    for n, name in enumerate(examples.names):
        labels = examples.labels[examples.rows_of(n), 0].astype(int)
        label = "".join(question.names[i][0] for i in labels) if question.per_base else labels[0]
        lines.append(f"{name}\t{examples.sequences[n]}\t{label}\t{examples.parts[n]}")
    (tmp_path / "data.tsv").write_text("\n".join(lines) + "\n")
    (tmp_path / f"{output}.toml").write_text(
        f"""
model = "{tmp_path / "base"}"
output = "{tmp_path / output}"
baselines = []
[data]
path = "{tmp_path / "data.tsv"}"
name = "id"
split = {{by = "column", column = "part", validation = ["validation"], test = ["test"]}}
[question]
kind = "{question.kind}"
[way]
name = "lora"
dropout = 0.0
epochs = 2.0
batch = 7
learning_rate = 3e-3
"""
    )
    return [warm_python(), "-m"], ["carbon", "adapt", "--config", tmp_path / f"{output}.toml"]


@pytest.mark.parametrize("question", [BINARY, BASES], ids=lambda q: q.kind)
def test_two_processes_and_one_learn_the_same(tmp_path, network, question):
    results = {}
    for number in (1, 2):
        python, command = write_run(tmp_path, network, question, f"out{number}")
        launcher = ["torch.distributed.run", "--nproc-per-node", "2", "-m"] if number == 2 else []
        done = subprocess.run([*python, *launcher, *command], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-3000:]
        results[number] = json.loads((tmp_path / f"out{number}" / "results.json").read_text())
        assert len(done.stdout.splitlines()) == 1
    one, two = (results[n]["seeds"][0]["looks"] for n in (1, 2))
    for key in ("loss", "score"):
        found = [[look[key] for look in looks] for looks in (one, two)]
        np.testing.assert_allclose(*found, rtol=1e-3, atol=1e-5)
    if not question.per_base:
        said = [
            [float(line.split("\t")[-1]) for line in text.splitlines()[2:]]
            for n in (1, 2)
            for text in [(tmp_path / f"out{n}" / "predictions.tsv").read_text()]
        ]
        np.testing.assert_allclose(*said, atol=1e-4)
