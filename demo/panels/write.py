"""Write: the model continues DNA, or designs sequences towards a goal."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from carbon.__version__ import __version__
from carbon.design import benchmark_functions
from carbon.design.config import DesignOptions, config_of
from carbon.design.functions import running_functions
from carbon.design.search import rounds, search_of
from carbon.design.strategies import Candidate
from carbon.errors import UserError
from carbon.genome import fasta_text
from carbon.inference import Constraints
from carbon.inference.options import MODES
from carbon.io.tables import words_of
from carbon.tokenizer import GENE_TAGS, SPECIES_TAGS
from demo.arrays import as_lists
from demo.fields import Field, Values, input_field, input_link
from demo.folders import folder_named
from demo.markup import download, paragraph
from demo.panel import Example, Panel, Progress, Result, View
from demo.preview import Card
from demo.write_views import (
    about_repeats,
    candidates_to_json,
    comparison,
    design_table,
    frames_table,
    front_figure,
    search_facts,
    strip,
)

CONTINUE = "continue it"
_GOALS = {"GC window": "gc_window", "motif pair": "motif_pair", "codons of yeast": "yeast_codons"}
_FINETUNED = "finetuned: "
_PROTEIN = "MSKGEELFTGVVPILVELDGDVNGHK"  # of GFP, its first 26
_ABOUT_PROTEIN = (
    "These are codons for the protein under More settings; the main field and the number of bases "
    "do not apply."
)
_BEST, _TIMEOUT_SECONDS = 8, 60
_MOST_DESIGN_BP = 300
_PROMPT_BP, _MOST_PROMPT_BP, _LINE_BP = 60, 6000, 60
_FRAMES = ("", "0", "1", "2")


class Write(Panel):
    """Page on which the model writes DNA."""

    heading = "Let the model write"
    sentence = (
        "The model writes DNA, freely or towards a goal. What it writes is a hypothesis, "
        "not a tested sequence."
    )
    views: ClassVar[tuple[View, ...]] = (
        View("note"),
        View("bases", "bases", "Bases of the model, coloured by their probability"),
        View("random", "bases", "Random DNA, coloured by its probability"),
        View("comparison"),
        View("frames"),
        View("front", "figure", "Every design: its score and its nats per base"),
        View("designs"),
        View("saved"),
    )

    def make_fields(self) -> tuple[Field, ...]:
        known = self.lab.model.model.six_mers.tags
        species = ("", *(tag for tag in SPECIES_TAGS if tag in known))
        genes = ("", *(tag for tag in GENE_TAGS if tag in known))
        goals = (CONTINUE, *_GOALS, *(f"{_FINETUNED}{name}" for name in self.lab.finetuned))
        return (
            input_field(self.lab.example.name, info="the model continues it; empty: from nothing"),
            Field("goal", "Goal", CONTINUE, "choice", goals,
                  info="a score to maximise: G and C in the middle fifth alone; two motifs 20 bases"
                  " apart; the codons of highly expressed yeast genes"),
            Field("length_bp", "Bases to write", 240, "integer", least=1, most=1200),
            Field("protein", "Protein to encode", "", "protein", most=100, more=True,
                  info="amino acids; the model chooses the codons"),
            Field("temperature", "Temperature", 1.0, "number", most=2.0, more=True,
                  info="0 takes the likeliest 6-mer; below 1 is cautious"),
            Field("top_p", "Top-p", 1.0, "number", least=0.05, most=1.0, more=True),
            Field("seed", "Seed", 0, "integer", most=10_000, more=True),
            Field("mode", "Draw", "token", "choice", tuple(MODES), more=True,
                  info="6-mers, bases by their marginals, or bases one after the other"),
            Field("species", "Species tag", "", "choice", species, more=True),
            Field("gene", "Gene tag", "", "choice", genes, more=True),
            Field("forbid", "Forbidden motifs", "", info="IUPAC, separated by blanks", more=True),
            Field("require", "Required motifs", "", info="IUPAC, separated by blanks", more=True),
            Field("gc_least", "GC at least", 0.0, "number", most=1.0, more=True),
            Field("gc_most", "GC at most", 1.0, "number", most=1.0, more=True),
            Field("no_stop_frame", "No stop codon in frame", "", "choice", _FRAMES, more=True,
                  info="counted from the first base of the input"),
            Field("calls", "Designs to score", 160, "integer", least=16, most=400, more=True),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return examples of both ways to write."""
        return (
            Example("Codons for a protein", {"input": "", "protein": _PROTEIN}),
            Example("An open reading frame", {"input": "ATGGCC", "no_stop_frame": "0"}),
            Example("Always the likeliest", {"temperature": 0.0}),
            Example("No EcoRI site", {"forbid": "GAATTC", "gc_least": 0.3, "gc_most": 0.5}),
            Example("Goal: two motifs", {"input": "", "goal": "motif pair", "length_bp": 60}),
            Example(
                "Goal: codons of yeast",
                {"input": "", "goal": "codons of yeast", "protein": _PROTEIN},
            ),
        )

    def buttons(self) -> Mapping[str, Callable[[Values, Result], Values]]:
        """Return `Continue`, which takes what was written as the next input."""
        return {"Continue": lambda values, result: {"goal": CONTINUE, "protein": ""} | {
            "input": "".join(result.get(each, "") for each in ("prompt", "bases"))
            or result["candidates"][0]["bases"]
        }}  # fmt: skip

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the bases as the model writes them, or all designs after every round."""
        yield from self._stream(values) if values["goal"] == CONTINUE else self._search(values)

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the growing views; comparisons follow after the last base."""
        shown: dict[str, Any] = dict.fromkeys((view.name for view in self.views), "")
        shown |= dict.fromkeys(view.name for view in self.views if view.kind != "html")
        note = paragraph(_ABOUT_PROTEIN) if values["protein"] else ""
        if candidates := result.get("candidates"):
            best = candidates[:_BEST]
            return shown | {
                "front": front_figure(candidates),
                "note": note + search_facts(candidates, values["calls"]),
                "designs": design_table(best),
                "saved": download("designs.fa", self._fasta(values, best)),
            }
        is_complete = len(result["bases"]) == _length_bp(values)
        shown |= {"bases": strip(result), "random": strip(result, result["random"])}
        if not is_complete:
            return shown
        return shown | {
            "note": note + about_repeats(values["temperature"], result["bases"]),
            "comparison": comparison(result),
            "frames": frames_table(result),
            "saved": download("written.fa", self._fasta(values, [result])),
        }

    def questions(self, values: Values, result: Result) -> Sequence[tuple[str, str]]:
        """Return links that take what was written to other pages."""
        candidates = result.get("candidates")
        bases = candidates[0]["bases"] if candidates else result["prompt"] + result["bases"]
        return (
            ("Read it back", input_link("/gene", bases)),
            ("Look inside one prediction", input_link("/inside", bases)),
        )

    def card(self, values: Values, result: Result) -> Card:
        if candidates := result.get("candidates"):
            best = f"The best of {len(candidates):,} designs: {candidates[0]['value']:.2f}."
            return Card(f"Designed: {values['goal']}", best)
        sentence = f"{len(result['bases']):,} bases that a DNA language model wrote."
        return Card("Written by a model", sentence, tuple(result["probabilities"][:120]))

    def code(self, values: Values) -> Mapping[str, Any]:
        is_design = values["goal"] != CONTINUE
        return values | {
            "is_design": is_design,
            "prompt": self._prompt(values),
            "length_bp": _length_bp(values),
            "function": self._spec(values) if is_design else "",
            "options": self._search_options(values) if is_design else _sampling(values),
            "best": _BEST,
            "tags": _tags(values),
            "gc": _gc(values),
        }

    def _prompt(self, values: Values) -> str:
        """Return the DNA to continue: pasted bases, a region, or the beginning of a gene."""
        if not values["input"] or values["protein"]:
            return ""
        return self.lab.detect(values["input"]).opening_bases(_PROMPT_BP)[-_MOST_PROMPT_BP:]

    def _stream(self, values: Values) -> Iterator[Result]:
        """Yield what is written so far, next to random DNA of the final length."""
        prompt, length_bp, model = self._prompt(values), _length_bp(values), self.lab.model
        letters = np.random.default_rng(values["seed"]).choice(list("ACGT"), length_bp)
        random = "".join(letters.tolist())
        (score,) = model.score([prompt + random], tags=_tags(values))
        chance = {"bases": random, "probabilities": as_lists(np.exp(score.bases[len(prompt) :]), 4)}
        bases, probabilities, alternatives = "", [], []
        for step in model.stream(prompt, length_bp, **_sampling(values)):
            bases += step.bases
            probabilities += as_lists(step.probabilities, 4)
            alternatives += as_lists(step.alternatives, 4)
            yield {"prompt": prompt, "bases": bases, "probabilities": probabilities,
                   "alternatives": alternatives, "random": chance}  # fmt: skip

    def _search(self, values: Values) -> Iterator[Result]:
        """Yield all designs after each round; visitors cannot name code to run."""
        search = search_of(self.lab.model.runner, config_of(self._search_options(values)), 1)
        name = _GOALS.get(values["goal"])
        function = getattr(benchmark_functions, name) if name else self._spec(values)
        history: list[Candidate] = []
        with running_functions([function], _TIMEOUT_SECONDS) as functions:
            for _ in rounds(search, functions, history):
                yield {"candidates": candidates_to_json(history)}

    def _search_options(self, values: Values) -> DesignOptions:
        options: DesignOptions = {
            "seed": values["seed"], "calls": values["calls"], "num_designs": _BEST
        }  # fmt: skip
        limits: Any = {
            name: limit for name, limit in _limits(values).items() if limit not in (None, ())
        }
        options.update(limits)
        if prompt := self._prompt(values):
            options["prompt"] = prompt
        if not values["protein"]:
            if values["length_bp"] > _MOST_DESIGN_BP:
                raise UserError(f"a design has at most {_MOST_DESIGN_BP} bases; write fewer")
            options["length_bp"] = values["length_bp"]
        return options

    def _spec(self, values: Values) -> str:
        """Return the scoring function as a command line names it."""
        if name := _GOALS.get(values["goal"]):
            return f"python:carbon.design.benchmark_functions:{name}"
        name = values["goal"].removeprefix(_FINETUNED)
        return f"prediction=finetuned:{folder_named(name, self.lab.finetuned)}"

    def _fasta(self, values: Values, rows: Sequence[Result]) -> str:
        """Return sequences as FASTA whose headers state what made them."""
        settings = {"carbon": __version__, "model": self.lab.shown_name} | values
        words = words_of(settings | {"input": self._prompt(values)})
        heads = (f"{row.get('name', 'written')} value={row['value']:.4f}" if "value" in row
                 else "written" for row in rows)  # fmt: skip
        pairs = ((f"{head} {words}", row["bases"]) for head, row in zip(heads, rows, strict=True))
        return fasta_text(pairs, _LINE_BP)


def _length_bp(values: Values) -> int:
    return 3 * len(values["protein"]) if values["protein"] else int(values["length_bp"])


def _limits(values: Values) -> dict[str, Any]:
    """Return the constraints by their names in `Constraints`."""
    return {
        "forbid": tuple(values["forbid"].split()),
        "require": tuple(values["require"].split()),
        "gc": _gc(values),
        "no_stop_frame": int(values["no_stop_frame"]) if values["no_stop_frame"] else None,
        "protein": values["protein"] or None,
    }


def _sampling(values: Values) -> dict[str, Any]:
    names = ("seed", "mode", "temperature", "top_p")
    return {name: values[name] for name in names} | {
        "tags": _tags(values),
        "constraints": Constraints(**_limits(values)),
    }


def _tags(values: Values) -> tuple[str, ...]:
    return tuple(tag for tag in (values["species"], values["gene"]) if tag)


def _gc(values: Values) -> tuple[float, float] | None:
    share = (values["gc_least"], values["gc_most"])
    return None if share == (0.0, 1.0) else share
