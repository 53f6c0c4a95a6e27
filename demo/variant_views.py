"""Views of variant scores: facts, figures, tables and downloads."""

from typing import Any

from carbon.genome import Interval, Variant
from carbon.genome.genome import Genome
from demo import figures as f
from demo.markup import download, facts, paragraph, table, tsv
from demo.panel import Result
from demo.sequence_pairs import in_words, named

_BASES = "ACGT"
_NUMBERS = ("delta", "forward", "reverse", "spread")
_STRAND_COLORS = {"forward": f.BLUE, "reverse": f.ORANGE}
_MOST_LETTERED_BP = 90  # longest window whose cells have room for a letter
_LEAST_SCALE_NATS = 0.1
_FEW = 60  # most SNVs of a consequence that are drawn as single points
_ROW_PIXELS = 46


def facts_of(protocol: str, result: Result) -> str:
    """Return the score in numbers, with the parts that add up to it."""
    pairs = [
        ("variant", named(result["variant"])),
        *[("scored as", named(result[k])) for k in ["scored_as"] if result[k] != result["variant"]],
        ("delta", f"{result['delta']:+.4f} nats"), *_spread(result),
        ("protocol", f"{protocol}, {result['read_bp']:,} bp"),
    ]  # fmt: skip
    pairs += [
        (e["gene"], f"{e['term'].replace('_', ' ')} {e['change']}") for e in result["effects"]
    ]
    rows = [
        (name, part["delta"], part["allele_delta"], sum(part["downstream_deltas"], 0.0),
         part["length_delta"])
        for name, part in result["strands"].items()
    ]  # fmt: skip
    header = ("strand", "delta", "alleles", "behind", "end")
    told = (
        "Each strand's delta in nats is the sum of three parts: that of the alleles, of the bases "
        "behind them, and of the window's end, which only the shorter allele reaches."
    )
    said = in_words(result["delta"], result["unsure"])
    return (
        paragraph(f"To the model, {said}.") + facts(pairs) + paragraph(told) + table(header, rows)
    )


def _spread(result: Result) -> list[tuple[str, str]]:
    """Return how far the strands disagree, if both were read."""
    if result["spread"] is None:
        return []
    told = "; they disagree about the sign, so read the delta as 0" if result["unsure"] else ""
    return [("spread of the strands", f"{result['spread']:.4f} nats{told}")]


def effect_map(genome: Genome, window: Interval, result: Result) -> f.Figure:
    """Return the bases downstream of the variant, the heat map of the window, and exons below."""
    variant = Variant.parse(result["scored_as"])
    traces = [
        trace
        for name, part in result["strands"].items()
        for trace in _strand_traces(name, part, variant)
    ]
    traces.append(_heat(window, result))
    genes = genome.genes_in(window)
    traces += f.gene_traces(genes, window, "y2")
    first, last = variant.position + 0.5, variant.interval.end + 0.5
    return f.figure(
        traces,
        height=620,
        barmode="overlay",
        bargap=0,
        xaxis={"title": {"text": f"position on {f.plain(window.contig)}"}, "tickformat": ",d",
               "range": [window.start + 0.5, window.end + 0.5], "anchor": "y2"},
        yaxis={"domain": [0.64, 1], "title": {"text": "delta of a base"}},
        yaxis2=f.gene_axis((0, 0.13), len(genes)),
        yaxis3={"domain": [0.2, 0.56], "title": {"text": "ALT"}, "fixedrange": True,
                "type": "category", "autorange": "reversed"},
        shapes=[{"type": "rect", "x0": first, "x1": last, "y0": 0.2, "y1": 1, "yref": "paper",
                 "line": {"color": f.PURPLE, "width": 2}}],
    )  # fmt: skip


def standing(snvs: Result | None) -> str:
    """Return a sentence on the rank of the variant among the SNVs of its consequence."""
    own = snvs and snvs["this"]
    if not snvs or not own:
        return ""
    like, there = (snvs[name][own["consequence"]] for name in ("deltas", "all"))
    lower = round(own["share_below"] * len(like))
    drawn = "" if len(like) == there else f" {len(like)} drawn from"
    return paragraph(
        f"Among{drawn} all {there:,} SNVs of {snvs['region']} of its consequence "
        f"({_worded(own['consequence'])}), {lower:,} are less likely than this one. In the figure "
        f"each is read in {snvs['window_bp']:,} bases, where this one has a delta of "
        f"{own['delta']:+.2f} nats."
    )


def snv_strip(snvs: Result | None) -> f.Figure | None:
    """Return the SNVs of the region in one row per consequence, with this variant marked."""
    if not snvs:
        return None
    deltas, own = snvs["deltas"], snvs["this"]
    rows = {
        term: f"{_worded(term)}<br>{len(some):,} of {snvs['all'][term]:,}"
        for term, some in deltas.items()
    }
    traces: list[dict[str, Any]] = [
        {"type": "violin", "orientation": "h", "side": "positive", "width": 1.7, "name": rows[term],
         "x": [round(delta, 3) for delta in some], "spanmode": "hard", "showlegend": False,
         "points": "all" if len(some) <= _FEW else False, "pointpos": 0.15, "jitter": 0.3,
         "line": {"color": f.BLUE, "width": 1}, "marker": {"color": f.BLUE, "size": 4},
         "meanline": {"visible": True}, "hoveron": "points", "hoverinfo": "x"}
        for term, some in deltas.items()
    ]  # fmt: skip
    shapes = []
    if own:
        traces.append({
            "type": "scatter", "mode": "markers", "name": "this variant", "x": [own["delta"]],
            "y": [rows[own["consequence"]]], "showlegend": True,
            "marker": {"color": f.ORANGE, "size": 13, "symbol": "diamond"},
            "hovertemplate": "this variant: %{x:.3f}<extra></extra>",
        })  # fmt: skip
        shapes.append({"type": "line", "x0": own["delta"], "x1": own["delta"], "yref": "paper",
                       "y0": 0, "y1": 1, "line": {"color": f.ORANGE, "dash": "dot"}})  # fmt: skip
    title = {"text": "delta of an SNV, in nats"}
    return f.figure(
        traces,
        height=110 + _ROW_PIXELS * len(rows),
        xaxis={"title": title, "fixedrange": True},
        yaxis={"autorange": "reversed", "fixedrange": True, "type": "category"},
        shapes=shapes,
    )


def _worded(term: str) -> str:
    return term.removesuffix("_variant").replace("_", " ")


def vcf_table(result: Result) -> str:
    """Return the variants of a VCF, if any, with their scores or the reason for a missing score."""
    rows: list[Result] | None = result.get("vcf")
    if rows is None:
        return ""
    caption = f"{len(rows):,} variants of your VCF"
    if result["vcf_has_more"]:
        caption = f"The first {len(rows):,} variants of your VCF; the command line scores all"
    shown = (
        (named(row["variant"]), *(_cell(row[name]) for name in _NUMBERS),
         "yes" if row["unsure"] else "", (row["reason"] or "").replace("_", " "))
        for row in rows
    )  # fmt: skip
    return table(("variant", *_NUMBERS, "unsure", "why not scored"), shown, caption)


def downloads(window: Interval, result: Result) -> str:
    """Return links that save the values of the heat map, the downstream bases and the VCF."""
    variant = Variant.parse(result["scored_as"])
    snvs = (
        (window.contig, position, ref, alt, delta)
        for position, ref, row in zip(
            f.positions(window), result["bases"], result["deltas"], strict=True
        )
        for alt, delta in zip(_BASES, row, strict=True)
        if ref != alt
    )
    behind = (
        (name, position, delta)
        for name, part in result["strands"].items()
        for position, delta in zip(_behind(name, variant), part["downstream_deltas"], strict=False)
    )
    saved = download("window.tsv", tsv(("contig", "position", "ref", "alt", "delta"), snvs))
    saved += download("behind.tsv", tsv(("strand", "position", "delta"), behind))
    if "vcf" in result:
        names = ("variant", *_NUMBERS, "unsure", "reason")
        rows = ([row[name] for name in names] for row in result["vcf"])
        saved += download("variants.tsv", tsv(names, rows))
    return saved


def _strand_traces(name: str, part: Result, variant: Variant) -> list[dict[str, Any]]:
    """Return a strand's deltas of the bases downstream of the variant, and of the alleles."""
    deltas, color = part["downstream_deltas"], _STRAND_COLORS[name]
    places = _behind(name, variant)[: len(deltas)]
    middle = variant.position + (len(variant.ref) + 1) / 2
    return [
        {"type": "bar", "name": f"read {name}", "x": list(places), "y": deltas, "width": 1,
         "marker": {"color": color}},
        {"type": "scatter", "mode": "markers", "name": f"the alleles, {name}", "x": [middle],
         "y": [part["allele_delta"]], "showlegend": False,
         "marker": {"color": color, "size": 10,
                    "symbol": "triangle-right" if name == "forward" else "triangle-left"}},
    ]  # fmt: skip


def _behind(strand_name: str, variant: Variant) -> range:
    """Return the 1-based positions downstream of the variant on a strand, nearest first."""
    if strand_name == "forward":
        return range(variant.interval.end + 1, 2**62)
    return range(variant.position, 0, -1)


def _heat(window: Interval, result: Result) -> dict[str, Any]:
    """Return the deltas of all SNVs of the window; a click on one requests its score."""
    bases, places = result["bases"], f.positions(window)
    deltas = [list(column) for column in zip(*result["deltas"], strict=True)]
    changes = [[f"{ref}>{alt}" if ref not in (alt, "N") else "" for ref in bases] for alt in _BASES]
    largest = max((abs(v) for column in deltas for v in column if v is not None), default=0.0)
    most = max(largest, _LEAST_SCALE_NATS)
    letters = [[ref if ref == alt else "" for ref in bases] for alt in _BASES]
    return {
        "type": "heatmap", "x": places, "y": list(_BASES), "z": deltas, "yaxis": "y3",
        "zmin": -most, "zmax": most, "colorscale": f.DIVERGING, "hovertext": changes,
        "customdata": [
            [f"{window.contig}:{place} {change}" if change else None
             for place, change in zip(places, row, strict=True)]
            for row in changes
        ],
        "hovertemplate": "%{x:,d} %{hovertext}<br>delta %{z:.3f}<extra></extra>",
        "text": letters, "texttemplate": "%{text}" if len(bases) <= _MOST_LETTERED_BP else "",
        "colorbar": {
            "orientation": "h", "y": -0.2, "yanchor": "top", "thickness": 10, "len": 0.6,
            "title": {"text": "delta of an SNV, in nats", "side": "bottom"},
        },
    }  # fmt: skip


def _cell(value: float | None) -> float | str:
    return "" if value is None else value
