"""`carbon finetune` and `carbon predict`: fine-tune a model on labels, and predict labels."""

import os
from functools import partial
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from carbon.commands.shared import WORKERS, Contigs, File, Positive, Workers, one_of
from carbon.console import print_summary
from carbon.finetune.config import TOO_LONG
from carbon.inference.options import Dtype, Strands
from carbon.io.tables import FORMATS, any_of
from carbon.parallel.options import WorkerOptions, loaded_device, workers_of

_WHAT = one_of("What, one of these", is_required=True)
_OUTPUT = f"{any_of(FORMATS['table'])} to write; of a VCF .vcf or .vcf.gz too."


def finetune(
    *,
    config: Annotated[str | None, Parameter(group=_WHAT, metavar="FILE|NAME")] = None,
    report: Annotated[Path | None, Parameter(group=_WHAT, metavar="FOLDER")] = None,
    overrides: Annotated[tuple[str, ...], Parameter(metavar="KEY=VALUE")] = (),
    seeds: Positive | None = None,
    dry_run: bool = False,
    resume: bool = False,
    processes: int | None = None,
    ray: str | None = None,
) -> None:
    """Fine-tune a model on labelled sequences.

    Writes a folder for `carbon predict`, with the scores of the model and of baselines. On many
    devices: torchrun
    --nproc-per-node N -m carbon finetune --config FILE.

    Args:
        config: TOML, or a published task of docs/finetuning.md, such as deepstarr.
        report: write report and card of an existing folder again, without training.
        overrides: change a value, such as method.name=probe; may be repeated.
        seeds: train this number of seeds, from 0, as an ensemble.
        dry_run: read and check, and print the resolved settings, without training.
        resume: continue a run that was stopped.
        processes: worker processes for the trials of a search.
        ray: HOST:PORT of the head node of the Ray cluster for the trials of a search.
    """
    if report is not None:
        _report(report)
        return
    assert config is not None  # the group requires one of them

    from carbon.finetune.recipes import read_run, recipe_of

    if seeds is not None:
        overrides = (*overrides, f"seeds={list(range(seeds))}")
    settings = read_run(config, overrides)

    from carbon.finetune.job import plan_finetune, run_finetune

    workers = WorkerOptions(processes=processes, ray=ray)
    if dry_run:
        print_summary(plan_finetune(settings, workers))
        return
    rank = int(os.environ.get("RANK", "0"))
    results = run_finetune(settings, resume=resume, rank=rank, workers=workers)
    if rank == 0:
        recipe = recipe_of(config)
        published = {"published": recipe.published} if recipe else {}
        print_summary({"output": settings.output, **_short(results), **published})


def _report(folder: Path) -> None:
    """Write report and card of a folder again, and print their paths."""
    from carbon.reports.figures import check_installed

    check_installed("matplotlib", "finetune")

    from carbon.finetune.report import write_pages
    from carbon.finetune.results import read_findings

    report, card = write_pages(folder, read_findings(folder))
    print_summary({"report": str(report), "card": str(card)})


def _short(results: dict[str, Any]) -> dict[str, Any]:
    """Return the score that selected the model, for every predictor."""
    name = results["chosen_by"]
    return {
        "score": name,
        "test": {predictor: scores[name] for predictor, scores in results["test"].items()},
        "model_minus": {
            predictor: scores[name] for predictor, scores in results["model_minus"].items()
        },
        "split_sha256": results["split_sha256"],
    }


def predict(
    source: Annotated[File, Parameter(name="INPUT")],
    /,
    *,
    model: Path,
    output: Annotated[Path, Parameter(help=_OUTPUT, metavar="FILE")],
    reference: Path | None = None,
    contigs: Contigs = None,
    window_bp: int | None = None,
    strands: Strands | None = None,
    too_long: Annotated[str | None, Parameter(choices=tuple(TOO_LONG))] = None,
    base: str | None = None,
    dtype: Dtype = "float32",
    workers: Workers = WORKERS,
) -> None:
    """Predict labels with a model that `carbon finetune` wrote.

    Writes probabilities, or numbers in the unit of the training table. For a VCF: with ALT, with
    REF, and their difference. Memory does not grow with the file.

    Args:
        source: FASTA, FASTQ, BED (.bed), VCF or BCF, plain, gzip or bgzip.
        model: folder that `carbon finetune` wrote.
        output: predictions.
        reference: FASTA that a BED or VCF refers to.
        window_bp: bases around the middle of an interval (0: the interval) or a variant; default:
            as in training.
        strands: strands to read; default: as in training.
        too_long: how to read sequences longer than the context; default: as in training.
        base: folder of the base model, if it was moved.
        dtype: type of weights and activations.
    """
    from carbon.finetune.folder import read_manifest

    read_manifest(model)

    from carbon.finetune.predict_job import PredictJob, PredictWorker, check_job, run_predict_job

    job = PredictJob(
        model=model,
        source=Path(source),
        output=output,
        reference=reference,
        contigs=contigs,
        window_bp=window_bp,
        strands=strands,
        too_long=too_long,
    )
    check_job(job)
    keywords = {"base": base, "device": loaded_device(workers)}
    make = partial(PredictWorker.load, job, dtype, keywords)
    with workers_of(workers, make) as pool:
        print_summary(run_predict_job(job, dtype, pool))
