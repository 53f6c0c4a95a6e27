"""Homologous sequences: pairs by MMseqs2 or shared k-mers, clusters, and leaks between splits."""

import shutil
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.finetune.config import SPLITS, HomologyName
from carbon.finetune.split import Examples
from carbon.genome import reverse_complement
from carbon.genome.kmers import UInt64s, canonical_kmers
from carbon.parallel.options import num_cores

Indices = NDArray[np.int64]
Flags = NDArray[np.bool_]

KMER_BP, SAMPLED_KMER_BP = 12, 24
"""Length of shared k-mers; the longer one where a sample of them is compared."""
_MOST_KMERS = 20_000_000  # in memory; of more, a sample by hash
_MOST_OWNERS = 200  # sequences with one k-mer that others are compared with
_LEAST_SHARED = 8  # k-mers, so that two sequences never match by chance
_LEAST_BP = KMER_BP + _LEAST_SHARED - 1
_ROWS_AT_ONCE = 512
_LEAST_COVERAGE = 0.5  # of the shorter sequence, in an alignment of MMseqs2
_MOST_HITS = 1000  # candidates of a sequence, which MMseqs2 aligns
_MANY_HITS = _MOST_HITS // 2  # alignments from which further candidates may be left out


def canonical(sequence: str) -> str:
    """Return the smaller of a sequence and its reverse complement, in upper case."""
    sequence = sequence.upper()
    return min(sequence, reverse_complement(sequence))


@dataclass(frozen=True, kw_only=True, eq=False)
class Homology:
    """Pairs of homologous sequences.

    Not all pairs of a large family are computed. Its sequences count as homologous to their whole
    cluster.

    Attributes:
        method: key of `HOMOLOGIES`, but not `auto`.
        identity: share of equal bases from which sequences count as homologous.
        whole: (sequences,) number of each among the distinct sequences; a sequence and its reverse
            complement are equal.
        pairs: (pairs, 2) numbers of distinct sequences that are homologous.
        is_incomplete: (distinct sequences,) whether pairs of a sequence may be absent.
    """

    method: HomologyName
    identity: float
    whole: Indices
    pairs: Indices
    is_incomplete: Flags

    @property
    def text(self) -> str:
        """The method and the identity."""
        name = {"mmseqs2": "MMseqs2", "kmers": "shared k-mers"}[self.method]
        return f"{100 * self.identity:g} % identity ({name})"

    def equal_and_near(self, selected: Flags, others: Flags) -> tuple[Flags, Flags]:
        """Return which selected sequences equal one of `others`, and which others are homologous.

        Args:
            selected: (sequences,).
            others: (sequences,).
        """
        present = np.zeros(len(self.is_incomplete), dtype=bool)
        present[self.whole[others]] = True
        has_homologue = np.zeros_like(present)
        for one, other in (self.pairs.T, self.pairs.T[::-1]):
            has_homologue[one[present[other]]] = True
        clusters = self._clusters
        of_incomplete, of_present = np.zeros((2, len(present)), dtype=bool)
        of_incomplete[clusters[self.is_incomplete]] = True
        of_present[clusters[present]] = True
        has_homologue |= (of_incomplete & of_present)[clusters]
        equal = selected & present[self.whole]
        return equal, selected & has_homologue[self.whole] & ~equal

    def clusters(self, names: Sequence[str]) -> list[str]:
        """Return the cluster of each sequence: the first of the names in it.

        Sequences of a cluster are linked by homologous pairs; no pair lies in two clusters.
        """
        first: dict[int, str] = {}
        cluster_of = self._clusters[self.whole].tolist()
        for name, cluster in zip(names, cluster_of, strict=True):
            first[cluster] = min(name, first.get(cluster, name))
        return [first[cluster] for cluster in cluster_of]

    @cached_property
    def _clusters(self) -> Indices:
        """Number of each distinct sequence's cluster."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import connected_components

        size = len(self.is_incomplete)
        links = np.ones(len(self.pairs), dtype=bool), tuple(self.pairs.T)
        _, labels = connected_components(coo_array(links, shape=(size, size)), directed=False)
        clusters: Indices = labels.astype(np.int64)
        return clusters


class Pairs(NamedTuple):
    """Homologous pairs of distinct sequences; the attributes are those of `Homology`."""

    pairs: Indices
    is_incomplete: Flags


def find_homology(sequences: Sequence[str], method: HomologyName, identity: float) -> Homology:
    """Return the homologous pairs of sequences, on either strand.

    Args:
        sequences: upper-case IUPAC letters.
        method: key of `HOMOLOGIES`.
        identity: share of equal bases from which sequences count as homologous.

    Raises:
        UserError: scipy is not installed; MMseqs2 is requested, and is not installed or fails.
    """
    if find_spec("scipy") is None:
        raise UserError("scipy is not installed; run: pip install 'carbon-dna[finetune]'")
    if method == "auto":
        method = "mmseqs2" if has_mmseqs() else "kmers"
    forms, whole = np.unique(
        np.asarray([canonical(each) for each in sequences], dtype=object), return_inverse=True
    )
    pairs, is_incomplete = PAIRS[method](forms.tolist(), identity)
    return Homology(
        method=method, identity=identity, whole=whole, pairs=pairs, is_incomplete=is_incomplete
    )


def _unique_pairs(one: Indices, other: Indices) -> Indices:
    """Return (pairs, 2), each pair once and its lower number first."""
    ordered = np.stack([np.minimum(one, other), np.maximum(one, other)], axis=1)
    return np.unique(ordered.astype(np.int64).reshape(-1, 2), axis=0)


def kmer_pairs(forms: Sequence[str], identity: float) -> Pairs:
    """Return the pairs that share at least identity^k of the shorter sequence's distinct k-mers.

    A k-mer survives substitutions at a rate of 1 - identity with probability identity^k (Mash
    containment; Ondov et al. 2019). Above 20 million bases, a sample of 24-mers is compared.
    Pairs of a sequence are incomplete if the k-mers that `_shared` leaves out suffice for a pair.

    Args:
        forms: distinct sequences.
        identity: share of equal bases.
    """
    num_bases = sum(map(len, forms))
    scale = 1 + num_bases // _MOST_KMERS
    k = KMER_BP if scale == 1 else SAMPLED_KMER_BP
    kmers = [_sampled(np.unique(canonical_kmers(form, k)), scale) for form in forms]
    sizes = np.array([len(each) for each in kmers], dtype=np.int64)
    least = np.maximum(identity**k * sizes, _LEAST_SHARED / scale)
    num_left_out, products = _shared(kmers, sizes)
    blocks = [(np.zeros(0, dtype=np.int64),) * 2]
    for one, other, num_shared in products:
        is_near = (one != other) & (num_shared >= np.minimum(least[one], least[other]))
        blocks.append((one[is_near], other[is_near]))
    one, other = (np.concatenate(each) for each in zip(*blocks, strict=True))
    return Pairs(_unique_pairs(one, other), num_left_out >= least)


def _sampled(kmers: UInt64s, scale: int) -> UInt64s:
    """Return the k-mers with one remainder of their hash, the same in every sequence."""
    if scale == 1:
        return kmers
    mixed = kmers * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32)
    sampled: UInt64s = kmers[mixed % np.uint64(scale) == 0]
    return sampled


def _shared(
    kmers: Sequence[UInt64s], sizes: Indices
) -> tuple[Indices, Iterator[tuple[Indices, Indices, NDArray[Any]]]]:
    """Count the k-mers that two sequences share.

    They are counts of a sparse product. Of a k-mer in many sequences, such as of a repeat, only the
    first ones are compared with the others.

    Returns:
        For each sequence, the k-mers whose first sequences do not include it; and an iterator of
        the numbers of two sequences, with the k-mers that they share.
    """
    owners = np.repeat(np.arange(len(kmers)), sizes)
    joined = np.concatenate([np.zeros(0, dtype=np.uint64), *kmers])
    _, columns, counts = np.unique(joined, return_inverse=True, return_counts=True)
    is_shared = counts[columns] > 1
    owners, columns = owners[is_shared], columns[is_shared]
    order = np.argsort(columns, kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order)) - np.searchsorted(columns[order], columns[order])
    is_first = place < _MOST_OWNERS
    num_left_out = np.bincount(owners[~is_first], minlength=len(kmers))
    return num_left_out, _products(owners, columns, is_first, (len(kmers), len(counts)))


def _products(
    owners: Indices, columns: Indices, is_first: Flags, shape: tuple[int, int]
) -> Iterator[tuple[Indices, Indices, NDArray[Any]]]:
    from scipy.sparse import csr_array

    def table(which: Flags) -> Any:
        ones = np.ones(int(which.sum()), dtype=np.int32)
        return csr_array((ones, (owners[which], columns[which])), shape=shape)

    rows, firsts = table(np.ones_like(is_first)), table(is_first).T.tocsr()
    for start in range(0, shape[0], _ROWS_AT_ONCE):
        product = (rows[start : start + _ROWS_AT_ONCE] @ firsts).tocoo()
        yield product.row.astype(np.int64) + start, product.col.astype(np.int64), product.data


def has_mmseqs() -> bool:
    """Return whether MMseqs2 is installed."""
    return shutil.which("mmseqs") is not None


def mmseqs_pairs(forms: Sequence[str], identity: float) -> Pairs:
    """Return the pairs that MMseqs2 aligns over half of the shorter sequence (Steinegger 2017).

    Sequences under 19 bases take no part, as in `kmer_pairs`: MMseqs2 fails if all are too short.
    It aligns at most 1,000 candidates of a sequence. Pairs are incomplete from 500 alignments on.

    Args:
        forms: distinct sequences.
        identity: share of equal bases of an alignment.

    Raises:
        UserError: MMseqs2 is not installed, or fails.
    """
    if not has_mmseqs():
        raise UserError(
            "data.homology = 'mmseqs2': mmseqs is not installed; install MMseqs2, or set 'kmers'"
        )
    records = [
        f">{number}\n{form}\n" for number, form in enumerate(forms) if len(form) >= _LEAST_BP
    ]
    if not records:
        return Pairs(np.zeros((0, 2), dtype=np.int64), np.zeros(len(forms), dtype=bool))
    with TemporaryDirectory() as folder:
        fasta, hits = Path(folder, "sequences.fa"), Path(folder, "hits.tsv")
        fasta.write_text("".join(records), encoding="ascii")
        words = ["mmseqs", "easy-search", fasta, fasta, hits, Path(folder, "work")]
        options = {
            "--search-type": 3,  # nucleotides
            "--strand": 2,  # both
            "-k": KMER_BP,  # the default of 15 takes 8 GB
            "--min-seq-id": identity,
            "--max-seqs": _MOST_HITS,
            "--format-output": "query,target,alnlen,qlen,tlen",
            "--threads": num_cores(),
            "-v": 1,
        }
        words += [str(word) for pair in options.items() for word in pair]
        run = subprocess.run([*map(str, words)], capture_output=True, text=True, check=False)
        if run.returncode:
            reason = (run.stderr or run.stdout).strip().splitlines()[-1:] or [str(run.returncode)]
            raise UserError(f"mmseqs: {reason[0]}; set data.homology = 'kmers'")
        table = np.loadtxt(hits, dtype=np.int64, ndmin=2, usecols=range(5)).reshape(-1, 5)
    one, other, aligned_bp, one_bp, other_bp = table.T
    is_long = aligned_bp >= _LEAST_COVERAGE * np.minimum(one_bp, other_bp)
    is_near = is_long & (one != other)
    num_hits = np.bincount(one, minlength=len(forms))
    return Pairs(_unique_pairs(one[is_near], other[is_near]), num_hits >= _MANY_HITS)


PAIRS: dict[HomologyName, Callable[[Sequence[str], float], Pairs]] = {
    "mmseqs2": mmseqs_pairs,
    "kmers": kmer_pairs,
}
"""The function of each of `HOMOLOGIES` but `auto`."""


class Leak(NamedTuple):
    """Examples of one split that also occur in other splits.

    Each example counts once, however many splits have it.

    Attributes:
        split: whose examples are counted.
        num_equal: examples that another split has, on either strand.
        num_near: further examples with a homologous sequence in another split.
        of: number of examples in the split.
        by_split: for each other split with any, the number that it has by itself.
        example: the name of one of them.
        method: key of `HOMOLOGIES`.
        identity: share of equal bases from which sequences count as homologous.
    """

    split: str
    num_equal: int
    num_near: int
    of: int
    by_split: dict[str, int]
    example: str
    method: str
    identity: float

    def to_text(self) -> str:
        """Return a sentence."""
        where = "".join(f"{number} in {other}, " for other, number in self.by_split.items())
        return (
            f"{self.num_equal + self.num_near} of {self.of} sequences of {self.split} also occur "
            f"in another split ({self.num_equal} equal, {self.num_near} nearly; {where}such as "
            f"'{self.example}')."
        )


def find_leaks(examples: Examples, homology: Homology) -> list[Leak]:
    """Return the leaks of each split, test first."""
    members = _members(examples)
    leaks = []
    for split in reversed(SPLITS):
        others = {other: members[other] for other in SPLITS if other != split}
        equal, near = homology.equal_and_near(
            members[split], np.logical_or.reduce([*others.values()])
        )
        if (either := np.flatnonzero(equal | near)).size:
            num_in = {
                other: int(np.logical_or(*homology.equal_and_near(members[split], flags)).sum())
                for other, flags in others.items()
            }
            leaks.append(
                Leak(
                    split=split,
                    num_equal=int(equal.sum()),
                    num_near=int(near.sum()),
                    of=int(members[split].sum()),
                    by_split={other: number for other, number in num_in.items() if number},
                    example=min(examples.names[i] for i in either),
                    method=homology.method,
                    identity=homology.identity,
                )
            )
    return leaks


def _members(examples: Examples) -> dict[str, Flags]:
    splits = np.asarray(examples.splits, dtype=str)
    return {split: splits == split for split in SPLITS}


class LeakResult(NamedTuple):
    """Examples after a leak rule.

    Attributes:
        examples: the remaining examples.
        notes: sentences for the report.
        leaks: leaks that remain.
    """

    examples: Examples
    notes: list[str]
    leaks: list[Leak]


def _report(examples: Examples, homology: Homology) -> LeakResult:
    leaks = find_leaks(examples, homology)
    num_test = sum(leak.num_equal + leak.num_near for leak in leaks if leak.split == "test")
    num_all = sum(split == "test" for split in examples.splits)
    first = f"Leaks at {homology.text}: {num_test} of {num_all} test sequences."
    notes = [first, *(leak.to_text() for leak in leaks)]
    if num_incomplete := int(homology.is_incomplete[homology.whole].sum()):
        notes.append(
            f"{num_incomplete} sequences have too many homologous ones to compute all pairs: they "
            "count as homologous to their whole cluster."
        )
    return LeakResult(examples, notes, leaks)


def _refuse(examples: Examples, homology: Homology) -> LeakResult:
    result = _report(examples, homology)
    if result.leaks:
        raise UserError(
            f"data: {' '.join(result.notes[:2])} Split by group or homology, or set data.leaks = "
            '"drop" or "report"'
        )
    return result


def _drop(examples: Examples, homology: Homology) -> LeakResult:
    """Remove from train what occurs in validation or test, and from validation what occurs in test.

    Homology is computed again for the remaining sequences, until nothing more is removed: without
    the removed ones, further pairs of a large family may be computed.
    """
    before = Counter(examples.splits)
    while (is_gone := _leaking(examples, homology)).any():
        examples = examples.subset(np.flatnonzero(~is_gone))
        homology = find_homology(examples.sequences, homology.method, homology.identity)
    num_removed = before - Counter(examples.splits)
    notes = [
        f"{num_removed[split]} of {before[split]} sequences of {split} also occur in another split "
        f"at {homology.text}, and are removed."
        for split in SPLITS
        if num_removed[split]
    ]
    result = _report(examples, homology)
    return result._replace(notes=[*notes, *result.notes])


def _leaking(examples: Examples, homology: Homology) -> Flags:
    """Return which examples of train occur in validation or test, or of validation in test."""
    members = _members(examples)
    is_test, is_validation = members["test"], members["validation"]
    is_gone = np.logical_or(*homology.equal_and_near(members["train"], is_test | is_validation))
    is_gone |= np.logical_or(*homology.equal_and_near(is_validation, is_test))
    return is_gone


LEAK_RULES: dict[str, Callable[[Examples, Homology], LeakResult]] = {
    "report": _report,
    "refuse": _refuse,
    "drop": _drop,
}
"""The function of each of `LEAKS`."""
