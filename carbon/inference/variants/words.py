"""What a delta says, in a sentence."""

import math

from carbon.genome import short

_AS_LIKELY = 1.1
"""Times up to which two alleles are told as equally likely."""


def in_words(
    delta: float, is_unsure: bool | None = False, alt: str = "ALT", ref: str = "REF"
) -> str:
    """Return what a delta in nats says of ALT and REF.

    >>> in_words(-13.8)
    'ALT is about 980,000 times less likely than REF'

    Args:
        delta: log p(ALT) - log p(REF).
        is_unsure: the delta lies inside its spread: the strands or k-mer offsets disagree.
        alt: how ALT is called.
        ref: how REF is called.
    """
    if is_unsure:
        return "the strands or k-mer offsets disagree about which allele is likelier"
    times = math.exp(min(abs(delta), 700.0))
    if times < _AS_LIKELY:
        return f"{alt} is about as likely as {ref}"
    rounded = float(f"{times:.2g}")
    shown = (
        f"{rounded:.1f}"
        if rounded < 10
        else f"{rounded:,.0f}"
        if rounded < 1e9
        else f"{rounded:.1e}"
    )
    return f"{alt} is about {shown} times {'less' if delta < 0 else 'more'} likely than {ref}"


def named(text: str) -> str:
    """Write a variant with the beginning of long alleles.

    >>> named("c1:7 A>C")
    'c1:7 A>C'
    """
    place, _, change = text.rpartition(" ")
    ref, _, alt = change.partition(">")
    return f"{place} {short(ref)}>{short(alt)}"
