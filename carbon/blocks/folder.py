"""The folder beside an output that many processes write: what is being done, and a file a block.

`job.json` has everything that the blocks follow from, as the first line of a journal has. A file of
blocks is one line of JSON behind a checksum of it, of the job and of its number, and has its name
when it is whole: what is torn, damaged, of another place or of another job does not count, and its
blocks are done again.
"""

import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, NamedTuple

from carbon.blocks.claims import claimed, is_held
from carbon.blocks.journal import check_same_job
from carbon.errors import UserError
from carbon.files import MACHINE, check_parent, stamp_of, told_of

MOST_FILES = 2**14
"""Of a job: with more blocks than that, a file has several, which one process takes together."""

_SUM_BYTES = 9  # eight digits and a blank
_JOB, _ENDING, _CLAIM = "job.json", ".block", ".claim"


class Plan(NamedTuple):
    """How much there is to do.

    Attributes:
        records: in all.
        blocks: that they are cut into.
    """

    records: int
    blocks: int

    @property
    def per_file(self) -> int:
        """How many blocks a file has; the last may have fewer."""
        return max(1, -(-self.blocks // MOST_FILES))

    @property
    def files(self) -> int:
        """How many files of blocks there will be."""
        return -(-self.blocks // self.per_file)


class BlockFolder:
    """The blocks of a job that are done, by whomever.

    Attributes:
        path: `.NAME.blocks` beside the output of that name.
    """

    def __init__(self, output: Path, job: dict[str, Any]) -> None:
        """Name the folder of an output, and everything that its blocks follow from."""
        self.path = output.with_name(f".{output.name}.blocks")
        self._output = output
        self._job = json.loads(json.dumps(job))
        self._sum = zlib.crc32(json.dumps(self._job, sort_keys=True).encode())

    def is_begun(self) -> bool:
        """Return whether there is a job, of ours or another, whose output is not whole."""
        there = self._read_job()
        return there is not None and "whole" not in there

    def is_whole(self) -> bool:
        """Return whether the output is whole, and of this job."""
        there = self._read_job() or {}
        stamp = self._stamp()
        return stamp is not None and (there.get("job"), there.get("whole")) == (self._job, stamp)

    def forget_note(self) -> None:
        """Remove what was noted of an output, if it was whole."""
        if "whole" in (self._read_job() or {}):
            self._remove()

    def begin(self, plan: Callable[[], Plan], launch: str, *, resume: bool) -> Plan | None:
        """Begin the job, or take part in one that has begun; None if another is about to begin it.

        Args:
            plan: counts what there is to do; called by the one who begins.
            launch: those who were started together have one name.
            resume: go on with what another launch has left.

        Raises:
            UserError: there is a job of another launch and no wish to resume, or it is another job,
                or the output has no folder to lie in.
        """
        if self.is_begun():
            return self._joined(launch, resume)
        check_parent(self._output)
        self.path.mkdir(exist_ok=True)
        try:
            with claimed(self.path / f"job{_CLAIM}") as is_ours:
                if is_ours and not self.is_begun():
                    self._remove_blocks()
                    self._write_job({"launch": launch, "plan": plan()})
        except BaseException:
            with suppress(OSError):
                self.path.rmdir()  # if there is nothing in it
            raise
        return self._joined(launch, resume) if self.is_begun() else None

    def claim(self, number: int | str) -> AbstractContextManager[bool]:
        """Yield whether the blocks of a file, or `merge`, are ours to do."""
        return claimed(self._claim_path(number))

    def is_done(self, number: int) -> bool:
        """Return whether there is a file of blocks."""
        return self._block_path(number).exists()

    def left(self, plan: Plan) -> list[int]:
        """Return the numbers of the files that are to be done, in order; none if all is written."""
        there = {entry.name for entry in os.scandir(self.path)}
        left = [n for n in range(plan.files) if self._block_path(n).name not in there]
        # Blocks are removed when it has been noted that the output is whole.
        return [] if left and self.is_whole() else left

    def free(self, numbers: Iterable[int]) -> list[int]:
        """Return those of some files that nobody is at."""
        there = {entry.name for entry in os.scandir(self.path)}
        paths = {number: self._claim_path(number) for number in numbers}
        return [n for n, path in paths.items() if path.name not in there or not is_held(path)]

    def write(self, number: int, results: list[Any]) -> None:
        """Write a file of blocks; it is on the disk, and whole, when it has its name."""
        content = json.dumps(results).encode()
        line = b"%08x %b\n" % (self._sum_of(number, content), content)
        self._write(self._block_path(number), line)

    def read(self, number: int) -> list[Any]:
        """Return what a file of blocks has.

        Raises:
            UserError: it is not there, or not whole.
        """
        path = self._block_path(number)
        try:
            line = path.read_bytes()
        except FileNotFoundError:
            raise UserError(
                f"{path}: is missing, and nothing is written without; go on with --resume"
            ) from None
        content = line[_SUM_BYTES:-1]
        if line != b"%08x %b\n" % (self._sum_of(number, content), content):
            raise UserError(f"{path}: is damaged; go on with --resume, and it is done again")
        return json.loads(content)  # type: ignore[no-any-return]

    def remove_damaged(self, plan: Plan) -> int:
        """Remove what is not whole of what is there; return how many files that were."""
        num_removed = 0
        for number in range(plan.files):
            try:
                self.read(number)
            except UserError:
                num_removed += self.is_done(number)
                self._block_path(number).unlink(missing_ok=True)
        return num_removed

    def results(self, plan: Plan) -> Iterator[Any]:
        """Yield the result of every block, in order.

        Raises:
            UserError: one is missing or damaged.
        """
        for number in range(plan.files):
            yield from self.read(number)

    def finish(self, *, note: bool) -> None:
        """Forget the blocks: the output is whole, which a note tells whoever comes late."""
        if not note:
            return self._remove()
        there = self._read_job() or {}
        self._write_job({"launch": there.get("launch"), "whole": self._stamp()})
        self._remove_blocks()

    def _remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)

    def _joined(self, launch: str, resume: bool) -> Plan:
        there = self._read_job() or {}
        if there["launch"] != launch and not resume:
            raise UserError(
                f"{self.path}: an earlier run was stopped, or is still going on; go on with "
                "--resume, or remove the folder"
            )
        check_same_job(self.path, there["job"], self._job)
        return Plan(*there["plan"])

    def _read_job(self) -> dict[str, Any] | None:
        try:
            line = (self.path / _JOB).read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            return None
        content = line[_SUM_BYTES:-1]
        if line != b"%08x %b\n" % (zlib.crc32(content), content):
            raise UserError(f"{self.path / _JOB}: is damaged; remove the folder")
        return json.loads(content)  # type: ignore[no-any-return]

    def _write_job(self, about: dict[str, Any]) -> None:
        content = json.dumps({"job": self._job, **about}).encode()
        self._write(self.path / _JOB, b"%08x %b\n" % (zlib.crc32(content), content))

    def _write(self, path: Path, content: bytes) -> None:
        temporary = path.with_name(f".{os.getpid()}-{MACHINE}.{path.name}")
        try:
            with told_of(path, temporary), temporary.open("wb") as sink:
                sink.write(content)
                sink.flush()
                os.fsync(sink.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)

    def _remove_blocks(self) -> None:
        for path in self.path.glob(f"*{_ENDING}"):
            path.unlink(missing_ok=True)

    def _stamp(self) -> list[int] | None:
        with suppress(FileNotFoundError):
            return stamp_of(self._output)
        return None

    def _sum_of(self, number: int, content: bytes) -> int:
        return zlib.crc32(content, zlib.crc32(b"%d" % number, self._sum))

    def _block_path(self, number: int) -> Path:
        return self.path / f"{number:05d}{_ENDING}"

    def _claim_path(self, number: int | str) -> Path:
        name = f"{number:05d}" if isinstance(number, int) else number
        return self.path / f"{name}{_CLAIM}"
