"""What the length of an indel does to its delta by itself.

    python bench/indel_length.py --model M --reference FA --contig NAME [--window BP]

At random places of a contig, deletions and insertions of several lengths. What is inserted is drawn
from elsewhere in the contig, so that it is no stranger than any other sequence of the genome.
Prints the mean and the standard deviation of `centered` deltas, both windows of one length, beside
those of windows of unequal lengths (the reference window with the allele exchanged in it).
"""

import argparse

import numpy as np

from carbon.console import run_command
from carbon.genome import Interval, Reference, Variant
from carbon.inference import Model, load
from carbon.progress import TableRow, text_table

LENGTHS_BP = (1, 2, 3, 6, 12, 24, 48)


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True)
    parser.add_argument("--reference", required=True)
    parser.add_argument("--contig", required=True)
    parser.add_argument("--places", type=int, default=60)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    return run_command(lambda: print(text_table(_rows(arguments))))


def _rows(arguments: argparse.Namespace) -> list[TableRow]:
    model = load(arguments.model)
    random = np.random.default_rng(arguments.seed)
    rows: list[TableRow] = [("indel", "bp", "equal: mean", "SD", "unequal: mean", "SD")]
    with Reference(arguments.reference) as reference:
        contig_bp = reference.contig_lengths_bp[arguments.contig]
        most_bp = contig_bp - arguments.window - max(LENGTHS_BP)
        places = random.integers(arguments.window, most_bp, arguments.places)
        donors = random.integers(0, most_bp, arguments.places)
        bases = reference.fetch(Interval(arguments.contig, 0, contig_bp)).upper()
        for kind in ("deletion", "insertion"):
            for length_bp in LENGTHS_BP:
                variants = [
                    _indel(arguments.contig, bases, int(place), int(donor), kind, length_bp)
                    for place, donor in zip(places, donors, strict=True)
                ]
                scores = model.score_variants(
                    reference, variants, window_bp=arguments.window, strands="forward"
                )
                equal = [score.delta for score in scores if score.delta is not None]
                unequal = _unequal(model, bases, variants, arguments.window)
                figures = [f(v) for v in (equal, unequal) for f in (np.mean, np.std)]
                rows.append((kind, length_bp, *map(float, figures)))
    return rows


def _indel(contig: str, bases: str, place: int, donor: int, kind: str, length_bp: int) -> Variant:
    anchor = bases[place]
    if kind == "deletion":
        return Variant(contig, place, bases[place : place + 1 + length_bp], anchor)
    return Variant(contig, place, anchor, anchor + bases[donor : donor + length_bp])


def _unequal(model: Model, bases: str, variants: list[Variant], window_bp: int) -> list[float]:
    windows = []
    for variant in variants:
        start = variant.position - window_bp // 2
        left, right = bases[start : variant.position], bases[variant.interval.end :]
        right = right[: window_bp - len(left) - len(variant.ref)]
        windows += [left + variant.ref + right, left + variant.alt + right]
    sums = [score.log_likelihood for score in model.score(windows)]
    return [alt - ref for ref, alt in zip(sums[::2], sums[1::2], strict=True)]


if __name__ == "__main__":
    raise SystemExit(main())
