"""Genomes, sequences and variants that a visitor uploads or pastes."""

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from carbon.errors import UserError
from carbon.genome import Variant, VcfReader
from carbon.genome.alphabet import FASTA_LETTERS, check_dna
from carbon.genome.contig_names import CHR
from carbon.genome.fasta import Reference
from carbon.genome.genbank import is_genbank, unpack_genbank
from carbon.genome.genome import Genome
from carbon.genome.notation import read_lines
from carbon.genome.sequences import fasta_text, read_sequences
from carbon.genome.vcf import COLUMNS
from carbon.io.files import scratch_folder
from carbon.pretrained import BUNDLED_MODELS
from demo.letters import check_is_dna
from demo.markup import download

FASTA_ENDINGS = (".fa", ".fasta", ".fna")
ANNOTATION_ENDINGS = (".gff", ".gff3", ".gtf", ".bed")
GENBANK_ENDINGS = (".gb", ".gbk", ".gbff", ".genbank")
_PASTED = "pasted"
_IN_FASTA = frozenset(FASTA_LETTERS.decode())
GENOME_ENDINGS = FASTA_ENDINGS + ANNOTATION_ENDINGS + GENBANK_ENDINGS


class Listed(NamedTuple):
    """A variant of a VCF, and the reason if its REF disagrees with the reference."""

    variant: Variant
    reason: str | None


def genome_in_files(files: Sequence[str]) -> Genome:
    """Open the genome in files, whose names' endings state their formats.

    `shown_files` and all messages name files without their folders.

    Raises:
        UserError: the files are not one FASTA, with or without annotation, or one GenBank.
        GenomeError: a file is malformed.
    """
    fastas = [f for f in files if f.lower().endswith(FASTA_ENDINGS)]
    annotations = [f for f in files if f.lower().endswith(ANNOTATION_ENDINGS)]
    genbanks = [f for f in files if f.lower().endswith(GENBANK_ENDINGS)]
    # The reference comes first, in whatever order the files were uploaded.
    names = tuple(Path(path).name for path in (*genbanks, *fastas, *annotations))
    try:
        if len(genbanks) == len(files) == 1:
            return replace(_in_genbank(genbanks[0]), shown_files=names)
        if len(fastas) == 1 and len(annotations) <= 1 and not genbanks:
            genome = Genome.open(fastas[0], annotations[0] if annotations else None, CHR)
            return replace(genome, shown_files=names)
    except UserError as error:
        raise UserError(without_folders(str(error), files)) from None
    raise UserError("upload one GenBank file, or one FASTA with or without one GFF3, GTF or BED")


def genome_in_text(text: str) -> Genome:
    """Open the genome in a text: GenBank, FASTA, or bases alone.

    Raises:
        TypedError: a letter is not a DNA letter.
        GenomeError: the text is malformed.
    """
    name, content = _pasted_file(text)
    with scratch_folder("pasted") as folder:
        (folder / name).write_text(content, encoding="utf-8")
        genome = genome_in_files((str(folder / name),))
        genome.reference.path = Path(name)  # of messages: the file itself is removed
        return genome


def is_pasted(genome: Genome) -> bool:
    """Return whether a genome is a pasted text."""
    return Path(genome.shown_files[0]).stem == _PASTED


def pasted_link(genome: Genome, text: str) -> str:
    """Return a link that saves a pasted genome as a file; empty for other genomes."""
    return download(*_pasted_file(text)) if is_pasted(genome) else ""


def _pasted_file(text: str) -> tuple[str, str]:
    """Return name and content of the file that a pasted genome becomes.

    Each contig is written as one line, because lines of different lengths have no index.

    Raises:
        TypedError: a letter is not a DNA letter.
    """
    if text.startswith("LOCUS"):
        return f"{_PASTED}.gb", f"{text}\n"
    head = "" if text.startswith(">") else f">{_PASTED}\n"
    lines = (f"\n{line}\n" if line.startswith(">") else line for line in read_lines(text))
    return f"{_PASTED}.fa", f"{head}{''.join(lines).lstrip()}\n"


def shown_reference(genome: Genome) -> dict[str, str]:
    """Return how the shown code reads a genome.

    Returns:
        `reference`, the FASTA, and what comes before it: `before` in Python, `unpack` in a shell.
        The lines unpack a GenBank file, and state where a pasted or bundled genome comes from.
    """
    path = genome.shown_files[0]
    note = f"# {path}: download it on this page\n" if is_pasted(genome) else ""
    for entry in BUNDLED_MODELS.values():
        if path == str(entry.genome):
            path = f"{entry.name}_{entry.held_out_contig}/{entry.genome_file}"
            note = f"# {path}: `carbon models --copy {entry.name}` writes it\n"
    if not path.lower().endswith(GENBANK_ENDINGS):
        return {"reference": path, "before": note, "unpack": note}
    fasta = f"{Path(path).stem}.fa"
    lines = ["from pathlib import Path", "from carbon.genome import unpack_genbank",
             f"unpack_genbank({path!r}, Path({fasta!r}))"]  # fmt: skip
    command = shlex.join(["python", "-c", "; ".join(lines)])
    before = note + "\n".join([*lines, ""])
    return {"reference": fasta, "before": before, "unpack": f"{note}{command}\n"}


def sequences_in_text(text: str, most: int) -> list[tuple[str, str]]:
    """Return names and bases of FASTA, or of one sequence on each line, as from a file.

    Raises:
        UserError: the text has more than `most` sequences.
        TypedError: a letter is not a DNA letter.
    """
    if not text:
        return []
    for line in text.splitlines():
        check_is_dna(line)
    is_fasta = text.startswith(">")
    lines = [line.strip() for line in text.splitlines() if is_fasta or line.strip()]
    for number, line in enumerate(lines, start=1):
        if not (is_fasta and line.startswith(">")):
            check_dna(line, f"{'line' if is_fasta else 'sequence'} {number}", _IN_FASTA)
    if not is_fasta:
        text = fasta_text((f"sequence_{n}", line) for n, line in enumerate(lines, start=1))
    with scratch_folder("pasted") as folder:
        path = folder / "sequences.fa"
        path.write_text(text + "\n", encoding="utf-8")
        try:
            records = list(read_sequences(path))
        except UserError as error:
            raise UserError(without_folders(str(error), [str(path)])) from None
    if len(records) > most:
        raise UserError(f"{len(records)} sequences; give {most} at most")
    return records


def first_variants(files: Sequence[str], reference: Reference, most: int) -> list[Listed]:
    """Return the first variants of a VCF; an empty list without a file.

    Raises:
        UserError: there are several files, or the VCF is malformed in the part that is read.
    """
    if len(files) > 1:
        raise UserError(f"{len(files)} VCFs are given; give one")
    rows = (row for path in files for row in VcfReader(path, reference))
    each = (
        Listed(variant, row.disagreement.reason if row.disagreement else None)
        for row in rows
        for variant in row.variants
    )
    try:
        return list(islice(each, most))
    except UserError as error:
        raise UserError(without_folders(str(error), files)) from None


def printed_vcf(variants: Iterable[Variant], path: str) -> str:
    """Return a shell command that writes a VCF of variants, sorted by position."""
    ordered = sorted(variants, key=lambda variant: (variant.contig, variant.position))
    records = [
        (v.contig.replace("\\", "\\\\"), v.position + 1, ".", v.ref, v.alt, ".", ".", ".")
        for v in ordered
    ]
    lines = ("\\t".join(map(str, columns)) for columns in (COLUMNS, *records))
    text = "".join(f"{line}\\n" for line in ("##fileformat=VCFv4.2", *lines))
    return f"printf '%b' {shlex.quote(text)} > {path}"


def without_folders(message: str, files: Sequence[str]) -> str:
    """Return a message with the names of files instead of their paths."""
    for path in files:
        message = message.replace(path, Path(path).name)
    return message


def _in_genbank(path: str) -> Genome:
    if not is_genbank(path):
        raise UserError(f"{path}: does not begin as a GenBank flat file does (LOCUS)")
    with scratch_folder("genbank") as folder:
        fasta = folder / "genome.fa"
        annotation = unpack_genbank(path, fasta).annotation
        # An open reference stays readable after its file is removed.
        return Genome(Reference(fasta), annotation, (path,))
