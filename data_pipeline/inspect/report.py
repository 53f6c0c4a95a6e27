"""A corpus in numbers: its content, the rejections, and the tokens that a training run draws.

inspect_summary   a few plain tables for the terminal
write_report      one HTML page with pictures
"""

import math
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from markupsafe import Markup

from carbon import __version__
from carbon.corpus import read_manifest
from carbon.io.config import check
from carbon.io.files import atomic_file
from carbon.progress import TableRow, text_table
from carbon.reports.render import render_page
from carbon.tokenizer import GENE_TAG_OF, SPECIES_TAG_OF
from data_pipeline.inspect.census import (
    GC_BINS,
    Counts,
    count_corpus,
    dropped_counts,
    read_dropped,
    summed,
)
from data_pipeline.inspect.charts import bar_chart, histograms
from data_pipeline.inspect.clades import clades_of
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


def write_report(corpus: str | Path, output_html: str | Path, budget_tokens: int) -> None:
    """Write the page: one file that needs no other.

    Args:
        corpus: folder of the corpus.
        output_html: file to write.
        budget_tokens: tokens that a training run draws in all, by the shares of BASE_MIXTURE of the
            sources that the corpus has, scaled to sum to one.

    Raises:
        CorpusError: the corpus does not exist, or a file of it is torn.
        ConfigError: the budget is not positive.
    """
    manifest = read_manifest(corpus)
    check(budget_tokens > 0, f"a budget of {budget_tokens} tokens: give 1 or more")
    counts = count_corpus(corpus, manifest)
    dropped, origins = dropped_counts(manifest), summed(counts, "origins")
    bars = sorted(((f"{source}: {why}", n) for source, why, n in dropped), key=lambda bar: -bar[1])
    page = render_page(
        "corpus.html",
        f"Corpus {Path(corpus).resolve().name}",
        f"Carbon {__version__}. All was counted in the records themselves, unless it says "
        "otherwise.",
        answer=_answer(manifest, counts, budget_tokens),
        bases=bar_chart([(name, splits["train"].bases) for name, splits in counts.items()]),
        held_out=", ".join(manifest["held_out"]) or "nothing",
        summary=(_summary_rows(counts), _SUMMARY_HEADER),
        inputs=(_input_rows(manifest), _INPUTS_HEADER),
        left_out=[each["error"] for each in manifest["left_out"]],
        mixture=_mixture(counts, budget_tokens),
        lengths=_lengths(counts),
        gc=_gc(counts),
        sources=tuple(counts),
        gene_types=_tags(counts, "gene_types", GENE_TAG_OF),
        species_types=_tags(counts, "species_types", SPECIES_TAG_OF),
        num_organisms=len(origins),
        organisms=[(*origin, records) for origin, records in origins.most_common(_MOST_ROWS)],
        clades=clades_of(manifest, counts),
        steps=_steps(manifest),
        dropped=dropped,
        reasons=bar_chart(bars[:_MOST_ROWS]),
        duplicates=_duplicates(manifest),
        copied=_copied(corpus),
        largest=_largest(counts),
    )
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


def _answer(manifest: dict[str, Any], counts: Counts, budget_tokens: int) -> list[str]:
    """Describe size, held-out regions and rejections."""
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
    return sentences


def _mixture(counts: Counts, budget_tokens: int) -> dict[str, Any]:
    """Return the variables of the section on the tokens that a run draws."""
    there = {source: splits["train"].tokens for source, splits in counts.items()}
    drawn = draw(there, budget_tokens, BASE_MIXTURE)
    return {
        "budget": f"{budget_tokens:,}",
        "shares": [f"{source} {weight:g}" for source, weight in BASE_MIXTURE.items()],
        "absent": [source for source in BASE_MIXTURE if not there.get(source)],
        "unused": [source for source in there if source not in {each.source for each in drawn}],
        "rows": [
            (d.source, 100 * d.share, round(d.tokens), d.tokens_there, d.epochs) for d in drawn
        ],
        "tokens": bar_chart([(d.source, round(d.tokens)) for d in drawn]),
        "epochs": bar_chart([(d.source, d.epochs) for d in drawn]),
    }


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


def _lengths(counts: Counts) -> dict[str, Markup]:
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
    return histograms(bars, edges)


def _gc(counts: Counts) -> dict[str, Markup]:
    """Draw the share of G and C of records."""
    edges = [f"{100 * i // GC_BINS} %" for i in range(GC_BINS + 1)]
    bars = {
        source: [[census.gc_bins[i] for i in range(GC_BINS)] for census in splits.values()]
        for source, splits in counts.items()
    }
    return histograms(bars, edges)


def _tags(counts: Counts, what: str, tag_of: Mapping[str, str]) -> list[TableRow]:
    """Return one row a kind: its tag, and the records of each source, in both splits."""
    found = [summed({source: splits}, what) for source, splits in counts.items()]
    kinds = sorted({kind for both in found for kind in both})
    return [(kind, tag_of.get(kind, ""), *(both[kind] for both in found)) for kind in kinds]


def _steps(manifest: dict[str, Any]) -> list[TableRow]:
    """Return one row a source: records and bases after each step."""
    rows: list[TableRow] = []
    for source in manifest["sources"]:
        cells: list[int] = []
        for step in ("cut", "filtered", "written"):  # none may have passed the filters
            count = manifest["steps"].get(step, {}).get(source, {})
            cells += [count.get("records", 0), count.get("bases", 0)]
        rows.append((source, *cells))
    return rows


def _duplicates(manifest: dict[str, Any]) -> tuple[list[TableRow], tuple[str, ...]]:
    """Return one row a source with the number of each kind of duplicate, and the header."""
    counts = manifest["dropped"]
    rows: list[TableRow] = [
        (source, *(counts.get(f"{source}:{kind}", 0) for kind in _DUPLICATES))
        for source in manifest["sources"]
    ]
    return rows, ("source", *(kind.replace("_", " ") for kind in _DUPLICATES))


def _copied(corpus: str | Path) -> list[TableRow]:
    """Return the records that stayed for the most others that went."""
    copied: Counter[tuple[str, str]] = Counter()
    for row in read_dropped(corpus):
        kind, _, stayed = row["reason"].partition(":")
        if kind in _DUPLICATES and stayed:
            copied[row["source"], stayed] += 1
    return [(*key, count) for key, count in copied.most_common(10)]


def _largest(counts: Counts) -> list[TableRow]:
    return [
        (source, split, str(-row), name if len(name) <= 50 else f"{name[:50]}...", length_bp)
        for source, splits in counts.items()
        for split, census in splits.items()
        for length_bp, row, name in census.largest
    ]
