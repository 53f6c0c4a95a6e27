"""Compare: two sequences, two alleles or two models, side by side."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from carbon.genome import fasta_text
from demo.fields import Field, Values
from demo.figures import BLUE, GREY, ORANGE, Figure, figure
from demo.lab import Lab
from demo.markup import download, facts, paragraph, shortened, table
from demo.panel import Command, Example, Panel, Progress, Result, View
from demo.sequence_pairs import NamedBases, read_pair, typed_pair

_MOST_BP, _MOST_POINTS = 6000, 300
_SAME = "the same"
_SIDES = (("A", BLUE, "solid"), ("B", ORANGE, "dot"))
_MEANING = (
    "Nats per base are the mean of -log p over the bases, each given all before it: less is "
    "likelier, and 1.386 is a fair die. A model that was trained on a sequence may know it "
    "by heart, so compare models on what neither has seen. Sums compare "
    "sequences of one length by one model."
)


class Compare(Panel):
    """Scores two sequences as `carbon score` does, by one model or two."""

    invitation = "Compare two sequences, alleles or models"
    sentence = (
        "Two sequences, two alleles or two models side by side: how likely each is, and at which "
        "bases they part."
    )
    views: ClassVar[tuple[View, ...]] = (
        View("told", "html", "The comparison in numbers"),
        View("track", "figure", "Nats of each base of A and B, and how far B falls behind"),
        View("saved", "html", "Download"),
    )

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        return (
            Field("a", "A", self.lab.example.name, "lines", most=_MOST_BP,
                  info="a gene, contig:first-last, or bases"),
            Field("b", "B", self._variants()[0], "lines", most=_MOST_BP,
                  info="the same, or a variant of A; empty for A itself"),
            *self.model_field("model_b", "Model of B", _SAME),
        )  # fmt: skip

    def _variants(self) -> list[str]:
        return [variant.to_text() for variant in self.lab.example.variants().values()]

    def examples(self) -> tuple[Example, ...]:
        """Return sequences, alleles, and models where there are others."""
        bases = self.lab.example.bases(300)
        offer, a = self.lab.first.offer, {"a": bases}
        others = tuple(offer.sources) if offer else ()
        return (
            *(Example(f"Another allele, {v}", {"b": v}) for v in self._variants()[1:]),
            Example("A sequence, and the same backwards", a | {"b": bases[::-1]},
                    "the same bases in the order that no cell has: less likely"),
            *(Example(f"The model {name} reads the same gene", {"b": "", "model_b": name},
                      "the sequence is one, the models are two") for name in others[:2]),
        )  # fmt: skip

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield both sequences with the log-likelihood of every base."""
        models = [(lab.shown_name, lab.model) for lab in self._labs(values)]
        for result in read_pair(self._pair(values), models):
            yield result if "said" in result else Progress(len(result), 2, "sequences")

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return sentence, table, figure and downloads."""
        a, b = result["a"], result["b"]
        rows = [
            (side, shortened(told["name"]), told["model"], told["length_bp"],
             f"{told['nats_per_base']:.4f}", f"{told['log_likelihood']:,.2f}")
            for side, told in (("A", a), ("B", b))
        ]  # fmt: skip
        header = ("", "sequence", "model", "bases", "nats per base", "log p, nats")
        return {
            "told": paragraph(result["said"])
            + table(header, rows)
            + facts([("B - A, nats", f"{b['log_likelihood'] - a['log_likelihood']:+.4f}"),
                     ("B - A, nats per base", f"{b['nats_per_base'] - a['nats_per_base']:+.4f}")])
            + paragraph(_MEANING),
            "track": _track(a["log_p"], b["log_p"]),
            "saved": "".join(download(f"{side}.fa", fasta_text([(side, own.bases)]))
                             for side, own in zip("ab", self._pair(values), strict=True)),
        }  # fmt: skip

    def python(self, values: Values) -> str:
        """Return the program."""
        names = [lab.model_name for lab in self._labs(values)]
        return (
            "import carbon\nfrom carbon.genome import read_sequences\n\n"
            "# a.fa and b.fa: download them on this page\n"
            f"for file, name in zip(('a.fa', 'b.fa'), {names!r}):\n"
            "    ((_, bases),) = read_sequences(file)\n"
            "    (score,) = carbon.load(name).score([bases])\n"
            "    print(score.log_likelihood, score.nats_per_base)\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command lines."""
        a, b = (lab.model_name for lab in self._labs(values))
        return [
            "# a.fa and b.fa: download them on this page",
            ["carbon", "score", "--model", a, "a.fa", "--output", "a.tsv"],
            ["carbon", "score", "--model", b, "b.fa", "--output", "b.tsv"],
        ]

    def _pair(self, values: Values) -> tuple[NamedBases, NamedBases]:
        return typed_pair(values["a"], values["b"], self.lab.genome, _MOST_BP)

    def _labs(self, values: Values) -> tuple[Lab, Lab]:
        other = values.get("model_b", _SAME)
        return self.lab, self.lab if other == _SAME else self.lab.with_model(other)


def _track(a: list[float], b: list[float]) -> Figure:
    """Return the nats of both along their bases; at equal lengths, also B's cumulative excess."""
    bin_bp, fit = -(-max(len(a), len(b)) // _MOST_POINTS), len(a) == len(b)
    of_bins = f", mean of {bin_bp} bases" if bin_bp > 1 else ""
    traces = [
        {"type": "scatter", "mode": "lines", "name": name + of_bins,
         "x": [at + (bin_bp + 1) / 2 for at in range(0, len(side), bin_bp)],
         "y": [-float(np.mean(side[at : at + bin_bp])) for at in range(0, len(side), bin_bp)],
         "line": {"color": color, "dash": dash, "width": 1.5}}
        for (name, color, dash), side in zip(_SIDES, (a, b), strict=True)
    ]  # fmt: skip
    if fit:
        behind = np.cumsum(np.subtract(a, b)).tolist()
        traces.append({
            "type": "scatter", "mode": "lines", "name": "A ahead so far", "yaxis": "y2",
            "x": list(range(1, len(a) + 1)), "y": behind, "line": {"color": GREY, "width": 2},
        })  # fmt: skip
    return figure(
        traces,
        height=460,
        xaxis={"title": {"text": "base of the sequence"}, "anchor": "y2" if fit else "y"},
        yaxis={"domain": [0.42 if fit else 0, 1], "title": {"text": "nats of a base"}},
        yaxis2={"domain": [0, 0.32], "title": {"text": "nats, summed"}, "visible": fit},
    )
