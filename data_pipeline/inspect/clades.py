"""A corpus by clade: a table, a picture, and a mixture of its sources."""

import html
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from carbon.io.config import check
from carbon.progress import TableRow
from data_pipeline.inspect.census import Counts, summed
from data_pipeline.inspect.charts import Box, treemap

_NO_LINEAGE = "no lineage told"
_MOST_LEVELS = 4
_MOST_ROWS = 60
SHARE_UNITS = 10_000  # shares of a mixture are multiples of a ten-thousandth


@dataclass(slots=True)
class Clade:
    """A node of the tree of a corpus; bases and assemblies include all nodes below."""

    name: str
    bases: int = 0
    assemblies: int = 0
    below: dict[str, "Clade"] = field(default_factory=dict)


def clade_tree(bases_of: Mapping[str, int], lineages: Mapping[str, tuple[str, ...]]) -> Clade:
    """Return the tree of assemblies by their lineages, without nodes that divide nothing.

    Args:
        bases_of: bases of each assembly.
        lineages: names from below the root, for assemblies with a known lineage.
    """
    root = Clade("all")
    for assembly, bases in bases_of.items():
        node = root
        for name in ("", *(lineages.get(assembly) or (_NO_LINEAGE,))):
            node = node.below.setdefault(name, Clade(name)) if name else root
            node.bases += bases
            node.assemblies += 1
    return _without_chains(root)


def _without_chains(node: Clade) -> Clade:
    """Return a node whose clades below it are two or more, or none; the lowest name stays."""
    while len(node.below) == 1:
        (only,) = node.below.values()
        if only.assemblies < node.assemblies:  # some end here
            break
        node = only
    below = {name: _without_chains(each) for name, each in node.below.items()}
    in_order = sorted(below.values(), key=lambda each: (-each.bases, each.name))
    return Clade(node.name, node.bases, node.assemblies, {each.name: each for each in in_order})


def clades_of(manifest: dict[str, Any], counts: Counts) -> dict[str, Any]:
    """Return the clades of a corpus as the rows of a table and as a treemap."""
    lineages = {
        each["title"]: tuple(each["recipe"]["taxonomy"].split("; "))
        for each in manifest["inputs"]
        if each["recipe"].get("taxonomy")
    }
    tree = clade_tree(summed(counts, "bases_of"), lineages)
    rows = list(_rows(tree, tree.bases, 0))[:_MOST_ROWS]
    return {"rows": rows, "picture": treemap(_box(tree))}


def _rows(node: Clade, all_bases: int, level: int) -> Iterator[TableRow]:
    indent = "\N{NO-BREAK SPACE}" * 3 * level
    yield indent + node.name, node.assemblies, node.bases, 100 * node.bases / max(all_bases, 1)
    if level < _MOST_LEVELS:
        for each in node.below.values():
            yield from _rows(each, all_bases, level + 1)


def _box(node: Clade, level: int = 0) -> Box:
    inside = node.below.values() if level < _MOST_LEVELS else ()
    title = f"{html.escape(node.name)}: {node.bases:,} bases, assemblies: {node.assemblies:,}"
    return Box(node.name, title, node.bases, tuple(_box(each, level + 1) for each in inside))


def whole_sources(manifest: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return what there is to train on: whole sources, and the bases of the parts of each."""
    clades = manifest.get("clades", {})
    parts: dict[str, dict[str, int]] = {}
    for name, splits in manifest["sources"].items():
        if bases := splits["train"]["bases"]:
            whole = name.removesuffix(f"-{clades[name]}") if name in clades else name
            parts.setdefault(whole, {})[name] = bases
    return parts


def mixture_by_clade(
    manifest: dict[str, Any],
    source_shares: Mapping[str, float],
    temperature: float,
    weights: Mapping[str, float],
) -> dict[str, float]:
    """Return the share of each source; a source that is divided by clade is shared among clades.

    A clade with n bases to train on has a share of its source in proportion to
    weight * n ** (1 / temperature): as there are at 1, more alike above.

    Args:
        manifest: of the corpus.
        source_shares: share of each whole source, scaled to sum to one.
        temperature: 1 or more.
        weights: of clades; a clade without a weight has 1.

    Raises:
        ConfigError: a source or clade is not in the corpus, or a number is out of bounds.
    """
    clades: dict[str, str] = manifest.get("clades", {})
    parts = whole_sources(manifest)
    check(temperature >= 1, f"temperature = {temperature}: give 1 or more")
    known = sorted(set(clades.values()))
    for name, number in [*weights.items(), *source_shares.items()]:
        check(math.isfinite(number), f"'{name}' = {number}: give a number")
    for clade, weight in weights.items():
        check(clade in known, f"weight of '{clade}': clades are {', '.join(known) or 'none'}")
        check(weight > 0, f"weight of '{clade}' = {weight}: give more than 0")
    for source, share in source_shares.items():
        check(source in parts, f"share of '{source}': the corpus has {', '.join(parts)}")
        check(share > 0, f"share of '{source}' = {share}: give more than 0")
    result = {}
    for source, share in source_shares.items():
        masses = {
            name: weights.get(clades.get(name, ""), 1.0) * bases ** (1 / temperature)
            for name, bases in parts[source].items()
        }
        for name, mass in masses.items():
            result[name] = share / sum(source_shares.values()) * mass / sum(masses.values())
    return rounded_shares(result)


def rounded_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Return shares as multiples of 1/10,000 that sum to one, none of them 0.

    >>> rounded_shares({"a": 2 / 3, "b": 1 / 3})
    {'a': 0.6667, 'b': 0.3333}
    """
    units = {name: max(1, int(share * SHARE_UNITS)) for name, share in shares.items()}
    missing = SHARE_UNITS - sum(units.values())
    check(missing >= -max(units.values()) + 1, "so many sources do not fit in 10,000 parts")
    by_rest = sorted(shares, key=lambda name: (units[name] - shares[name] * SHARE_UNITS, name))
    for name in by_rest[: max(missing, 0)]:
        units[name] += 1
    if missing < 0:
        units[max(units, key=units.__getitem__)] += missing
    return {name: count / SHARE_UNITS for name, count in units.items()}
