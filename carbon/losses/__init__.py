"""Objectives over 6-mers; each returns a sum and a count, never a mean."""

from carbon.losses.nucleotide import (
    LogLikelihoods,
    LossSum,
    chain,
    log_likelihoods,
    marginals,
    nucleotide_loss,
)

__all__ = [
    "LogLikelihoods",
    "LossSum",
    "chain",
    "log_likelihoods",
    "marginals",
    "nucleotide_loss",
]
