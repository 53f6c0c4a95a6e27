"""A corpus in numbers: its content, the rejections, and the tokens that a training run draws.

inspect_summary   a few plain tables for the terminal
write_report      one HTML page with pictures
"""

import html
import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from carbon import __version__
from carbon.corpus import read_manifest
from carbon.io.config import check
from carbon.io.files import atomic_file
from carbon.progress import TableRow, text_table
from carbon.reports.render import (
    html_answer,
    html_figure,
    html_grid,
    html_page,
    html_section,
    html_table,
)
from carbon.tokenizer import GENE_TAG_OF, SPECIES_TAG_OF
from data_pipeline.inspect.census import GC_BINS, Counts, count_corpus, dropped_counts, read_dropped
from data_pipeline.inspect.charts import bar_chart, histograms
from data_pipeline.inspect.clades import clades_section
from data_pipeline.sources import SOURCES

BASE_MIXTURE = {name: each.base_share for name, each in SOURCES.items() if each.base_share}
_SUMMARY_HEADER = (
    "source", "split", "records", "bases", "tokens", "median bp", "longest bp",
    "GC %", "N %", "masked %",
)  # fmt: skip
_INPUTS_HEADER = ("input", "organism", "accession", "licence", "file", "sha256")
_BINS_A_DECADE = 10
_DUPLICATES = ("duplicate_sequence", "near_duplicate", "equals_held_out_record",
               "nearly_equals_held_out_record")  # fmt: skip
_MOST_ROWS = 40
_COLOURS = (
    " <b style='color: var(--blue)'>Blue</b> is to train on, "
    "<b style='color: var(--orange)'>orange</b>, on top of it, is held "
    "out; point at a bar to read its numbers."
)


def inspect_summary(corpus: str | Path) -> None:
    """Print sources, held-out regions, rejections and inputs, as plain text.

    Raises:
        CorpusError: the corpus does not exist, or a file of it cannot be read.
    """
    manifest = read_manifest(corpus)
    print(text_table([_SUMMARY_HEADER, *_summary_rows(count_corpus(corpus, manifest))]))
    print(f"\nheld out: {', '.join(manifest['held_out']) or 'nothing'}\n")
    print(text_table([("source", "reason", "dropped"), *dropped_counts(manifest)]))
    print(f"\n{text_table([_INPUTS_HEADER, *_input_rows(manifest)])}")
    for each in manifest["left_out"]:
        print(f"left out: {each['error']}")


def write_report(
    corpus: str | Path,
    output_html: str | Path,
    budget_tokens: int,
    weights: Mapping[str, float] | None = None,
) -> None:
    """Write the page: one file that needs no other.

    Args:
        corpus: folder of the corpus.
        output_html: file to write.
        budget_tokens: tokens that a training run draws in all.
        weights: shares of these tokens by source, scaled to sum to one; if not given, the shares of
            BASE_MIXTURE of the sources that the corpus has.

    Raises:
        CorpusError: the corpus does not exist, or a file of it is torn.
        ConfigError: the budget or a weight does not fit.
    """
    manifest = read_manifest(corpus)
    _check_mixture(manifest["sources"], budget_tokens, weights or {})
    counts = count_corpus(corpus, manifest)
    sections = [
        _answer(manifest, counts, budget_tokens),
        _summary(manifest, counts),
        _mixture(counts, budget_tokens, weights),
        _lengths(counts),
        _gc(counts),
        _tags(counts),
        _organisms(counts),
        clades_section(manifest, counts),
        _steps(manifest),
        _dropped(manifest),
        _duplicates(corpus, manifest),
        _largest(counts),
    ]
    small = (
        f"Carbon {__version__}. All was counted in the records themselves, unless it says "
        "otherwise."
    )
    page = html_page(f"Corpus {Path(corpus).resolve().name}", small, *sections)
    with atomic_file(output_html) as temporary:
        temporary.write_text(page, encoding="utf-8")


class Drawn(NamedTuple):
    """Tokens that a run draws from one source: `epochs` times the tokens of the source."""

    source: str
    share: float
    tokens: float
    tokens_there: int
    epochs: float


def draw(
    tokens_there: Mapping[str, int], budget_tokens: int, weights: Mapping[str, float]
) -> list[Drawn]:
    """Divide a budget of tokens by weight among the sources that have any tokens.

    >>> [each.epochs for each in draw({"mrna": 50, "promoter": 9}, 200, {"mrna": 0.2})]
    [4.0]
    """
    found = {source: weight for source, weight in weights.items() if tokens_there.get(source)}
    shares = {source: weight / sum(found.values()) for source, weight in found.items()}
    return [
        Drawn(source, share, share * budget_tokens, there, share * budget_tokens / there)
        for source, share in shares.items()
        for there in (tokens_there[source],)
    ]


def _check_mixture(
    sources: dict[str, Any], budget_tokens: int, weights: Mapping[str, float]
) -> None:
    check(budget_tokens > 0, f"a budget of {budget_tokens} tokens: give 1 or more")
    known = [source for source, splits in sources.items() if splits["train"]["records"]]
    for source, weight in weights.items():
        names = ", ".join(known) or "nothing"
        check(source in known, f"weight of '{source}': the corpus has {names} to train on")
        check(weight > 0, f"weight of '{source}' = {weight}: give more than 0")


def _answer(manifest: dict[str, Any], counts: Counts, budget_tokens: int) -> str:
    """Describe size, held-out regions and rejections, and draw the bases of each source."""
    every = [census for splits in counts.values() for census in splits.values()]
    train = [splits["train"] for splits in counts.values()]
    held_out = ", ".join(manifest["held_out"]) or "nothing"
    bases = sum(census.bases for census in every)
    train_bases = sum(census.bases for census in train)
    dropped = Counter[str]()
    for _, reason, number in dropped_counts(manifest):
        dropped[reason] += number
    sentences = [
        f"{sum(census.lengths_bp.total() for census in every):,} records of {bases:,} bases from "
        f"{len(manifest['inputs']):,} input{'s' * (len(manifest['inputs']) != 1)}.",
        f"Held out: {held_out}, {(bases - train_bases) / max(bases, 1):.1%} of the bases.",
        f"A run of {budget_tokens:,} tokens equals "
        f"{budget_tokens / max(sum(census.tokens for census in train), 1):,.2f} readings of the "
        "rest.",
    ]
    if dropped:
        reason, number = dropped.most_common(1)[0]
        sentences.append(
            f"Dropped: {dropped.total():,} records; the most common reason is "
            f"{reason.replace('_', ' ')} ({number:,})."
        )
    bars = [(name, splits["train"].bases) for name, splits in counts.items()]
    return html_answer(sentences) + html_figure(bar_chart(bars), "Bases to train on, by source.")


def _mixture(counts: Counts, budget_tokens: int, weights: Mapping[str, float] | None) -> str:
    there = {source: splits["train"].tokens for source, splits in counts.items()}
    wanted = weights or BASE_MIXTURE
    drawn = draw(there, budget_tokens, wanted)
    absent = ", ".join(source for source in wanted if not there.get(source))
    unused = ", ".join(source for source in there if source not in {each.source for each in drawn})
    text = (
        f"A run of {budget_tokens:,} tokens with the shares "
        + ("given: " if weights else "of the base mixture: ")
        + ", ".join(f"{source} {weight:g}" for source, weight in wanted.items())
        + (f"; the corpus has no {absent}" if absent else "")
        + "; scaled to sum to 1. "
        + (f"Nothing is drawn from {unused}. " if unused else "")
        + "A token is six bases; an epoch is one reading of all that a source has to train on."
    )
    rows = [(d.source, 100 * d.share, round(d.tokens), d.tokens_there, d.epochs) for d in drawn]
    header = ("source", "share %", "tokens drawn", "tokens there are", "epochs")
    pictures = (
        html_figure(
            bar_chart([(r[0], r[2]) for r in rows]), "Tokens that the run draws of each source."
        ),
        html_figure(
            bar_chart([(r[0], r[4]) for r in rows]), "How often the run reads each source: epochs."
        ),
    )
    return html_section("Mixture", text, html_table(rows, header), html_grid(pictures))


def _summary_rows(counts: Counts) -> list[TableRow]:
    """Return one row a source and split, for _SUMMARY_HEADER."""
    rows: list[TableRow] = []
    for source, splits in counts.items():
        for split, census in splits.items():
            lengths_bp = census.lengths_bp
            sizes = lengths_bp.total(), census.bases, census.tokens
            longest_bp = max(lengths_bp, default=0)
            rows.append((source, split, *sizes, census.median_bp, longest_bp, *census.percents))
    return rows


def _input_rows(manifest: dict[str, Any]) -> list[TableRow]:
    """Return one row a file that went in, for _INPUTS_HEADER."""
    rows: list[TableRow] = []
    for each in manifest["inputs"]:
        origin = [each["recipe"].get(key, "") for key in ("organism", "accession", "licence")]
        for file in each["files"]:
            rows.append((each["title"], *origin, Path(file["path"]).name, file["sha256"][:12]))
    return rows


def _summary(manifest: dict[str, Any], counts: Counts) -> str:
    held_out = html.escape(", ".join(manifest["held_out"]) or "nothing")
    left_out = [f"<p>Left out: {html.escape(each['error'])}</p>" for each in manifest["left_out"]]
    return html_section(
        "In short",
        f"Held out: {held_out}. GC is the share of G and C among ACGT, N that of bases that are "
        "none of ACGT, masked that of lower-case bases; a token is six bases.",
        html_table(_summary_rows(counts), _SUMMARY_HEADER),
        html_table(_input_rows(manifest), _INPUTS_HEADER),
        *left_out,
    )


def _lengths(counts: Counts) -> str:
    """Draw how long records are, all sources on one axis of equal steps of the logarithm."""
    binned: dict[str, list[Counter[int]]] = {}
    for source, splits in counts.items():
        binned[source] = [Counter(), Counter()]
        for bins, census in zip(binned[source], splits.values(), strict=True):
            for length_bp, records in census.lengths_bp.items():
                bins[math.floor(_BINS_A_DECADE * math.log10(length_bp))] += records
    seen = [place for pair in binned.values() for bins in pair for place in bins] or [0]
    decades = range(min(seen) // _BINS_A_DECADE, max(seen) // _BINS_A_DECADE + 2)
    first, last = decades[0] * _BINS_A_DECADE, decades[-1] * _BINS_A_DECADE
    edges = [f"{math.ceil(10 ** (i / _BINS_A_DECADE)):,}" for i in range(first, last + 1)]
    bars = {
        source: [[bins[i] for i in range(first, last)] for bins in pair]
        for source, pair in binned.items()
    }
    text = "How long the records of each source are, in bases, on a logarithmic axis."
    return html_section("Lengths", text + _COLOURS, histograms("length in bases", bars, edges))


def _gc(counts: Counts) -> str:
    edges = [f"{100 * i // GC_BINS} %" for i in range(GC_BINS + 1)]
    bars = {
        source: [[census.gc_bins[i] for i in range(GC_BINS)] for census in splits.values()]
        for source, splits in counts.items()
    }
    text = "How much G and C the records of each source have among their known bases."
    return html_section("GC", text + _COLOURS, histograms("share of G and C", bars, edges))


def _tags(counts: Counts) -> str:
    def of_kinds(what: str, tag_of: dict[str, str]) -> str:
        found: list[Counter[str]] = [Counter() for _ in counts]
        for both, splits in zip(found, counts.values(), strict=True):
            for census in splits.values():
                both.update(getattr(census, what))
        kinds = sorted({kind for both in found for kind in both})
        rows: list[TableRow] = [
            (kind, tag_of.get(kind, ""), *(both[kind] for both in found)) for kind in kinds
        ]
        return html_table(rows, (what.replace("_", " "), "tag", *counts))

    return html_section(
        "Tags",
        "Records of each gene type and species type, in both splits, and the tag that it becomes.",
        of_kinds("gene_types", GENE_TAG_OF),
        of_kinds("species_types", SPECIES_TAG_OF),
    )


def _organisms(counts: Counts) -> str:
    found: Counter[tuple[str, str]] = Counter()
    for splits in counts.values():
        for census in splits.values():
            found.update(census.origins)
    rows = [(*origin, records) for origin, records in found.most_common(_MOST_ROWS)]
    text = f"Records by assembly and organism, of all sources; {len(found):,} in all."
    return html_section("Organisms", text, html_table(rows, ("assembly", "organism", "records")))


def _steps(manifest: dict[str, Any]) -> str:
    rows: list[TableRow] = []
    for source in manifest["sources"]:
        cells: list[int] = []
        for step in ("cut", "filtered", "written"):  # none may have passed the filters
            count = manifest["steps"].get(step, {}).get(source, {})
            cells += [count.get("records", 0), count.get("bases", 0)]
        rows.append((source, *cells))
    header = ("source", "cut", "bases", "passed filters", "bases", "written", "bases")
    return html_section(
        "Steps",
        "From the manifest: records that were cut out of the inputs, those that passed the filters "
        "on single records, and those written when copies were gone. What lies partly in a "
        "held-out region or touches an evaluation is not among the first.",
        html_table(rows, header),
    )


def _dropped(manifest: dict[str, Any]) -> str:
    rows = dropped_counts(manifest)
    bars = sorted(((f"{source}: {why}", n) for source, why, n in rows), key=lambda bar: -bar[1])
    return html_section(
        "Dropped",
        "From the manifest: what did not become a record, and why; dropped.tsv has each by name.",
        html_table(rows, ("source", "reason", "dropped")),
        html_figure(bar_chart(bars[:_MOST_ROWS]), "Reasons to drop a record, most frequent first."),
    )


def _duplicates(corpus: str | Path, manifest: dict[str, Any]) -> str:
    counts = manifest["dropped"]
    rows = [
        (source, *(counts.get(f"{source}:{kind}", 0) for kind in _DUPLICATES))
        for source in manifest["sources"]
    ]
    copied: Counter[tuple[str, str]] = Counter()
    for row in read_dropped(corpus):
        kind, _, stayed = row["reason"].partition(":")
        if kind in _DUPLICATES and stayed:
            copied[row["source"], stayed] += 1
    most = [(*key, count) for key, count in copied.most_common(10)]
    return html_section(
        "Duplicates",
        "Records that went because an equal or nearly equal one stayed, and those that stayed for "
        "the most others.",
        html_table(rows, ("source", *(kind.replace("_", " ") for kind in _DUPLICATES))),
        html_table(most, ("source", "stayed", "nearly equal ones that went")),
    )


def _largest(counts: Counts) -> str:
    rows = [
        (source, split, str(-row), name if len(name) <= 50 else f"{name[:50]}...", length_bp)
        for source, splits in counts.items()
        for split, census in splits.items()
        for length_bp, row, name in census.largest
    ]
    header = ("source", "split", "row", "name", "bases")
    return html_section("Largest", "The longest records of each split.", html_table(rows, header))
