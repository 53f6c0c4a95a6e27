"""Sequences with a label each, enough of them to draw: of files, or pieces of a genome."""

from collections.abc import Sequence

from carbon.errors import UserError
from carbon.genome.brought import without_folders
from carbon.genome.kind_pieces import pieces_of_kinds
from carbon.genome.labelled import labelled_records
from carbon.genome.opened import Genome
from carbon.genome.sequences import SequenceRecord


def labelled_in_files(
    files: Sequence[str], least: int, most: int, most_bp: int
) -> list[SequenceRecord]:
    """Return the sequences of FASTA files; messages name files without their folders.

    Raises:
        UserError: there are too few or too many, or one is too long or has no base.
    """
    try:
        records = list(labelled_records(files, most, most_bp))
    except UserError as error:
        raise UserError(without_folders(str(error), files)) from None
    return _enough(records, least, "give more of them")


def labelled_pieces(
    genome: Genome, per_kind: int, piece_bp: int, least: int
) -> list[SequenceRecord]:
    """Return coding, intron and intergenic pieces of a genome, labelled so.

    Raises:
        UserError: there are too few that are as long.
    """
    pieces = pieces_of_kinds(genome.reference, genome.annotation, per_kind, piece_bp)
    return _enough(list(pieces), least, "ask for shorter pieces")


def _enough(records: list[SequenceRecord], least: int, what: str) -> list[SequenceRecord]:
    if len(records) < least:
        raise UserError(f"{len(records)} sequences; a map needs {least} at least: {what}")
    return records
