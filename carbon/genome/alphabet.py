"""DNA letters: complement, reverse complement, translation."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from carbon.errors import GenomeError

# The bases that each letter stands for (Cornish-Bowden 1985).
IUPAC_BASES = {
    "A": "A", "C": "C", "G": "G", "T": "T", "U": "T", "R": "AG", "Y": "CT", "S": "CG", "W": "AT",
    "K": "GT", "M": "AC", "B": "CGT", "D": "AGT", "H": "ACT", "V": "ACG", "N": "ACGT", "-": "",
}  # fmt: skip
IUPAC_DNA = "ACGTURYSWKMBDHVN"
FASTA_LETTERS = (IUPAC_DNA + IUPAC_DNA.lower() + "-").encode()
# U is no base of DNA and counts as unknown; so does what stands across from it.
_COMPLEMENT = str.maketrans("ACGTURYSWKMBDHVNacgturyswkmbdhvn", "TGCANYRSWMKVHDBNtgcanyrswmkvhdbn")

# The standard genetic code (NCBI translation table 1), codons in the order TCAG.
_AMINO_ACIDS = "FFLLSSSSYY**CC*WLLLLPPPPHHQQRRRRIIIMTTTTNNKKSSRRVVVVAAAADDEEGGGG"
GENETIC_CODE = {
    a + b + c: _AMINO_ACIDS[16 * i + 4 * j + k]
    for i, a in enumerate("TCAG")
    for j, b in enumerate("TCAG")
    for k, c in enumerate("TCAG")
}
STOP_CODONS = frozenset(codon for codon, amino_acid in GENETIC_CODE.items() if amino_acid == "*")


def reverse_complement(sequence: str) -> str:
    """Return the other strand, read 5' to 3'; keeps case and IUPAC codes, but for U, which gives N.

    >>> reverse_complement("AACGTn")
    'nACGTT'
    """
    return sequence.translate(_COMPLEMENT)[::-1]


def translate(cds: str) -> str:
    """Translate whole codons by the standard code; a codon with an unknown base gives X.

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
    """Return the share of G and C, in either case; 0 of no base."""
    return sum(base in "GCgc" for base in bases) / len(bases) if bases else 0.0


def gc_along(bases: str, window_bp: int) -> list[float]:
    """Return the share of G and C of the window that ends with each base, shorter at the start."""
    return [gc_share(bases[max(0, end - window_bp) : end]) for end in range(1, len(bases) + 1)]


STANDARD_TABLE = 1
_CODON_BP = 3
# Start codons of the standard code: those of NCBI's table 1, and GTG of table 11, whose codons mean
# the same. The rare ATT, ATC and ATA of table 11 would call too many changed codons a lost start.
_STANDARD_STARTS = frozenset({"ATG", "GTG", "TTG", "CTG"})
_EVERY_OTHER_CONTIG = ""


@dataclass(frozen=True, slots=True)
class GeneticCode:
    """A translation table of NCBI.

    Attributes:
        table: its number.
        amino_acids: amino acid of each of the 64 codons, in one letter; `*` for a codon that is
            always a stop. A codon that is either (tables 27, 28 and 31) has its amino acid here.
        stops: codons that may end a CDS, in tables 27, 28 and 31 those that are either too.
        starts: codons that may begin a CDS.
    """

    table: int
    amino_acids: Mapping[str, str]
    stops: frozenset[str]
    starts: frozenset[str]

    def translate(self, bases: str, *, ends_cds: bool = False) -> str:
        """Translate whole codons in capitals; a codon with an unknown base gives X.

        Args:
            bases: as many as whole codons have.
            ends_cds: the last codon is the stop codon of its CDS, if it can be one.

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
        """Tell whether a codon begins a CDS and stands for methionine elsewhere too."""
        return codon in self.starts and self.amino_acids[codon] == "M"


@lru_cache(maxsize=64)
def genetic_code(table: int) -> GeneticCode:
    """Return the genetic code of an NCBI translation table.

    Raises:
        GenomeError: NCBI has no table of that number.
    """
    from Bio.Data.CodonTable import unambiguous_dna_by_id as tables

    if table not in tables:
        raise GenomeError(f"{table} is not an NCBI translation table; give one of {_numbers()}")
    stops, amino_acids = tables[table].stop_codons, tables[table].forward_table
    # A codon that is a stop or an amino acid, by its place, stands in both.
    meanings = dict.fromkeys(stops, "*") | amino_acids
    is_standard = meanings == GENETIC_CODE
    starts = _STANDARD_STARTS if is_standard else frozenset(tables[table].start_codons)
    return GeneticCode(table, meanings, frozenset(stops), starts)


def table_stated(text: str, where: str) -> int | None:
    """Return the translation table that an annotation states; None for an empty text.

    Args:
        text: value of `transl_table`.
        where: file and line, or record, for the message.

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
    """Return the translation table of each contig of a choice such as `4` or `1,Mito=3`.

    Args:
        choice: one number for all contigs, or `CONTIG=N`, or both, with commas between them.

    Returns:
        Numbers by contig; the empty string stands for every contig that is not named.

    Raises:
        GenomeError: a part of the choice is malformed, or NCBI has no such table.
    """
    found: dict[str, int] = {}
    for part in str(choice).split(",") if choice is not None else ():
        contig, _, number = part.rpartition("=")
        if contig in found:
            named = f"contig '{contig}'" if contig else "every contig"
            raise GenomeError(f"'{choice}' gives {named} two translation tables; give one")
        found[contig] = _checked(number)
    return found


def table_for(tables: Mapping[str, int], contig: str) -> int | None:
    """Return the table that `tables_chosen` gives a contig; None if it gives none."""
    return tables.get(contig, tables.get(_EVERY_OTHER_CONTIG))


def check_contigs(tables: Mapping[str, int], contigs: Mapping[str, int]) -> None:
    """Check that the reference has the contigs of a choice.

    Raises:
        GenomeError: it lacks one.
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
    """Return each codon's frequency over that of the best codon of its amino acid.

    Codons of stop, and of amino acids that have one codon only, are left out, as Sharp and Li do.

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
    """Return the geometric mean of the weights of a CDS' codons, 0 to 1; NaN where none has any."""
    codons = (cds[at : at + 3] for at in range(0, len(cds), 3))
    logs = [math.log(weights[codon]) for codon in codons if weights.get(codon)]
    return math.exp(sum(logs) / len(logs)) if logs else math.nan
