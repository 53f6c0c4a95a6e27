"""`carbon variants`: a VCF in, a scored VCF or table out."""

import argparse
import json
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from carbon.parallel.options import add_resume, add_workers, workers_of
from carbon.tables import TABLE_WRITERS, any_of
from carbon.verbs.common import (
    Verbs,
    add_contigs,
    add_genetic_code,
    add_gone,
    add_model,
    add_variant_method,
    check_genetic_code,
    check_inputs,
    loading_of,
    options_of,
)

if TYPE_CHECKING:
    from carbon.inference.variants import VariantJob, VariantScorer


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "variants",
        help="score the variants of a VCF",
        description="Writes log-likelihood(ALT) - log-likelihood(REF) in nats: negative means that "
        "the model finds the variant less likely.",
    )
    add_model(verb)
    verb.add_argument("--reference", required=True, help="FASTA that the VCF refers to")
    verb.add_argument("--vcf", required=True, help="sorted VCF, plain, gzip or bgzip; or BCF")
    verb.add_argument(
        "--output", required=True, help=f"a .vcf, .vcf.gz, {any_of(TABLE_WRITERS)} to write"
    )
    verb.add_argument(
        "--annotation", help="GFF3, GTF, BED or GenBank: write gene, consequence and codon too"
    )
    place = verb.add_mutually_exclusive_group()
    place.add_argument(
        "--region",
        metavar="CHR[:FIRST-LAST]",
        help="score the records whose POS is in it, 1-based, both ends included",
    )
    place.add_argument(
        "--regions-file", metavar="BED", help="score the records whose POS is in one of its regions"
    )
    verb.add_argument(
        "--min-qual",
        type=float,
        metavar="QUAL",
        help="score the records whose QUAL is at least this; a record without QUAL is left out",
    )
    verb.add_argument(
        "--filters",
        metavar="NAME[,NAME...]",
        help="score the records whose FILTER has one of these names, such as PASS; '.' stands for "
        "records that no filter was applied to",
    )
    add_contigs(verb)
    add_genetic_code(verb)
    among = verb.add_mutually_exclusive_group()
    among.add_argument(
        "--background",
        metavar="FILE",
        help="of `carbon background`: write a percentile among random variants too; default: "
        "background.json in the model's folder, if it fits",
    )
    among.add_argument(
        "--no-background", action="store_true", help="write no percentile, whatever there is"
    )
    add_variant_method(verb)
    add_workers(verb)
    add_resume(verb)
    verb.add_argument(
        "--skip-mismatches",
        action="store_true",
        help="pass over records whose REF cannot stand in the reference",
    )
    verb.add_argument(
        "--strict", action="store_true", help="refuse a VCF that breaks any rule of its format"
    )
    add_gone(verb, "--lenient", "a VCF is read so without it; --strict refuses what breaks a rule")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    folder = check_inputs(
        arguments,
        arguments.reference,
        arguments.vcf,
        arguments.annotation,
        arguments.background,
        arguments.regions_file,
    )
    check_genetic_code(arguments)

    from carbon.inference.background import FILE_NAME
    from carbon.inference.variants import (
        VariantJob,
        VariantOptions,
        run_variant_job,
        variant_writer,
    )

    variant_writer(arguments.output)  # a wrong ending is known before anything is loaded
    job = VariantJob(
        model=arguments.model,
        reference=Path(arguments.reference),
        vcf=Path(arguments.vcf),
        output=Path(arguments.output),
        options=options_of(arguments, VariantOptions),
        resume=arguments.resume,
        skip_mismatches=arguments.skip_mismatches,
        strict=arguments.strict,
        annotation=Path(arguments.annotation) if arguments.annotation else None,
        contigs=arguments.contigs,
        genetic_code=arguments.genetic_code,
        region=arguments.region,
        regions=Path(arguments.regions_file) if arguments.regions_file else None,
        min_qual=arguments.min_qual,
        filters=tuple(arguments.filters.split(",")) if arguments.filters else (),
        background=Path(arguments.background) if arguments.background else None,
        own_background=None if arguments.no_background else folder / FILE_NAME,
    )
    make = partial(variant_scorer, job, loading_of(arguments))
    with workers_of(arguments, make) as workers:
        print(json.dumps(run_variant_job(job, workers)))


def variant_scorer(job: "VariantJob", loading: dict[str, Any]) -> "VariantScorer":
    """Return a worker with the model of a job, loaded with keywords of `carbon.load`."""
    from carbon.inference import load
    from carbon.inference.variants import VariantScorer

    return VariantScorer(load(job.model, **loading).reader, job)
