"""The distribution over one 6-mer, summarised as JSON values."""

from typing import Any

from carbon.errors import UserError
from carbon.genome import short
from carbon.inference.next_token import (
    FREE,
    NextToken,
    all_kmers,
    kmer_index,
    near_misses,
    next_token,
)
from carbon.inference.runner import ModelRunner
from carbon.tokenizer import ALL_KNOWN, BASES, KMER_DIGITS, K, encode_kmers


def told_kmer(token: NextToken, kmer: str, fixed: str, most: int) -> dict[str, Any]:
    """Return expected bases, with and without fixed bases, and the losses of near misses.

    Args:
        token: the distribution.
        kmer: the true 6-mer.
        fixed: six letters, `.` for a free position.
        most: number of the likeliest 6-mers to list.

    Raises:
        UserError: `kmer` or `fixed` is not a 6-mer.
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


def told_guess(reader: ModelRunner, sequence: str) -> dict[str, Any]:
    """Return the model's prediction of the last six bases of a sequence.

    Returns:
        `context` and its 6-mers `read`; `best` and `best_probability`; the last six bases `true`,
        `true_probability`, its `rank` and `true_loss`; `marginals`; `losses_by_wrong_bases` of the
        best.

    Raises:
        UserError: the last six bases are not all A, C, G or T.
    """
    if len(sequence) < K or set(sequence[-K:].upper()) - set(BASES):
        raise UserError(
            f"the sequence '{short(sequence)}' is to end with six of ACGT, which the model predicts"
        )
    token, true = next_token(reader, sequence[:-K]), sequence[-K:]
    told = told_kmer(token, true, FREE, most=1)
    (best,) = told["top"]
    return {
        "context": token.context,
        "read": cut_kmers(token.context, 0),
        "best": best["kmer"],
        "best_probability": best["probability"],
        "true": told["kmer"],
        "true_probability": told["probabilities"][kmer_index(true)],
        "rank": told["rank"],
        "true_loss": told["losses"][0],
        "marginals": told["marginals"],
        "losses_by_wrong_bases": _losses_by_wrong_bases(token, best["kmer"]),
    }


def cut_kmers(sequence: str, offset: int) -> list[dict[str, Any]]:
    """Return `bases` and `index` of the 6-mers of a sequence after its first `offset` bases.

    The index is None for a 6-mer with an unknown base, and for a tail of fewer than six bases.
    """
    left = sequence[offset:]
    kmers = encode_kmers(left)
    return [
        {"bases": left[K * n : K * (n + 1)], "index": int(index) if known == ALL_KNOWN else None}
        for n, (index, known) in enumerate(zip(kmers.indices, kmers.known, strict=True))
    ]


def _losses_by_wrong_bases(token: NextToken, best: str) -> list[dict[str, float]]:
    """Return the mean losses of all 6-mers that differ from `best` in 0 to 6 bases."""
    wrong = (KMER_DIGITS[kmer_index(best)] != KMER_DIGITS).sum(axis=1)
    losses = {"cross_entropy_nats": token.cross_entropy_nats, "fns_nats": token.fns_nats}
    return [
        {"wrong": n, **{name: float(nats[wrong == n].mean()) for name, nats in losses.items()}}
        for n in range(K + 1)
    ]
