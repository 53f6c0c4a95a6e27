"""Are the records of a VCF those of the reference? Told in one line before anything is scored."""

from collections import Counter
from pathlib import Path

from carbon.genome import Interval, Reference, VcfRow, short

_SHOWN = 3
_LOOKED_AT = 1000  # for a shift of the positions
# A larger share of records where the reference has N is told: a caller finds next to none there.
_MANY_UNKNOWN = 0.01
_TOLD = {
    "ref_mismatch": "{of_all} REF alleles are not what {fasta} has: {some}{shift}",
    "ref_past_end": "{of_all} REF alleles are not on their contigs: {some}",
    "contig_unknown": "{of_all} records are on other contigs: {missing}",
    "reference_unknown": "{of_all} REF alleles stand where {fasta} has N: {some}",
}


class Agreement:
    """How many records disagree with the reference, by reason, and the first of each.

    Attributes:
        num_records: that were added.
    """

    def __init__(self, path: Path, reference: Reference) -> None:
        """Begin with no record of the VCF `path`."""
        self.num_records = 0
        self._path, self._reference = path, reference
        self._counts: Counter[str] = Counter()
        self._first: dict[str, list[VcfRow]] = {reason: [] for reason in _TOLD}
        self._missing: dict[str, None] = {}  # contigs, in the order they come

    def add(self, row: VcfRow) -> None:
        """Count the next record."""
        self.num_records += 1
        if row.disagreement is None:
            return
        reason = row.disagreement.reason
        self._counts[reason] += 1
        if len(self._first[reason]) < _LOOKED_AT:
            self._first[reason].append(row)
        if reason == "contig_unknown" and len(self._missing) <= _SHOWN:
            self._missing[row.columns[0]] = None

    @property
    def has_contradictions(self) -> bool:
        """Whether a REF cannot stand in the reference."""
        return self._counts.total() > self._counts["reference_unknown"]

    @property
    def has_others(self) -> bool:
        """Whether some record does not disagree."""
        return self._counts.total() < self.num_records

    @property
    def is_doubtful(self) -> bool:
        """Whether the reference may be another, of what was read."""
        many = _MANY_UNKNOWN * self.num_records
        return self.has_contradictions or self._counts["reference_unknown"] > many

    def told(self) -> str:
        """Return one line that says what disagrees, and what that may come from."""
        parts = [self._told(reason) for reason in _TOLD if self._counts[reason]]
        question = "; is it the assembly that the variants were called on?"
        # What is said of missing contigs asks already, or says what to do.
        asks = set(+self._counts) != {"contig_unknown"}
        return f"{self._path}: {'; '.join(parts)}{question if asks else ''}"

    def _told(self, reason: str) -> str:
        first = self._first[reason]
        return _TOLD[reason].format(
            of_all=f"{self._counts[reason]:,} of {self.num_records:,}",
            fasta=self._reference.path,
            some="; ".join(map(self._shown, first[:_SHOWN])),
            shift=_shift(self._reference, first),
            missing=self._reference.explain_missing(self._missing),
        )

    def _shown(self, row: VcfRow) -> str:
        contig, position, _, ref = row.columns[:4]
        where, found = f"record {row.number} ({contig}:{position})", row.disagreement
        if found and found.there:
            return f"{where} says {short(ref)}, there is {short(found.there)}"
        return f"{where}: {self._reference.explain(found, row.contig, ref)}" if found else where


def _shift(reference: Reference, rows: list[VcfRow]) -> str:
    """Say so if the positions are off by one: if nearly all REF stand one base beside."""
    for step, way in ((1, "after"), (-1, "before")):
        agree = 0
        for row in rows:
            contig, ref = row.contig, row.columns[3].upper()
            start = int(row.columns[1]) - 1 + step
            length_bp = reference.contig_lengths_bp.get(contig, -1)
            if start >= 0 and start + len(ref) <= length_bp:
                there = reference.fetch(Interval(contig, start, start + len(ref)))
                agree += there.upper() == ref
        if agree > 0.9 * len(rows) and len(rows) > 2:
            return f"; {agree:,} of them stand one base {way}: are the positions off by one?"
    return ""
