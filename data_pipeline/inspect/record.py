"""Print one record of a corpus, or the records that were left out."""

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from carbon.corpus import SCHEMA, Split, read_manifest
from carbon.corpus.shards import check_split
from carbon.errors import CorpusError, GenomeError
from carbon.genome import Reference, is_genbank, unpack_genbank
from carbon.io.files import scratch_folder
from carbon.progress import TableRow, text_table
from carbon.tokenizer import GENE_TAG_OF, SPECIES_TAG_OF, K
from data_pipeline.inspect.census import Census, dropped_counts, read_dropped, row_groups
from data_pipeline.records import Segment, read_bases

_ENDS_BP = 60
_JOINT_BP = 12


def inspect_record(
    corpus: str | Path,
    source: str,
    split: Split,
    which: int | str,
    genome: str | Path | None = None,
) -> int:
    """Print one record, and whether every base of it occurs in its assembly.

    Args:
        corpus: folder of the corpus.
        source: name of a source.
        split: `train` or `test`.
        which: row, from 0, in the order of the files' names; or name, of the record or of one of
            the genes it joins. Where several records have the name, they are listed instead.
        genome: FASTA or GenBank to compare with; if not given, the recipe's file of the record's
            assembly, if it still exists.

    Returns:
        The exit code: 1 if a base differs from the assembly, else 0.

    Raises:
        CorpusError: the record does not exist, or the corpus cannot be read.
        GenomeError: the genome cannot be read, or lacks the record's contig.
    """
    check_split(corpus, source, split)
    row = which if isinstance(which, int) else _row_of_name(corpus, source, split, which)
    if row is None:
        return 0
    record = _read_record(corpus, source, split, row)
    print(f"{source} {split}, row {row}: {record['name']}\n\n{_described(record)}\n")
    path = Path(genome) if genome else _genome_of(corpus, record["assembly"])
    if path is None or not (genome or path.is_file()):
        why = f"{path} of the recipe is not there" if path else "the recipe names no assembly of it"
        print(f"not compared: {why}; give the genome")
        return 0
    with _opened(path) as reference:
        difference = _first_difference(record, reference, path)
    print(difference or f"every base agrees with {path}")
    return 1 if difference else 0


def inspect_dropped(corpus: str | Path, name: str | None = None) -> None:
    """Print how much was dropped and why, or the rows of `dropped.tsv` that carry a name.

    Args:
        corpus: folder of the corpus.
        name: of a record, or of one of the genes it joins.

    Raises:
        CorpusError: the corpus does not exist.
    """
    manifest = read_manifest(corpus)
    if name is None:
        print(text_table([("source", "reason", "dropped"), *dropped_counts(manifest)]))
        return
    near: list[str] = []
    found: list[TableRow] = []
    for row in read_dropped(corpus):
        near = _nearest(name, near, row["name"].split(","))
        if _is_named(name, row["name"]):
            place = row["contig"] and _place(row["contig"], int(row["start"]), int(row["end"]))
            found.append((row["source"], row["name"], row["reason"], row["assembly"], place))
    table = text_table([("source", "name", "reason", "assembly", "place"), *found])
    print(table if found else f"nothing named '{name}' was dropped{_suggested(near)}")


def _is_named(name: str, names: str) -> bool:
    """Return whether a record has a name, or joins genes with one of that name."""
    return name == names or name in names.split(",")


def _row_of_name(corpus: str | Path, source: str, split: Split, name: str) -> int | None:
    """Return the row of the record of that name; of several, print a list and return None."""
    near: list[str] = []
    found: list[TableRow] = []
    for group in row_groups(corpus, source, split):
        table = group.read(["name", "assembly", "record_id", "start", "end"]).to_pylist()
        for row, each in enumerate(table, start=group.first_row):
            if _is_named(name, each["name"]):
                place = _place(each["record_id"], each["start"], each["end"])
                found.append((str(row), each["assembly"], place))
        more = [part for each in table for part in each["name"].split(",")]
        near = near if found else _nearest(name, near, more)
    if not found:
        where = f"{corpus}/{source}: {split}"
        raise CorpusError(f"{where} has no record '{name}'{_suggested(near)}")
    if len(found) == 1:
        return int(found[0][0])
    print(f"{len(found)} records of {source} {split} are named '{name}'; choose one by its row\n")
    print(text_table([("row", "assembly", "place"), *found]))
    return None


def _nearest(name: str, near: list[str], more: list[str]) -> list[str]:
    """Return three names of two lists that begin with `name` or are most like it, in any case."""
    wanted, by_folded = name.casefold(), {each.casefold(): each for each in [*near, *more]}
    begin = [folded for folded in by_folded if folded.startswith(wanted)]
    alike = dict.fromkeys([*begin, *difflib.get_close_matches(wanted, by_folded)])
    return [by_folded[folded] for folded in alike][:3]


def _suggested(near: list[str]) -> str:
    return f"; is it {' or '.join(repr(name) for name in near)}?" if near else ""


def _place(contig: str, start: int, end: int) -> str:
    """Write as `contig:first-last`, from 1; on a circular contig, last may be past its length."""
    return f"{contig}:{start + 1}-{end}"


def _read_record(corpus: str | Path, source: str, split: Split, row: int) -> dict[str, Any]:
    num_rows = 0
    for group in row_groups(corpus, source, split):
        num_rows += group.num_rows
        if 0 <= row - group.first_row < group.num_rows:
            table = group.read(SCHEMA.names).slice(row - group.first_row, 1)
            record: dict[str, Any] = table.to_pylist()[0]
            return record
    raise CorpusError(
        f"{corpus}/{source}: {split} has no row {row}; it has {num_rows}, counted from 0"
    )


def _described(record: dict[str, Any]) -> str:
    sequence, gene, species = (record[key] for key in ("sequence", "gene_type", "species_type"))
    census = Census()
    census.count([sequence.encode()])
    gc, n, masked = census.percents
    facts: list[TableRow] = [
        ("assembly", record["assembly"]),
        ("organism", record["organism"]),
        ("gene type", f"{gene or '-'}, tag {GENE_TAG_OF.get(gene, 'none')}"),
        ("species type", f"{species or '-'}, tag {SPECIES_TAG_OF.get(species, 'none')}"),
        ("length", f"{len(sequence):,} bases, {census.tokens:,} tokens of {K}"),
        ("letters", f"GC {gc:.2f} %, N {n:.2f} %, soft-masked {masked:.2f} %"),
        (f"first {_ENDS_BP}", sequence[:_ENDS_BP]),
        (f"last {_ENDS_BP}", sequence[-_ENDS_BP:]),
    ]
    segments: list[TableRow] = [
        ("segment", "place", "strand", "bases", "bases around the next joint")
    ]
    joint = 0
    for number, (start, end, strand) in enumerate(_segments(record), start=1):
        joint += end - start
        before, after = sequence[max(0, joint - _JOINT_BP) : joint], sequence[joint:][:_JOINT_BP]
        around = f"{before}|{after}" if number < len(record["segments"]) else ""
        segments.append(
            (number, _place(record["record_id"], start, end), strand, end - start, around)
        )
    return f"{text_table(facts)}\n\n{text_table(segments)}"


def _segments(record: dict[str, Any]) -> list[Segment]:
    return [Segment(**segment) for segment in record["segments"]]


def _genome_of(corpus: str | Path, assembly: str) -> Path | None:
    """Return the sequence file that the recipe names for an assembly, if it names one."""
    inputs = read_manifest(corpus)["inputs"]
    paths = (each["recipe"].get("genome") for each in inputs if each["title"] == assembly)
    return next((Path(path) for path in paths if path), None)


@contextmanager
def _opened(genome: Path) -> Iterator[Reference]:
    with scratch_folder("genbank") as scratch:
        fasta = genome
        if genome.is_file() and is_genbank(genome):
            fasta = scratch / "genome.fa"
            unpack_genbank(genome, fasta)
        with Reference(fasta) as reference:
            yield reference


def _first_difference(record: dict[str, Any], reference: Reference, genome: Path) -> str:
    """Say where, in reading order, a record first differs from its assembly, if it does."""
    contig, sequence, segments = record["record_id"], record["sequence"].upper(), _segments(record)
    if contig not in reference.contig_lengths_bp:
        raise GenomeError(f"{genome}: {reference.explain_missing([contig])}")
    length_bp = sum(end - start for start, end, _ in segments)
    if length_bp != len(sequence):
        return f"differs: its segments have {length_bp:,} bases, the record {len(sequence):,}"
    first = 0
    for segment in segments:
        there = read_bases(reference, contig, [segment]).upper()
        here = sequence[first : first + len(there)]
        if here != there:
            at = next(i for i, (a, b) in enumerate(zip(here, there, strict=True)) if a != b)
            place = segment.start + at if segment.strand == "+" else segment.end - 1 - at
            place %= reference.contig_lengths_bp[contig]
            return (
                f"differs from {genome} at {contig}:{place + 1}, read along strand "
                f"{segment.strand}: {there[at]} there, {here[at]} here (base {first + at + 1} of "
                "the record)"
            )
        first += len(there)
    return ""
