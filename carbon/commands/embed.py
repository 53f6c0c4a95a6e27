"""`carbon embed`: one vector for each sequence, or two for each variant."""

from typing import Annotated

from cyclopts import Parameter

from carbon.commands.shared import WORKERS, EmbedJob, File, Workers, check_job, option_name
from carbon.console import print_summary
from carbon.errors import UserError
from carbon.inference.options import changed
from carbon.io.tables import check_ending


def embed(
    sequences: Annotated[File | None, Parameter(name="SEQUENCES")] = None,
    /,
    *,
    job: EmbedJob,
    workers: Workers = WORKERS,
) -> None:
    """Compute a vector for each sequence of a FASTA or FASTQ, or two for each variant of a VCF.

    Writes name, bases and embedding (float32, of fixed size); of a variant its place, and the
    embedding of the window with REF and with ALT. Memory use does not depend on the file size.

    Args:
        sequences: FASTA or FASTQ, plain, bgzip or gzip; - for standard input.
    """
    check_ending(job.output, "embeddings")
    if (sequences is None) == (job.variants.vcf is None):
        raise UserError("embed: give either SEQUENCES or --vcf")
    check_job(job)
    if sequences is None:
        from carbon.inference.variants.embed_job import run_variant_embed_job

        print_summary(run_variant_embed_job(job, workers))
        return
    if unused := changed(job.variants):
        shown = ", ".join(f"--{option_name(name)}" for name in unused)
        raise UserError(f"embed: {shown}: only with --vcf; remove it")

    from carbon.inference.sequence_job import run_embed_job

    print_summary(run_embed_job(sequences, job, workers))
