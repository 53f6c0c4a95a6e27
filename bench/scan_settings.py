"""How the deltas of a scan change with offset, with offsets averaged and with context.

    python bench/scan_settings.py --model M --reference FA --region chr:first-last

prints three tables. Compared are the deltas of all SNVs of the region: the correlation (Pearson)
and the mean absolute difference, in nats. Tokens are those the network reads for an SNV; the
published `right_end` reads 4,001. Take a region past the first window of its contig (48,000 bases,
or what the model's context holds): before that all contexts begin at the contig.
"""

import argparse
import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from carbon.console import run_command
from carbon.genome import Interval, Reference, from_region
from carbon.inference import Model, ScanChunk, join_chunks, load
from carbon.progress import TableRow, text_table

OFFSETS_AVERAGED = ((0,), (0, 3), (0, 2, 4), (0, 1, 2, 3, 4, 5))
PUBLISHED_TOKENS = 4001
SHORTEST_CONTEXT_BP = 96

Deltas = NDArray[np.float64]


class Trial:
    """A region, and the model that scans it in one way or another."""

    def __init__(self, model: Model, reference: Reference, region: Interval) -> None:
        self.model, self.reference, self.region = model, reference, region

    def scan(self, **how: Any) -> ScanChunk:
        """Scan the region."""
        return join_chunks(self.model.scan(self.reference, self.region, **how))

    def offsets(self) -> list[TableRow]:
        """Compare single offsets, pair by pair."""
        deltas = [deltas_of(self.scan(offsets=[offset])) for offset in range(6)]
        rows: list[TableRow] = [("offsets", "correlation", "mean difference, nats")]
        for one, two in itertools.combinations(range(6), 2):
            rows.append((f"{one} and {two}", *compared(deltas[one], deltas[two])))
        return rows

    def averages(self) -> list[TableRow]:
        """Compare the mean of few offsets, and each base at its token's start, with all six."""
        ways: dict[str, dict[str, Any]] = {
            f"mean of {len(offsets)}": {"offsets": offsets} for offsets in OFFSETS_AVERAGED
        }
        ways["token_start"] = {"combine": "token_start"}
        found = {name: self.scan(**how) for name, how in ways.items()}
        return self._against(found, f"mean of {len(OFFSETS_AVERAGED[-1])}")

    def contexts(self) -> list[TableRow]:
        """Compare least contexts, each with a window of twice its length, with the longest."""
        longest_bp = self.model.scan_method().least_context_bp
        lengths_bp = [longest_bp]
        while lengths_bp[0] // 4 >= SHORTEST_CONTEXT_BP:
            lengths_bp.insert(0, lengths_bp[0] // 4 // 6 * 6)
        found = {
            f"{length_bp:,} bp": self.scan(window_bp=2 * length_bp, least_context_bp=length_bp)
            for length_bp in lengths_bp
        }
        return self._against(found, f"{longest_bp:,} bp")

    def _against(self, found: dict[str, ScanChunk], best: str) -> list[TableRow]:
        rows: list[TableRow] = [
            ("scan", "correlation", "mean difference, nats", "nats per base", "tokens an SNV",
             "times fewer than right_end")
        ]  # fmt: skip
        against = deltas_of(found[best])
        for name, chunk in found.items():
            tokens = chunk.tokens_read / (3 * int(chunk.is_base.sum()))
            surprise = -float(np.nanmean(chunk.log_p_ref, dtype=np.float64))
            numbers = f"{surprise:.4f}", f"{tokens:.3f}", f"{PUBLISHED_TOKENS / tokens:,.0f}"
            rows.append((name, *compared(deltas_of(chunk), against), *numbers))
        return rows


def deltas_of(chunk: ScanChunk) -> Deltas:
    """Return the deltas of all SNVs of the known bases, in one row."""
    is_snv = ~chunk.is_base & chunk.is_base.any(axis=1, keepdims=True)
    return chunk.deltas[is_snv].astype(np.float64)


def compared(one: Deltas, two: Deltas) -> tuple[str, str]:
    """Return correlation and mean absolute difference, as text."""
    return f"{np.corrcoef(one, two)[0, 1]:.4f}", f"{np.abs(one - two).mean():.4f}"


def run(arguments: argparse.Namespace) -> None:
    """Print the tables."""
    model = load(arguments.model, dtype=arguments.dtype)
    with Reference(arguments.reference) as reference:
        region = from_region(arguments.region, reference.contig_lengths_bp)
        trial = Trial(model, reference, region)
        method = model.scan_method()
        print(
            f"{region.to_region()}, windows of {method.window_bp:,} bp, least context "
            f"{method.least_context_bp:,} bp unless it says otherwise\n"
        )
        for title, rows in (
            ("Two offsets", trial.offsets()),
            ("Offsets averaged, against all six", trial.averages()),
            ("Least context, offset 0, against the longest", trial.contexts()),
        ):
            print(f"{title}\n{text_table(rows)}\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--model", required=True, help="model folder, or a name on the Hub")
    parser.add_argument("--reference", required=True, help="FASTA")
    parser.add_argument("--region", required=True, help="contig, or contig:first-last, 1-based")
    parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    arguments = parser.parse_args()
    return run_command(lambda: run(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
