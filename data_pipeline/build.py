"""From a recipe to a corpus, in steps of independent tasks.

    extract   a task per input: records, filtered; one shard on disk
    index     one task: stops if an input had an error; numbers all records
    dedup     tasks of `data_pipeline.dedup`: equal and nearly equal records
    write     a task per input: the shard's records that stay, as Parquet
    publish   one task: manifest and list of dropped records; the output takes its name

Two more come first where families of proteins are held out (`data_pipeline.families`).

Intermediate results lie in `OUTPUT.work`. A task that finds its result there does nothing, so a
build that was killed continues and writes the same bytes. Nothing depends on the order in which
tasks end.
"""

import hashlib
import json
import shutil
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from carbon import __version__
from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.io.files import TEMPORARY, behind_links, content_sha256, free_folder
from carbon.io.locks import locked_output
from carbon.io.structured import JSON_OBJECT, read_json
from carbon.progress import say
from data_pipeline.dedup import dedup_steps
from data_pipeline.dedup.rows import index_rows
from data_pipeline.executors import Step, run_steps
from data_pipeline.extract import make_shard
from data_pipeline.families import (
    asks_for_families,
    check_engine,
    choose_families,
    family_regions,
    write_proteins,
)
from data_pipeline.inputs.listing import inputs_of, paths_of, title_of
from data_pipeline.inputs.remote import (
    Records,
    cache_of,
    is_url,
    public_url,
    with_inputs_here,
    with_public_urls,
)
from data_pipeline.publish import check_is_free, publish_to
from data_pipeline.recipe import AssemblyConfig, BuildConfig
from data_pipeline.write import NothingLeftError, publish, write_part


def build(config: BuildConfig) -> dict[str, Any] | None:
    """Make the corpus and return its manifest; None if it was submitted to a cluster.

    Raises:
        UserError: the output exists or cannot be written, another build of it is running, or an
            input cannot be read and `keep_going` is not set.
    """
    if is_url(config.output):
        return _build_and_publish(config)
    output = free_folder(config.output)
    here, fetched = _inputs_here(config)
    with locked_output(output):
        return _build(here, output, with_public_urls(config), fetched)


def _build_and_publish(config: BuildConfig) -> dict[str, Any]:
    """Build in the cache, publish from there, and remove the build from the cache.

    A complete corpus in the cache is left from a publication that was interrupted. It is published
    if recipe and inputs are the same, and otherwise built again.
    """
    url = config.output
    name = hashlib.sha256(url.encode()).hexdigest()[:16]
    output = behind_links(cache_of(config, "outputs") / name)
    kept = output.with_name(f"{name}.key")
    with locked_output(output, public_url(url)):
        check_is_free(url)
        recipe = with_public_urls(config)
        here, fetched = _inputs_here(config)
        key = _key_of(recipe.to_table() | {"executor": None}, here)
        if output.exists() and (not kept.is_file() or kept.read_text(encoding="utf-8") != key):
            say(f"{output}: waits to be published, of another recipe or input; starting over")
            shutil.rmtree(output)
        if not output.exists():
            kept.write_text(key, encoding="utf-8")
            _build(here, output, recipe, fetched)
        publish_to(output, url)
        manifest = read_manifest(output)
        kept.unlink()  # first: a killed removal leaves a damaged corpus
        shutil.rmtree(output)
    return manifest


def _inputs_here(config: BuildConfig) -> tuple[BuildConfig, Records]:
    """Return a recipe whose inputs are all local files, and the files that were fetched for it.

    Raises:
        UserError: one is not there, and `keep_going` is not set or all need it.
    """
    here, fetched = with_inputs_here(config)
    needed = _shared_files(here)
    if not here.keep_going:
        needed += [path for each in inputs_of(here) for path in paths_of(each)]
    if asks_for_families(here):
        check_engine()
    for path in needed:
        if not Path(path).is_file():
            raise UserError(f"{path}: no such file; mend the recipe")
    return here, fetched


def _shared_files(config: BuildConfig) -> list[str]:
    """Return the files that all inputs are looked at with."""
    paths = [each.path for each in config.evaluations]
    if config.taxdump:
        from data_pipeline.inputs.taxonomy import files_of

        paths += files_of(config.taxdump)
    return paths


def _build(
    config: BuildConfig, output: Path, recipe: BuildConfig, fetched: Records
) -> dict[str, Any] | None:
    work = _prepared_work(config, output)
    tasks = len(inputs_of(config))
    steps = [
        *_family_steps(config, work, tasks),
        Step("extract", partial(_extract, config, work), tasks),
        Step("index", partial(_index, config, work), 1),
        *dedup_steps(work, config.keep.near_identity),
        Step("write", partial(write_part, work), tasks),
        Step("publish", partial(_publish, config, work, output, recipe, fetched), 1),
    ]
    key = _key_in(work)
    steps = [each._replace(run=partial(_run_task, work, key, each.run)) for each in steps]
    try:
        done = run_steps(config.executor, steps, work / "logs")
    except UserError as error:
        if isinstance(error, NothingLeftError) or not any((work / "shards").glob("[0-9]*")):
            _remove_work(work)
        raise
    if not done:
        say(f"submitted; the corpus will be {output}, logs are in {work}")
        return None
    _remove_work(work)
    return read_json(output / "manifest.json", JSON_OBJECT)


def _run_task(work: Path, key: str, run: Callable[[int], None], rank: int) -> None:
    """Run a task of a step, unless a build of another recipe has started over in its folder.

    Tasks under Slurm outlive the command that submitted them, and its lock.
    """
    if _key_in(work) != key:
        raise UserError(f"{work}: is of another recipe or input by now; this build ends")
    run(rank)


def _key_in(work: Path) -> str:
    """Return the key of the build that a folder of work belongs to; empty without one."""
    path = work / "key"
    return path.read_text(encoding="utf-8") if path.is_file() else ""


def _remove_work(work: Path) -> None:
    """Remove a folder of work, the key first made void and removed last.

    No build continues with shards that lack files if the removal is killed.
    """
    (work / "key").write_text("removed", encoding="utf-8")
    for folder in filter(Path.is_dir, list(work.iterdir())):
        shutil.rmtree(folder)
    shutil.rmtree(work)


def _family_steps(config: BuildConfig, work: Path, tasks: int) -> list[Step]:
    if not asks_for_families(config):
        return []
    return [
        Step("proteins", partial(_proteins, config, work), tasks),
        Step("families", partial(_families, config, work), 1),
    ]


def _proteins(config: BuildConfig, work: Path, rank: int) -> None:
    each, folder = inputs_of(config)[rank], work / "proteins" / f"{rank:05d}"
    if isinstance(each, AssemblyConfig) and not folder.exists():
        with suppress(UserError):  # reported by the step that cuts records
            write_proteins(each, config.families.seed, rank, folder)


def _families(config: BuildConfig, work: Path, rank: int) -> None:
    del rank
    if not (work / "families").exists():
        choose_families(work, config.families)


def _key_of(recipe: dict[str, Any], config: BuildConfig) -> str:
    """Return a digest of a recipe and of the contents of all files that `config` names."""
    files = [path for each in inputs_of(config) for path in paths_of(each)]
    files += _shared_files(config)
    contents = {path: content_sha256(path) for path in files if Path(path).is_file()}
    text = json.dumps([__version__, recipe, contents], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _prepared_work(config: BuildConfig, output: Path) -> Path:
    """Return the folder of intermediate results, emptied if recipe or inputs have changed."""
    recipe = config.to_table() | dict.fromkeys(("executor", "keep_going", "output", "cache"))
    key = _key_of(recipe, config)
    work = output.with_name(f"{output.name}.work")
    if work.exists() and not (work / "key").is_file():
        raise UserError(f"{work}: is in the way and not of a build; move it or name another output")
    if work.exists() and _key_in(work) != key:
        say(f"{work}: is of another recipe or input; starting over")
        _remove_work(work)
    if not work.exists():
        work.mkdir(parents=True)
        (work / "key").write_text(key, encoding="utf-8")
    for folder in ("shards", "errors"):
        (work / folder).mkdir(exist_ok=True)
    left = [found for step in ("shards", "proteins") for found in (work / step).glob(".*")]
    left += [*(work / "dedup").glob("*/.*"), *(work / "dedup").glob("*/*/.*")]
    left += work.glob(".*.families")
    left += output.parent.glob(f".*.{output.name}")
    for unfinished in left:  # of a task that was killed
        if TEMPORARY.match(unfinished.name) and unfinished.is_dir():
            shutil.rmtree(unfinished)
    shutil.rmtree(work / "errors")
    (work / "errors").mkdir()
    return work


def _extract(config: BuildConfig, work: Path, rank: int) -> None:
    shard = work / "shards" / f"{rank:05d}"
    if shard.exists():
        return
    try:
        for line in make_shard(config, rank, shard, partial(family_regions, work, rank)):
            say(line)
    except UserError as error:
        each = inputs_of(config)[rank]
        record = {"title": title_of(each), "error": str(error)}
        (work / "errors" / f"{rank:05d}.json").write_text(json.dumps(record), encoding="utf-8")


def _errors(work: Path) -> list[dict[str, str]]:
    return [read_json(path, dict[str, str]) for path in sorted((work / "errors").glob("*.json"))]


def _check_errors(config: BuildConfig, work: Path) -> None:
    """Raise what went wrong with the first input, unless it may be left out."""
    errors = _errors(work)
    if not errors:
        return
    if config.keep_going:
        for each in errors:
            say(f"left out: {each['error']}")
        if any((work / "shards").glob("[0-9]*")):
            return
    more = f" ({len(errors) - 1} more inputs have errors)" if len(errors) > 1 else ""
    kept = len(list((work / "shards").glob("[0-9]*")))
    rest = f"; {kept} that are whole wait in {work} for the next try" if kept else ""
    raise UserError(f"{errors[0]['error']}{more}{rest}")


def _index(config: BuildConfig, work: Path, rank: int) -> None:
    del rank
    _check_errors(config, work)
    index_rows(work)


def _publish(
    config: BuildConfig,
    work: Path,
    output: Path,
    recipe: BuildConfig,
    fetched: Records,
    rank: int,
) -> None:
    del rank
    publish(config, work, output, recipe, left_out=_errors(work), fetched=fetched)
