"""Models through the tasks of the field: `python -m eval run|report|list|build`.

`heldout` and `heldout-report` measure a training run on what its corpus held out.
"""

import argparse
from pathlib import Path

from carbon.console import Parser, natural, natural_numbers, run_command
from carbon.io.locks import locked_folder
from carbon.launcher import end_with_launcher
from carbon.parallel.options import add_resume, add_workers, start_early, worker_options
from eval.run_sizes import RUN_SIZES


def main(argv: list[str] | None = None) -> int:
    """Run one command; return its exit code."""
    end_with_launcher()

    def run() -> int | None:
        arguments = _parser().parse_args(argv)
        start_early(worker_options(arguments))
        return arguments.run(arguments)  # type: ignore[no-any-return]

    return run_command(run)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="python -m eval", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    verbs = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_run_parser(verbs.add_parser("run", help="measure models; writes a record each"))
    _add_report_parser(verbs.add_parser("report", help="one HTML page, Markdown and CSV"))
    _add_list_parser(verbs.add_parser("list", help="tasks, their data, and what runs offline"))
    _add_build_parser(verbs.add_parser("build", help="a task's dataset, from primary sources"))
    _add_heldout_parser(
        verbs.add_parser("heldout", help="measure a model on what a corpus held out")
    )
    _add_heldout_report_parser(
        verbs.add_parser("heldout-report", help="one HTML page about a training run")
    )
    return parser


def _add_run_parser(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--model", action="append", required=True, metavar="[NAME=]MODEL", dest="models",
        help="model folder, or name of a bundled or Hub model, Carbon or any causal model of DNA; "
        "may be repeated",
    )  # fmt: skip
    verb.add_argument("--tasks", default="all", help="all (those with data), or names with commas")
    verb.add_argument("--output", type=Path, required=True, help="folder of the records")
    _add_data_argument(verb)
    verb.add_argument(
        "--reference", action="append", default=[], metavar="[TASK=]FASTA", dest="references",
        help="genome of the variants; may be repeated for tasks of other assemblies",
    )  # fmt: skip
    verb.add_argument(
        "--train", action="append", default=[], type=Path, metavar="FASTA|PARQUET",
        help="sequences that the Markov baselines are fitted on, or the source folder of a corpus; "
        "may be repeated",
    )  # fmt: skip
    verb.add_argument(
        "--orders", type=natural_numbers,
        help="orders of the interpolated Markov baselines, 0 to 16, with commas",
    )  # fmt: skip
    verb.add_argument(
        "--codon-periodic", metavar="FASTA,ANNOTATION,CORPUS",
        help="add a codon-periodic Markov baseline, fitted on an annotated genome outside of the "
        "regions that a corpus held out",
    )  # fmt: skip
    verb.add_argument(
        "--columns", type=_words, default=[],
        help="columns of variants to rank by, higher is more damaging: phyloP,CADD",
    )  # fmt: skip
    verb.add_argument("--preset", choices=sorted(RUN_SIZES), default="published")
    verb.add_argument("--max-samples", type=natural, help="most examples a task")
    verb.add_argument("--seed", type=natural, default=0, help="of the choice of examples")
    verb.add_argument(
        "--dtype", type=_words, default=["float32"], dest="dtypes",
        help="float32, bfloat16, or both with a comma, for the gap between them",
    )  # fmt: skip
    verb.add_argument(
        "--device", default="auto", help="cpu, mps, cuda, a list such as cuda:0,cuda:1, or auto"
    )
    verb.add_argument("--yarn", type=float, metavar="FACTOR", help="stretch Carbon's context")
    add_workers(verb)
    add_resume(verb)
    verb.set_defaults(run=_run)


def _add_data_argument(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "--data", action="append", default=[], metavar="FOLDER|TASK=PATH", dest="datasets",
        help="folder with TASK.parquet, or one dataset; without it the Hub; may be repeated",
    )  # fmt: skip


def _add_report_parser(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="--output of `run`")
    verb.add_argument("--output", type=Path, help="folder to write to; the first DIR if not given")
    verb.add_argument("--title", default="Evaluation")
    verb.add_argument(
        "--run", type=Path, dest="training", help="folder of a training run, to show its loss"
    )
    verb.add_argument("--generated", type=Path, help="FASTA of `carbon generate` to show")
    verb.set_defaults(run=_report)


def _add_list_parser(verb: argparse.ArgumentParser) -> None:
    _add_data_argument(verb)
    verb.set_defaults(run=_list)


def _add_build_parser(verb: argparse.ArgumentParser) -> None:
    verb.add_argument(
        "tasks", metavar="TASK[,TASK]", help="the tasks; with --help after it, their options"
    )
    verb.add_argument(
        "options", nargs=argparse.REMAINDER, metavar="--output PATH --option VALUE",
        help="a Parquet file, or a folder for TASK.parquet, and the options of the tasks",
    )  # fmt: skip
    verb.set_defaults(run=_build)


def _add_heldout_parser(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--model", required=True, help="model folder, or the name of a bundled model")
    verb.add_argument(
        "--tasks", default="all",
        help="all that there is something for, or some of sequence_recovery,heldout_likelihood,"
        "variant_auroc,reading_frame,codon_adaptation,consequence_auroc",
    )  # fmt: skip
    verb.add_argument("--corpus", required=True, help="its test records are what is measured on")
    verb.add_argument("--source", help="of the corpus; default: eukaryote, or the first there is")
    verb.add_argument("--vcf", type=Path, help="labelled VCF that `carbon variants` scored")
    verb.add_argument("--reference", type=Path, help="FASTA of that VCF and of the annotation")
    verb.add_argument("--annotation", type=Path, help="GFF3, GTF or BED of the corpus's genome")
    verb.add_argument(
        "--contigs",
        metavar="TABLE|chr",
        help="where the VCF or the annotation names contigs otherwise than the FASTA",
    )
    verb.add_argument(
        "--genetic-code",
        metavar="N|CONTIG=N",
        help="NCBI translation table where the annotation states none; default: 1, and none for "
        "mitochondria",
    )
    finetuned = verb.add_mutually_exclusive_group()
    finetuned.add_argument(
        "--codon-usage", type=Path, help="table of codon usage, for the codon adaptation index"
    )
    finetuned.add_argument(
        "--finetuned-genes", metavar="REGEX",
        help="or the genes whose codons count as fine-tuned, by how their names begin: 'RP[LS]'",
    )  # fmt: skip
    verb.add_argument(
        "--variants-each", type=natural, default=300,
        help="damaging variants of each kind in consequence_auroc",
    )  # fmt: skip
    verb.add_argument("--window-bp", type=natural, help="of the variants of consequence_auroc")
    verb.add_argument("--output", type=Path, required=True, help="folder for results.json")
    verb.add_argument("--sites", type=natural, default=1000, help="sites of sequence recovery")
    verb.add_argument("--most-bp", type=natural, default=200_000, help="bases for the likelihood")
    verb.add_argument("--seed", type=natural, default=0)
    verb.set_defaults(run=_heldout)


def _add_heldout_report_parser(verb: argparse.ArgumentParser) -> None:
    verb.add_argument("--run", type=Path, required=True, help="training run folder", dest="folder")
    verb.add_argument("--results", type=Path, required=True, help="folder with results.json")
    verb.add_argument("--generated", type=Path, help="FASTA that `carbon generate` wrote")
    verb.add_argument("--title", default="A Carbon model")
    verb.add_argument("--output", type=Path, required=True, help="HTML file to write")
    verb.add_argument("--numbers", type=Path, help="JSON file to write, with the key numbers")
    verb.set_defaults(run=_heldout_report)


def _words(text: str) -> list[str]:
    """Read different words with commas between them."""
    return list(dict.fromkeys(part for part in text.split(",") if part))


def _run(arguments: argparse.Namespace) -> None:
    from eval.commands import run_models

    run_models(arguments)


def _report(arguments: argparse.Namespace) -> None:
    from eval.report import write_report

    output = arguments.output or arguments.folders[0]
    more = {"run": arguments.training, "generated": arguments.generated}
    print(write_report(arguments.folders, output, arguments.title, **more))


def _list(arguments: argparse.Namespace) -> None:
    from eval.commands import list_tasks

    list_tasks(arguments)


def _build(arguments: argparse.Namespace) -> None:
    from eval.commands import build_datasets

    build_datasets(arguments.tasks, arguments.options)


def _heldout(arguments: argparse.Namespace) -> None:
    from eval.heldout.command import run_heldout

    with locked_folder(arguments.output):
        run_heldout(arguments)


def _heldout_report(arguments: argparse.Namespace) -> None:
    from eval.heldout.command import run_report

    run_report(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
