"""The records and regions that a corpus held out, their genes, and the bases outside of them."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from carbon.corpus import held_out_of, read_manifest, read_source
from carbon.errors import UserError
from carbon.genome import (
    Annotation,
    Gene,
    Interval,
    Reference,
    Transcript,
    contig_names,
    from_region,
    read_annotation,
    spliced,
    translate,
)
from carbon.genome.annotation import reads_standard_code
from carbon.genome.genes import parts_on_contig
from carbon.io.files import content_sha256
from eval.contract import Example, Options
from eval.markov import Labelled, base_codes, states_of

_USUAL_SOURCE = "eukaryote"


class HeldOutRecords:
    """The records of a source of a corpus.

    Attributes:
        corpus: its folder.
        source: name of the source.
        test: sequences of the test split.
    """

    def __init__(self, corpus: Path, source: str | None) -> None:
        """Read the test split.

        Args:
            corpus: its folder.
            source: name of a source; by default `eukaryote`, or the first that holds records out.

        Raises:
            UserError: nothing is held out.
        """
        self.corpus = corpus
        splits = read_manifest(str(corpus))["sources"]
        held_out = [name for name, each in splits.items() if each["test"]["records"]]
        usual = _USUAL_SOURCE if _USUAL_SOURCE in held_out else next(iter(held_out), _USUAL_SOURCE)
        self.source = source or usual
        self.test: list[str] = self.column("test", "sequence")
        if not self.test:
            raise UserError(f"{corpus}: nothing is held out; build it with a holdout")
        self._trained = [name for name, each in splits.items() if each["train"]["records"]]

    def column(self, split: Literal["train", "test"], name: str) -> list[Any]:
        """Return the values of a column."""
        table = read_source(str(self.corpus), self.source, split, [name])
        values: list[Any] = table[name].to_pylist()
        return values

    def all_train(self) -> Iterator[str]:
        """Yield the training sequences of every source of the corpus."""
        for name in self._trained:
            column = read_source(str(self.corpus), name, "train", ["sequence"])["sequence"]
            for chunk in column.chunks:
                yield from chunk.to_pylist()


class CodingGene(NamedTuple):
    """A gene whose CDS is a plain open reading frame.

    Attributes:
        gene_id: of the annotation.
        name: of the gene.
        cds: capitals, from the start codon to the stop codon, along the strand.
    """

    gene_id: str
    name: str
    cds: str


class HeldOutGenes:
    """An annotated genome with held-out regions.

    Attributes:
        reference: the genome.
        annotation: its genes.
        regions: the held-out regions.
        contig_names: names of contigs in other files to those of the genome.
    """

    def __init__(
        self,
        corpus: Path | str,
        reference: Reference,
        annotation: Path,
        contigs: str | None = None,
        genetic_code: str | None = None,
    ) -> None:
        """Read the annotation and the held-out regions of the corpus.

        Args:
            corpus: its folder.
            reference: the genome that the corpus was made from.
            annotation: GFF3, GTF or BED of it.
            contigs: names of contigs in the annotation, as `contig_names` reads it.
            genetic_code: NCBI translation table where the annotation states none, as
                `read_annotation` takes it.

        Raises:
            CorpusError: no region of this genome is held out.
            GenomeError: the annotation is not of this genome.
        """
        self.reference = reference
        self.contig_names = contig_names(contigs, reference.contig_lengths_bp)
        self.annotation: Annotation = read_annotation(
            annotation, reference, contig_names=self.contig_names, genetic_code=genetic_code
        )
        lengths_bp = reference.contig_lengths_bp
        regions = held_out_of(corpus, reference.path, lengths_bp)
        self.regions = [from_region(text, lengths_bp) for text in regions]

    def coding(self) -> list[CodingGene]:
        """Return the genes inside the regions with the longest CDS of each.

        Left out are CDS that are marked as incomplete, read by another code, have unknown bases, or
        do not go from ATG to their only stop codon.
        """
        return self._coding(self._inside)

    def coding_outside(self) -> list[CodingGene]:
        """Return the genes that share no base with the regions, likewise."""
        return self._coding(
            gene
            for gene in self.annotation.genes
            if not any(region.overlaps(gene.interval) for region in self.regions)
        )

    def not_coding(self) -> Counter[str]:
        """Count the genes inside the regions that `coding` leaves out."""
        return Counter({"gene_without_a_plain_open_frame": len(self._inside) - len(self.coding())})

    @cached_property
    def _inside(self) -> list[Gene]:
        genes = self.annotation.genes
        return [g for g in genes if any(_holds(region, g.interval) for region in self.regions)]

    def _coding(self, genes: Iterable[Gene]) -> list[CodingGene]:
        return [found for gene in genes if (found := coding_gene(self.reference, gene))]

    def training(self) -> list[Labelled]:
        """Return the bases outside of the regions with their places in codons.

        Places that the annotation reader left out are not used.
        """
        by_contig: dict[str, list[Any]] = {
            contig: [] for contig in self.reference.contig_lengths_bp
        }
        for gene in self.annotation.genes:
            for each in gene.transcripts:
                if each.cds and each.phase_bp is not None:
                    by_contig[each.contig].append((each.strand, each.cds, each.phase_bp))
        parts = []
        for contig, length_bp in self.reference.contig_lengths_bp.items():
            states = states_of(length_bp, by_contig[contig])
            for start, end in self._outside(contig, length_bp):
                codes = base_codes(self.reference.fetch(Interval(contig, start, end)))
                parts.append(Labelled(codes.astype(np.uint8), states[start:end]))
        return parts

    def _outside(self, contig: str, length_bp: int) -> Iterator[tuple[int, int]]:
        free = 0
        unread = [
            part
            for each in self.annotation.left_out
            for place in each.intervals
            if place.contig == contig
            for part in parts_on_contig(place, length_bp)
        ]
        for region in sorted(each for each in [*self.regions, *unread] if each.contig == contig):
            yield free, max(free, region.start)
            free = max(free, region.end)
        yield free, length_bp

    def owners(self, interval: Interval) -> NDArray[np.int64]:
        """Return the number of the gene that each base belongs to, (bases,); -1 without genes.

        A gene owns the bases from the end of the gene before it up to its own end, so that every
        base has one owner; bases after the last gene of a contig belong to that gene.
        """
        ends = [
            (gene.interval.end, number)
            for number, gene in enumerate(self.annotation.genes)
            if gene.interval.contig == interval.contig
        ]
        if not ends:
            return np.full(interval.length_bp, -1, dtype=np.int64)
        reached = np.maximum.accumulate([end for end, _ in ends])
        which = np.searchsorted(reached, np.arange(interval.start, interval.end), side="right")
        numbers = np.array([number for _, number in ends], dtype=np.int64)
        result: NDArray[np.int64] = numbers[np.minimum(which, len(numbers) - 1)]
        return result


def _holds(region: Interval, interval: Interval) -> bool:
    same = region.contig == interval.contig
    return same and region.start <= interval.start and interval.end <= region.end


def coding_gene(reference: Reference, gene: Gene) -> CodingGene | None:
    """Return a gene with the longest CDS that is a plain open frame, None if it has none."""
    found = [_open_frame(reference, each) for each in gene.transcripts]
    cds = max(found, key=len, default="")
    return CodingGene(gene.gene_id, gene.name, cds) if cds else None


def _open_frame(reference: Reference, transcript: Transcript) -> str:
    """Return the CDS of a transcript in capitals, or an empty string without a plain open frame."""
    if not transcript.cds or transcript.incomplete or not reads_standard_code(transcript):
        return ""
    cds = spliced(reference, transcript.contig, transcript.cds, transcript.strand).upper()
    if len(cds) % 3 or set(cds) - set("ACGT"):
        return ""
    protein = translate(cds)
    is_open = protein.startswith("M") and protein.find("*") == len(protein) - 1
    return cds if is_open else ""


def gene_examples(table: pa.Table, options: Options) -> list[Example]:
    """Return a question a gene of a dataset, which has `gene_id`."""
    rows = options.rows_of(table)
    return [Example(f"{row.number + 1}:{row['gene_id']}", "", {"row": row}) for row in rows]


@dataclass(frozen=True)
class CodingGenome:
    """An annotated genome outside of the regions that a corpus held out.

    Attributes:
        fasta: the genome.
        annotation: its genes.
        corpus: the corpus.
    """

    fasta: Path
    annotation: Path
    corpus: Path

    @classmethod
    def parse(cls, text: str) -> "CodingGenome":
        """Read `FASTA,ANNOTATION,CORPUS`.

        Raises:
            UserError: it is written otherwise, or a file is missing.
        """
        parts = [Path(part) for part in text.split(",")]
        if len(parts) != 3:
            raise UserError(f"--codon-periodic {text}: write it as FASTA,ANNOTATION,CORPUS")
        for path in (*parts[:2], parts[2] / "manifest.json"):
            if not path.is_file():
                raise UserError(f"--codon-periodic {path}: no such file")
        return cls(*parts)

    @property
    def source(self) -> str:
        """Its files, for the record."""
        return ", ".join(map(str, (self.fasta, self.annotation, self.corpus)))

    def identity(self) -> str:
        """Return a digest of its files."""
        files = (self.fasta, self.annotation, self.corpus / "manifest.json")
        return hashlib.sha256(" ".join(map(content_sha256, files)).encode()).hexdigest()

    def training(self) -> list[Labelled]:
        """Return its bases with their places in codons."""
        with Reference(self.fasta) as reference:
            return HeldOutGenes(self.corpus, reference, self.annotation).training()
