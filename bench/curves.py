"""Held-out loss of `tiny` on real genomes, with one setting changed, three seeds each.

    python bench/curves.py soft_mask FOLDER    weights of soft-masked bases, human chromosome 9
    python bench/curves.py optimizers FOLDER   AdamW and Muon, yeast without chromosome VIII

One process, one thread. Each run that has ended is a file in FOLDER. The same command continues
with the next run, and prints a table of all. `CARBON_DATA` is the folder of the data.
"""

import argparse
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pysam
import torch
from numpy.typing import NDArray
from transformers import PreTrainedModel

from carbon.losses import chain
from carbon.tokenizer import NATIVE, encode_kmers, known_bases
from carbon.uncertainty import bootstrap, difference, ratio_of
from tests.helpers.ranks import run_ranks
from train.config import TrainConfig

SEEDS = (0, 1, 2)
BATCH_ROWS, ROW_TOKENS = 8, 256
WINDOW_BP = 6 * (ROW_TOKENS - 1)
RECORD_BP = 20 * WINDOW_BP
WINDOWS_A_BATCH = 8


@dataclass(frozen=True, slots=True)
class Study:
    """Runs that differ in one setting.

    Attributes:
        genome: FASTA file, in `CARBON_DATA`.
        held_out: from contig and length to the held-out interval, empty if there is none.
        settings: settings that are compared; differences are to the first.
        evaluations: measurements of a run, at equal distances, the last at the end.
        max_windows: number of held-out windows; the study takes evenly spread ones.
    """

    genome: str
    held_out: Callable[[str, int], tuple[int, int]]
    settings: tuple[tuple[str, str, Any], ...]
    evaluations: int
    max_windows: int
    steps: int = 200


STUDIES = {
    "soft_mask": Study(
        genome="human_chr9/GRCh38.chr9_1_1000000.fa.gz",
        held_out=lambda contig, length: (2 * length // 3, length),
        settings=tuple(("data", "soft_mask_weight", weight) for weight in (1.0, 0.1, 0.01)),
        evaluations=2,
        max_windows=1000,
    ),
    "optimizers": Study(
        genome="yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
        held_out=lambda contig, length: (0, length) if contig == "VIII" else (0, 0),
        settings=(("optimizer", "name", "adamw"), ("optimizer", "name", "muon")),
        evaluations=4,
        max_windows=120,
    ),
}


def main() -> None:
    """Run the missing runs of a study and print its table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--print", action="store_true", help="only print the table")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    study, folder = STUDIES[arguments.study], arguments.folder / arguments.study
    windows = prepare(study, folder)
    for seed in SEEDS if not arguments.print else ():
        for number in range(len(study.settings)):
            if not (folder / f"{number}-{seed}.npz").exists():
                config = config_of(study, folder, number, seed)
                (results,) = run_ranks(1, train, config, study, windows)
                np.savez(folder / "part.npz", **results)
                (folder / "part.npz").rename(folder / f"{number}-{seed}.npz")
    print_table(study, folder, windows)


def prepare(study: Study, folder: Path) -> list[str]:
    """Write the training records as a corpus of one source; return the held-out windows."""
    records, windows = [], []
    with pysam.FastxFile(str(Path(os.environ["CARBON_DATA"]) / study.genome)) as genome:
        for record in genome:
            sequence = str(record.sequence)
            start, end = study.held_out(str(record.name), len(sequence))
            for training in (sequence[:start], sequence[end:]):
                records += [r for r in pieces(training, RECORD_BP) if r.strip("Nn")]
            windows += [w for w in pieces(sequence[start:end], WINDOW_BP) if len(w) == WINDOW_BP]
    source = folder / "corpus" / "genome"
    source.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"sequence": records}), source / "train-0.parquet")
    return windows[:: -(-len(windows) // study.max_windows)]


def pieces(sequence: str, length: int) -> Iterator[str]:
    """Cut a sequence from its start."""
    return (sequence[at : at + length] for at in range(0, len(sequence), length))


def config_of(study: Study, folder: Path, number: int, seed: int) -> TrainConfig:
    """Return the recipe of a run: cross-entropy, a warm-up of a tenth, then a line down."""
    phase = {
        "name": "ce",
        "objective": "ce",
        "tokens": study.steps * BATCH_ROWS * ROW_TOKENS,
        "mixture": {"genome": 1.0},
        "context_tokens": ROW_TOKENS,
        "batch_rows": BATCH_ROWS,
        "learning_rate": 3e-3,
        "final_learning_rate": 3e-4,
        "schedule": "linear",
        "warmup_steps": study.steps // 10,
    }
    table: dict[str, Any] = {
        "output": str(folder / "run"),
        "seed": seed,
        "model": {"preset": "tiny", "kmer_init": "bases"},
        "data": {"corpus": str(folder / "corpus"), "microbatch_tokens": 1024},
        "phases": [phase],
    }
    section, key, value = study.settings[number]
    table.setdefault(section, {})[key] = value
    return TrainConfig.from_table(table, f"{key} = {value}")


def train(ranks: Any, config: TrainConfig, study: Study, windows: list[str]) -> dict[str, Any]:
    """Train; return the tokens of each measurement and the nats of each base (windows, bases)."""
    from train.trainer import Trainer

    trainer, start = Trainer(config, ranks), time.time()
    tokens, nats = [], []
    for metrics in trainer.steps():
        if metrics["step"] % (study.steps // study.evaluations) == 0:
            network = trainer.gathered()
            assert network is not None
            tokens.append(metrics["tokens"])
            nats.append(nats_of(network, windows))
    seconds = time.time() - start
    where = f"seed {config.seed}, {config.optimizer.name}, {config.data.soft_mask_weight}"
    print(f"{where}: {np.nanmean(nats[-1]):.4f} nats per base, {seconds:.0f} s", flush=True)
    return {"tokens": tokens, "nats": nats}


@torch.no_grad()
def nats_of(network: PreTrainedModel, windows: list[str]) -> NDArray[np.float32]:
    """Return the surprise of each base by the chain (windows, bases); NaN for an unknown base."""
    nats = []
    for at in range(0, len(windows), WINDOWS_A_BATCH):
        kmers = [encode_kmers(window) for window in windows[at : at + WINDOWS_A_BATCH]]
        indices = torch.from_numpy(np.stack([each.indices for each in kmers]))
        known = torch.from_numpy(np.stack([known_bases(each.known) for each in kmers]))
        ids = torch.where(known.all(dim=2), indices + NATIVE.first_kmer, NATIVE.other)
        ids = torch.nn.functional.pad(ids, (1, 0), value=NATIVE.begin)[:, :-1]
        logits = network(input_ids=ids).logits[..., NATIVE.kmer_rows]
        of_bases = -chain(logits, indices, known)
        nats.append(of_bases.masked_fill(~known, torch.nan).flatten(1).numpy())
    return np.concatenate(nats).astype(np.float32)


def print_table(study: Study, folder: Path, windows: list[str]) -> None:
    """Print nats per base of each setting, and differences to the first on the same windows.

    Seeds are averaged base by base; intervals are of a bootstrap over windows.
    """
    letters = np.frombuffer("".join(windows).encode(), dtype=np.uint8).reshape(len(windows), -1)
    is_lower = letters >= ord("a")
    bases = {"masked": is_lower, "unmasked": ~is_lower, "all": is_lower | True}
    means: dict[int, NDArray[np.float64]] = {}
    for number, (_, key, value) in enumerate(study.settings):
        files = sorted(folder.glob(f"{number}-*.npz"))
        runs = [dict(np.load(file)) for file in files]
        if not runs:
            continue
        means[number] = np.mean([run["nats"] for run in runs], axis=0, dtype=np.float64)
        for place, tokens in enumerate(runs[0]["tokens"]):
            of_seeds = [float(np.nanmean(run["nats"][place])) for run in runs]
            print(f"| {key} = {value} | {tokens:,} | {', '.join(f'{v:.4f}' for v in of_seeds)} |")
        for name, chosen in bases.items():
            if (now := sums(means[number][-1], chosen))[1].sum():
                value_of, less = ratio_of(*now), ""
                if number and 0 in means:
                    first = ratio_of(*sums(means[0][-1], chosen))
                    d = difference(value_of, first, len(windows))
                    less = f"{d.value:+.4f} [{d.low:+.4f}, {d.high:+.4f}]"
                e = bootstrap(value_of, len(windows))
                interval = f"{e.value:.4f} [{e.low:.4f}, {e.high:.4f}]"
                print(f"|   {name} bases, {len(files)} seeds | {interval} | {less} |")


def sums(nats: NDArray[np.float64], chosen: NDArray[np.bool_]) -> tuple[Any, Any]:
    """Return nats and number of the chosen known bases of each window."""
    counted = chosen & ~np.isnan(nats)
    return np.where(counted, nats, 0.0).sum(axis=1), counted.sum(axis=1).astype(np.float64)


if __name__ == "__main__":
    main()
