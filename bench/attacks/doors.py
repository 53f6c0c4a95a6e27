"""The doors: which command takes a file of a kind, and in which place."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from carbon import cli
from data_pipeline import __main__ as data_pipeline
from train import __main__ as train

Main = Callable[[list[str]], int]

_FASTA = (".fa", ".fasta", ".fna", ".ffn", ".fas")
_FASTQ = (".fq", ".fastq")
_ANNOTATION = (".gff", ".gff3", ".gtf", ".gb", ".gbk", ".gbff", ".bed")


class Room(NamedTuple):
    """What an attack has at hand: a model folder, a FASTA, and an empty folder to write to."""

    model: Path
    reference: Path
    work: Path


@dataclass(frozen=True)
class Door:
    """One way in.

    Attributes:
        name: the command and the place of the file in it.
        endings: of the files that go through it, before any `.gz`.
        main: what is run.
        words: its arguments, for a file and a room.
    """

    name: str
    endings: Sequence[str]
    main: Main
    words: Callable[[str, Room], list[str]]


def _model(room: Room) -> list[str]:
    return ["--model", str(room.model)]


def _build(*settings: str) -> list[str]:
    words = ["build"]
    for setting in settings:
        words += ["--set", setting]
    return words


DOORS = (
    Door("tokenize", (*_FASTA, *_FASTQ, ".txt"), cli.main, lambda file, room: ["tokenize", file]),
    Door(
        "score",
        (*_FASTA, *_FASTQ, ".txt"),
        cli.main,
        lambda file, room: [
            "score", *_model(room), file, "--output", str(room.work / "out.json")
        ],
    ),
    Door(
        "embed",
        _FASTA,
        cli.main,
        lambda file, room: [
            "embed", *_model(room), file, "--output", str(room.work / "out.parquet")
        ],
    ),
    Door(
        "generate --prompts",
        _FASTA,
        cli.main,
        lambda file, room: ["generate", *_model(room), "--prompts", file, "--length", "6"],
    ),
    Door(
        "scan --reference",
        _FASTA,
        cli.main,
        lambda file, room: [
            "scan", *_model(room), "--reference", file, "--region", f"{first_name(file)}:1-60",
            "--output", str(room.work / "out.bw"), str(room.work / "out.tsv"),
        ],
    ),
    Door(
        "variants --vcf",
        (".vcf", ".bcf"),
        cli.main,
        lambda file, room: [
            "variants", *_model(room), "--reference", str(room.reference), "--vcf", file,
            "--window", "48", "--skip-mismatches", "--output", str(room.work / "out.vcf.gz"),
        ],
    ),
    Door(
        "variants --annotation",
        _ANNOTATION,
        cli.main,
        lambda file, room: [
            "variants", *_model(room), "--reference", str(room.reference),
            "--vcf", str(room.reference.with_suffix(".vcf")), "--annotation", file,
            "--window", "48", "--output", str(room.work / "out.tsv"),
        ],
    ),
    Door(
        "data_pipeline build, annotation",
        _ANNOTATION,
        data_pipeline.main,
        lambda file, room: _build(
            f"assemblies.0.genome={room.reference}",
            f"assemblies.0.annotation={file}",
            f"output={room.work / 'corpus'}",
        ),
    ),
    Door(
        "data_pipeline build, genome",
        _FASTA,
        data_pipeline.main,
        lambda file, room: _build(
            f"assemblies.0.genome={file}",
            'assemblies.0.sources=["prokaryote"]',
            f"output={room.work / 'corpus'}",
        ),
    ),
    Door(
        "data_pipeline variants",
        _ANNOTATION,
        data_pipeline.main,
        lambda file, room: [
            "variants", "--genome", str(room.reference), "--annotation", file,
            "--output", str(room.work / "out.vcf"),
        ],
    ),
    Door(
        "data_pipeline build --config",
        (".toml",),
        data_pipeline.main,
        lambda file, room: ["build", "--config", file, "--dry-run"],
    ),
    Door(
        "train --config",
        (".toml",),
        train.main,
        lambda file, room: ["--config", file, "--dry-run"],
    ),
)  # fmt: skip


def doors_of(name: str) -> list[Door]:
    """Return the doors that a file goes through, by its ending."""
    ending = Path(name.lower().removesuffix(".gz")).suffix
    return [door for door in DOORS if ending in door.endings]


def first_name(file: str) -> str:
    """Return the name of the first record of a FASTA, as far as it can be read."""
    try:
        head = Path(file).read_bytes()[:10_000]
    except OSError:
        return "1"
    found = re.search(rb">\s*(\S+)", head)
    return found[1].decode("latin-1") if found else "1"
