"""Numbers and variants in words."""

import math

from carbon.genome import short

_AS_LIKELY = 1.1
"""Largest ratio of two likelihoods that is described as equal."""
_SCALES = ((1e12, "trillion"), (1e9, "billion"), (1e6, "million"))
_MOST_WRITTEN = 1e15
_MOST_NATS = 700.0  # exp of more overflows


def in_words(
    delta: float, is_unsure: bool | None = False, alt: str = "ALT", ref: str = "REF"
) -> str:
    """Describe a delta in nats in words.

    >>> in_words(-13.8)
    'ALT is about 980,000 times less likely than REF'

    Args:
        delta: log p(ALT) - log p(REF).
        is_unsure: whether the strands disagree about the sign.
        alt: name of ALT.
        ref: name of REF.
    """
    if is_unsure:
        return "the strands disagree about which allele is likelier"
    times = math.exp(min(abs(delta), _MOST_NATS))
    if times < _AS_LIKELY:
        return f"{alt} is about as likely as {ref}"
    direction = "less" if delta < 0 else "more"
    return f"{alt} is about {_rounded(times)} times {direction} likely than {ref}"


def named(text: str) -> str:
    """Write a variant with long alleles shortened.

    >>> named("c1:7 A>C")
    'c1:7 A>C'
    """
    place, _, change = text.rpartition(" ")
    ref, _, alt = change.partition(">")
    return f"{place} {short(ref)}>{short(alt)}"


def many(count: int, thing: str) -> str:
    """Return a count with its noun, in the plural where needed.

    >>> many(1, "base"), many(1200, "base")
    ('1 base', '1,200 bases')
    """
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def spaced(term: str) -> str:
    """Return a Sequence Ontology term as words.

    >>> spaced("stop_gained"), spaced("missense_variant")
    ('stop gained', 'missense')
    """
    return term.removesuffix("_variant").replace("_", " ")


def _rounded(times: float) -> str:
    """Return a ratio with two significant digits."""
    rounded = float(f"{times:.2g}")
    if rounded < 10:
        return f"{rounded:.1f}"
    if rounded >= _MOST_WRITTEN:
        return f"10^{math.log10(rounded):.0f}"
    scales = (f"{rounded / least:,.3g} {name}" for least, name in _SCALES if rounded >= least)
    return next(scales, f"{rounded:,.0f}")
