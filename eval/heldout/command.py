"""The two commands on held-out records, `heldout` and `heldout-report`."""

import argparse
import json
from typing import Any

from carbon.console import say
from carbon.corpus import read_manifest, read_source
from carbon.errors import ConfigError
from carbon.files import atomic_file
from carbon.genome import Reference
from carbon.inference import load
from eval.heldout.likelihood import heldout_likelihood
from eval.heldout.meaning import meaning_of
from eval.heldout.recovery import sequence_recovery
from eval.heldout.report import write_report
from eval.heldout.variants import read_scored, variant_auroc
from eval.markov import MAX_ORDER, Markov
from eval.records import check_folder

_USUAL_SOURCE = "eukaryote"


class _Material:
    """What tasks measure with."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.model = load(arguments.model)
        self.source = arguments.source or _usual_source(arguments.corpus)
        self.train = self._sequences("train")
        self.test = self._sequences("test")
        if not self.test:
            raise ConfigError(f"{arguments.corpus}: nothing is held out; build with a holdout")

    def _sequences(self, split: Any) -> list[str]:
        table = read_source(self.arguments.corpus, self.source, split, ["sequence"])
        sequences: list[str] = table["sequence"].to_pylist()
        return sequences


def _usual_source(corpus: str) -> str:
    """Return `eukaryote`, or the first other source of a corpus that holds records out."""
    sources = read_manifest(corpus)["sources"]
    held_out = [name for name, splits in sources.items() if splits["test"]["records"]]
    return _USUAL_SOURCE if _USUAL_SOURCE in held_out else next(iter(held_out), _USUAL_SOURCE)


def _recovery(of: _Material) -> dict[str, Any]:
    return sequence_recovery(of.model, of.train, of.test, of.arguments.sites, of.arguments.seed)


def _likelihood(of: _Material) -> dict[str, Any]:
    return heldout_likelihood(of.model, of.train, of.test, of.arguments.most_bp, of.arguments.seed)


def _variants(of: _Material) -> dict[str, Any]:
    with Reference(of.arguments.reference) as reference:
        markov = Markov(MAX_ORDER, of.train)
        scored = read_scored(of.arguments.vcf, reference, markov, of.arguments.contigs)
        return variant_auroc(scored)


_TASKS = {
    "sequence_recovery": _recovery,
    "heldout_likelihood": _likelihood,
    "variant_auroc": _variants,
}


def _chosen_tasks(arguments: argparse.Namespace) -> list[str]:
    """Return the names of tasks; `all` are those that there is something to measure with."""
    with_variants = bool(arguments.vcf and arguments.reference)
    if arguments.tasks == "all":
        if not with_variants:
            say("without --vcf and --reference there is no variant_auroc")
        return [name for name in _TASKS if with_variants or name != "variant_auroc"]
    names: list[str] = arguments.tasks.split(",")
    for name in names:
        if name not in _TASKS:
            raise ConfigError(f"--tasks {name}: choose from {', '.join(_TASKS)}")
    if "variant_auroc" in names and not with_variants:
        raise ConfigError("task variant_auroc: give --vcf (scored) and --reference")
    return names


def run_heldout(arguments: argparse.Namespace) -> None:
    """Measure a model on the held-out records of a corpus; write results.json."""
    names = _chosen_tasks(arguments)
    check_folder(arguments.output)
    material = _Material(arguments)
    results = {name: _TASKS[name](material) for name in names}
    arguments.output.mkdir(parents=True, exist_ok=True)
    with atomic_file(arguments.output / "results.json") as temporary:
        temporary.write_text(
            json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
    for name, result in results.items():
        say(meaning_of(name, result))
    print(json.dumps({name: result["value"] for name, result in results.items()}))


def run_report(arguments: argparse.Namespace) -> None:
    """Write one HTML page about a training run and what was measured."""
    write_report(
        arguments.output,
        title=arguments.title,
        run=arguments.folder,
        results=arguments.results / "results.json",
        generated=arguments.generated,
    )
