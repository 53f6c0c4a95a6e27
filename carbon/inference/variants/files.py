"""Score a VCF into a file, in blocks by workers, after checking it against the reference."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import pysam

from carbon.batching import in_blocks
from carbon.errors import GenomeError
from carbon.genome import (
    Consequences,
    Interval,
    Reference,
    VcfReader,
    VcfRow,
    contig_names,
    short,
)
from carbon.genome.bed import read_regions
from carbon.genome.contig_names import names_table
from carbon.genome.normalize import other_form
from carbon.genome.notation import write_vcf_of_texts
from carbon.genome.vcf import RecordFilter
from carbon.inference.identity import checksums_of, identity_of
from carbon.inference.identity import settings_of as background_settings_of
from carbon.inference.jobs import BackgroundJob, VariantJob, workers_for
from carbon.inference.options import DEFAULT_SCORES, WINDOW_PROTOCOLS, input_files
from carbon.inference.variants.annotate import (
    ANNOTATION,
    BACKGROUND,
    Columns,
    Genes,
    VariantAnnotator,
    background_for,
    calibration_for,
    other_genome,
    read_genes,
    warn_of_unknown_codes,
)
from carbon.inference.variants.background import FILE_NAME
from carbon.inference.variants.formats import OUR_FIELD, scored_header, write_table
from carbon.inference.variants.score import VariantScore, score_variants
from carbon.inference.variants.windows import Method, TileGrid, method_for
from carbon.io.files import (
    atomic_file,
    check_no_input,
    content_sha256,
    output_path,
    scratch_folder,
)
from carbon.io.tables import chosen_by_ending
from carbon.model import model_folder
from carbon.parallel.driver import Job, Workers, run_job
from carbon.parallel.options import WorkerOptions
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.inference.model import Model
    from carbon.inference.runner import ModelRunner

T = TypeVar("T")

_SHOWN = 3
_MOST_COMPARED = 1000  # records checked for a shift of the positions
# A larger share of records at reference N is reported: callers find almost none there.
_MANY_UNKNOWN = 0.01
_MESSAGES = {
    "ref_mismatch": "{of_all} REF alleles differ from {fasta}: {examples}{shift}",
    "ref_past_end": "{of_all} REF alleles are not on their contigs: {examples}",
    "contig_unknown": "{of_all} records are on other contigs: {missing}",
    "reference_unknown": "{of_all} REF alleles are where {fasta} has N: {examples}",
}


class Agreement:
    """Counts of records that disagree with the reference, by reason, with the first of each.

    Attributes:
        num_records: number of records added.
    """

    def __init__(self, path: Path, reference: Reference) -> None:
        """Start counting records of the VCF `path`."""
        self.num_records = 0
        self._path, self._reference = path, reference
        self._counts: Counter[str] = Counter()
        self._first: dict[str, list[VcfRow]] = {reason: [] for reason in _MESSAGES}
        self._missing: dict[str, None] = {}  # contigs, in the order they come

    def add(self, row: VcfRow) -> None:
        """Count the next record."""
        self.num_records += 1
        if row.disagreement is None:
            return
        reason = row.disagreement.reason
        self._counts[reason] += 1
        if len(self._first[reason]) < _MOST_COMPARED:
            self._first[reason].append(row)
        if reason == "contig_unknown" and len(self._missing) <= _SHOWN:
            self._missing[row.columns[0]] = None

    @property
    def has_contradictions(self) -> bool:
        """Whether a REF contradicts the reference."""
        return self._counts.total() > self._counts["reference_unknown"]

    @property
    def has_others(self) -> bool:
        """Whether some record agrees with the reference."""
        return self._counts.total() < self.num_records

    @property
    def is_doubtful(self) -> bool:
        """Whether the records suggest another reference."""
        many = _MANY_UNKNOWN * self.num_records
        return self.has_contradictions or self._counts["reference_unknown"] > many

    def summary(self) -> str:
        """Return one line that states the disagreements and their possible cause."""
        parts = [self._message(reason) for reason in _MESSAGES if self._counts[reason]]
        question = "; is it the assembly that the variants were called on?"
        # The message on missing contigs already has a question or a remedy.
        is_needed = set(+self._counts) != {"contig_unknown"}
        return f"{self._path}: {'; '.join(parts)}{question if is_needed else ''}"

    def _message(self, reason: str) -> str:
        first = self._first[reason]
        return _MESSAGES[reason].format(
            of_all=f"{self._counts[reason]:,} of {self.num_records:,}",
            fasta=self._reference.path,
            examples="; ".join(map(self._shown, first[:_SHOWN])),
            shift=_shift(self._reference, first),
            missing=self._reference.explain_missing(self._missing),
        )

    def _shown(self, row: VcfRow) -> str:
        contig, position, _, ref = row.columns[:4]
        where, mismatch = f"record {row.number} ({contig}:{position})", row.disagreement
        if mismatch and mismatch.reference_bases:
            return f"{where} has {short(ref)}, the reference {short(mismatch.reference_bases)}"
        if not mismatch:
            return where
        return f"{where}: {self._reference.explain(mismatch, row.contig, ref)}"


def _shift(reference: Reference, rows: list[VcfRow]) -> str:
    """Return a hint if the positions are off by one: nearly all REF match one base further."""
    for step, direction in ((1, "after"), (-1, "before")):
        agree = 0
        for row in rows:
            contig, ref = row.contig, row.columns[3].upper()
            start = int(row.columns[1]) - 1 + step
            length_bp = reference.contig_lengths_bp.get(contig, -1)
            if start >= 0 and start + len(ref) <= length_bp:
                shifted = reference.fetch(Interval(contig, start, start + len(ref)))
                agree += shifted.upper() == ref
        if agree > 0.9 * len(rows) and len(rows) > 2:
            return f"; {agree:,} of them match one base {direction}: are the positions off by one?"
    return ""


_UNKNOWN_CODES = "cds_of_unknown_genetic_code"  # of the summary
_RECORDS_PER_BLOCK = 128
_TILES_PER_BLOCK = 8  # two blocks read the tiles of the reverse strand between them
_MOST_RECORDS_OF_TILES = 1024
_TABIX_MOST_BP = 2**29  # https://samtools.github.io/hts-specs/tabix.pdf
_CSI_MOST_BP = 2**31  # as htslib writes it
Results = Iterator[tuple[list[VcfRow], Any]]
_SCORED = (*VariantScore._fields[1:], "unsure")
"""Columns that a worker returns for an allele."""
_REACH = re.compile(r"(?:^|;)(END|SVLEN)=([^;]*)")


class VariantWorker:
    """A worker that scores variants with the model and the method of a job.

    Attributes:
        runner: runner of the model.
        method: scoring method.
        reference: the opened reference.
    """

    def __init__(self, model: "Model", job: VariantJob | BackgroundJob) -> None:
        """Check the method, and open the reference.

        Raises:
            UserError: an option is invalid.
        """
        self.runner = model.runner
        scores = job.scores if isinstance(job, VariantJob) else DEFAULT_SCORES
        self.method = method_for(self.runner, job.method, scores)
        self.reference = Reference(job.reference)


class VariantScorer(VariantWorker):
    """A worker that scores the alleles of VCF records.

    Attributes:
        about: `settings`, which the output stores, `identity` of the model, and `background`:
            settings that a background must share.
    """

    def __init__(self, model: "Model", job: VariantJob) -> None:
        """Describe the model and the method."""
        super().__init__(model, job)
        background = {}
        own = own_background(job)
        if job.background or job.calibration or (own and own.is_file()):
            background = background_settings_of(self.runner, self.method)
        self.about = {
            "settings": _settings(self.runner, job, self.method),
            "identity": identity_of(self.runner, job.loading.model),
            "background": background,
        }

    def __call__(self, payload: list[VcfRow]) -> list[list[Any]]:
        """Return the values of `_SCORED` of the alleles of each record."""
        variants = [variant for row in payload if not row.disagreement for variant in row.variants]
        scores = score_variants(self.runner, self.reference, variants, self.method)
        return [[_values(row, scores) for _ in row.variants] for row in payload]


def _values(row: VcfRow, scores: Iterator[VariantScore]) -> list[Any]:
    if row.disagreement:
        return [None, row.disagreement.reason, *[None] * (len(_SCORED) - 2)]
    score = next(scores)
    return [*score[1:], score.unsure]


def own_background(job: VariantJob) -> Path | None:
    """Return where the model's own background may be; None if no percentiles are wanted."""
    return None if job.no_background else model_folder(job.loading.model).path / FILE_NAME


def run_variant_job(
    job: VariantJob, options: WorkerOptions, rows_file: Path | None = None
) -> dict[str, Any]:
    """Score variants into a file, which appears when complete.

    Args:
        job: the job.
        options: engine and workers.
        rows_file: Parquet file to write a row for each allele to as well.

    Returns:
        The summary: the settings; `records`, and `records_left_out` by filter; `alleles`,
        `alleles_scored`, `alleles_not_scored`, and their `reasons`; `alleles_normalised`, which the
        VCF does not write trimmed and left-aligned; `alleles_by_one_strand`, which only one strand
        distinguishes from REF; `alleles_masked`, with a `strand_masked`; `alleles_unsure`, None for
        a single offset and strand; `alleles_without` each requested score; `percentiles_of`,
        alleles by kind of the background; `cds_of_unknown_genetic_code`; and `warnings`, broken
        rules of the VCF.

    Raises:
        GenomeError: the VCF is malformed, unsorted or of another reference.
        UserError: the output's suffix or an option is invalid.
    """
    with vcf_of(job) as vcf, workers_for(job, VariantScorer, options) as workers:
        return score_vcf(job, vcf, workers, rows_file)


@contextmanager
def vcf_of(job: VariantJob) -> Iterator[Path]:
    """Yield the VCF, or a temporary one of the variants in notation."""
    if job.vcf:
        yield job.vcf
        return
    genes = job.genes
    with scratch_folder("variants") as folder:
        path = folder / "command-line.vcf"
        write_vcf_of_texts(
            path, job.variant, job.reference, genes.annotation, genes.contigs, genes.genetic_code
        )
        yield path


def score_vcf(
    job: VariantJob, path: Path, workers: Workers, rows_file: Path | None = None
) -> dict[str, Any]:
    """Score a VCF into a file, which appears when complete; return the summary.

    Args:
        job: the job.
        path: the VCF.
        workers: workers, each a `VariantScorer` of this job.
        rows_file: Parquet file to write a row for each allele to as well.

    Raises:
        GenomeError: the VCF is malformed, unsorted or of another reference.
        UserError: the output's suffix or the window is invalid.
    """
    writer = chosen_by_ending(job.output, "variants")
    output_path(job.output)
    check_no_input(job.output, *input_files(job), names_table(job.genes.contigs))
    with Reference(job.reference) as reference:
        vcf = reader_of(job, path, reference)
        num_records = checked_records(vcf, reference, job, why_unwritable)
        about = workers.about(in_blocks(vcf, _RECORDS_PER_BLOCK))
        background, percentile = background_for(
            about["background"],
            job.background,
            own_background(job),
            annotated=bool(job.genes.annotation),
        )
        calibration, made = calibration_for(about["background"], job.calibration)
        settings: dict[str, Any] = about["settings"] | percentile | made
        for name, drawn in ((BACKGROUND, background), ("calibration", calibration)):
            settings |= other_genome(name, drawn, reference, job.genes.genetic_code)
        settings |= checksums_of(about["identity"], reference.contig_lengths_bp)
        scored_header(vcf, settings)
        genes = read_genes(
            job.genes, reference, contig_names(job.genes.contigs, reference.contig_lengths_bp)
        )
        consequences = Consequences(reference, genes.annotation) if genes.annotation else None
        annotate = VariantAnnotator(reference, consequences, background, calibration)

        def write(results: Results) -> dict[str, Any]:
            counts = _Counts(settings.get("scores", ()))
            with atomic_file(job.output) as temporary:
                with ExitStack() as sinks:
                    writes = [sinks.enter_context(writer(temporary, vcf, settings))]
                    if rows_file:
                        writes.append(sinks.enter_context(write_table(rows_file, vcf, settings)))
                    for row, scores in _rows(results, reference):
                        shown = [
                            annotate(variant, columns, agrees=row.disagreement is None)
                            for variant, columns in zip(row.variants, scores, strict=True)
                        ]
                        for write_row in writes:
                            write_row((row, shown))
                        counts.add(shown)
                for stale in index_paths(job.output):
                    stale.unlink(missing_ok=True)
            if job.output.name.endswith(".vcf.gz"):
                write_index(job.output, max(reference.contig_lengths_bp.values()))
            return counts.shown()

        blocks = Job(
            description="scoring variants",
            output=job.output,
            settings=settings | about["identity"] | fingerprints(job, path),
            check=lambda: num_records,
            blocks=lambda: blocks_of(vcf, about["settings"]),
            # Workers do not need genotypes, of which there may be thousands.
            payload=lambda block: [row._replace(columns=()) for row in block],
            source=str(path),
        )
        counts = run_job(blocks, workers, write)
    for line in vcf.warning_lines():
        say(line)
    warn_of_unknown_codes(job.genes, genes)
    return _summary(job, vcf, counts, genes) | settings


def reader_of(job: VariantJob, path: Path, reference: Reference) -> VcfReader:
    """Open the VCF of a job with its filters and names of contigs.

    Raises:
        GenomeError: the VCF is malformed or of another reference.
        UserError: a region or a table of names is invalid.
    """
    lengths_bp = reference.contig_lengths_bp
    names = contig_names(job.genes.contigs, lengths_bp)
    keep = RecordFilter(
        min_qual=job.min_qual,
        filters=tuple(job.filters.split(",")) if job.filters else (),
        regions=read_regions(job.region, job.regions_file, lengths_bp, names),
    )
    return VcfReader(path, reference, strict=job.strict, contig_names=names, keep=keep)


def blocks_of(vcf: VcfReader, settings: dict[str, Any]) -> Iterator[list[VcfRow]]:
    """Cut records by number, and for `tiled` also where other tiles begin."""
    return blocks_by_place(
        vcf, settings, lambda row: (row.contig, int(row.columns[1])), _RECORDS_PER_BLOCK
    )


def blocks_by_place(
    items: Iterable[T],
    settings: dict[str, Any],
    place_of: Callable[[T], tuple[str, int]],
    most_items: int,
) -> Iterator[list[T]]:
    """Cut items by number or, for `tiled`, where other tiles begin.

    Args:
        items: for `tiled` in the order of the contig.
        settings: of the scoring method.
        place_of: function from an item to its contig and position.
        most_items: maximum number of a block, unless tiles are read.
    """
    if settings["protocol"] in WINDOW_PROTOCOLS:
        return in_blocks(items, most_items)
    grid = TileGrid.of(settings)

    def tiles_of(item: T) -> tuple[str, int]:
        contig, position = place_of(item)
        return contig, grid.tile_of(position) // _TILES_PER_BLOCK

    by_tiles = (of_tiles for _, of_tiles in groupby(items, tiles_of))
    return (block for of_tiles in by_tiles for block in in_blocks(of_tiles, _MOST_RECORDS_OF_TILES))


def _summary(
    job: VariantJob, vcf: VcfReader, counts: dict[str, Any], genes: Genes
) -> dict[str, Any]:
    """Return the summary without the settings."""
    unknown_codes = {_UNKNOWN_CODES: genes.unknown_codes} if job.genes.annotation else {}
    left_out = {}
    if job.min_qual is not None or job.filters:
        by_condition = {name: vcf.left_out[name] for name in ("qual", "filter")}
        left_out = {"records_left_out": by_condition}
    warnings = {rule: warned.num_lines for rule, warned in vcf.warnings.items()}
    region = job.regions_file.name if job.regions_file else job.region
    return {
        "output": str(job.output),
        **counts,
        **unknown_codes,
        **left_out,
        "warnings": warnings,
        **({"region": region} if region else {}),
    }


def _scored_as(reference: Reference, row: VcfRow) -> list[str | None]:
    """Return `contig:position:REF:ALT` of each allele that changes by normalisation.

    The contig has its name in the VCF.
    """
    if row.disagreement:
        return [None] * len(row.variants)
    return [other_form(reference, variant, row.columns[0]) for variant in row.variants]


class _Counts:
    """Counts of scored records and alleles; a record has as many alleles as ALTs."""

    def __init__(self, scores: Sequence[str]) -> None:
        """Start at zero; count the scored alleles that lack each of `scores`."""
        self._missing = dict.fromkeys(scores, 0)
        self._counts: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._percentiles_of: Counter[str] = Counter()

    def add(self, alleles: Sequence[Columns]) -> None:
        """Count a record by the columns of its alleles."""
        self._counts["records"] += 1
        for columns in alleles:
            is_unsure = columns["unsure"]
            self._counts["alleles"] += 1
            self._counts["scored"] += columns["delta"] is not None
            self._counts["normalised"] += columns["scored_as"] is not None
            self._counts["one_strand"] += columns["strand_left_out"] is not None
            self._counts["masked"] += columns["strand_masked"] is not None
            self._counts["unsure"] += is_unsure is True
            self._counts["with_spread"] += is_unsure is not None
            self._reasons[columns["reason"] or ""] += 1
            self._percentiles_of[columns.get("percentile_of") or ""] += 1
            for name in self._missing:
                is_missing = columns["delta"] is not None and columns.get(name) is None
                self._missing[name] += is_missing

    def shown(self) -> dict[str, Any]:
        """Return the counts for the summary."""
        counts = self._counts
        return {
            "records": counts["records"],
            "alleles": counts["alleles"],
            "alleles_scored": counts["scored"],
            "alleles_not_scored": counts["alleles"] - counts["scored"],
            "alleles_normalised": counts["normalised"],
            "alleles_by_one_strand": counts["one_strand"],
            "alleles_masked": counts["masked"],
            "alleles_unsure": counts["unsure"] if counts["with_spread"] else None,
            "reasons": _named(self._reasons),
            "percentiles_of": _named(self._percentiles_of),
            **({"alleles_without": self._missing} if self._missing else {}),
        }


def _named(counts: Counter[str]) -> dict[str, int]:
    return {name: number for name, number in sorted(counts.items()) if name}


def index_paths(output: Path) -> list[Path]:
    """Return the possible index files of the output; htslib takes the first that exists."""
    endings = ("csi", "tbi") if output.name.endswith(".vcf.gz") else ()
    return [Path(f"{output}.{ending}") for ending in endings]


def write_index(output: Path, longest_bp: int) -> None:
    """Write the index of a bgzip VCF: tabix, or CSI for positions beyond its limit."""
    csi, tbi = index_paths(output)
    if longest_bp < _TABIX_MOST_BP:
        try:
            return _write_index(output, tbi)
        except OSError:  # a record or its END is beyond the end of any contig
            pass
    try:
        _write_index(output, csi)
    except OSError as error:
        wrong = f"is written, but not its index; is the disk full? ({error})"
        raise OSError(error.errno, wrong, str(output)) from None


def _write_index(output: Path, path: Path) -> None:
    is_csi = path.suffix == ".csi"
    pysam.set_verbosity(0)  # errors are raised
    with atomic_file(path) as index:
        pysam.tabix_index(str(output), preset="vcf", force=True, csi=is_csi, index=str(index))


def _settings(runner: "ModelRunner", job: VariantJob, method: Method) -> dict[str, Any]:
    genes = job.genes
    return {
        "model": job.loading.model,
        "yarn": runner.yarn,
        **method.settings(),
        "dtype": runner.dtype,
        **({"scores": method.scores} if method.scores != DEFAULT_SCORES else {}),
        **({"contigs": genes.contigs} if genes.contigs else {}),
        **({"genetic_code": genes.genetic_code} if genes.genetic_code else {}),
        **({"min_qual": job.min_qual} if job.min_qual is not None else {}),
        **({"filters": job.filters.split(",")} if job.filters else {}),
        "variants": "trimmed and left-aligned before they are scored",
        "delta": "log-likelihood(ALT) - log-likelihood(REF), nats",
        "spread": "standard deviation of delta over offsets and strands, nats",
    } | ({ANNOTATION: genes.annotation.name} if genes.annotation else {})


def fingerprints(job: VariantJob, vcf: Path) -> dict[str, Any]:
    """Return checksums of the inputs of a job, and the filters that no setting records."""
    genes = job.genes
    table = names_table(genes.contigs)
    return {
        "VCF": content_sha256(vcf),
        "reference": content_sha256(job.reference),
        "skip_mismatches": job.skip_mismatches,
        "contigs": content_sha256(table) if table else genes.contigs,
        "region": content_sha256(job.regions_file) if job.regions_file else job.region,
    } | ({"annotation file": content_sha256(genes.annotation)} if genes.annotation else {})


def why_unwritable(row: VcfRow, job: VariantJob) -> str | None:
    """Return why scores cannot be written to a record, or None."""
    if OUR_FIELD.search(row.columns[7]):
        return "already has CARBON_ fields; give the VCF without scores"
    if index_paths(job.output) and _reaches_too_far(row):
        return "its END or SVLEN is too far off for the index of a .vcf.gz; write a .vcf"
    return None


def checked_records(
    vcf: VcfReader,
    reference: Reference,
    job: VariantJob,
    why_wrong: Callable[[VcfRow, VariantJob], str | None] = lambda row, job: None,
) -> int:
    """Read all records and return how many are to be scored.

    Raises:
        GenomeError: records disagree with the reference, and the job does not skip them; or a
            record is wrong for the job.
    """
    agreement = Agreement(vcf.path, reference)
    for row in vcf:
        if wrong := why_wrong(row, job):
            raise GenomeError(f"{vcf.path} record {row.number}: {wrong}")
        agreement.add(row)
    if agreement.has_contradictions and not job.skip_mismatches:
        others = " (--skip-mismatches scores the others)" if agreement.has_others else ""
        raise GenomeError(f"{agreement.summary()}{others}")
    if agreement.is_doubtful:
        say(f"warning: {agreement.summary()}")
    return agreement.num_records


def _reaches_too_far(row: VcfRow) -> bool:
    """Return whether a record ends, for htslib, beyond the limit of an index."""
    for key, text in _REACH.findall(row.columns[7]):
        start = int(row.columns[1]) if key == "SVLEN" else 0
        for number in re.findall("[0-9]+", text):
            if len(number) > len(str(_CSI_MOST_BP)) or start + int(number) > _CSI_MOST_BP:
                return True
    return False


def _rows(results: Results, reference: Reference) -> Iterator[tuple[VcfRow, list[Columns]]]:
    """Yield each record with the columns of its alleles that follow from the scores."""
    for block, scores_of_block in results:
        for row, scores in zip(block, scores_of_block, strict=True):
            forms = _scored_as(reference, row)
            yield (
                row,
                [
                    dict(zip(_SCORED, score, strict=True)) | {"scored_as": form}
                    for score, form in zip(scores, forms, strict=True)
                ],
            )
