"""The steps of the quickstart: what is told of each, and its command.

In a command, `{name}` is a value that is put in, `{name!j}` the same between quotes of JSON, which
are TOML's as well, and `*name` a list of words.
"""

import json
import string
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Step:
    """One command of a package.

    Attributes:
        name: in quickstart.json.
        says: what it is doing.
        command: what follows `python`.
        own: only where the genome is the user's, or only where it is not.
        replaces: a folder that it makes from nothing.
        needs: a value that names a file; without it there is nothing to do.
        if_scored: how the command goes on where variants have been scored.
        prints_to: the file for what it prints, instead of steps.log.
        or_else: what is said where it ends with 2 or has nothing to do, and goes on; `{reason}` is
            put in.
        counts: the argument that says how often the model reads in it.
        windows: of a model's context, that are read each time.
    """

    name: str
    says: str
    command: str
    own: bool | None = None
    replaces: str = ""
    needs: str = ""
    if_scored: str = ""
    prints_to: str = ""
    or_else: str = ""
    counts: str = ""
    windows: int = 0


TRAIN = """
    -m train.launch --standalone --nproc-per-node {processes}
    -m train --config {recipe} *changes *training"""
STEPS = (
    Step(
        "simulate", "simulating an annotated genome", """
        -m carbon.cli corpus simulate --output {output}/genome --genome-bp {genome_bp}
        --variants {variants} --seed {seed}""",
        own=False, replaces="genome",
    ),
    Step(
        "build", "building the corpus, one chromosome held out", """
        -m carbon.cli corpus build --set output="{output!j}/corpus"
        --set assemblies.0.genome="{genome!j}" --set assemblies.0.annotation="{annotation!j}"
        --set assemblies.0.contigs="{contigs!j}" --set assemblies.0.holdout=["{holdout!j}"]
        --set assemblies.0.incomplete_cds="{incomplete_cds}" *coded""",
        replaces="corpus",
    ),
    Step(
        "choose_variants", "choosing variants of known effect", """
        -m carbon.cli corpus variants --genome {genome} --annotation {annotation} *renamed *code
        --corpus {output}/corpus --variants {variants} --seed {seed} --output {vcf}""",
        own=True, needs="annotation",
        or_else="no variants of known effect: {reason}; the report goes without their AUROC",
    ),
    Step("train", "training, from cross-entropy to FNS", TRAIN + " --resume auto"),
    Step(
        "score", "scoring the held-out variants", """
        -m carbon.cli variants --model {output}/run/export --reference {genome} --vcf {vcf}
        --strands both --output {output}/scored.vcf.gz""",
        needs="vcf", counts="variants", windows=4,  # two alleles on two strands
    ),
    Step(
        "evaluate", "measuring on the held-out chromosome", """
        -m eval heldout --model {output}/run/export --corpus {output}/corpus
        --sites {sites} --seed {seed} --output {output}/eval
        --tasks sequence_recovery,heldout_likelihood""",
        if_scored=",variant_auroc --vcf {output}/scored.vcf.gz --reference {genome}",
        counts="sites", windows=2,  # recovery by tokens and by bases
    ),
    Step(
        "generate", "generating sequence", """
        -m carbon.cli generate --model {output}/run/export --length 1200 --seed {seed}""",
        prints_to="generated.fa",
    ),
    Step(
        "report", "writing the report", """
        -m eval heldout-report --run {output}/run --results {output}/eval --title {title}
        --generated {output}/generated.fa --output {output}/report.html""",
    ),
)  # fmt: skip


def words(command: str, values: Mapping[str, Any]) -> Iterator[str]:
    """Yield the words of a command, values put in; one with blanks in it stays one word.

    >>> list(words("--title {title} *more", {"title": "A yeast", "more": ["--seed", "0"]}))
    ['--title', 'A yeast', '--seed', '0']
    """
    for word in command.split():
        if word.startswith("*"):
            yield from values[word[1:]]
        else:
            yield _Values().vformat(word, (), values)


class _Values(string.Formatter):
    def convert_field(self, value: Any, conversion: Any) -> Any:
        if conversion == "j":
            return json.dumps(str(value))[1:-1]
        return super().convert_field(value, conversion)


def set_options(settings: Mapping[str, Any]) -> list[str]:
    """Return `--set key=value` for each setting."""
    pairs = (f"{key}={_toml(value)}" for key, value in settings.items())
    return [word for pair in pairs for word in ("--set", pair)]


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(key)} = {_toml(v)}" for key, v in value.items()) + "}"
    return json.dumps(value)
