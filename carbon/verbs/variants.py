"""`carbon variants`: a VCF in, a scored VCF or table out."""

import argparse
import json
from pathlib import Path
from typing import get_args

from carbon.options import PROTOCOLS, STRANDS_READ, By
from carbon.tables import TABLE_WRITERS, any_of
from carbon.verbs.common import (
    NOT_GIVEN,
    Verbs,
    add_contigs,
    add_gone,
    add_model,
    check_inputs,
    frames,
    load,
    options_of,
)


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
    verb.add_argument("--vcf", required=True, help="sorted VCF, plain, gzip or bgzip")
    verb.add_argument(
        "--output", required=True, help=f"a .vcf, .vcf.gz, {any_of(TABLE_WRITERS)} to write"
    )
    verb.add_argument(
        "--annotation", help="GFF3, GTF, BED or GenBank: write gene, consequence and codon too"
    )
    add_contigs(verb)
    _add_method(verb)
    verb.add_argument("--resume", action="store_true", help="go on where a run was stopped")
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


def _add_method(verb: argparse.ArgumentParser) -> None:
    """Add what `VariantOptions` has."""
    verb.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default=NOT_GIVEN,
        help="compare windows around the variant (default), or the alleles alone behind a window",
    )
    windows = (f"{known.default_window_bp} ({name})" for name, known in PROTOCOLS.items())
    verb.add_argument(
        "--window",
        type=int,
        default=NOT_GIVEN,
        dest="window_bp",
        metavar="BP",
        help=f"default: {', '.join(windows)}, or what fits",
    )
    verb.add_argument("--by", choices=get_args(By), default=NOT_GIVEN)
    verb.add_argument(
        "--strands",
        choices=STRANDS_READ,
        default=NOT_GIVEN,
        help="that are read; both (default) is their mean, and tells how far they disagree",
    )
    verb.add_argument(
        "--frames", type=frames, default=NOT_GIVEN, help="mean over frames such as 0,2,4, or all"
    )


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    check_inputs(arguments, arguments.reference, arguments.vcf, arguments.annotation)

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
    )
    print(json.dumps(run_variant_job(load(arguments).reader, job, arguments.dtype)))
