"""DNA letters: complement, GC content, genetic codes, translation and codon adaptation."""

import math
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache

from carbon.errors import GenomeError, TypedError

# The bases that each letter stands for (Cornish-Bowden 1985).
IUPAC_BASES = {
    "A": "A", "C": "C", "G": "G", "T": "T", "U": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT",
    "K": "GT", "M": "AC", "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT", "-": "",
}  # fmt: skip
IUPAC_DNA = "ACGTURYSWKMBDHVN"
FASTA_LETTERS = (IUPAC_DNA + IUPAC_DNA.lower() + "-").encode()
DNA_LETTERS = frozenset(IUPAC_DNA + IUPAC_DNA.lower())
"""Of a sequence; to compare capitals would also accept letters such as ß, whose capital is SS."""
_COMPLEMENT = str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "TGCAAYRSWMKVHDBNtgcaayrswmkvhdbn")

# One-letter codes of amino acids, or a stop, that are not IUPAC codes of DNA.
_ONLY_PROTEIN = frozenset("EFIJLOPQXZ*")
# Codes of two or three bases. DNA hardly has them; N, which stands for gaps, is common.
_AMBIGUOUS = b"RYSWKMBDHVryswkmbdhv"
_LEAST_JUDGED = 6  # letters; a shorter text may be any mixture

# The standard genetic code (NCBI translation table 1), codons in the order TCAG.
_AMINO_ACIDS = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
GENETIC_CODE = {
    a + b + c: _AMINO_ACIDS[16 * i + 4 * j + k]
    for i, a in enumerate("TCAG")
    for j, b in enumerate("TCAG")
    for k, c in enumerate("TCAG")
}
STOP_CODONS = frozenset(codon for codon, amino_acid in GENETIC_CODE.items() if amino_acid == "*")


def check_dna(text: str, where: str = "", letters: AbstractSet[str] = DNA_LETTERS) -> None:
    """Check that a text has only letters of DNA.

    Args:
        text: bases.
        where: name of the text, with which the message begins.
        letters: that are accepted.

    Raises:
        TypedError: a letter is not accepted; the message names the first one and its number.
    """
    if wrong := set(text) - letters:
        at = min(map(text.index, wrong))
        place = f"{where} letter {at + 1}".lstrip()
        problem = f"{text[at]!r} is not a DNA letter (ACGT, N and IUPAC codes)"
        hint = "; is this a protein?" if text[at].upper() in _ONLY_PROTEIN else ""
        raise TypedError(f"{place}: {problem}{hint}", text, at)


def why_protein(letters: bytes) -> str | None:
    """Return why IUPAC letters are hardly those of a DNA sequence, or None.

    Ten amino acids have the letters of ambiguity codes, such as M, V, S and K. No base of such a
    sequence counts in a score, which would say nothing.

    >>> why_protein(b"MAVSKVYARSVYDSRGN")
    '13 of 17 letters are codes for two or three bases; is this a protein?'
    >>> why_protein(b"ACGTNNNNNNNNRYSW")
    """
    num_ambiguous = len(letters) - len(letters.translate(None, _AMBIGUOUS))
    if len(letters) < _LEAST_JUDGED or 2 * num_ambiguous <= len(letters):
        return None
    return (
        f"{num_ambiguous:,} of {len(letters):,} letters are codes for two or three bases; is this "
        "a protein?"
    )


def as_dna(bases: str) -> str:
    """Return bases with U, of RNA, as T, in the same case.

    >>> as_dna("ACGUu")
    'ACGTt'
    """
    return bases.replace("U", "T").replace("u", "t")


def checked_sequence(text: str, where: str = "") -> str:
    """Return a DNA sequence with U as T, checked: by its letters, and not mostly ambiguity codes.

    Args:
        text: bases.
        where: name of the text, with which the message begins.

    Raises:
        TypedError: a letter is not accepted, or the text looks like a protein.
    """
    check_dna(text, where)
    if why := why_protein(text.encode()):
        raise TypedError(f"{where}: {why}".removeprefix(": "), text, 0)
    return as_dna(text)


def reverse_complement(sequence: str) -> str:
    """Return the reverse complement, in the same case, with IUPAC codes complemented and U as T.

    >>> reverse_complement("AACGTn")
    'nACGTT'
    """
    return sequence.translate(_COMPLEMENT)[::-1]


def translate(cds: str) -> str:
    """Translate whole codons with the standard code; a codon with an unknown base becomes X.

    >>> translate("ATGGCCTAA")
    'MA*'

    Raises:
        GenomeError: the length is not a multiple of three.
    """
    if len(cds) % 3:
        raise GenomeError(f"a coding sequence of {len(cds)} bases is not a multiple of three")
    cds = cds.upper()
    return "".join(GENETIC_CODE.get(cds[i : i + 3], "X") for i in range(0, len(cds), 3))


def gc_share(bases: str) -> float:
    """Return the fraction of G and C, in either case; 0 for an empty sequence."""
    return sum(base in "GCgc" for base in bases) / len(bases) if bases else 0.0


STANDARD_TABLE = 1
_CODON_BP = 3
# Start codons of the standard code: NCBI's table 1, plus GTG of table 11, which translates codons
# in the same way. With the rare ATT, ATC and ATA of table 11, too many changes would be start_lost.
_STANDARD_STARTS = frozenset({"ATG", "GTG", "TTG", "CTG"})
_EVERY_OTHER_CONTIG = ""


@dataclass(frozen=True, slots=True)
class GeneticCode:
    """An NCBI translation table.

    Attributes:
        table: number of the table.
        amino_acids: one-letter amino acid of each of the 64 codons; `*` for a codon that is always
            a stop. A codon that can be both (tables 27, 28 and 31) maps to its amino acid.
        stops: codons that may end a CDS, including the codons that can be both.
        starts: codons that may begin a CDS.
    """

    table: int
    amino_acids: Mapping[str, str]
    stops: frozenset[str]
    starts: frozenset[str]

    def translate(self, bases: str, *, ends_cds: bool = False) -> str:
        """Translate whole codons in upper case; a codon with an unknown base becomes X.

        Args:
            bases: whole codons.
            ends_cds: whether to read the last codon as the stop codon of its CDS, if it can be one.

        >>> genetic_code(4).translate("ATGTGATAA"), genetic_code(27).translate("TGATGA")
        ('MW*', 'WW')
        >>> genetic_code(27).translate("TGATGA", ends_cds=True)
        'W*'

        Raises:
            GenomeError: the length is not a multiple of three.
        """
        if len(bases) % _CODON_BP:
            raise GenomeError(f"{len(bases)} bases to translate are not a multiple of three")
        codons = (bases[at : at + _CODON_BP] for at in range(0, len(bases), _CODON_BP))
        protein = "".join(self.amino_acids.get(codon, "X") for codon in codons)
        if ends_cds and bases[-_CODON_BP:] in self.stops:
            return f"{protein[:-1]}*"
        return protein

    def is_start(self, codon: str) -> bool:
        """Return whether a codon may begin a CDS and codes for methionine elsewhere too."""
        return codon in self.starts and self.amino_acids[codon] == "M"


@lru_cache(maxsize=64)
def genetic_code(table: int) -> GeneticCode:
    """Return the genetic code of an NCBI translation table.

    Raises:
        GenomeError: NCBI has no table with that number.
    """
    from Bio.Data.CodonTable import unambiguous_dna_by_id as tables

    if table not in tables:
        raise GenomeError(f"{table} is not an NCBI translation table; give one of {_numbers()}")
    stops, amino_acids = tables[table].stop_codons, tables[table].forward_table
    # A codon whose meaning depends on its place is in both tables.
    meanings = dict.fromkeys(stops, "*") | amino_acids
    is_standard = meanings == GENETIC_CODE
    starts = _STANDARD_STARTS if is_standard else frozenset(tables[table].start_codons)
    return GeneticCode(table, meanings, frozenset(stops), starts)


def table_stated(text: str, where: str) -> int | None:
    """Return the translation table in an annotation; None for an empty text.

    Args:
        text: value of `transl_table`.
        where: file and line or record, for error messages.

    Raises:
        GenomeError: NCBI has no such table.
    """
    if not text:
        return None
    try:
        return _checked(text)
    except GenomeError as error:
        raise GenomeError(f"{where}: transl_table: {error}") from None


def tables_chosen(choice: str | int | None) -> dict[str, int]:
    """Parse an option such as `4` or `1,Mito=3` into translation tables by contig.

    Args:
        choice: one number for all contigs, or `CONTIG=N`, or both, separated by commas.

    Returns:
        Table numbers by contig; the key for all other contigs is the empty string.

    Raises:
        GenomeError: a part of the choice is malformed, or NCBI has no such table.
    """
    tables: dict[str, int] = {}
    for part in str(choice).split(",") if choice is not None else ():
        contig, _, number = part.rpartition("=")
        if contig in tables:
            named = f"contig '{contig}'" if contig else "every contig"
            raise GenomeError(f"'{choice}' gives {named} two translation tables; give one")
        tables[contig] = _checked(number)
    return tables


def table_for(tables: Mapping[str, int], contig: str) -> int | None:
    """Return the table of a contig in the result of `tables_chosen`; None if it has no table."""
    return tables.get(contig, tables.get(_EVERY_OTHER_CONTIG))


def check_contigs(tables: Mapping[str, int], contigs: Mapping[str, int]) -> None:
    """Check that the reference has all contigs with a chosen table.

    Raises:
        GenomeError: a contig is missing.
    """
    for contig in tables:
        if contig != _EVERY_OTHER_CONTIG and contig not in contigs:
            raise GenomeError(
                f"genetic code of contig '{contig}': the reference has no such contig; it has "
                f"{', '.join(list(contigs)[:3])}{' ...' if len(contigs) > 3 else ''}"
            )


def _checked(text: str) -> int:
    number = text.strip("\"' ")
    if not (number.isascii() and number.isdigit() and len(number) < 4):
        raise GenomeError(f"'{text}' is not an NCBI translation table; give one of {_numbers()}")
    return genetic_code(int(number)).table


def _numbers() -> str:
    from Bio.Data.CodonTable import unambiguous_dna_by_id as tables

    return ", ".join(map(str, sorted(tables)))


def adaptation_weights(usage: Mapping[str, float]) -> dict[str, float]:
    """Return each codon's frequency divided by the frequency of its commonest synonymous codon.

    Stop codons and amino acids with a single codon are excluded (Sharp and Li 1987).

    >>> weights = adaptation_weights({"AAA": 8, "AAG": 2} | dict.fromkeys(("ATG", "TAA"), 5))
    >>> weights["AAG"], "ATG" in weights, "TAA" in weights
    (0.25, False, False)
    """
    families: dict[str, list[str]] = {}
    for codon, amino_acid in GENETIC_CODE.items():
        families.setdefault(amino_acid, []).append(codon)
    weights: dict[str, float] = {}
    for amino_acid, codons in families.items():
        if amino_acid != "*" and len(codons) > 1:
            best = max(usage.get(codon, 0) for codon in codons)
            weights |= {codon: usage.get(codon, 0) / best for codon in codons} if best else {}
    return weights


def adaptation_index(cds: str, weights: Mapping[str, float]) -> float:
    """Return the geometric mean of a CDS's codon weights, 0 to 1; NaN without weighted codons."""
    codons = (cds[at : at + 3] for at in range(0, len(cds), 3))
    logs = [math.log(weights[codon]) for codon in codons if weights.get(codon)]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
