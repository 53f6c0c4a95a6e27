"""Variants, scans and generation compared with plain loops; workers and their driver."""

import tempfile
from pathlib import Path

import inference as trials
import workers
from measure import Measure, in_own_process


def measures(quick: bool) -> list[Measure]:
    mini = trials.random_model("mini")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        reference = trials.random_reference(folder, 120_000)
        some = trials.centered(mini, reference, 2 if quick else 4, 1 if quick else 3)
        speed, difference = some["in_full"] / some["seconds"], some["difference_nats"]
        dense = trials.dense_panel(mini, reference, 12 if quick else 300)
        long = trials.random_reference(folder, 2_000_000)
        scans = trials.scans(mini, reference, long, 1 if quick else 3)
        panel = trials.real_panel(folder, 200 if quick else 5000)
        scores = trials.bundled_scores(4 if quick else 24, 1 if quick else 5)
        tiles = trials.tiled(30 if quick else 300)
        map_bp = 60 if quick else 300
        both_sides = trials.of_both_sides(30 if quick else 300, map_bp)
        texts = trials.generation(mini, 4 if quick else 16, 60 if quick else 300, 1 if quick else 3)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workers.prepared(folder, 300 if quick else 1500)
        speedups = workers.speedups(folder, 1 if quick else 3)
        blocks_a_second = workers.driven(folder, 500 if quick else 4000, 2)
    num_blocks = 1000 if quick else 7813  # of 128 records: 10^6
    (_, few_bytes), (_, many_bytes) = (
        in_own_process(f"driven_here({n})", "workers") for n in (100, num_blocks)
    )
    most_bp = 300_000 if quick else 1_000_000
    (_, some_bytes), (took, most_bytes) = (
        in_own_process(f"scan_random({n})", "inference") for n in (100_000, most_bp)
    )
    found = [
        Measure("centered:against_both_in_full", speed, "times", 1.9, speed >= 1.9),
        Measure("centered:difference", difference, "nats", 1e-4, difference <= 1e-4),
        Measure("dense_panel:against_both_in_full", dense["in_full"] / dense["seconds"], "times"),
        Measure("right_end:one_by_one", scans["right_end_seconds"], "s/variant"),
        Measure("right_end:difference", scans["difference_nats"], "nats", 1e-4,
                scans["difference_nats"] <= 1e-4),
    ]  # fmt: skip
    for protocol in ("centered", "tiled"):
        bundle = scores[f"{protocol}:bundle"]
        found += [
            Measure(f"scores:{protocol}:delta", scores[f"{protocol}:delta"], "s/variant"),
            Measure(f"scores:{protocol}:all_but_entropy", bundle, "times", 1.15, bundle <= 1.15),
            Measure(f"scores:{protocol}:entropy", scores[f"{protocol}:entropy"], "times"),
        ]
    for offsets, target in ((1, 30_000), (6, 5_000)):
        tokens = (trials.RIGHT_END_BP // 6 + 1) / scans[f"tokens_a_variant:{offsets}"]
        faster = scans["right_end_seconds"] / scans[f"seconds_a_variant:{offsets}"]
        found += [
            Measure(
                f"scan:{offsets}_offsets:fewer_tokens", tokens, "times", target, tokens >= target
            ),
            Measure(f"scan:{offsets}_offsets:faster", faster, "times", target, faster >= target),
        ]
    if panel is None or tiles is None:
        print("CARBON_DATA names no folder: real variants are left out")
    else:
        found += _of_real_variants(panel, tiles)
    for command, speedup in speedups.items():
        times, cpu = speedup["times"], speedup["cpu"]
        found += [
            Measure(f"two_processes:{command}", times, "times", 1.8, times >= 1.8),
            Measure(f"two_processes:{command}:cpu", cpu, "times", 1.1, cpu <= 1.1),
            Measure(f"two_processes:{command}:start", speedup["start_seconds"], "s"),
        ]
    found += [
        Measure("driver:empty_blocks", blocks_a_second, "/s", 200, blocks_a_second >= 200),
        Measure(f"driver:{num_blocks}_blocks:memory", many_bytes / 2**20, "MiB"),
        Measure("driver:memory_against_100_blocks", many_bytes / few_bytes, "times", 1.1,
                many_bytes <= 1.1 * few_bytes),
    ]  # fmt: skip
    ratio = texts["base"] / texts["token"]
    return [
        *found,
        Measure("generate:token", texts["token"], "bp/s"),
        Measure("generate:base_against_token", ratio, "times", 0.95, ratio >= 0.95),
        Measure("generate:batch_against_single", texts["token"] / texts["alone"], "times"),
        Measure(f"scan:{most_bp}_bp:memory", most_bytes / 2**20, "MiB"),
        Measure(f"scan:{most_bp}_bp:memory_against_100000", most_bytes / some_bytes, "times"),
        Measure(f"scan:{most_bp}_bp:tiny", most_bp / took, "bp/s"),
        Measure("scan:both_sides:yeast", both_sides["track_bp_per_second"], "bp/s"),
        Measure(f"dependency:{map_bp}_bp:yeast", both_sides["map_seconds"], "s"),
        Measure("dependency:yeast", both_sides["map_tokens_per_second"], "tokens/s"),
    ]


def _of_real_variants(panel: dict[str, float], tiles: dict[str, float]) -> list[Measure]:
    """Return what `real_panel` and `tiled` measured."""
    found = [
        Measure("real_panel:tiny_1024_bp", panel["variants"] / panel["seconds"], "variants/s"),
        Measure("real_panel:in_the_network", 100 * panel["network_share"], "%"),
        Measure("real_panel:in_head_and_chain", 100 * panel["head_share"], "%"),
    ]
    # The aims: at a genome's density a fifth of the tokens, for dense SNVs a tenth.
    for density, fewer in (("dense", 10), ("sparse", 5)):
        tokens, seconds = (
            tiles[f"centered:{unit}"] / tiles[f"{density}:{unit}"] for unit in ("tokens", "seconds")
        )
        faster = fewer / 2
        found += [
            Measure(f"tiled:{density}:fewer_tokens", tokens, "times", fewer, tokens >= fewer),
            Measure(f"tiled:{density}:faster", seconds, "times", faster, seconds >= faster),
        ]
    return found
