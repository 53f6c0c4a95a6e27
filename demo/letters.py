"""Tell proteins from DNA, also where all letters are IUPAC codes of both."""

import re

from carbon.errors import TypedError, UserError

_LEAST_LETTERS = 8  # shorter texts may be motifs with IUPAC codes
_AMINO_ACIDS = frozenset("ACDEFGHIKLMNPQRSTVWYX*")
_ONLY_PROTEIN = frozenset("EFILPQ*")
_BASES = frozenset("ACGTUN")
_HEADER = re.compile(r"^>.*", re.MULTILINE)


def looks_like_protein(text: str) -> bool:
    """Return whether letters are amino acids rather than bases.

    >>> looks_like_protein("MAVSKVYARSVYDSRGN"), looks_like_protein("ATGGCTGTCTCTAAAGTTTAC")
    (True, False)
    """
    letters = "".join(text.split()).upper()
    if len(letters) < _LEAST_LETTERS or set(letters) - _AMINO_ACIDS:
        return False
    if set(letters) & _ONLY_PROTEIN:
        return True
    return sum(letter in _BASES for letter in letters) < len(letters) / 2


def check_is_dna(text: str) -> None:
    """Check that bases, or the lines of FASTA, are not a protein.

    Raises:
        TypedError: they look like a protein; the message names the first letter that says so.
    """
    bases = _HEADER.sub(lambda header: " " * len(header[0]), text)
    if looks_like_protein(bases):
        letters = set("".join(bases.split()).upper())
        signs = letters & _ONLY_PROTEIN or letters - _BASES
        at = next(n for n, letter in enumerate(bases) if letter.upper() in signs)
        raise TypedError(
            f"letter {at + 1}: {text[at]!r} is an amino acid: this looks like a protein; give DNA",
            text,
            at,
        )


def check_is_protein(text: str) -> None:
    """Check that a peptide is not DNA.

    Raises:
        UserError: all letters are bases.
    """
    letters = "".join(text.split()).upper()
    if len(letters) >= _LEAST_LETTERS and not set(letters) - _BASES:
        raise UserError("this looks like DNA; give a protein in one-letter codes, such as MAVSKVYA")
