"""Methods of `Model` on files: the rows of `carbon variants`, `score`, `embed` and `scan`.

Each runs the job of its command, so names, defaults and values are those of the command.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Unpack

from carbon.errors import UserError
from carbon.genome import Reference
from carbon.genome.records import Region, intervals_of
from carbon.inference.options import (
    DEFAULT_SCORES,
    AnnotationOptions,
    EmbedKeywords,
    EmbedOptions,
    ScanKeywords,
    ScanOptions,
    ScoreKeywords,
    ScoreName,
    ScoreOptions,
    VariantKeywords,
    VariantOptions,
    check_resumed,
    source_of,
    takes,
)
from carbon.io.files import scratch_folder
from carbon.io.rows import Table
from carbon.parallel.options import WorkerOptions
from carbon.progress import bars_only

if TYPE_CHECKING:
    from carbon.inference.runner import ModelRunner

File = str | Path


def _module(name: str) -> Any:
    """Import a module by its name.

    Its workers compute with `Model`, whose methods these are: a circle, which this call closes when
    a method runs. Without it, workers would need a second class of models without these methods.
    """
    return import_module(f"carbon.inference.{name}")


class _Scratch(NamedTuple):
    """A temporary folder of a call.

    Attributes:
        rows: the Parquet file of the result.
        regions: a BED with the intervals of the call.
    """

    rows: Path
    regions: Path

    def place(self, region: Region | None, regions_file: File | None) -> dict[str, Any]:
        """Return the options of a command for a region; intervals become a BED.

        Raises:
            TypeError: the region is neither text nor intervals.
            UserError: a file is given too.
        """
        if region is not None and regions_file is not None:
            raise UserError("region and regions_file: give one of them")
        if region is None or isinstance(region, str):
            return {"region": region, "regions_file": _path(regions_file)}
        intervals = intervals_of(region)
        if len(intervals) == 1:
            return {"region": intervals[0].to_region(), "regions_file": None}
        lines = (f"{each.contig}\t{each.start}\t{each.end}\n" for each in intervals)
        self.regions.write_text("".join(lines), encoding="utf-8")
        return {"region": None, "regions_file": self.regions}


@contextmanager
def _scratch() -> Iterator[_Scratch]:
    with scratch_folder("rows") as folder, bars_only():
        yield _Scratch(folder / "rows.parquet", folder / "regions.bed")


class FileMethods:
    """Methods on files, each with the rows of a command.

    They use the loaded model, unless worker processes are requested: those load the model's folder,
    and not weights that were changed in memory (save such a model first). Other
    threads may run meanwhile; in an asyncio program call them by `asyncio.to_thread`. Progress is a
    bar on a terminal and in a notebook, and nothing elsewhere.

    Attributes:
        source: folder or name that the model was loaded from; empty if it was not loaded.
        runner: runs the network.
    """

    source: str
    runner: "ModelRunner"

    @takes(VariantOptions)
    def score_vcf(
        self,
        path: File,
        *,
        reference: File | Reference,
        annotation: File | None = None,
        contigs: str | None = None,
        genetic_code: str | None = None,
        region: Region | None = None,
        regions_file: File | None = None,
        min_qual: float | None = None,
        filters: str = "",
        scores: Sequence[ScoreName] = DEFAULT_SCORES,
        background: File | None = None,
        no_background: bool = False,
        calibration: File | None = None,
        skip_mismatches: bool = False,
        strict: bool = False,
        output: File | None = None,
        processes: int = 0,
        ray: str | None = None,
        resume: bool = False,
        **options: Unpack[VariantKeywords],
    ) -> Table:
        """Score the variants of a VCF; return the rows of `carbon variants`, one for each ALT.

        A negative `delta` means that the model finds the variant less likely.

        Args:
            path: sorted VCF, plain, gzip or bgzip; or BCF.
            reference: FASTA that the variants refer to.
            annotation: GFF3, GTF, BED or GenBank; with it, rows have gene and consequence.
            contigs: if a file uses other contig names than the reference: a table of its names and
                the reference's, or `chr` to add or remove 'chr' (and M for MT).
            genetic_code: NCBI translation table of CDS without transl_table in the annotation, such
                as `4`, or `1,Mito=3` with contigs of the reference.
            region: score the records whose POS is in it: `contig:first-last`, 1-based, both ends
                included; an `Interval`, several, or a PyRanges.
            regions_file: BED; score the records whose POS is in one of its regions.
            min_qual: score the records whose QUAL is at least this.
            filters: score the records whose FILTER has one of these names, such as `PASS,q10`.
            scores: scores to return besides the delta.
            background: file of `carbon background`, for percentiles; by default the one in the
                model's folder, if it matches.
            no_background: return no percentiles.
            calibration: file of `carbon background --neighbour-bp`, for `calibrated_delta`.
            skip_mismatches: skip records whose REF contradicts the reference.
            strict: refuse a VCF that breaks any rule of its format.
            output: also write this .vcf, .vcf.gz, .tsv, .json or .parquet, as the command does.
            processes: worker processes; 0 computes in this process with this model.
            ray: HOST:PORT of the head node of a Ray cluster to compute on.
            resume: continue a call with the same `output` that was stopped.
            **options: fields of `VariantOptions`:

        Raises:
            GenomeError: the VCF is malformed, unsorted or of another reference.
            UserError: an option is invalid, or a file is absent.
        """
        with _scratch() as scratch:
            genes = AnnotationOptions(
                annotation=_path(annotation), contigs=contigs, genetic_code=genetic_code
            )
            job = _module("jobs").VariantJob(
                loading=self._loaded(),
                reference=_fasta(reference),
                output=_path(output) or scratch.rows,
                vcf=Path(path),
                genes=genes,
                **scratch.place(region, regions_file),
                min_qual=None if min_qual is None else float(min_qual),
                filters=filters,
                background=_path(background),
                no_background=no_background,
                scores=scores,
                calibration=_path(calibration),
                method=VariantOptions(**options),
                skip_mismatches=skip_mismatches,
                strict=strict,
            )
            genes.check()
            job.check_scores()
            workers = self._workers(processes, ray, resume, output)
            run = _module("variants.files").run_variant_job
            summary = run(job, workers, scratch.rows if output else None)
            return Table(scratch.rows, summary | {"output": _text(output)})

    @takes(ScoreOptions)
    def score_fasta(
        self,
        path: File,
        *,
        per_base: bool = False,
        output: File | None = None,
        processes: int = 0,
        ray: str | None = None,
        resume: bool = False,
        **options: Unpack[ScoreKeywords],
    ) -> Table:
        """Score the sequences of a file; return the rows of `carbon score`.

        Args:
            path: FASTA or FASTQ, plain, bgzip or gzip.
            per_base: return a row for each base.
            output: also write this .tsv, .json or .parquet, as the command does.
            processes: worker processes; 0 computes in this process with this model.
            ray: HOST:PORT of the head node of a Ray cluster to compute on.
            resume: continue a call with the same `output` that was stopped.
            **options: fields of `ScoreOptions`:

        Raises:
            GenomeError: the file is absent or malformed.
            UserError: an option is invalid.
        """
        workers = self._workers(processes, ray, resume, output)
        job, run = _module("jobs").ScoreJob, _module("sequence_job").run_score_job
        fields = {"per_base": per_base, "method": ScoreOptions(**options)}
        return self._sequences(path, output, workers, job, run, fields)

    @takes(EmbedOptions)
    def embed_fasta(
        self,
        path: File,
        *,
        output: File | None = None,
        processes: int = 0,
        ray: str | None = None,
        resume: bool = False,
        **options: Unpack[EmbedKeywords],
    ) -> Table:
        """Embed the sequences of a file; return the rows of `carbon embed`.

        Args:
            path: FASTA or FASTQ, plain, bgzip or gzip.
            output: also write this .parquet or .npz, as the command does.
            processes: worker processes; 0 computes in this process with this model.
            ray: HOST:PORT of the head node of a Ray cluster to compute on.
            resume: continue a call with the same `output` that was stopped.
            **options: fields of `EmbedOptions`:

        Returns:
            Rows of `name`, number of `bases`, and `embedding`, a list of `width` numbers, NaN
            without known bases.

        Raises:
            GenomeError: the file is absent or malformed.
            UserError: an option is invalid.
        """
        workers = self._workers(processes, ray, resume, output)
        job, run = _module("jobs").EmbedJob, _module("sequence_job").run_embed_job
        return self._sequences(path, output, workers, job, run, {"method": EmbedOptions(**options)})

    @takes(ScanOptions)
    def scan_region(
        self,
        region: Region | None = None,
        *,
        reference: File | Reference,
        regions_file: File | None = None,
        contig: str | None = None,
        gene: str | None = None,
        annotation: File | None = None,
        contigs: str | None = None,
        flank_bp: int = 0,
        plot: File | None = None,
        output: File | Sequence[File] = (),
        processes: int = 0,
        ray: str | None = None,
        resume: bool = False,
        **options: Unpack[ScanKeywords],
    ) -> Table:
        """Scan a region base by base; return the rows of `carbon scan`.

        Args:
            region: `contig:first-last`, 1-based, both ends included; an `Interval`, several, or a
                PyRanges. Give one of region, regions_file, contig and gene.
            reference: FASTA, plain, bgzip or gzip.
            regions_file: BED; all its regions.
            contig: a whole contig.
            gene: name or identifier, with an annotation.
            annotation: GFF3, GTF, BED or GenBank, plain or gzip.
            contigs: if a file uses other contig names than the reference: a table of its names and
                the reference's, or `chr` to add or remove 'chr' (and M for MT).
            flank_bp: bases added on both sides.
            plot: heat map to write, .png, .svg or .pdf.
            output: also write these .parquet, .tsv and .bw, as the command does.
            processes: worker processes; 0 computes in this process with this model.
            ray: HOST:PORT of the head node of a Ray cluster to compute on.
            resume: continue a call with the same `output` that was stopped.
            **options: fields of `ScanOptions`:

        Returns:
            Rows of `contig`, `position` (1-based), `ref`, the log-probabilities `A`, `C`, `G` and
            `T` in nats, and `entropy_nats`.

        Raises:
            GenomeError: the region or the gene does not exist, or a file is malformed.
            UserError: an option is invalid, or not one place is given.
        """
        outputs = [output] if isinstance(output, str | Path) else list(output)
        given = {"region": region, "regions_file": regions_file, "contig": contig, "gene": gene}
        if sum(value is not None for value in given.values()) != 1:
            raise UserError(f"a place to scan: give one of {', '.join(given)}")
        with _scratch() as scratch:
            job = _module("jobs").ScanJob(
                loading=self._loaded(),
                reference=_fasta(reference),
                output=tuple(map(str, [*outputs, scratch.rows])),
                **scratch.place(region, regions_file),
                contig=contig,
                gene=gene,
                annotation=_path(annotation),
                contigs=contigs,
                flank_bp=flank_bp,
                plot=_path(plot),
                method=ScanOptions(**options),
            )
            run = _module("scan.job").run_scan_job
            summary = run(job, self._workers(processes, ray, resume, outputs))
            written = [path for path in summary["outputs"] if path != str(scratch.rows)]
            return Table(scratch.rows, summary | {"outputs": written})

    def _sequences(
        self,
        path: File,
        output: File | None,
        workers: WorkerOptions,
        job: Any,
        run: Any,
        fields: dict[str, Any],
    ) -> Table:
        """Run a job on the sequences of a file; return its rows and summary.

        Args:
            path: FASTA or FASTQ.
            output: file to write next to the table, or None.
            workers: where to compute.
            job: class of the job.
            run: function that runs it.
            fields: of the job, besides the model and the output.
        """
        with _scratch() as scratch:
            target = _path(output) or scratch.rows
            summary = run(
                str(path),
                job(loading=self._loaded(), output=target, **fields),
                workers,
                scratch.rows if output else None,
            )
            return Table(scratch.rows, summary)

    def _loaded(self) -> Any:
        """Return the loading options of this model, which jobs in this process use as it is."""
        network: Any = self.runner.network
        return _module("jobs").Loaded(
            model=source_of(self),
            dtype=self.runner.dtype,
            attention=network.config._attn_implementation,
            yarn=self.runner.yarn,
            loaded=self,
        )

    def _workers(
        self, processes: int, ray: str | None, resume: bool, output: File | Sequence[File] | None
    ) -> WorkerOptions:
        """Return where to compute: by this model, or by workers on its kind of device."""
        check_resumed(resume, output)
        if ray is not None and processes:
            raise UserError("ray and processes: give one of them")
        kind = self.runner.device.type
        return WorkerOptions(
            device="auto" if kind == "cuda" else kind,
            processes=None if ray else processes,
            ray=ray,
            resume=resume,
        )


def _path(file: File | None) -> Path | None:
    return None if file is None else Path(file)


def _text(file: File | None) -> str | None:
    return None if file is None else str(file)


def _fasta(reference: File | Reference) -> Path:
    return Path(reference.path if isinstance(reference, Reference) else reference)
