"""Tokens and the distribution over the next one: as JSON values, as tables and as figures."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from carbon.design.benchmark_functions import CHANCE_NATS
from carbon.genome.alphabet import reverse_complement
from carbon.genome.interval import Strand
from carbon.inference.next_token import NextToken, all_kmers, kmer_index, near_misses
from carbon.tokenizer import BASES, K
from carbon.tokenizer.dna import Encoding, encode
from carbon.tokenizer.kmer import known_bases
from carbon.tokenizer.vocabulary import HYBRID, NATIVE
from demo.figures import BASE_COLORS, BLUE, GREY, ORANGE, SEQUENTIAL, Figure, figure
from demo.markup import part, table

_STRANDS: tuple[tuple[str, Strand], ...] = (("forward strand", "+"), ("reverse strand", "-"))
_COLUMNS = ("bases", "token", "known", "native id", "hybrid id")


def strand_readings(bases: str) -> list[dict[str, Any]]:
    """Return the tokens of DNA on each strand, in both vocabularies.

    Returns:
        For each strand `name` and `tokens`, each with `token`, `bases` (first and last, 1-based;
        empty for a prefix), `known` (six digits, 1 for a real and known base), `native id` and
        `hybrid id`.
    """
    return [{"name": name, "tokens": _tokens(bases, strand)} for name, strand in _STRANDS]


def _tokens(bases: str, strand: Strand) -> list[dict[str, Any]]:
    native, hybrid = (encode(bases, each, strand=strand) for each in (NATIVE, HYBRID))
    places = list(_places(bases, native))
    known = ["".join(map(str, bits)) for bits in known_bases(native.known).astype(int).tolist()]
    rows = zip(places, known, native.ids.tolist(), hybrid.ids.tolist(), strict=True)
    return [
        dict(zip(_COLUMNS, (span, letters, span and digits, *ids), strict=True))
        for (span, letters), digits, *ids in rows
    ]


def kmer_values(token: NextToken, kmer: str, fixed: str, most: int) -> dict[str, Any]:
    """Return expected bases, with and without fixed bases, and the losses of near misses.

    Args:
        token: the distribution.
        kmer: the true 6-mer.
        fixed: six letters, `.` for a free position.
        most: number of the likeliest 6-mers to list.

    Raises:
        UserError: `kmer` or `fixed` is not a 6-mer.
    """
    conditional, true = token.given(fixed), kmer_index(kmer)
    kmers = (all_kmers()[true], *near_misses(kmer))
    losses = {"cross_entropy_nats": token.cross_entropy_nats, "fns_nats": token.fns_nats}
    return {
        "context": token.context,
        "kmer": kmers[0],
        "fixed": conditional.fixed,
        "rank": int((token.probabilities > token.probabilities[true]).sum()) + 1,
        "probabilities": token.probabilities.tolist(),
        "marginals": token.marginals.tolist(),
        "conditional_probabilities": conditional.probabilities.tolist(),
        "conditional_marginals": conditional.marginals.tolist(),
        "top": [{"kmer": each, "probability": p} for each, p in conditional.ranked()[:most]],
        "losses": [
            {"kmer": each, **{name: float(nats[kmer_index(each)]) for name, nats in losses.items()}}
            for each in kmers
        ],
    }


def tokens_view(bases: str, readings: Sequence[Mapping[str, Any]]) -> str:
    """Return a sequence as tokens at six phases, and readings in tables that open."""
    lines = [(bases[:phase], _phase_line(bases, phase)) for phase in range(min(K, len(bases)))]
    tables = [Markup(_table(reading)) for reading in readings]
    return part("tokens", len(bases), lines, tables)


def _phase_line(bases: str, phase: int) -> list[tuple[str, str]]:
    """Return the shade and letters of each token: two shades alternate, the last is marked."""
    starts = range(phase, len(bases), K)
    shades = [
        "asked" if start + K == len(bases) else ("odd", "even")[number % 2]
        for number, start in enumerate(starts)
    ]
    return [(shade, bases[at : at + K]) for shade, at in zip(shades, starts, strict=True)]


def _table(reading: Mapping[str, Any]) -> str:
    """Return the tokens as a table, without columns that are empty for this reading."""
    tokens = reading["tokens"]
    columns = {name: [str(token[name]) for token in tokens] for name in _COLUMNS}
    filled = {name: cells for name, cells in columns.items() if any(cells)}
    return table(tuple(filled), zip(*filled.values(), strict=True), reading["name"])


def _places(bases: str, encoding: Encoding) -> Iterator[tuple[str, str]]:
    """Yield the 1-based span of each token, and its letters as typed."""
    for number, (start, end) in enumerate(encoding.offsets_bp.tolist()):
        if number < encoding.num_prefix:
            yield "", "<dna>"
            continue
        letters = bases[start:end]
        yield (
            f"{start + 1}-{end}",
            letters if encoding.strand == "+" else reverse_complement(letters),
        )


_SHOWN_BASES = "ACGT"
_HALF = 64
_BLOCK = 16  # cells in a block of the map: 6-mers that share the first base of a half


def kmer_map(probabilities: NDArray[Any], true: str, best: str) -> Figure:
    """Return the 4,096 probabilities as 64 rows (first three bases) of 64 (last three)."""
    kmers = np.array(all_kmers()).reshape(_HALF, _HALF)
    shown = [[float(np.log10(p)) if p > 0 else None for p in row]
             for row in probabilities.reshape(_HALF, _HALF)]  # fmt: skip
    centres = [_BLOCK * n + (_BLOCK - 1) / 2 for n in range(4)]
    axis = {"tickvals": centres, "showgrid": False, "zeroline": False, "mirror": True,
            "showline": True, "fixedrange": True, "range": [-0.5, _HALF - 0.5],
            "constrain": "domain"}  # fmt: skip
    return figure(
        [
            {"type": "heatmap", "z": shown, "customdata": kmers.tolist(),
             "colorscale": SEQUENTIAL,
             "hovertemplate": "%{customdata}<br>10^%{z:.2f}<extra></extra>",
             "colorbar": {"title": {"text": "log10 p"}, "thickness": 12, "orientation": "h",
                          "y": -0.14, "yanchor": "top"}},
            _mark("true 6-mer", true, "circle-open"),
            _mark("likeliest", best, "diamond-open"),
        ],
        height=600,
        xaxis={**axis, "ticktext": [f"{b}··" for b in BASES], "title": {"text": "bases 4 to 6"}},
        yaxis={**axis, "ticktext": [f"{b}··" for b in BASES], "title": {"text": "bases 1 to 3"},
               "range": [_HALF - 0.5, -0.5], "scaleanchor": "x"},
        shapes=[line for n in (1, 2, 3) for line in _lines(_BLOCK * n - 0.5)],
    )  # fmt: skip


def _mark(name: str, kmer: str, symbol: str) -> dict[str, Any]:
    high, low = divmod(kmer_index(kmer), _HALF)
    return {
        "type": "scatter", "mode": "markers", "name": f"{name} {kmer}", "x": [low], "y": [high],
        "hoverinfo": "name", "customdata": [kmer],
        "marker": {"symbol": symbol, "size": 14, "color": ORANGE, "line": {"width": 3}},
    }  # fmt: skip


def _lines(at: float) -> list[dict[str, Any]]:
    """Return lines where the first base of the 6-mers, or of their second halves, changes."""
    style = {"type": "line", "line": {"color": GREY, "width": 1}}
    across = {"x0": -0.5, "x1": _HALF - 0.5, "y0": at, "y1": at}
    down = {"y0": -0.5, "y1": _HALF - 0.5, "x0": at, "x1": at}
    return [{**style, **across}, {**style, **down}]


def marginal_bars(
    free: Sequence[Sequence[float]], conditional: Sequence[Sequence[float]], true: str, fixed: str
) -> Figure:
    """Return the six marginals: bars given the fixed bases, lines for the free marginals.

    Args:
        free: (6, 4), bases in the order ATCG.
        conditional: (6, 4), with bases fixed.
        true: the true 6-mer, whose bases are marked.
        fixed: six letters, `.` where free.
    """
    cells = [(place, base) for place in range(K) for base in _SHOWN_BASES]
    names = [_place_name(place, fixed) for place, _ in cells]
    x = [names, [base for _, base in cells]]
    before = [free[place][BASES.index(base)] for place, base in cells]
    after = [conditional[place][BASES.index(base)] for place, base in cells]
    top = max(0.5, *before, *after)
    picks = [[place, base] for place, base in cells]
    traces: list[dict[str, Any]] = [
        {"type": "bar", "name": f"given {fixed}", "x": x, "y": after, "customdata": picks,
         "marker": {"color": [BASE_COLORS[base] for _, base in cells]}, "showlegend": False,
         "hovertemplate": "%{x}: %{y:.4f}<extra></extra>"},
        {"type": "scatter", "mode": "markers", "name": f"true base ({true})",
         "x": [[_place_name(place, fixed) for place in range(K)], list(true)],
         "y": [1.06 * top] * K, "hoverinfo": "skip",
         "marker": {"symbol": "triangle-down", "size": 9, "color": ORANGE}},
    ]  # fmt: skip
    if before != after:
        traces.append({
            "type": "scatter", "mode": "markers", "name": "nothing fixed", "x": x, "y": before,
            "customdata": picks, "hovertemplate": "nothing fixed: %{y:.4f}<extra></extra>",
            "marker": {"symbol": "line-ew", "size": 8, "line": {"color": GREY, "width": 3}},
        })  # fmt: skip
    return figure(
        traces,
        height=320,
        hovermode="x",
        bargap=0.15,
        xaxis={"title": {"text": "place in the 6-mer, and base"}, "fixedrange": True,
               "tickfont": {"size": 10}, "tickangle": 0, "dtick": 1},
        yaxis={"title": {"text": "probability"}, "range": [0, 1.12 * top], "fixedrange": True},
    )  # fmt: skip


def _place_name(place: int, fixed: str) -> str:
    return f"{place + 1}" if fixed[place] == "." else f"{place + 1}={fixed[place]}"


def loss_bars(losses: Sequence[dict[str, Any]]) -> Figure:
    """Return both losses of 6-mers, the first the true one, in nats per base.

    Args:
        losses: each with `kmer`, `cross_entropy_nats` of the token and `fns_nats`.
    """
    true = losses[0]["kmer"]
    kmers = [loss["kmer"] for loss in losses]
    names = [_with_change(kmer, true) for kmer in kmers]
    by_token = [loss["cross_entropy_nats"] / K for loss in losses]
    by_base = [loss["fns_nats"] for loss in losses]
    joined_x = [x for pair in zip(by_token, by_base, strict=True) for x in (*pair, None)]
    joined_y = [y for name in names for y in (name, name, None)]
    return figure(
        [
            {"type": "scatter", "mode": "lines", "x": joined_x, "y": joined_y, "hoverinfo": "skip",
             "line": {"color": GREY, "width": 2}, "showlegend": False},
            _losses("cross-entropy / 6", names, by_token, kmers, GREY, "circle"),
            _losses("FNS", names, by_base, kmers, BLUE, "diamond"),
        ],
        height=560,
        xaxis={"title": {"text": "nats per base"}},
        yaxis={"type": "category", "autorange": "reversed", "fixedrange": True,
               "tickfont": {"family": "ui-monospace, monospace"}, "dtick": 1},
        shapes=[{"type": "line", "x0": CHANCE_NATS, "x1": CHANCE_NATS, "yref": "paper", "y0": 0,
                 "y1": 1, "line": {"color": GREY, "width": 1, "dash": "dot"}}],
        annotations=[{"x": CHANCE_NATS, "yref": "paper", "y": 0, "text": "chance",
                      "showarrow": False, "xanchor": "left", "yanchor": "bottom"}],
    )  # fmt: skip


def _losses(
    name: str, names: list[str], nats: list[float], kmers: list[str], color: str, symbol: str
) -> dict[str, Any]:
    return {
        "type": "scatter", "mode": "markers", "name": name, "x": nats, "y": names,
        "customdata": kmers, "marker": {"color": color, "symbol": symbol, "size": 10},
        "hovertemplate": f"%{{customdata}}: %{{x:.4f}}<extra>{name}</extra>",
    }  # fmt: skip


def _with_change(kmer: str, true: str) -> str:
    """Return a 6-mer with the base that differs from the true 6-mer in bold."""
    pairs = zip(kmer, true, strict=True)
    changed = "".join(base if base == was else f"<b>{base}</b>" for base, was in pairs)
    return f"{changed} true" if kmer == true else changed
