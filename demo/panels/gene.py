"""Gene: what the model can predict along a gene, base by base."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Interval
from carbon.genome.genome import Genome
from carbon.genome.interval import from_region
from carbon.inference.options import STRANDS_READ
from demo.arrays import smoothed
from demo.fields import Field, Values, genome_field, input_field, input_link
from demo.gene_measures import DOWNSTREAM_BP, MAP_PHASES, MEASURES, WINDOW_BP
from demo.gene_views import map_figure, track_figure
from demo.inputs import Detected, gene_named
from demo.lab import Lab
from demo.lru_cache import LruCache
from demo.markup import download, facts, link_chip, paragraph, shortened, tsv
from demo.open_frames import open_frames
from demo.panel import Example, Panel, Pick, Progress, Result, View
from demo.preview import Card
from demo.trna import about_pairs, pairs_in, stem_pairs
from demo.uploads import pasted_link, shown_reference

TRACK, CONSTRAINT, MAP = MEASURES
_MOST_BP = MEASURES[TRACK].most_bp
_AROUND_VARIANT_BP = 300
_CLEAREST_TRNA = "tQ(UUG)H"  # of yeast chromosome VIII, by the rank of its T stem
_MOST_LISTED, _MOST_KNOWN, _LEAST_CODONS, _CARD_BARS = 200, 5, 60, 120
_CACHED = 8  # answers, each of a few MiB
_PHASES = tuple("012345")


class Gene(Panel):
    """Page that shows a gene or region as the model reads it."""

    heading = "Read a gene"
    sentence = "What the model can predict along a gene, base by base."
    run_label = "Read"
    views: ClassVar[tuple[View, ...]] = (
        View("caption"),
        View("track", "figure", "Bits of every base, with exons below"),
        View("map", "figure", "Dependencies between pairs of bases"),
        View("facts"),
        View("genes"),
        View("saved"),
    )

    def __init__(self, lab: Lab) -> None:
        self._answers: LruCache[Result] = LruCache(_CACHED)
        super().__init__(lab)

    def make_fields(self) -> tuple[Field, ...]:
        return (
            input_field(self.lab.example.name),
            Field("view", "Show", TRACK, "choice", tuple(MEASURES), asks=True),
            Field("gene", "Gene of pasted GenBank", "", more=True, info="the first, if empty"),
            Field("start_bp", "First base in view", 0, "integer", most=_MOST_BP, more=True,
                  info="counted from the start of the region"),
            Field("width_bp", "Bases in view", 0, "integer", most=_MOST_BP, more=True,
                  info="0 for all"),
            Field("strand", "Strands", "both", "choice", tuple(STRANDS_READ), more=True,
                  info="both: the mean of both directions"),
            Field("phases", "Phases", list(_PHASES), "choices", _PHASES, more=True,
                  info="where 6-mers begin; predictability is their mean"),
            genome_field(),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return well-known genes, and the other views."""
        gene, genome, known = self.lab.example.name, self.lab.genome, self.lab.known_genes
        genes = genome.annotation.genes if genome.annotation else ()
        folded = [each.name for each in genes if stem_pairs(genome.reference, each)]
        folded.sort(key=lambda name: name != _CLEAREST_TRNA)
        return (
            *(Example(name, {"input": name}, known[name]) for name in [*known][1:_MOST_KNOWN]),
            Example("Letters", {"input": gene, "start_bp": 80, "width_bp": 60}),
            Example("Constraint", {"input": gene, "view": CONSTRAINT}),
            *(Example(f"Base pairs of {name}", {"input": name, "view": MAP})
              for name in folded[:1]),
        )  # fmt: skip

    def picks(self) -> tuple[Pick, ...]:
        """Return the zoom of the track, which the link stores."""
        return (Pick("track", self._zoomed, asks=False),)

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield progress, and the values of every base or pair of bases."""
        detected = self._detected(values)
        place, measure = _computed(detected, values), MEASURES[values["view"]]
        reference, options = detected.genome.reference, self._options(values)
        # Filled by the last item: an answer that was stopped is computed again.
        answer = self._answers.get((reference, place, values["view"], repr(options)), Result)
        if not answer:
            for item in measure.compute(self.lab.model, reference, place, options):
                if isinstance(item, Progress):
                    yield item
                else:
                    answer.update(item)
        yield {"region": place.to_region()} | answer

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the figure of the view, with its caption and numbers."""
        detected, measure = self._detected(values), MEASURES[values["view"]]
        genome = detected.genome
        place = from_region(result["region"], genome.reference.contig_lengths_bp)
        shown: dict[str, Any] = {
            "caption": paragraph(measure.caption + _part_shown(values, place)),
            "track": None,
            "map": None,
            "genes": self._listed(detected, values),
            "saved": _saved(values, detected, place, result),
        }
        numbers = [("region", result["region"]), *self._description(detected)]
        if values["view"] == MAP:
            cells, pairs = np.array(result["dependency"], dtype=float), pairs_in(genome, place)
            shown["map"] = map_figure(place, cells, pairs)
            shown["caption"] += about_pairs(place, cells, pairs)
        else:
            marked = [detected.variant.position] if detected.variant else []
            view = _overlap(_in_view(_place(detected, values), values), place)
            shown["track"] = track_figure(
                genome, place, view, result, measure.axis, marked,
                turns_into_letters=values["view"] == TRACK,
            )  # fmt: skip
            numbers += _means(genome, place, np.array(result["bits"], dtype=float))
        return shown | {"facts": facts(numbers)}

    def questions(self, values: Values, result: Result) -> Sequence[tuple[str, str]]:
        """Return links that take this input to other pages; uploads do not go along."""
        if values["genome"]:
            return ()
        text = values["input"]
        return (
            ("Change a base", input_link("/variant", text)),
            ("Let the model continue it", input_link("/write", text)),
            ("Look inside one prediction", input_link("/inside", text)),
        )

    def card(self, values: Values, result: Result) -> Card:
        """Return the preview of this state, with the track as its picture."""
        measure = MEASURES[values["view"]]
        title = f"{shortened(self._detected(values).text)}: {values['view']}"
        if values["view"] == MAP:
            return Card(title, measure.caption)
        heights = np.nan_to_num(smoothed(np.array(result["bits"], dtype=float)))
        bars = np.array_split(heights, min(_CARD_BARS, len(heights)))
        return Card(title, measure.caption, tuple(float(bar.mean()) for bar in bars))

    def code(self, values: Values) -> Mapping[str, Any]:
        detected = self._detected(values)
        return {
            **shown_reference(detected.genome),
            "place": _computed(detected, values),
            "is_map": values["view"] == MAP,
            "options": self._options(values),
        }

    def _options(self, values: Values) -> dict[str, Any]:
        """Return the options of the scan or the map."""
        strands, phases = values["strand"], [int(phase) for phase in values["phases"]] or [0]
        fitting_bp = self.lab.model.scan_method(sides="both", downstream_bp=DOWNSTREAM_BP).window_bp
        window_bp = min(WINDOW_BP, fitting_bp)
        return {
            TRACK: {"offsets": phases, "strands": strands},
            CONSTRAINT: {"sides": "both", "window_bp": window_bp, "downstream_bp": DOWNSTREAM_BP,
                         "strands": strands},
            MAP: {"window_bp": window_bp, "offsets": list(MAP_PHASES)},
        }[values["view"]]  # fmt: skip

    def _detected(self, values: Values) -> Detected:
        detected = self.lab.detect(values["input"], values["genome"])
        if detected.kind != "genbank" or not values["gene"]:
            return detected
        return replace(detected, gene=gene_named(detected.genome, values["gene"]))

    def _zoomed(self, picked: Any, values: Values) -> Values:
        place = _place(self._detected(values), values)
        left, right = picked["range"]
        if left is None:
            return {"start_bp": 0, "width_bp": 0}
        start_bp = min(max(0, round(left - 0.5) - place.start), place.length_bp - 1)
        most_bp = place.length_bp - start_bp
        return {"start_bp": start_bp, "width_bp": min(max(1, round(right - left)), most_bp)}

    def _description(self, detected: Detected) -> list[tuple[str, str]]:
        """Return what is known of a gene of the genome that the demo opened."""
        name = detected.gene.name if detected.gene and detected.genome is self.lab.genome else ""
        known = self.lab.known_genes
        return [(name, known[name])] if name in known else []

    def _listed(self, detected: Detected, values: Values) -> str:
        """Return links to the genes of a visitor's genome, or to its open reading frames."""
        if detected.genome is self.lab.genome:
            return ""
        if genes := detected.genome.annotation.genes if detected.genome.annotation else ():
            names = dict.fromkeys(gene.name for gene in genes[:_MOST_LISTED])
            field = "gene" if detected.kind == "genbank" else "input"
            links = [(name, {field: name, "start_bp": 0, "width_bp": 0}) for name in names]
            head = f"{len(genes):,} genes in your sequence"
        else:
            place = _place(detected, values)
            frames = open_frames(detected.genome.reference.fetch(place), _LEAST_CODONS)
            links = [(f"{place.start + frame.start + 1:,} to {place.start + frame.end:,} "
                      f"{frame.strand}",
                      {"start_bp": frame.start, "width_bp": frame.end - frame.start})
                     for frame in frames]  # fmt: skip
            head = f"No genes are annotated; open reading frames of {_LEAST_CODONS} codons or more"
        chips = (link_chip(self.link(values | changes), text) for text, changes in links)
        return paragraph(f"{head}:") + ("".join(chips) or "none")


def _place(detected: Detected, values: Values) -> Interval:
    """Return the region of an input, or a part of it if it is long.

    A zoom counts from the region of the track, in which visitors zoom, under every view.
    """
    place, flank_bp = detected.interval, 0
    if detected.gene and detected.kind != "region":
        is_zoomed = values["start_bp"] or values["width_bp"]
        flank_bp = MEASURES[TRACK if is_zoomed else values["view"]].flank_bp
        place = detected.gene.interval
    elif detected.variant:
        flank_bp = _AROUND_VARIANT_BP
    contig_bp = detected.genome.reference.contig_lengths_bp[place.contig]
    return _part_of(place.widened(flank_bp, contig_bp), detected, _MOST_BP)


def _part_of(place: Interval, detected: Detected, most_bp: int) -> Interval:
    """Return the part of a region around its variant, or else at the beginning of its gene."""
    length_bp = min(most_bp, place.length_bp)
    last_start = place.end - length_bp
    start = place.start
    if detected.variant and place.overlaps(detected.interval):
        start = min(max(start, detected.variant.position - length_bp // 2), last_start)
    elif detected.gene and detected.gene.strand == "-" and detected.kind != "region":
        start = last_start
    return Interval(place.contig, start, start + length_bp)


def _in_view(place: Interval, values: Values) -> Interval:
    """Return the part of a region that the visitor zoomed to."""
    start = place.start + min(values["start_bp"], place.length_bp - 1)
    width_bp = values["width_bp"] or place.length_bp
    return Interval(place.contig, start, min(start + width_bp, place.end))


def _computed(detected: Detected, values: Values) -> Interval:
    """Return the region to compute: a costly view covers a part of what is in view."""
    place = _place(detected, values)
    if values["view"] == TRACK:
        return place
    return _part_of(_in_view(place, values), detected, MEASURES[values["view"]].most_bp)


def _overlap(one: Interval, other: Interval) -> Interval:
    """Return the shared part of two intervals, or the second if there is none."""
    start, end = max(one.start, other.start), min(one.end, other.end)
    return Interval(other.contig, start, end) if start < end else other


def _part_shown(values: Values, place: Interval) -> str:
    """Return which part a costly view covers, if it is cut."""
    most_bp = MEASURES[values["view"]].most_bp
    if values["view"] == TRACK or place.length_bp < most_bp:
        return ""
    return f" It covers {most_bp} bases; to choose others, zoom in the {TRACK} view."


def _means(genome: Genome, place: Interval, bits: NDArray[Any]) -> list[tuple[str, str]]:
    """Return the mean bits of coding bases and of other bases."""
    coding = np.zeros(place.length_bp, dtype=bool)
    for gene in genome.genes_in(place):
        for start, end in (span for each in gene.transcripts[:1] for span in each.cds):
            coding[max(0, start - place.start) : max(0, end - place.start)] = True
    groups = {"coding bases": bits[coding], "other bases": bits[~coding]}
    known = {name: group[~np.isnan(group)] for name, group in groups.items()}
    return [(f"{name}, mean", f"{group.mean():.3f} bits")
            for name, group in known.items() if len(group)]  # fmt: skip


def _saved(values: Values, detected: Detected, place: Interval, result: Result) -> str:
    """Return downloads of the values, and of the pasted sequence that the code reads."""
    positions = range(place.start + 1, place.end + 1)
    if values["view"] == MAP:
        cells = zip(positions, result["dependency"], strict=True)
        names = ("position", *map(str, positions))
        saved = download("map.tsv", tsv(names, ([at, *row] for at, row in cells)))
    else:
        rows = zip(positions, result["bases"], result["bits"], strict=True)
        saved = download("bits.tsv", tsv(("position", "base", "bits"), rows))
    return saved + pasted_link(detected.genome, values["input"])
