"""Start: how the model learned a gene, one field that leads on, and the primer in four figures."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from carbon.genome import translate
from carbon.genome.genes import Gene
from carbon.inference.next_token import NextToken
from carbon.pretrained import BUNDLED_MODELS
from carbon.tokenizer import BASES, K, encode_kmers
from demo.coding import described
from demo.fields import INPUT, Field, Values, input_field, input_link, link_to
from demo.figures import (
    BASE_COLORS,
    ORANGE,
    Figure,
    bars,
    figure,
    gene_axis,
    gene_traces,
    position_axis,
)
from demo.lab import Lab
from demo.learning_curves import learning_figure
from demo.markup import link_chip, paragraph, part
from demo.panel import Panel, Progress, Result, View
from demo.pieces import EmbeddingMap, embedding_map, map_figure
from demo.preview import Card

_PRIMER_BP, _SHIFT_BP = 66, 2
_CUTS = (
    "codons, with their amino acids",
    "6-mers, with their numbers",
    "6-mers from the third letter on",
)
_NEAR_COPIES = {"ENO2": "ENO1"}
_CAPTION = (
    '<p class="caption"><button class="chip" data-replay>▶ Replay</button> Height: how much of '
    "each letter the model can predict, from its neighbours on both sides.</p>"
)
_DOES_NOT_KNOW = (
    "The model does not know what a protein does, or what makes anyone ill. It only knows which "
    "DNA looks usual, and it can be wrong about that too."
)


class Start(Panel):
    """The first page."""

    heading = "What a model learns from DNA alone"
    run_label = "Go"
    hero = ("learning", "caption")
    views: ClassVar[tuple[View, ...]] = (
        View("learning", "figure", "What the model can predict of each letter around a gene"),
        View("caption"),
        View("honest"),
        View("splicing"),
        View("gene", "figure", "A gene with its exons and introns"),
        View("tokens"),
        View("guess"),
        View("marginals", "figure", "Probability of each base of the next 6-mer"),
        View("alike"),
        View("map", "figure", "Map of pieces of the genome"),
    )

    def __init__(self, lab: Lab) -> None:
        self.sentence = _sentence(lab)
        super().__init__(lab)

    def make_fields(self) -> tuple[Field, ...]:
        """Return the one input, which leads to another page."""
        entry = self.lab.held_out_of
        gene = f"A {entry.name} gene" if entry else "A gene"
        *first, last = self.lab.example.spellings()
        such_as = f"such as {', '.join(first)} or {last}; or paste FASTA or GenBank"
        return (input_field("", f"{gene}, a mutation, or your own DNA", such_as),)

    def example_links(self) -> str:
        """Return one link to each kind of page, in place of examples of this page."""
        gene = self.lab.example.name
        watch = '<button class="chip" data-replay>Watch it learn</button>'
        return (
            link_chip(input_link("/variant", gene), "Break a gene")
            + (watch if self.lab.learned else "")
            + link_chip(input_link("/write", gene), "Let it write")
        )

    @property
    def path(self) -> str:
        """Path of the first page."""
        return "/"

    def link(self, values: Mapping[str, Any]) -> str:
        """Return the address of the page that answers the input."""
        if not values.get(INPUT):
            return super().link(values)
        kind = self.lab.detect(values[INPUT]).kind
        return link_to("/variant" if kind == "variant" else "/gene", self.fields, values)

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the numbers of the primer; nothing if the input leads elsewhere.

        Raises:
            UserError: the input is none of the accepted kinds.
        """
        if values[INPUT]:
            self.lab.detect(values[INPUT])
            yield {}
            return
        yield Progress(0, 2, "figures")
        token = self._token
        yield Progress(1, 2, "figures")
        yield {
            "sequence": self._sequence,
            "next_kmer": self._sequence[-K:],
            "best_kmer": token.ranked()[0][0],
            "marginals": token.marginals.tolist(),
            "kinds": self._map.kinds if self._map else [],
        }

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the learning figure, and the primer's figures with their texts."""
        if not result:
            return {}
        cut, lab, bases = self._cut_gene, self.lab, result["sequence"]
        return {
            "learning": learning_figure(lab.learned, lab.genome, lab.example.name)
                        if lab.learned else None,
            "caption": _CAPTION if lab.learned else "",
            "honest": paragraph(_DOES_NOT_KNOW, "honest"),
            "splicing": _primer("splicing", cut and described(lab.genome.reference, cut)),
            "gene": _gene_figure(cut) if cut else None,
            "tokens": _primer("tokens", _cuts(self._sequence[: _PRIMER_BP // 2 // K * K])),
            "guess": _primer("guess", result["best_kmer"], len(bases) - K, bases[-K:]),
            "marginals": _marginals_figure(result["marginals"], result["next_kmer"]),
            "alike": _primer("alike"),
            "map": map_figure(self._map),
        }  # fmt: skip

    def code(self, values: Values) -> Mapping[str, Any]:
        return {"prompt": self._sequence[:-K]}

    def card(self, values: Values, result: Result) -> Card:
        """Return the preview of the learning figure."""
        learned = self.lab.learned
        heights = learned.smoothed_bits()[-1] if learned else ()
        return Card(self.heading, self.sentence, tuple(map(float, heights)))

    @cached_property
    def _sequence(self) -> str:
        return self.lab.example.bases(_PRIMER_BP)

    @cached_property
    def _token(self) -> NextToken:
        return self.lab.model.next_token(self._sequence[:-K])

    @cached_property
    def _map(self) -> EmbeddingMap | None:
        return embedding_map(self.lab)

    @cached_property
    def _cut_gene(self) -> Gene | None:
        """The first well-known gene with an intron, or else the first gene with one."""
        annotation = self.lab.genome.annotation
        genes = [g for g in annotation.genes if g.transcripts] if annotation else []
        cut = [gene for gene in genes if gene.transcripts[0].introns]
        known = [gene for gene in cut if gene.name in self.lab.known_genes]
        return next(iter(known + cut), None)


def _sentence(lab: Lab) -> str:
    """Return what the model has read, and what was held out."""
    about, entry = lab.about, BUNDLED_MODELS.get(lab.model_name)
    if about is None:
        return "A DNA language model, and what it makes of a genome."
    count = about.num_parameters
    size = f"{count / 1e6:.1f} million" if count >= 1e6 else f"{count:,}"
    size = f"A model with {size} parameters"
    if entry is None:
        return f"{size}, trained on {about.trained_on or 'DNA that was not recorded'}."
    text = f"{size} read {entry.name} DNA for {60 * entry.hours:.0f} minutes."
    if lab.held_out_of != entry:
        return text
    gene = lab.example.name
    copy = f"; a near copy of the gene, {_NEAR_COPIES[gene]}, was not" * (gene in _NEAR_COPIES)
    return f"{text} Chromosome {entry.held_out_contig}, where this gene lies, was held out{copy}."


def _primer(section: str, *arguments: Any) -> str:
    return part(section, *arguments, file="primer.html")


def _cuts(bases: str) -> list[tuple[str, list[tuple[str, object]]]]:
    """Return bases as codons and as 6-mers from two places on, with what each piece stands for."""
    codons, *kmers = (
        [bases[at : at + length_bp] for at in range(first, len(bases) - length_bp + 1, length_bp)]
        for first, length_bp in ((0, 3), (0, K), (_SHIFT_BP, K))
    )
    numbers = [[int(encode_kmers(kmer).indices[0]) for kmer in each] for each in kmers]
    below: list[Sequence[object]] = [translate("".join(codons)), *numbers]
    return [
        (label, list(zip(pieces, under, strict=True)))
        for label, pieces, under in zip(_CUTS, (codons, *kmers), below, strict=True)
    ]


def _gene_figure(gene: Gene) -> Figure:
    """Return the exons of a gene, and its introns marked."""
    place, introns = gene.interval, gene.transcripts[0].introns
    marked = bars(introns, 0, 4, "intron, which is cut out", "y", ORANGE) | {"showlegend": True}
    return figure(
        [*gene_traces([gene], place, "y"), marked],
        height=150,
        xaxis=position_axis(place, fixedrange=True),
        yaxis=gene_axis((0, 1), 1),
        showlegend=True,
    )  # fmt: skip


def _marginals_figure(marginals: list[list[float]], true: str) -> Figure:
    """Return bars of the probability of each base at six places, with the true base below."""
    places = [f"{n}<br>{base}" for n, base in enumerate(true, start=1)]
    shares = np.array(marginals)
    traces = [
        {"type": "bar", "name": base, "x": places, "marker": {"color": color},
         "y": shares[:, BASES.index(base)].round(4).tolist(),
         "hovertemplate": f"{base}: %{{y:.1%}}<extra></extra>"}
        for base, color in BASE_COLORS.items()
    ]  # fmt: skip
    return figure(
        traces,
        height=300,
        barmode="group",
        showlegend=True,
        xaxis={"title": {"text": "place, and the true base"}, "fixedrange": True,
               "tickangle": 0, "type": "category"},
        yaxis={"title": {"text": "probability"}, "range": [0, 1], "fixedrange": True,
               "tickformat": ".0%"},
    )  # fmt: skip
