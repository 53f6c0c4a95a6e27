"""Which inputs a recipe names, one a task: assemblies, and files that patterns stand for."""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from carbon.errors import UserError
from carbon.genome.contig_names import names_table
from data_pipeline.recipe import AssemblyConfig, BuildConfig, FilesConfig, assembly_name
from data_pipeline.split import held_out_samples, is_fastq, sample_of


class FileInput(NamedTuple):
    """A file of finished records; `held_out` marks reads whose sample is held out."""

    config: FilesConfig
    path: Path
    mates: Path | None
    held_out: bool


Input = AssemblyConfig | FileInput


def inputs_of(config: BuildConfig) -> list[Input]:
    """Return the inputs, one a task: assemblies, then files in the order of their names.

    Raises:
        UserError: files and their mates are not equally many, or reads are of too few samples.
    """
    files = [
        FileInput(each, path, mates, held_out=False)
        for each in config.files
        for path, mates in _paired(each)
    ]
    samples = {file: sample_name(file) for file in files if is_fastq(file.path)}
    share = max((file.config.test_share for file in samples), default=0)
    held_out = held_out_samples(list(samples.values()), share)
    return [
        *config.assemblies,
        *(file._replace(held_out=samples.get(file) in held_out) for file in files),
    ]


def may_hold_out(config: BuildConfig) -> bool:
    """Return whether a record can be held out, by the recipe or by a corpus that is read again."""
    return any(assembly.holdout for assembly in config.assemblies) or any(
        file.test_share or any(path.suffix == ".parquet" for path in matching(file.path))
        for file in config.files
    )


def sample_name(file: FileInput) -> str:
    """Return whose reads a file holds."""
    return file.config.sample or sample_of(file.path, paired=file.mates is not None)


def mates_in_other_split(file: FileInput, inputs: Iterable[Input]) -> str:
    """Return the file of the other split that has the mates of a file, by both names; or none.

    `s_1.fq` and `s_2.fq` are two samples unless the recipe names one as the mates of the other.
    """
    for other in inputs:
        if (
            isinstance(other, FileInput)
            and other.held_out != file.held_out
            and not any((file.mates, other.mates, file.config.sample, other.config.sample))
            and is_fastq(file.path)
            and is_fastq(other.path)
            and sample_of(file.path, paired=True) == sample_of(other.path, paired=True)
        ):
            return str(other.path)
    return ""


def _paired(config: FilesConfig) -> list[tuple[Path, Path | None]]:
    paths = matching(config.path)
    if not config.mates:
        return [(path, None) for path in paths]
    mates = matching(config.mates)
    if len(paths) != len(mates):
        raise UserError(
            f"{config.path}: {len(paths)} files, and {len(mates)} of mates ({config.mates}); "
            "give as many of one as of the other"
        )
    return list(zip(paths, mates, strict=True))


def matching(pattern: str) -> list[Path]:
    """Return the files of a pattern, in the order of their names; without wildcards, the path."""
    path = Path(pattern)
    if not any(letter in pattern for letter in "*?["):
        return [path]
    anchor = Path(path.anchor) if path.anchor else Path()
    found = sorted(anchor.glob(str(path.relative_to(anchor)) if path.anchor else pattern))
    return found or [path]


def paths_of(each: Input) -> list[str]:
    """Return the files that an input is read from."""
    if isinstance(each, AssemblyConfig):
        paths = (each.genome, each.annotation, names_table(each.contigs))
        regions = (region.path for region in each.regions)
        return [str(path) for path in (*paths, *regions) if path]
    return [str(path) for path in (each.path, each.mates) if path]


def title_of(each: Input) -> str:
    """Return what to call an input in messages."""
    return assembly_name(each) if isinstance(each, AssemblyConfig) else str(each.path)
