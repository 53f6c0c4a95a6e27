"""Scores over the reference bases that both alleles of a variant compare.

These are the reference bases after both alleles and after the first base at which the texts of the
alleles differ. Windows are aligned so that their k-mers begin at the same bases for REF and ALT.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]
Int64s = NDArray[np.int64]


class SharedBases(NamedTuple):
    """The same reference bases in the texts of both alleles.

    Attributes:
        ref: their indices in the compared text with REF.
        alt: their indices in the compared text with ALT; as many.
        text: the bases.
    """

    ref: range
    alt: range
    text: str

    @property
    def known(self) -> NDArray[np.bool_]:
        """(bases,), whether a base is known; others are not compared."""
        letters = np.frombuffer(self.text.upper().encode(), np.uint8)
        return np.isin(letters, np.frombuffer(b"ACGT", np.uint8))


def shared_bases(first: int, allele_bp: tuple[int, int], longer_bp: int, ref: str) -> SharedBases:
    """Return the reference bases that both alleles compare.

    Args:
        first: index of the first base at which the compared texts differ.
        allele_bp: bases of REF and of ALT with which the texts begin.
        longer_bp: bases that ALT has more than REF.
        ref: compared text with REF; the text with ALT is as long.
    """
    start = max(first + 1, first + 1 - longer_bp, allele_bp[0], allele_bp[1] - longer_bp)
    stop = max(start, min(len(ref), len(ref) - longer_bp))
    texts = range(start, stop), range(start + longer_bp, stop + longer_bp)
    return SharedBases(*texts, ref[start:stop])


def whole_tokens(bases: range, before_bp: int, k: int) -> range:
    """Return the k-mers that consist of some bases of a text, without its last one.

    The last k-mer of a text is only predicted, so that it has no state.

    Args:
        bases: indices in the text.
        before_bp: bases between the start of a k-mer and the start of the text.
        k: bases of a token.
    """
    first = -(-(before_bp + bases.start) // k)
    return range(first, max(first, (before_bp + bases.stop - 1) // k))


class AlleleReading(NamedTuple):
    """The compared bases of an allele at one offset, on one strand.

    Attributes:
        likelihoods: (bases,) log-likelihoods in nats.
        conditionals: (bases, 4) p of each base given all bases before it; without columns unless
            requested.
        means: mean state of the whole k-mers of a range of bases; None if there are none.
        ids: (tokens,) ids of the k-mers that hold the bases.
    """

    likelihoods: Float32s
    conditionals: Float32s
    means: Mapping[range, Float32s | None]
    ids: Int64s

    def up_to(self, length_bp: int) -> "AlleleReading":
        """Return the reading without later bases."""
        return self._replace(
            likelihoods=self.likelihoods[:length_bp], conditionals=self.conditionals[:length_bp]
        )


def reading_of(
    values: Float32s,
    ids: Int64s,
    k: int,
    start: int,
    length_bp: int,
    pools: Sequence[range] = (),
    means: Iterable[Float32s | None] = (),
) -> AlleleReading:
    """Return the reading of a part of some k-mers, which holds no values of the others.

    Args:
        values: (tokens, k or 5 k), by `ModelRunner.base_measure`.
        ids: ids of the k-mers that hold bases of the part.
        k: bases of a token.
        start: the first base of the part.
        length_bp: bases of the part.
        pools: ranges of the part's bases.
        means: mean state of the whole k-mers of each range.
    """
    tokens = values[start // k : -(-(start + length_bp) // k)].copy()
    part = slice(start % k, start % k + length_bp)
    conditionals = tokens[:, k:].reshape(len(tokens) * k, (values.shape[1] - k) // k)
    by_range = dict(zip(pools, means, strict=True))
    return AlleleReading(tokens[:, :k].reshape(-1)[part], conditionals[part], by_range, ids)


def hides_allele(ref: AlleleReading, alt: AlleleReading, shared: SharedBases) -> bool:
    """Return whether the network reads the same tokens with REF and with ALT.

    This is so if every k-mer in which the alleles differ has an unknown base: its one id replaces
    the other bases too. Then the bases after the variant do not depend on the allele. An insertion
    or deletion moves the bases before it to other k-mers, so its tokens differ.
    """
    is_aligned = len(shared.ref) > 0 and shared.ref == shared.alt
    return is_aligned and np.array_equal(ref.ids, alt.ids)


def divergence(
    ref: Sequence[AlleleReading], alt: Sequence[AlleleReading], shared: SharedBases
) -> float | None:
    """Return the mean Jensen-Shannon divergence of the next-base distributions, in nats.

    Args:
        ref: readings with REF, one for each offset.
        alt: readings with ALT, likewise.
        shared: the bases.

    Returns:
        Mean over offsets and bases; None without readings, shared bases or distributions.
    """
    if not ref or not ref[0].conditionals.shape[1] or not (known := shared.known).any():
        return None
    of_ref, of_alt = (
        np.stack([each.conditionals[bases.start : bases.stop][known] for each in readings])
        for readings, bases in ((ref, shared.ref), (alt, shared.alt))
    )
    return float(jensen_shannon(of_ref.astype(np.float64), of_alt.astype(np.float64)).mean())


def jensen_shannon(first: Float64s, second: Float64s) -> Float64s:
    """Return the Jensen-Shannon divergences of distributions along the last axis, in nats."""
    entropies = _entropy(first) + _entropy(second)
    divergences: Float64s = np.maximum(_entropy((first + second) / 2) - entropies / 2, 0)
    return divergences


def _entropy(p: Float64s) -> Float64s:
    log_p = np.log(p, out=np.zeros_like(p), where=p > 0)
    entropies: Float64s = -(p * log_p).sum(axis=-1)
    return entropies


def state_distance(
    ref: Sequence[AlleleReading], alt: Sequence[AlleleReading], shared: SharedBases
) -> float | None:
    """Return the L2 distance of the mean states of both alleles, the mean over offsets.

    Arguments are those of `divergence`; None if no offset has a k-mer of such bases alone.
    """
    pairs = [
        (r.means.get(shared.ref), a.means.get(shared.alt)) for r, a in zip(ref, alt, strict=True)
    ]
    distances = [
        float(np.linalg.norm(of_alt.astype(np.float64) - of_ref))
        for of_ref, of_alt in pairs
        if of_ref is not None and of_alt is not None
    ]
    return sum(distances) / len(distances) if distances else None
