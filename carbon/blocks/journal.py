"""What a long job has done so far, so that one that was killed goes on where it stopped.

A file of lines beside the output: what is being done, then a line for each block of work, in JSON
behind a checksum of it and of all lines before. A block is on the disk before the next begins; a
last line that is torn is cut off, and any other damage is told. The file goes when the output is
whole.
"""

import fcntl
import json
import os
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from carbon.console import say
from carbon.errors import UserError

_SUM_BYTES = 9  # eight digits and a blank


def _written(checksum: int) -> bytes:
    return b"%08x " % checksum


def refuse_journal(output: Path) -> None:
    """Raise UserError if one process has left a journal, and many are to write the output."""
    if (path := _path_of(output)).exists():
        raise UserError(
            f"{path}: an earlier run of one process was stopped, or is still going on; go on with "
            "--resume --processes 1, or remove the file"
        )


def check_same_job(path: Path, earlier: dict[str, Any], job: dict[str, Any]) -> None:
    """Raise UserError, naming what differs, if an earlier run has left another job at a path."""
    names = sorted(set(earlier) | set(job))
    if other := [name for name in names if earlier.get(name) != job.get(name)]:
        raise UserError(
            f"{path}: the earlier run differs in: {', '.join(other)}; give the same, or remove "
            f"the {'folder' if path.is_dir() else 'file'}"
        )


def _path_of(output: Path) -> Path:
    return output.with_name(f".{output.name}.progress")


class Journal:
    """The blocks of a job that are done.

    Attributes:
        path: `.NAME.progress` beside the output of that name.
        num_blocks: how many are done, before and now.
    """

    def __init__(self, output: Path, job: dict[str, Any], *, resume: bool) -> None:
        """Begin a journal, or go on with the one that an earlier run left.

        Args:
            output: what the job writes in the end.
            job: everything that the blocks follow from.
            resume: go on with what is there.

        Raises:
            UserError: there is a journal and no wish to resume, or it is of another job, or it is
                damaged.
        """
        self.path = _path_of(output)
        self.num_blocks = 0
        self._sum = 0
        self._job = json.loads(json.dumps(job))
        self._file = self.path.open("a+b")
        self._lock()
        if not self._read(resume):
            self._append(self._job)

    def _lock(self) -> None:
        """Keep others off until this process ends, however it ends."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_ours = self.path.stat().st_ino == os.fstat(self._file.fileno()).st_ino
        except (BlockingIOError, FileNotFoundError):
            is_ours = False
        if not is_ours:
            raise UserError(f"{self.path}: another run is writing this output; wait for it")

    def kept(self) -> Iterator[Any]:
        """Yield the blocks that an earlier run has left, in order."""
        num_kept = self.num_blocks
        with self.path.open("rb") as source:
            source.readline()
            for _ in range(num_kept):
                yield json.loads(source.readline()[_SUM_BYTES:])

    def add(self, block: Any) -> None:
        """Keep a block that is done."""
        self._append(block)
        self.num_blocks += 1

    def remove(self) -> None:
        """Forget it all: the output is whole."""
        self.path.unlink()
        self._file.close()

    def say_what_is_kept(self) -> None:
        """Tell how to go on, if there is anything to go on with."""
        if self.num_blocks:
            say(f"what is done is kept in {self.path}; go on with --resume")
        else:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _read(self, resume: bool) -> bool:
        """Count the blocks that are whole and cut off a torn last one; tell if the first line is.

        Nothing is cut off where anything else is wrong.
        """
        whole_bytes, num_lines = 0, 0
        with self.path.open("rb") as source:
            for line in source:
                if not line.endswith(b"\n"):
                    break
                content = line[_SUM_BYTES:-1]
                self._sum = zlib.crc32(content, self._sum)
                if line[:_SUM_BYTES] != _written(self._sum):
                    raise UserError(
                        f"{self.path}: is damaged, or of another version of Carbon; remove the "
                        "file, and give the command without --resume"
                    )
                if not num_lines:
                    self._check(json.loads(content), resume)
                whole_bytes += len(line)
                num_lines += 1
        os.truncate(self.path, whole_bytes)
        self.num_blocks = max(num_lines - 1, 0)
        return num_lines > 0

    def _check(self, there: Any, resume: bool) -> None:
        if not resume:
            raise UserError(
                f"{self.path}: an earlier run was stopped; go on with --resume, or remove the file"
            )
        check_same_job(self.path, there, self._job)

    def _append(self, content: Any) -> None:
        line = json.dumps(content).encode()
        self._sum = zlib.crc32(line, self._sum)
        self._file.write(_written(self._sum) + line + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())
