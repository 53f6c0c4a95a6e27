"""Objectives over 6-mers; each returns sums and counts, never a mean.

Names are loaded when first used, so that `objectives`, which names them, does not import torch.
"""

from typing import TYPE_CHECKING

from carbon.lazy import lazy_names

if TYPE_CHECKING:
    from carbon.losses.distributions import (
        chain,
        chain_conditionals,
        chain_probabilities,
        marginal,
        marginals,
    )
    from carbon.losses.fused import head_loss
    from carbon.losses.likelihoods import (
        LogLikelihoods,
        LossSums,
        Support,
        log_likelihoods,
        next_kmers,
        nucleotide_loss,
    )

_HOMES = {
    "LogLikelihoods": "carbon.losses.likelihoods",
    "LossSums": "carbon.losses.likelihoods",
    "Support": "carbon.losses.likelihoods",
    "chain": "carbon.losses.distributions",
    "chain_conditionals": "carbon.losses.distributions",
    "chain_probabilities": "carbon.losses.distributions",
    "head_loss": "carbon.losses.fused",
    "log_likelihoods": "carbon.losses.likelihoods",
    "marginal": "carbon.losses.distributions",
    "marginals": "carbon.losses.distributions",
    "next_kmers": "carbon.losses.likelihoods",
    "nucleotide_loss": "carbon.losses.likelihoods",
}

__all__ = [
    "LogLikelihoods",
    "LossSums",
    "Support",
    "chain",
    "chain_conditionals",
    "chain_probabilities",
    "head_loss",
    "log_likelihoods",
    "marginal",
    "marginals",
    "next_kmers",
    "nucleotide_loss",
]

__getattr__ = lazy_names(__name__, _HOMES)
