"""Compare two scored outputs of one VCF: correlations with 95 % intervals, and differences.

Intervals are percentiles of a bootstrap over alleles (Efron 1979), which ranks each resample again.
Resamples are weights (how often each allele was drawn), so values are sorted once.
"""

import math
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from carbon.compare.scored_files import (
    GROUPINGS,
    KEY,
    Joined,
    ScoredFile,
    check_one_vcf,
    check_single,
    common_k,
    join_alleles,
    kinds_of,
    members,
    read_scored_file,
)
from carbon.errors import UserError
from carbon.genome import short
from carbon.io.files import atomic_file, behind_links, check_no_input, errors_naming
from carbon.io.tables import Columns, check_ending, chosen_by_ending
from carbon.metrics import equal_values, mid_ranks, pearson
from carbon.progress import TableRow, text_table
from carbon.reports.figures import check_picture
from carbon.uncertainty import Floats, affordable_resamples, bootstrap

MIN_FOR_CORRELATION = 3
MIN_FOR_INTERVAL = 10

Interval = dict[str, float | None]
"""`value`, `low` and `high` of a 95 % interval; None if undefined."""


def agreement(a: Floats, b: Floats) -> dict[str, Any]:
    """Return statistics of the agreement of two scores as plain values.

    Args:
        a: a score for each allele, in nats.
        b: of the same alleles.

    Returns:
        `n`; `pearson` and `spearman`, each with `value`, `low` and `high`; `same_sign`, the share
        of alleles whose scores have the same sign; mean and SD of `a - b` in nats.
    """
    differences = a - b
    return {
        "n": len(a),
        **correlations(a, b),
        "same_sign": float(np.mean(np.sign(a) == np.sign(b))) if len(a) else None,
        "mean_difference": float(differences.mean()) if len(a) else None,
        "sd_difference": float(differences.std(ddof=1)) if len(a) > 1 else None,
    }


def correlations(a: Floats, b: Floats, seed: int = 0) -> dict[str, Interval]:
    """Return the correlation of two scores (Pearson) and of their ranks (Spearman).

    Values are None for fewer than three alleles or constant scores, intervals also for fewer than
    ten alleles.
    """
    if len(a) < MIN_FOR_CORRELATION or np.ptp(a) == 0 or np.ptp(b) == 0:
        undefined: Interval = dict.fromkeys(("value", "low", "high"))
        return {"pearson": undefined, "spearman": undefined}
    groups_a, groups_b = equal_values(a), equal_values(b)
    num_resamples = affordable_resamples(len(a)) if len(a) >= MIN_FOR_INTERVAL else 0
    statistics = {
        "pearson": lambda weights: pearson(a, b, weights),
        "spearman": lambda weights: pearson(
            mid_ranks(groups_a, weights), mid_ranks(groups_b, weights), weights
        ),
    }
    result = {}
    for name, statistic in statistics.items():
        estimate = bootstrap(statistic, len(a), seed, num_resamples=num_resamples)
        ends = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
        result[name] = {end: None if math.isnan(x) else float(x) for end, x in ends.items()}
    return result


COLUMNS: Columns = {
    "contig": str, "position": int, "id": str, "ref": str, "alt": str,
    "kind": str, "gene": str, "consequence": str,
    "a": float, "b": float, "difference": float,
    "rank_a": float, "rank_b": float, "rank_difference": float,
    "percentile_a": float, "percentile_b": float,
    "percentile_of_a": str, "percentile_of_b": str,
}  # fmt: skip
"""Columns of the table: scores and their difference in nats; ranks from 1, lowest first."""

_SIDES = ("a", "b")
_OF_ONE_FILE = ("reason", "percentile", "percentile_of")


@dataclass(frozen=True, kw_only=True, slots=True)
class CompareJob:
    """Two files to compare, and the outputs to write.

    Attributes:
        a: an output of `carbon variants`.
        b: another, of the same VCF.
        labels: of the files in tables and figures; None for their names.
        output: a .tsv, .json or .parquet with a row for each allele.
        plot: a figure.
        top: number of alleles with the largest difference of ranks to report.
        common: ignore alleles that only one file has.
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
        """Labels of the files."""
        names = self.a.name, self.b.name
        return self.labels or (names if len(set(names)) == 2 else (str(self.a), str(self.b)))

    @property
    def outputs(self) -> list[Path]:
        """Files to write."""
        return [path for path in (self.output, self.plot) if path]


def run_compare_job(job: CompareJob, rows_file: Path | None = None) -> dict[str, Any]:
    """Compare two files, write the outputs and return the summary.

    Args:
        job: the files and the outputs.
        rows_file: Parquet file to write a row for each allele to as well.

    Raises:
        UserError: a file is not an output of `carbon variants`, the files are of different VCFs, or
            an output has an unknown ending.
    """
    _check(job)
    files = a, b = read_scored_file(job.a), read_scored_file(job.b)
    for scored in files:
        check_single(scored)
    joined = join_alleles(a.alleles, b.alleles)
    check_one_vcf(a, b, joined, common=job.common)
    pairs = _pairs(a.alleles, b.alleles, joined)
    scored_pairs = _ranked(pairs.dropna(subset=list(_SIDES)))
    if not len(scored_pairs):
        raise UserError(f"{job.a} and {job.b}: no allele has a score in both; nothing to compare")
    top = _most_different(scored_pairs, job.top)
    measures = _measures(scored_pairs, common_k(files))
    summary = _summary(job, files, joined, pairs) | measures | {"top": top}
    _write(job, files, scored_pairs, summary)
    if rows_file:
        _write_table(rows_file, job, files, scored_pairs)
    return summary


def _check(job: CompareJob) -> None:
    """Check the paths before reading."""
    if behind_links(job.a) == behind_links(job.b):
        raise UserError(f"{job.a} and {job.b}: are one file; give two outputs of `carbon variants`")
    if job.output:
        check_ending(job.output, "table")
    check_picture(job.plot)
    for path in job.outputs:
        check_no_input(path, job.a, job.b)


def _pairs(a: pd.DataFrame, b: pd.DataFrame, joined: Joined) -> pd.DataFrame:
    """Return the alleles of both files, in the order of the first, with the values of both.

    Genes and consequences are from the first file if it has them.
    """
    a, b = a.iloc[joined.in_a].reset_index(drop=True), b.iloc[joined.in_b].reset_index(drop=True)
    return a[list(KEY)].assign(
        kind=kinds_of(a),
        gene=a["gene"].fillna(b["gene"]),
        consequence=a["consequence"].fillna(b["consequence"]),
        a=a["delta"],
        b=b["delta"],
        **{f"{name}_a": a[name] for name in _OF_ONE_FILE},
        **{f"{name}_b": b[name] for name in _OF_ONE_FILE},
    )


def _ranked(pairs: pd.DataFrame) -> pd.DataFrame:
    """Add differences and ranks, and drop empty columns, such as genes without an annotation."""
    rank_a, rank_b = pairs["a"].rank(), pairs["b"].rank()
    pairs = pairs.assign(
        difference=pairs["a"] - pairs["b"],
        rank_a=rank_a,
        rank_b=rank_b,
        rank_difference=rank_a - rank_b,
    )
    return pairs[list(COLUMNS)].dropna(axis="columns", how="all")


def _plain_rows(pairs: pd.DataFrame) -> pd.DataFrame:
    """Return Python values, None for missing ones."""
    return pairs.astype(object).where(pairs.notna(), None)


def _most_different(pairs: pd.DataFrame, num_rows: int) -> list[dict[str, Any]]:
    """Return the rows whose ranks differ most; ranks, because scores may differ in scale."""
    order = np.argsort(-np.abs(pairs["rank_difference"].to_numpy()), kind="stable")
    rows: list[dict[str, Any]] = _plain_rows(pairs.iloc[order[:num_rows]]).to_dict("records")
    return rows


def _summary(
    job: CompareJob, files: tuple[ScoredFile, ScoredFile], joined: Joined, pairs: pd.DataFrame
) -> dict[str, Any]:
    """Return the files, differences of their settings, and numbers of alleles."""
    a, b = (scored.settings for scored in files)
    names = [*a, *(name for name in b if name not in a)]
    return {
        "a": str(job.a),
        "b": str(job.b),
        "labels": list(job.shown_labels),
        "settings": {name: a[name] for name in a if name in b and a[name] == b[name]},
        "settings_that_differ": {
            name: [a.get(name), b.get(name)] for name in names if a.get(name) != b.get(name)
        },
        "compared": int(pairs[list(_SIDES)].notna().all(axis=1).sum()),
        "only_in_a": len(joined.only_in_a),
        "only_in_b": len(joined.only_in_b),
        "not_scored": {side: _reasons(pairs, side) for side in _SIDES},
    }


def _reasons(pairs: pd.DataFrame, side: str) -> dict[str, int]:
    """Count the reasons of alleles without a score in one file."""
    reasons = pairs.loc[pairs[side].isna(), f"reason_{side}"].fillna("no reason")
    counts: dict[str, int] = reasons.value_counts().sort_index().to_dict()
    return counts


def _measures(pairs: pd.DataFrame, k: int) -> dict[str, Any]:
    """Return the agreement of all alleles and of each group."""
    a, b = pairs["a"].to_numpy(), pairs["b"].to_numpy()
    measures: dict[str, Any] = {"overall": agreement(a, b)}
    if {"percentile_a", "percentile_b"} <= set(pairs.columns):
        both = pairs[["percentile_a", "percentile_b"]].dropna().to_numpy()
        measures["percentiles"] = {"n": len(both), **correlations(*both.T)}
    for grouping, labels_of in GROUPINGS.items():
        if grouping != "by_consequence" or "consequence" in pairs.columns:
            groups = members(labels_of(pairs, k))
            measures[grouping] = {name: agreement(a[g], b[g]) for name, g in groups.items()}
    return measures


def _write(
    job: CompareJob,
    files: tuple[ScoredFile, ScoredFile],
    pairs: pd.DataFrame,
    summary: Mapping[str, Any],
) -> None:
    with ExitStack() as opened:
        temporary = {path: opened.enter_context(atomic_file(path)) for path in job.outputs}
        if job.output:
            with errors_naming(job.output):
                _write_table(temporary[job.output], job, files, pairs)
        if job.plot:
            from carbon.compare.figure import draw_comparison

            with errors_naming(job.plot):
                draw_comparison(pairs, summary, temporary[job.plot])


def _write_table(
    path: Path, job: CompareJob, files: tuple[ScoredFile, ScoredFile], pairs: pd.DataFrame
) -> None:
    settings = {
        "labels": list(job.shown_labels),
        "settings_a": files[0].settings,
        "settings_b": files[1].settings,
        "difference": "a - b, nats; ranks from 1, the lowest delta first",
    }
    columns = {name: COLUMNS[name] for name in pairs.columns}
    with chosen_by_ending(path, "table")(path, columns, settings) as write:
        for row in _plain_rows(pairs).itertuples(index=False, name=None):
            write(row)


_HEADER = (
    "alleles", "n", "Pearson", "95 %", "Spearman", "95 %", "same sign", "mean a - b", "SD"
)  # fmt: skip


def summary_text(summary: Mapping[str, Any]) -> str:
    """Return the summary as tables for people."""
    return "\n".join([*_inputs(summary), "", text_table(_agreement(summary)), *_top(summary)])


def _inputs(summary: Mapping[str, Any]) -> list[str]:
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
        lines.append(f"ignored: {alone[0]} alleles of a alone, {alone[1]} of b alone")
    return lines


def _agreement(summary: Mapping[str, Any]) -> list[TableRow]:
    rows: list[TableRow] = [_HEADER, _row("all", summary["overall"])]
    for grouping in GROUPINGS:
        rows += [_row(name, measures) for name, measures in summary.get(grouping, {}).items()]
    if "percentiles" in summary:
        rows.append(_row("all, percentiles", summary["percentiles"]))
    return rows


def _row(name: str, measures: Mapping[str, Any]) -> TableRow:
    cells = [cell for name in ("pearson", "spearman") for cell in _interval(measures[name])]
    rest = [_number(measures.get(k)) for k in ("same_sign", "mean_difference", "sd_difference")]
    return (name, f"{measures['n']:,}", *cells, *rest)


def _interval(interval: Interval) -> tuple[str, str]:
    ends = _number(interval["low"]), _number(interval["high"])
    return _number(interval["value"]), " to ".join(ends) if all(ends) else ""


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def _top(summary: Mapping[str, Any]) -> list[str]:
    """Return a table of the alleles whose ranks differ most."""
    if not summary["top"]:
        return []
    named = [name for name in ("gene", "consequence") if name in summary["top"][0]]
    header = ("position", "id", "change", *named, "a", "b", "rank in a", "rank in b")
    rows: list[TableRow] = [header]
    for allele in summary["top"]:
        place = f"{allele['contig']}:{allele['position']}"
        change = f"{short(allele['ref'])}>{short(allele['alt'])}"
        names = (allele[name] or "" for name in named)
        ranks = (f"{allele[f'rank_{side}']:.0f}" for side in "ab")
        rows.append((place, allele["id"], change, *names, allele["a"], allele["b"], *ranks))
    return ["", f"where ranks differ most, of {summary['compared']}:", text_table(rows)]
