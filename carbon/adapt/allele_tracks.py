"""What a variant does to the labels of the bases around it."""

import numpy as np
from numpy.typing import NDArray

from carbon.genome import Variant

Floats32 = NDArray[np.float32]


def largest_changes(ref: Floats32, alt: Floats32, variant: Variant, before_bp: int) -> Floats32:
    """Return of each class its largest change, and where it is: (classes, 4).

    Bases before the variant are compared one by one, bases behind it likewise, and of the alleles
    as many from the left as the shorter has. What only one allele has is of no class with the
    other: 0 stands there, as in the delta scores of SpliceAI (Jaganathan et al. 2019).

    Args:
        ref: (bases, classes), probabilities in the window with REF.
        alt: (bases, classes), likewise with ALT; NaN where nothing is known.
        variant: the two.
        before_bp: bases of the window before the variant.

    Returns:
        Probability with ALT, with REF, ALT - REF, and the offset of the base from POS, negative to
        the left; of an inserted base that of the last base before it. NaN of no prediction.
    """
    ref_bp, alt_bp = len(variant.ref), len(variant.alt)
    longer = max(ref_bp, alt_bp)
    behind = min(len(ref) - ref_bp, len(alt) - alt_bp) - before_bp

    def laid_out(found: Floats32, allele_bp: int) -> Floats32:
        gap = np.zeros((longer - allele_bp, found.shape[1]), dtype=found.dtype)
        end = before_bp + allele_bp
        return np.concatenate([found[:end], gap, found[end : end + behind]])

    with_ref, with_alt = laid_out(ref, ref_bp), laid_out(alt, alt_bp)
    offsets = np.arange(-before_bp, longer + behind)
    offsets[before_bp : before_bp + longer] = np.minimum(np.arange(longer), ref_bp - 1)
    offsets[before_bp + longer :] = np.arange(ref_bp, ref_bp + behind)
    change = with_alt - with_ref
    at = np.abs(np.nan_to_num(change)).argmax(axis=0), np.arange(change.shape[1])
    found = np.stack([with_alt[at], with_ref[at], change[at], offsets[at[0]]], axis=1)
    found[np.isnan(found).any(axis=1)] = np.nan
    return found.astype(np.float32)
