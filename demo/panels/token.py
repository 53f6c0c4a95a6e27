"""Show the model's distribution of one 6-mer, and two losses of each 6-mer."""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np

from carbon.inference import kmer_index
from carbon.inference.next_token import FREE
from carbon.tokenizer import BASES, K
from demo.fields import Field, Values
from demo.markup import facts, paragraph, table
from demo.next_token_summary import told_kmer
from demo.panel import Command, Example, Panel, Pick, Progress, Result, View
from demo.token_figures import kmer_map, loss_bars, marginal_bars

_CONTEXT_BP = 366  # of ENO2: the bundled model expects the next 6-mer most
_TOP = 10
_READING = (
    "Below, each row is the loss if that 6-mer were the true one: the true one itself, then its 18 "
    "neighbours with one other base (bold). FNS counts the six bases one by one, so that five "
    "likely bases are credited whatever the sixth is; cross-entropy counts the 6-mer as a whole."
)


class Token(Panel):
    """Page with the distribution of one 6-mer."""

    title = "Inside a token"
    sentence = (
        "What the model expects of the 6-mer behind a context: all 4,096 as a map, its six bases "
        "one by one, how they change when you fix some, and the loss of the true 6-mer and of near "
        "misses."
    )
    run_label = "Look"
    views: ClassVar[tuple[View, ...]] = (
        View("facts", "html", "The true 6-mer in numbers"),
        View("marginals", "figure", "Probability of each base at the six places"),
        View("map", "figure", "Probabilities of the 4,096 6-mers: rows are the first three bases"),
        View("top", "html", "The likeliest 6-mers"),
        View("reading", "html", "How to read the losses"),
        View("losses", "figure", "Losses of the true 6-mer and its one-base neighbours"),
    )

    def make_fields(self) -> tuple[Field, ...]:
        """Return the inputs."""
        bases = self.lab.example.bases(_CONTEXT_BP + K)
        true = bases[_CONTEXT_BP:]
        return (
            Field("context", "DNA before the token", bases[:_CONTEXT_BP], "bases", most=6000,
                  info="the 6-mer follows it directly: 6-mers are counted from its end"),
            Field("kmer", "True 6-mer", true if _is_kmer(true) else "ATGGCC", most=K,
                  info="or click a cell of the map"),
            Field("fixed", "Fixed bases", FREE, most=K,
                  info="six letters, . where a base is free; or click a bar, and again to free it"),
        )  # fmt: skip

    def examples(self) -> tuple[Example, ...]:
        """Return further examples."""
        examples = [
            Example("It begins with GT", {"fixed": "GT...."}),
            Example("Its middle is fixed", {"fixed": "..AA.."}),
            Example("Nothing before it", {"context": "", "kmer": "ATGGCC"}),
            Example("A repeat of twelve bases", {"context": "GATTACACTGAC" * 8, "kmer": "GATTAC"}),
        ]
        donor = self.lab.example.donor(_CONTEXT_BP, K)
        if donor and _is_kmer(donor[_CONTEXT_BP:]):
            values = {"context": donor[:_CONTEXT_BP], "kmer": donor[_CONTEXT_BP:]}
            examples[0] = Example("An intron begins", {**values, "fixed": "GT...."})
        return tuple(examples)

    def picks(self) -> tuple[Pick, ...]:
        """Return the clicks: a cell or near miss becomes the true 6-mer, and a bar is fixed."""
        take = {view: Pick(view, lambda picked, _: {"kmer": picked}) for view in ("map", "losses")}
        return (*take.values(), Pick("marginals", _toggled))

    def answer(self, values: Values) -> Iterator[Progress | Result]:
        """Yield the distribution, free and given the fixed bases, and the losses."""
        token = self.lab.model.next_token(values["context"])
        yield told_kmer(token, values["kmer"], _fixed(values), _TOP)

    def show(self, values: Values, result: Result) -> Mapping[str, Any]:
        """Return the views."""
        true, fixed = result["losses"][0], result["fixed"]
        p, given = np.array(result["probabilities"]), np.array(result["given_probabilities"])
        index = kmer_index(true["kmer"])
        rows = [
            (best["kmer"], best["probability"], float(p[kmer_index(best["kmer"])]))
            for best in result["top"]
        ]
        return {
            "facts": facts([
                ("true 6-mer", true["kmer"]),
                ("its probability", f"{p[index]:.3g}"),
                ("its rank", f"{result['rank']:,} of 4,096"),
                ("cross-entropy, nats", f"{true['cross_entropy_nats']:.4f}"),
                ("FNS, nats a base", f"{true['fns_nats']:.4f}"),
                ("context that was read", f"{len(result['context']):,} bp"),
                (f"p of {fixed}", f"{p[given > 0].sum():.3g}"),
            ]),
            "marginals": marginal_bars(
                result["marginals"], result["given_marginals"], true["kmer"], fixed
            ),
            "map": kmer_map(given, true["kmer"], result["top"][0]["kmer"]),
            "top": table(
                ("6-mer", f"probability given {fixed}", "probability"),
                rows,
                "The likeliest 6-mers with the fixed bases",
            ),
            "reading": paragraph(_READING),
            "losses": loss_bars(result["losses"]),
        }  # fmt: skip

    def python(self, values: Values) -> str:
        """Return the program."""
        return (
            "import carbon\nfrom carbon.inference import kmer_index, near_misses\n\n"
            f"model = carbon.load({self.lab.model_name!r})\n"
            f"token = model.next_token({values['context']!r})\n"
            f"given = token.given({_fixed(values)!r})\n"
            f"for kmer, probability in given.ranked()[:{_TOP}]:\n"
            "    print(kmer, probability)\n"
            "print(given.marginals.tolist())  # six places, bases in the order ATCG\n"
            f"true = {values['kmer'].upper()!r}\n"
            "for kmer in (true, *near_misses(true)):\n"
            "    index = kmer_index(kmer)\n"
            "    print(kmer, token.cross_entropy_nats[index], token.fns_nats[index])\n"
        )

    def commands(self, values: Values) -> list[Command]:
        """Return the command line."""
        words = ["carbon", "next", "--model", self.lab.model_name]
        return [[*words, "--prompt", values["context"], "--fixed", _fixed(values)]]


def _is_kmer(text: str) -> bool:
    return len(text) == K and set(text) <= set(BASES)


def _fixed(values: Values) -> str:
    return values["fixed"].upper() or FREE


def _toggled(picked: Any, values: Values) -> Values:
    """Fix the base of a clicked bar; free it if it is fixed."""
    place, base = int(picked[0]), str(picked[1])
    fixed = list(_fixed(values).ljust(K, ".")[:K])
    fixed[place] = "." if fixed[place] == base else base
    return {"fixed": "".join(fixed)}
