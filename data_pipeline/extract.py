"""The first step: one input, all its records, one shard on disk."""

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from carbon.genome import Interval
from carbon.genome.annotation import rare_collections
from carbon.genome.bed import Regions
from carbon.io.files import atomic_folder, sha256_of_file
from data_pipeline.cuts import AnnotatedAssembly, Dropped, check_cds
from data_pipeline.dedup.sketch import sketch_of
from data_pipeline.filters import Composition, compositions_of, why_not
from data_pipeline.inputs.assemblies import Assembly, names_of, opened
from data_pipeline.inputs.evaluations import (
    EvaluationSequences,
    evaluation_places,
    evaluation_sequences,
)
from data_pipeline.inputs.files import file_rows
from data_pipeline.inputs.listing import (
    FileInput,
    Input,
    inputs_of,
    mates_in_other_split,
    may_hold_out,
    paths_of,
    sample_name,
    title_of,
)
from data_pipeline.inputs.regions import bed_regions
from data_pipeline.limits import FAMILY
from data_pipeline.recipe import AssemblyConfig, BuildConfig
from data_pipeline.records import (
    Record,
    ShardWriter,
    digests_of,
    dropped_writer,
    one_line,
    read_bases,
)
from data_pipeline.sources import SOURCES, Source, divided, set_alike, source_of
from data_pipeline.split import held_out_regions, is_fastq, split_of

_LETTERS_AT_ONCE = 1 << 20
_REGIONS_TOLD = 3
HeldOut = Callable[[dict[str, int]], list[Interval]]  # from the lengths of an input's contigs


# Candidates of an input on their way to records: places to cut out, or rows of a file.
Pairs = Iterable[tuple[Source, Any]]
Take = Callable[[Pairs], Pairs]


@rare_collections()
def make_shard(
    config: BuildConfig,
    rank: int,
    folder: Path,
    families: HeldOut = lambda _: [],
    take: Take = iter,
) -> list[str]:
    """Cut, filter and write the records of input `rank`; the shard appears when it is whole.

    Args:
        config: the recipe.
        rank: of the input among `inputs_of` it.
        folder: to make.
        families: returns the intervals that are held out with families of proteins.
        take: selects the candidates to use, for a sample of the input.

    Returns:
        Messages about the input, a line each.

    Raises:
        UserError: the input is absent or malformed.
    """
    inputs = inputs_of(config)
    each = inputs[rank]
    with atomic_folder(folder) as shard:
        maker = _ShardMaker(config, shard, take)
        if isinstance(each, AssemblyConfig):
            held_out, found = maker.add_assembly(each, families)
            warnings = [found.pop("warning")]
            told = {key: value for key, value in (each.to_table() | found).items() if value}
        else:
            held_out = []
            warnings = [_apart_from_mates(each, inputs)]
            maker.add_file(each)
            told = each.config.to_table() | {"path": str(each.path)}
            if is_fastq(each.path):
                told |= {"mates": str(each.mates or ""), "sample": sample_name(each)}
                told["split"] = "test" if each.held_out else "train"
        counts = maker.finish()
        if maker.num_not_compared:
            warnings.append(
                f"warning: {title_of(each)}: {maker.num_not_compared:,} reads were not compared "
                "for near-equality across train and test; near_duplicates = true compares them"
            )
        warning = "\n".join(filter(None, warnings))
        told_held_out = [region.to_region() for region in held_out]
        files = [
            {"path": path, "bytes": Path(path).stat().st_size, "sha256": sha256_of_file(path)}
            for path in paths_of(each)
        ]
        summary = {
            "title": title_of(each),
            "recipe": told,
            "files": files,
            "held_out": told_held_out,
            **({"warning": warning} if warning else {}),
            "counts": counts,
            "both_strands": maker.both_strands,
            "near_duplicates": sorted(name for name, near in maker.near_duplicates.items() if near),
            "clades": maker.clades,
        }
        (shard / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    kept = sum(count["records"] for count in counts["filtered"].values())
    where = ", ".join(told_held_out[:_REGIONS_TOLD]) or "nothing"
    where += f" and {more:,} more" if (more := len(told_held_out) - _REGIONS_TOLD) > 0 else ""
    return [*warning.splitlines(), f"{title_of(each)}; held out: {where}; {kept:,} records"]


def _apart_from_mates(file: FileInput, inputs: Iterable[Input]) -> str:
    other = mates_in_other_split(file, inputs)
    return other and (
        f"warning: {title_of(file)}: by its name it has the mates of {other}, which is in the "
        "other split; name one of them as mates, or give both one sample"
    )


def _regions(
    config: AssemblyConfig, clade: str, contig_lengths_bp: Mapping[str, int]
) -> Iterator[tuple[Source, Record | Dropped]]:
    names = names_of(config, contig_lengths_bp)
    for regions in config.regions:
        for name, found in bed_regions(regions, config, names, contig_lengths_bp):
            source = source_of(name, "regions", regions.both_strands, regions.near_duplicates)
            yield divided(source, clade), found


@dataclass(slots=True)
class _Count:
    records: int = 0
    bases: int = 0
    masked_bases: int = 0


class _ShardMaker:
    def __init__(self, config: BuildConfig, shard: Path, take: Take) -> None:
        self._config = config
        self._take = take
        self._writer = ShardWriter(shard)
        self._dropped_file = (shard / "dropped.tsv").open("w", encoding="utf-8", newline="")
        self._write_dropped = dropped_writer(self._dropped_file)
        self._counts: dict[str, dict[str, _Count]] = {"cut": {}, "filtered": {}}
        self._waiting: list[tuple[Source, dict[str, Any]]] = []  # letters are not counted yet
        self._waiting_bp = 0
        # Held-out records are included. Of reads, sketches would be more bytes than bases.
        self._may_hold_out = may_hold_out(config)
        self._compares_all = self._may_hold_out
        self._test_share = 0.0
        self.both_strands: dict[str, bool] = {}
        self.near_duplicates: dict[str, bool] = {}
        self.clades: dict[str, str] = {}
        self.num_not_compared = 0
        self._sequences = [
            EvaluationSequences(evaluation_sequences(evaluation), evaluation.shared)
            for evaluation in config.evaluations
            if not evaluation.assembly
        ]

    def add_assembly(
        self, config: AssemblyConfig, families: HeldOut
    ) -> tuple[list[Interval], dict[str, str]]:
        """Add the records of an assembly; return its held-out intervals and its columns."""
        with opened(config, self._config.taxdump, self._config.divide_by) as assembly:
            lengths_bp = assembly.reference.contig_lengths_bp
            annotation = assembly.annotation
            if config.incomplete_cds == "error":
                check_cds(annotation)
            asked = tuple(text for text in config.holdout if text != FAMILY)
            held_out = held_out_regions(asked, lengths_bp, annotation.genes)
            held_out += families(lengths_bp)
            for each in annotation.left_out:
                self._drop("annotation", each.name, each.reason, assembly.name)
            self._held_out = Regions(held_out, lengths_bp)
            evaluated = [
                evaluation_places(evaluation, config, lengths_bp, annotation.circular)
                for evaluation in self._config.evaluations
                if evaluation.assembly == assembly.name
            ]
            places = Regions((place for found, _ in evaluated for place in found), lengths_bp)
            annotated = AnnotatedAssembly(
                annotation, lengths_bp, held_out, self._config.cut, self._config.keep
            )
            sources = [divided(SOURCES[name], assembly.clade) for name in assembly.sources]
            for source in sources:
                self._use(source)
                for counts in self._counts.values():
                    counts[source.name] = _Count()
            cut = ((source, found) for source in sources for found in source.cut(annotated))
            regions = _regions(config, assembly.clade, lengths_bp)
            for source, found in self._take(itertools.chain(cut, regions)):
                self._use(source)
                if isinstance(found, Dropped):
                    self._count("cut", source.name, 0, 0)
                    self._drop(source.name, *found, assembly.name)
                else:
                    self._add_record(source, found, assembly, held_out, places)
            warnings = [assembly.warning, *(each for _, found in evaluated for each in found)]
            who = {
                "organism": assembly.organism,
                "species_type": assembly.species_type,
                "taxonomy": "; ".join(assembly.taxonomy),
                "warning": "\n".join(filter(None, warnings)),
            }
        return held_out, who

    def add_file(self, file: FileInput) -> None:
        """Add the records of a file."""
        config = file.config
        source = source_of(config.source, "files", config.both_strands, config.near_duplicates)
        self._use(source)
        of_reads = is_fastq(file.path)
        self._compares_all &= not of_reads
        self._test_share = float(file.held_out) if of_reads else config.test_share
        rows = ((source, row) for row in file_rows(file.path, config, file.mates))
        for _, row in self._take(rows):
            if isinstance(row, Dropped):
                self._count("cut", source.name, 0, 0)
                self._drop(source.name, *row, sample_name(file))
                continue
            row["name"] = one_line(row["name"])
            self._add_row(source, row)

    def finish(self) -> dict[str, dict[str, dict[str, int]]]:
        """Write the remaining rows; return records and bases, as cut and as kept, by source."""
        self._decide()
        self._writer.close()
        self._dropped_file.close()
        return {
            step: {source: asdict(count) for source, count in counts.items()}
            for step, counts in self._counts.items()
        }

    def _use(self, source: Source) -> None:
        set_alike(self.both_strands, "both_strands", source.name, source.both_strands)
        set_alike(self.near_duplicates, "near_duplicates", source.name, source.near_duplicates)
        if source.clade:
            self.clades[source.name] = source.clade

    def _add_record(
        self,
        source: Source,
        record: Record,
        assembly: Assembly,
        held_out: list[Interval],
        places: Regions,
    ) -> None:
        start, end, strand = record.place()
        split: str | None = "train"
        if record.contig in self._held_out.contigs or record.contig in places.contigs:
            intervals = record.intervals(assembly.reference.contig_lengths_bp[record.contig])
            if any(map(self._held_out.overlap, intervals)):
                split = split_of(intervals, held_out)
            reason = "partly_held_out" if split is None else ""
            if split == "train" and any(map(places.overlap, intervals)):
                reason = "overlaps_evaluation"
            if reason:
                self._count("cut", source.name, sum(i.length_bp for i in intervals), 0)
                where = (assembly.name, record.contig, start, end)
                self._drop(source.name, record.name, reason, *where)
                return
        row = {
            "sequence": read_bases(assembly.reference, record.contig, record.segments),
            "source": source.name,
            "record_id": record.contig,
            "start": start,
            "end": end,
            "strand": strand,
            "gene_type": record.gene_type,
            "species_type": assembly.species_type,
            "organism": assembly.organism,
            "assembly": assembly.name,
            "name": one_line(record.name),
            "segments": record.segments,
            "split": split,
        }
        self._add_row(source, row)

    def _add_row(self, source: Source, row: dict[str, Any]) -> None:
        self._waiting.append((source, row))
        self._waiting_bp += len(row["sequence"])
        if self._waiting_bp >= _LETTERS_AT_ONCE:
            self._decide()

    def _decide(self) -> None:
        """Keep or drop the rows that wait, whose letters are counted all at once."""
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bp = self._waiting, [], 0
        sequences = [row["sequence"] for _, row in waiting]
        told = zip(waiting, digests_of(sequences), compositions_of(sequences), strict=True)
        for (source, row), digest, found in told:
            self._keep_or_drop(source, row, digest, found)

    def _keep_or_drop(
        self, source: Source, row: dict[str, Any], digest: int, found: Composition
    ) -> None:
        sequence = row["sequence"]
        if "split" not in row:
            row["split"] = "test" if digest / 2**64 < self._test_share else "train"
        self._count("cut", source.name, found.length_bp, found.num_masked)
        reason = why_not(found, digest, self._config.keep, joined=source.joined)
        if not reason and self._sequences and row["split"] == "train":
            contained = (index.contained_in(sequence) for index in self._sequences)
            name = next((name for name in contained if name), None)
            reason = f"contains_evaluation:{name}" if name else ""
        if reason:
            where = (row["assembly"], row["record_id"], row["start"], row["end"])
            self._drop(source.name, row["name"], reason, *where)
            return
        near = source.near_duplicates or self._compares_all
        is_asked_for = self._config.keep.near_identity < 1
        self.num_not_compared += is_asked_for and self._may_hold_out and not near
        near = near and is_asked_for
        row |= {"digest": digest, "sketch": sketch_of(sequence) if near else None}
        self._count("filtered", source.name, found.length_bp, found.num_masked)
        self._writer.add(row)

    def _count(self, step: str, source: str, length_bp: int, num_masked: int) -> None:
        count = self._counts[step].setdefault(source, _Count())
        count.records += 1
        count.bases += length_bp
        count.masked_bases += num_masked

    def _drop(self, source: str, name: str, reason: str, *where: Any) -> None:
        self._decide()  # keeps the order of records and rejections
        self._write_dropped((source, name, reason, *where, *[""] * (4 - len(where))))
