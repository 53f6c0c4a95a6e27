"""One 6-mer's distribution told in numbers, ready for JSON."""

from typing import Any

from carbon.inference.reading.next_token import NextToken, all_kmers, kmer_index, near_misses


def told_kmer(token: NextToken, kmer: str, fixed: str, most: int) -> dict[str, Any]:
    """Return what is expected, free and given fixed bases, and the losses of near misses.

    Args:
        token: the distribution.
        kmer: the true 6-mer.
        fixed: six letters, `.` where free.
        most: of the likeliest that are listed.

    Raises:
        UserError: one is no 6-mer.
    """
    given, true = token.given(fixed), kmer_index(kmer)
    kmers = (all_kmers()[true], *near_misses(kmer))
    losses = {"cross_entropy_nats": token.cross_entropy_nats, "fns_nats": token.fns_nats}
    return {
        "context": token.context,
        "kmer": kmers[0],
        "fixed": given.fixed,
        "rank": int((token.probabilities > token.probabilities[true]).sum()) + 1,
        "probabilities": token.probabilities.tolist(),
        "marginals": token.marginals.tolist(),
        "given_probabilities": given.probabilities.tolist(),
        "given_marginals": given.marginals.tolist(),
        "top": [{"kmer": each, "probability": p} for each, p in given.ranked()[:most]],
        "losses": [
            {"kmer": each, **{name: float(nats[kmer_index(each)]) for name, nats in losses.items()}}
            for each in kmers
        ],
    }
