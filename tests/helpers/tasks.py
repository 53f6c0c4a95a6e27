"""Small datasets with the published columns, and a model that knows their answers."""

import random

import numpy as np
import pyarrow as pa

from eval.contract import Model
from eval.markov import Training, pieces_of, unlabelled
from tests.helpers.files import random_bases

OTHER = {"A": "C", "C": "G", "G": "T", "T": "A"}


def training_on(order: int, sequences: list[str]) -> Training:
    """Return the counts of sequences for Markov models."""
    return Training(order, pieces_of(unlabelled(sequences), sum(map(len, sequences))))


def recovery_table(num_rows: int, prompt_bp: int = 120) -> pa.Table:
    groups = ("prt", "fng", "pln", "inv", "vrt", "mam")
    return pa.table(
        {
            "sequence": [random_bases(prompt_bp, seed=n) for n in range(num_rows)],
            "label": [random_bases(128, seed=10_000 + n) for n in range(num_rows)],
            "type": [f"<{groups[n % 6]}>" for n in range(num_rows)],
        }
    )


def pairs_table(num_rows: int, length_bp: int = 90) -> pa.Table:
    real = [random_bases(length_bp, seed=n) for n in range(num_rows)]
    return pa.table(
        {
            "original_sequence": real,
            "sequence": [s[:40] + OTHER[s[40]] + s[41:] for s in real],
            "species": [("human", "mouse")[n % 2] for n in range(num_rows)],
        }
    )


def windows_table(num_rows: int, window_bp: int = 60, positive: float = 0.5) -> pa.Table:
    """Variants in windows, with the columns of both tasks that have them."""
    draw = random.Random(1)
    windows = [random_bases(window_bp, seed=n) for n in range(num_rows)]
    middle = window_bp // 2
    labels = [int(draw.random() < positive) for _ in windows]
    return pa.table(
        {
            "chrom": [str(1 + n % 5) for n in range(num_rows)],
            "pos": [1000 + n for n in range(num_rows)],
            "ref": [w[middle] for w in windows],
            "alt": [OTHER[w[middle]] for w in windows],
            "label": labels,
            "class": [("FUNC/INT", "LOF")[label] for label in labels],
            "consequence": [("5_prime_UTR", "distal")[n % 2] for n in range(num_rows)],
            "score": [float(label) for label in labels],
            "ref_seq": windows,
            "var_seq": [w[:middle] + OTHER[w[middle]] + w[middle + 1 :] for w in windows],
        }
    )


def clinvar_table(contig: str, bases: str, num_rows: int, first: int) -> pa.Table:
    draw = random.Random(2)
    places = [first + 3 * n for n in range(num_rows)]
    return pa.table(
        {
            "chrom": [contig] * num_rows,
            "pos": [place + 1 for place in places],
            "ref": [bases[place] for place in places],
            "alt": [OTHER[bases[place]] for place in places],
            "label": [draw.randrange(2) for _ in places],
            "variant_type": [("missense", "intron")[n % 2] for n in range(num_rows)],
        }
    )


class Oracle(Model):
    """Knows the tables that it is given: what follows, what is real, what damages."""

    name = "oracle"
    context_bp = None

    def __init__(self, table: pa.Table) -> None:
        rows = table.to_pylist()
        self.rows = rows
        self.real = {row["original_sequence"] for row in rows if "original_sequence" in row}
        self.values = {row["prompt"][-24:]: row["value"] for row in rows if "prompt" in row}
        self.labels = {row["sequence"][-60:]: row["label"] for row in rows if "type" in row}

    def generate(self, prompts, length_bp, mode="token"):
        return [self.labels[prompt[-60:]][:length_bp] for prompt in prompts]

    def log_likelihoods(self, sequences):
        return np.array([-float(sequence not in self.real) for sequence in sequences])

    def next_base(self, prompts):
        raise NotImplementedError

    def recall(self, prompt, length_bp, endings):
        value = self.values[prompt[-24:]]
        return value, np.array([-float(ending != value) for ending in endings])

    def deltas(self, reference, variants, reading):
        """Tell by the window's sequence, or by the place."""
        by_window = {row.get("ref_seq"): row["label"] for row in self.rows}
        by_place = {(row["chrom"], row["pos"]): row["label"] for row in self.rows}
        found = []
        for variant in variants:
            if variant.contig.startswith("window-"):
                from carbon.genome import Interval

                length_bp = reference.contig_lengths_bp[variant.contig]
                label = by_window[reference.fetch(Interval(variant.contig, 0, length_bp))]
            else:
                label = by_place[variant.contig, variant.position + 1]
            found.append(-float(label))
        return found
