"""`carbon scan`: every base of a region or of a gene, and every SNV with it."""

import argparse
import json
from functools import partial
from pathlib import Path

from carbon.console import natural
from carbon.verbs.common import Verbs, add_model, frames, load


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
    place.add_argument("--contig", metavar="NAME", help="the whole of a contig")
    place.add_argument("--gene", metavar="NAME", help="name or identifier, with --annotation")
    verb.add_argument("--annotation", metavar="GFF", help="GFF3 or GTF, plain or gzip")
    verb.add_argument("--flank", type=natural, default=0, metavar="BP", help="added on both sides")
    verb.add_argument(
        "--output",
        nargs="+",
        required=True,
        metavar="OUT",
        help="one or more of .parquet, .tsv and .bw, whose track is the mean delta, or what the "
        "name says: .worst_delta.bw, .log_p_ref.bw, .entropy_nats.bw",
    )
    verb.add_argument("--plot", metavar="OUT.png", help="a heat map, .png, .svg or .pdf")
    verb.add_argument("--frames", type=frames, help="such as 0,2,4, or all; default: 0")
    verb.add_argument("--combine", choices=["mean", "token_start"], default="mean")
    verb.add_argument("--window", type=int, metavar="BP", help="default: 48000, or what fits")
    verb.add_argument("--least-context", type=int, metavar="BP", help="default: half of the window")
    verb.add_argument(
        "--strands",
        choices=["forward", "reverse", "both", "gene"],
        default="forward",
        help="gene: the strand that it is on",
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.inference.scan.files import ScanJob, run_scan_job

    along_gene = arguments.strands == "gene"
    job = ScanJob(
        model=arguments.model,
        reference=Path(arguments.reference),
        outputs=tuple(map(Path, arguments.output)),
        region=arguments.region,
        contig=arguments.contig,
        gene=arguments.gene,
        annotation=Path(arguments.annotation) if arguments.annotation else None,
        flank_bp=arguments.flank,
        plot=Path(arguments.plot) if arguments.plot else None,
        along_gene=along_gene,
        method={
            "frames": arguments.frames,
            "combine": arguments.combine,
            "window_bp": arguments.window,
            "least_context_bp": arguments.least_context,
            "strands": "forward" if along_gene else arguments.strands,
            "tags": arguments.tags,
        },
    )
    print(json.dumps(run_scan_job(partial(load, arguments), job, arguments.dtype)))
