"""`carbon scan`: every base of a region or of a gene, and every SNV with it."""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.console import natural
from carbon.options import COMBINATIONS, STRANDS_READ
from carbon.parallel.options import add_resume, add_workers, workers_of
from carbon.verbs.common import (
    NOT_GIVEN,
    Verbs,
    add_contigs,
    add_model,
    check_inputs,
    frames,
    load,
    loading_of,
    options_of,
)

if TYPE_CHECKING:
    from carbon.inference.scan import ScanJob, ScanOptions, ScanWorker

_OF_GENE = "gene"  # of --strands


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "scan",
        help="score every base and every SNV of a region, gene or contig",
        description="Writes log p(base | all bases to its left) of A, C, G and T for every base, "
        "in nats. The delta of an SNV is log p(ALT) - log p(REF): negative means that the model "
        "finds the variant less likely.",
    )
    add_model(verb)
    verb.add_argument("--reference", required=True, help="FASTA, plain, bgzip or gzip")
    place = verb.add_mutually_exclusive_group(required=True)
    place.add_argument("--region", metavar="CHR:FIRST-LAST", help="1-based, both ends included")
    place.add_argument("--regions-file", metavar="BED", help="all regions of a file")
    place.add_argument("--contig", metavar="NAME", help="the whole of a contig")
    place.add_argument("--genome", action="store_true", help="all contigs of the reference")
    place.add_argument("--gene", metavar="NAME", help="name or identifier, with --annotation")
    verb.add_argument(
        "--annotation", metavar="FILE", help="GFF3, GTF, BED or GenBank, plain or gzip"
    )
    add_contigs(verb)
    verb.add_argument("--flank", type=natural, default=0, metavar="BP", help="added on both sides")
    verb.add_argument(
        "--output",
        nargs="+",
        required=True,
        metavar="OUT",
        help="one or more of .parquet, .tsv and .bw, whose track is the mean delta, or what the "
        "name says: .mean_delta.bw, .worst_delta.bw, .log_p_ref.bw, .entropy_nats.bw; with "
        "--genome, a .parquet is a folder with a file a contig",
    )
    verb.add_argument("--plot", metavar="OUT.png", help="a heat map, .png, .svg or .pdf")
    _add_method(verb)
    add_workers(verb)
    verb.add_argument(
        "--dry-run", action="store_true", help="tell tokens, hours and bytes, and write nothing"
    )
    add_resume(verb)
    verb.set_defaults(run=run)


def _add_method(verb: argparse.ArgumentParser) -> None:
    """Add what `ScanOptions` has."""
    verb.add_argument(
        "--frames", type=frames, default=NOT_GIVEN, help="such as 0,2,4, or all; default: 0"
    )
    verb.add_argument("--combine", choices=COMBINATIONS, default=NOT_GIVEN)
    verb.add_argument(
        "--window",
        type=int,
        default=NOT_GIVEN,
        dest="window_bp",
        metavar="BP",
        help="default: 48000, or what fits",
    )
    verb.add_argument(
        "--least-context",
        type=int,
        default=NOT_GIVEN,
        dest="least_context_bp",
        metavar="BP",
        help="default: half of the window",
    )
    verb.add_argument(
        "--strands",
        choices=[*STRANDS_READ, _OF_GENE],
        default=NOT_GIVEN,
        help="gene: the strand that it is on",
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    check_inputs(arguments, arguments.reference, arguments.annotation, arguments.regions_file)

    if arguments.dry_run:
        from carbon.inference.scan import plan_scan_job

        print(json.dumps(plan_scan_job(lambda: load(arguments).reader, _job(arguments))))
        return
    from carbon.inference.scan import run_scan_job

    make = partial(scan_worker, loading_of(arguments))
    start = partial(workers_of, arguments)
    print(json.dumps(run_scan_job(_job(arguments), make, start)))


def scan_worker(loading: dict[str, Any], job: "ScanJob", options: "ScanOptions") -> "ScanWorker":
    """Return a worker with the model of a job, loaded with keywords of `carbon.load`."""
    from carbon.inference import load as load_model
    from carbon.inference.scan import ScanWorker

    return ScanWorker(load_model(job.model, **loading).reader, job, options)


def _job(arguments: argparse.Namespace) -> "ScanJob":
    """Return what the command line asks for."""
    from carbon.inference.scan import ScanJob, ScanOptions

    along_gene = getattr(arguments, "strands", None) == _OF_GENE
    if along_gene:
        del arguments.strands
    return ScanJob(
        model=arguments.model,
        reference=Path(arguments.reference),
        outputs=tuple(map(Path, arguments.output)),
        region=arguments.region,
        contig=arguments.contig,
        gene=arguments.gene,
        genome=arguments.genome,
        regions=Path(arguments.regions_file) if arguments.regions_file else None,
        annotation=Path(arguments.annotation) if arguments.annotation else None,
        flank_bp=arguments.flank,
        plot=Path(arguments.plot) if arguments.plot else None,
        along_gene=along_gene,
        contigs=arguments.contigs,
        options=options_of(arguments, ScanOptions),
        resume=arguments.resume,
    )
