"""A scan told in numbers, ready for JSON."""

from typing import Any

from carbon.inference.scan.chunks import ScanChunk
from carbon.inference.variants.told import told_numbers


def told_scan(scanned: ScanChunk) -> dict[str, Any]:
    """Return what a scan found of each base; None where a base is unknown."""
    known = [value for value in told_numbers(scanned.log_p_ref) if value is not None]
    return {
        "region": scanned.interval.to_region(),
        "bases": scanned.bases,
        "log_p_ref": told_numbers(scanned.log_p_ref),
        "log_probabilities": scanned.log_probabilities.tolist(),
        "entropy_nats": scanned.entropy_nats.tolist(),
        "nats_per_base": -sum(known) / len(known) if known else None,
    }
