"""Scan a gene: the probability of each base, given the bases before it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from carbon.genome import Interval
from carbon.genome.genome import Genome
from carbon.inference import ScanChunk, ScanKeywords, join_chunks
from carbon.inference.options import STRANDS_READ
from carbon.tokenizer import K
from demo import figures as f
from demo.central_dogma import residues
from demo.fields import Field, Values
from demo.gene_examples import example_gene
from demo.logo import letter_heights, logo_polygons
from demo.markup import download, facts, link_chip, paragraph, tsv
from demo.neighbouring_snvs import scan_values
from demo.panel import Command, Example, Panel, Pick, Progress, Result, View
from demo.uploads import GENOME_ENDINGS, pasted_file, shown_reference

_FLANK_BP = 100
_MOST_BP = 6000
_MOST_GRID_LINES = 400
_MOST_LETTERS_BP, _MOST_POINTS = 150, 600  # in view: bases as letters, and bins of an area
_LEAST_TOP_BITS = 0.5
_MOST_PASTED, _MOST_LISTED = 20_000, 200
_OFFSETS = tuple("012345")


class Read(Panel):
    """Page that scans a gene or region."""

    title = "Read a sequence"
    sentence = (
        "How likely the model finds every base of a gene, given all bases before it, with the "
        "gene's exons below."
    )
    run_label = "Read"
    views: ClassVar[tuple[View, ...]] = (
        View("track", "figure", "Probability of every base, with exons below"),
        View("facts", "html", "The region in numbers"),
        View("tsv", "html", "Download"),
    )

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        return (
            Field("place", "Gene or region", self.lab.example.name, asks=True,
                  choices=self.lab.genome.gene_names,
                  info="a gene's name, or contig:first-last; drag in the track to zoom, double-"
                  "click to see all"),
            Field("start_bp", "From base of it", 0, "integer", most=_MOST_BP,
                  info="pan and zoom without a mouse"),
            Field("width_bp", "Bases in sight", 0, "integer", most=_MOST_BP, info="0 for all"),
            Field("offsets", "Offsets", ["0"], "choices", _OFFSETS,
                  info="where 6-mers begin; the mean over several is drawn"),
            Field("strand", "Strand that is read", "forward", "choice",
                  tuple(STRANDS_READ)),
            Field("grid", "Token grid", False, "switch"),
            Field("genome", "Your own genome", [], "files", GENOME_ENDINGS, more=True,
                  info="one GenBank file, or FASTA and annotation; its genes are listed"),
            Field("pasted", "Or paste one", "", "lines", most=_MOST_PASTED, more=True,
                  info="bases, FASTA or GenBank"),
        )  # fmt: skip

    def picks(self) -> tuple[Pick, ...]:
        """Return the zoom of the track, which the link stores."""
        return (Pick("track", self._in_sight, asks=False),)

    def _in_sight(self, picked: Any, values: Values) -> Values:
        _, interval = self._where(values)
        left, right = picked["range"]
        if left is None:
            return {"start_bp": 0, "width_bp": 0}
        start_bp = min(max(0, round(left - 0.5) - interval.start), interval.length_bp - 1)
        most_bp = interval.length_bp - start_bp
        return {"start_bp": start_bp, "width_bp": min(max(1, round(right - left)), most_bp)}

    def _where(self, values: Values) -> tuple[Genome, Interval]:
        """Return genome and place; another genome has another example than the demo's."""
        genome = self.lab.genome_of(values["genome"], values["pasted"])
        place = values["place"]
        if genome is not self.lab.genome and place == self.lab.example.name:
            place = example_gene(genome)
        return genome, genome.place(place, _FLANK_BP, _MOST_BP)

    def examples(self) -> tuple[Example, ...]:
        """Return further examples."""
        gene = self.lab.example.name
        known = self.lab.known_genes.items()
        return (
            *(Example(name, {"place": name}, sentence) for name, sentence in known),
            Example("All six offsets", {"place": gene, "offsets": list(_OFFSETS)}),
            Example("Both strands", {"place": gene, "strand": "both"}),
            Example("Tokens of 120 bases", {"place": gene, "grid": True, "start_bp": 150,
                                            "width_bp": 120}),
        )  # fmt: skip

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the scan's log-probabilities."""
        genome, interval = self._where(values)
        chunks: list[ScanChunk] = []
        done_bp = 0
        for chunk in self.lab.model.scan(genome.reference, interval, **_options(values)):
            chunks.append(chunk)
            done_bp += chunk.interval.length_bp
            yield Progress(done_bp, interval.length_bp, "bases")
        yield scan_values(join_chunks(chunks))

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return track, facts and download."""
        genome, interval = self._where(values)
        known = [v for v in result["log_p_ref"] if v is not None]
        above = sum(v > np.log(0.5) for v in known)
        rows = zip(f.positions(interval), result["bases"], result["log_p_ref"], strict=True)
        saved = download("bases.tsv", tsv(("position", "base", "log_p"), rows))
        if values["pasted"]:
            saved += download(*pasted_file(values["pasted"]))
        return {
            "track": _track(genome, interval, values, result),
            "facts": facts([
                ("region", result["region"]),
                *((f"why {name}", sentence) for name, sentence in self._sentence(values)),
                ("nats per base", f"{result['nats_per_base']:.4f}" if known else "-"),
                ("bases above 1/2", f"{100 * above / len(known):.1f} %" if known else "-"),
                ("a fair die has", "1.3863"),
            ]),
            "tsv": saved + self._listed(genome),
        }  # fmt: skip

    def _sentence(self, values: Values) -> list[tuple[str, str]]:
        """Return the chosen gene and why it is well known, if the demo has a sentence on it."""
        name, known = values["place"], self.lab.known_genes
        return [(name, known[name])] if name in known and not values["genome"] else []

    def _listed(self, genome: Genome) -> str:
        """Return links to the genes of a visitor's genome."""
        if genome is self.lab.genome or not genome.annotation:
            return ""
        genes = genome.annotation.genes
        some = f"The first {_MOST_LISTED} of its {len(genes):,}" if genes[_MOST_LISTED:] else "Its"
        names = dict.fromkeys(gene.name for gene in genes[:_MOST_LISTED])
        links = (link_chip(self.link({"place": name}), name) for name in names)
        return paragraph(f"{some} genes:") + "".join(links)

    def python(self, values: Values) -> str:
        """Return the program."""
        genome, region = self._where(values)
        options = ", ".join(f"{k}={v!r}" for k, v in _options(values).items())
        reference, before, _ = shown_reference(genome)
        return (
            f"{before}import carbon\nfrom carbon.inference import join_chunks\n\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            f"with carbon.Reference({reference!r}) as genome:\n"
            f"    place = carbon.Interval({region.contig!r}, {region.start}, {region.end})\n"
            f"    scanned = join_chunks(model.scan(genome, place, {options}))\n"
            "for base, log_p in zip(scanned.bases, scanned.log_p_ref):\n"
            "    print(base, log_p)\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command line."""
        genome, region = self._where(values)
        reference, _, before = shown_reference(genome)
        words = ["carbon", "scan", "--model", self.lab.model_name,
                 "--reference", reference, "--region", region.to_region(),
                 "--offsets", ",".join(map(str, _offsets(values))),
                 "--strands", values["strand"], "--output", "scan.tsv"]  # fmt: skip
        return [*before, words]


def _options(values: Values) -> ScanKeywords:
    return {"offsets": _offsets(values), "strands": values["strand"]}


def _offsets(values: Values) -> list[int]:
    return [int(offset) for offset in values["offsets"]] or [0]


def _track(genome: Genome, interval: Interval, values: Values, result: Result) -> f.Figure:
    """Return an area of probabilities, or letters if few bases are in view, above the exons."""
    first = interval.start + 1 + min(values["start_bp"], interval.length_bp - 1)
    last = min(first + values["width_bp"] - 1, interval.end) if values["width_bp"] else interval.end
    is_near = last - first < _MOST_LETTERS_BP
    traces, axis = (_letters if is_near else _area)(genome, interval, first, last, result)
    genes = genome.genes_in(interval)
    traces += f.gene_traces(genes, interval, "y2")
    return f.figure(
        traces,
        height=420,
        meta={"follows": True},
        xaxis={"title": {"text": f"position on {f.plain(interval.contig)}"}, "tickformat": ",d",
               "range": [first - 0.5, last + 0.5], "anchor": "y2"},
        yaxis={"domain": [0.3, 1], "fixedrange": True, **axis},
        yaxis2=f.gene_axis((0, 0.22), len(genes)),
        shapes=_grid(first, last, values),
    )  # fmt: skip


def _area(
    genome: Genome, interval: Interval, first: int, last: int, result: Result
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the mean probability of the bases of each bin."""
    bin_bp = -(-(last - first + 1) // _MOST_POINTS)
    p = np.exp(np.array(result["log_p_ref"], dtype=float))  # None is NaN
    starts = range(0, interval.length_bp, bin_bp)
    bins = [known[~np.isnan(known)] for known in (p[at : at + bin_bp] for at in starts)]
    step = f"mean of {bin_bp} bases" if bin_bp > 1 else "of each base"
    trace = {
        "type": "scatter", "mode": "lines", "name": f"probability, {step}", "fill": "tozeroy",
        "x": [interval.start + 1 + at + (bin_bp - 1) / 2 for at in starts],
        "y": [float(known.mean()) if len(known) else None for known in bins],
        "line": {"color": f.BLUE, "width": 1, "shape": "hvh"}, "showlegend": True,
    }  # fmt: skip
    return [trace], {"range": [0, 1], "title": {"text": "p(base | before)"}}


def _letters(
    genome: Genome, interval: Interval, first: int, last: int, result: Result
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Return the logo of the bases in view and next to it, the bases, and amino acids."""
    width_bp = last - first + 1
    start, end = max(interval.start, first - 1 - width_bp), min(interval.end, last + width_bp)
    there = slice(start - interval.start, end - interval.start)
    places, bases = list(range(start + 1, end + 1)), result["bases"][there].upper()
    p = np.exp(np.array(result["log_probabilities"], dtype=float)[there])
    heights = letter_heights(p)
    logo = logo_polygons(heights, "ACGT", start + 1)
    top = max(_LEAST_TOP_BITS, 1.1 * float(heights.sum(axis=1).max()))
    traces: list[dict[str, Any]] = [
        {"type": "scatter", "mode": "lines", "fill": "toself", "name": base, "x": x, "y": y,
         "fillcolor": f.BASE_COLORS[base], "line": {"width": 0}, "hoverinfo": "skip"}
        for base, (x, y) in logo.items()
    ]  # fmt: skip
    told = ["-" if v is None else f"{np.exp(v):.3f}" for v in result["log_p_ref"][there]]
    traces.append(_texts("the bases", places, -0.08 * top, bases, told, 8))
    found = [
        (residue.places[1] + 1, residue.amino_acid, f"{f.plain(gene.name)} {residue.number}")
        for gene in genome.genes_in(interval) for transcript in gene.transcripts[:1]
        for residue in residues(genome.reference, transcript)
        if start <= residue.places[1] < end
    ]  # fmt: skip
    if found:
        x, letters, numbers = zip(*found, strict=True)
        traces.append(_texts("amino acids", list(x), -0.2 * top, letters, numbers, 8 / 3))
    title = {"text": "bits, of 2"}
    return traces, {"range": [-0.28 * top, top], "title": title}


def _texts(
    name: str,
    places: list[int],
    y: float,
    letters: Sequence[str],
    told: Sequence[str],
    least_pixels: float,
) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "text", "name": name, "x": places, "y": [y] * len(places),
        "text": list(letters), "hovertext": list(told), "showlegend": False,
        "hovertemplate": "%{x:,d} %{text}: %{hovertext}<extra></extra>",
        "textfont": {"family": "ui-monospace, monospace"},
        "meta": {"least_pixels_per_base": least_pixels},
    }  # fmt: skip


def _grid(first: int, last: int, values: Values) -> list[dict[str, Any]]:
    """Return a line at the start of each token of the first offset, unless there are too many."""
    if not values["grid"] or values["strand"] == "reverse":
        return []
    offset = _offsets(values)[0]
    starts = range(first - 1 + (offset - first + 1) % K, last, K)
    if len(starts) > _MOST_GRID_LINES:
        return []
    return [
        {"type": "line", "x0": s + 0.5, "x1": s + 0.5, "y0": 0, "y1": 1, "yref": "y",
         "line": {"color": f.BLUE, "width": 1, "dash": "dot"}}
        for s in starts
    ]  # fmt: skip
