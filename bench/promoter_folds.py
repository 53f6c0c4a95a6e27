"""Promoters against what is none, dealt out in folds that share no sequence."""

import argparse
import itertools
import random
from collections.abc import Sequence

from carbon.genome import read_sequences, reverse_complement
from carbon.genome.kmers import canonical_kmers

FOLDS, TEST = ("a", "b"), "test"
PROMOTER, OTHER = "promoter", "other"
Row = tuple[str, str]  # sequence, label


def apart(promoters: Sequence[str]) -> list[str]:
    """Return promoters of which no two share a 31-mer of either strand, in their order."""
    seen: set[int] = set()
    kept = []
    for bases in promoters:
        kmers = set(canonical_kmers(bases, 31).tolist())
        if not kmers & seen:
            kept.append(bases)
            seen |= kmers
    return kept


def shuffled(bases: str, draw: random.Random) -> str:
    """Return the bases in another order, with the count of every pair of neighbours kept.

    An Eulerian walk (Altschul and Erickson 1985): the last way out of each base makes a tree to the
    last base, and the others come in any order.
    """
    ways: dict[str, list[str]] = {base: [] for base in "ACGT"}
    for one, other in itertools.pairwise(bases):
        ways[one].append(other)
    end = bases[-1]
    while True:
        last = {base: draw.choice(out) for base, out in ways.items() if out and base != end}
        if all(_reaches(base, last, end) for base in last):
            break
    for base, out in ways.items():
        if base in last:
            out.remove(last[base])
        draw.shuffle(out)
        out += [last[base]] if base in last else []
    walk, taken = [bases[0]], dict.fromkeys("ACGT", 0)
    while taken[walk[-1]] < len(ways[walk[-1]]):
        base = walk[-1]
        walk.append(ways[base][taken[base]])
        taken[base] += 1
    return "".join(walk)


def _reaches(base: str, last: dict[str, str], end: str) -> bool:
    for _ in range(4):
        if base == end:
            return True
        base = last[base]
    return base == end


def windows(draw: random.Random, contigs: Sequence[str], length_bp: int) -> list[str]:
    """Return windows of either strand in any order; no two overlap."""
    starts = [(contig, at) for contig in contigs for at in range(0, len(contig), length_bp)]
    found = [contig[at : at + length_bp] for contig, at in starts]
    found = [each for each in found if len(each) == length_bp and set(each) <= set("ACGT")]
    draw.shuffle(found)
    return [each if draw.random() < 0.5 else reverse_complement(each) for each in found]


def parts_of(arguments: argparse.Namespace) -> dict[str, list[Row]]:
    """Return the rows of both folds and of the test part: as many promoters as others."""
    draw = random.Random(0)
    promoters = arguments.promoters.read_text(encoding="utf-8").split()
    draw.shuffle(promoters)
    promoters = apart([bases for bases in promoters if set(bases) <= set("ACGT")])
    contigs = [bases.upper() for _, bases in read_sequences(arguments.genome)]
    of_genome = windows(draw, contigs, len(promoters[0]))
    size = len(promoters) // 5
    cuts = {FOLDS[0]: (0, 2 * size), FOLDS[1]: (2 * size, 4 * size), TEST: (4 * size, 5 * size)}
    parts = {}
    for name, (first, behind) in cuts.items():
        some = promoters[first:behind]
        others = [shuffled(b, draw) if n % 2 else of_genome.pop() for n, b in enumerate(some)]
        rows = [(bases, PROMOTER) for bases in some] + [(bases, OTHER) for bases in others]
        draw.shuffle(rows)
        parts[name] = rows
    return parts
