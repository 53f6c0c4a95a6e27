"""Generate: the model continues a prompt, base by base."""

import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from carbon.genome import translate
from carbon.inference import Constraints
from carbon.options import MODES
from carbon.tokenizer import GENE_TAGS, SPECIES_TAGS
from demo.fields import Field, Values
from demo.figures import BLUE, GREEN, GREY, ORANGE, Figure, figure
from demo.markup import download, facts
from demo.panel import Example, Panel, Progress, Result, View

_GC_WINDOW_BP = 30
_LINE_BP = 60
_FRAMES = ("", "0", "1", "2")


class Generate(Panel):
    """Continues a prompt."""

    name = "generate"
    title = "Generate"
    invitation = "Let it write"
    sentence = (
        "The model continues your DNA; every base is coloured by how likely the model found it."
    )
    run_label = "Generate"
    views: ClassVar[tuple[View, ...]] = (
        View("bases", "bases", "Generated bases, coloured by their probability"),
        View("facts", "html", "What was generated, in numbers"),
        View("tracks", "figure", "GC content, probability and stop codons along the sequence"),
        View("fasta", "html", "Download"),
    )

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

    def examples(self) -> tuple[Example, ...]:
        """Return more of them."""
        return (
            Example("An open reading frame", {"prompt": "ATG", "no_stop_frame": "0"}),
            Example("No EcoRI site, 40 to 60 % GC",
                    {"prompt": "", "forbid": "GAATTC", "gc_least": 0.4, "gc_most": 0.6}),
            Example("The most likely continuation", {"temperature": 0.0}),
            Example("Base by base", {"mode": "base", "seed": 3}),
        )  # fmt: skip

    def buttons(self) -> Mapping[str, Callable[[Values, Result], Values]]:
        """Return `Continue`, which takes what was generated into the prompt."""
        return {"Continue": lambda values, result: {"prompt": result["prompt"] + result["bases"]}}

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the bases as they come."""
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
        """Return the views; tracks once all bases are there."""
        text = result["prompt"] + result["bases"]
        shown: dict[str, Any] = {
            "bases": {
                "bases": text,
                "prompt_bp": len(result["prompt"]),
                "probabilities": result["probabilities"],
                "alternatives": result["alternatives"],
            }
        }
        if len(result["bases"]) == values["length_bp"]:
            mean = float(np.log(np.maximum(result["probabilities"], 1e-30)).mean())
            shown["facts"] = facts([
                ("bases", f"{len(result['bases']):,}"),
                ("GC", f"{100 * gc_share(result['bases']):.1f} %"),
                ("nats per base", f"{-mean:.3f}"),
                ("longest open frame", f"{_longest_open_codons(text)} codons"),
            ])  # fmt: skip
            shown["tracks"] = _tracks(text, result)
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

    def command(self, values: Values) -> str:
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
        return shlex.join(map(str, words))

    def _fasta(self, values: Values, result: Result) -> str:
        asked = " ".join(
            f"{name}={'%20'.join(str(value).split())}"
            for name, value in values.items()
            if value not in ("", None) and name != "prompt"
        )
        bases = result["bases"]
        lines = (bases[at : at + _LINE_BP] for at in range(0, len(bases), _LINE_BP))
        head = f">generated model={self.lab.model_name} prompt_bp={len(result['prompt'])} {asked}"
        return "\n".join([head, *lines, ""])


def _options(values: Values) -> dict[str, Any]:
    return {
        "seed": values["seed"],
        "tags": _tags(values),
        "constraints": Constraints(
            forbid=tuple(values["forbid"].split()),
            require=tuple(values["require"].split()),
            gc=_gc(values),
            no_stop_frame=int(values["no_stop_frame"]) if values["no_stop_frame"] else None,
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


def gc_share(bases: str) -> float:
    """Return the share of G and C."""
    return sum(base in "GC" for base in bases) / len(bases) if bases else 0.0


def _longest_open_codons(text: str) -> int:
    """Return the longest run of codons without a stop, in the three frames of this strand."""
    proteins = (translate(text[frame : len(text) - (len(text) - frame) % 3]) for frame in range(3))
    return max(len(part) for protein in proteins for part in protein.split("*"))


def _tracks(text: str, result: Result) -> Figure:
    """Return probability, GC of running windows, and where codons stop in each frame."""
    first = len(result["prompt"]) + 1
    places = list(range(first, first + len(result["bases"])))
    windows = [text[max(0, at - _GC_WINDOW_BP) : at] for at in range(1, len(text) + 1)]
    stops = [
        (at + 1, frame)
        for frame in range(3)
        for at in range(frame, len(text) - 2, 3)
        if translate(text[at : at + 3]) == "*"
    ]
    starts = [(at + 1, at % 3) for at in range(len(text) - 2) if text[at : at + 3] == "ATG"]
    traces = [
        {"type": "bar", "name": "probability", "x": places, "y": result["probabilities"],
         "marker": {"color": GREY}},
        {"type": "scatter", "mode": "lines", "name": f"GC of {_GC_WINDOW_BP} bp",
         "x": list(range(1, len(text) + 1)), "y": [gc_share(w) for w in windows],
         "line": {"color": BLUE}},
        _codons("stop codon", stops, ORANGE, "x"),
        _codons("ATG", starts, GREEN, "triangle-right"),
    ]  # fmt: skip
    return figure(
        traces,
        height=360,
        xaxis={"title": {"text": "base"}, "anchor": "y2"},
        yaxis={"domain": [0.38, 1], "range": [0, 1]},
        yaxis2={"domain": [0, 0.28], "title": {"text": "frame"}, "range": [2.6, -0.6], "dtick": 1,
                "fixedrange": True},
        bargap=0.1,
    )  # fmt: skip


def _codons(name: str, found: list[tuple[int, int]], color: str, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": [x for x, _ in found],
        "y": [frame for _, frame in found], "yaxis": "y2",
        "marker": {"color": color, "symbol": symbol, "size": 8},
    }  # fmt: skip
