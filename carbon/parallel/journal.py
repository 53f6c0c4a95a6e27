"""The journal of a job: a file next to the output with one line for each computed block.

Each line is JSON preceded by a checksum of all lines up to it. The first line holds all settings
that the results depend on. `add` returns when the line is on the disk. A torn last line is cut off
and its block computed again; any other damage is refused. The file is removed when the output is
complete.
"""

import fcntl
import json
import os
import stat
import zlib
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carbon.errors import UserError
from carbon.io.files import errors_naming, is_scratch
from carbon.io.structured import MAX_BYTES
from carbon.progress import say

_FORMAT = {"journal format": 2}  # format 1 had no block numbers
_SUM_BYTES = 9  # eight digits and a blank


def _written(checksum: int) -> bytes:
    return b"%08x " % checksum


def check_same_job(path: Path, earlier: dict[str, Any], job: dict[str, Any]) -> None:
    """Raise UserError, naming the differences, if an earlier run of another job used a path."""
    names = sorted(set(earlier) | set(job))
    if other := [name for name in names if earlier.get(name) != job.get(name)]:
        raise UserError(
            f"{path}: the earlier run differs in: {', '.join(other)}; give the same, or remove "
            f"the {'folder' if path.is_dir() else 'file'}"
        )


def journal_path(output: Path) -> Path:
    """Return the journal path of an output.

    >>> journal_path(Path("a/scores.tsv"))
    PosixPath('a/.scores.tsv.progress')
    """
    return output.with_name(f".{output.name}.progress")


class Journal:
    """The computed blocks of a job, as a context manager.

    At the end the file is removed. After an error it stays, unless no block is computed or the
    output is a scratch file, which no run can resume.

    Attributes:
        path: `.NAME.progress` next to the output NAME.
        num_blocks: number of blocks computed, by earlier runs and this one.
    """

    def __init__(self, output: Path, job: dict[str, Any], *, resume: bool) -> None:
        """Create a journal, or continue the journal of an earlier run.

        Args:
            output: file or folder that the job writes.
            job: all settings that the results depend on, as JSON.
            resume: continue an existing journal.

        Raises:
            UserError: a journal exists and `resume` is false; or it is of another job or format,
                damaged, or in use by another run.
        """
        self.path = journal_path(output)
        self._is_scratch = is_scratch(output)
        self.num_blocks = 0
        self._starts = array("q")  # byte at which the line of each block begins
        self._end = 0  # byte after the last line
        self._sum = 0
        self._job = json.loads(json.dumps(_FORMAT | job))
        self._file = self.path.open("a+b")
        if not stat.S_ISREG(os.fstat(self._file.fileno()).st_mode):
            raise UserError(f"{self.path}: is not a regular file; remove it")
        self._lock()
        if not self._read(resume):
            self._append(self._job)
        self._header_bytes = self._starts[0] if self._starts else self._end

    def _lock(self) -> None:
        """Lock out other runs until this process ends, even if it is killed."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = self.path.stat().st_ino == os.fstat(self._file.fileno()).st_ino
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        if not is_ours:
            raise UserError(f"{self.path}: another run is writing this output; wait for it")

    def blocks(self) -> Iterator[Any]:
        """Yield the blocks in the journal, in the order of their lines."""
        for place in range(self.num_blocks):
            yield self.read(place)

    def read(self, place: int) -> Any:
        """Return the block of a line; the first block has place 0."""
        self._file.seek(self._starts[place])
        return json.loads(self._file.readline()[_SUM_BYTES:])

    def add(self, *blocks: Any) -> None:
        """Write computed blocks to the disk, all by one fsync, or without for a scratch output."""
        self._starts.extend(self._append(*blocks))
        self.num_blocks += len(blocks)

    def __enter__(self) -> "Journal":
        """Return the journal."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the journal, and report how to continue if it stays."""
        # Ctrl-C may come after blocks are written, and before they are counted.
        if kind is None or self._is_scratch or self._end == self._header_bytes:
            self.path.unlink(missing_ok=True)
        else:
            say(f"progress is saved in {self.path}; continue with --resume")
        self._file.close()

    def _read(self, resume: bool) -> bool:
        """Find the complete lines and cut off a torn last one; return whether there is one.

        Nothing is cut off if there is any other damage.
        """
        whole_bytes, num_lines = 0, 0
        with self.path.open("rb") as source:
            # Only the first line has a limit: a block may hold all values of a chromosome.
            while line := source.readline(-1 if num_lines else MAX_BYTES):
                if len(line) == MAX_BYTES and not num_lines:
                    raise UserError(f"{self.path}: line 1 is too long; remove the file")
                if not line.endswith(b"\n"):
                    break
                content = line[_SUM_BYTES:-1]
                self._sum = zlib.crc32(content, self._sum)
                if line[:_SUM_BYTES] != _written(self._sum):
                    raise UserError(
                        f"{self.path}: is damaged, or of another version of Carbon; remove the "
                        "file, and give the command without --resume"
                    )
                if num_lines:
                    self._starts.append(whole_bytes)
                else:
                    self._check(json.loads(content), resume)
                whole_bytes += len(line)
                num_lines += 1
        os.truncate(self.path, whole_bytes)
        self._end = whole_bytes
        self.num_blocks = len(self._starts)
        return num_lines > 0

    def _check(self, earlier: Any, resume: bool) -> None:
        if not resume:
            raise UserError(
                f"{self.path}: an earlier run was stopped; continue with --resume, or remove it"
            )
        check_same_job(self.path, earlier, self._job)

    def _append(self, *contents: Any) -> list[int]:
        """Write lines, and return the byte at which each begins."""
        starts = []
        with errors_naming(self.path):  # for example a full disk
            for content in contents:
                line = json.dumps(content).encode()
                self._sum = zlib.crc32(line, self._sum)
                self._file.write(_written(self._sum) + line + b"\n")
                starts.append(self._end)
                self._end += _SUM_BYTES + len(line) + 1
            self._file.flush()
            if not self._is_scratch:
                os.fsync(self._file.fileno())
        return starts
