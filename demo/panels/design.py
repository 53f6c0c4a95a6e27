"""Design: sequences optimised against a scoring function, round by round."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from carbon.__version__ import __version__
from carbon.design import benchmark_functions
from carbon.design.config import DesignConfig
from carbon.design.functions import running_functions
from carbon.design.goals import fronts
from carbon.design.rules import Rules
from carbon.design.search import rounds, search_of
from carbon.design.strategies import Candidate
from carbon.finetune.folder import HEAD, MANIFEST
from carbon.genome import fasta_text
from carbon.inference import Constraints
from carbon.io.tables import words_of
from demo.fields import Field, Values
from demo.figures import GREY, ORANGE, SEQUENTIAL, Figure, figure
from demo.folders import find_folders, folder_named
from demo.markup import download, facts, table
from demo.panel import Command, Example, Panel, Progress, Result, View

_KNOWN = {"GC window": "gc_window", "motif pair": "motif_pair", "codons of yeast": "yeast_codons"}
_FINETUNED = "finetuned: "
_PROTEIN = "MSKGEELFTGVVPILVELDGDVNGHK"  # of GFP, its first 26
_BEST, _TIMEOUT_SECONDS = 8, 60


class Design(Panel):
    """Optimises sequences against a scoring function, as `carbon design` does."""

    sentence = (
        "The model draws sequences, a function scores them, and the model redraws windows of the "
        "best. A design is a hypothesis: its score does not predict what it does in a cell."
    )
    views: ClassVar[tuple[View, ...]] = (
        View("front", "figure", "Every sequence: its score and its nats per base"),
        View("facts", "html", "The search in numbers"),
        View("table", "html", "The best sequences"),
    )
    more: ClassVar[tuple[Example, ...]] = (
        Example("Two motifs 20 bases apart", {"function": "motif pair"}),
        Example("Codons of yeast", {"function": "codons of yeast", "protein": _PROTEIN},
                "a protein stays as it is"),
        Example("Without redrawing the best", {"strategy": "best_of_n"}),
    )  # fmt: skip

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        finetuned = (f"{_FINETUNED}{name}" for name in self._finetuned())
        return (
            Field("function", "Scoring function", "GC window", "choice", (*_KNOWN, *finetuned),
                  info="1 at best: the middle fifth G and C and the rest A and T; TGACTCA and "
                  "CACGTG 20 bases apart; the codons that genes of yeast prefer"),
            Field("length_bp", "Bases", 60, "integer", least=36, most=300),
            Field("protein", "Protein that stays", "", most=100,
                  info="amino acids, of which the length follows; may be empty"),
            Field("strategy", "Strategy", "beam", "choice", ("beam", "best_of_n")),
            Field("calls", "Sequences to score", 160, "integer", least=16, most=400),
            Field("seed", "Seed", 0, "integer", most=10_000),
        )  # fmt: skip

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield all scored sequences after every round; nothing that is typed is run."""
        search = search_of(self.lab.model.runner, DesignConfig(**_options(values)), 1)
        name = _KNOWN.get(values["function"])
        function = getattr(benchmark_functions, name) if name else self._spec(values)
        history: list[Candidate] = []
        with running_functions([function], _TIMEOUT_SECONDS) as functions:
            for _ in rounds(search, functions, history):
                yield candidates_to_json(history)

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the front, and the best as a table."""
        best = result["candidates"][:_BEST]
        settings = {"carbon": __version__, "model": self.lab.model_name} | values
        words = words_of(settings | {"function": self._spec(values)})
        pairs = ((f"{c['name']} value={c['value']:.4f} {words}", c["bases"]) for c in best)
        columns = ("name", "value", "nats_per_base", "round", "bases")
        return {
            "front": _front(result),
            "facts": facts([
                ("scored", f"{len(result['candidates'])} of {values['calls']}"),
                ("best", f"{best[0]['value']:.4f}"),
                ("nats per base of the best", f"{best[0]['nats_per_base']:.4f}"),
                ("nats per base of random bases", f"{benchmark_functions.CHANCE_NATS:.4f}"),
            ]),
            "table": table(columns, ([c[name] for name in columns] for c in best))
            + download("designs.fa", fasta_text(pairs)),
        }  # fmt: skip

    def python(self, values: Values) -> str:
        """Return the program."""
        options = "".join(f", {name}={value!r}" for name, value in _options(values).items())
        return (
            "import carbon\nfrom carbon.design.rules import Rules\n"
            "from carbon.inference import Constraints\n\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            f"for design in carbon.design(model, [{self._spec(values)!r}]{options}):\n"
            "    print(design.values, design.nats_per_base, design.bases)\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command line."""
        protein = values["protein"]
        what = ["--protein", protein] if protein else ["--length", values["length_bp"]]
        words = ["carbon", "design", "--model", self.lab.model_name, "--function",
                 self._spec(values), *what, "--strategy", values["strategy"],
                 "--calls", values["calls"], "--seed", values["seed"], "-n", _BEST,
                 "--output", "designs.tsv"]  # fmt: skip
        return [words]

    def _spec(self, values: Values) -> str:
        """Return the scoring function as a command line names it."""
        if name := _KNOWN.get(values["function"]):
            return f"python:carbon.design.benchmark_functions:{name}"
        name = values["function"].removeprefix(_FINETUNED)
        return f"prediction=finetuned:{folder_named(name, self._finetuned())}"

    def _finetuned(self) -> dict[str, Path]:
        return find_folders(self.lab.runs, (HEAD, MANIFEST))


def _options(values: Values) -> dict[str, Any]:
    named = {name: values[name] for name in ("strategy", "calls", "seed")} | {"num_designs": _BEST}
    if protein := values["protein"].upper():
        return named | {"rules": Rules(constraints=Constraints(protein=protein))}
    return named | {"length_bp": values["length_bp"]}


def _front(result: Result) -> Figure:
    """Return every sequence, coloured by round, and a line along the Pareto front."""
    rows = result["candidates"]
    front = [row for row in rows if row["front"]]

    def trace(name: str, some: list[Result], mode: str, **style: Any) -> dict[str, Any]:
        return {"type": "scatter", "mode": mode, "name": name, **style,
                "x": [row["value"] for row in some], "y": [row["nats_per_base"] for row in some],
                "text": [f"{row['name']}, round {row['round']}" for row in some],
                "hovertemplate": "%{text}<br>%{x:.3f}, %{y:.3f} nats<extra></extra>"}  # fmt: skip

    by_round = {"color": [row["round"] for row in rows], "colorscale": SEQUENTIAL, "size": 8,
                "line": {"color": GREY, "width": 1},
                "colorbar": {"title": {"text": "round"}, "thickness": 12}}  # fmt: skip
    return figure(
        [
            trace("scored", rows, "markers", marker=by_round),
            trace("Pareto front", front, "lines", line={"color": GREY, "dash": "dot"}),
            trace("the best", rows[:1], "markers",
                  marker={"symbol": "star", "size": 18, "color": ORANGE}),
        ],
        height=440,
        xaxis={"title": {"text": "score"}},
        yaxis={"title": {"text": "nats per base; less is likelier"}, "autorange": "reversed"},
    )  # fmt: skip


def candidates_to_json(history: Sequence[Candidate]) -> dict[str, Any]:
    """Return the candidates of a search with one scoring function for JSON, largest value first.

    Returns:
        `candidates`, each with `name`, `value`, `nats_per_base`, `round`, `parent`, `bases`, and
        `front`: whether no other candidate has both a larger value and a larger likelihood.
    """
    front = set(fronts(np.array([[c.values[0], -c.nats_per_base] for c in history]), 1)[0])
    candidates = [
        {
            "name": c.name,
            "value": c.values[0],
            "nats_per_base": c.nats_per_base,
            "round": c.round,
            "parent": c.parent,
            "front": n in front,
            "bases": c.bases,
        }
        for n, c in enumerate(history)
    ]
    return {"candidates": sorted(candidates, key=lambda candidate: -candidate["value"])}
