"""Files of sequences, places or variants in; predictions out, in flat memory, with a journal."""

import base64
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from carbon.__version__ import __version__
from carbon.errors import UserError
from carbon.finetune.config import FORMATS
from carbon.finetune.folder import content_of, read_manifest
from carbon.finetune.prediction_sources import (
    BedSource,
    Described,
    Floats32,
    Item,
    PredictJob,
    SequenceSource,
    Source,
    VariantSource,
)
from carbon.genome.bed import is_bed
from carbon.genome.contig_names import names_table
from carbon.genome.vcf import holds_variants
from carbon.inference.options import Dtype
from carbon.io.files import atomic_file, check_no_input, content_sha256, output_path, why_no_file
from carbon.parallel.driver import Job, Workers, in_blocks, run_job
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.finetune.predict import FinetunedModel

_BLOCK_ITEMS, _BLOCK_BP = 256, 1_000_000  # predicted together, and kept together

SOURCES: dict[str, Callable[[Described, PredictJob], Source]] = {
    "sequences": SequenceSource,
    "bed": BedSource,
    "vcf": VariantSource,
}


def form_of(path: Path) -> str:
    """Return what a source is, a key of `SOURCES`: a VCF or BCF by its content, a BED by its name.

    A file with the name of a VCF and other content counts as a VCF, which its reader refuses.
    """
    if holds_variants(path) or path.name.lower().endswith(FORMATS["vcf"].endings):
        return "vcf"
    return "bed" if is_bed(path) else "sequences"


def check_job(job: PredictJob) -> str:
    """Return the form of the source, all that needs no model checked.

    Raises:
        UserError: a file is absent, or the reference is not named, or named in vain.
    """
    form = form_of(job.source)
    if str(job.source) == "-" or not job.source.is_file():
        why = "is read more than once" if str(job.source) == "-" else why_no_file(job.source)
        raise UserError(f"{job.source}: {why}; give a FASTA, FASTQ, BED or VCF file")
    if form != "sequences" and job.reference is None:
        raise UserError(f"{job.source}: has places and no sequence; give --reference")
    if form == "sequences" and job.reference is not None:
        raise UserError(f"{job.source}: has its own sequences; take --reference out")
    output_path(job.output)
    check_no_input(job.output, job.source, job.reference, names_table(job.contigs))
    return form


class PredictWorker:
    """A worker: named sequences in, their predictions out.

    Attributes:
        about: what the predictions follow from, beside the source, and `room_bp`: bases of the
            longest sequence that the model reads whole.
    """

    def __init__(self, finetuned: "FinetunedModel", job: PredictJob, dtype: str) -> None:
        """Take a loaded model."""
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
        """Return a worker with the model of a job, loaded with keywords of `load_finetuned`."""
        from carbon.finetune.load import load_finetuned

        return cls(load_finetuned(job.model, dtype=dtype, **loading), job, dtype)

    def __call__(self, payload: tuple[list[str], list[str]]) -> list[str]:
        """Return the prediction of every sequence, as text."""
        names, sequences = payload
        found = self._finetuned.predict_block(sequences, names, self._strands, self._too_long)
        return [base64.b64encode(each.tobytes()).decode() for each in found]


def run_predict_job(job: PredictJob, dtype: str, workers: Workers) -> dict[str, Any]:
    """Predict a file into another, which appears when it is whole.

    Args:
        job: what to predict.
        dtype: of the model, for the record.
        workers: each a `PredictWorker` of this job.

    Returns:
        The summary.

    Raises:
        UserError: the source or the output is not possible; the message names file and record.
    """
    form = check_job(job)
    about = workers.about()
    finetuned = Described(read_manifest(job.model), about["room_bp"])
    source = SOURCES[form](finetuned, job)
    settings = {
        "model": str(job.model),
        "kind": finetuned.question.kind,
        "outputs": list(finetuned.output_names),
        "strands": job.strands or finetuned.manifest.strands,
        "too_long": job.too_long or finetuned.manifest.too_long,
        "window_bp": finetuned.manifest.window_bp if job.window_bp is None else job.window_bp,
        "dtype": dtype,
    }
    work = Job(
        description="predicting, records",
        output=job.output,
        settings=settings | about | _fingerprints(job),
        check=source.check,
        blocks=lambda: in_blocks(
            source.items(), _BLOCK_ITEMS, _BLOCK_BP, lambda item: sum(map(len, item.sequences))
        ),
        payload=_payload,
        source=str(job.source),
        resume=job.resume,
    )
    counts = run_job(
        work, workers, lambda results: _write(finetuned, source, job, settings, results)
    )
    if counts["without"]:
        say(f"warning: {counts['without']} sequences have no known base, and no prediction")
    if counts.get("bases_without"):
        say(
            f"warning: {counts['bases_without']} bases of other sequences have no prediction: they "
            "are cut off, or lie in windows without a known base"
        )
    return {"output": str(job.output), **counts, **settings}


def _payload(block: list[Item]) -> tuple[list[str], list[str]]:
    """Return the names and the sequences of a block."""
    names = [name for item in block for name in item.names]
    return names, [sequence for item in block for sequence in item.sequences]


def _write(
    finetuned: Described,
    source: Source,
    job: PredictJob,
    settings: dict[str, Any],
    results: Iterator[tuple[list[Item], list[str]]],
) -> dict[str, int]:
    """Write the output; return what is in it."""
    counts = {"records": 0, "predictions": 0, "without": 0}
    if finetuned.question.per_base:
        counts["bases_without"] = 0
    with atomic_file(job.output) as temporary, source.written(temporary, settings) as write:
        for block, texts in results:
            arrays = (_array(finetuned, text) for text in texts)
            for item in block:
                found = [next(arrays) for _ in item.sequences]
                write(item, found)
                counts["records"] += 1
                counts["predictions"] += len(found)
                _count_without(counts, found)
    source.finish()
    return counts


def _count_without(counts: dict[str, int], found: list[Floats32]) -> None:
    """Count sequences without a prediction, and bases without one in the others."""
    for each in found:
        is_without = np.isnan(each)
        counts["without"] += bool(is_without.all())
        if "bases_without" in counts and not is_without.all():
            counts["bases_without"] += int(is_without[:, 0].sum())


def _fingerprints(job: PredictJob) -> dict[str, Any]:
    """Return what distinguishes the inputs from others of the same names."""
    table = names_table(job.contigs)
    return {
        "carbon": __version__,
        "source": content_sha256(job.source),
        "fine-tuned model": content_of(job.model),
        "reference": content_sha256(job.reference) if job.reference else None,
        "contigs": content_sha256(table) if table and table.is_file() else job.contigs,
    }


def _array(finetuned: Described, text: str) -> Floats32:
    array = np.frombuffer(base64.b64decode(text), np.float32)
    question = finetuned.question
    return array.reshape(-1, question.num_outputs) if question.per_base else array
