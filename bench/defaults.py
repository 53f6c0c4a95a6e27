"""Which settings of `centered` tell damaging variants best, and what they cost.

    python bench/defaults.py --model M --reference FA --annotation GTF --contig NAME --output JSON
        [--places 60] [--lengths 1,2,...] [--windows 256,1024,...] [--by chain,marginals]

At random places of a contig: SNVs that gain a stop codon, synonymous and intergenic ones, and
indels of each length (deletions and insertions by turns; what is inserted is drawn from elsewhere
in the contig) inside coding exons and between genes. Each is read once in six offsets and on both
strands, and every smaller choice of offsets and strands is taken out of that. The readings
compared:

- `unaligned`: ALT in the same offset as REF, so that an indel moves the 6-mers behind it;
- `aligned`: as `centered` reads, 6-mers behind the variant begin at the same bases for both;
- `first N bp`: aligned, only so many bases from the variant on counted;
- `halved by N bp`: aligned, the weight of a base falls to a half with every N bases.

AUROC is that of a lower delta for the first kind of a pair. Tokens are those that the network reads
for a variant, padding included; seconds are of one thread if OMP_NUM_THREADS is 1. Unsure is the
share of variants whose two strands disagree about the sign, in the default reading.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from carbon.console import run_command
from carbon.genome import (
    Consequences,
    Interval,
    Reference,
    Variant,
    intergenic,
    read_gene_file,
)
from carbon.inference import AlleleComparison, Model, load
from carbon.inference.options import STRANDS_READ, Strands
from carbon.inference.variants import compare_block
from carbon.io.files import atomic_file
from carbon.progress import TableRow, text_table

Deltas = NDArray[np.float64]
Kinds = dict[str, list[Variant]]

OFFSETS = {"1": (0,), "2": (0, 3), "3": (0, 2, 4), "6": (0, 1, 2, 3, 4, 5)}
STRANDS: tuple[Strands, ...] = ("forward", "both")
CUTS_BP = (48, 96, 192, 384)
HALVES_BP = (24, 96)
IN_OFFSET_BP = (3, 6, 9, 12)
AT_ONCE = 16
TRIED_FOR_COST = 8


def _first(cut_bp: int) -> Callable[[Deltas], Deltas]:
    return lambda parts: np.asarray(parts[:, :cut_bp].sum(axis=1))


def _halved(half_bp: int) -> Callable[[Deltas], Deltas]:
    return lambda parts: parts @ np.exp2(-np.arange(parts.shape[1]) / half_bp)


# From the deltas of all bases from the variant on, (offsets, bases), to one an offset.
ALIGNED: Mapping[str, Callable[[Deltas], Deltas]] = {
    "aligned": lambda parts: parts.sum(axis=1),
    **{f"first {cut_bp} bp": _first(cut_bp) for cut_bp in CUTS_BP},
    **{f"halved by {half_bp} bp": _halved(half_bp) for half_bp in HALVES_BP},
}
READINGS = ("unaligned", *ALIGNED)


class Places:
    """Where variants of a contig may lie, drawn at random."""

    def __init__(self, reference: Reference, annotation: str, contig: str, seed: int) -> None:
        found = read_gene_file(annotation, reference)
        self.consequences = Consequences(reference, found)
        self.contig, self.random = contig, np.random.default_rng(seed)
        length_bp = reference.contig_lengths_bp[contig]
        self.bases = reference.fetch(Interval(contig, 0, length_bp)).upper()
        coding = [
            span
            for gene in found.genes
            if gene.interval.contig == contig
            for transcript in gene.transcripts[:1]
            for span in transcript.cds
        ]
        free = [
            (gap.start, gap.end)
            for gap in intergenic(found, reference.contig_lengths_bp)
            if gap.contig == contig
        ]
        self.spans = {"coding": coding, "intergenic": free}

    def draw(self, kind: str, room_bp: int) -> int:
        """Return a place with so many bases of the kind from it on, well inside the contig."""
        spans = [(start, end - room_bp) for start, end in self.spans[kind] if end - start > room_bp]
        weights = np.array([end - start for start, end in spans], dtype=float)
        while True:
            start, end = spans[self.random.choice(len(spans), p=weights / weights.sum())]
            place = int(self.random.integers(start, end))
            if 5000 < place < len(self.bases) - 5000:
                return place

    def snvs(self, number: int) -> Kinds:
        """Return as many SNVs of each kind."""
        found: Kinds = {"stop_gained": [], "synonymous_variant": [], "intergenic_variant": []}
        while min(map(len, found.values())) < number:
            region = "intergenic" if len(found["intergenic_variant"]) < number else "coding"
            place = self.draw(region, 1)
            ref = self.bases[place]
            snv = Variant(self.contig, place, ref, self.random.choice([*"ACGT".replace(ref, "")]))
            term = self.consequences.of(snv).consequence
            if term in found and len(found[term]) < number:
                found[term].append(snv)
        return found

    def indels(self, length_bp: int, number: int) -> Kinds:
        """Return as many indels of a length in coding exons and between genes."""
        return {
            kind: [self._indel(kind, length_bp, is_deletion=n % 2 == 0) for n in range(number)]
            for kind in self.spans
        }

    def _indel(self, kind: str, length_bp: int, *, is_deletion: bool) -> Variant:
        place = self.draw(kind, length_bp + 2)
        anchor = self.bases[place]
        if is_deletion:
            ref = self.bases[place : place + 1 + length_bp]
            return Variant(self.contig, place, ref, anchor)
        donor = int(self.random.integers(0, len(self.bases) - length_bp))
        inserted = self.bases[donor : donor + length_bp]
        return Variant(self.contig, place, anchor, anchor + inserted)


class Read(NamedTuple):
    """Deltas by reading: each (variants, strands, offsets), nats."""

    by_reading: dict[str, Deltas]

    def deltas(self, reading: str, offsets: Sequence[int], strands: Strands) -> Deltas:
        """Return one delta a variant, the mean over offsets and strands."""
        num_strands = len(STRANDS_READ[strands])
        chosen = self.by_reading[reading][:, :num_strands][:, :, list(offsets)]
        return np.asarray(chosen.mean(axis=(1, 2)))

    def unsure(self) -> float:
        """Return the share that `CARBON_UNSURE` marks by default: a delta inside its spread."""
        by_strand = self.by_reading["aligned"][:, :, 0]
        return float((np.abs(by_strand.mean(axis=1)) < by_strand.std(axis=1)).mean())


def read(
    model: Model, reference: Reference, variants: list[Variant], options: dict[str, Any]
) -> Read:
    """Read variants in every offset and on both strands."""
    method = model.variant_method(strands="both", offsets=OFFSETS["6"], **options)
    found: dict[str, list[list[Deltas]]] = {reading: [] for reading in READINGS}
    for at in range(0, len(variants), AT_ONCE):
        block = variants[at : at + AT_ONCE]
        for score, strands in compare_block(model.runner, reference, block, method):
            for reading in READINGS:
                found[reading].append([_by_offset(strands[s], reading) for s in ("+", "-")])
            assert score.delta is not None
    return Read({reading: np.array(deltas) for reading, deltas in found.items()})


def _by_offset(compared: AlleleComparison, reading: str) -> Deltas:
    ref, alt = compared.ref.astype(np.float64), compared.alt.astype(np.float64)
    if reading == "unaligned":
        # Row f of `alt` leaves out f + d bases; all six are there, so the one that leaves out f is.
        longer_bp = compared.alt_bp - compared.ref_bp
        return np.asarray(np.roll(alt, longer_bp, axis=0).sum(axis=1) - ref.sum(axis=1))
    return ALIGNED[reading](alt - ref)


def auroc(low: Deltas, high: Deltas) -> float:
    """Return how often a delta of the first is below one of the second."""
    is_low = np.repeat([1, 0], [len(low), len(high)])
    return float(roc_auc_score(is_low, -np.concatenate([low, high])))


def pairs_of(found: Mapping[str, Mapping[str, Read]]) -> Iterator[tuple[str, list[Read], Read]]:
    """Yield what is compared: a name, what should be lower, and what it is held against."""
    in_frame = [found[f"{n} bp"]["coding"] for n in IN_OFFSET_BP if f"{n} bp" in found]
    for group, reads in found.items():
        if group == "snv":
            for control in ("synonymous_variant", "intergenic_variant"):
                yield f"stop_gained / {control}", [reads["stop_gained"]], reads[control]
            continue
        yield f"{group} coding / intergenic", [reads["coding"]], reads["intergenic"]
        if int(group.split()[0]) % 3:
            yield f"{group} frameshift / in-frame", in_frame, reads["coding"]


def settings() -> Iterator[tuple[str, str, Strands]]:
    """Yield reading, offsets and strands, the cheap ones first."""
    for reading in ("unaligned", "aligned"):
        for offsets in OFFSETS:
            for strands in STRANDS:
                yield reading, offsets, strands
    for reading in READINGS[2:]:
        yield reading, "1", "both"


def table_of(found: Mapping[str, Mapping[str, Read]]) -> list[dict[str, Any]]:
    """Return a row a pair and setting: AUROC, and mean and SD of both kinds' deltas."""
    rows = []
    for name, some, other in pairs_of(found):
        if not some:
            continue
        for reading, offsets, strands in settings():
            how = reading, OFFSETS[offsets], strands
            one, two = np.concatenate([r.deltas(*how) for r in some]), other.deltas(*how)
            low, high = (two, one) if "in-frame" in name else (one, two)
            rows.append(
                {
                    "pair": name, "reading": reading, "offsets": offsets, "strands": strands,
                    "auroc": auroc(low, high), "mean": float(low.mean()), "sd": float(low.std()),
                    "control_mean": float(high.mean()), "control_sd": float(high.std()),
                }
            )  # fmt: skip
    return rows


def costs(
    model: Model, reference: Reference, kinds: Mapping[str, list[Variant]], options: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return tokens and seconds a variant, by kind, offsets and strands."""
    rows = []
    for name, variants in kinds.items():
        for offsets, chosen in OFFSETS.items():
            for strands in STRANDS:
                how = {**options, "offsets": chosen, "strands": strands}
                some = variants[:TRIED_FOR_COST]
                tokens, seconds = _cost(model, reference, some, how)
                rows.append(
                    {
                        "kind": name, "offsets": offsets, "strands": strands,
                        "tokens": tokens / len(some), "seconds": seconds / len(some),
                    }
                )  # fmt: skip
    return rows


def _cost(
    model: Model, reference: Reference, variants: list[Variant], how: dict[str, Any]
) -> tuple[int, float]:
    tokens = []
    network: Any = model.model.network
    counted = network.model.register_forward_pre_hook(
        lambda _, positional, named: tokens.append(named["input_ids"].numel()), with_kwargs=True
    )
    started = time.perf_counter()
    list(model.score_variants(reference, variants, **how))
    counted.remove()
    return sum(tokens), time.perf_counter() - started


def run(arguments: argparse.Namespace) -> None:
    """Read, print the tables and write all of it."""
    model = load(arguments.model)
    lengths_bp = [int(text) for text in arguments.lengths.split(",")]
    results: dict[str, Any] = {"settings": vars(arguments), "runs": []}
    with Reference(arguments.reference) as reference:
        places = Places(reference, arguments.annotation, arguments.contig, arguments.seed)
        groups = {"snv": places.snvs(arguments.places)}
        groups |= {f"{n} bp": places.indels(n, arguments.places) for n in lengths_bp}
        tried = {"snv": groups["snv"]["stop_gained"]}
        tried |= {f"{n} bp": groups[f"{n} bp"]["coding"] for n in lengths_bp[:1]}
        for window in arguments.windows.split(","):
            for by in arguments.by.split(","):
                options = {"window_bp": int(window) if window != "all" else None, "by": by}
                started = time.perf_counter()
                found = {
                    group: {kind: read(model, reference, v, options) for kind, v in kinds.items()}
                    for group, kinds in groups.items()
                }
                rows = table_of(found)
                cost = costs(model, reference, tried, options)
                unsure = {
                    f"{group} {kind}": each.unsure()
                    for group, kinds in found.items()
                    for kind, each in kinds.items()
                }
                results["runs"].append({**options, "rows": rows, "costs": cost, "unsure": unsure})
                print(f"\nwindow {window}, {by} ({time.perf_counter() - started:.0f} s)")
                _show(rows, cost)
                print("unsure:", ", ".join(f"{kind} {share:.2f}" for kind, share in unsure.items()))
                with atomic_file(arguments.output) as temporary:
                    temporary.write_text(json.dumps(results, indent=1), encoding="utf-8")


def _show(rows: list[dict[str, Any]], cost: list[dict[str, Any]]) -> None:
    names = list(dict.fromkeys(row["pair"] for row in rows))
    shown: list[TableRow] = [("reading", "offsets", "strands", *names)]
    for reading, offsets, strands in settings():
        same = [
            f"{row['auroc']:.3f}"
            for row in rows
            if (row["reading"], row["offsets"], row["strands"]) == (reading, offsets, strands)
        ]
        shown.append((reading, offsets, strands, *same))
    print(text_table([tuple(column) for column in zip(*shown, strict=True)]))
    print(text_table([tuple(cost[0]), *(tuple(row.values()) for row in cost)]), flush=True)


def main() -> int:
    """Run the study."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    for name in ("model", "reference", "annotation", "contig", "output"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--places", type=int, default=60, help="variants of each kind")
    parser.add_argument("--lengths", default="1,2,3,4,5,6,7,8,9,10,11,12", help="of indels, bp")
    parser.add_argument("--windows", default="1024", help="bp, or all for what the context holds")
    parser.add_argument("--by", default="chain")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    return run_command(lambda: run(arguments))


if __name__ == "__main__":
    raise SystemExit(main())
