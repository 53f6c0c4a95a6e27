"""What may have happened to a file on its way: each takes its bytes and gives others."""

import gzip
from collections.abc import Callable
from random import Random

Mutation = Callable[[bytes, Random], bytes]

_GZIP = b"\x1f\x8b"
_ODD = (
    b"\x00",
    b"\xff",
    b"\r",
    b";",
    b"%",
    b",",
    b" ",
    b"\t",
    b"\xc3\xa9",
    b"#",
    b'"',
    b"-9",
    b"NaN",
)


def _whole(data: bytes, draw: Random) -> bytes:
    return data


def _empty(data: bytes, draw: Random) -> bytes:
    return b""


def _cut(data: bytes, draw: Random) -> bytes:
    return data[: draw.randrange(len(data) + 1)]


def _flipped_bytes(data: bytes, draw: Random) -> bytes:
    changed = bytearray(data)
    for _ in range(min(len(data), 8)):
        changed[draw.randrange(len(data))] = draw.randrange(256)
    return bytes(changed)


def _odd_insertions(data: bytes, draw: Random) -> bytes:
    for _ in range(4):
        place = draw.randrange(len(data) + 1)
        data = data[:place] + draw.choice(_ODD) + data[place:]
    return data


def _lines(change: Callable[[list[bytes], Random], list[bytes]]) -> Mutation:
    return lambda data, draw: b"".join(change(data.splitlines(keepends=True), draw))


def _repeated_line(lines: list[bytes], draw: Random) -> list[bytes]:
    place = draw.randrange(len(lines)) if lines else 0
    return lines[: place + 1] + lines[place:]


def _lost_line(lines: list[bytes], draw: Random) -> list[bytes]:
    place = draw.randrange(len(lines)) if lines else 0
    return lines[:place] + lines[place + 1 :]


def _swapped_lines(lines: list[bytes], draw: Random) -> list[bytes]:
    if len(lines) > 1:
        i, j = draw.sample(range(len(lines)), 2)
        lines[i], lines[j] = lines[j], lines[i]
    return lines


def _lost_column(lines: list[bytes], draw: Random) -> list[bytes]:
    if lines:
        place = draw.randrange(len(lines))
        columns = lines[place].split(b"\t")
        del columns[draw.randrange(len(columns))]
        lines[place] = b"\t".join(columns)
    return lines


def _huge_number(lines: list[bytes], draw: Random) -> list[bytes]:
    if lines:
        place = draw.randrange(len(lines))
        columns = lines[place].split(b"\t")
        columns[draw.randrange(len(columns))] = str(draw.choice((2**31 - 1, 2**63, -1))).encode()
        lines[place] = b"\t".join(columns)
    return lines


MUTATIONS: dict[str, Mutation] = {
    "whole": _whole,
    "empty": _empty,
    "cut": _cut,
    "flipped bytes": _flipped_bytes,
    "odd insertions": _odd_insertions,
    "a line twice": _lines(_repeated_line),
    "a line lost": _lines(_lost_line),
    "lines swapped": _lines(_swapped_lines),
    "a column lost": _lines(_lost_column),
    "a huge number": _lines(_huge_number),
    "CRLF": lambda data, draw: data.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"),
    "lone CR": lambda data, draw: data.replace(b"\n", b"\r"),
    "byte-order mark": lambda data, draw: b"\xef\xbb\xbf" + data,
    "UTF-16": lambda data, draw: data.decode("latin-1").encode("utf-16"),
    "lower case": lambda data, draw: data.lower(),
    "no final newline": lambda data, draw: data.rstrip(b"\n"),
    "nested deep": lambda data, draw: b"[" * 10_000 + data,
    "all one line": lambda data, draw: data.replace(b"\n", b""),
}


def mutate(name: str, data: bytes, draw: Random) -> bytes:
    """Damage the text of a file, inside its gzip and outside by turns."""
    if not data.startswith(_GZIP) or draw.random() < 0.3:
        return MUTATIONS[name](data, draw)
    return gzip.compress(MUTATIONS[name](gzip.decompress(data), draw), mtime=0)
