"""`carbon predict`: what an adapted model says of sequences, places or variants."""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import get_args

from carbon.adapt.choices import TOO_LONG
from carbon.io.tables import FORMATS, any_of
from carbon.options import STRANDS_READ, Dtype
from carbon.parallel.options import add_resume, add_workers, loaded_device, workers_of
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
        help=f"{any_of(FORMATS['table'])} to write; of a VCF .vcf or .vcf.gz too",
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
    verb.add_argument(
        "--device", default="auto", help="cpu, cuda, a list such as cuda:0,cuda:1, or auto"
    )
    verb.add_argument("--dtype", choices=get_args(Dtype), default="float32")
    add_workers(verb)
    add_resume(verb)
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.adapt.folder import read_manifest

    read_manifest(arguments.model)

    from carbon.adapt.prediction_files import PredictWorker, check_job, run_predict_job
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
    loading = {"base": arguments.base, "device": loaded_device(arguments)}
    make = partial(PredictWorker.load, job, arguments.dtype, loading)
    with workers_of(arguments, make) as workers:
        print(json.dumps(run_predict_job(job, arguments.dtype, workers)))
