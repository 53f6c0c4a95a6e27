"""A genome that somebody brings: files of any of the forms that are read, or text."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from carbon.errors import UserError
from carbon.genome.contig_names import CHR
from carbon.genome.fasta import Reference
from carbon.genome.genbank import is_genbank, unpack_genbank
from carbon.genome.genome import Genome
from carbon.genome.notation import read_bases
from carbon.genome.sequences import fasta_text, read_sequences
from carbon.io.files import scratch_folder

FASTA_ENDINGS = (".fa", ".fasta", ".fna")
ANNOTATION_ENDINGS = (".gff", ".gff3", ".gtf", ".bed")
GENBANK_ENDINGS = (".gb", ".gbk", ".gbff", ".genbank")
GENOME_ENDINGS = FASTA_ENDINGS + ANNOTATION_ENDINGS + GENBANK_ENDINGS


def genome_in_files(files: Sequence[str]) -> Genome:
    """Open the genome in files, which are told apart by their endings.

    Its `shown_files` and all messages name files without their folders.

    Raises:
        UserError: they are not one FASTA, with or without annotation, or one GenBank.
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
            found = Genome.open(fastas[0], annotations[0] if annotations else None, CHR)
            return replace(found, shown_files=names)
    except UserError as error:
        raise UserError(without_folders(str(error), files)) from None
    raise UserError("upload one GenBank file, or one FASTA with or without one GFF3, GTF or BED")


def genome_in_text(text: str) -> Genome:
    """Open the genome in a text: GenBank, FASTA, or bases alone.

    Raises:
        UserError: there is a letter that is no base.
        GenomeError: it is malformed.
    """
    name = "pasted.gb" if text.startswith("LOCUS") else "pasted.fa"
    if name == "pasted.fa":
        head = "" if text.startswith(">") else ">pasted\n"
        lines = (s if s.startswith(">") else read_bases(s) for s in text.splitlines())
        text = head + "\n".join(lines)
    with scratch_folder("pasted") as folder:
        (folder / name).write_text(text + "\n", encoding="utf-8")
        return genome_in_files((str(folder / name),))


def sequences_in_text(text: str, most: int) -> list[tuple[str, str]]:
    """Return names and bases of FASTA, or of a sequence on each line, as files are read.

    Raises:
        UserError: there are more than `most`.
        GenomeError: something is no DNA.
    """
    if not text:
        return []
    if not text.startswith(">"):
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        text = fasta_text((f"sequence_{n}", line) for n, line in enumerate(lines, start=1))
    with scratch_folder("pasted") as folder:
        path = folder / "sequences.fa"
        path.write_text(text + "\n", encoding="utf-8")
        try:
            found = list(read_sequences(path))
        except UserError as error:
            raise UserError(without_folders(str(error), [str(path)])) from None
    if len(found) > most:
        raise UserError(f"{len(found)} sequences; give {most} at most")
    return found


def without_folders(message: str, files: Sequence[str]) -> str:
    """Return a message that names files without the folders of this machine."""
    for path in files:
        message = message.replace(path, Path(path).name)
    return message


def _in_genbank(path: str) -> Genome:
    if not is_genbank(path):
        raise UserError(f"{path}: does not begin as a GenBank flat file does (LOCUS)")
    with scratch_folder("genbank") as folder:
        fasta = folder / "genome.fa"
        annotation = unpack_genbank(path, fasta).annotation
        # An open reference needs its file no more by name.
        return Genome(Reference(fasta), annotation, (path,))
