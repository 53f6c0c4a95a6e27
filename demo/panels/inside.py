"""Inside: DNA as tokens, the distribution of one token, and the training of the model."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from carbon.errors import UserError
from carbon.genome import fasta_text
from carbon.inference import kmer_index
from carbon.inference.next_token import FREE
from carbon.tokenizer import BASES, K
from demo.fields import Field, Values, input_field, input_link
from demo.lab import Lab
from demo.markup import download, facts, paragraph, table
from demo.panel import Example, Panel, Pick, Progress, Result, View
from demo.preview import Card
from demo.run_figures import run_curves
from demo.runs import (
    MOST_LINES,
    MOST_POINTS,
    OWN,
    Runs,
    recorded_figure,
    recorded_text,
    run_tables,
    run_text,
)
from demo.token_views import (
    kmer_map,
    kmer_values,
    loss_bars,
    marginal_bars,
    strand_readings,
    tokens_view,
)

_CONTEXT_BP = 366  # of ENO2: the bundled model expects the next 6-mer most
_MOST_CONTEXT_BP, _TOKENS_BP, _TOP = 6000, 66, 10
_FASTA = "sequence.fa"
_REFRESH_SECONDS = 3.0
_ABOUT_LOSSES = (
    "Each row is the loss if that 6-mer were the true one: the true 6-mer itself, then its 18 "
    "neighbours with one other base (bold). FNS counts the six bases one by one and credits five "
    "right bases; cross-entropy counts the 6-mer as a whole."
)


class Inside(Panel):
    """Page on the parts of the model."""

    heading = "Look inside one prediction"
    sentence = (
        "DNA becomes tokens of six bases, the model predicts one of 4,096 for the next token, and "
        "training compares that with the truth."
    )
    run_label = "Look"
    views: ClassVar[tuple[View, ...]] = (
        View("tokens"),
        View("answer"),
        View("marginals", "figure", "Probability of each base at six places: click one to fix it"),
        View("map", "figure", "Probabilities of the 4,096 6-mers: click one to compare with it"),
        View("top"),
        View("losses", "figure", "Losses of the true 6-mer and its one-base neighbours"),
        View("training"),
        View("curves", "figure", "Curves over the steps of the training"),
        View("tables"),
        View("saved"),
    )

    def __init__(self, lab: Lab) -> None:
        self._runs = Runs(lab)
        super().__init__(lab)

    @property
    def refresh_seconds(self) -> float | None:  # type: ignore[override]
        """Return a short interval if there are runs, which may be training now."""
        return _REFRESH_SECONDS if self._runs.names else None

    def make_fields(self) -> tuple[Field, ...]:
        runs = (OWN, *self._runs.names)
        return (
            input_field(self.lab.example.name, info="the model predicts its last six bases"),
            Field("fixed", "Fixed bases", FREE, most=K,
                  info="six letters, . where a base is free; or click a bar, and again to free it"),
            Field("run", "Training run", self._runs.default, "choice", runs, asks=True,
                  more=len(runs) == 1, info="folders under --runs, the last written to first"),
            Field("kmer", "6-mer to compare with", "", most=K, more=True,
                  info="the last six bases, if empty; or click a cell of the map"),
            Field("axis", "Training along", "steps", "choice", ("steps", "tokens"), more=True),
            Field("last_steps", "Last steps of the training", 0, "integer", most=1_000_000,
                  more=True, info="0 for all"),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        donor = self.lab.example.donor(_CONTEXT_BP, K)
        intron = {"input": donor} if donor else {}
        label = "An intron begins" if donor else "It begins with GT"
        return (
            Example(label, intron | {"fixed": "GT...."}),
            Example("Nothing before it", {"input": "ATGGCC"}),
            Example("A repeat of twelve bases", {"input": "GATTACACTGAC" * 8 + "GATTAC"}),
            *(Example(f"Run {name}", {"run": name}) for name in self._runs.names[:2]),
        )  # fmt: skip

    def picks(self) -> tuple[Pick, ...]:
        """Return the clicks: a cell or near miss becomes the true 6-mer, and a bar is fixed."""
        take = (Pick(view, lambda picked, _: {"kmer": picked}) for view in ("map", "losses"))
        return (*take, Pick("marginals", _toggled))

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the tokens, the distribution with its losses, and the training."""
        context, kmer = self._split(values)
        token = self.lab.model.next_token(context)
        yield {
            "sequence": context + kmer,
            "readings": strand_readings((context + kmer)[-_TOKENS_BP:]),
            **kmer_values(token, kmer, _fixed(values), _TOP),
            "training": self._runs.values(values["run"], values["last_steps"]),
        }

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the three sections: tokens, prediction, training."""
        training = result["training"]
        return {
            "tokens": tokens_view(result["sequence"][-_TOKENS_BP:], result["readings"]),
            "saved": download(_FASTA, fasta_text([("sequence", result["sequence"])])),
            **_prediction(result),
            **_training(training, values),
        }

    def questions(self, values: Values, result: Result) -> Sequence[tuple[str, str]]:
        text = values["input"]
        return (
            ("See the whole sequence", input_link("/gene", text)),
            ("Let the model continue it", input_link("/write", text)),
        )

    def card(self, values: Values, result: Result) -> Card:
        """Return the preview of this state, with the likeliest 6-mers as its picture."""
        best, fixed = result["top"][0], result["fixed"]
        subject = "The model" if fixed == FREE else f"Given {fixed}, the model"
        sentence = f"{subject} expects {best['kmer']} next, at {100 * best['probability']:.1f} %."
        return Card(self.title, sentence, tuple(each["probability"] for each in result["top"]))

    def code(self, values: Values) -> Mapping[str, Any]:
        context, kmer = self._split(values)
        folder = self._runs.folder(values["run"])
        return {
            "context": context,
            "kmer": kmer,
            "fixed": _fixed(values),
            "top": _TOP,
            "run": str(folder) if folder else "",
            "last_steps": values["last_steps"],
            "most_lines": MOST_LINES,
            "most_points": MOST_POINTS,
        }

    def _split(self, values: Values) -> tuple[str, str]:
        """Return the context and the true 6-mer."""
        bases = self.lab.detect(values["input"]).opening_bases(_CONTEXT_BP + K)
        if len(bases) < K:
            raise UserError(f"{len(bases)} bases; the model predicts the last six: give more")
        context, kmer = bases[:-K][-_MOST_CONTEXT_BP:], values["kmer"].upper() or bases[-K:]
        if set(bases[-K:]) - set(BASES) and not values["kmer"]:
            raise UserError(f"{bases[-K:]}: the last six bases must be A, C, G or T")
        return context, kmer


def _prediction(result: Result) -> dict[str, Any]:
    """Return the distribution, free and with the fixed bases, and the losses."""
    true, fixed = result["losses"][0], result["fixed"]
    p = np.array(result["probabilities"])
    conditional = np.array(result["conditional_probabilities"])
    index, best = kmer_index(true["kmer"]), result["top"][0]["kmer"]
    header, is_fixed = ["6-mer", "probability"], fixed != FREE
    rows = [[each["kmer"], each["probability"]] for each in result["top"]]
    if is_fixed:
        header[1:] = [f"probability given {fixed}", "probability"]
        rows = [[kmer, share, float(p[kmer_index(kmer)])] for kmer, share in rows]
    return {
        "answer": "<h2>The model predicts the next token</h2>" + facts([
            ("true 6-mer", true["kmer"]),
            ("its probability", f"{100 * p[index]:.2g} %"),
            ("its rank", f"{result['rank']:,} of 4,096"),
            ("cross-entropy, nats a token", f"{true['cross_entropy_nats']:.4f}"),
            ("FNS, nats a base", f"{true['fns_nats']:.4f}"),
            ("context", f"{len(result['context']):,} bp"),
            *([(f"probability of {fixed}", f"{100 * p[conditional > 0].sum():.3g} %")]
              if is_fixed else []),
        ]),
        "marginals": marginal_bars(
            result["marginals"], result["conditional_marginals"], true["kmer"], fixed
        ),
        "map": kmer_map(conditional, true["kmer"], best),
        "top": table(header, rows, "The likeliest 6-mers")
        + f"<h2>Training compares it with the truth</h2>{paragraph(_ABOUT_LOSSES)}",
        "losses": loss_bars(result["losses"]),
    }  # fmt: skip


def _training(training: Result, values: Values) -> dict[str, Any]:
    head = "<h2>How it was trained</h2>"
    if "points" not in training:
        return {
            "training": head + recorded_text(training),
            "curves": recorded_figure(training) if "learned" in training else None,
            "tables": "",
        }
    return {
        "training": head + run_text(training),
        "curves": run_curves(training, values["axis"], f"{values['last_steps']}"),
        "tables": run_tables(training),
    }


def _fixed(values: Values) -> str:
    return values["fixed"].upper() or FREE


def _toggled(picked: Any, values: Values) -> Values:
    """Fix the base of a clicked bar; free it if it is fixed."""
    place, base = int(picked[0]), str(picked[1])
    fixed = list(_fixed(values).ljust(K, ".")[:K])
    fixed[place] = "." if fixed[place] == base else base
    return {"fixed": "".join(fixed)}
