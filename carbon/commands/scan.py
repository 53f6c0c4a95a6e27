"""`carbon scan`: score every base and every SNV of a region, gene or contig."""

import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from carbon.commands.shared import (
    METHOD,
    NONE,
    WORKERS,
    Contigs,
    Loading,
    Natural,
    Offsets,
    Several,
    Workers,
    check_inputs,
    one_of,
    options,
)
from carbon.commands.workers import scan_worker
from carbon.inference.options import ScanOptions, Strands
from carbon.parallel.options import workers_of

if TYPE_CHECKING:
    Method = dict[str, Any]  # `ScanOptions`, and the strand of a gene
else:
    Method = options(ScanOptions, METHOD, offsets=Offsets, strands=Literal[Strands, "gene"])

_PLACE = one_of("Place, one of these", is_required=True)


def scan(
    *,
    loading: Loading,
    reference: Path,
    output: Several,
    region: Annotated[str | None, Parameter(group=_PLACE, metavar="CHR:FIRST-LAST")] = None,
    regions_file: Annotated[Path | None, Parameter(group=_PLACE, metavar="BED")] = None,
    contig: Annotated[str | None, Parameter(group=_PLACE, metavar="NAME")] = None,
    genome: Annotated[bool, Parameter(group=_PLACE)] = False,
    gene: Annotated[str | None, Parameter(group=_PLACE, metavar="NAME")] = None,
    annotation: Path | None = None,
    contigs: Contigs = None,
    flank_bp: Natural = 0,
    plot: Path | None = None,
    method: Method = NONE,
    dry_run: bool = False,
    workers: Workers = WORKERS,
) -> None:
    """Score every base and every SNV of a region, gene or contig.

    Writes log p(base | all bases to its left) of A, C, G and T for every base, in nats. The delta
    of an SNV is log p(ALT) - log p(REF): negative means that the model finds the variant less
    likely. --strands gene reads the strand of the gene.

    Args:
        reference: FASTA, plain, bgzip or gzip.
        output: one or more of .parquet, .tsv and .bw. A track has the mean delta, or the value in
            its name: .mean_delta.bw, .worst_delta.bw, .log_p_ref.bw, .entropy_nats.bw. With
            --genome, a .parquet is a folder with a file for each contig.
        region: 1-based, both ends included.
        regions_file: all regions of a file.
        contig: a whole contig.
        genome: all contigs of the reference.
        gene: name or identifier, with --annotation.
        annotation: GFF3, GTF, BED or GenBank, plain or gzip.
        flank_bp: bases added on both sides.
        plot: heat map, .png, .svg or .pdf.
        dry_run: report tokens, hours and bytes, and write nothing.
    """
    check_inputs(loading.model, reference, annotation, regions_file)
    from carbon.inference.scan import ScanJob, plan_scan_job, run_scan_job

    along_gene = method.get("strands") == "gene"
    options: Any = {name: value for name, value in method.items() if value != "gene"}
    job = ScanJob(
        model=loading.model,
        reference=reference,
        outputs=tuple(map(Path, output)),
        region=region,
        contig=contig,
        gene=gene,
        genome=genome,
        regions=regions_file,
        annotation=annotation,
        flank_bp=flank_bp,
        plot=plot,
        along_gene=along_gene,
        contigs=contigs,
        options=options,
        resume=workers.resume,
    )
    if dry_run:
        print(json.dumps(plan_scan_job(lambda: loading.load(workers.device).runner, job)))
        return
    make = partial(scan_worker, loading.worker_keywords(workers))
    print(json.dumps(run_scan_job(job, make, partial(workers_of, workers))))
