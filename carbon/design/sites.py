"""Recognition sites of restriction enzymes by name, as REBASE gives them."""

from carbon.errors import UserError
from carbon.genome import IUPAC_DNA, reverse_complement

SITES = {
    "AscI": "GGCGCGCC", "BamHI": "GGATCC", "BbsI": "GAAGAC", "BglII": "AGATCT", "BsaI": "GGTCTC",
    "BsmBI": "CGTCTC", "ClaI": "ATCGAT", "EcoRI": "GAATTC", "EcoRV": "GATATC", "HindIII": "AAGCTT",
    "KpnI": "GGTACC", "MluI": "ACGCGT", "NcoI": "CCATGG", "NdeI": "CATATG", "NheI": "GCTAGC",
    "NotI": "GCGGCCGC", "PacI": "TTAATTAA", "PstI": "CTGCAG", "SacI": "GAGCTC", "SacII": "CCGCGG",
    "SalI": "GTCGAC", "SapI": "GCTCTTC", "SmaI": "CCCGGG", "SpeI": "ACTAGT", "SphI": "GCATGC",
    "XbaI": "TCTAGA", "XhoI": "CTCGAG", "XmaI": "CCCGGG",
}  # fmt: skip


def both_strands(sites: tuple[str, ...]) -> tuple[str, ...]:
    """Return the motifs of sites, names of enzymes or IUPAC letters, as either strand reads them.

    >>> both_strands(("EcoRI", "BsaI"))
    ('GAATTC', 'GGTCTC', 'GAGACC')

    Raises:
        UserError: a site is neither.
    """
    motifs: dict[str, None] = {}
    for site in sites:
        motif = SITES.get(site, site.upper())
        if not motif or set(motif) - set(IUPAC_DNA):
            raise UserError(
                f"site '{site}': give IUPAC letters of DNA, or an enzyme: {', '.join(SITES)}"
            )
        motifs |= dict.fromkeys((motif, reverse_complement(motif)))
    return tuple(motifs)
