"""A job as blocks: by one process through a journal, by many through a folder of files.

What a block gives follows from the block and the job alone, so that it does not matter who does it,
nor if it is done twice. One process writes the output, in the order of the input, when every block
is there.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Generic, TypeVar

from carbon.blocks.crew import Crew
from carbon.blocks.folder import BlockFolder, Plan
from carbon.blocks.journal import Journal, refuse_journal
from carbon.console import progress, say

B = TypeVar("B", bound=Sequence[Any])
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Work(Generic[B]):
    """A job as blocks.

    Attributes:
        what: is done, as progress tells it.
        output: to write; the journal or the folder of blocks lies beside it.
        job: everything that the blocks follow from.
        check: reads all the input, so that a bad end is known first, and counts the records.
        blocks: the records in order, cut; the same at every call.
        block_records: of a block, at most.
        even: whether every block but the last has so many.
        compute: from a block to what JSON holds.
        resume: go on with what an earlier run left.
    """

    what: str
    output: Path
    job: dict[str, Any]
    check: Callable[[], int]
    blocks: Callable[[], Iterator[B]]
    block_records: int
    even: bool
    compute: Callable[[B], Any]
    resume: bool

    def plan(self) -> Plan:
        """Count what there is to do."""
        num_records = self.check()
        if self.even:
            return Plan(num_records, -(-num_records // self.block_records))
        return Plan(num_records, sum(1 for _ in self.blocks()))


Results = Iterator[tuple[B, Any]]
"""Every block, in order, with what its `compute` gave."""


def is_shared(crew: Crew | None, output: Path) -> bool:
    """Return whether an output is made of files of blocks: by a crew, or by one after a crew."""
    return crew is not None or BlockFolder(output, {}).is_begun()


def run_work(work: Work[B], crew: Crew | None, write: Callable[[Results[B]], T]) -> T | None:
    """Have all blocks done, and written in order by one process.

    Args:
        work: to do.
        crew: the processes that share it; None for this one alone.
        write: writes the output.

    Returns:
        What `write` returns; None where another process writes.

    Raises:
        UserError: an earlier run is in the way, or was of another job.
    """
    folder = BlockFolder(work.output, work.job)
    if crew is None and folder.is_begun():
        crew = Crew()  # an earlier run was of many processes, and one may go on with it
    if crew is None:
        folder.forget_note()
        return _alone(work, write)
    return _among_others(work, crew, folder, write)


def _alone(work: Work[B], write: Callable[[Results[B]], T]) -> T:
    num_records = work.check()
    journal = Journal(work.output, work.job, resume=work.resume)
    done = min(journal.num_blocks * work.block_records, num_records)
    try:
        with progress(work.what, num_records, done) as advance:
            written = write(_through_journal(work, journal, advance))
    except BaseException:
        journal.say_what_is_kept()
        raise
    journal.remove()
    return written


def _through_journal(work: Work[B], journal: Journal, advance: Callable[[int], None]) -> Results[B]:
    earlier = journal.kept()
    for block in work.blocks():
        kept = next(earlier, None)
        if kept is not None:
            yield block, kept
            continue
        computed = work.compute(block)
        journal.add(computed)
        yield block, computed
        advance(len(block))


def _among_others(
    work: Work[B], crew: Crew, folder: BlockFolder, write: Callable[[Results[B]], T]
) -> T | None:
    refuse_journal(work.output)
    plan = _begun(work, crew, folder)
    try:
        while plan is not None:
            _take_part(work, crew, folder, plan)
            if crew.is_child or folder.is_whole():
                return None
            with folder.claim("merge") as is_ours:
                if is_ours and not folder.is_whole():
                    if num_damaged := folder.remove_damaged(plan):
                        say(f"{folder.path}: {num_damaged} damaged files of blocks are done again")
                        continue
                    crew.dismiss()
                    written = write(zip(work.blocks(), folder.results(plan), strict=True))
                    folder.finish(note=crew.is_launched)
                    return written
            crew.wait()
    except BaseException:
        if crew.shows and folder.is_begun():
            say(f"what is done is kept in {folder.path}; go on with --resume")
        raise
    return None


def _begun(work: Work[B], crew: Crew, folder: BlockFolder) -> Plan | None:
    """Return the plan of the job, begun by us or another; None if the output is whole already."""
    while True:
        if crew.is_launched and folder.is_whole():
            say(f"{work.output}: is whole already; remove the file to write it anew")
            return None
        if not crew.is_child or folder.is_begun():
            plan = folder.begin(work.plan, crew.launch, resume=work.resume)
            if plan is not None:
                return plan
        crew.wait()


def _take_part(work: Work[B], crew: Crew, folder: BlockFolder, plan: Plan) -> None:
    """Do blocks that nobody is at until all are done, by whomever."""

    def num_done() -> int:
        num_files = plan.files - len(left)
        return min(work.block_records * plan.per_file * num_files, plan.records)

    left = folder.left(plan)
    shown = num_done()
    with crew.progress(work.what, plan.records, shown) as advance:
        while left:
            free = folder.free(left)
            for number, blocks in _parts(work, plan, free):
                crew.check()
                if not _done_by_us(work, folder, number, blocks):
                    continue
                left = folder.left(plan)
                advance(num_done() - shown)
                shown = num_done()
            if not free:
                crew.wait()
            left = folder.left(plan)
        advance(plan.records - shown)


def _done_by_us(work: Work[B], folder: BlockFolder, number: int, blocks: list[B]) -> bool:
    """Do the blocks of a file, and return True, unless another is at them or has done them."""
    if folder.is_done(number):
        return False
    with folder.claim(number) as is_ours:
        if not is_ours or folder.is_done(number) or folder.is_whole():
            return False
        folder.write(number, [work.compute(block) for block in blocks])
    return True


def _parts(work: Work[B], plan: Plan, wanted: Sequence[int]) -> Iterator[tuple[int, list[B]]]:
    """Yield the numbers of the files that are wanted, with their blocks."""
    if not wanted:
        return
    blocks, chosen = work.blocks(), set(wanted)
    for number in range(wanted[-1] + 1):
        some = list(islice(blocks, plan.per_file))
        if number in chosen:
            yield number, some
