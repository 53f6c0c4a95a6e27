"""Primer: what a reader of either side needs of the other, with figures that are computed here."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

from carbon.errors import UserError
from carbon.genome import reverse_complement, short, translate
from carbon.genome.described import described_at
from carbon.genome.opened import Genome
from carbon.inference import kmer_index
from carbon.inference.reading.next_token import losses_by_wrong_bases
from carbon.tokenizer import BASES, K
from carbon.tokenizer.kmer import cut_kmers
from demo import primer_text as text
from demo.fields import Field, Values
from demo.figures import BLUE, ORANGE, Figure, figure, gene_axis, gene_traces, plain
from demo.learning import PLAYED, learning_facts, learning_figure
from demo.panel import Command, Example, Panel, Progress, Result, View
from demo.token_figures import marginal_bars

_MOST_GENE_BP = 6000
_SEQUENCE_BP = 66
_FREE = "." * K


class Primer(Panel):
    """The first page."""

    name = "primer"
    title = "Primer"
    others: ClassVar[tuple[type[Panel], ...]] = ()
    sentence = (
        "What a DNA language model reads and learns, for readers from either side; every figure is "
        "computed from the model and the genome that are loaded here."
    )
    run_label = "Show"
    views: ClassVar[tuple[View, ...]] = (
        View("learning", "figure", "What is known of each base of a gene, by step of the training"),
        View("strands", "html", "Bases and strands"),
        View("splicing", "html", "Genes and splicing"),
        View("gene", "figure", "A gene with its exons"),
        View("codons", "html", "Codons"),
        View("usage", "figure", "How often each codon is used"),
        View("kmers", "html", "6-mers and frames"),
        View("token", "html", "What the model says"),
        View("marginals", "figure", "Probability of each base of the next 6-mer"),
        View("losses", "html", "Cross-entropy and FNS"),
        View("credit", "figure", "Loss by the number of wrong bases"),
        View("more", "html", "The other pages"),
    )
    more: ClassVar[tuple[Example, ...]] = (
        Example("A repeat", {"sequence": "GATTACACTGAC" * 5 + "GATTAC"}),
        Example("One base further", {"frame": 1}),
    )

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        steps = map(str, self.lab.learned.steps if self.lab.learned else ())
        return (
            Field("sequence", "A sequence to play with", self.lab.example.bases(_SEQUENCE_BP),
                  "bases", most=300, info="DNA; the model predicts its last six bases"),
            Field("frame", "Second frame", 2, "integer", least=1, most=5,
                  info="bases left out before the 6-mers are cut"),
            Field("gene", "Gene", self.lab.example.name, info="a gene's name or contig:first-last"),
            Field("step", "Step of the training", PLAYED, "choice", (PLAYED, *steps)),
        )  # fmt: skip

    @property
    def path(self) -> str:
        """It is the first page."""
        return "/"

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield what all figures show."""
        sequence = _sequence(values)
        context, true = sequence[:-K], sequence[-K:]
        token = self.lab.model.next_token(context)
        best, _ = token.ranked()[0]
        yield {
            "learning": learning_facts(self.lab),
            "sequence": sequence,
            "reverse_complement": reverse_complement(sequence),
            "protein": translate(sequence[: len(sequence) // 3 * 3]),
            "frames": [
                {"frame": at, "kmers": cut_kmers(sequence, at)} for at in (0, values["frame"])
            ],
            "gene": described_at(self.lab.genome, values["gene"], _MOST_GENE_BP),
            "context": token.context,
            "true": true,
            "true_probability": float(token.probabilities[kmer_index(true)]),
            "best": best,
            "marginals": token.marginals.tolist(),
            "losses_by_wrong_bases": losses_by_wrong_bases(token, best),
        }

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the sections, and the figures between them."""
        found = result["gene"]
        return {
            "learning": learning_figure(self.lab, result["learning"], values["step"]),
            "strands": text.strands(result),
            "splicing": text.splicing(values["gene"], found),
            "gene": _gene_figure(self.lab.genome, values["gene"]),
            "codons": text.codons(result),
            "usage": _usage_figure(found["codons"] if found else {}),
            "kmers": text.kmers(result),
            "token": text.token(result),
            "marginals": marginal_bars(
                result["marginals"], result["marginals"], result["true"], _FREE
            ),
            "losses": text.losses(result),
            "credit": _credit_figure(result["losses_by_wrong_bases"]),
            "more": text.more((f"/{other.name}", other.invitation) for other in self.others),
        }

    def python(self, values: Values) -> str:
        """Return the program."""
        sequence = _sequence(values)
        return (
            "import carbon\nfrom carbon.genome import translate\n"
            "from carbon.tokenizer import KMER_DIGITS, encode_kmers\n\n"
            f"sequence = {sequence!r}\n"
            "print(carbon.reverse_complement(sequence))\n"
            "print(translate(sequence[: len(sequence) // 3 * 3]))\n"
            f"for frame in (0, {values['frame']}):\n"
            "    print(encode_kmers(sequence[frame:]).indices.tolist())\n\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            "token = model.next_token(sequence[:-6])\n"
            "print(token.ranked()[0])\n"
            "print(token.marginals.tolist())  # six places, bases in the order ATCG\n"
            "best = token.probabilities.argmax()\n"
            "wrong = (KMER_DIGITS != KMER_DIGITS[best]).sum(axis=1)\n"
            "for n in range(7):\n"
            "    these = wrong == n\n"
            "    print(n, token.cross_entropy_nats[these].mean(), token.fns_nats[these].mean())\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command line behind the last two figures."""
        prompt = _sequence(values)[:-K]
        return [["carbon", "next", "--model", self.lab.model_name, "--prompt", prompt]]


def _sequence(values: Values) -> str:
    sequence: str = values["sequence"]
    if len(sequence) < K or set(sequence[-K:]) - set(BASES):
        raise UserError(
            f"the sequence '{short(sequence)}' is to end with six of ACGT, which the model predicts"
        )
    return sequence


def _gene_figure(genome: Genome, place: str) -> Figure:
    """Return the gene: a line, its exons, and the coding part thicker."""
    interval = genome.place(place, 0, _MOST_GENE_BP)
    gene = genome.gene_at(place, _MOST_GENE_BP)
    return figure(
        gene_traces([gene] if gene else [], interval, "y"),
        height=150,
        xaxis={"title": {"text": f"position on {plain(interval.contig)}"}, "tickformat": ",d",
               "range": [interval.start + 0.5, interval.end + 0.5], "fixedrange": True},
        yaxis=gene_axis((0, 1), 1),
        showlegend=False,
    )  # fmt: skip


def _usage_figure(codons: Mapping[str, int]) -> Figure:
    """Return the codons, those of one amino acid side by side."""
    known = sorted((translate(codon), codon) for codon in codons if not set(codon) - set(BASES))
    names = [[_amino(amino) for amino, _ in known], [codon for _, codon in known]]
    shades = {amino: n % 2 for n, amino in enumerate(sorted({amino for amino, _ in known}))}
    return figure(
        [{"type": "bar", "x": names, "y": [codons[codon] for _, codon in known],
          "marker": {"color": [(BLUE, ORANGE)[shades[amino]] for amino, _ in known]},
          "hovertemplate": "%{x}: %{y}<extra></extra>"}],
        height=300,
        xaxis={"fixedrange": True, "tickangle": -90, "tickfont": {"size": 10},
               "title": {"text": "codon, and amino acid"}},
        yaxis={"title": {"text": "times"}, "fixedrange": True},
    )  # fmt: skip


def _amino(letter: str) -> str:
    return "stop" if letter == "*" else letter


def _credit_figure(losses: list[dict[str, float]]) -> Figure:
    """Return both losses, in nats per base, against the number of wrong bases."""
    wrong = [loss["wrong"] for loss in losses]
    lines = (
        ("cross-entropy / 6", [loss["cross_entropy_nats"] / K for loss in losses], BLUE, "circle"),
        ("FNS", [loss["fns_nats"] for loss in losses], ORANGE, "diamond"),
    )
    return figure(
        [{"type": "scatter", "mode": "lines+markers", "name": name, "x": wrong, "y": nats,
          "line": {"color": color}, "marker": {"symbol": symbol, "size": 9}}
         for name, nats, color, symbol in lines],
        height=300,
        xaxis={"title": {"text": "bases that differ from the favourite"}, "dtick": 1,
               "fixedrange": True},
        yaxis={"title": {"text": "nats per base"}, "fixedrange": True},
    )  # fmt: skip
