"""How far two scores of the same alleles agree, with 95 % intervals.

Intervals are percentiles of a bootstrap (Efron 1979) that draws alleles with replacement and ranks
each draw anew. What a draw is, is written as weights: how often it has each allele. So values are
sorted once.
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyarrow import compute

from carbon.compare.scored_files import (
    GROUPINGS,
    KEY,
    Joined,
    ScoredFile,
    check_one_vcf,
    check_single,
    join_alleles,
    kinds_of,
    members,
    read_scored_file,
)
from carbon.errors import UserError
from carbon.io.files import atomic_file, behind_links, check_no_input, errors_naming
from carbon.io.tables import Columns, check_ending, chosen_by_ending
from carbon.metrics import equal_values, mid_ranks, pearson
from carbon.progress import TableRow, text_table
from carbon.reports.figures import check_picture
from carbon.uncertainty import Floats, affordable_resamples, resamples

LEAST_FOR_CORRELATION = 3
LEAST_FOR_INTERVAL = 10


class Estimate(NamedTuple):
    """A value and its 95 % interval; None where there are too few alleles, or they are all one."""

    value: float | None
    low: float | None
    high: float | None


def agreement(a: Floats, b: Floats) -> dict[str, Any]:
    """Return how far two scores agree, by names and plain values.

    Args:
        a: a score an allele, in nats.
        b: of the same alleles.

    Returns:
        `n`; `pearson` and `spearman`, each a `value` with `low` and `high`; `same_sign`, the share
        of alleles whose scores are of one sign; mean and SD of `a - b` in nats.
    """
    differences = a - b
    return {
        "n": len(a),
        **{name: found._asdict() for name, found in correlations(a, b).items()},
        "same_sign": float(np.mean(np.sign(a) == np.sign(b))) if len(a) else None,
        "mean_difference": float(differences.mean()) if len(a) else None,
        "sd_difference": float(differences.std(ddof=1)) if len(a) > 1 else None,
    }


def correlations(a: Floats, b: Floats, seed: int = 0) -> dict[str, Estimate]:
    """Return the correlation of two scores (Pearson) and of their ranks (Spearman)."""
    if len(a) < LEAST_FOR_CORRELATION or np.ptp(a) == 0 or np.ptp(b) == 0:
        return dict.fromkeys(("pearson", "spearman"), Estimate(None, None, None))
    groups_a, groups_b = equal_values(a), equal_values(b)

    def both(weights: Floats) -> tuple[float, float]:
        of_ranks = mid_ranks(groups_a, weights), mid_ranks(groups_b, weights)
        return pearson(a, b, weights), pearson(*of_ranks, weights)

    values = both(np.ones(len(a)))
    ends = np.full((2, 2), np.nan)
    if len(a) >= LEAST_FOR_INTERVAL:
        drawn = resamples(len(a), seed, num_resamples=affordable_resamples(len(a)))
        draws = [both(weights) for weights in drawn]
        ends = np.nanpercentile(draws, [2.5, 97.5], axis=0)
    found = np.vstack([values, ends]).T
    estimates = [Estimate(*(None if np.isnan(x) else float(x) for x in row)) for row in found]
    return dict(zip(("pearson", "spearman"), estimates, strict=True))


COLUMNS: Columns = {
    "contig": str, "position": int, "id": str, "ref": str, "alt": str,
    "kind": str, "gene": str, "consequence": str,
    "a": float, "b": float, "difference": float,
    "rank_a": float, "rank_b": float, "rank_difference": float,
    "percentile_a": float, "percentile_b": float,
    "percentile_of_a": str, "percentile_of_b": str,
}  # fmt: skip
"""Of a table of compared alleles; scores and their difference in nats, ranks from 1, the lowest."""

_SIDES = ("a", "b")
_IF_KNOWN = (
    *("gene", "consequence", "percentile_a", "percentile_b"),
    *("percentile_of_a", "percentile_of_b"),
)
_ROWS_AT_ONCE = 65_536


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareJob:
    """What to compare, and what to write of it.

    Attributes:
        a: an output of `carbon variants`.
        b: another, of the same VCF.
        labels: what tables and pictures call them; their names, if none are given.
        output: a .tsv, .json or .parquet with a row an allele.
        plot: a picture.
        top: how many of the alleles with the largest difference of ranks are told.
        common: pass over alleles that one file alone has.
    """

    a: Path
    b: Path
    labels: tuple[str, str] | None = None
    output: Path | None = None
    plot: Path | None = None
    top: int = 20
    common: bool = False

    @property
    def shown_labels(self) -> tuple[str, str]:
        """What the files are called."""
        names = self.a.name, self.b.name
        return self.labels or (names if len(set(names)) == 2 else (str(self.a), str(self.b)))

    @property
    def wanted(self) -> list[Path]:
        """All that is to be written."""
        return [path for path in (self.output, self.plot) if path]


def run_compare_job(job: CompareJob) -> dict[str, Any]:
    """Compare two files; what is asked for is written when it is whole. Return the summary.

    Raises:
        UserError: a file is not of `carbon variants`, the two are not of one VCF, or an ending is
            not possible.
    """
    _check(job)
    files = read_scored_file(job.a), read_scored_file(job.b)
    for scored in files:
        check_single(scored)
    joined = join_alleles(*(scored.alleles for scored in files))
    check_one_vcf(*files, joined, common=job.common)
    pairs = _pairs(*files, joined)
    scored_pairs = _ranked(pairs.filter(compute.and_(pairs["a"].is_valid(), pairs["b"].is_valid())))
    if not len(scored_pairs):
        raise UserError(f"{job.a} and {job.b}: no allele has a score in both; nothing to compare")
    top = _most_different(scored_pairs, job.top)
    summary = _summary(job, files, joined, pairs) | _measures(scored_pairs) | {"top": top}
    _write(job, files, scored_pairs, summary)
    return summary


def _check(job: CompareJob) -> None:
    """Raise UserError if the names alone show that something cannot be."""
    if behind_links(job.a) == behind_links(job.b):
        raise UserError(f"{job.a} and {job.b}: are one file; give two outputs of `carbon variants`")
    if job.output:
        check_ending(job.output, "table")
    check_picture(job.plot)
    for path in job.wanted:
        check_no_input(path, job.a, job.b)


def _pairs(a: ScoredFile, b: ScoredFile, joined: Joined) -> pa.Table:
    """Return the alleles of both files, in the order of the first, with the values of both.

    Genes and consequences are those of the first file where it has them.
    """
    of_a, of_b = a.alleles.take(joined.in_a), b.alleles.take(joined.in_b)
    columns = {name: of_a[name] for name in KEY}
    columns["kind"] = pa.array(kinds_of(of_a), pa.string())
    for name in ("gene", "consequence"):
        columns[name] = compute.coalesce(of_a[name], of_b[name])
    for side, alleles in zip(_SIDES, (of_a, of_b), strict=True):
        columns[side] = alleles["delta"]
        columns[f"reason_{side}"] = alleles["reason"]
        columns[f"percentile_{side}"] = alleles["percentile"]
        columns[f"percentile_of_{side}"] = alleles["percentile_of"]
    return pa.table(columns)


def _ranked(pairs: pa.Table) -> pa.Table:
    """Add differences and ranks, and leave out columns that are empty."""
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    rank_a, rank_b = (mid_ranks(equal_values(values)) for values in (a, b))
    added = {"difference": a - b, "rank_a": rank_a, "rank_b": rank_b}
    added["rank_difference"] = rank_a - rank_b
    for name, values in added.items():
        pairs = pairs.append_column(name, pa.array(values))
    empty = {name for name in _IF_KNOWN if pairs[name].null_count == len(pairs)}
    return pairs.select([name for name in COLUMNS if name not in empty])


def _most_different(pairs: pa.Table, num_rows: int) -> list[dict[str, Any]]:
    """Return the rows whose ranks differ most, for the scales of two scores may differ."""
    order = np.argsort(-np.abs(pairs["rank_difference"].to_numpy()), kind="stable")
    found: list[dict[str, Any]] = pairs.take(order[:num_rows]).to_pylist()
    return found


def _summary(
    job: CompareJob, files: tuple[ScoredFile, ScoredFile], joined: Joined, pairs: pa.Table
) -> dict[str, Any]:
    """Return which files, what differs between their settings, and how many alleles there are."""
    a, b = (scored.settings for scored in files)
    names = [*a, *(name for name in b if name not in a)]
    is_scored = compute.and_(pairs["a"].is_valid(), pairs["b"].is_valid())
    return {
        "a": str(job.a),
        "b": str(job.b),
        "labels": list(job.shown_labels),
        "settings": {name: a[name] for name in a if name in b and a[name] == b[name]},
        "settings_that_differ": {
            name: [a.get(name), b.get(name)] for name in names if a.get(name) != b.get(name)
        },
        "compared": int(compute.sum(is_scored).as_py() or 0),
        "only_in_a": len(joined.only_in_a),
        "only_in_b": len(joined.only_in_b),
        "not_scored": {side: _reasons(pairs, side) for side in _SIDES},
    }


def _reasons(pairs: pa.Table, side: str) -> dict[str, int]:
    """Count why alleles of both files have no score in one."""
    missing = pairs.filter(pairs[side].is_null())
    counted = compute.value_counts(compute.fill_null(missing[f"reason_{side}"], "no reason"))
    return {item["values"]: item["counts"] for item in sorted(counted.to_pylist(), key=str)}


def _measures(pairs: pa.Table) -> dict[str, Any]:
    """Return how far the scores agree, over all and by group."""
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    found: dict[str, Any] = {"overall": agreement(a, b)}
    if {"percentile_a", "percentile_b"} <= set(pairs.column_names):
        found["percentiles"] = _of_percentiles(pairs)
    for grouping, labels_of in GROUPINGS.items():
        if grouping != "by_consequence" or "consequence" in pairs.column_names:
            groups = members(labels_of(pairs))
            found[grouping] = {name: agreement(a[g], b[g]) for name, g in groups.items()}
    return found


def _of_percentiles(pairs: pa.Table) -> dict[str, Any]:
    """Return how far percentiles agree, which can be compared over models and kinds of variants."""
    both = pairs.select(["percentile_a", "percentile_b"]).drop_null()
    a, b = (both[name].to_numpy() for name in both.column_names)
    return {"n": len(a), **{name: each._asdict() for name, each in correlations(a, b).items()}}


def _write(
    job: CompareJob,
    files: tuple[ScoredFile, ScoredFile],
    pairs: pa.Table,
    summary: Mapping[str, Any],
) -> None:
    with ExitStack() as opened:
        temporary = {path: opened.enter_context(atomic_file(path)) for path in job.wanted}
        if job.output:
            with errors_naming(job.output):
                _write_table(temporary[job.output], job, files, pairs)
        if job.plot:
            from carbon.compare.figure import draw_comparison

            with errors_naming(job.plot):
                draw_comparison(pairs, summary, temporary[job.plot])


def _write_table(
    path: Path, job: CompareJob, files: tuple[ScoredFile, ScoredFile], pairs: pa.Table
) -> None:
    settings = {
        "labels": list(job.shown_labels),
        "settings_a": files[0].settings,
        "settings_b": files[1].settings,
        "difference": "a - b, nats; ranks from 1, the lowest delta first",
    }
    columns = {name: COLUMNS[name] for name in pairs.column_names}
    writer = chosen_by_ending(path, "table")
    with writer(path, columns, settings) as write:
        for batch in pairs.to_batches(max_chunksize=_ROWS_AT_ONCE):
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                write(row)


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
