"""What to scan: a region, a gene, a contig or a genome, and the files that are to come of it."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from carbon.errors import UserError
from carbon.genome import (
    Annotation,
    Interval,
    Reference,
    contig_names,
    read_gene_file,
    region_by_name,
)
from carbon.genome.contig_names import names_table
from carbon.genome.gene_lookup import find_gene
from carbon.genome.regions import Regions, read_regions
from carbon.inference.scan.method import ScanMethod
from carbon.inference.scan.writers import ScanWriter
from carbon.io.files import behind_links, free_folder, output_path
from carbon.io.tables import chosen_by_ending
from carbon.options import ScanOptions
from carbon.pictures import check_installed, check_picture
from carbon.sums import content_sha256

MOST_DRAWN_BP = 20_000
_DATASET = ".parquet"


@dataclass(frozen=True, kw_only=True, slots=True)
class ScanJob:
    """What to scan, and what to write of it.

    Attributes:
        model: its name, for the record.
        reference: FASTA.
        outputs: .parquet, .tsv and .bw files; of a genome, a .parquet is a folder.
        region: `contig:first-last`, 1-based and inclusive; one of this and the next four is given.
        contig: the whole of it.
        gene: name or identifier, in the annotation.
        genome: all contigs of the reference.
        regions: a BED whose regions are scanned.
        annotation: GFF3, GTF or BED, for the gene and for the exons of the picture.
        contigs: `chr`, or a table, where the region, the contig or the annotation names contigs
            otherwise than the reference.
        flank_bp: scanned on both sides beside it.
        plot: a picture to draw.
        along_gene: read the strand of the gene.
        options: how the region is scanned.
        resume: go on with what was left of blocks.
    """

    model: str
    reference: Path
    outputs: tuple[Path, ...]
    region: str | None = None
    contig: str | None = None
    gene: str | None = None
    genome: bool = False
    regions: Path | None = None
    annotation: Path | None = None
    contigs: str | None = None
    flank_bp: int = 0
    plot: Path | None = None
    along_gene: bool = False
    options: ScanOptions = field(default_factory=ScanOptions)
    resume: bool = False

    @property
    def wanted(self) -> list[Path]:
        """All that is to be written."""
        return [*self.outputs, *([self.plot] if self.plot else [])]

    @property
    def folders(self) -> list[Path]:
        """Those of the outputs that are folders."""
        return [path for path in self.outputs if self.genome and path.suffix == _DATASET]

    def check_outputs(self) -> None:
        """Raise UserError where an output cannot be written."""
        for path in self.wanted:
            free_folder(path) if path in self.folders else output_path(path)


class Asked(NamedTuple):
    """What a job asks for, found in its files.

    Attributes:
        writers: one for each output.
        reference: opened.
        annotation: if one is given.
        places: to scan, of a contig each.
        options: how.
    """

    writers: list[ScanWriter]
    reference: Reference
    annotation: Annotation | None
    places: tuple[Interval, ...]
    options: ScanOptions


@contextmanager
def asked(job: ScanJob) -> Iterator[Asked]:
    """Check a job, and open its reference.

    Raises:
        GenomeError: the region or the gene is not there, or a file is malformed.
        UserError: an ending or a combination of settings is not possible.
    """
    writers = _checked(job)
    with Reference(job.reference) as reference:
        names = contig_names(job.contigs, reference.contig_lengths_bp)
        annotation = None
        if job.annotation:
            annotation = read_gene_file(job.annotation, reference, names)
        places, options = _places(reference, annotation, job, names)
        num_bases = sum(place.length_bp for place in places)
        if job.plot and (len(places) > 1 or num_bases > MOST_DRAWN_BP):
            raise UserError(
                f"{job.plot}: {num_bases} bases make no readable picture; draw at most "
                f"{MOST_DRAWN_BP}, and look at more in a genome browser (an output that ends in "
                ".bw)"
            )
        yield Asked(writers, reference, annotation, places, options)


def settings_of(
    job: ScanJob, model: Mapping[str, Any], places: tuple[Interval, ...], method: ScanMethod
) -> dict[str, Any]:
    """Return what is written beside the numbers.

    Args:
        job: what is scanned.
        model: its `yarn` and `dtype`.
        places: that are scanned.
        method: how.
    """
    return {
        "model": job.model,
        "yarn": model["yarn"],
        "protocol": "scan",
        "region": _region_of(job, places),
        "gene": job.gene,
        **({"contigs": job.contigs} if job.contigs else {}),
        **method._asdict(),
        "dtype": model["dtype"],
        "values": "log p(base | all bases before it on the strand that is read), nats",
        "delta": "log p(alt) - log p(ref)",
        "position": "1-based",
    }


def _region_of(job: ScanJob, places: tuple[Interval, ...]) -> str:
    if job.genome:
        return "genome"
    return job.regions.name if job.regions else places[0].to_region()


def fingerprints(job: ScanJob) -> dict[str, Any]:
    """Return what distinguishes the reference from others of the same name."""
    found = {"reference": content_sha256(job.reference)}
    return found | ({"regions": content_sha256(job.regions)} if job.regions else {})


def _checked(job: ScanJob) -> list[ScanWriter]:
    """Return a writer for each output; what is wrong with the names is known at once."""
    kind = "genome scan" if job.genome else "scan"
    writers = [chosen_by_ending(path, kind) for path in job.outputs]
    check_picture(job.plot)
    given = (job.reference, job.annotation, names_table(job.contigs), job.regions)
    resolved = [behind_links(path) for path in (*given, *job.wanted) if path]
    for path in job.wanted:
        if resolved.count(behind_links(path)) > 1:
            raise UserError(f"{path}: is named twice, or an input too; name another output")
    if any(path.suffix == ".bw" for path in job.outputs):
        check_installed("pyBigWig")
    if job.gene and not job.annotation:
        raise UserError(f"gene '{job.gene}': give the --annotation that it is in")
    if job.along_gene and not job.gene:
        raise UserError("--strands gene: give the --gene whose strand to read")
    return writers


def _places(
    reference: Reference, annotation: Annotation | None, job: ScanJob, names: Mapping[str, str]
) -> tuple[tuple[Interval, ...], ScanOptions]:
    """Return where to scan, and how."""
    lengths_bp = reference.contig_lengths_bp
    if job.genome:
        contigs = [Interval(contig, 0, end) for contig, end in lengths_bp.items() if end]
        if not contigs:
            raise UserError(f"{job.reference}: has no bases to scan")
        return tuple(contigs), job.options
    if job.regions and (regions := read_regions(None, job.regions, lengths_bp, names)):
        wide = [each.widened(job.flank_bp, lengths_bp[each.contig]) for each in regions.intervals]
        return Regions(wide, lengths_bp).intervals, job.options
    place, options = _place(reference, annotation, job, names)
    place = place.widened(job.flank_bp, lengths_bp[place.contig])
    if place.length_bp == 0:
        raise UserError(f"'{place.contig}' has no bases to scan")
    return (place,), options


def _place(
    reference: Reference, annotation: Annotation | None, job: ScanJob, names: Mapping[str, str]
) -> tuple[Interval, ScanOptions]:
    """Return a region, a gene or a contig, and how to scan there."""
    lengths_bp, options = reference.contig_lengths_bp, job.options
    if job.gene and annotation:
        gene = find_gene(annotation, job.gene)
        place = gene.interval
        if place.end > lengths_bp[place.contig]:
            raise UserError(
                f"gene '{job.gene}': goes over the origin of '{place.contig}'; give its two parts "
                "as regions"
            )
        if job.along_gene:
            options = {**options, "strands": "forward" if gene.strand == "+" else "reverse"}
    elif job.contig:
        contig = names.get(job.contig, job.contig)
        if contig not in lengths_bp:
            raise UserError(f"{reference.path}: {reference.explain_missing([contig])}")
        place = Interval(contig, 0, lengths_bp[contig])
    else:
        place = region_by_name(job.region or "", lengths_bp, names)
    return place, options
