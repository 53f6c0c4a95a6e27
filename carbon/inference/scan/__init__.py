"""Scan regions: scores of every base and every SNV, their files and figures."""

from carbon.inference.scan.job import ScanWorker, run_scan_job
from carbon.inference.scan.method import ScanMethod, scan_method_for
from carbon.inference.scan.plan import plan_scan_job
from carbon.inference.scan.score import ScanChunk, join_chunks, scan_region

__all__ = [
    "ScanChunk",
    "ScanMethod",
    "ScanWorker",
    "join_chunks",
    "plan_scan_job",
    "run_scan_job",
    "scan_method_for",
    "scan_region",
]
