"""Training objectives and likelihoods over 6-mers; losses are sums and counts, never means."""

from carbon.losses.distributions import chain, chain_conditionals, marginal, marginals
from carbon.losses.fused import head_loss
from carbon.losses.likelihoods import (
    LogLikelihoods,
    LossSums,
    Support,
    log_likelihoods,
    next_kmers,
    nucleotide_loss,
)

__all__ = [
    "LogLikelihoods",
    "LossSums",
    "Support",
    "chain",
    "chain_conditionals",
    "head_loss",
    "log_likelihoods",
    "marginal",
    "marginals",
    "next_kmers",
    "nucleotide_loss",
]
