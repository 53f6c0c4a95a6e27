"""Compute the dependency map of a region or gene into files, and estimate its cost."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from carbon.errors import UserError
from carbon.genome import (
    Annotation,
    Interval,
    Reference,
    contig_names,
    read_gene_file,
    region_by_name,
)
from carbon.genome.contig_names import names_table
from carbon.inference.dependency.maps import (
    DependencyMap,
    DependencyMethod,
    check_length,
    dependency_map,
    dependency_method_for,
    num_dependency_tokens,
    timed_tokens,
)
from carbon.inference.identity import checksums_of, identity_of
from carbon.inference.jobs import DependencyJob
from carbon.inference.options import input_files
from carbon.inference.scan.job import gene_in_one_part
from carbon.io.files import atomic_file, check_different_files, errors_naming, output_path
from carbon.io.tables import chosen_by_ending
from carbon.progress import progress, say
from carbon.reports.figures import check_installed, check_picture

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

_LEAST_SECONDS = 2.0


class _Opened(NamedTuple):
    """A checked job with its opened files."""

    reference: Reference
    annotation: Annotation | None
    place: Interval


def run_dependency_job(job: DependencyJob, device: str) -> dict[str, Any]:
    """Compute a map into files, which appear when complete; return the summary.

    Raises:
        GenomeError: the region or the gene does not exist, or a file is malformed.
        UserError: an ending, a window or a combination of settings is invalid, or the region is
            longer than window or memory allow.
    """
    with _open(job) as opened:
        runner, method = _checked_method(job, device, opened.place)
        settings = _settings_of(job, runner, opened.place, method)
        identity = identity_of(runner, job.loading.model)
        settings |= checksums_of(identity, opened.reference.contig_lengths_bp)
        tokens = num_dependency_tokens(runner, opened.reference, opened.place, method)
        with progress("dependency map, tokens", tokens) as advance:
            found = dependency_map(runner, opened.reference, opened.place, method, advance)
        _write(job, opened, found, settings)
    known = int(found.known.sum())
    counts = {"bases": len(found.bases), "known_bases": known}
    counts["missing_bases"] = counts["bases"] - known
    counts["masked_bases"] = int(found.masked.sum())
    if counts["masked_bases"]:
        say(
            f"warning: {counts['masked_bases']:,} known bases have no dependencies on a strand: "
            "their tokens have an unknown base at every offset"
        )
    outputs = [str(path) for path in _written_files(job)]
    return {"outputs": outputs} | counts | {"tokens_read": found.tokens_read} | settings


def plan_dependency_job(job: DependencyJob, device: str) -> dict[str, Any]:
    """Estimate the tokens and the time of a map, without writing output.

    Tokens are counted, padding included. The time is extrapolated from the first substitutions,
    which are computed here for at least two seconds.

    Returns:
        `bases`; `tokens`; `tokens_per_second` of this process and `hours`; and the settings.

    Raises:
        GenomeError, UserError: as for `run_dependency_job`.
    """
    with _open(job) as opened:
        runner, method = _checked_method(job, device, opened.place)
        reference, place = opened.reference, opened.place
        tokens = num_dependency_tokens(runner, reference, place, method)
        began, timed, seconds = time.perf_counter(), 0, 0.0
        for step_tokens in timed_tokens(runner, reference, place, method):
            timed, seconds = timed + step_tokens, time.perf_counter() - began
            if seconds > _LEAST_SECONDS:
                break
    speed = timed / seconds if timed else 0.0
    return {
        "bases": place.length_bp,
        "tokens": tokens,
        "tokens_per_second": round(speed),
        "hours": round(tokens / speed / 3600, 4) if speed else 0.0,
    } | _settings_of(job, runner, place, method)


def _checked_method(
    job: DependencyJob, device: str, place: Interval
) -> tuple["ModelRunner", DependencyMethod]:
    runner = job.loading.load(device).runner
    method = dependency_method_for(runner, job.method)
    check_length(place, method)
    return runner, method


@contextmanager
def _open(job: DependencyJob) -> Iterator[_Opened]:
    """Check a job, and open its reference."""
    _check_files(job)
    with Reference(job.reference) as reference:
        lengths_bp = reference.contig_lengths_bp
        names = contig_names(job.contigs, lengths_bp)
        annotation = None
        if job.annotation:
            annotation = read_gene_file(job.annotation, reference, names)
        if job.gene and annotation:
            place = gene_in_one_part(annotation, job.gene, lengths_bp).interval
        else:
            place = region_by_name(job.region or "", lengths_bp, names)
        place = place.widened(job.flank_bp, lengths_bp[place.contig])
        yield _Opened(reference, annotation, place)


def _check_files(job: DependencyJob) -> None:
    written = _written_files(job)
    for path in written[: len(job.output)]:
        chosen_by_ending(path, "dependency map")
    check_picture(job.plot)
    for path in written:
        output_path(path)
    check_different_files(written, *input_files(job), names_table(job.contigs))
    if any(path.suffix == ".bw" for path in written):
        check_installed("pyBigWig")
    if job.gene and not job.annotation:
        raise UserError(f"gene '{job.gene}': give the --annotation that it is in")


def _written_files(job: DependencyJob) -> list[Path]:
    """Return all outputs of a job, the figure last."""
    return [*map(Path, job.output), *([job.plot] if job.plot else [])]


def _settings_of(
    job: DependencyJob, runner: "ModelRunner", place: Interval, method: DependencyMethod
) -> dict[str, Any]:
    return {
        "model": job.loading.model,
        "yarn": runner.yarn,
        "protocol": "dependency",
        "region": place.to_region(),
        "gene": job.gene,
        **({"contigs": job.contigs} if job.contigs else {}),
        **asdict(method),
        "strands": "both",
        "dtype": runner.dtype,
        "values": "max over bases and substitutions of |change of log2 odds|",
        "position": "1-based",
    }


def _write(
    job: DependencyJob, opened: _Opened, found: DependencyMap, settings: dict[str, Any]
) -> None:
    """Write all outputs and rename them to their final names."""
    with ExitStack() as files:
        where = {path: files.enter_context(atomic_file(path)) for path in _written_files(job)}
        for path in map(Path, job.output):
            with errors_naming(path):
                write = chosen_by_ending(path, "dependency map")
                write(where[path], found, opened.reference.contig_lengths_bp, settings)
        if job.plot:
            _draw(job, opened, found, where[job.plot])


def _draw(job: DependencyJob, opened: _Opened, found: DependencyMap, path: Path) -> None:
    from carbon.inference.dependency.figure import draw_dependency

    genes = opened.annotation.genes if opened.annotation else ()
    shown = [gene for gene in genes if gene.interval.overlaps(opened.place)]
    gene = f"{job.gene}, " if job.gene else ""
    draw_dependency(found, shown, path, f"{gene}{opened.place.to_region()} (dependency map)")
