"""Primer: follows a sequence from the chromosome to the model, and computes each figure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from carbon.genome import Span, translate
from carbon.genome.genome import Genome
from carbon.inference.next_token import FREE
from carbon.tokenizer import BASES, K
from demo import primer_text as text
from demo.central_dogma import MOST_GENE_BP, first_of, told_in_cell
from demo.fields import Field, Values
from demo.figures import BLUE, ORANGE, Figure, bars, figure, gene_axis, gene_traces, plain
from demo.gene_summary import gene_at
from demo.learning import PLAYED, learning_facts, learning_figure
from demo.next_token_summary import cut_kmers, told_guess
from demo.panel import Command, Example, Panel, Progress, Result, View
from demo.token_figures import marginal_bars


class Primer(Panel):
    """The first page."""

    others: ClassVar[tuple[type[Panel], ...]] = ()
    sentence = (
        "One sequence travels from the chromosome through the cell and into a DNA language model; "
        "every figure is computed from the model and the genome that are loaded here."
    )
    run_label = "Show"
    views: ClassVar[tuple[View, ...]] = (
        View("learning", "figure", "What is known of each base of a gene, by step of the training"),
        View("strands", "html", "On the chromosome"),
        View("splicing", "html", "Cut and joined"),
        View("gene", "figure", "The gene with its exons, and the bases that travel"),
        View("about_splicing", "html", "About splicing"),
        View("codons", "html", "Codons"),
        View("usage", "figure", "How often each codon is used"),
        View("about_codons", "html", "About codons"),
        View("kmers", "html", "6-mers and offsets"),
        View("token", "html", "What the model guesses"),
        View("marginals", "figure", "Probability of each base of the next 6-mer"),
        View("about_token", "html", "About marginals and the chain"),
        View("losses", "html", "What the truth costs"),
        View("credit", "figure", "Loss by the number of wrong bases"),
        View("about_losses", "html", "About cross-entropy and FNS"),
        View("more", "html", "The other pages"),
    )

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        steps = map(str, self.lab.learned.steps if self.lab.learned else ())
        return (
            Field("gene", "Gene", self.lab.example.name, choices=self.lab.genome.gene_names,
                  asks=True, info="or contig:first-last; the first 66 coding bases travel"),
            Field("sequence", "Or a sequence of your own", "", "bases", most=300,
                  info="DNA; the model guesses its last six bases"),
            Field("offset", "Second offset", 2, "integer", least=1, most=5,
                  info="bases left out before the 6-mers are cut"),
            Field("step", "Step of the training", PLAYED, "choice", (PLAYED, *steps)),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return well-known genes and further examples."""
        return (
            *(Example(name, {"gene": name}, why) for name, why in self.lab.known_genes.items()),
            Example("A repeat", {"sequence": "GATTACACTGAC" * 5 + "GATTAC"}),
            Example("One base further", {"offset": 1}),
        )

    @property
    def path(self) -> str:
        """Path of the first page."""
        return "/"

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the values of all figures."""
        told = told_in_cell(self.lab.genome, values["gene"], values["sequence"])
        gene, sequence = told["gene"], told["sequence"]
        yield {
            "learning": learning_facts(self.lab),
            "known_for": self.lab.known_genes.get(gene["name"]) if gene else None,
            "offsets": [
                {"offset": at, "kmers": cut_kmers(sequence, at)} for at in (0, values["offset"])
            ],
            **told,
            **told_guess(self.lab.model.runner, sequence),
        }

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the sections, and the figures between them."""
        spans = () if values["sequence"] else first_of(self.lab.genome, values["gene"]).spans
        pages = ((f"/{other.name}", other.invitation) for other in self.others)
        return {
            "learning": learning_figure(self.lab, result["learning"], values["step"]),
            "strands": text.strands(result),
            "splicing": text.splicing(result),
            "gene": _gene_figure(self.lab.genome, values["gene"], spans),
            "about_splicing": text.SPLICING,
            "codons": text.codons(result),
            "usage": _usage_figure(result["gene"]["codons"]) if result["gene"] else None,
            "about_codons": text.CODONS,
            "kmers": text.kmers(result),
            "token": text.token(result),
            "marginals": marginal_bars(
                result["marginals"], result["marginals"], result["true"], FREE
            ),
            "about_token": text.TOKEN,
            "losses": text.losses(result),
            "credit": _credit_figure(result["losses_by_wrong_bases"]),
            "about_losses": text.LOSSES,
            "more": text.more(result, values["gene"], pages),
        }

    def python(self, values: Values) -> str:
        """Return the program."""
        sequence = self._sequence(values)
        return (
            "import carbon\nfrom carbon.genome import translate\n"
            "from carbon.inference import kmer_index\n"
            "from carbon.tokenizer import KMER_DIGITS, encode_kmers\n\n"
            f"sequence = {sequence!r}\n"
            "print(carbon.reverse_complement(sequence))\n"
            "print(translate(sequence[: len(sequence) // 3 * 3]))\n"
            f"for offset in (0, {values['offset']}):\n"
            "    print(encode_kmers(sequence[offset:]).indices.tolist())\n\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            "token = model.next_token(sequence[:-6])\n"
            "print(token.ranked()[0])\n"
            "print(token.marginals.tolist())  # six places, bases in the order ATCG\n"
            "true = kmer_index(sequence[-6:])\n"
            "print(token.cross_entropy_nats[true], token.fns_nats[true])\n"
            "best = token.probabilities.argmax()\n"
            "wrong = (KMER_DIGITS != KMER_DIGITS[best]).sum(axis=1)\n"
            "for n in range(7):\n"
            "    these = wrong == n\n"
            "    print(n, token.cross_entropy_nats[these].mean(), token.fns_nats[these].mean())\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command line for the values of the last two figures."""
        prompt = self._sequence(values)[:-K]
        return [["carbon", "next", "--model", self.lab.model_name, "--prompt", prompt]]

    def _sequence(self, values: Values) -> str:
        own: str = values["sequence"]
        return own or first_of(self.lab.genome, values["gene"]).bases


def _gene_figure(genome: Genome, place: str, spans: Sequence[Span]) -> Figure:
    """Return the gene: a line with its exons, the CDS thicker, and the followed sequence marked."""
    gene = gene_at(genome, place, MOST_GENE_BP)
    interval = gene.interval if gene else genome.place(place, 0, MOST_GENE_BP)
    traces = gene_traces([gene] if gene else [], interval, "y")
    if spans:
        marked = bars(spans, 0, 14, "the bases that travel", "y", ORANGE)
        traces.append(marked | {"showlegend": True})
    return figure(
        traces,
        height=150,
        xaxis={"title": {"text": f"position on {plain(interval.contig)}"}, "tickformat": ",d",
               "nticks": 4, "range": [interval.start + 0.5, interval.end + 0.5],
               "tickangle": 0, "fixedrange": True},
        yaxis=gene_axis((0, 1), 1),
        showlegend=True,
    )  # fmt: skip


def _usage_figure(codons: Mapping[str, int]) -> Figure:
    """Return a bar chart of codon counts, with the codons of an amino acid side by side."""
    known = sorted((translate(codon), codon) for codon in codons if not set(codon) - set(BASES))
    aminos = ["stop" if amino == "*" else amino for amino, _ in known]
    shades = {amino: n % 2 for n, amino in enumerate(sorted({amino for amino, _ in known}))}
    return figure(
        [{"type": "bar", "x": [aminos, [codon for _, codon in known]],
          "y": [codons[codon] for _, codon in known],
          "marker": {"color": [(BLUE, ORANGE)[shades[amino]] for amino, _ in known]},
          "hovertemplate": "%{x}: %{y}<extra></extra>"}],
        height=300,
        xaxis={"fixedrange": True, "tickangle": -90, "tickfont": {"size": 10},
               "title": {"text": "codon, and amino acid"}},
        yaxis={"title": {"text": "times"}, "fixedrange": True},
    )  # fmt: skip


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
