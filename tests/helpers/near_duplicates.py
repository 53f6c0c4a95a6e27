"""Near-duplicates as the pipeline finds them, and by comparing all pairs in plain loops."""

import json
import random

import edlib
import numpy as np

from carbon.genome import reverse_complement
from data_pipeline.dedup import dedup_steps
from data_pipeline.dedup.rows import Rows, index_rows
from data_pipeline.dedup.sketch import sketch_of
from data_pipeline.records import SHARD_SCHEMA, ShardWriter, digest_of

EMPTY = {"string": "", "large_string": "", "int64": 0}


def write_shard(work, number, records, near=("near",)):
    """Write a shard of `(source, sequence, held_out)`s, as the step before deduplication does."""
    shard = work / "shards" / f"{number:05d}"
    shard.mkdir(parents=True)
    writer = ShardWriter(shard)
    for i, (source, sequence, held_out) in enumerate(records):
        row = {field.name: EMPTY.get(str(field.type), []) for field in SHARD_SCHEMA}
        row |= {"source": source, "sequence": sequence, "name": str(i)}
        row |= {"split": "test" if held_out else "train"}
        row |= {"digest": digest_of(sequence), "sketch": sketch_of(sequence)}
        writer.add(row)
    writer.close()
    (shard / "summary.json").write_text(json.dumps({"near_duplicates": list(near)}))


def deduplicated(work, identity=0.9):
    """Run all tasks of deduplication; return the reason of each row that goes."""
    index_rows(work)
    for step in dedup_steps(work, identity):
        for rank in range(step.num_ranks):
            step.run(rank)
    rows = Rows(work)
    return {
        column.first + row: reason for column in rows.columns for row, reason in rows.gone(column)
    }


def found_in(sequences, held_out, identity, folder, sources=None):
    """Return {i: j}: record i goes because of j, as the pipeline finds it.

    Equal records are not looked for; `sources` are `near`, of whose near-duplicates one stays, if
    not given. They must not fall: a shard has the records of a source together.
    """
    sources = sources or ["near"] * len(sequences)
    write_shard(folder, 0, zip(sources, sequences, held_out, strict=True))
    order = sorted(range(len(sequences)), key=sources.__getitem__)  # stable
    deduplicated(folder, identity)
    found = [np.load(path) for path in (Rows(folder).folder / "near").glob("*.npy")]
    return {order[row]: order[because] for each in found for row, because, _ in each.tolist()}


def found_by_all_pairs(sequences, held_out, identity, sources=None):
    """Return the same: links of all pairs, their components, and the rule inside each."""
    sources = sources or ["near"] * len(sequences)
    order = sorted(range(len(sequences)), key=sources.__getitem__)
    sketches = [np.frombuffer(sketch_of(sequence), dtype="<u4") for sequence in sequences]

    def are_similar(i, j):
        longer, shorter = sorted((len(sequences[i]), len(sequences[j])), reverse=True)
        equal = (sketches[i] == sketches[j]).sum()
        return longer - shorter <= int((1 - identity) * longer + 1e-9) and equal >= 16

    def share_a_band(i, j):
        return (sketches[i].reshape(-1, 2) == sketches[j].reshape(-1, 2)).all(axis=1).any()

    component = {i: {i} for i in order}
    for i in order:
        for j in order:
            if component[i] is not component[j] and share_a_band(i, j) and are_similar(i, j):
                joined = component[i] | component[j]
                component |= dict.fromkeys(joined, joined)
    result = {}
    for i in sorted(order, key=lambda i: (not held_out[i], -len(sequences[i]), order.index(i))):
        for j in order:
            decided = (not held_out[j], -len(sequences[j]), order.index(j)) < (
                not held_out[i], -len(sequences[i]), order.index(i)
            )  # fmt: skip
            comparable = sources[i] == sources[j] == "near" or (held_out[j] and not held_out[i])
            if not (decided and comparable) or j in result or i in result:
                continue
            are_near = j in component[i] and are_similar(i, j)
            if are_near and _are_alike(sequences[i], sequences[j], identity):
                result[i] = j
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
