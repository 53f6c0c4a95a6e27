"""A VCF in; a scored VCF, TSV or Parquet out, record by record in flat memory."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import pysam

from carbon.console import progress
from carbon.errors import GenomeError, UserError
from carbon.files import atomic_file, output_path, remove_leftovers, sha256_of_file
from carbon.genome import Interval, Reference, VcfReader, VcfRow, short
from carbon.inference.journal import Journal
from carbon.inference.reading import Reader
from carbon.inference.variants.method import Method, VariantOptions, method_for
from carbon.inference.variants.scores import score_variants
from carbon.inference.variants.writers import Score, Scored, scored_header, variant_writer

_RECORDS_AT_ONCE = 128  # scored together, and kept together by the journal
_MISMATCHES_SHOWN = 3
_TABIX_MOST_BP = 2**29  # https://samtools.github.io/hts-specs/tabix.pdf
_OUR_FIELD = re.compile(r"(?:^|;)CARBON_(?:DELTA|FORWARD|REVERSE|REASON)\b")
_MISMATCHES_SHIFTED = 1000  # looked at for a shift of the positions


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantJob:
    """What to score and how.

    Attributes:
        model: its name, for the record.
        reference: FASTA.
        vcf: of this reference.
        output: a .vcf, .vcf.gz, .tsv or .parquet.
        options: how the variants are scored.
        resume: go on with what an earlier run left.
        skip_mismatches: pass over records whose REF is not in the reference.
        strict: hold the VCF to its specification.
    """

    model: str
    reference: Path
    vcf: Path
    output: Path
    options: VariantOptions = field(default_factory=VariantOptions)
    resume: bool = False
    skip_mismatches: bool = False
    strict: bool = True


def run_variant_job(reader: Reader, job: VariantJob, dtype: str) -> dict[str, Any]:
    """Score a VCF into a file, which appears when it is whole; return what was done.

    Raises:
        GenomeError: the VCF is malformed, unsorted or of another reference.
        UserError: the output's ending or the window is not possible.
    """
    writer = variant_writer(job.output)
    method = method_for(reader, **job.options)
    if output_path(job.output) in (job.vcf.resolve(), job.reference.resolve()):
        raise UserError(f"{job.output}: is an input too; name another output")
    settings = _settings(reader, job, method, dtype)
    with Reference(job.reference) as reference:
        vcf = VcfReader(job.vcf, reference, strict=job.strict)
        scored_header(vcf, settings)
        # Read all of it once first: a bad last record costs seconds then, and not hours.
        num_records = _checked(vcf, reference, job)
        journal = Journal(job.output, settings | _fingerprints(reader, job), resume=job.resume)
        # The journal is locked: nobody else writes this output.
        for path in (job.output, *_indexes(job.output)):
            remove_leftovers(path)
        done = min(journal.num_blocks * _RECORDS_AT_ONCE, num_records)
        counts = _Counts()
        try:
            with (
                atomic_file(job.output) as temporary,
                progress("scoring variants", num_records, done) as advance,
            ):
                with writer(temporary, vcf, settings) as write:
                    for row, scores in _scored(reader, reference, vcf, method, journal):
                        write((row, scores))
                        counts.add(scores)
                        advance(counts.records > done)
                for stale in _indexes(job.output):
                    stale.unlink(missing_ok=True)
            if job.output.name.endswith(".vcf.gz"):
                _index(job.output, max(reference.contig_lengths_bp.values()))
        except BaseException:
            journal.say_what_is_kept()
            raise
        journal.remove()
    return {"output": str(job.output), **counts.shown(), **settings}


@dataclass(slots=True)
class _Counts:
    """What was done so far."""

    records: int = 0
    scored: int = 0
    not_scored: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, scores: Sequence[Score]) -> None:
        """Count the scores of a record."""
        self.records += 1
        self.scored += sum(score.delta is not None for score in scores)
        self.not_scored += sum(score.delta is None for score in scores)
        self.reasons.update(score.reason for score in scores if score.reason)

    def shown(self) -> dict[str, Any]:
        """Return them as they are printed."""
        counts = {"records": self.records, "scored": self.scored, "not_scored": self.not_scored}
        return {**counts, "reasons": dict(sorted(self.reasons.items()))}


def _indexes(output: Path) -> list[Path]:
    """Return what an index of the output may be called; htslib takes the first that is there."""
    endings = ("csi", "tbi") if output.name.endswith(".vcf.gz") else ()
    return [Path(f"{output}.{ending}") for ending in endings]


def _index(output: Path, longest_bp: int) -> None:
    """Write the index of a bgzip VCF: tabix, or CSI where a contig is too long for that."""
    csi, tbi = _indexes(output)
    is_long = longest_bp >= _TABIX_MOST_BP
    with atomic_file(csi if is_long else tbi) as index:
        pysam.tabix_index(str(output), preset="vcf", force=True, csi=is_long, index=str(index))


def _settings(reader: Reader, job: VariantJob, method: Method, dtype: str) -> dict[str, Any]:
    return {
        "model": job.model,
        "yarn": reader.yarn,
        **method._asdict(),
        "dtype": dtype,
        "delta": "log-likelihood(ALT) - log-likelihood(REF), nats",
    }


def _fingerprints(reader: Reader, job: VariantJob) -> dict[str, Any]:
    """Tell the inputs from others of the same name, and how they are computed with."""

    def stamp(path: Path) -> list[int]:
        return [path.stat().st_size, path.stat().st_mtime_ns]

    weights = sorted(Path(job.model).glob("*.safetensors"))
    return {
        "VCF": sha256_of_file(job.vcf),
        "reference": stamp(job.reference),
        "weights": [stamp(path) for path in weights],
        "config": reader.network.config.to_dict(),
        "device": reader.device.type,
        "skip_mismatches": job.skip_mismatches,
    }


def _checked(vcf: VcfReader, reference: Reference, job: VariantJob) -> int:
    """Read all records and return how many there are.

    Raises:
        GenomeError: REF alleles disagree with the reference, and that is not to be passed over.
    """
    num_records = num_mismatches = 0
    first: list[tuple[int, VcfRow]] = []
    for number, row in enumerate(vcf, start=1):
        num_records = number
        if _OUR_FIELD.search(row.columns[7]):
            raise GenomeError(
                f"{vcf.path} record {number}: has CARBON_ fields already: is it scored? give the "
                "original"
            )
        if row.mismatch is not None:
            num_mismatches += 1
            if len(first) < _MISMATCHES_SHIFTED:
                first.append((number, row))
    if num_mismatches and not job.skip_mismatches:
        shown = "; ".join(_described(number, row) for number, row in first[:_MISMATCHES_SHOWN])
        shift = _shift(reference, [row for _, row in first])
        raise GenomeError(
            f"{job.vcf}: {num_mismatches:,} of {num_records:,} REF alleles are not what "
            f"{job.reference} has: {shown}{shift}; is it the assembly that the variants were "
            "called on? (--skip-mismatches scores the others)"
        )
    return num_records


def _described(number: int, row: VcfRow) -> str:
    contig, position, _, ref = row.columns[:4]
    there = short(row.mismatch or "")
    return f"record {number} ({contig}:{position}) says {short(ref)}, there is {there}"


def _shift(reference: Reference, rows: list[VcfRow]) -> str:
    """Say so if the positions are off by one: if nearly all REF stand one base beside."""
    for step, way in ((1, "after"), (-1, "before")):
        agree = 0
        for row in rows:
            contig, ref = row.columns[0], row.columns[3].upper()
            start = int(row.columns[1]) - 1 + step
            if start >= 0 and start + len(ref) <= reference.contig_lengths_bp[contig]:
                there = reference.fetch(Interval(contig, start, start + len(ref)))
                agree += there.upper() == ref
        if agree > 0.9 * len(rows) and len(rows) > 2:
            return f"; {agree:,} of them stand one base {way}: are the positions off by one?"
    return ""


def _scored(
    reader: Reader, reference: Reference, vcf: VcfReader, method: Method, journal: Journal
) -> Iterator[Scored]:
    """Score records in blocks, so that alleles share batches, and hand them back in order."""
    rows = iter(vcf)
    earlier = journal.kept()
    while block := list(islice(rows, _RECORDS_AT_ONCE)):
        kept = next(earlier, None)
        if kept is None:
            kept = _score_block(reader, reference, block, method)
            journal.add(kept)
        for row, scores in zip(block, kept, strict=True):
            yield row, [Score(*score) for score in scores]


def _score_block(
    reader: Reader, reference: Reference, block: list[VcfRow], method: Method
) -> list[list[Score]]:
    variants = [variant for row in block if row.mismatch is None for variant in row.variants]
    found = score_variants(reader, reference, variants, method)
    passed_over = Score(None, "ref_mismatch", None, None)
    return [
        [passed_over if row.mismatch else Score(*next(found)[1:]) for _ in row.variants]
        for row in block
    ]
