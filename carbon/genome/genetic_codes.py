"""Genetic codes: the translation tables of NCBI, as Biopython holds them."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from carbon.errors import GenomeError
from carbon.genome.alphabet import GENETIC_CODE

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
