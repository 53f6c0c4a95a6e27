"""The last steps: records that stay as Parquet, a part an input; then the parts as a corpus."""

import json
import os
import platform
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from carbon import __version__
from carbon.corpus import SCHEMA
from carbon.errors import UserError
from carbon.io.files import atomic_folder, sha256_of_file
from carbon.io.structured import JSON_OBJECT, read_json
from data_pipeline.dedup.rows import Rows, shards_of
from data_pipeline.inputs.remote import Records
from data_pipeline.recipe import BuildConfig
from data_pipeline.records import DROPPED_COLUMNS, SPLITS, dropped_writer, shard_batches
from data_pipeline.sources import set_alike

_ROWS_A_GROUP = 1024


def write_part(work: Path, rank: int) -> None:
    """Write the records of shard `rank` that stay, a file a source and split, and their counts."""
    shard = work / "shards" / f"{rank:05d}"
    if not shard.exists():
        return
    rows = Rows(work)
    part = rows.folder / "parts" / shard.name
    if part.exists():
        return
    with atomic_folder(part) as folder:
        counts = {}
        with (folder / "dropped.tsv").open("w", encoding="utf-8", newline="") as sink:
            with (shard / "dropped.tsv").open(encoding="utf-8", newline="") as before:
                shutil.copyfileobj(before, sink)
            drop = dropped_writer(sink)
            for column in (each for each in rows.columns if each.shard == shard):
                counts[column.source] = _write_source(
                    column.file("arrow"), folder / column.source, rows.gone(column), drop
                )
        (folder / "counts.json").write_text(json.dumps(counts), encoding="utf-8")


def _write_source(
    path: Path,
    folder: Path,
    all_gone: Iterator[tuple[int, str]],
    drop: Callable[[tuple[Any, ...]], object],
) -> dict[str, Counter[str]]:
    folder.mkdir()
    writers: dict[str, pq.ParquetWriter] = {}
    counts: dict[str, Counter[str]] = {split: Counter(records=0, bases=0) for split in SPLITS}
    first = 0
    ahead = next(all_gone, None)
    for batch in shard_batches(path):
        stays = np.ones(batch.num_rows, dtype=bool)
        while ahead and ahead[0] < first + batch.num_rows:
            row, reason = ahead
            drop(_dropped_row(batch, row - first, reason))
            stays[row - first] = False
            ahead = next(all_gone, None)
        splits = batch.column("split").to_numpy(zero_copy_only=False)
        for split in SPLITS:
            chosen = batch.select(SCHEMA.names).filter(pa.array(stays & (splits == split)))
            kept = pa.Table.from_batches([chosen])
            if not kept.num_rows:
                continue
            if split not in writers:
                writers[split] = pq.ParquetWriter(folder / f"{split}.parquet", SCHEMA)
            writers[split].write_table(kept, row_group_size=_ROWS_A_GROUP)
            bases = pc.sum(pc.binary_length(kept["sequence"])).as_py()
            counts[split].update(records=kept.num_rows, bases=bases)
        first += batch.num_rows
    for writer in writers.values():
        writer.close()
    return counts


def _dropped_row(batch: pa.RecordBatch, i: int, reason: str) -> tuple[Any, ...]:
    names = ("source", "name", "assembly", "record_id", "start", "end")
    source, name, *where = (batch.column(column)[i].as_py() for column in names)
    return (source, name, reason, *where)


_LEAKS = {"equal": "equals_held_out_record", "nearly_equal": "nearly_equals_held_out_record"}
_SUMMED = ("counts", "both_strands", "clades")  # over all inputs
_LIBRARIES = ("pyarrow", "pysam", "biopython", "datatrove", "edlib", "numpy")


def publish(
    config: BuildConfig,
    work: Path,
    output: Path,
    recipe: BuildConfig,
    left_out: list[dict[str, str]],
    fetched: Records,
) -> None:
    """Put the parts together, with the manifest and the list of rejections.

    The manifest names fetched files by URL, as `recipe` does and `config` no longer.
    """
    if output.exists() and any(output.iterdir()):
        return
    shards = shards_of(work)
    summaries = [read_json(shard / "summary.json", JSON_OBJECT) for shard in shards]
    parts = [Rows(work).folder / "parts" / shard.name for shard in shards]
    counts = [read_json(part / "counts.json", JSON_OBJECT) for part in parts]
    sources = sorted({source for summary in summaries for source in summary["counts"]["cut"]})
    both_strands = _both_strands(summaries)
    check_not_empty(counts, parts)
    with atomic_folder(output) as corpus:
        totals = {source: _collect(corpus / source, source, parts, counts) for source in sources}
        reasons = _write_dropped(corpus / "dropped.tsv", parts)
        manifest = {
            "recipe": recipe.to_table(),
            "inputs": [
                _by_url({k: v for k, v in summary.items() if k not in _SUMMED}, fetched)
                for summary in summaries
            ],
            "evaluations": [
                _by_url({"path": each.path, "sha256": sha256_of_file(each.path)}, fetched)
                for each in config.evaluations
            ],
            "left_out": left_out,
            "fetched": list(fetched.values()),
            "held_out": [region for summary in summaries for region in summary["held_out"]],
            "sources": totals,
            "both_strands": both_strands,
            "clades": {name: clade for each in summaries for name, clade in each["clades"].items()},
            "steps": _steps(summaries, totals),
            "dropped": reasons,
            "dropped_for_held_out": {source: _leaks(source, reasons) for source in sources},
            "outputs": {
                str(path.relative_to(corpus)): sha256_of_file(path)
                for path in sorted(corpus.rglob("*"))
                if path.is_file()
            },
            "versions": {
                "carbon": __version__,
                "python": platform.python_version(),
                **{name: version(name) for name in _LIBRARIES},
            },
        }
        (corpus / "manifest.json").write_text(
            json.dumps(manifest, indent=1) + "\n", encoding="utf-8"
        )


def _leaks(source: str, reasons: dict[str, int]) -> dict[str, int]:
    """Return how many records of a source went for a held-out one, by how alike they were."""
    return {kind: reasons.get(f"{source}:{reason}", 0) for kind, reason in _LEAKS.items()}


def _by_url(told: Any, fetched: Records) -> Any:
    """Put the URL in the place of the path of each file that was fetched."""
    if isinstance(told, dict):
        return {key: _by_url(value, fetched) for key, value in told.items()}
    if isinstance(told, list):
        return [_by_url(value, fetched) for value in told]
    return fetched[told]["url"] if isinstance(told, str) and told in fetched else told


class NothingLeftError(UserError):
    """No input has a record that stays."""


def check_not_empty(counts: list[dict[str, Any]], parts: list[Path]) -> None:
    """Raise NothingLeftError, with the commonest reasons, unless some record is left."""
    splits = (split for count in counts for source in count.values() for split in source.values())
    if any(split["records"] for split in splits):
        return
    reasons = Counter(kind for part in parts for _, kind in _reasons(part))
    told = ", ".join(f"{reason} ({n:,})" for reason, n in reasons.most_common(3))
    raise NothingLeftError(
        f"no record is left of {len(parts)} inputs: {told or 'none was cut'}; give more sequence, "
        "or change what is kept (`cut`, `keep` and `sources` of the recipe)"
    )


def _both_strands(summaries: list[dict[str, Any]]) -> dict[str, bool]:
    """Return for each source whether training reads it on either strand."""
    result: dict[str, bool] = {}
    for name, both in (item for each in summaries for item in each["both_strands"].items()):
        set_alike(result, "both_strands", name, both)
    return dict(sorted(result.items()))


def _collect(
    folder: Path, source: str, parts: list[Path], counts: list[dict[str, Any]]
) -> dict[str, dict[str, int]]:
    """Link the parts of a source into one folder, and add their counts."""
    folder.mkdir()
    total: dict[str, dict[str, int]] = {}
    for split in SPLITS:
        found = [part / source / f"{split}.parquet" for part in parts]
        for path in filter(Path.exists, found):
            os.link(path, folder / f"{split}-{path.parents[1].name}.parquet")
        if not any(map(Path.exists, found)):  # both splits can be read, whatever is in them
            pq.write_table(SCHEMA.empty_table(), folder / f"{split}-00000.parquet")
        mine = [count[source][split] for count in counts if source in count]
        total[split] = {key: sum(count[key] for count in mine) for key in ("records", "bases")}
    return total


def _steps(summaries: list[dict[str, Any]], totals: dict[str, Any]) -> dict[str, Any]:
    """Return records and bases of each source after every step."""
    result: dict[str, Any] = {}
    for step in ("cut", "filtered"):
        result[step] = {}
        for summary in summaries:
            for source, count in summary["counts"][step].items():
                into = result[step].setdefault(source, Counter())
                into.update(count)
    result["written"] = {
        source: {key: sum(split[key] for split in total.values()) for key in ("records", "bases")}
        for source, total in totals.items()
    }
    return result


def _write_dropped(path: Path, parts: list[Path]) -> dict[str, int]:
    """Join the lists of rejections, and count them by source and kind of reason."""
    reasons: Counter[str] = Counter()
    with path.open("w", encoding="utf-8", newline="") as sink:
        sink.write("\t".join(DROPPED_COLUMNS) + "\n")
        for part in parts:
            with (part / "dropped.tsv").open(encoding="utf-8", newline="") as lines:
                shutil.copyfileobj(lines, sink)
            reasons.update(f"{source}:{kind}" for source, kind in _reasons(part))
    return dict(sorted(reasons.items()))


def _reasons(part: Path) -> Iterator[tuple[str, str]]:
    """Yield source and kind of reason of each rejection of a part, a line each.

    The writer quotes a reason if the record that it names has a quotation mark in its name.
    """
    with (part / "dropped.tsv").open(encoding="utf-8", newline="") as lines:
        for line in lines:
            source, _, reason, *_ = line.split("\t")
            yield source, reason.removeprefix('"').partition(":")[0]
