"""Views of variant scores: verdict, tables, figures and downloads."""

from collections.abc import Callable
from itertools import chain
from typing import Any

from markupsafe import Markup

from carbon.genome import Interval, Variant
from carbon.genome.genome import Genome
from demo import figures as f
from demo.markup import Number, download, facts, link_chip, paragraph, table, tsv
from demo.neighbouring_snvs import NO_CONSEQUENCE
from demo.panel import Result
from demo.words import in_words, many, named, spaced

ALTS = "ACGT"
_NUMBERS = ("delta", "forward", "reverse", "spread")
_STRAND_COLORS = {"forward": f.BLUE, "reverse": "#8fb8d6"}
_MOST_LETTERED_BP = 90  # longest window whose cells have room for a letter
_LEAST_SCALE_NATS = 0.1
_FEW = 60  # most SNVs of a consequence that are drawn as single points
_ROW_PIXELS = 46


def title_of(score: Result) -> str:
    """Return a variant by its change of a protein, such as `E52* of ENO2`, or else by its place."""
    changes = [f"{e['change']} of {e['gene']}" for e in score["effects"] if e["change"]]
    return next(iter(changes), named(score["variant"]))


def first_sentence(result: Result) -> str:
    """Return the verdict in one sentence, from the delta at the settings shown."""
    title = title_of(result)
    return f"To the model, {in_words(result['delta'], result['unsure'], title, 'the reference')}."


def verdict(result: Result) -> str:
    """Return the verdict with everything that it rests on."""
    method, own = result["method"], result["effects"]
    pairs = [
        ("variant", named(result["variant"])),
        *[("scored as", named(result[k])) for k in ["scored_as"] if result[k] != result["variant"]],
        ("delta", f"{result['delta']:+.2f} nats"),
        *((effect["gene"], f"{spaced(effect['term'])} {effect['change']}") for effect in own),
        ("method", f"{method['protocol']}, {method['window_bp']:,} bases"),
        ("strands", _strands(result)),
    ]
    return (
        paragraph(first_sentence(result), "verdict")
        + facts(pairs)
        + paragraph(f"{_standing(result)} {_caution(result)}")
    )


def _strands(result: Result) -> str:
    """Return which strands were read, and whether they agree about the sign."""
    if result["strand_left_out"]:
        return f"the {result['strand_left_out']} strand cannot distinguish the alleles"
    if result["spread"] is None:
        return f"{result['method']['strands']} only"
    signs = f"{result['forward']:+.2f} forward, {result['reverse']:+.2f} reverse"
    return f"{signs}: {'opposite signs' if result['unsure'] else 'the same sign'}"


def _standing(result: Result) -> str:
    """Return a sentence on the rank of the variant among SNVs of the gene, if it is known."""
    snvs = result.get("snvs")
    if not snvs:
        return ""
    term = snvs["consequences"][0]
    if not snvs["deltas"].get(term):
        return ""
    like = len(snvs["deltas"][term])
    drawn = "all" if like == snvs["all"][term] else f"a random {like} of"
    verb = "is" if snvs["lower"] == 1 else "are"
    alike = "" if term == NO_CONSEQUENCE else f" with this consequence ({spaced(term)})"
    return (
        f"Of {drawn} {many(snvs['all'][term], 'SNV')} of {snvs['region']}{alike}, "
        f"{snvs['lower']} {verb} less likely."
    )


def _caution(result: Result) -> str:
    if not any(effect["term"] == "missense_variant" for effect in result["effects"]):
        return ""
    return "The model has not learned what the protein does: a missense change can look usual."


def side_by_side(result: Result, link_of: Callable[[str], str]) -> str:
    """Return the variant and the changes next to it, each with its one delta."""
    own = result["alleles"][0]
    rows = sorted(result["alleles"], key=lambda row: (row["delta"] is None, row["delta"] or 0.0))

    def name(row: Result) -> Markup:
        title = title_of(row)
        if row is own:
            return Markup("<strong>{}</strong>").format(title)
        return Markup(link_chip(link_of(row["variant"]), title))

    header = ("change", "variant", "consequence", "delta, nats", "to the model")
    cells = ((name(row), *_allele_cells(row)) for row in rows)
    return table(header, cells, "Side by side, by the same method")


def _allele_cells(row: Result) -> tuple[str, str, str, str]:
    consequence = ", ".join(dict.fromkeys(spaced(e["term"]) for e in row["effects"]))
    place, delta = named(row["variant"]), row["delta"]
    if delta is None:
        return place, consequence, "", (row["reason"] or "").replace("_", " ")
    words = in_words(delta, row["unsure"], "it", "the reference")
    return place, consequence, Number(f"{delta:+.2f}"), words


def effect_map(genome: Genome, result: Result) -> f.Figure | None:
    """Return the bases downstream of the variant, the heat map of the window, and exons below."""
    if "window" not in result:
        return None
    window, variant = _window(result), Variant.parse(result["scored_as"])
    strands = (_strand_traces(name, part, variant) for name, part in result["strands"].items())
    genes = genome.genes_in(window)
    first, last = variant.position + 0.5, variant.interval.end + 0.5
    return f.figure(
        [*chain(*strands), _heat(window, result), *f.gene_traces(genes, window, "y2")],
        height=560,
        barmode="overlay",
        bargap=0,
        showlegend=True,
        xaxis=f.position_axis(window, anchor="y2" if genes else "y3", tickangle=0),
        yaxis={"domain": [0.64, 1], "title": {"text": "part of the delta"}},
        yaxis2=f.gene_axis((0, 0.13), len(genes)),
        yaxis3={"domain": [0.2, 0.56], "title": {"text": "ALT"}, "fixedrange": True,
                "type": "category", "autorange": "reversed"},
        shapes=[{"type": "rect", "x0": first, "x1": last, "y0": 0.2, "y1": 1, "yref": "paper",
                 "line": {"color": f.ORANGE, "width": 2}}],
    )  # fmt: skip


def snv_strip(result: Result) -> f.Figure | None:
    """Return the SNVs of the region in one row per consequence, with the changes marked."""
    snvs = result.get("snvs")
    if not snvs:
        return None
    deltas = snvs["deltas"]
    rows = {
        term: f"{spaced(term)}<br>{len(values):,} of {snvs['all'][term]:,}"
        for term, values in deltas.items()
    }
    traces: list[dict[str, Any]] = [
        {"type": "violin", "orientation": "h", "side": "positive", "width": 1.7, "name": rows[term],
         "x": [round(delta, 3) for delta in values], "spanmode": "hard", "showlegend": False,
         "points": "all" if len(values) <= _FEW else False, "pointpos": 0.15, "jitter": 0.3,
         "line": {"color": f.GREY, "width": 1}, "marker": {"color": f.GREY, "size": 4},
         "meanline": {"visible": True}, "hoveron": "points", "hoverinfo": "x"}
        for term, values in deltas.items()
    ]  # fmt: skip
    own, *others = zip(result["alleles"], snvs["consequences"], strict=True)
    traces.append(_marks("compared with it", others, rows, f.BLUE, "circle"))
    traces.append(_marks("this variant", [own], rows, f.ORANGE, "diamond"))
    return f.figure(
        [trace for trace in traces if trace["x"]],
        height=130 + _ROW_PIXELS * len(rows),
        margin={"l": 118, "r": 16, "t": 40, "b": 50},
        xaxis={"title": {"text": "delta of an SNV, in nats"}, "fixedrange": True},
        yaxis={"autorange": "reversed", "fixedrange": True, "type": "category",
               "tickfont": {"size": 12}},
        shapes=[{"type": "line", "x0": 0, "x1": 0, "yref": "paper", "y0": 0, "y1": 1,
                 "line": {"color": f.GREY, "dash": "dot"}}],
    )  # fmt: skip


def _marks(
    name: str,
    changes: list[tuple[Result, str | None]],
    rows: dict[str, str],
    color: str,
    symbol: str,
) -> dict[str, Any]:
    """Return the changes in the rows of their consequences; a change without a row is left out."""
    shown = [
        (score["delta"], rows[term], title_of(score))
        for score, term in changes
        if term in rows and score["delta"] is not None
    ]
    return {
        "type": "scatter", "mode": "markers+text", "name": name, "showlegend": True,
        "x": [delta for delta, _, _ in shown], "y": [row for _, row, _ in shown],
        "text": [f.plain(title.partition(" of ")[0]) for _, _, title in shown],
        "textposition": "top center", "cliponaxis": False,
        "marker": {"color": color, "size": 13, "symbol": symbol},
        "hovertemplate": "%{text}: %{x:.2f} nats<extra></extra>",
    }  # fmt: skip


def vcf_table(result: Result) -> str:
    """Return the variants of a VCF, if any, with their scores or the reason for a missing score."""
    rows: list[Result] | None = result.get("vcf")
    if rows is None:
        return ""
    caption = f"{len(rows):,} variants of your VCF"
    if result["vcf_has_more"]:
        caption = f"The first {len(rows):,} variants of your VCF; the command line scores all"
    shown = (
        (named(row["variant"]), *(row[name] for name in _NUMBERS),
         "yes" if row["unsure"] else "", (row["reason"] or "").replace("_", " "))
        for row in rows
    )  # fmt: skip
    header = ("variant", *_NUMBERS, "strands disagree", "reason for no score")
    return table(header, shown, caption)


def downloads(result: Result) -> str:
    """Return links that save the heat map, the downstream bases and the scores of the VCF."""
    if "window" not in result:
        return ""
    window, variant = _window(result), Variant.parse(result["scored_as"])
    snvs = (
        (window.contig, position, ref, alt, delta)
        for position, ref, row in zip(
            f.positions(window), result["bases"], result["deltas"], strict=True
        )
        for alt, delta in zip(ALTS, row, strict=True)
        if ref != alt
    )
    saved = download("window.tsv", tsv(("contig", "position", "ref", "alt", "delta"), snvs))
    rows = (
        (name, position, delta)
        for name, part in result["strands"].items()
        for position, delta in zip(
            _downstream(name, variant), part["downstream_deltas"], strict=False
        )
    )
    saved += download("downstream.tsv", tsv(("strand", "position", "delta"), rows))
    columns = ("variant", *_NUMBERS, "unsure", "reason")
    for name, file in (("alleles", "side_by_side.tsv"), ("vcf", "variants.tsv")):
        if name in result:
            scores = ([row[column] for column in columns] for row in result[name])
            saved += download(file, tsv(columns, scores))
    return saved


def _window(result: Result) -> Interval:
    contig, _, span = result["window"].rpartition(":")
    first, last = map(int, span.split("-"))
    return Interval(contig, first - 1, last)


def _strand_traces(name: str, part: Result, variant: Variant) -> list[dict[str, Any]]:
    """Return a strand's deltas of the bases downstream of the variant, and of the alleles."""
    deltas, color = part["downstream_deltas"], _STRAND_COLORS[name]
    places = _downstream(name, variant)[: len(deltas)]
    middle = variant.position + (len(variant.ref) + 1) / 2
    return [
        {"type": "bar", "name": f"bases after it, {name}", "x": list(places), "y": deltas,
         "width": 1, "marker": {"color": color}},
        {"type": "scatter", "mode": "markers", "name": f"the alleles, {name}", "x": [middle],
         "y": [part["allele_delta"]], "showlegend": False,
         "marker": {"color": color, "size": 10,
                    "symbol": "triangle-right" if name == "forward" else "triangle-left"}},
    ]  # fmt: skip


def _downstream(strand_name: str, variant: Variant) -> range:
    """Return the 1-based positions downstream of the variant on a strand, nearest first."""
    if strand_name == "forward":
        return range(variant.interval.end + 1, 2**62)
    return range(variant.position, 0, -1)


def _heat(window: Interval, result: Result) -> dict[str, Any]:
    """Return the deltas of all SNVs of the window; a click on one requests its score."""
    bases, places = result["bases"], f.positions(window)
    deltas = [list(column) for column in zip(*result["deltas"], strict=True)]
    changes = [[f"{ref}>{alt}" if ref not in (alt, "N") else "" for ref in bases] for alt in ALTS]
    largest = max((abs(v) for column in deltas for v in column if v is not None), default=0.0)
    most = max(largest, _LEAST_SCALE_NATS)
    letters = [[ref if ref == alt else "" for ref in bases] for alt in ALTS]
    return {
        "type": "heatmap", "x": places, "y": list(ALTS), "z": deltas, "yaxis": "y3",
        "zmin": -most, "zmax": most, "colorscale": f.DIVERGING, "hovertext": changes,
        "customdata": [
            [f"{window.contig}:{place} {change}" if change else None
             for place, change in zip(places, row, strict=True)]
            for row in changes
        ],
        "hovertemplate": "%{x:,d} %{hovertext}<br>delta %{z:.2f}<extra></extra>",
        "text": letters, "texttemplate": "%{text}" if len(bases) <= _MOST_LETTERED_BP else "",
        "textfont": {"color": "#222222"},
        "colorbar": {
            "orientation": "h", "y": -0.24, "yanchor": "top", "thickness": 10, "len": 0.6,
            "title": {"text": "delta of an SNV, in nats", "side": "bottom"},
        },
    }  # fmt: skip
