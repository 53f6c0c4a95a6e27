"""`carbon variants`: score the variants of a VCF or of the command line."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
    Several,
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
_INPUT = one_of("Variants", is_required=True)
_PLACE, _AMONG = one_of("Place"), one_of("Percentiles")


def variants(
    *,
    loading: Loading,
    reference: Path,
    output: Annotated[Path, Parameter(help=_OUTPUT)],
    # `-` is refused with its reason
    vcf: Annotated[Path | None, Parameter(group=_INPUT, allow_leading_hyphen=True)] = None,
    variant: Annotated[Several, Parameter(group=_INPUT, metavar="TEXT")] = (),
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
    """Score the variants of a VCF or of the command line.

    Writes log-likelihood(ALT) - log-likelihood(REF) in nats: negative means that the model finds
    the variant less likely.

    Args:
        reference: FASTA that the variants refer to.
        output: the scored variants.
        vcf: sorted VCF, plain, gzip or bgzip; or BCF.
        variant: variants such as "VIII:451984 CA>C", VIII-451984-CA-C or, with --annotation,
            "ENO2:c.28A>T".
        genes: with them, gene, consequence and codon are written too.
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

    check_ending(output, "variants")  # a wrong ending is known before anything is loaded
    with _input(vcf, variant, reference, genes) as path:
        job = VariantJob(
            model=loading.model,
            reference=reference,
            vcf=path,
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
        with workers_of(workers, make) as started:
            print(json.dumps(run_variant_job(job, started)))


@contextmanager
def _input(vcf: Path | None, texts: Sequence[str], reference: Path, genes: Genes) -> Iterator[Path]:
    """Yield the VCF, or a temporary one of the variants of the command line."""
    if vcf:
        yield vcf
        return
    from carbon.genome.notation import write_vcf_of_texts
    from carbon.io.files import scratch_folder

    with scratch_folder("variants") as folder:
        path = folder / "command-line.vcf"
        write_vcf_of_texts(
            path, texts, reference, genes.annotation, genes.contigs, genes.genetic_code
        )
        yield path
