"""A comparison as text for people."""

from collections.abc import Mapping
from typing import Any

from carbon.comparison.groups import GROUPINGS
from carbon.console import TableRow, text_table

_HEADER = (
    "alleles", "n", "Pearson", "95 %", "Spearman", "95 %", "same sign", "mean a - b", "SD"
)  # fmt: skip


def told(summary: Mapping[str, Any]) -> str:
    """Return what was compared, how far it agrees, and where it agrees least."""
    return "\n".join([*_what(summary), "", text_table(_agreement(summary)), *_top(summary)])


def _what(summary: Mapping[str, Any]) -> list[str]:
    lines = [f"{side}: {label}" for side, label in zip("ab", summary["labels"], strict=True)]
    differ = summary["settings_that_differ"]
    lines += [f"{name} of a: {a}, of b: {b}" for name, (a, b) in differ.items()]
    if not differ:
        lines.append("both by the same settings")
    for side, reasons in summary["not_scored"].items():
        if reasons:
            counts = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
            lines.append(f"not scored in {side}: {counts}")
    alone = summary["only_in_a"], summary["only_in_b"]
    if any(alone):
        lines.append(f"passed over: {alone[0]} alleles of a alone, {alone[1]} of b alone")
    return lines


def _agreement(summary: Mapping[str, Any]) -> list[TableRow]:
    rows: list[TableRow] = [_HEADER, _row("all", summary["overall"])]
    for grouping in GROUPINGS:
        rows += [_row(name, found) for name, found in summary.get(grouping, {}).items()]
    if "percentiles" in summary:
        rows.append(_row("all, percentiles", summary["percentiles"]))
    return rows


def _row(name: str, found: Mapping[str, Any]) -> TableRow:
    cells = [cell for kind in ("pearson", "spearman") for cell in _estimate(found[kind])]
    rest = [_number(found.get(k)) for k in ("same_sign", "mean_difference", "sd_difference")]
    return (name, f"{found['n']:,}", *cells, *rest)


def _estimate(found: Mapping[str, float | None]) -> tuple[str, str]:
    ends = _number(found["low"]), _number(found["high"])
    return _number(found["value"]), " to ".join(ends) if all(ends) else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _top(summary: Mapping[str, Any]) -> list[str]:
    """Return the alleles whose ranks differ most, as a table."""
    if not summary["top"]:
        return []
    named = [name for name in ("gene", "consequence") if name in summary["top"][0]]
    header = ("position", "id", "change", *named, "a", "b", "rank in a", "rank in b")
    rows: list[TableRow] = [header]
    for allele in summary["top"]:
        place = f"{allele['contig']}:{allele['position']}"
        change = f"{_short(allele['ref'])}>{_short(allele['alt'])}"
        names = (allele[name] or "" for name in named)
        ranks = (f"{allele[f'rank_{side}']:.0f}" for side in "ab")
        rows.append((place, allele["id"], change, *names, allele["a"], allele["b"], *ranks))
    return ["", f"where ranks differ most, of {summary['compared']}:", text_table(rows)]


def _short(allele: str, most: int = 12) -> str:
    return allele if len(allele) <= most else f"{allele[:most]}... ({len(allele)} bp)"
