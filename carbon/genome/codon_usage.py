"""Codon usage of a species: tables as Kazusa's database gives them, and the genes of a genome."""

import csv
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from carbon.errors import GenomeError, UserError, reason_of
from carbon.genome.alphabet import GENETIC_CODE
from carbon.genome.annotation import has_unexplained_stop, reads_standard_code
from carbon.genome.fasta import Reference
from carbon.genome.genes import LeftOut, Transcript, report_left_out, spliced
from carbon.genome.genome import Genome
from carbon.genome.sequences import BROKEN_GZIP, open_text

_COLUMNS = ("amino_acid", "codon", "relative_frequency")


def read_codon_usage(path: Path) -> dict[str, float]:
    """Read `amino_acid,codon,relative_frequency` of 64 codons, with U or T.

    Frequencies may be of each amino acid's codons, or per thousand of all: only codons of one amino
    acid are compared.

    Returns:
        Codon (in DNA) to frequency.

    Raises:
        UserError: the file is not such a table, or not of the standard genetic code.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a CSV with {', '.join(_COLUMNS)}")
    usage: dict[str, float] = {}
    for number, row in enumerate(_rows(path), start=2):
        where = f"{path} line {number}"
        codon = (row["codon"] or "").upper().replace("U", "T")
        if GENETIC_CODE.get(codon) != row["amino_acid"]:
            shown = codon or "nothing"
            raise UserError(f"{where}: {shown} is not {row['amino_acid']} in the standard code")
        if codon in usage:
            raise UserError(f"{where}: {codon} stands twice")
        usage[codon] = _frequency(row["relative_frequency"], where)
    if absent := sorted(GENETIC_CODE.keys() - usage.keys()):
        raise UserError(f"{path}: has no {', '.join(absent[:5])}; 64 codons are needed")
    return usage


def _rows(path: Path) -> list[dict[str, str | None]]:
    try:
        with open_text(path) as lines:
            table = csv.DictReader(lines)
            names, rows = table.fieldnames or (), list(table)
    except (*BROKEN_GZIP, UnicodeDecodeError, csv.Error) as error:
        raise UserError(
            f"{path}: cannot be read ({reason_of(error)}); is it a table of codons?"
        ) from None
    if missing := [name for name in _COLUMNS if name not in names]:
        raise UserError(f"{path}: has no column {', '.join(missing)}")
    return rows


def _frequency(text: str | None, where: str) -> float:
    try:
        frequency = float(text or "")
    except ValueError:
        frequency = -1.0
    if not frequency >= 0:
        raise UserError(f"{where}: frequency '{text}'; it must be a number, 0 or more")
    return frequency


def codon_usage(genome: Genome) -> Counter[str]:
    """Count the codons in the CDS of a genome, by the standard genetic code.

    Of each gene, the first transcript with a CDS counts. Left out, and counted on stderr, are:

    - `codons_unknown`: pseudogenes, exceptions, and CDS whose beginning is not annotated;
    - `other_genetic_code`: CDS of a table in which codons code for other amino acids than in the
      standard code, and CDS of mitochondria without a table;
    - `stop_codon_inside`: CDS without a table that the standard code does not read to the end.

    Returns:
        Codon to number; empty without CDS. Codons with unknown bases are left out.

    Raises:
        GenomeError: most CDS whose codons are known are not of the standard code.
    """
    counts: Counter[str] = Counter()
    left_out: list[LeftOut] = []
    num_counted = 0
    for transcript in _coding_transcripts(genome):
        if reason := _why_left_out(genome.reference, transcript):
            left_out.append(LeftOut(transcript.transcript_id, reason))
        else:
            counts.update(_codons(genome.reference, transcript))
            num_counted += 1
    if genome.annotation:
        path = genome.annotation.path
        report_left_out(path, left_out, "codon usage")
        _check_code(path, num_counted, sum(each.reason != _UNKNOWN for each in left_out))
    return Counter({codon: number for codon, number in counts.items() if codon in GENETIC_CODE})


_UNKNOWN = "codons_unknown"


def _coding_transcripts(genome: Genome) -> Iterator[Transcript]:
    for gene in genome.annotation.genes if genome.annotation else ():
        yield from [each for each in gene.transcripts if each.cds][:1]


def _why_left_out(reference: Reference, transcript: Transcript) -> str:
    """Return the reason to leave out a CDS, or an empty string."""
    if transcript.phase_bp is None:
        return _UNKNOWN
    if not reads_standard_code(transcript):
        return "other_genetic_code"
    return "stop_codon_inside" if has_unexplained_stop(reference, transcript) else ""


def _codons(reference: Reference, transcript: Transcript) -> Iterator[str]:
    place = transcript.contig, transcript.cds, transcript.strand
    bases = spliced(reference, *place).upper()
    first = transcript.phase_bp or 0
    return (bases[at : at + 3] for at in range(first, len(bases) - 2, 3))


def _check_code(path: Path, num_counted: int, num_others: int) -> None:
    if num_others > num_counted:
        raise GenomeError(
            f"{path}: {num_others:,} of {num_counted + num_others:,} CDS have another genetic code "
            "than the standard one; codon usage needs a host of the standard code"
        )


def favourites(usage: dict[str, float]) -> dict[str, str]:
    """Return the most frequent codon of each amino acid; of equals the first by letters.

    Stop codons are not among them.
    """
    best: dict[str, str] = {}
    for codon in sorted(usage):
        amino_acid = GENETIC_CODE[codon]
        if amino_acid != "*" and usage[codon] > usage.get(best.get(amino_acid, ""), -1.0):
            best[amino_acid] = codon
    return best
