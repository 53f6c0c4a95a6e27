"""Files of sequences, places or variants in; predictions out, in flat memory, with a journal."""

import base64
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from carbon.__version__ import __version__
from carbon.adapt.choices import FORMATS
from carbon.adapt.contents import content_of
from carbon.adapt.prediction_sources import (
    BedSource,
    Floats32,
    Item,
    PredictJob,
    SequenceSource,
    Source,
)
from carbon.adapt.predictor import Adapted
from carbon.adapt.variant_predictions import VariantSource
from carbon.blocks.crew import Crew
from carbon.blocks.work import Work, run_work
from carbon.console import say
from carbon.errors import UserError
from carbon.files import atomic_file, check_no_input, output_path, why_no_file
from carbon.genome.bed import is_bed
from carbon.genome.contig_names import names_table
from carbon.genome.vcf_lines import holds_variants
from carbon.options import Strands
from carbon.sums import content_sha256

_BLOCK_ITEMS, _BLOCK_BP = 256, 1_000_000  # predicted together, and kept together

SOURCES: dict[str, Callable[[Adapted, PredictJob], Source]] = {
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


def run_predict_job(
    adapted: Adapted, job: PredictJob, dtype: str, crew: Crew | None = None
) -> dict[str, Any] | None:
    """Predict a file into another, which appears when it is whole.

    Args:
        adapted: the model.
        job: what to predict.
        dtype: of the model, for the record.
        crew: the processes that share it; None for this one alone.

    Returns:
        What was done; None where another process of the crew writes the file.

    Raises:
        UserError: the source or the output is not possible; the message names file and record.
    """
    source = SOURCES[check_job(job)](adapted, job)
    strands, too_long = (
        job.strands or adapted.manifest.strands,
        job.too_long or adapted.manifest.too_long,
    )
    settings = {
        "model": str(job.model),
        "kind": adapted.question.kind,
        "outputs": list(adapted.output_names),
        "strands": strands,
        "too_long": too_long,
        "window_bp": adapted.manifest.window_bp if job.window_bp is None else job.window_bp,
        "dtype": dtype,
    }
    work = Work(
        what="predicting, records",
        output=job.output,
        job=settings | _fingerprints(job),
        check=source.check,
        blocks=lambda: _blocks(source.items()),
        block_records=_BLOCK_ITEMS,
        even=False,
        compute=lambda block: _predicted(adapted, block, strands, too_long),
        resume=job.resume,
    )
    counts = run_work(work, crew, lambda results: _write(adapted, source, job, settings, results))
    if counts is None:
        return None
    if counts["without"]:
        say(f"warning: {counts['without']} sequences have no known base, and no prediction")
    if counts.get("bases_without"):
        say(
            f"warning: {counts['bases_without']} bases of other sequences have no prediction: they "
            "are cut off, or lie in windows without a known base"
        )
    return {"output": str(job.output), **counts, **settings}


def _write(
    adapted: Adapted,
    source: Source,
    job: PredictJob,
    settings: dict[str, Any],
    results: Iterator[tuple[list[Item], list[str]]],
) -> dict[str, int]:
    """Write the output; return what is in it."""
    counts = {"records": 0, "predictions": 0, "without": 0}
    if adapted.question.per_base:
        counts["bases_without"] = 0
    with atomic_file(job.output) as temporary, source.written(temporary, settings) as write:
        for block, texts in results:
            arrays = (_array(adapted, text) for text in texts)
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
        "adapted model": content_of(job.model),
        "reference": content_sha256(job.reference) if job.reference else None,
        "contigs": content_sha256(table) if table and table.is_file() else job.contigs,
    }


def _predicted(adapted: Adapted, block: list[Item], strands: Strands, too_long: str) -> list[str]:
    """Return the prediction of every sequence, as text."""
    names = [name for item in block for name in item.names]
    sequences = [sequence for item in block for sequence in item.sequences]
    found = adapted.predict_block(sequences, names, strands, too_long)
    return [base64.b64encode(each.tobytes()).decode() for each in found]


def _array(adapted: Adapted, text: str) -> Floats32:
    array = np.frombuffer(base64.b64decode(text), np.float32)
    question = adapted.question
    return array.reshape(-1, question.num_outputs) if question.per_base else array


def _blocks(items: Iterable[Item]) -> Iterator[list[Item]]:
    block: list[Item] = []
    block_bp = 0
    for item in items:
        block.append(item)
        block_bp += sum(map(len, item.sequences))
        if len(block) == _BLOCK_ITEMS or block_bp >= _BLOCK_BP:
            yield block
            block, block_bp = [], 0
    if block:
        yield block
