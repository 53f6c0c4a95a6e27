"""Encoding and decoding in bases per second, compared with simple Python code and memcpy."""

import itertools
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial

import numpy as np
from measure import PEAK, Measure
from timing import seconds
from tokenizers import Tokenizer

from carbon.tokenizer import decode, encode, encode_batch, encode_kmers, save_stock_tokenizer


def measures(quick: bool) -> list[Measure]:
    size = 6_000_000 if quick else 48_000_000
    letters = np.random.default_rng(0).choice(np.frombuffer(b"ACGT", dtype=np.uint8), size)
    data = letters.tobytes()
    text = data.decode()
    encoding = encode(data)
    some = text[: size // 50]
    reads = [data[at : at + 150] for at in range(0, size // 10, 150)]
    few = [text[at : at + 6_000] for at in range(0, 60_000, 6_000)]
    with tempfile.TemporaryDirectory() as folder:
        save_stock_tokenizer(folder)
        stock = Tokenizer.from_file(f"{folder}/tokenizer.json")

    def speed(bases: int, work: Callable[[], object]) -> float:
        return bases / seconds(work, 3) / 1e6

    encoded = speed(size, lambda: encode(data))
    of_str, of_numpy = (speed(size, partial(encode, form)) for form in (text, letters))
    decoded = speed(size, lambda: decode(encoding))
    loop = speed(len(some), lambda: _encode_by_loop(some))
    bare = speed(len(some), lambda: [_INDEX[some[i : i + 6]] for i in range(0, len(some) - 5, 6)])
    word_level = speed(60_000, lambda: [stock.encode(part) for part in few])
    peaks = [_peak_of_streaming(bases) for bases in (20_000_000, 200_000_000)]
    growth = peaks[1] / peaks[0]
    return [
        Measure("encode_bytes", encoded, "MB/s", 300, encoded >= 300),
        Measure("encode_str", of_str, "MB/s", 300, of_str >= 300),
        Measure("encode_numpy", of_numpy, "MB/s", 300, of_numpy >= 300),
        Measure("kmers_alone", speed(size, lambda: encode_kmers(data)), "MB/s"),
        Measure("decode", decoded, "MB/s", 300, decoded >= 300),
        Measure("batch_of_150_bp", speed(150 * len(reads), lambda: encode_batch(reads)), "MB/s"),
        Measure("loop_over_chunks", loop, "MB/s"),
        Measure("encode_against_loop", encoded / loop, "times", 50, encoded >= 50 * loop),
        Measure("bare_dictionary_loop", bare, "MB/s"),
        Measure("word_level_of_tokenizers", word_level, "MB/s"),
        Measure("memcpy", speed(size, letters.copy), "MB/s"),
        Measure("tokenize_peak_at_200_Mbp", peaks[1] / 2**20, "MiB"),
        Measure("peak_at_200_against_20_Mbp", growth, "times", 1.1, growth <= 1.1),
    ]


_INDEX = {"".join(bases): i for i, bases in enumerate(itertools.product("ATCG", repeat=6))}


def _encode_by_loop(text: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Do for each chunk what `encode` gives: its id, its 6-mer and its mask, as arrays."""
    ids, kmers, known = [], [], []
    for at in range(0, len(text), 6):
        chunk = text[at : at + 6].upper()
        index = _INDEX.get(chunk.ljust(6, "A"))
        ids.append(1 if index is None else index + 128)
        kmers.append(index or 0)
        known.append(0 if index is None else (1 << len(chunk)) - 1)
    return np.array(ids), np.array(kmers), np.array(known, dtype=np.uint8)


def _peak_of_streaming(bases: int) -> int:
    """Return the peak of resident memory of `carbon tokenize` on one contig of one line."""
    code = (
        f"{PEAK}import sys; from carbon.cli import main; sys.stdout = open('/dev/null', 'w')\n"
        "main(['tokenize'])\n"
        "print(peak(), file=sys.__stdout__)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b">contig\n")
    block = np.random.default_rng(0).choice(np.frombuffer(b"ACGT", dtype=np.uint8), 1_000_000)
    for _ in range(bases // len(block)):
        process.stdin.write(block.tobytes())
    process.stdin.close()
    return int(process.stdout.read())
