"""AlleleScore a VCF into a file, in blocks by workers, after checking it against the reference."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pysam

from carbon.errors import GenomeError
from carbon.genome import (
    Interval,
    Reference,
    VcfReader,
    VcfRow,
    contig_names,
    read_gene_file,
    short,
)
from carbon.genome.bed import read_regions
from carbon.genome.cds_codes import cds_of_unknown_code, unknown_code_warnings
from carbon.genome.contig_names import names_table
from carbon.genome.normalize import other_form
from carbon.genome.vcf import RecordFilter
from carbon.inference.identity import identity_of
from carbon.inference.identity import settings_of as background_settings_of
from carbon.inference.options import VariantOptions
from carbon.inference.variants.annotate import (
    ANNOTATION,
    AlleleScore,
    Annotated,
    annotator,
    background_for,
    ranker,
)
from carbon.inference.variants.formats import OUR_FIELD, scored_header
from carbon.inference.variants.score import VariantScore, score_variants
from carbon.inference.variants.windows import Method, method_for
from carbon.io.files import atomic_file, check_no_input, content_sha256, output_path
from carbon.io.tables import chosen_by_ending
from carbon.parallel.driver import Job, Workers, in_blocks, run_job
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

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
_TABIX_MOST_BP = 2**29  # https://samtools.github.io/hts-specs/tabix.pdf
_CSI_MOST_BP = 2**31  # as htslib writes it
Results = Iterator[tuple[list[VcfRow], Any]]
_REACH = re.compile(r"(?:^|;)(END|SVLEN)=([^;]*)")


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantJob:
    """A VCF to score, how to score it, and the output.

    Attributes:
        model: name of the model, for the record.
        reference: FASTA.
        vcf: variants of this reference.
        output: a .vcf, .vcf.gz, .tsv, .json or .parquet.
        options: scoring options.
        resume: continue an earlier run.
        skip_mismatches: skip records whose REF contradicts the reference.
        strict: refuse a VCF that violates its specification.
        annotation: GFF3, GTF, BED or GenBank of the reference, for consequences.
        contigs: `chr`, or a table, if the VCF and the annotation use other contig names than the
            reference.
        genetic_code: NCBI translation table if the annotation states none, such as `4`, or
            `1,Mito=3`.
        region: `contig` or `contig:first-last`: score the records with POS in it.
        regions: a BED: score the records with POS in one of its regions.
        min_qual: score the records with at least this QUAL.
        filters: score the records with one of these names in FILTER, such as `PASS`; `.` selects
            records without filters.
        background: file of `carbon background`, for percentiles.
        own_background: where the model's own background may be; used without `background` if it
            fits. None for no percentiles.
    """

    model: str
    reference: Path
    vcf: Path
    output: Path
    options: VariantOptions = field(default_factory=VariantOptions)
    resume: bool = False
    skip_mismatches: bool = False
    strict: bool = False
    annotation: Path | None = None
    contigs: str | None = None
    genetic_code: str | None = None
    region: str | None = None
    regions: Path | None = None
    min_qual: float | None = None
    filters: tuple[str, ...] = ()
    background: Path | None = None
    own_background: Path | None = None

    def __post_init__(self) -> None:
        """Raise UserError if `min_qual` or `filters` is invalid."""
        RecordFilter(min_qual=self.min_qual, filters=self.filters)


class VariantScorer:
    """A worker that scores the alleles of VCF records.

    Attributes:
        about: `settings`, which the output stores, `identity` of the model, and `background`:
            settings that a background must share.
    """

    def __init__(self, runner: "ModelRunner", job: VariantJob) -> None:
        """Open the reference.

        Args:
            runner: runner of the model.
            job: the job.

        Raises:
            UserError: an option is invalid.
        """
        self._runner, self._method = runner, method_for(runner, **job.options)
        self._reference = Reference(job.reference)
        background = {}
        if job.background or (job.own_background and job.own_background.is_file()):
            background = background_settings_of(runner, self._method)
        self.about = {
            "settings": _settings(runner, job, self._method),
            "identity": identity_of(runner, job.model),
            "background": background,
        }

    def __call__(self, payload: list[VcfRow]) -> list[list[AlleleScore]]:
        """Return the scores of the alleles of each record."""
        return _score_block(self._runner, self._reference, payload, self._method)


def run_variant_job(job: VariantJob, workers: Workers) -> dict[str, Any]:
    """AlleleScore a VCF into a file, which appears when complete.

    Args:
        job: the job.
        workers: workers, each a `VariantScorer` of this job.

    Returns:
        The summary.

    Raises:
        GenomeError: the VCF is malformed, unsorted or of another reference.
        UserError: the output's suffix or the window is invalid.
    """
    writer = chosen_by_ending(job.output, "variants")
    output_path(job.output)
    table = names_table(job.contigs)
    inputs = (job.vcf, job.reference, job.annotation, table, job.background, job.regions)
    check_no_input(job.output, *inputs)
    about = workers.about()
    background, percentile = background_for(
        about["background"], job.background, job.own_background, annotated=bool(job.annotation)
    )
    settings: dict[str, Any] = about["settings"] | percentile
    with Reference(job.reference) as reference:
        names = contig_names(job.contigs, reference.contig_lengths_bp)
        keep = RecordFilter(
            regions=read_regions(job.region, job.regions, reference.contig_lengths_bp, names),
            min_qual=job.min_qual,
            filters=job.filters,
        )
        vcf = VcfReader(job.vcf, reference, strict=job.strict, contig_names=names, keep=keep)
        scored_header(vcf, settings)
        annotated, unknown_codes = _annotator(job, reference, names)
        ranked = ranker(background, reference)

        def write(results: Results) -> dict[str, Any]:
            counts = _Counts()
            with atomic_file(job.output) as temporary:
                with writer(temporary, vcf, settings) as write_row:
                    for row, scores in _rows(results, reference):
                        write_row((row, shown := ranked(row, annotated(row, scores))))
                        counts.add(shown, _num_normalized(reference, row))
                for stale in index_paths(job.output):
                    stale.unlink(missing_ok=True)
            if job.output.name.endswith(".vcf.gz"):
                write_index(job.output, max(reference.contig_lengths_bp.values()))
            return counts.shown()

        blocks = Job(
            description="scoring variants",
            output=job.output,
            settings=settings | about["identity"] | _fingerprints(job),
            check=lambda: _checked(vcf, reference, job),
            blocks=lambda: in_blocks(vcf, _RECORDS_PER_BLOCK),
            # Workers do not need genotypes, of which there may be thousands.
            payload=lambda block: [row._replace(columns=()) for row in block],
            source=str(job.vcf),
            resume=job.resume,
        )
        counts = run_job(blocks, workers, write)
    return _message(job, vcf, counts | unknown_codes) | _part_of(job) | settings


def _part_of(job: VariantJob) -> dict[str, str]:
    """Return the scored region, for the summary."""
    region = job.regions.name if job.regions else job.region
    return {"region": region} if region else {}


def _annotator(
    job: VariantJob, reference: Reference, names: Mapping[str, str]
) -> tuple[Annotated, dict[str, Any]]:
    """Return the annotator, and for the summary the CDS with an unknown genetic code."""
    if job.annotation is None:
        return annotator(None, reference), {}
    annotation = read_gene_file(job.annotation, reference, names, job.genetic_code)
    unknown = cds_of_unknown_code(reference, annotation)
    return annotator(annotation, reference), {_UNKNOWN_CODES: unknown}


def _num_normalized(reference: Reference, row: VcfRow) -> int:
    """Return how many alleles of a record change by normalisation."""
    return sum(text is not None for text in _scored_as(reference, row))


def _scored_as(reference: Reference, row: VcfRow) -> list[str | None]:
    """Return `contig:position:REF:ALT` of each allele that changes by normalisation.

    The contig has its name in the VCF.
    """
    if row.disagreement:
        return [None] * len(row.variants)
    return [other_form(reference, variant, row.columns[0]) for variant in row.variants]


def _message(job: VariantJob, vcf: VcfReader, counts: dict[str, Any]) -> dict[str, Any]:
    for line in vcf.warning_lines():
        say(line)
    for line in unknown_code_warnings(job.annotation, counts.get(_UNKNOWN_CODES, {})):
        say(f"warning: {line}")
    warnings = {rule: warned.num_lines for rule, warned in vcf.warnings.items()}
    return {"output": str(job.output), **counts, **_left_out(job, vcf), "warnings": warnings}


def _left_out(job: VariantJob, vcf: VcfReader) -> dict[str, dict[str, int]]:
    """Return how many records of the region QUAL and FILTER exclude; empty without such filters."""
    if job.min_qual is None and not job.filters:
        return {}
    return {"records_left_out": {name: vcf.left_out[name] for name in ("qual", "filter")}}


@dataclass(slots=True)
class _Counts:
    """Counts of scored records."""

    records: int = 0
    scored: int = 0
    not_scored: int = 0
    unsure: int = 0
    with_spread: int = 0
    normalised: int = 0
    one_strand: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    percentiles_of: Counter[str] = field(default_factory=Counter)

    def add(self, scores: Sequence[AlleleScore], num_normalised: int) -> None:
        """Count a record, its scores, and its alleles that change by normalisation."""
        self.records += 1
        self.scored += sum(score.delta is not None for score in scores)
        self.not_scored += sum(score.delta is None for score in scores)
        self.unsure += sum(score.unsure is True for score in scores)
        self.with_spread += sum(score.unsure is not None for score in scores)
        self.normalised += num_normalised
        self.one_strand += sum(score.strand_left_out is not None for score in scores)
        self.reasons.update(score.reason for score in scores if score.reason)
        self.percentiles_of.update(s.percentile_of for s in scores if s.percentile_of)

    def shown(self) -> dict[str, Any]:
        """Return the counts for the summary; a record has as many alleles as ALTs."""
        return {
            "records": self.records,
            "alleles": self.scored + self.not_scored,
            "alleles_scored": self.scored,
            "alleles_not_scored": self.not_scored,
            "alleles_normalised": self.normalised,
            "alleles_by_one_strand": self.one_strand,
            "alleles_unsure": self.unsure if self.with_spread else None,
            "reasons": dict(sorted(self.reasons.items())),
            "percentiles_of": dict(sorted(self.percentiles_of.items())),
        }


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
    return {
        "model": job.model,
        "yarn": runner.yarn,
        **method._asdict(),
        "dtype": runner.dtype,
        **({"contigs": job.contigs} if job.contigs else {}),
        **({"genetic_code": job.genetic_code} if job.genetic_code else {}),
        **({"min_qual": job.min_qual} if job.min_qual is not None else {}),
        **({"filters": list(job.filters)} if job.filters else {}),
        "variants": "trimmed and left-aligned before they are scored",
        "delta": "log-likelihood(ALT) - log-likelihood(REF), nats",
        "spread": "standard deviation of delta over offsets and strands, nats",
    } | ({ANNOTATION: job.annotation.name} if job.annotation else {})


def _fingerprints(job: VariantJob) -> dict[str, Any]:
    """Return checksums of the inputs."""
    table = names_table(job.contigs)
    return {
        "VCF": content_sha256(job.vcf),
        "reference": content_sha256(job.reference),
        "skip_mismatches": job.skip_mismatches,
        "contigs": content_sha256(table) if table else job.contigs,
        "region": content_sha256(job.regions) if job.regions else job.region,
    } | ({"annotation file": content_sha256(job.annotation)} if job.annotation else {})


def _checked(vcf: VcfReader, reference: Reference, job: VariantJob) -> int:
    """Read all records and return how many are to be scored.

    Raises:
        GenomeError: records disagree with the reference, and the job does not skip them.
    """
    agreement = Agreement(vcf.path, reference)
    for row in vcf:
        wrong = None
        if OUR_FIELD.search(row.columns[7]):
            wrong = "already has CARBON_ fields; give the VCF without scores"
        elif index_paths(job.output) and _reaches_too_far(row):
            wrong = "its END or SVLEN is too far off for the index of a .vcf.gz; write a .vcf"
        if wrong:
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


def _rows(results: Results, reference: Reference) -> Iterator[tuple[VcfRow, list[AlleleScore]]]:
    for block, results_of_block in results:
        for row, scores in zip(block, results_of_block, strict=True):
            forms = _scored_as(reference, row)
            yield (
                row,
                [
                    AlleleScore(*score)._replace(scored_as=form)
                    for score, form in zip(scores, forms, strict=True)
                ],
            )


def _score_block(
    runner: "ModelRunner", reference: Reference, block: list[VcfRow], method: Method
) -> list[list[AlleleScore]]:
    variants = [variant for row in block if not row.disagreement for variant in row.variants]
    variant_scores = score_variants(runner, reference, variants, method)
    return [
        [
            AlleleScore(None, row.disagreement.reason)
            if row.disagreement
            else _allele_score(next(variant_scores))
            for _ in row.variants
        ]
        for row in block
    ]


def _allele_score(score: VariantScore) -> AlleleScore:
    return AlleleScore(*score[1:], score.unsure)
