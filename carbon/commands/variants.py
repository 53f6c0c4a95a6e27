"""`carbon variants`: score the variants of a VCF."""

import json
from functools import partial
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from carbon.commands.shared import (
    NO_GENES,
    NONE,
    WORKERS,
    Genes,
    Loading,
    VariantMethod,
    Workers,
    check_inputs,
    one_of,
)
from carbon.commands.workers import variant_scorer
from carbon.errors import UserError
from carbon.io.tables import FORMATS, any_of, check_ending
from carbon.parallel.options import workers_of

_OUTPUT = f"a {any_of(FORMATS['variants'])} to write."
_PLACE, _AMONG = one_of("Place"), one_of("Percentiles")


def variants(
    *,
    loading: Loading,
    reference: Path,
    vcf: Annotated[Path, Parameter(allow_leading_hyphen=True)],  # to refuse `-` with a message
    output: Annotated[Path, Parameter(help=_OUTPUT)],
    genes: Genes = NO_GENES,
    region: Annotated[str | None, Parameter(group=_PLACE, metavar="CHR[:FIRST-LAST]")] = None,
    regions_file: Annotated[Path | None, Parameter(group=_PLACE, metavar="BED")] = None,
    min_qual: Annotated[float | None, Parameter(metavar="QUAL")] = None,
    filters: Annotated[str, Parameter(metavar="NAME[,NAME...]")] = "",
    background: Annotated[Path | None, Parameter(group=_AMONG)] = None,
    no_background: Annotated[bool, Parameter(group=_AMONG)] = False,
    method: VariantMethod = NONE,
    skip_mismatches: bool = False,
    strict: bool = False,
    lenient: Annotated[bool, Parameter(show=False)] = False,
    workers: Workers = WORKERS,
) -> None:
    """Score the variants of a VCF.

    Writes log-likelihood(ALT) - log-likelihood(REF) in nats: negative means that the model finds
    the variant less likely.

    Args:
        reference: FASTA that the VCF refers to.
        vcf: sorted VCF, plain, gzip or bgzip; or BCF.
        output: the scored variants.
        genes: also write gene, consequence and codon.
        region: score the records whose POS is in it, 1-based, both ends included.
        regions_file: score the records whose POS is in one of its regions.
        min_qual: score the records whose QUAL is at least this; records without QUAL are left out.
        filters: score the records whose FILTER has one of these names, such as PASS; '.' means
            records without applied filters.
        background: file of `carbon background`: also write a percentile among random variants;
            default: background.json in the model's folder, if it matches.
        no_background: never write a percentile.
        skip_mismatches: skip records whose REF contradicts the reference.
        strict: refuse a VCF that breaks any rule of its format.
    """
    if lenient:
        raise UserError(
            "--lenient was removed, omit it: lenient reading is the default; --strict refuses a "
            "VCF that breaks a rule"
        )
    folder = check_inputs(loading.model, reference, vcf, genes.annotation, background, regions_file)
    genes.check()

    from carbon.inference.variants import VariantJob, run_variant_job
    from carbon.inference.variants.background import FILE_NAME

    check_ending(output, "variants")  # report a wrong ending before loading
    job = VariantJob(
        model=loading.model,
        reference=reference,
        vcf=vcf,
        output=output,
        options=method,
        resume=workers.resume,
        skip_mismatches=skip_mismatches,
        strict=strict,
        annotation=genes.annotation,
        contigs=genes.contigs,
        genetic_code=genes.genetic_code,
        region=region,
        regions=regions_file,
        min_qual=min_qual,
        filters=tuple(filters.split(",")) if filters else (),
        background=background,
        own_background=None if no_background else folder / FILE_NAME,
    )
    make = partial(variant_scorer, job, loading.worker_keywords(workers))
    with workers_of(workers, make) as running:
        print(json.dumps(run_variant_job(job, running)))
