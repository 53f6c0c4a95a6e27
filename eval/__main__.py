"""Measure a model on what was held out: `python -m eval run|report`."""

import argparse
import json
from pathlib import Path
from typing import Any

from carbon.console import natural, run_command, say
from carbon.corpus import read_source
from carbon.errors import ConfigError
from carbon.files import atomic_file
from carbon.genome import Reference
from carbon.inference import load
from eval.likelihood import heldout_likelihood
from eval.markov import MAX_ORDER, Markov
from eval.recovery import sequence_recovery
from eval.report import write_report
from eval.variants import read_scored, variant_auroc


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = _parser().parse_args(argv)
    return run_command(lambda: arguments.run(arguments))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m eval", description=__doc__)
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")

    verb = verbs.add_parser("run", help="measure a model; writes results.json")
    verb.add_argument("--model", required=True, help="model folder")
    verb.add_argument("--tasks", default="all", help=f"all, or some of {','.join(_TASKS)}")
    verb.add_argument("--corpus", required=True, help="its test records are what is measured on")
    verb.add_argument("--source", default="eukaryote", help="source of the corpus")
    verb.add_argument("--vcf", type=Path, help="labelled VCF that `carbon variants` scored")
    verb.add_argument("--reference", type=Path, help="FASTA of that VCF")
    verb.add_argument("--output", type=Path, required=True, help="folder for results.json")
    verb.add_argument("--sites", type=natural, default=1000, help="sites of sequence recovery")
    verb.add_argument("--most-bp", type=natural, default=200_000, help="bases for the likelihood")
    verb.add_argument("--seed", type=natural, default=0)
    verb.set_defaults(run=_run)

    verb = verbs.add_parser("report", help="one HTML page with pictures")
    verb.add_argument("--run", type=Path, required=True, help="training run folder", dest="folder")
    verb.add_argument("--results", type=Path, required=True, help="folder with results.json")
    verb.add_argument("--generated", type=Path, help="FASTA that `carbon generate` wrote")
    verb.add_argument("--title", default="A Carbon model")
    verb.add_argument("--output", type=Path, required=True, help="HTML file to write")
    verb.set_defaults(run=_report)
    return parser


class _Material:
    """What tasks measure with; read when first asked for."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.arguments = arguments
        self.model = load(arguments.model)
        self.train = self._sequences("train")
        self.test = self._sequences("test")
        if not self.test:
            raise ConfigError(f"{arguments.corpus}: nothing is held out; build with a holdout")

    def _sequences(self, split: Any) -> list[str]:
        table = read_source(self.arguments.corpus, self.arguments.source, split, ["sequence"])
        sequences: list[str] = table["sequence"].to_pylist()
        return sequences


def _recovery(of: _Material) -> dict[str, Any]:
    return sequence_recovery(of.model, of.train, of.test, of.arguments.sites, of.arguments.seed)


def _likelihood(of: _Material) -> dict[str, Any]:
    return heldout_likelihood(of.model, of.train, of.test, of.arguments.most_bp, of.arguments.seed)


def _variants(of: _Material) -> dict[str, Any]:
    with Reference(of.arguments.reference) as reference:
        markov = Markov(MAX_ORDER, of.train)
        return variant_auroc(read_scored(of.arguments.vcf, reference, markov))


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


def _run(arguments: argparse.Namespace) -> None:
    names = _chosen_tasks(arguments)
    material = _Material(arguments)
    results = {name: _TASKS[name](material) for name in names}
    arguments.output.mkdir(parents=True, exist_ok=True)
    with atomic_file(arguments.output / "results.json") as temporary:
        temporary.write_text(
            json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
    print(json.dumps({name: result["value"] for name, result in results.items()}))


def _report(arguments: argparse.Namespace) -> None:
    write_report(
        arguments.output,
        title=arguments.title,
        run=arguments.folder,
        results=arguments.results / "results.json",
        generated=arguments.generated,
    )


if __name__ == "__main__":
    raise SystemExit(main())
