"""Estimate a build's time, memory and disk from a sample of its inputs.

Of inputs that are treated alike a few are opened, and all that can be cut out of them is counted;
the first bases of each source go through every step in a scratch folder. Seconds of a processor and
bytes are scaled from there: by bases within an input, by the sizes of files between inputs.
"""

import resource
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from time import process_time
from typing import Any

from carbon.errors import UserError
from carbon.io.files import scratch_folder, sha256_of_file
from carbon.io.structured import JSON_OBJECT, read_json
from data_pipeline.cuts import Dropped
from data_pipeline.dedup import dedup_steps
from data_pipeline.dedup.rows import Rows, index_rows
from data_pipeline.extract import make_shard
from data_pipeline.inputs.listing import Input, inputs_of, may_hold_out, paths_of
from data_pipeline.inputs.remote import with_inputs_here
from data_pipeline.recipe import AssemblyConfig, BuildConfig
from data_pipeline.records import BASES_A_BATCH, Record
from data_pipeline.sources import Source
from data_pipeline.split import is_fastq
from data_pipeline.write import write_part

_INPUTS_A_KIND = 3
_SAMPLED_BP = 1_000_000  # of each source of an input
_STEPS = ("start", "extract", "dedup", "write", "publish")
# A batch is in memory as text in rows, as Arrow, and once more on its way to Parquet.
_COPIES_OF_A_BATCH = 3
_BYTES_A_RECORD = 17  # labels and flags in `dedup.components`
_BYTES_A_CANDIDATE = 60  # of records with sketches: key, row, length and order of a band
_FILES_OF_A_SHARD = ("arrow", "facts", "sketches", "bands")


@dataclass(slots=True)
class _Sampled:
    """Records and bases of one source of one input: all that there are, and those sampled."""

    is_sketched: bool
    records: int = 0
    bases: int = 0
    sampled_records: int = 0
    sampled_bases: int = 0
    seconds: float = 0.0

    @property
    def scale(self) -> float:
        """All bases over those sampled."""
        return self.bases / max(self.sampled_bases, 1)


@dataclass(slots=True)
class _Sampler:
    """Counts the cuts of an input, passes on the first of each source, and times them."""

    compares_all: bool
    of: dict[str, _Sampled] = field(default_factory=dict)
    ended: float = 0.0

    def take(self, found: Iterable[tuple[Source, Any]]) -> Iterator[tuple[Source, Any]]:
        """Yield the cuts of the sample."""
        for source, each in found:
            if isinstance(each, Dropped):
                continue
            size_bp = _length_bp(each)
            mine = self.of.setdefault(
                source.name, _Sampled(source.near_duplicates or self.compares_all)
            )
            mine.records += 1
            mine.bases += size_bp
            if mine.sampled_bases < _SAMPLED_BP:
                mine.sampled_records += 1
                mine.sampled_bases += size_bp
                start = process_time()
                yield source, each
                mine.seconds += process_time() - start
        self.ended = process_time()


def _peak_bytes() -> int:
    """Return the most memory that this process has had."""
    unit = 1 if sys.platform == "darwin" else 1024
    return unit * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _length_bp(found: Record | dict[str, Any]) -> int:
    if isinstance(found, Record):
        return sum(segment.end - segment.start for segment in found.segments)
    return len(found["sequence"])


@dataclass(slots=True)
class Estimate:
    """Records, time, memory and disk of a build.

    Attributes:
        records: of each source, as they will be written.
        bases: the same.
        seconds: of one processor, by step.
        work_bytes: on disk while it is built, the corpus included.
        corpus_bytes: of the corpus.
        memory_bytes: of the process that needs the most.
        sampled: inputs that were opened, and all that there are.
    """

    records: Counter[str] = field(default_factory=Counter)
    bases: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_STEPS, 0.0))
    work_bytes: float = 0.0
    corpus_bytes: float = 0.0
    memory_bytes: float = 0.0
    sampled: tuple[int, int] = (0, 0)


def estimate(config: BuildConfig) -> Estimate:
    """Return an estimate of a build, from a sample of its inputs.

    Raises:
        UserError: an input of the sample cannot be read.
    """
    result = Estimate()
    inputs = inputs_of(config)
    for each in inputs:
        for path in paths_of(each):
            if not Path(path).is_file():
                raise UserError(f"{path}: no such file")
    result.seconds["start"] = process_time()
    with scratch_folder("estimate") as scratch:
        work = Path(scratch)
        (work / "shards").mkdir()
        samples = {
            rank: (_sample(config, rank, work, result, factor), factor)
            for rank, factor in _chosen(inputs).items()
        }
        start = process_time()
        index_rows(work)
        for step in dedup_steps(work, config.keep.near_identity):
            for number in range(step.num_ranks):
                step.run(number)
        selecting = process_time() - start
        sampled_records = 0
        all_records = candidates = 0.0
        for rank, (sampler, factor) in samples.items():
            _write(work, rank, sampler.of, factor, result)
            sampled_records += sum(each.sampled_records for each in sampler.of.values())
            all_records += factor * sum(each.records for each in sampler.of.values())
            candidates += factor * sum(e.records for e in sampler.of.values() if e.is_sketched)
        result.seconds["dedup"] = selecting * all_records / max(sampled_records, 1)
    candidates *= config.keep.near_identity < 1
    selecting_bytes = _BYTES_A_RECORD * all_records + _BYTES_A_CANDIDATE * candidates
    base_bytes = _peak_bytes()
    result.memory_bytes = max(result.memory_bytes, base_bytes + selecting_bytes)
    result.sampled = (len(samples), len(inputs))
    return result


def _chosen(inputs: list[Input]) -> dict[int, float]:
    """Return the ranks of inputs to open, each with how many times its own size it stands for."""
    kinds: dict[Any, list[tuple[int, int]]] = defaultdict(list)
    for rank, each in enumerate(inputs):
        size = sum(Path(path).stat().st_size for path in paths_of(each))
        kinds[_kind(each)].append((size, rank))
    result: dict[int, float] = {}
    for sizes in map(sorted, kinds.values()):
        count = min(len(sizes), _INPUTS_A_KIND)
        # The middles of as many parts: neither the smallest nor the largest of many.
        mine = [sizes[(2 * i + 1) * len(sizes) // (2 * count)] for i in range(count)]
        factor = sum(size for size, _ in sizes) / max(sum(size for size, _ in mine), 1)
        result |= {rank: factor for _, rank in mine}
    return result


def _kind(each: Input) -> Any:
    """Return what inputs of a kind have in common."""
    if isinstance(each, AssemblyConfig):
        return each.sources, each.species_type, bool(each.annotation), len(each.regions)
    return each.config.source, each.path.suffix


def _sample(
    config: BuildConfig, rank: int, work: Path, result: Estimate, factor: float
) -> _Sampler:
    """Make the shard of a sample of an input; add an estimate of the whole."""
    each = inputs_of(config)[rank]
    of_reads = not isinstance(each, AssemblyConfig) and is_fastq(each.path)
    sampler = _Sampler(may_hold_out(config) and not of_reads)
    start = process_time()
    make_shard(config, rank, work / "shards" / f"{rank:05d}", take=sampler.take)
    end = process_time()
    for path in paths_of(each):
        sha256_of_file(path)
    summing = process_time() - end
    sampled = sum(of.sampled_bases for of in sampler.of.values())
    everything = sum(of.bases for of in sampler.of.values())
    writing = max(0.0, end - sampler.ended - summing)
    reading = end - start - writing - sum(of.seconds for of in sampler.of.values())
    seconds = reading + writing * everything / max(sampled, 1)
    seconds += sum(of.seconds * of.scale for of in sampler.of.values())
    result.seconds["extract"] += factor * seconds
    batches = sum(min(of.bases, BASES_A_BATCH) for of in sampler.of.values())
    base_bytes = _peak_bytes()
    result.memory_bytes = max(result.memory_bytes, base_bytes + _COPIES_OF_A_BATCH * batches)
    return sampler


def _write(
    work: Path, rank: int, sampled: Mapping[str, _Sampled], factor: float, result: Estimate
) -> None:
    """Write the part of a sampled shard; add an estimate of the whole."""
    start = process_time()
    write_part(work, rank)
    writing = process_time() - start
    part = Rows(work).folder / "parts" / f"{rank:05d}"
    counts = read_json(part / "counts.json", JSON_OBJECT)
    everything = sum(each.bases for each in sampled.values())
    written = sum(each.sampled_bases for each in sampled.values())
    result.seconds["write"] += factor * writing * everything / max(written, 1)
    for source, each in sampled.items():
        scale = factor * each.scale
        for split in counts.get(source, {}).values():
            result.records[source] += round(scale * split["records"])
            result.bases[source] += round(scale * split["bases"])
        files = list((part / source).glob("*.parquet"))
        start = process_time()
        for path in files:
            sha256_of_file(path)
        result.seconds["publish"] += scale * (process_time() - start)
        in_part = sum(path.stat().st_size for path in files)
        shard = work / "shards" / f"{rank:05d}"
        files_in_shard = [shard / f"{source}.{ending}" for ending in _FILES_OF_A_SHARD]
        in_shard = sum(path.stat().st_size for path in files_in_shard if path.is_file())
        result.corpus_bytes += scale * in_part
        result.work_bytes += scale * (in_part + in_shard)


def estimated(config: BuildConfig) -> list[str]:
    """Return the estimate of a build as lines, or why there is none."""
    try:
        return told(estimate(with_inputs_here(config)[0]))
    except UserError as error:
        return [f"not estimated: {error}"]


def told(found: Estimate) -> list[str]:
    """Return an estimate as lines for a person."""
    lines = [f"estimated from {found.sampled[0]} of {found.sampled[1]} inputs"]
    lines += [
        f"{source}: {found.records[source]:,} records, {found.bases[source]:,} bases"
        for source in found.records
    ]
    hours = ", ".join(f"{step} {found.seconds[step] / 3600:.4f}" for step in _STEPS)
    lines.append(f"core-hours: {sum(found.seconds.values()) / 3600:.4f} ({hours})")
    lines.append(
        f"disk: {found.work_bytes / 1e9:.3f} GB while it is built, {found.corpus_bytes / 1e9:.3f} "
        "GB of corpus"
    )
    lines.append(f"memory: {found.memory_bytes / 1e9:.2f} GB a process at most")
    return lines
