"""`carbon embed --vcf`: the vectors of both alleles of the variants of a VCF."""

import base64
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import Reference, VcfRow
from carbon.inference.identity import checksums_of, identity_of
from carbon.inference.jobs import EmbedJob, VariantJob, workers_for
from carbon.inference.options import AnnotationOptions, VariantEmbedOptions, input_files
from carbon.inference.variants.embeddings import (
    EMBEDDED_PER_BLOCK,
    EMBEDDING_PROTOCOL,
    AlleleVectors,
    embedding_method,
)
from carbon.inference.variants.files import checked_records, fingerprints, reader_of
from carbon.io.files import atomic_file, check_no_input, output_path
from carbon.io.tables import chosen_by_ending
from carbon.io.vectors import AlleleRow, Float32s
from carbon.parallel.driver import Job, run_job
from carbon.parallel.options import WorkerOptions
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.inference.model import Model


_MASKED = "masked"


class AlleleEmbedder:
    """A worker that embeds the alleles of VCF records.

    Attributes:
        about: `settings`, which the output stores, `identity` of the model, and `width` of the
            vectors.
    """

    def __init__(self, model: "Model", job: EmbedJob) -> None:
        """Check the options, and open the reference.

        Raises:
            UserError: an option is invalid.
        """
        assert job.variants.reference is not None
        self._model, self._options = model, _options(job)
        self._reference = Reference(job.variants.reference)
        method = embedding_method(model.runner, self._options)
        settings = asdict(self._options) | {
            "window_bp": method.window_bp,
            "protocol": EMBEDDING_PROTOCOL,
        }
        self.about = {
            "settings": {"model": job.loading.model, "yarn": model.yarn, **settings}
            | {"dtype": model.dtype},
            "identity": identity_of(model.runner, job.loading.model),
            "width": model.model.network.config.hidden_size,
        }

    def __call__(self, payload: list[VcfRow]) -> list[list[Any]]:
        """Return the values of `_packed` for the alleles of each record."""
        variants = [variant for row in payload if not row.disagreement for variant in row.variants]
        vectors = self._model.embed_variants(self._reference, variants, **asdict(self._options))
        return [
            [
                [row.disagreement.reason, None, None, 0]
                if row.disagreement
                else _packed(next(vectors))
                for _ in row.variants
            ]
            for row in payload
        ]


def _options(job: EmbedJob) -> VariantEmbedOptions:
    variants = job.variants
    return VariantEmbedOptions(
        **asdict(job.method), window_bp=variants.window_bp, strands=variants.strands
    )


def _packed(vectors: AlleleVectors) -> list[Any]:
    """Return the reason, the vectors with REF and with ALT, and the number of masked strands."""
    of_alleles = (vectors.ref, vectors.alt)
    texts = (None if v is None else _text(v) for v in of_alleles)
    return [vectors.reason, *texts, vectors.num_masked]


def _text(vector: Float32s) -> str:
    return base64.b64encode(vector.tobytes()).decode()


def _vector(text: str | None) -> Float32s | None:
    return None if text is None else np.frombuffer(base64.b64decode(text), dtype=np.float32)


def run_variant_embed_job(job: EmbedJob, options: WorkerOptions) -> dict[str, Any]:
    """Embed both alleles of the variants of a VCF; return the summary.

    Raises:
        GenomeError: the VCF is malformed, unsorted or of another reference.
        UserError: an option is invalid, or the reference is missing.
    """
    if job.variants.reference is None:
        raise UserError(f"{job.variants.vcf}: has no bases; give its FASTA with --reference")
    write_vectors = chosen_by_ending(job.output, "allele embeddings")
    output_path(job.output)
    check_no_input(job.output, *input_files(job))
    records = _records(job)
    assert records.vcf is not None
    with (
        Reference(records.reference) as reference,
        workers_for(job, AlleleEmbedder, options) as workers,
    ):
        vcf = reader_of(records, records.vcf, reference)
        num_records = checked_records(vcf, reference, records)
        about = workers.about(in_blocks(vcf, EMBEDDED_PER_BLOCK))
        checksums = checksums_of(about["identity"], reference.contig_lengths_bp)
        settings = about["settings"] | checksums
        filters = {"filters": records.filters, "min_qual": records.min_qual}

        def write(results: Iterator[tuple[list[VcfRow], Any]]) -> dict[str, Any]:
            counts: Counter[str] = Counter()
            rows = _counted(_rows(results, counts), counts)
            with atomic_file(job.output) as path:
                number = write_vectors(path, rows, about["width"], settings)
            return {
                "alleles": number,
                "alleles_embedded": counts.pop("", 0),
                "alleles_masked": counts.pop(_MASKED, 0),
                "reasons": dict(sorted(counts.items())),
            }

        work = Job(
            description="embedding variants",
            output=job.output,
            settings=settings | about["identity"] | filters | fingerprints(records, records.vcf),
            check=lambda: num_records,
            blocks=lambda: in_blocks(vcf, EMBEDDED_PER_BLOCK),
            payload=lambda block: [row._replace(columns=()) for row in block],
            source=str(records.vcf),
        )
        counts = run_job(work, workers, write)
    for line in vcf.warning_lines():
        say(line)
    if num_masked := counts["alleles_masked"]:
        say(
            f"warning: {num_masked:,} of {counts['alleles_embedded']:,} alleles share their tokens "
            "with an unknown base on a strand, and there have the vector of REF"
        )
    left_out = {name: vcf.left_out[name] for name in ("qual", "filter") if vcf.left_out[name]}
    return {
        "output": str(job.output),
        **counts,
        "records_left_out": left_out,
        "width": about["width"],
        **settings,
    }


def _records(job: EmbedJob) -> VariantJob:
    """Return the job of `carbon variants` that reads the same records."""
    variants = job.variants
    assert variants.reference is not None
    return VariantJob(
        loading=job.loading,
        reference=variants.reference,
        output=job.output,
        vcf=variants.vcf,
        genes=AnnotationOptions(contigs=variants.contigs),
        region=variants.region,
        regions_file=variants.regions_file,
        min_qual=variants.min_qual,
        filters=variants.filters,
        skip_mismatches=variants.skip_mismatches,
    )


def _rows(results: Iterator[tuple[list[VcfRow], Any]], counts: Counter[str]) -> Iterator[AlleleRow]:
    for block, of_block in results:
        for row, alleles in zip(block, of_block, strict=True):
            for variant, (reason, ref, alt, num_masked) in zip(row.variants, alleles, strict=True):
                counts[_MASKED] += num_masked > 0
                place = (row.columns[0], variant.position + 1, row.columns[2])
                alleles_of = (variant.ref, variant.alt)
                yield AlleleRow(*place, *alleles_of, reason, _vector(ref), _vector(alt))


def _counted(rows: Iterator[AlleleRow], counts: Counter[str]) -> Iterator[AlleleRow]:
    for row in rows:
        counts[row.reason or ""] += 1
        yield row
