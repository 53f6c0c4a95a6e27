"""From a genome and its annotation to the folder of the bundled model, in one command.

It builds the corpus, trains (an hour and a half on two cores; the same command goes on after an
interruption), exports, rounds the weights to bfloat16, measures the rounded model on the chromosome
that was held out, and puts all of that into one folder, whole or not at all. The same files,
versions of libraries and processor give the same bytes. With --run it begins behind the training,
with the newest checkpoint of a run that is there.
"""

import argparse
import shutil
from pathlib import Path
from typing import Any

import torch
from bundled_model_folder import make_folder
from bundled_model_steps import BUILD, EVALUATIONS, MAKE, MEASURE_FROM
from quickstart_commands import run_python
from quickstart_steps import Step, words

from carbon.console import Parser, natural, run_command
from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.io.files import behind_links, sha256_of_file, why_no_file
from carbon.pretrained import BUNDLED_MODELS
from carbon.progress import say
from train.config import TrainConfig

_INTERRUPTED = 130
_LOG = "steps.log"
ENTRY = BUNDLED_MODELS["yeast"]
TASKS = "sequence_recovery,heldout_likelihood,reading_frame,codon_adaptation,consequence_auroc"


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    return run_command(lambda: _run(_parser().parse_args()))


def _parser() -> argparse.ArgumentParser:
    found = Parser(prog="scripts/bundled_model", description=__doc__)
    found.add_argument("--genome", type=Path, required=True, help="FASTA of Ensembl, gzip or plain")
    found.add_argument("--annotation", type=Path, required=True, help="GTF of the same release")
    found.add_argument(
        "--output",
        type=Path,
        default=ENTRY.folder,
        help="folder to make (default: the bundled one)",
    )
    found.add_argument(
        "--work",
        type=Path,
        default=Path("runs/bundled_model"),
        help="for what it is made from (runs/bundled_model)",
    )
    found.add_argument("--run", type=Path, help="folder of a run that is there: no training")
    found.add_argument("--corpus", type=Path, help="that this run was trained on")
    found.add_argument("--sites", type=natural, default=1000, help="sites of sequence recovery")
    found.add_argument(
        "--variants-per-kind", type=natural, default=110,
        help="random variants of a kind for percentiles (110)",
    )  # fmt: skip
    found.add_argument(
        "--variants-each", type=natural, default=200, help="damaging variants of a kind (200)"
    )
    found.add_argument("--tasks", default=TASKS, help="of `eval heldout` (default: %(default)s)")
    found.add_argument(
        "--most-bp", type=natural, default=10**9, help="held-out bases to measure (all of them)"
    )
    found.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="change the training recipe, as in `python -m train`",
    )  # fmt: skip
    return found


def _run(asked: argparse.Namespace) -> int:
    values = _values_of(asked)
    output = behind_links(asked.output)
    if output.exists() and (not output.is_dir() or any(output.iterdir())):
        raise UserError(f"{asked.output}: is there already; remove it or name another --output")
    work: Path = values["work"]
    work.mkdir(parents=True, exist_ok=True)
    has_corpus = (values["corpus"] / "manifest.json").is_file()
    if has_corpus:
        _check_corpus(values)
    make = [step for step in MAKE if not (asked.run or (has_corpus and step is BUILD))]
    steps = (*make, *MEASURE_FROM, *EVALUATIONS)
    try:
        for number, step in enumerate(steps, start=1):
            say(f"[{number}/{len(steps)}] {step.says}")
            if code := _ended(step, work, values):
                return code
    except KeyboardInterrupt:
        say("interrupted; the same command goes on")
        return _INTERRUPTED
    measured = {step.name: work / "eval" / step.name for step in EVALUATIONS}
    made = make_folder(
        ENTRY, output, values["run"], values["corpus"], work, measured,
        genome=asked.genome, annotation=asked.annotation,
    )  # fmt: skip
    print(made)
    return 0


def _ended(step: Step, work: Path, values: dict[str, Any]) -> int:
    """Run a step; return its exit code."""
    if step.replaces:
        shutil.rmtree(work / step.replaces, ignore_errors=True)
    log = work / _LOG
    return run_python(list(words(step.command, values)), log).code


def _values_of(asked: argparse.Namespace) -> dict[str, Any]:
    """Return what is put into the commands of the steps.

    Raises:
        UserError: a file or a folder is not there, or options do not go together.
    """
    for path in (asked.genome, asked.annotation):
        if not path.is_file():
            raise UserError(f"{path}: {why_no_file(path)}")
    if asked.corpus and not asked.run:
        raise UserError("--corpus: give the --run that was trained on it")
    if asked.overrides and asked.run:
        raise UserError("--set: changes a training, and with --run there is none; take it out")
    work = behind_links(asked.work)
    run = behind_links(asked.run or work / "run")
    return {
        "processes": 1 if torch.cuda.is_available() else 2,
        "sites": asked.sites,
        "variants_per_kind": asked.variants_per_kind,
        "variants_each": asked.variants_each,
        "tasks": asked.tasks,
        "contig": ENTRY.held_out_contig,
        "most_bp": asked.most_bp,
        "genome": behind_links(asked.genome),
        "annotation": behind_links(asked.annotation),
        "work": work,
        "run": run,
        "corpus": behind_links(asked.corpus or (_corpus_of(run) if asked.run else work / "corpus")),
        "changes": [word for each in asked.overrides for word in ("--set", each)],
    }


def _check_corpus(values: dict[str, Any]) -> None:
    """Raise UserError unless the corpus was built from the files that are given."""
    inputs = read_manifest(values["corpus"])["inputs"]
    built_from = {file["sha256"] for each in inputs for file in each["files"]}
    for path in (values["genome"], values["annotation"]):
        if sha256_of_file(path) not in built_from:
            raise UserError(
                f"{values['corpus']}: was not built from {path}; give the files that it was built "
                "from, or name another --work"
            )


def _corpus_of(run: Path) -> Path:
    """Return the corpus that a run says it reads."""
    return Path(TrainConfig.load(run / "config.toml").data.corpus)


if __name__ == "__main__":
    raise SystemExit(main())
