"""Keys and values hidden in genomes, alone or among eight that are nearly the same key."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.random import Generator

from carbon.errors import UserError
from carbon.genome import Interval, Reference
from carbon.tokenizer import K
from eval.contract import BuildReport
from eval.tasks.common.building import Source, write_dataset

KEY_BP = VALUE_BP = 24
NEEDLE_BP = KEY_BP + VALUE_BP
LEVELS = {"plain": 0, "d4": 4, "d2": 2, "d1": 1}
"""Name of a level to the bases in which a near-duplicate differs from the key; plain has none."""
NUM_DISTRACTORS = 8
DEPTHS = (0.10, 0.25, 0.50, 0.75, 0.90)
CONTEXT_LENGTHS_TOKENS = (4096, 8192, 16_384, 32_768, 65_536, 131_072)
_CONTIGUOUS_TOKENS = 16_384  # longer haystacks are stitched
_LEAST_TOKENS = 320
_SHORTEST_RUN_BP = 1000
_TRIES = 100
_SCHEMA = pa.schema(
    [
        ("uid", pa.string()),
        ("level", pa.string()),
        ("kingdom", pa.string()),
        ("prompt", pa.large_string()),
        ("key", pa.string()),
        ("value", pa.string()),
        ("value_len_bp", pa.int64()),
        ("positive_sequence", pa.large_string()),
        ("negative_sequence", pa.large_string()),
        ("context_length_tokens", pa.int64()),
        ("depth", pa.float64()),
        ("distractor_keys", pa.list_(pa.string())),
        ("needle_starts", pa.list_(pa.int64())),
    ]
)
_BASES = np.frombuffer(b"ACGT", dtype=np.uint8)


class Needles(NamedTuple):
    """The needles: the key and its value, and distractors with their values."""

    key: str
    value: str
    distractors: tuple[tuple[str, str], ...]


def build(
    output: Path,
    *,
    sources: Sequence[Source],
    context_length_tokens: Sequence[int] = CONTEXT_LENGTHS_TOKENS,
    num_examples: int = 500,
    seed: int = 0,
) -> BuildReport:
    """Write rows of each level and length, the depths and the sources by turns.

    The levels share haystacks, keys and values, so that they differ in the distractors alone.

    Args:
        output: Parquet to write.
        sources: genomes, one a kingdom.
        context_length_tokens: what prompt, value and `<dna>` fill, in 6-mers.
        num_examples: rows of each level and length.
        seed: of all that is drawn.

    Raises:
        GenomeError: a FASTA is broken.
        UserError: a length is too short for nine needles, or no genome is long enough for any.
    """
    if min(context_length_tokens) < _LEAST_TOKENS:
        raise UserError(f"{min(context_length_tokens)} tokens: give {_LEAST_TOKENS} or more")
    dropped: Counter[str] = Counter()
    genomes = [Reference(source.fasta) for source in sources]
    settings = {
        "task": "genomic_niah",
        "groups": [source.group for source in sources],
        "context_length_tokens": list(context_length_tokens),
        "num_examples": num_examples,
        "seed": seed,
    }
    groups = [source.group for source in sources]
    rows = _rows(genomes, groups, context_length_tokens, num_examples, seed, dropped)
    try:
        inputs = [source.fasta for source in sources]
        return write_dataset(output, rows, dropped, inputs, settings, _SCHEMA)
    finally:
        for genome in genomes:
            genome.close()


def _rows(
    genomes: Sequence[Reference],
    groups: Sequence[str],
    lengths_tokens: Sequence[int],
    num_examples: int,
    seed: int,
    dropped: Counter[str],
) -> Iterator[dict[str, Any]]:
    for level, edits in LEVELS.items():
        for tokens in lengths_tokens:
            for number in range(num_examples):
                which = number // len(DEPTHS) % len(genomes)
                depth = DEPTHS[number % len(DEPTHS)]
                row = _row(genomes[which], tokens, depth, edits, [seed, tokens, number])
                if row is None:
                    dropped["genome_too_short"] += 1
                    continue
                uid = f"{level}-{tokens}-{number:04d}"
                yield {"uid": uid, "level": level, "kingdom": groups[which], **row}


def _row(
    genome: Reference, tokens: int, depth: float, edits: int, seed: list[int]
) -> dict[str, Any] | None:
    random = np.random.default_rng(seed)
    body_bp = K * (tokens - 1) - KEY_BP - VALUE_BP
    hay = haystack(genome, body_bp, random, stitched=tokens > _CONTIGUOUS_TOKENS)
    if hay is None:
        return None
    for _ in range(_TRIES):
        key, value = _random_bases(KEY_BP, random), _random_bases(VALUE_BP, random)
        among = np.random.default_rng([*seed, edits])
        needles = Needles(key, value, distractors(key, edits, among) if edits else ())
        starts = slots(body_bp, depth, len(needles.distractors), among)
        body = hidden(hay, needles, starts)
        if body.count(key) == 1 and body.count(value) == 1:
            break
    prompt = body + key
    return {
        "prompt": prompt,
        "key": key,
        "value": value,
        "value_len_bp": VALUE_BP,
        "positive_sequence": prompt + value,
        "negative_sequence": prompt + changed(value, range(VALUE_BP), random),
        "context_length_tokens": tokens,
        "depth": depth,
        "distractor_keys": [other for other, _ in needles.distractors],
        "needle_starts": starts,
    }


def haystack(genome: Reference, length_bp: int, random: Generator, *, stitched: bool) -> str | None:
    """Return known bases of a genome, from a place that is drawn; None where there are too few.

    Args:
        genome: to take them from.
        length_bp: how many.
        random: of the place.
        stitched: join runs of known bases, over ends of contigs; else take one stretch.
    """
    if stitched:
        return _stitched(genome, length_bp, random)
    lengths_bp = np.array(list(genome.contig_lengths_bp.values()))
    places = np.maximum(lengths_bp - length_bp + 1, 0)
    ends = np.cumsum(places)
    for _ in range(_TRIES if ends[-1] else 0):
        place = int(random.integers(ends[-1]))
        which = int(np.searchsorted(ends, place, side="right"))
        start = place - int(ends[which] - places[which])
        contig = list(genome.contig_lengths_bp)[which]
        bases = genome.fetch(Interval(contig, start, start + length_bp)).upper()
        if set(bases) <= set("ACGT"):
            return bases
    return None


def _stitched(genome: Reference, length_bp: int, random: Generator) -> str | None:
    """Join runs from a contig that is drawn on, each contig once, as many as are needed."""
    contigs = list(genome.contig_lengths_bp.items())
    first = int(random.integers(len(contigs)))
    joined, joined_bp = [], 0
    for contig, contig_bp in contigs[first:] + contigs[:first]:
        bases = genome.fetch(Interval(contig, 0, contig_bp)).upper()
        for run in re.findall(f"[ACGT]{{{_SHORTEST_RUN_BP},}}", bases):
            joined.append(run)
            joined_bp += len(run)
            if joined_bp >= length_bp:
                offset = int(random.integers(joined_bp - length_bp + 1))
                return "".join(joined)[offset : offset + length_bp]
    return None


def slots(body_bp: int, depth: float, num_distractors: int, random: Generator) -> list[int]:
    """Return where needles begin, the key's own first: whole 6-mers, none over another.

    The key's is the nearest to `depth` of the body; the others are drawn.
    """
    last = (body_bp - NEEDLE_BP) // K
    starts = [K * min(round(depth * body_bp / K), last)]
    while len(starts) <= num_distractors:
        start = K * int(random.integers(last + 1))
        if all(abs(start - other) >= NEEDLE_BP for other in starts):
            starts.append(start)
    return starts


def hidden(hay: str, needles: Needles, starts: Sequence[int]) -> str:
    """Return a body as long as the haystack, with needles at their starts.

    They are inserted: the haystack continues after each, and its end is left out.
    """
    pairs = [(needles.key, needles.value), *needles.distractors]
    at_start: Mapping[int, str] = {
        start: key + value for start, (key, value) in zip(starts, pairs, strict=True)
    }
    parts, length_bp, used_bp = [], 0, 0
    for start in sorted(at_start):
        piece = hay[used_bp : used_bp + start - length_bp]
        parts += [piece, at_start[start]]
        used_bp += len(piece)
        length_bp = start + NEEDLE_BP
    return "".join([*parts, hay[used_bp : used_bp + len(hay) - length_bp]])


def distractors(key: str, edits: int, random: Generator) -> tuple[tuple[str, str], ...]:
    """Return eight different keys, each with this many bases other than `key`, and their values."""
    found: dict[str, str] = {}
    while len(found) < NUM_DISTRACTORS:
        places = random.permutation(KEY_BP)[:edits]
        found.setdefault(changed(key, places, random), _random_bases(VALUE_BP, random))
    return tuple(found.items())


def changed(sequence: str, places: Any, random: Generator) -> str:
    """Return a sequence with another base, drawn, at each of some places."""
    codes = np.searchsorted(_BASES, np.frombuffer(sequence.encode(), np.uint8))
    places = np.asarray(places, dtype=np.int64)
    codes[places] = (codes[places] + random.integers(1, 4, size=len(places))) % 4
    return bytes(_BASES[codes]).decode()


def _random_bases(length_bp: int, random: Generator) -> str:
    return bytes(_BASES[random.integers(4, size=length_bp)]).decode()
