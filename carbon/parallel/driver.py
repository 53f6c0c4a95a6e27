"""The driver: reads input, distributes blocks, journals results, writes them in input order.

The result of a block depends only on the block and the job, so any worker may compute it, even
twice. Early results wait in the journal, not in memory.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from carbon.errors import UserError
from carbon.parallel.engines import MOST_IN_FLIGHT, Answer, Engine, Failure, InProcess
from carbon.parallel.journal import Journal
from carbon.progress import progress, say

B = TypeVar("B", bound=Sequence[Any])
T = TypeVar("T")

MOST_DEATHS = 3
"""Maximum deaths of workers on one block, and of one worker during its start."""
_SECONDS = 0.5  # of one wait for events
_SECONDS_OF_SILENCE = 30.0  # before the driver reports that no worker is up


@dataclass(frozen=True, kw_only=True, slots=True)
class Job(Generic[B]):
    """A job as blocks of records.

    Attributes:
        description: description of the work, for progress.
        output: file or folder to write; the journal is next to it.
        settings: all settings that the results depend on, as JSON.
        check: reads the whole input, so that errors in its last record are reported first; returns
            the number of records.
        blocks: yields the records in order, in blocks; the same at every call.
        payload: function from a block to the part that a worker gets.
        needed: whether the result of a block is needed; otherwise it is None.
        source: source of the records, for messages.
        records: plural noun for the records, for messages.
        name: function from a block to its name, for messages; by default source, `records` and
            their numbers.
    """

    description: str
    output: Path
    settings: dict[str, Any]
    check: Callable[[], int]
    blocks: Callable[[], Iterator[B]]
    payload: Callable[[B], Any] = lambda block: block
    needed: Callable[[B], bool] = lambda block: True
    source: str = ""
    records: str = "records"
    name: Callable[[B], str] | None = None


Results = Iterator[tuple[B, Any]]
"""Every block, in input order, with its result as JSON."""


class Block(NamedTuple):
    """A block for a worker.

    Attributes:
        number: from 0, in input order.
        name: name of its records, for messages.
        payload: the part that the worker gets.
    """

    number: int
    name: str
    payload: Any


def run_job(job: Job[B], workers: "Workers", write: Callable[[Results[B]], T]) -> T:
    """Compute all blocks by workers, and write the results in input order.

    Args:
        job: the job.
        workers: workers that compute it.
        write: takes the results and writes the output.

    Returns:
        The return value of `write`.

    Raises:
        UserError: the input is invalid; a journal exists or has another job; three workers died on
            one block.
    """
    num_records = job.check()
    with Journal(job.output, job.settings, resume=workers.resume) as journal:
        places = {number: place for place, (number, _) in enumerate(journal.blocks())}
        computed = (block for n, block in enumerate(job.blocks()) if n in places)
        num_done = sum(map(len, computed)) if places else 0  # reads all input
        with progress(job.description, num_records, num_done) as advance:
            return write(_results(job, workers, journal, places, advance))


def _results(
    job: Job[B],
    workers: "Workers",
    journal: Journal,
    places: dict[int, int],
    advance: Callable[[int], None],
) -> Results[B]:
    """Yield the results in input order, each from the journal."""
    num_earlier = journal.num_blocks
    computed = workers.computed(_blocks_left(job, set(places)))
    for number, block in enumerate(job.blocks()):
        if number not in places and not job.needed(block):
            yield block, None
            advance(len(block))
            continue
        while number not in places:
            results = next(computed)
            places |= {done: journal.num_blocks + n for n, (done, _) in enumerate(results)}
            journal.add(*results)
        place = places.pop(number)
        yield block, journal.read(place)[1]
        if place >= num_earlier:
            advance(len(block))


def _blocks_left(job: Job[B], done: set[int]) -> Iterator[Block]:
    """Yield the blocks to compute, with their names."""
    first = 1
    for number, block in enumerate(job.blocks()):
        last = first + len(block) - 1
        if number not in done and job.needed(block):
            where = f"{job.source}: " if job.source else ""
            name = job.name(block) if job.name else f"{where}{job.records} {first}-{last}"
            yield Block(number, name, job.payload(block))
        first = last + 1


@dataclass(slots=True)
class _State:
    """State of a worker."""

    is_up: bool = False
    num_false_starts: int = 0  # since it was last up
    in_flight: dict[int, Block] = field(default_factory=dict)


class Workers:
    """Workers of an engine, as a context manager; they start on demand."""

    def __init__(
        self, engine: Engine, most_in_flight: int = MOST_IN_FLIGHT, *, resume: bool = False
    ) -> None:
        """Store the engine without starting workers.

        Args:
            engine: engine of the workers.
            most_in_flight: maximum number of blocks sent to a worker.
            resume: continue the journal of an earlier run.
        """
        self._engine, self._most_in_flight, self.resume = engine, most_in_flight, resume
        self._about: dict[str, Any] | None = None
        self._states: list[_State] = []
        self._waiting: deque[Block] = deque()
        self._deaths: Counter[int] = Counter()
        self._failure: Failure | None = None

    def __enter__(self) -> "Workers":
        """Return the workers."""
        return self

    def __exit__(self, *_: Any) -> None:
        """End all workers."""
        self._engine.close()

    @property
    def is_this_process(self) -> bool:
        """Whether the driver's own process computes."""
        return isinstance(self._engine, InProcess)

    def about(self, blocks: Iterable[Any] = ()) -> dict[str, Any]:
        """Start as many workers as there are blocks, and return the `about` of the first one up.

        Args:
            blocks: blocks of the job; at most one for each worker is read.

        Raises:
            UserError: a worker cannot be created.
        """
        self._start(1)  # it loads its model while blocks are read
        if self._engine.size > 1:
            self._start(sum(1 for _ in islice(blocks, self._engine.size)))
        num_waits = 0
        while self._about is None:
            self._answers()
            num_waits += 1
            if num_waits * _SECONDS == _SECONDS_OF_SILENCE:
                say("no worker is up yet; is there room for one?")
        return self._about

    def computed(self, blocks: Iterator[Block]) -> Iterator[list[tuple[int, Any]]]:
        """Yield numbers and results of blocks as they arrive, one or more at a time.

        At most two blocks a worker are read ahead. There are at most as many workers as blocks. A
        worker gets its next block before its last result is yielded.
        """
        self._hand_out(blocks)
        while self._num_read_ahead():
            answers = self._answers()
            self._hand_out(blocks)
            if answers:
                yield answers

    def _num_read_ahead(self) -> int:
        """Return the number of blocks that wait or are in flight."""
        return len(self._waiting) + sum(len(state.in_flight) for state in self._states)

    def _start(self, number: int) -> None:
        """Start workers up to a number; each returns its `about` first."""
        while len(self._states) < number:
            self._states.append(_State())
            self._engine.submit(len(self._states) - 1, None, None)

    def _hand_out(self, blocks: Iterator[Block]) -> None:
        """Read blocks, and send them to the workers that are up, to idle ones first."""
        size = self._engine.size
        room = self._most_in_flight * size - self._num_read_ahead()
        self._waiting.extend(islice(blocks, max(0, room)))
        self._start(min(size, self._num_read_ahead()))
        for load in range(self._most_in_flight):
            for worker, state in enumerate(self._states):
                if self._waiting and state.is_up and len(state.in_flight) <= load:
                    block = self._waiting.popleft()
                    state.in_flight[block.number] = block
                    self._engine.submit(worker, block.number, block.payload)

    def _answers(self) -> list[tuple[int, Any]]:
        """Wait briefly, and return the results that have arrived.

        The next call raises a failure, so that results which arrived with it are kept.
        """
        if self._failure:
            raise self._failure.kind(*self._failure.arguments)
        answers = []
        for event in self._engine.results(_SECONDS):
            if not isinstance(event, Answer):
                self._replace(event.worker, event.reason)
            elif isinstance(event.value, Failure):
                self._failure = event.value
            elif event.number is None:
                self._admit(self._states[event.worker], event.value)
            else:
                del self._states[event.worker].in_flight[event.number]
                answers.append((event.number, event.value))
        return answers

    def _admit(self, state: _State, about: dict[str, Any]) -> None:
        """Mark a worker as up.

        Raises:
            UserError: its settings differ from the other workers' settings.
        """
        self._about = first = self._about or about
        if other := sorted(n for n in {*about, *first} if about.get(n) != first.get(n)):
            raise UserError(
                f"workers differ in: {', '.join(other)}; give all of them the same Carbon, model "
                "and dtype"
            )
        state.is_up, state.num_false_starts = True, 0

    def _replace(self, worker: int, reason: str) -> None:
        """Return the blocks of a dead worker to the queue, and start another one in its place.

        Raises:
            UserError: three workers died on one block, or none could start.
        """
        state = self._states[worker]
        lost, state.in_flight = list(state.in_flight.values()), {}
        self._waiting.extendleft(reversed(lost))
        for block in lost[:1]:  # it had not started the next one
            self._deaths[block.number] += 1
            if self._deaths[block.number] == MOST_DEATHS:
                raise UserError(
                    f"{block.name}: {MOST_DEATHS} workers died while they computed this block "
                    f"({reason}); is there enough memory for it?"
                )
        state.num_false_starts += not state.is_up
        state.is_up = False
        if state.num_false_starts < MOST_DEATHS:
            say(f"a worker died ({reason}); another one replaces it")
            self._engine.submit(worker, None, None)
        elif all(each.num_false_starts == MOST_DEATHS for each in self._states):
            raise UserError(
                f"no worker could start: each died {MOST_DEATHS} times ({reason}); is there enough "
                "memory for the model?"
            )
        else:
            say(f"a worker died {MOST_DEATHS} times while it started ({reason}); it is left out")
