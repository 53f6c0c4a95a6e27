"""Text as the INFO column of a VCF holds it."""

# VCF 4.3, section 1.2: what has a meaning in the column is percent-encoded. So are blanks, which
# earlier versions do not allow there, and all else that is no letter.
_ENCODED = {code: f"%{code:02X}" for code in (*range(33), 127, *map(ord, "%;=,"))}


def info_text(text: str) -> str:
    """Write text as a value of INFO: of one value, for a comma of it is no separator.

    >>> info_text("a;b, 50%")
    'a%3Bb%2C%2050%25'
    """
    return text.translate(_ENCODED)
