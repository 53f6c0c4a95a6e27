"""Predict a file of sequences, intervals or variants into another, resumably."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carbon.__version__ import __version__
from carbon.errors import UserError
from carbon.finetune.config import FORMATS
from carbon.finetune.folder import Manifest, content_of, read_manifest
from carbon.finetune.prediction_sources import (
    BedSource,
    Floats32,
    PredictJob,
    SequenceSource,
    Source,
    SourceRecord,
    VariantSource,
)
from carbon.finetune.tasks import LabelTask
from carbon.genome.bed import is_bed
from carbon.genome.contig_names import names_table
from carbon.genome.vcf import holds_variants
from carbon.inference.options import Dtype
from carbon.io.files import atomic_file, check_no_input, content_sha256, output_path, why_no_file
from carbon.parallel.driver import Job, Workers, in_blocks, run_job
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.finetune.predict import FinetunedModel

_BLOCK_RECORDS, _BLOCK_BP = 256, 1_000_000  # maximum size of a block

SOURCES: dict[str, Callable[[Manifest, int, PredictJob], Source]] = {
    "sequences": SequenceSource,
    "bed": BedSource,
    "vcf": VariantSource,
}


def form_of(path: Path) -> str:
    """Return the type of a source, a key of `SOURCES`: VCF or BCF by content, BED by name.

    A file with the name of a VCF but other content counts as a VCF, which its reader refuses.
    """
    if holds_variants(path) or path.name.lower().endswith(FORMATS["vcf"].endings):
        return "vcf"
    return "bed" if is_bed(path) else "sequences"


def check_job(job: PredictJob) -> str:
    """Return the type of the source after checks that need no model.

    Raises:
        UserError: a file is absent, or `reference` is missing or superfluous.
    """
    form = form_of(job.source)
    if str(job.source) == "-" or not job.source.is_file():
        why = (
            "the input is read more than once"
            if str(job.source) == "-"
            else why_no_file(job.source)
        )
        raise UserError(f"{job.source}: {why}; give a FASTA, FASTQ, BED or VCF file")
    if form != "sequences" and job.reference is None:
        raise UserError(f"{job.source}: has intervals but no sequences; give --reference")
    if form == "sequences" and job.reference is not None:
        raise UserError(f"{job.source}: has its own sequences; remove --reference")
    output_path(job.output)
    check_no_input(job.output, job.source, job.reference, names_table(job.contigs))
    return form


class PredictWorker:
    """A worker that maps named sequences to predictions.

    Attributes:
        about: everything but the source that predictions depend on, and `room_bp`: bases of the
            longest sequence that the model reads whole.
    """

    def __init__(self, finetuned: "FinetunedModel", job: PredictJob, dtype: str) -> None:
        """Store a loaded model."""
        self._finetuned = finetuned
        self._strands = job.strands or finetuned.manifest.strands
        self._too_long = job.too_long or finetuned.manifest.too_long
        self.about = {
            "carbon": __version__,
            "fine-tuned model": content_of(job.model),
            "dtype": dtype,
            "room_bp": finetuned.room_bp,
        }

    @classmethod
    def load(cls, job: PredictJob, dtype: Dtype, loading: dict[str, Any]) -> "PredictWorker":
        """Return a worker with the model of a job; `loading` are keywords of `load_finetuned`."""
        from carbon.finetune.load import load_finetuned

        return cls(load_finetuned(job.model, dtype=dtype, **loading), job, dtype)

    def __call__(self, payload: tuple[list[str], list[str]]) -> list[str]:
        """Return the prediction of every sequence, base64-encoded."""
        names, sequences = payload
        arrays = self._finetuned.predict_block(sequences, names, self._strands, self._too_long)
        return [base64.b64encode(each.tobytes()).decode() for each in arrays]


def run_predict_job(job: PredictJob, dtype: str, workers: Workers) -> dict[str, Any]:
    """Predict a file into another, which appears when it is complete; return the summary.

    Args:
        job: input, output and options.
        dtype: of the model, for the record.
        workers: each a `PredictWorker` of this job.

    Raises:
        UserError: source or output are invalid; the message names file and record.
    """
    form = check_job(job)
    about = workers.about()
    manifest = read_manifest(job.model)
    source = SOURCES[form](manifest, about["room_bp"], job)
    settings = {
        "model": str(job.model),
        "task": manifest.task.type,
        "outputs": list(manifest.task.output_names),
        "strands": job.strands or manifest.strands,
        "too_long": job.too_long or manifest.too_long,
        "window_bp": manifest.window_bp if job.window_bp is None else job.window_bp,
        "dtype": dtype,
    }
    work = Job(
        description="predicting, records",
        output=job.output,
        settings=settings | about | _fingerprints(job),
        check=source.check,
        blocks=lambda: in_blocks(
            source.records(),
            _BLOCK_RECORDS,
            _BLOCK_BP,
            lambda record: sum(map(len, record.sequences)),
        ),
        payload=_payload,
        source=str(job.source),
        resume=job.resume,
    )
    counts = run_job(
        work, workers, lambda results: _write(manifest.task, source, job, settings, results)
    )
    if counts["without"]:
        say(f"warning: {counts['without']} sequences have no known base, and no prediction")
    if counts.get("bases_without"):
        say(
            f"warning: {counts['bases_without']} bases of other sequences have no prediction: they "
            "are cut off, or lie in windows without a known base"
        )
    return {"output": str(job.output), **counts, **settings}


def _payload(block: list[SourceRecord]) -> tuple[list[str], list[str]]:
    """Return the names and the sequences of a block."""
    names = [name for record in block for name in record.names]
    return names, [sequence for record in block for sequence in record.sequences]


def _write(
    task: LabelTask,
    source: Source,
    job: PredictJob,
    settings: dict[str, Any],
    results: Iterator[tuple[list[SourceRecord], list[str]]],
) -> dict[str, int]:
    """Write the output and return its counts."""
    counts = {"records": 0, "predictions": 0, "without": 0}
    if task.per_base:
        counts["bases_without"] = 0
    with atomic_file(job.output) as temporary, source.written(temporary, settings) as write:
        for block, texts in results:
            arrays = (_array(task, text) for text in texts)
            for record in block:
                predictions = [next(arrays) for _ in record.sequences]
                write(record, predictions)
                counts["records"] += 1
                counts["predictions"] += len(predictions)
                _count_without(counts, predictions)
    source.finish()
    return counts


def _count_without(counts: dict[str, int], predictions: list[Floats32]) -> None:
    """Count sequences without a prediction, and bases without one in the others."""
    for each in predictions:
        is_without = np.isnan(each)
        counts["without"] += bool(is_without.all())
        if "bases_without" in counts and not is_without.all():
            counts["bases_without"] += int(is_without[:, 0].sum())


def _fingerprints(job: PredictJob) -> dict[str, Any]:
    """Return hashes that distinguish the inputs from files with the same names."""
    table = names_table(job.contigs)
    return {
        "carbon": __version__,
        "source": content_sha256(job.source),
        "fine-tuned model": content_of(job.model),
        "reference": content_sha256(job.reference) if job.reference else None,
        "contigs": content_sha256(table) if table and table.is_file() else job.contigs,
    }


def _array(task: LabelTask, text: str) -> Floats32:
    array = np.frombuffer(base64.b64decode(text), np.float32)
    return array.reshape(-1, task.num_outputs) if task.per_base else array
