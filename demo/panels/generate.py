"""Generate: the model continues a prompt, base by base."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from carbon.genome import fasta_text, short
from carbon.genome.alphabet import gc_share
from carbon.inference import Constraints
from carbon.inference.options import MODES
from carbon.io.tables import words_of
from carbon.tokenizer import GENE_TAGS, SPECIES_TAGS
from demo.fields import Field, Values
from demo.figures import BLUE, GREEN, GREY, ORANGE, Figure, figure
from demo.markup import download, facts, table
from demo.open_frames import OpenFrame, open_frames
from demo.panel import Command, Example, Panel, Progress, Result, View

_GC_WINDOW_BP = 30
_LINE_BP = 60
_FRAMES = ("", "0", "1", "2")
_FRAME_NAMES = ["+0", "+1", "+2", "-0", "-1", "-2"]
_LEAST_CODONS = 15


class Generate(Panel):
    """Continues a prompt."""

    sentence = (
        "The model continues your DNA; every base is coloured by how likely the model found it."
    )
    views: ClassVar[tuple[View, ...]] = (
        View("bases", "bases", "Generated bases, coloured by their probability"),
        View("facts", "html", "What was generated, in numbers"),
        View("tracks", "figure", "Probability, GC content and open frames along the sequence"),
        View("frames", "html", "Proteins of the open frames"),
        View("fasta", "html", "Download"),
    )
    more: ClassVar[tuple[Example, ...]] = (
        Example("An open reading frame", {"prompt": "ATG", "no_stop_frame": "0"}),
        Example("No EcoRI site, 40 to 60 % GC",
                {"prompt": "", "forbid": "GAATTC", "gc_least": 0.4, "gc_most": 0.6}),
        Example("The most likely continuation", {"temperature": 0.0}),
        Example("1,200 bases in one go", {"prompt": "", "length_bp": 1200}),
        Example("Base by base", {"mode": "base", "seed": 3}),
    )  # fmt: skip

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        known = self.lab.model.model.vocabulary.tags
        species = ("", *(tag for tag in SPECIES_TAGS if tag in known))
        genes = ("", *(tag for tag in GENE_TAGS if tag in known))
        return (
            Field("prompt", "Prompt", "ATGGCCAAG", "bases", most=6000,
                  info="DNA, or nothing; base 1 is the first of it"),
            Field("length_bp", "Bases to add", 240, "integer", least=1, most=1200),
            Field("species", "Species tag", "", "choice", species),
            Field("gene", "Gene tag", "", "choice", genes),
            Field("temperature", "Temperature", 1.0, "number", most=2.0,
                  info="0 takes the most likely; below 1 is cautious"),
            Field("top_p", "Top-p", 1.0, "number", least=0.05, most=1.0),
            Field("seed", "Seed", 0, "integer", most=10_000),
            Field("mode", "Draw", "token", "choice", tuple(MODES),
                  info="6-mers, bases by their marginals, or bases one after the other"),
            Field("forbid", "Forbidden motifs", "", info="IUPAC, with blanks between", more=True),
            Field("require", "Required motifs", "", info="IUPAC, with blanks between", more=True),
            Field("gc_least", "GC at least", 0.0, "number", most=1.0, more=True),
            Field("gc_most", "GC at most", 1.0, "number", most=1.0, more=True),
            Field("no_stop_frame", "No stop codon in frame", "", "choice", _FRAMES, more=True,
                  info="counted from the prompt's first base"),
        )  # fmt: skip

    def buttons(self) -> Mapping[str, Callable[[Values, Result], Values]]:
        """Return `Continue`, which appends the generated bases to the prompt."""
        return {"Continue": lambda values, result: {"prompt": result["prompt"] + result["bases"]}}

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the bases as the model generates them."""
        prompt = values["prompt"]
        steps = self.lab.model.stream(prompt, values["length_bp"], **_options(values))
        bases, probabilities, alternatives = "", [], []
        for step in steps:
            bases += step.bases
            probabilities += step.probabilities.tolist()
            alternatives += step.alternatives.tolist()
            yield {"prompt": prompt, "bases": bases, "probabilities": probabilities,
                   "alternatives": alternatives}  # fmt: skip

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the growing views; numbers and proteins follow after the last base."""
        text = result["prompt"] + result["bases"]
        shown: dict[str, Any] = {
            "tracks": _tracks(text, result, values["length_bp"]),
            "bases": {
                "bases": text,
                "prompt_bp": len(result["prompt"]),
                "probabilities": result["probabilities"],
                "alternatives": result["alternatives"],
            },
        }
        if len(result["bases"]) == values["length_bp"]:
            mean = float(np.log(np.maximum(result["probabilities"], 1e-30)).mean())
            shown["facts"] = facts([
                ("bases", f"{len(result['bases']):,}"),
                ("GC", f"{100 * gc_share(result['bases']):.1f} %"),
                ("nats per base", f"{-mean:.3f}"),
            ])  # fmt: skip
            header = ("open frame", "amino acids", "protein", "end")
            frames = open_frames(text, _LEAST_CODONS)
            shown["frames"] = table(header, map(_of_frame, frames), "Open frames from an ATG")
            shown["fasta"] = download("generated.fa", self._fasta(values, result))
        return shown

    def python(self, values: Values) -> str:
        """Return the program."""
        options = ", ".join(
            f"{name}={value!r}" for name, value in _options(values).items() if value or value == 0
        )
        prompt = values["prompt"]
        return (
            "import carbon\nfrom carbon.inference import Constraints\n\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            f"print(model.generate([{prompt!r}], {values['length_bp']}, {options})[0])\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command line."""
        prompt = values["prompt"]
        words = ["carbon", "generate", "--model", self.lab.model_name, "--prompt", prompt,
                 "--length", values["length_bp"], "--seed", values["seed"],
                 "--mode", values["mode"], "--temperature", values["temperature"],
                 "--top-p", values["top_p"]]  # fmt: skip
        for tag in _tags(values):
            words += ["--tag", tag]
        for name in ("forbid", "require"):
            if values[name]:
                words += [f"--{name}", *values[name].split()]
        if share := _gc(values):
            words += ["--gc", *share]
        if values["no_stop_frame"]:
            words += ["--no-stop", values["no_stop_frame"]]
        return [words]

    def _fasta(self, values: Values, result: Result) -> str:
        asked = words_of({**values, "prompt": ""})
        head = f"generated model={self.lab.model_name} prompt_bp={len(result['prompt'])} {asked}"
        return fasta_text([(head, result["bases"])], _LINE_BP)


def _options(values: Values) -> dict[str, Any]:
    frame: Any = int(values["no_stop_frame"]) if values["no_stop_frame"] else None
    return {
        "seed": values["seed"],
        "tags": _tags(values),
        "constraints": Constraints(
            forbid=tuple(values["forbid"].split()),
            require=tuple(values["require"].split()),
            gc=_gc(values),
            no_stop_frame=frame,
        ),
        "mode": values["mode"],
        "temperature": values["temperature"],
        "top_p": values["top_p"],
    }


def _tags(values: Values) -> tuple[str, ...]:
    return tuple(tag for tag in (values["species"], values["gene"]) if tag)


def _gc(values: Values) -> tuple[float, float] | None:
    share = (values["gc_least"], values["gc_most"])
    return None if share == (0.0, 1.0) else share


def _tracks(text: str, result: Result, length_bp: int) -> Figure:
    """Return probability and GC of running windows over a ruler, and open frames as arrows."""
    first = len(result["prompt"]) + 1
    traces = [
        {"type": "bar", "name": "probability", "y": result["probabilities"],
         "x": list(range(first, first + len(result["bases"]))), "marker": {"color": GREY}},
        {"type": "scatter", "mode": "lines", "name": f"GC of {_GC_WINDOW_BP} bp",
         "x": list(range(1, len(text) + 1)), "y": _gc_along(text, _GC_WINDOW_BP),
         "line": {"color": BLUE}},
        *map(_arrow, open_frames(text, _LEAST_CODONS)),
    ]  # fmt: skip
    return figure(
        traces,
        height=400,
        xaxis={"title": {"text": "base"}, "anchor": "y2", "range": [0.5, first + length_bp - 0.5]},
        yaxis={"domain": [0.46, 1], "range": [0, 1]},
        yaxis2={"domain": [0, 0.36], "title": {"text": "open frame"}, "range": [5.6, -0.6],
                "tickvals": list(range(6)), "ticktext": _FRAME_NAMES, "fixedrange": True},
        bargap=0.1,
    )  # fmt: skip


def _arrow(frame: OpenFrame) -> dict[str, Any]:
    """Return an open frame as an arrow in the row of its strand and frame."""
    forward = frame.strand == "+"
    row = frame.start % 3 if forward else 3 + frame.end % 3
    ends = [frame.start + 1, frame.end]
    return {
        "type": "scatter", "mode": "lines+markers", "x": ends if forward else ends[::-1],
        "y": [row, row], "yaxis": "y2", "showlegend": False, "hoverinfo": "text",
        "cliponaxis": False,
        "text": f"{_of_frame(frame)[0]}: {short(frame.protein)}",
        "line": {"width": 5, "color": GREEN if forward else ORANGE},
        "marker": {"size": [0, 15], "angleref": "previous", "symbol": "triangle-up", "opacity": 1},
    }  # fmt: skip


def _of_frame(frame: OpenFrame) -> tuple[str, int, str, str]:
    """Return the table row of an open reading frame."""
    place = f"{frame.start + 1:,} to {frame.end:,} on {frame.strand}"
    end = "a stop codon" if frame.has_stop else "the sequence's end"
    return place, len(frame.protein), frame.protein, end


def _gc_along(bases: str, window_bp: int) -> list[float]:
    """Return the GC fraction of the window that ends at each base; windows grow at the start."""
    return [gc_share(bases[max(0, end - window_bp) : end]) for end in range(1, len(bases) + 1)]
