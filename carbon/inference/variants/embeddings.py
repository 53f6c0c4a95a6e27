"""Embed variants: the vectors of a `centered` window with REF and with ALT, and their files.

The two windows of a strand are those that `centered` compares: they hold equally many bases from
the variant on, and the 6-mers after an indel begin at the same reference bases with both alleles.
"""

import base64
import json
import shutil
import zipfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from carbon.batching import in_blocks
from carbon.errors import UserError
from carbon.genome import Reference, Variant, VcfRow
from carbon.genome.normalize import normalize_variant
from carbon.inference.checks import check_layer
from carbon.inference.embed import Float32s, embed_sequences
from carbon.inference.identity import identity_of
from carbon.inference.jobs import EmbedJob, VariantJob, workers_for
from carbon.inference.options import (
    POOLS,
    STRANDS_READ,
    WINDOW_PROTOCOLS,
    AnnotationOptions,
    EmbedOptions,
    ProtocolName,
    VariantEmbedOptions,
    VariantOptions,
    check_choice,
    input_files,
)
from carbon.inference.variants.files import checked_records, fingerprints, reader_of
from carbon.inference.variants.windows import (
    Method,
    allele_windows,
    method_for,
    needed_bp,
    on_grid,
    room_bp,
    site_of,
    skipped_bp,
)
from carbon.io.files import atomic_file, check_no_input, output_path, scratch_folder
from carbon.io.tables import chosen_by_ending
from carbon.parallel.driver import Job, run_job
from carbon.parallel.options import WorkerOptions
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.inference.model import Model
    from carbon.inference.runner import ModelRunner

_PROTOCOL: ProtocolName = "centered"
_VARIANTS_PER_BLOCK = 128
_ROW_GROUP = 1024  # alleles that are in memory until they are written


class AlleleVectors(NamedTuple):
    """The vectors of a variant.

    Attributes:
        variant: the variant as given.
        reason: why it has no window; None if it has one.
        ref: (width,) float32 with REF, the mean of the strands; None if there is a reason.
        alt: likewise with ALT.
    """

    variant: Variant
    reason: str | None
    ref: Float32s | None = None
    alt: Float32s | None = None


class _Windows(NamedTuple):
    """The bases with REF and with ALT on each strand, or the reason why there are none."""

    reason: str | None
    alleles: tuple[tuple[str, str], ...] = ()


def embed_variants(
    runner: "ModelRunner",
    reference: Reference,
    variants: Iterable[Variant],
    options: VariantEmbedOptions,
) -> Iterator[AlleleVectors]:
    """Return an iterator over the vectors of each variant, in order.

    Raises:
        UserError: a choice, the window, the layer or a tag is invalid.
        GenomeError: a REF differs from the reference.
    """
    method = _method(runner, options)
    pooled = EmbedOptions(pool=options.pool, layer=options.layer, tags=options.tags)
    check_choice("pool", options.pool, POOLS)
    if options.layer is not None:
        check_layer(runner.network, options.layer)
    return (
        vectors
        for block in in_blocks(variants, _VARIANTS_PER_BLOCK)
        for vectors in _embedded(runner, reference, block, method, pooled)
    )


def _method(runner: "ModelRunner", options: VariantEmbedOptions) -> Method:
    return method_for(
        runner,
        VariantOptions(
            protocol=_PROTOCOL,
            window_bp=options.window_bp,
            strands=options.strands,
            tags=options.tags,
        ),
    )


def _embedded(
    runner: "ModelRunner",
    reference: Reference,
    block: Sequence[Variant],
    method: Method,
    pooled: EmbedOptions,
) -> Iterator[AlleleVectors]:
    readable_bp = room_bp(runner, method.tags)
    windows = [_windows(reference, variant, method, readable_bp) for variant in block]
    sequences = (bases for each in windows for pair in each.alleles for bases in pair)
    vectors = embed_sequences(runner, sequences, pooled)
    for variant, (reason, alleles) in zip(block, windows, strict=True):
        if reason:
            yield AlleleVectors(variant, reason)
            continue
        of_strands = np.stack(list(islice(vectors, 2 * len(alleles))))
        ref, alt = of_strands[0::2].mean(axis=0), of_strands[1::2].mean(axis=0)
        yield AlleleVectors(variant, None, ref, alt)


def _windows(reference: Reference, variant: Variant, method: Method, readable_bp: int) -> _Windows:
    """Return the windows of a variant on the strands that distinguish its alleles."""
    if reason := _why_no_window(reference, variant):
        return _Windows(reason)
    plain = normalize_variant(reference, variant)
    protocol = WINDOW_PROTOCOLS[_PROTOCOL]
    most_bp = protocol.most_needed_bp(method.window_bp, readable_bp)
    needed = {s: needed_bp(reference, plain, s, most_bp) for s in STRANDS_READ[method.strands]}
    if any(bp is not None and bp > most_bp for bp in needed.values()):
        return _Windows(protocol.too_long)
    alleles = tuple(
        _pair(reference, plain, strand, protocol.counted_bp(bp, strand, method.window_bp), method)
        for strand, bp in needed.items()
        if bp is not None
    )
    return _Windows(None if alleles else "contig_edge", alleles)


def _pair(
    reference: Reference, variant: Variant, strand: str, counted_bp: int, method: Method
) -> tuple[str, str]:
    """Return the window with REF and with ALT along a strand."""
    site = site_of(variant, strand, counted_bp)
    pair = variant.ref.upper(), variant.alt.upper()
    left, rights = allele_windows(reference, site, pair, _PROTOCOL, method.window_bp)
    shared_bp = min(map(len, rights.values()))
    ref, alt = (
        on_grid(left, skipped_bp(site, allele, 0, _PROTOCOL), _PROTOCOL)
        + rights[allele][:shared_bp]
        for allele in pair
    )
    return ref, alt


def _why_no_window(reference: Reference, variant: Variant) -> str | None:
    """Return why a variant has no bases to read, or None.

    Raises:
        GenomeError: REF differs from the reference.
    """
    contig, position = variant.contig, variant.position
    where = f"variant {variant.to_text()}"
    if reason := reference.check_ref(contig, position, variant.ref, where):
        return reason
    if reason := variant.why_unscorable():
        return reason
    is_inside = 0 <= position < reference.contig_lengths_bp[contig]
    return None if is_inside else "telomere"


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
        method = _method(model.runner, self._options)
        settings = asdict(self._options) | {"window_bp": method.window_bp, "protocol": _PROTOCOL}
        self.about = {
            "settings": {"model": job.loading.model, "yarn": model.yarn, **settings}
            | {"dtype": model.dtype},
            "identity": identity_of(model.runner, job.loading.model),
            "width": model.model.network.config.hidden_size,
        }

    def __call__(self, payload: list[VcfRow]) -> list[list[Any]]:
        """Return reason, and vectors with REF and with ALT, of the alleles of each record."""
        variants = [variant for row in payload if not row.disagreement for variant in row.variants]
        vectors = self._model.embed_variants(self._reference, variants, **asdict(self._options))
        return [
            [
                [row.disagreement.reason, None, None]
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


def _packed(vectors: AlleleVectors) -> list[str | None]:
    of_alleles = (vectors.ref, vectors.alt)
    return [vectors.reason, *(None if v is None else _text(v) for v in of_alleles)]


def _text(vector: Float32s) -> str:
    return base64.b64encode(vector.tobytes()).decode()


def _vector(text: str | None) -> Float32s | None:
    return None if text is None else np.frombuffer(base64.b64decode(text), dtype=np.float32)


class AlleleRow(NamedTuple):
    """A row of the output; `position` is 1-based, and a vector is None if there is a reason."""

    contig: str
    position: int
    id: str
    ref: str
    alt: str
    reason: str | None
    ref_embedding: Float32s | None
    alt_embedding: Float32s | None


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
        about = workers.about(in_blocks(vcf, _VARIANTS_PER_BLOCK))
        filters = {"filters": records.filters, "min_qual": records.min_qual}

        def write(results: Iterator[tuple[list[VcfRow], Any]]) -> dict[str, Any]:
            counts: Counter[str] = Counter()
            rows = _counted(_rows(results), counts)
            with atomic_file(job.output) as path:
                number = write_vectors(path, rows, about["width"], about["settings"])
            return {"alleles": number, "alleles_embedded": counts.pop("", 0)} | {
                "reasons": dict(sorted(counts.items()))
            }

        work = Job(
            description="embedding variants",
            output=job.output,
            settings=about["settings"]
            | about["identity"]
            | filters
            | fingerprints(records, records.vcf),
            check=lambda: checked_records(vcf, reference, records),
            blocks=lambda: in_blocks(vcf, _VARIANTS_PER_BLOCK),
            payload=lambda block: [row._replace(columns=()) for row in block],
            source=str(records.vcf),
        )
        counts = run_job(work, workers, write)
    for line in vcf.warning_lines():
        say(line)
    left_out = {name: vcf.left_out[name] for name in ("qual", "filter") if vcf.left_out[name]}
    return {
        "output": str(job.output),
        **counts,
        "records_left_out": left_out,
        "width": about["width"],
        **about["settings"],
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


def _rows(results: Iterator[tuple[list[VcfRow], Any]]) -> Iterator[AlleleRow]:
    for block, of_block in results:
        for row, alleles in zip(block, of_block, strict=True):
            for variant, (reason, ref, alt) in zip(row.variants, alleles, strict=True):
                place = (row.columns[0], variant.position + 1, row.columns[2])
                alleles_of = (variant.ref, variant.alt)
                yield AlleleRow(*place, *alleles_of, reason, _vector(ref), _vector(alt))


def _counted(rows: Iterator[AlleleRow], counts: Counter[str]) -> Iterator[AlleleRow]:
    for row in rows:
        counts[row.reason or ""] += 1
        yield row


_VECTORS = ("ref_embedding", "alt_embedding")


def write_parquet(
    path: Path, rows: Iterable[AlleleRow], width: int, settings: Mapping[str, Any]
) -> int:
    """Write `AlleleRow`s as Parquet, in row groups as they come; return their number.

    The vectors are lists of `width` float32, null with a reason; the settings are in the metadata
    of the schema, under `carbon`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    texts = ("contig", "id", "ref", "alt", "reason")
    kinds = {**dict.fromkeys(texts, pa.string()), "position": pa.int64()}
    fields = [(name, kinds.get(name, pa.list_(pa.float32(), width))) for name in AlleleRow._fields]
    schema = pa.schema(fields, metadata={"carbon": json.dumps(settings)})
    stream, num_rows = iter(rows), 0
    with pq.ParquetWriter(path, schema) as sink:
        while group := list(islice(stream, _ROW_GROUP)):
            columns = [
                pa.array(column, type=kind.type)
                for column, kind in zip(zip(*group, strict=True), schema, strict=True)
            ]
            sink.write_table(pa.table(columns, schema=schema))
            num_rows += len(group)
    return num_rows


def write_npz(
    path: Path, rows: Iterable[AlleleRow], width: int, settings: Mapping[str, Any]
) -> int:
    """Write an array for each field of `AlleleRow`, for `numpy.load`; return the number of rows.

    The vectors are (rows, width) float32, NaN with a reason; `carbon` holds the settings as JSON.
    They go through scratch files, since an array names its number of rows before its values.
    """
    places: list[tuple[Any, ...]] = []
    missing = np.full(width, np.nan, dtype="<f4")
    with scratch_folder("embed") as folder:
        scratch = {name: folder / name for name in _VECTORS}
        with scratch[_VECTORS[0]].open("wb") as refs, scratch[_VECTORS[1]].open("wb") as alts:
            for row in rows:
                places.append((*row[:5], row.reason or ""))
                for sink, vector in ((refs, row.ref_embedding), (alts, row.alt_embedding)):
                    sink.write((missing if vector is None else vector.astype("<f4")).tobytes())
        with zipfile.ZipFile(path, "w") as archive:
            for name in _VECTORS:
                _add_vectors(archive, name, scratch[name], (len(places), width))
            texts = zip(*places, strict=True) if places else [[]] * 6
            columns = dict(zip(AlleleRow._fields, map(np.array, texts), strict=False))
            for name, values in (columns | {"carbon": np.array(json.dumps(settings))}).items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w") as target:
                    np.lib.format.write_array(target, values, allow_pickle=False)
    return len(places)


def _add_vectors(
    archive: zipfile.ZipFile, name: str, scratch: Path, shape: tuple[int, int]
) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    member = zipfile.ZipInfo(f"{name}.npy")  # a fixed date: equal rows give equal bytes
    with archive.open(member, "w", force_zip64=True) as target, scratch.open("rb") as source:
        np.lib.format.write_array_header_1_0(target, header)
        shutil.copyfileobj(source, target)
