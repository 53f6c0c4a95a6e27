"""`carbon variants`: a VCF in, a scored VCF or table out."""

import argparse
import json
from pathlib import Path

from carbon.verbs.common import Verbs, add_model, frames, load


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
        "--output", required=True, help="a .vcf, .vcf.gz, .tsv, .json or .parquet to write"
    )
    verb.add_argument(
        "--protocol",
        choices=["centered", "right_end"],
        default="centered",
        help="compare windows around the variant (default), or the alleles alone behind a window",
    )
    verb.add_argument(
        "--window",
        type=int,
        metavar="BP",
        help="default: 8192 (centered), 24000 (right_end), or what fits",
    )
    verb.add_argument("--by", choices=["chain", "marginals"], default="chain")
    verb.add_argument("--strands", choices=["forward", "reverse", "both"], default="forward")
    verb.add_argument(
        "--frames", type=frames, default=(0,), help="mean over frames such as 0,2,4, or all"
    )
    verb.add_argument("--resume", action="store_true", help="go on where a run was stopped")
    verb.add_argument(
        "--skip-mismatches", action="store_true", help="pass over records with another REF"
    )
    verb.add_argument(
        "--lenient", action="store_true", help="read a VCF that breaks rules of its format"
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.inference.variants.files import VariantJob, run_variant_job
    from carbon.inference.variants.writers import variant_writer

    variant_writer(arguments.output)  # a wrong ending is known before anything is loaded
    job = VariantJob(
        model=arguments.model,
        reference=Path(arguments.reference),
        vcf=Path(arguments.vcf),
        output=Path(arguments.output),
        method={
            "protocol": arguments.protocol,
            "window_bp": arguments.window,
            "by": arguments.by,
            "strands": arguments.strands,
            "frames": arguments.frames,
            "tags": tuple(arguments.tags),
        },
        resume=arguments.resume,
        skip_mismatches=arguments.skip_mismatches,
        strict=not arguments.lenient,
    )
    print(json.dumps(run_variant_job(load(arguments), job, arguments.dtype)))
