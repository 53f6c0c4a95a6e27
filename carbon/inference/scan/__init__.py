"""Scan regions: scores of every base and every SNV, their files and figures."""

from carbon.inference.scan.method import ScanMethod, scan_method_for
from carbon.inference.scan.score import ScanChunk, join_chunks, scan_region

__all__ = [
    "ScanChunk",
    "ScanMethod",
    "join_chunks",
    "scan_method_for",
    "scan_region",
]
