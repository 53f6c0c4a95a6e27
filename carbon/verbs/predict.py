"""`carbon predict`: what an adapted model says of sequences, places or variants."""

import argparse
from pathlib import Path
from typing import get_args

from carbon.adapt.choices import TOO_LONG
from carbon.blocks.crew import add_crew, crew_of, tell
from carbon.options import STRANDS_READ, Dtype
from carbon.tables import TABLE_WRITERS, any_of
from carbon.verbs.common import Verbs, add_contigs


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "predict",
        help="predict labels with what `carbon adapt` wrote",
        description="Writes probabilities, or numbers in the unit they were learned in. Of a VCF: "
        "with ALT, with REF, and their difference. Memory does not grow with the file.",
    )
    verb.add_argument("--model", required=True, help="folder that `carbon adapt` wrote")
    verb.add_argument("input", help="FASTA, FASTQ, BED (.bed), VCF or BCF, plain, gzip or bgzip")
    verb.add_argument(
        "--output",
        required=True,
        metavar="FILE",
        help=f"{any_of(TABLE_WRITERS)} to write; of a VCF .vcf or .vcf.gz too",
    )
    verb.add_argument("--reference", metavar="FASTA", help="that a BED or VCF refers to")
    add_contigs(verb)
    verb.add_argument(
        "--window",
        type=int,
        metavar="BP",
        help="bases around the middle of a place (0: the place) or a variant; default: as learned",
    )
    verb.add_argument("--strands", choices=STRANDS_READ, help="that are read; default: as learned")
    verb.add_argument(
        "--too-long",
        choices=TOO_LONG,
        help="of sequences that the context does not hold; default: as learned",
    )
    verb.add_argument("--base", metavar="FOLDER", help="the base model, if not where it lay")
    verb.add_argument("--device", default="auto", help="cpu, cuda, or auto (default)")
    verb.add_argument("--dtype", choices=get_args(Dtype), default="float32")
    add_crew(verb)
    verb.add_argument("--resume", action="store_true", help="go on where a run was stopped")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.adapt.folder import read_manifest

    read_manifest(arguments.model)

    with crew_of(arguments) as crew:
        from carbon.adapt.loading import load_adapted
        from carbon.adapt.prediction_files import check_job, run_predict_job
        from carbon.adapt.prediction_sources import PredictJob

        job = PredictJob(
            model=Path(arguments.model),
            source=Path(arguments.input),
            output=Path(arguments.output),
            reference=Path(arguments.reference) if arguments.reference else None,
            contigs=arguments.contigs,
            window_bp=arguments.window,
            strands=arguments.strands,
            too_long=arguments.too_long,
            resume=arguments.resume,
        )
        check_job(job)
        adapted = load_adapted(
            arguments.model, base=arguments.base, device=arguments.device, dtype=arguments.dtype
        )
        tell(run_predict_job(adapted, job, arguments.dtype, crew))
