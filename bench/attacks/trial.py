"""One attack in a process of its own, and what is to be said of how it ended."""

import json
import os
import re
import resource
import select
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from attacks.doors import Main
from carbon.io.files import TEMPORARY

MOST_BYTES = 12 << 30
_LEFTOVER = re.compile(rf"{TEMPORARY.pattern}|.*\.partial")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attack ended.

    Attributes:
        verdict: `done` (exit 0, the output is whole), `told` (exit 2, or 1 for the machine's
            fault, and one line), or in capitals what should not be.
        line: the last line on stderr.
        seconds: of the process's life.
        peak_mib: its largest resident memory, what it began with included.
    """

    verdict: str
    line: str
    seconds: float
    peak_mib: float


def attack(main: Main, words: list[str], work: Path, limit_seconds: float) -> Outcome:
    """Run a command as a copy of this process, which has imported everything already."""
    began = time.monotonic()
    said = work.with_suffix(".stderr")
    child = os.fork()
    if child == 0:
        _become(main, words, said)
    seconds, status, peak_mib = _wait(child, began, limit_seconds)
    text = said.read_bytes().decode("utf-8", "replace")
    said.unlink()
    lines = text.splitlines() or [""]
    vcf = Path(words[words.index("--vcf") + 1]) if "--vcf" in words else None
    return Outcome(_verdict(status, lines, work, vcf), lines[-1][:300], seconds, peak_mib)


def _become(main: Main, words: list[str], said: Path) -> None:
    """Run the command and leave; never returns."""
    code = 70
    try:
        with said.open("wb") as sink, open(os.devnull, "r+b") as nothing:
            os.dup2(nothing.fileno(), 0)
            os.dup2(nothing.fileno(), 1)
            os.dup2(sink.fileno(), 2)
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        code = main(words) or 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else 0 if left.code is None else 1
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or 1
        os._exit(code)


def _wait(child: int, began: float, limit_seconds: float) -> tuple[float, int | None, float]:
    """Wait for a child; return its seconds, its status or None if it was slow, and its peak."""
    watched = os.pidfd_open(child)
    ended, _, _ = select.select([watched], [], [], limit_seconds)
    os.close(watched)
    if not ended:
        os.kill(child, 9)
    _, status, used = os.wait4(child, 0)
    return time.monotonic() - began, status if ended else None, used.ru_maxrss / 1024


def _verdict(status: int | None, lines: list[str], work: Path, vcf: Path | None) -> str:
    if status is None:
        return "SLOW"
    if os.WIFSIGNALED(status):
        return f"CRASH by signal {os.WTERMSIG(status)}"
    if any(line.startswith("Traceback (most recent call last)") for line in lines):
        return "TRACEBACK"
    code = os.WEXITSTATUS(status)
    left = [path.name for path in work.rglob("*")]
    if any(_LEFTOVER.match(name) for name in left):
        return "LEFTOVERS"
    if code == 0:
        return _checked(work, vcf)
    if any(name.startswith("out.") for name in left):
        return "HALF WRITTEN"
    errors = [line for line in lines if re.match(r"([\w. -]+: )?error: ", line)]
    if code not in (1, 2):
        return f"EXIT CODE {code}"
    return "told" if len(errors) == 1 and lines[-1] == errors[0] else "NOT ONE LINE"


def _checked(work: Path, vcf: Path | None) -> str:
    """Read back what a command that succeeded has written.

    A VCF is written as it was read: where htslib cannot read the input, nor can it the output.
    """
    try:
        for path in work.glob("out.*"):
            if path.suffix == ".json":
                json.loads(path.read_text(encoding="utf-8"), parse_constant=_refused)
            elif path.suffixes[-2:] == [".vcf", ".gz"] or path.suffix == ".vcf":
                _compare_vcf(path, vcf)
            elif path.suffix == ".bw":
                _read_bigwig(path)
    except (ValueError, OSError, RuntimeError) as error:
        return f"BROKEN OUTPUT: {error}"
    return "done"


def _refused(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _compare_vcf(path: Path, given: Path | None) -> None:
    try:
        _read_vcf(path)
    except (ValueError, OSError):
        if given is None or _is_read(given):
            raise


def _is_read(vcf: Path) -> bool:
    try:
        _read_vcf(vcf)
    except (ValueError, OSError):
        return False
    return True


def _read_vcf(path: Path) -> None:
    import pysam

    with pysam.VariantFile(str(path)) as records:
        for record in records:
            dict(record.info)


def _read_bigwig(path: Path) -> None:
    import pyBigWig

    with pyBigWig.open(str(path)) as track:
        for contig, length_bp in (track.chroms() or {}).items():
            track.stats(contig, 0, length_bp, type="max", exact=True)
