"""DNA letters: complement, reverse complement, translation."""

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
