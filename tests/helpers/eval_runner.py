"""What the tests of eval_runner share."""

import json
from dataclasses import replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq

from eval.baselines import VARIANT_BASELINES
from eval.contract import Curve, Example, Grid, Model, Options, Task
from eval.entrants import Baselines, Entrant
from eval.metrics import summary_of
from eval.suite import Suite


class Oracle(Model):
    """Knows a share of the answers."""

    def __init__(self, name: str, share: float, context_bp: int | None = None) -> None:
        self.name, self.share, self.context_bp = name, share, context_bp

    def generate(self, prompts, length_bp, mode="token"):
        return [prompt[::-1][:length_bp] if self.knows(prompt) else "N" * length_bp
                for prompt in prompts]  # fmt: skip

    def knows(self, prompt: str) -> bool:
        return sum(prompt.encode()) % 100 < 100 * self.share


def read(source) -> pa.Table:
    return pq.read_table(source)


def examples(table: pa.Table, options: Options) -> list[Example]:
    rows = table.to_pylist()[: options.max_samples]
    return [
        Example(f"e{n}", row["group"],
                {"row": row, "columns": {"chrom": f"chr{n % 3}"}, "label": n % 2, "skip": None},
                len(row["prompt"]))
        for n, row in enumerate(rows)
    ]  # fmt: skip


def answers(model: Model, asked) -> "Iterator":  # noqa: F821
    for example in asked:
        prompt = example.data["row"]["prompt"]
        (text,) = model.generate([prompt], 4)
        hits = sum(a == b for a, b in zip(text, prompt[::-1][:4], strict=True))
        yield {"id": example.id, "group": example.group, "score": hits / 4,
               **example.data["columns"]}  # fmt: skip


def summarise(results):
    found = summary_of(results, "mean", cluster="chrom")
    places = [1.0, 2.0]
    return replace(
        found,
        others={"again": found.value},
        curves={"by_position": Curve("place", "right", places, [0.5, 0.25])},
        grids={"depth": Grid("length", "depth", ["1", "2"], ["0"], [[0.5, None]])},
        notes=["a note <to> show"],
    )


TASK = Task(
    name="toy", axis="generation", measures="what is read backwards", metric="mean", chance=0.25,
    published={"Carbon-3B": 0.6}, citation="nobody", columns={"prompt": str}, reads=read,
    build=lambda output: None, examples=examples, run=answers, summarise=summarise, cluster="chrom",
)  # fmt: skip


def suite_of(folder, *, share=0.8, task=TASK, resume=False, output="out", **more) -> Suite:
    models = {"m": Oracle("m", share, more.pop("context_bp", None))}
    return Suite(
        tasks=[task],
        models=[Entrant("m", "model", "somewhere", "id", "float32")],
        baselines=Baselines([folder / "train.fa"], [1, 3], more.pop("columns", [])),
        load=lambda entrant: models[entrant.name],
        output=folder / output,
        datasets={"": str(folder)},
        references={},
        options=Options(more.pop("max_samples", None)),
        resume=resume,
        **more,
    )


def skipping(table, options):
    """Leave some out, and all of one label in the last third."""
    found = examples(table, options)
    for n, example in enumerate(found):
        example.data["skip"] = "REF is not in the reference" if n in (3, 4) else None
    return found


def labelled_answers(model, some):
    for example, result in zip(some, answers(model, some), strict=True):
        if example.data["skip"]:
            yield {"id": example.id, "group": example.group, "skipped": example.data["skip"]}
        else:
            yield {**result, "label": example.data["label"]}


LABELLED = replace(
    TASK, axis="variants", baselines=VARIANT_BASELINES, metric="auroc",
    columns=dict.fromkeys(("chrom", "pos", "ref", "alt"), str), examples=skipping,
    run=labelled_answers, cluster=None,
    summarise=partial(summary_of, metric="auroc"),
)  # fmt: skip


_TIMES = ("seconds", "examples_per_second", "peak_bytes")


def records_of(folder) -> dict[str, object]:
    """Return all that a run has written, by name of file, but for what it took, and where."""
    found = {}
    for path in sorted(folder.glob("*/*.json*")):
        name = f"{path.parent.name}/{path.name}"
        found[name] = path.read_bytes()
        if path.suffix == ".json":
            record = json.loads(path.read_text())
            cost = {key: value for key, value in record["cost"].items() if key not in _TIMES}
            found[name] = json.dumps({**record, "cost": cost, "hardware": None})
    return found
