"""Likelihoods of sequences."""

from carbon.inference.scoring.files import PER_BASE, PER_SEQUENCE, ScoreTable, packing_of
from carbon.inference.scoring.sequences import (
    SequenceScore,
    base_log_likelihoods,
    blocks,
    overlapping_windows,
    score_sequences,
    window_room_bp,
)

__all__ = [
    "PER_BASE",
    "PER_SEQUENCE",
    "ScoreTable",
    "SequenceScore",
    "base_log_likelihoods",
    "blocks",
    "overlapping_windows",
    "packing_of",
    "score_sequences",
    "window_room_bp",
]
