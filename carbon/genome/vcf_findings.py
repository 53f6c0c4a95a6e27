"""The rules of VCF by name, how much each of them weighs, and what a file breaks of them.

A rule is refused where a score could stand beside the wrong bases without it: that is what CHROM,
POS, REF, ALT and the structure of the lines rest on. The others are counted, and told at the end.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from carbon.errors import GenomeError

_HINT = " (a warning without `--strict`)"


class Severity(Enum):
    """What becomes of a file that breaks a rule, unless it is held to all of them."""

    REFUSED = "refused"
    WARNED = "warned"


_REFUSED, _WARNED = Severity.REFUSED, Severity.WARNED
RULES = {
    "column_line": _REFUSED,
    "num_columns": _REFUSED,
    "chrom": _REFUSED,
    "pos": _REFUSED,
    "ref": _REFUSED,
    "alt": _REFUSED,
    # Such an allele has a reason instead of a score.
    "ambiguity_code": _WARNED,
    "fileformat": _WARNED,
    "header_line": _WARNED,
    "header_keys": _WARNED,
    "header_id": _WARNED,
    "header_number": _WARNED,
    "header_type": _WARNED,
    "header_text": _WARNED,
    "declared_twice": _WARNED,
    "reserved_key": _WARNED,
    "id": _WARNED,
    "qual": _WARNED,
    "filter": _WARNED,
    "info": _WARNED,
    "info_values": _WARNED,
    "format": _WARNED,
    "sample_values": _WARNED,
    "line_end": _WARNED,
}


class Complaint(NamedTuple):
    """A rule that is broken, a key of `RULES`, and in words how, and what to do."""

    rule: str
    text: str


@dataclass(slots=True)
class Counted:
    """How often a rule was broken.

    Attributes:
        first_line: number of the line where it was first, from 1.
        text: what was wrong there.
        times: how often.
    """

    first_line: int
    text: str
    times: int = 0


@dataclass(slots=True)
class Findings:
    """What one file breaks of the rules.

    Attributes:
        path: of the file, for the messages.
        strict: refuse whatever is broken.
        by_rule: what was met and not refused.
    """

    path: str
    strict: bool
    by_rule: dict[str, Counted] = field(default_factory=dict)

    def take(self, complaint: Complaint, line: int, where: str) -> None:
        """Count a complaint.

        Args:
            complaint: of a line.
            line: its number in the file, from 1.
            where: what the message calls it.

        Raises:
            GenomeError: the rule is one that is refused.
        """
        is_grave = RULES[complaint.rule] is Severity.REFUSED
        if self.strict or is_grave:
            raise GenomeError(f"{where}: {complaint.text}{'' if is_grave else _HINT}")
        self.by_rule.setdefault(complaint.rule, Counted(line, complaint.text)).times += 1

    def told(self) -> Iterator[str]:
        """Yield a line for each rule that was broken."""
        for rule, found in self.by_rule.items():
            times = f"{found.times:,} times, first in " if found.times > 1 else ""
            yield f"warning: {self.path}: {rule}, {times}line {found.first_line}: {found.text}"
