"""The two commands on held-out records, `heldout` and `heldout-report`."""

import argparse
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from carbon.errors import ConfigError
from carbon.genome import Reference
from carbon.io.files import atomic_file
from carbon.progress import say
from eval.heldout.codon_adaptation import codon_adaptation, reference_usage
from eval.heldout.consequence import consequence_auroc
from eval.heldout.frame import reading_frame
from eval.heldout.likelihood import heldout_likelihood
from eval.heldout.material import Material
from eval.heldout.meaning import meaning_of
from eval.heldout.overlap import overlap_with_train
from eval.heldout.recovery import sequence_recovery
from eval.heldout.report import write_report
from eval.heldout.results import key_numbers
from eval.heldout.variants import read_scored, variant_auroc
from eval.records import check_folder


def _recovery(of: Material) -> dict[str, Any]:
    return sequence_recovery(of.model, of.train, of.test, of.arguments.sites, of.arguments.seed)


def _likelihood(of: Material) -> dict[str, Any]:
    most_bp, seed = of.arguments.most_bp, of.arguments.seed
    owners = of.owners()
    states = None if owners is None else of.genes.training()
    return heldout_likelihood(
        of.model, of.train, of.test, most_bp, seed, owners=owners, states=states
    )


def _variants(of: Material) -> dict[str, Any]:
    with Reference(of.arguments.reference) as reference:
        scored = read_scored(of.arguments.vcf, reference, of.markov, of.arguments.contigs)
        return variant_auroc(scored)


def _frame(of: Material) -> dict[str, Any]:
    return reading_frame(of.model, of.markov, of.coding)


def _adaptation(of: Material) -> dict[str, Any]:
    usage = reference_usage(of.arguments.codon_usage, of.arguments.finetuned_genes, of.genes)
    return codon_adaptation(of.model, of.coding, usage)


def _consequences(of: Material) -> dict[str, Any]:
    wanted = of.arguments
    return consequence_auroc(
        of.model, of.genes, wanted.variants_each, wanted.seed, wanted.window_bp
    )


class _Task(NamedTuple):
    """What measures, and the flags without one of which there is nothing to measure with.

    Attributes:
        measure: from the material to a result.
        needs: of each line one flag is needed, by their names among the arguments.
        how: the same for the user.
    """

    measure: Callable[[Material], dict[str, Any]]
    needs: tuple[tuple[str, ...], ...] = ()
    how: str = ""

    def lacks(self, arguments: argparse.Namespace) -> bool:
        return any(not any(getattr(arguments, name) for name in some) for some in self.needs)


_GENES = (("reference",), ("annotation",))
_TASKS = {
    "sequence_recovery": _Task(_recovery),
    "heldout_likelihood": _Task(_likelihood),
    "variant_auroc": _Task(_variants, (("vcf",), ("reference",)), "--vcf (scored) and --reference"),
    "reading_frame": _Task(_frame, _GENES, "--annotation and --reference"),
    "codon_adaptation": _Task(
        _adaptation,
        (*_GENES, ("codon_usage", "finetuned_genes")),
        "--annotation, --reference, and --codon-usage or --finetuned-genes",
    ),
    "consequence_auroc": _Task(_consequences, _GENES, "--annotation and --reference"),
}


def _chosen_tasks(arguments: argparse.Namespace) -> list[str]:
    """Return the names of tasks; `all` are those that there is something to measure with."""
    if arguments.tasks == "all":
        for name, task in _TASKS.items():
            if task.lacks(arguments):
                say(f"without {task.how} there is no {name}")
        return [name for name, task in _TASKS.items() if not task.lacks(arguments)]
    names: list[str] = arguments.tasks.split(",")
    for name in names:
        if name not in _TASKS:
            raise ConfigError(f"--tasks {name}: choose from {', '.join(_TASKS)}")
        if _TASKS[name].lacks(arguments):
            raise ConfigError(f"task {name}: give {_TASKS[name].how}")
    return names


def run_heldout(arguments: argparse.Namespace) -> None:
    """Measure a model on the held-out records of a corpus; write results.json."""
    names = _chosen_tasks(arguments)
    check_folder(arguments.output)
    material = Material(arguments)
    results = {name: _TASKS[name].measure(material) for name in names}
    results["overlap_with_train"] = overlap_with_train(material.all_train(), material.test)
    arguments.output.mkdir(parents=True, exist_ok=True)
    with atomic_file(arguments.output / "results.json") as temporary:
        temporary.write_text(
            json.dumps(results, indent=1, allow_nan=False) + "\n", encoding="utf-8"
        )
    for name, result in results.items():
        say(meaning_of(name, result))
    print(json.dumps({name: result["value"] for name, result in results.items()}))


def run_report(arguments: argparse.Namespace) -> None:
    """Write one HTML page about a training run and what was measured, and the key numbers."""
    results = arguments.results / "results.json"
    write_report(
        arguments.output,
        title=arguments.title,
        run=arguments.folder,
        results=results,
        generated=arguments.generated,
    )
    if arguments.numbers:
        with atomic_file(arguments.numbers) as temporary:
            numbers = key_numbers(arguments.folder, results)
            temporary.write_text(json.dumps(numbers, indent=1) + "\n", encoding="utf-8")
