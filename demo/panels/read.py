"""Read a sequence: how likely the model finds each base of a gene."""

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from carbon.genome import Interval
from carbon.inference import ScanChunk, ScanOptions, join_chunks
from carbon.options import STRANDS_READ
from carbon.tokenizer import K
from demo.fields import Field, Values
from demo.figures import (
    BASE_COLORS,
    BLUE,
    GREY,
    Figure,
    figure,
    gene_axis,
    gene_traces,
    plain,
    positions,
)
from demo.lab import GENOME_ENDINGS, Genome
from demo.markup import download, facts
from demo.panel import Example, Panel, Progress, Result, View

_FLANK_BP = 100
_MOST_BP = 6000
_MOST_GRID_LINES = 400
_FRAMES = tuple("012345")


class Read(Panel):
    """Scans a gene or region."""

    name = "read"
    title = "Read a sequence"
    invitation = "See what it expects along a gene"
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
            Field("place", "Gene or region", self.lab.example_gene,
                  info="a gene's name, or contig:first-last; drag in the track to zoom, double-"
                  "click to see all"),
            Field("start_bp", "From base of it", 0, "integer", most=_MOST_BP,
                  info="pan and zoom without a mouse"),
            Field("width_bp", "Bases in sight", 0, "integer", most=_MOST_BP, info="0 for all"),
            Field("frames", "Frames", ["0"], "choices", _FRAMES,
                  info="where 6-mers begin; the mean over several is drawn"),
            Field("strand", "Strand that is read", "forward", "choice",
                  tuple(STRANDS_READ)),
            Field("grid", "Token grid", False, "switch"),
            Field("genome", "Your own genome", [], "files", GENOME_ENDINGS, more=True,
                  info="one GenBank file, or FASTA and annotation"),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return more of them."""
        gene = self.lab.example_gene
        known = self.lab.known_genes.items()
        return (
            *(Example(name, {"place": name}, sentence) for name, sentence in known),
            Example("All six frames", {"place": gene, "frames": list(_FRAMES)}),
            Example("Both strands", {"place": gene, "strand": "both"}),
            Example("Tokens of 120 bases", {"place": gene, "grid": True, "start_bp": 150,
                                            "width_bp": 120}),
        )  # fmt: skip

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the scan's log-probabilities."""
        genome = self.lab.genome_of(values["genome"])
        interval = genome.place(values["place"], _FLANK_BP, _MOST_BP)
        chunks: list[ScanChunk] = []
        done_bp = 0
        for chunk in self.lab.model.scan(genome.reference, interval, **_options(values)):
            chunks.append(chunk)
            done_bp += chunk.interval.length_bp
            yield Progress(done_bp, interval.length_bp, "bases")
        scanned = join_chunks(chunks)
        known = scanned.log_p_ref[~np.isnan(scanned.log_p_ref)]
        yield {
            "region": interval.to_region(),
            "bases": scanned.bases,
            "log_p_ref": [None if np.isnan(v) else float(v) for v in scanned.log_p_ref],
            "log_probabilities": scanned.log_probabilities.tolist(),
            "entropy_nats": scanned.entropy_nats.tolist(),
            "nats_per_base": float(-known.mean()) if len(known) else None,
        }

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return track, facts and download."""
        genome = self.lab.genome_of(values["genome"])
        interval = genome.place(result["region"], 0, _MOST_BP)
        known = [v for v in result["log_p_ref"] if v is not None]
        above = sum(v > np.log(0.5) for v in known)
        rows = zip(positions(interval), result["bases"], result["log_p_ref"], strict=True)
        tsv = "position\tbase\tlog_p\n" + "".join(f"{p}\t{b}\t{v}\n" for p, b, v in rows)
        return {
            "track": _track(genome, interval, values, result),
            "facts": facts([
                ("region", result["region"]),
                *((f"why {name}", sentence) for name, sentence in self._sentence(values)),
                ("nats per base", f"{result['nats_per_base']:.4f}" if known else "-"),
                ("bases above 1/2", f"{100 * above / len(known):.1f} %" if known else "-"),
                ("a fair die has", "1.3863"),
            ]),
            "tsv": download("bases.tsv", tsv),
        }  # fmt: skip

    def _sentence(self, values: Values) -> list[tuple[str, str]]:
        """Return the gene that was asked for and why people know it, if they do."""
        name, known = values["place"], self.lab.known_genes
        return [(name, known[name])] if name in known and not values["genome"] else []

    def python(self, values: Values) -> str:
        """Return the program."""
        genome = self.lab.genome_of(values["genome"])
        region = genome.place(values["place"], _FLANK_BP, _MOST_BP)
        options = ", ".join(f"{k}={v!r}" for k, v in _options(values).items())
        return (
            "import carbon\nfrom carbon.inference import join_chunks\n\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            f"with carbon.Reference({genome.shown_files[0]!r}) as genome:\n"
            f"    place = carbon.Interval({region.contig!r}, {region.start}, {region.end})\n"
            f"    scanned = join_chunks(model.scan(genome, place, {options}))\n"
            "for base, log_p in zip(scanned.bases, scanned.log_p_ref):\n"
            "    print(base, log_p)\n"
        )

    def command(self, values: Values) -> str:
        """Return the command line."""
        genome = self.lab.genome_of(values["genome"])
        region = genome.place(values["place"], _FLANK_BP, _MOST_BP)
        words = ["carbon", "scan", "--model", self.lab.model_name,
                 "--reference", genome.shown_files[0], "--region", region.to_region(),
                 "--frames", ",".join(map(str, _frames(values))),
                 "--strands", values["strand"], "--output", "scan.tsv"]  # fmt: skip
        return shlex.join(words)


def _options(values: Values) -> ScanOptions:
    return {"frames": _frames(values), "strands": values["strand"]}


def _frames(values: Values) -> list[int]:
    return [int(frame) for frame in values["frames"]] or [0]


def _track(genome: Genome, interval: Interval, values: Values, result: Result) -> Figure:
    """Return probabilities as bars coloured by base, entropy, exons, and the token grid."""
    places = positions(interval)
    p = [None if v is None else float(np.exp(v)) for v in result["log_p_ref"]]
    traces: list[dict[str, Any]] = [
        _bases(base, places, result["bases"], p) for base in "ACGT"
    ] + [{
        "type": "scatter", "mode": "lines", "name": "entropy, of 2 bits", "x": places, "yaxis": "y",
        "y": (np.array(result["entropy_nats"]) / np.log(2) / 2).tolist(),
        "line": {"color": GREY, "width": 1}, "visible": "legendonly",
    }]  # fmt: skip
    genes = genome.genes_in(interval)
    traces += gene_traces(genes, interval, "y2")
    first = interval.start + 1 + min(values["start_bp"], interval.length_bp - 1)
    last = min(first + values["width_bp"] - 1, interval.end) if values["width_bp"] else interval.end
    return figure(
        traces,
        height=420,
        barmode="overlay",
        bargap=0,
        xaxis={"title": {"text": f"position on {plain(interval.contig)}"}, "tickformat": ",d",
               "range": [first - 0.5, last + 0.5], "anchor": "y2"},
        yaxis={"domain": [0.3, 1], "range": [0, 1], "fixedrange": True,
               "title": {"text": "p(base | before)"}},
        yaxis2=gene_axis((0, 0.22), len(genes)),
        shapes=_grid(first, last, values),
    )  # fmt: skip


def _bases(base: str, places: list[int], bases: str, p: list[float | None]) -> dict[str, Any]:
    chosen = [n for n, letter in enumerate(bases.upper()) if letter == base]
    return {
        "type": "bar", "name": base, "x": [places[n] for n in chosen],
        "y": [p[n] for n in chosen], "marker": {"color": BASE_COLORS[base]}, "width": 1,
    }  # fmt: skip


def _grid(first: int, last: int, values: Values) -> list[dict[str, Any]]:
    """Return a line where each token of the first frame begins, as long as they can be told."""
    if not values["grid"] or values["strand"] == "reverse":
        return []
    frame = _frames(values)[0]
    starts = range(first - 1 + (frame - first + 1) % K, last, K)
    if len(starts) > _MOST_GRID_LINES:
        return []
    return [
        {"type": "line", "x0": s + 0.5, "x1": s + 0.5, "y0": 0, "y1": 1, "yref": "y",
         "line": {"color": BLUE, "width": 1, "dash": "dot"}}
        for s in starts
    ]  # fmt: skip
