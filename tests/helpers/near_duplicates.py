"""Near-duplicates as they were first found: all sketches in memory, in datasketch's own index."""

import random
from pathlib import Path

import edlib
import numpy as np
from datasketch import MinHash, MinHashLSH

from carbon.genome import reverse_complement
from data_pipeline.dedup.near import Candidates, near_duplicates
from data_pipeline.dedup.sketch import sketch_of


def found_in(sequences, held_out, identity, folder, gone=()):
    """Return {i: j}: record i goes because of j, as the pipeline finds it."""
    sketches = [np.frombuffer(sketch_of(s), dtype="<u4").reshape(1, -1) for s in sequences]
    candidates = Candidates(
        np.array([len(s) for s in sequences]),
        np.array(held_out, dtype=bool),
        np.array([i not in gone for i in range(len(sequences))], dtype=bool),
        iter(sketches),
        sequences.__getitem__,
    )
    because = near_duplicates(candidates, identity, Path(folder) / "near")
    assert not (Path(folder) / "near").exists()
    return {i: j for i, j in enumerate(because.tolist()) if j >= 0}


def found_in_memory(sequences, held_out, identity, gone=(), sketches=None):
    """Return the same, from an index of those that stay, asked for one record after another."""
    sketches = sketches or [sketch_of(sequence) for sequence in sequences]
    order = sorted(
        (i for i in range(len(sequences)) if i not in gone),
        key=lambda i: (not held_out[i], -len(sequences[i])),
    )
    index = MinHashLSH(num_perm=256, params=(128, 2))
    result = {}
    for i in order:
        hashes = np.frombuffer(sketches[i], dtype="<u4").astype(np.uint64)
        minhash = MinHash(num_perm=256, seed=1, hashvalues=hashes, scheme="affine32")
        found = sorted(int(j) for j in index.query(minhash))
        alike = (j for j in found if _are_alike(sequences[i], sequences[j], identity))
        because = next(alike, None)
        if because is None:
            index.insert(i, minhash)
        else:
            result[i] = because
    return result


def _are_alike(one, other, identity):
    longer = max(len(one), len(other))
    most = int((1 - identity) * longer + 1e-9)
    if abs(len(one) - len(other)) > most:
        return False
    forms = (one.upper(), reverse_complement(one.upper()))
    distances = [
        edlib.align(form, other.upper(), task="distance")["editDistance"] for form in forms
    ]
    return min(distances) <= most


def mutated(sequence, rate, seed):
    rng = random.Random(seed)
    result = []
    for base in sequence:
        if rng.random() >= rate:
            result.append(base)
        elif (kind := rng.random()) < 0.8:
            result.append(rng.choice([b for b in "ACGT" if b != base]))
        elif kind < 0.9:
            result.append(base + rng.choice("ACGT"))
    return "".join(result)


def substituted(sequence, rate, seed):
    """Return a sequence of the same length, exactly this share of whose bases are others."""
    rng = random.Random(seed)
    result = list(sequence)
    for at in rng.sample(range(len(result)), round(rate * len(result))):
        result[at] = rng.choice([base for base in "ACGT" if base != result[at].upper()])
    return "".join(result)
