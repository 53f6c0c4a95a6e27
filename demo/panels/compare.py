"""Models: one sequence by two models, base by base."""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from carbon.errors import UserError
from carbon.genome import fasta_text
from demo.fields import INPUT, Field, Values, input_field
from demo.figures import BLUE, GREY, Figure, figure
from demo.lab import Lab
from demo.markup import download, paragraph, table
from demo.panel import Panel, Progress, Result, View

_MOST_BP, _MOST_POINTS = 6000, 300
_SIDES = (("this model", BLUE, "solid"), ("other model", GREY, "dot"))
_MEANING = (
    "Nats per base are the mean of -log p over the bases, each given all bases before it. Less is "
    "likelier; a fair die has 1.386. A model may know a sequence of its training by heart, so "
    "compare models on a sequence that neither was trained on."
)


class Compare(Panel):
    """Scores one sequence by two models, as `carbon score` does."""

    title = "Two models"
    sentence = "How likely each of two models finds the same sequence, and where they differ."
    run_label = "Compare"
    views: ClassVar[tuple[View, ...]] = (
        View("summary"),
        View("track", "figure", "Nats of each base by both models, and how far one falls behind"),
        View("saved"),
    )

    @classmethod
    def is_available(cls, lab: Lab) -> bool:
        """Return whether visitors may choose another model."""
        return lab.first.allowed is not None

    def make_fields(self) -> tuple[Field, ...]:
        allowed = self.lab.first.allowed
        first = next(iter(allowed.sources), "") if allowed else ""
        return (
            input_field(self.lab.example.name, "Gene, region or DNA"),
            *self.model_field("other_model", "Other model", first or self.lab.first.shown_name),
        )

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the log-likelihood of every base by both models."""
        _, bases = self._named_bases(values)
        sides: list[Result] = []
        for lab in self._labs(values):
            (score,) = lab.model.score([bases])
            if not score.num_known_bases:
                raise UserError("the sequence has no base that is one of ACGT")
            sides.append({
                "model": lab.shown_name,
                "length_bp": score.length_bp,
                "log_likelihood": score.log_likelihood,
                "nats_per_base": score.nats_per_base,
                "log_p": score.bases.tolist(),
            })  # fmt: skip
            yield Progress(len(sides), 2, "models")
        yield dict(zip(("this", "other"), sides, strict=True))

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        this, other = result["this"], result["other"]
        rows = [
            (side["model"], side["length_bp"], f"{side['nats_per_base']:.4f}",
             f"{side['log_likelihood']:,.2f}")
            for side in (this, other)
        ]  # fmt: skip
        header = ("model", "bases", "nats per base", "log p, nats")
        return {
            "summary": paragraph(compared_in_words(this, other))
            + table(header, rows, self._named_bases(values)[0])
            + paragraph(_MEANING),
            "track": _track(this["log_p"], other["log_p"]),
            "saved": download("sequence.fa", fasta_text([self._named_bases(values)])),
        }

    def code(self, values: Values) -> Mapping[str, Any]:
        return {"names": [lab.model_name for lab in self._labs(values)]}

    def _named_bases(self, values: Values) -> tuple[str, str]:
        detected = self.lab.detect(values[INPUT])
        place = detected.gene.interval if detected.variant and detected.gene else detected.interval
        if place.length_bp > _MOST_BP:
            raise UserError(f"a sequence of {place.length_bp:,} bases; give {_MOST_BP:,} at most")
        return place.to_region(), detected.genome.reference.fetch(place).upper()

    def _labs(self, values: Values) -> tuple[Lab, Lab]:
        return self.lab, self.lab.with_model(values["other_model"])


def compared_in_words(this: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Describe the difference between two models in a sentence."""
    if this["model"] == other["model"]:
        return "Both are the same model: choose another."
    better, worse = sorted((this, other), key=lambda side: float(side["nats_per_base"]))
    times = math.exp(worse["nats_per_base"] - better["nats_per_base"])
    if f"{times:.3g}" == "1":
        return "Both models give a base the same probability on average."
    return (
        f"The model {better['model']} gives each base on average {times:.3g} times the probability "
        f"that {worse['model']} gives it."
    )


def _track(this: list[float], other: list[float]) -> Figure:
    """Return the nats of both models along the bases, and the cumulative difference."""
    bin_bp = -(-len(this) // _MOST_POINTS)
    of_bins = f", mean of {bin_bp} bases" if bin_bp > 1 else ""
    starts = range(0, len(this), bin_bp)
    traces = [
        {"type": "scatter", "mode": "lines", "name": name + of_bins,
         "x": [at + (bin_bp + 1) / 2 for at in starts],
         "y": [-float(np.mean(side[at : at + bin_bp])) for at in starts],
         "line": {"color": color, "dash": dash, "width": 1.5}}
        for (name, color, dash), side in zip(_SIDES, (this, other), strict=True)
    ]  # fmt: skip
    traces.append({
        "type": "scatter", "mode": "lines", "name": "this model ahead so far", "yaxis": "y2",
        "x": list(range(1, len(this) + 1)), "y": np.cumsum(np.subtract(this, other)).tolist(),
        "line": {"color": BLUE, "width": 2},
    })  # fmt: skip
    return figure(
        traces,
        height=460,
        xaxis={"title": {"text": "base of the sequence"}, "anchor": "y2"},
        yaxis={"domain": [0.42, 1], "title": {"text": "nats of a base"}},
        yaxis2={"domain": [0, 0.32], "title": {"text": "nats, summed"}},
    )
