"""`carbon variants`: a VCF in, a scored VCF or table out."""

import argparse
import json
from pathlib import Path

from carbon.verbs.common import Verbs, add_model, load


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
    verb.add_argument("--vcf", required=True, help="sorted VCF, plain or bgzip")
    verb.add_argument("--output", required=True, help="a .vcf, .vcf.gz, .tsv or .parquet to write")
    verb.add_argument("--protocol", choices=["centered"], default="centered")
    verb.add_argument("--window", type=int, metavar="BP", help="default: 8192 or what fits")
    verb.add_argument("--strands", choices=["forward", "reverse", "both"], default="forward")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.inference.variant_files import VariantJob, run_variant_job, writer_for

    writer_for(arguments.output)  # a wrong ending is known before anything is loaded
    job = VariantJob(
        reference=Path(arguments.reference),
        vcf=Path(arguments.vcf),
        output=Path(arguments.output),
        window_bp=arguments.window,
        strands=arguments.strands,
        tags=tuple(arguments.tags),
    )
    print(json.dumps(run_variant_job(load(arguments), job, arguments.dtype)))
