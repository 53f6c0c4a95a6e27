"""Encoding and decoding in bases per second, compared with a Python loop; memory of a stream."""

import itertools
import os
import threading
from collections.abc import Callable
from contextlib import redirect_stdout
from functools import partial
from pathlib import Path

import numpy as np
from measure import Measure, at_least, at_most, in_own_process, seconds

from carbon.tokenizer import decode, encode

_LETTERS = np.frombuffer(b"ACGT", dtype=np.uint8)
_INDEX = {"".join(bases): i for i, bases in enumerate(itertools.product("ATCG", repeat=6))}


def measures(quick: bool) -> list[Measure]:
    size = 6_000_000 if quick else 48_000_000
    letters = np.random.default_rng(0).choice(_LETTERS, size)
    data = letters.tobytes()
    text = data.decode()
    some = text[: size // 50]
    encoding = encode(data)

    def speed(bases: int, work: Callable[[], object]) -> float:
        return bases / seconds(work, 3) / 1e6

    loop = speed(len(some), lambda: encode_by_loop(some))
    encoded = speed(size, lambda: encode(data))
    peaks = [
        in_own_process("packages.tokenizer", f"tokenize_stream({bases})").peak_bytes
        for bases in (20_000_000, 200_000_000)
    ]
    return [
        at_least("encode_bytes", encoded, "MB/s", 300),
        at_least("encode_str", speed(size, partial(encode, text)), "MB/s", 300),
        at_least("encode_numpy", speed(size, partial(encode, letters)), "MB/s", 300),
        at_least("decode", speed(size, lambda: decode(encoding)), "MB/s", 300),
        Measure("loop_over_chunks", loop, "MB/s"),
        at_least("encode_against_loop", encoded / loop, "times", 50),
        Measure("tokenize_peak_at_200_Mbp", peaks[1] / 2**20, "MiB"),
        at_most("peak_at_200_against_20_Mbp", peaks[1] / peaks[0], "times", 1.1),
    ]


def encode_by_loop(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Do for each chunk what `encode` gives: its id, its 6-mer and its mask, as arrays."""
    ids, kmers, known = [], [], []
    for at in range(0, len(text), 6):
        chunk = text[at : at + 6].upper()
        index = _INDEX.get(chunk.ljust(6, "A"))
        ids.append(1 if index is None else index + 128)
        kmers.append(index or 0)
        known.append(0 if index is None else (1 << len(chunk)) - 1)
    return np.array(ids), np.array(kmers), np.array(known, dtype=np.uint8)


def tokenize_stream(bases: int) -> None:
    """Run `carbon tokenize` on one contig of one line, from a pipe."""
    from carbon.cli import main

    reader, writer = os.pipe()
    os.dup2(reader, 0)
    block = np.random.default_rng(0).choice(_LETTERS, 1_000_000).tobytes()

    def write() -> None:
        with open(writer, "wb") as sink:
            sink.write(b">contig\n")
            for _ in range(bases // len(block)):
                sink.write(block)

    threading.Thread(target=write).start()
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
        main(["tokenize"])
