"""The command `probes`: windows, vectors, cross-validation, maps; results.json and a page."""

import argparse
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from carbon.errors import UserError
from carbon.inference import load
from carbon.inference.options import POOLS
from carbon.io.files import atomic_file
from carbon.model import LoadedModel
from carbon.progress import say, track
from carbon.tokenizer import K
from carbon.uncertainty import Floats, bootstrap, difference, mean_of
from eval.data import check_name
from eval.probes.cross_validation import Folds, Read, read
from eval.probes.maps import Plane, map_of, planes
from eval.probes.report import write_report
from eval.probes.vectors import BASELINES, Features, kmer_shares, random_weights, states_of
from eval.probes.windows import BLOCK_BP, PROBES, Drawn, Wanted, Window
from eval.records import check_folder
from eval.tasks.building import Source, source_of

RESULTS, PAGE = "results.json", "report.html"
RANDOM = ", random weights"


def run_probes(arguments: argparse.Namespace) -> None:
    """Probe a model; write results and the page, and print the headlines.

    Raises:
        UserError: a probe has not the genomes that it needs, or a window does not fit.
    """
    names = list(PROBES) if arguments.tasks == "all" else arguments.tasks.split(",")
    for name in names:
        check_name(name, list(PROBES), "--tasks")
    sources = [source_of(text) for text in arguments.genomes]
    check_folder(arguments.output)
    wanted = _wanted(arguments)
    drawn = {name: PROBES[name].draw(sources, wanted) for name in _possible(names, sources)}
    model, kinds = load(arguments.model, dtype="float32").model, planes()
    results = {
        "model": str(arguments.model),
        "genomes": arguments.genomes,
        "window_bp": wanted.window_bp,
        "seed": wanted.seed,
        "probes": {name: probed(model, each, wanted.seed, kinds) for name, each in drawn.items()},
    }
    arguments.output.mkdir(parents=True, exist_ok=True)
    with atomic_file(arguments.output / RESULTS) as temporary:
        text = json.dumps(results, indent=1, allow_nan=False)
        temporary.write_text(text + "\n", encoding="utf-8")
    write_report(arguments.output / PAGE, results)
    print(json.dumps({name: _headline(each) for name, each in results["probes"].items()}))


def _wanted(arguments: argparse.Namespace) -> Wanted:
    if arguments.window_bp % K or not 0 < arguments.window_bp <= BLOCK_BP:
        raise UserError(
            f"--window-bp {arguments.window_bp}: give a multiple of {K}, up to {BLOCK_BP:,}; the "
            "last 6-mer must be whole"
        )
    if arguments.windows < 20:
        raise UserError(f"--windows {arguments.windows}: give 20 or more")
    return Wanted(arguments.windows, arguments.window_bp, arguments.seed)


def _possible(names: Sequence[str], sources: Sequence[Source]) -> list[str]:
    """Return the probes that there are genomes for, where all were asked for."""
    lacks: dict[str, str] = {}
    if not any(source.annotation for source in sources):
        lacks |= dict.fromkeys(("strand", "codon_phase"), "no genome has an annotation")
    if len({source.group for source in sources}) < 2:
        lacks["taxonomy"] = "there is one group of genomes"
    if len(names) < len(PROBES):
        return list(names)  # whoever names a probe is told why it cannot be made
    for name in names:
        if name in lacks:
            say(f"{name} is left out: {lacks[name]}")
    return [name for name in names if name not in lacks]


def probed(
    model: LoadedModel, drawn: Drawn, seed: int, kinds: Mapping[str, Plane]
) -> dict[str, Any]:
    """Return what is told by each pool, by random weights, and by counts of 6-mers.

    Args:
        model: whose states are read.
        drawn: windows of two classes or more.
        seed: of folds, random weights and intervals.
        kinds: of maps.
    """
    windows = drawn.windows
    sequences = [window.bases for window in windows]
    labels, groups = [w.label for w in windows], [w.group for w in windows]
    folds = Folds(labels, groups, seed)
    features: dict[str, Features] = dict(states_of(model, sequences))
    unlearned = states_of(random_weights(model, seed), sequences)
    features |= {pool + RANDOM: of for pool, of in unlearned.items()}
    features |= {name: kmer_shares(sequences, offsets) for name, offsets in BASELINES.items()}
    readings = {
        name: read(of, folds) for name, of in track(features.items(), "probing", len(features))
    }
    return {
        "num_windows": len(windows),
        "num_groups": len(set(groups)),
        "classes": list(drawn.classes),
        "chance": _most_common_share(windows),
        "folds": len(folds.parts),
        "notes": list(drawn.notes),
        "readers": {name: _told(each, groups, seed) for name, each in readings.items()},
        "minus": {pool: _beside(pool, readings, groups, seed) for pool in POOLS},
        "labels": labels,
        "maps": {
            kind: {
                name: map_of(features[name][_usual(readings[name])], plane, seed)
                for name in (*POOLS, next(iter(BASELINES)))
            }
            for kind, plane in kinds.items()
        },
    }


def _most_common_share(windows: Sequence[Window]) -> float:
    counts = Counter(window.label for window in windows)
    return max(counts.values()) / len(windows)


def _told(reading: Read, groups: Sequence[str], seed: int) -> dict[str, Any]:
    return {
        **_estimate(reading.right, groups, seed),
        "chosen": [choice._asdict() for choice in reading.chosen],
        "each": [
            {**choice._asdict(), **_estimate(right, groups, seed)}
            for choice, right in reading.each.items()
        ],
    }


def _beside(
    pool: str, readings: Mapping[str, Read], groups: Sequence[str], seed: int
) -> dict[str, Any]:
    """Return how far a pool is ahead of each baseline and of random weights, window by window."""
    found = {}
    for name in (pool + RANDOM, *BASELINES):
        both = [mean_of(readings[each].right) for each in (pool, name)]
        found[name] = difference(both[0], both[1], len(groups), seed, groups)._asdict()
    return found


def _estimate(right: Floats, groups: Sequence[str], seed: int) -> dict[str, Any]:
    return bootstrap(mean_of(right), len(right), seed, groups)._asdict()


def _usual(reading: Read) -> str:
    """Return the layer that was chosen most often; the first of equals."""
    return Counter(choice.layer for choice in reading.chosen).most_common(1)[0][0]


def _headline(result: Mapping[str, Any]) -> dict[str, float]:
    values = {name: each["value"] for name, each in result["readers"].items()}
    return {"chance": result["chance"], **{k: float(np.round(v, 4)) for k, v in values.items()}}
