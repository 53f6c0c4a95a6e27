"""The codon adaptation index of Sharp and Li (1987): how far a CDS uses the codons of others."""

import math
from collections.abc import Mapping

from carbon.genome.alphabet import GENETIC_CODE


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
