"""From an annotated genome to a scored VCF and a report, in one command.

Without arguments it simulates a small genome and takes about seven minutes on two cores. With
--genome and --annotation it does the same on yours. Every step is a command that can be run by
hand; it is printed before it runs. An interrupted quickstart goes on where it stopped when the same
command is given again.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from carbon.config import load_config
from carbon.console import run_command, say
from carbon.corpus import read_manifest
from carbon.errors import UserError
from carbon.files import atomic_file
from carbon.genome import Reference, read_annotation

ROOT = Path(__file__).resolve().parents[1]
RECIPE = ROOT / "train" / "recipes" / "tiny.toml"
DEFAULT_MINUTES = {"simulated": None, "own": 20.0}
# Of the minutes asked for, what is left to training after everything around it.
TRAINING_SHARE = 0.75
OVERHEAD_SECONDS = 60
CE_SHARE = 0.65
TIMED_STEPS = 12


def main() -> int:
    """Parse the arguments and run; return the exit code."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__)
    parser.add_argument("--genome", help="FASTA, plain, bgzip or gzip; default: a simulated one")
    parser.add_argument("--annotation", help="GFF3 or GTF of that genome, plain or gzip")
    parser.add_argument("--minutes", type=float, help="for all of it; default with --genome: 20")
    parser.add_argument("--output", default="quickstart", help="folder (default: quickstart)")
    parser.add_argument("--holdout", default="auto", help="contig or region to hold out")
    parser.add_argument("--processes", type=int, default=2, help="of torchrun (default: 2)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", dest="overrides",
                        help="change the training recipe, as in `python -m train`")
    parser.add_argument("--drop-incomplete-cds", action="store_true",
                        help="leave out a CDS that is not a multiple of three instead of stopping")
    arguments = parser.parse_args()
    return run_command(lambda: Quickstart(arguments).run())
