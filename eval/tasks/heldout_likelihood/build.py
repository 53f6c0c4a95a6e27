"""Held-out records, with the gene of every base where the genome's annotation is given."""

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from carbon.errors import UserError
from carbon.genome import Interval, Reference
from carbon.genome.bed import bed_lines, bed_place
from carbon.inference.held_out import choose_numbers
from eval.contract import BuildReport
from eval.tasks.common.building import write_dataset
from eval.tasks.common.held_out import HeldOutGenes, HeldOutRecords
from eval.tasks.heldout_likelihood.overlap import overlaps_with_train

_PLACE = ("record_id", "start", "end", "strand")
_SCHEMA = pa.schema(
    [
        ("sequence", pa.large_string()),
        ("genes", pa.list_(pa.string())),
        ("gene_ends", pa.list_(pa.int64())),
        ("conserved", pa.list_(pa.list_(pa.int64()))),
        ("conserved_by", pa.string()),
        ("kmers", pa.int64()),
        ("shared_kmers", pa.int64()),
        *((name, pa.int64() if name in ("start", "end") else pa.string()) for name in _PLACE),
    ]
)


def build(
    output: Path,
    *,
    corpus: Path,
    corpus_source: str | None = None,
    reference: Path | None = None,
    annotation: Path | None = None,
    contigs: str | None = None,
    genetic_code: str | None = None,
    conserved: Path | None = None,
    most_bp: int = 200_000,
    seed: int = 0,
) -> BuildReport:
    """Draw held-out records in random order, up to a number of bases; the last record is cut.

    With reference and annotation, intervals draw genes instead of records. A base belongs to the
    gene whose end is the next. That needs records that are stretches of the forward strand. So
    does the gap between the likelihoods of conserved bases and of others, which are the coding
    bases and the rest, or those of a BED.

    Args:
        output: Parquet to write.
        corpus: folder of a corpus with held-out records.
        corpus_source: its source; by default eukaryote, or the first that holds records out.
        reference: FASTA that the corpus was made from.
        annotation: GFF3, GTF or BED of it.
        contigs: table of contig names, or chr, where the annotation or the BED has other names.
        genetic_code: NCBI translation table where the annotation states none.
        conserved: BED of conserved bases, in place of the coding ones; needs the annotation too.
        most_bp: most bases.
        seed: of the draw.

    Raises:
        UserError: nothing is held out, or a BED has no annotation with it or no place in a record.
        GenomeError: the annotation is not of the reference, or the reference not of the corpus.
    """
    if conserved and not (reference and annotation):
        raise UserError(f"{conserved}: give --reference and --annotation with --conserved")
    records = HeldOutRecords(corpus, corpus_source)
    genes = None
    if reference and annotation:
        genes = HeldOutGenes(corpus, Reference(reference), annotation, contigs, genetic_code)
    rows = list(_rows(records, genes, conserved, most_bp, seed))
    dropped = Counter({"record_not_drawn": len(records.test) - len(rows)})
    inputs = [corpus / "manifest.json", *filter(None, (reference, annotation, conserved))]
    settings = {
        "task": "heldout_likelihood",
        "source": records.source,
        "most_bp": most_bp,
        "seed": seed,
    }
    return write_dataset(output, rows, dropped, inputs, settings, _SCHEMA)


def _rows(
    records: HeldOutRecords,
    genes: HeldOutGenes | None,
    bed: Path | None,
    most_bp: int,
    seed: int,
) -> Iterator[dict[str, Any]]:
    drawn = choose_numbers([len(record) for record in records.test], most_bp, seed)
    columns = {name: records.column("test", name) for name in _PLACE}
    sequences = [records.test[number][:length_bp] for number, length_bp in drawn]
    overlaps = overlaps_with_train(records.all_train(), sequences)
    places = [{name: columns[name][number] for name in _PLACE} for number, _ in drawn]
    by_gene = genes is not None and all(
        _is_stretch(genes, place, records.test[number])
        for place, (number, _) in zip(places, drawn, strict=True)
    )
    if bed and not by_gene:
        raise UserError(
            f"--conserved {bed}: records are not stretches of the forward strand of the reference; "
            "take it out"
        )
    places_of = _conserved(genes, bed) if genes and by_gene else []
    if bed and not any(
        _within(places_of, place, len(sequence))
        for place, sequence in zip(places, sequences, strict=True)
    ):
        raise UserError(
            f"--conserved {bed}: none of its places lies in a drawn record; give --contigs if it "
            "names contigs differently, or more --most-bp"
        )
    by = {"conserved_by": bed.name if bed else "coding"} if places_of else {}
    for sequence, place, overlap in zip(sequences, places, overlaps, strict=True):
        owners = _owners(genes, place, len(sequence)) if genes and by_gene else {}
        within = {"conserved": _within(places_of, place, len(sequence)), **by} if by else {}
        yield {"sequence": sequence, **owners, **within, **overlap._asdict(), **place}


def _is_stretch(genes: HeldOutGenes, place: dict[str, Any], record: str) -> bool:
    """Return whether a record is a stretch of the forward strand of the annotated genome."""
    known = place["record_id"] in genes.reference.contig_lengths_bp
    return known and place["strand"] == "+" and place["end"] - place["start"] == len(record)


def _conserved(genes: HeldOutGenes, bed: Path | None) -> list[Interval]:
    """Return the places of a BED, or of the coding sequence of every transcript."""
    if bed:
        listed = [bed_place(columns, where) for where, columns in bed_lines(bed)]
        return [
            Interval(genes.contig_names.get(contig, contig), start, end)
            for contig, start, end in listed
        ]
    return [
        Interval(transcript.contig, start, end)
        for gene in genes.annotation.genes
        for transcript in gene.transcripts
        for start, end in transcript.cds
    ]


def _within(places: list[Interval], place: dict[str, Any], length_bp: int) -> list[list[int]]:
    """Return start and end of the merged places inside of a record, counted from its start."""
    is_inside = np.zeros(length_bp + 2, dtype=np.int8)  # with a base on either side
    for each in places:
        if each.contig == place["record_id"]:
            start, end = np.clip(
                [each.start - place["start"], each.end - place["start"]], 0, length_bp
            )
            is_inside[1 + start : 1 + end] = 1
    return np.flatnonzero(np.diff(is_inside)).reshape(-1, 2).tolist()


def _owners(genes: HeldOutGenes, place: dict[str, Any], length_bp: int) -> dict[str, Any]:
    """Return the genes of a record in order, and where the bases of each end."""
    start = place["start"]
    owners = genes.owners(Interval(place["record_id"], start, start + length_bp))
    ends = [*(np.flatnonzero(np.diff(owners)) + 1).tolist(), length_bp]
    named = [int(owners[first]) for first, _ in pairwise([0, *ends])]
    names = [f"{n:08d} {genes.annotation.genes[n].gene_id}" if n >= 0 else "none" for n in named]
    return {"genes": names, "gene_ends": ends}
