"""The arguments of the quickstart, and what can be known of them before the first step."""

import argparse
import math
from pathlib import Path

from carbon.console import Parser, natural
from carbon.errors import UserError
from carbon.genome.alphabet import genetic_code
from carbon.genome.contig_names import names_table
from carbon.io.files import why_no_file
from data_pipeline.limits import STOPS_AT_INCOMPLETE_CDS
from train.config import TrainConfig

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "train" / "recipes" / "tiny.toml"


def parser(description: str) -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = Parser(prog="scripts/quickstart", description=description)
    found.add_argument("--genome", help="FASTA, plain, bgzip or gzip; default: a simulated one")
    found.add_argument("--annotation", help="GFF3, GTF or BED of that genome, plain or gzip")
    found.add_argument(
        "--contigs", metavar="TABLE|chr", default="", help="where these name contigs otherwise"
    )
    found.add_argument("--minutes", type=float, help="for all of it; with --genome 20 by default")
    found.add_argument("--output", default="quickstart", help="folder (default: quickstart)")
    found.add_argument("--holdout", default="auto", help="contig or region to hold out")
    found.add_argument(
        "--genetic-code", type=natural, metavar="N",
        help="NCBI translation table of CDS for which the annotation states none; default: 1",
    )  # fmt: skip
    found.add_argument("--incomplete-cds", choices=STOPS_AT_INCOMPLETE_CDS, default="error")
    found.add_argument("--genome-bp", type=int, default=2_400_000, help="size of the simulated one")
    found.add_argument("--variants", type=int, default=900, help="labelled variants to score")
    found.add_argument("--sites", type=int, default=1000, help="sites of sequence recovery")
    found.add_argument("--processes", type=int, default=2, help="of torchrun (default: 2)")
    found.add_argument("--seed", type=natural, default=0)
    found.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
        help="change the training recipe, as in `python -m train`",
    )  # fmt: skip
    return found


def checked_recipe(asked: argparse.Namespace) -> TrainConfig:
    """Check what can be known before the first step; return the recipe of the training.

    Raises:
        UserError: the arguments do not fit.
    """
    if asked.annotation and not asked.genome:
        raise UserError("--annotation: give the --genome that it belongs to")
    if asked.genetic_code is not None:
        genetic_code(asked.genetic_code)
        if not asked.annotation:
            raise UserError("--genetic-code: give the --annotation that it is for")
    for name in ("genome", "annotation"):
        _check_file(name, getattr(asked, name))
    _check_file("contigs", names_table(asked.contigs))
    if asked.minutes is not None and not 0 < asked.minutes < math.inf:
        raise UserError(f"--minutes {asked.minutes:g}: give more than 0")
    for key in ("output", "seed", "data.corpus"):
        if any(override.startswith(f"{key}=") for override in asked.overrides):
            raise UserError(f"--set {key}: the quickstart sets it itself; see --help")
    if asked.processes < 1:
        raise UserError(f"--processes {asked.processes}: give 1 or more")
    config = TrainConfig.load(RECIPE, asked.overrides)
    for stage in config.phases:
        if stage.batch_rows % asked.processes:
            raise UserError(
                f"--processes {asked.processes}: {stage.batch_rows} rows of a batch "
                "cannot be shared evenly; give a divisor"
            )
    return config


def _check_file(name: str, path: str | Path | None) -> None:
    if path and not Path(path).is_file():
        raise UserError(f"--{name} {path}: {why_no_file(path)}")
