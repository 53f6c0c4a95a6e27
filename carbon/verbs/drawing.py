"""Arguments of the verbs that draw DNA."""

import argparse
from typing import TYPE_CHECKING

from carbon.options import MODES
from carbon.verbs.common import NOT_GIVEN

if TYPE_CHECKING:
    from carbon.inference import Constraints


def add_sampling(verb: argparse.ArgumentParser) -> None:
    """Add what `SamplingOptions` has."""
    group = verb.add_argument_group("sampling", argument_default=NOT_GIVEN)
    group.add_argument(
        "--mode",
        choices=MODES,
        help="draw 6-mers, bases by their marginals, or bases one after the other",
    )
    group.add_argument("--temperature", type=float, help="0 takes the most likely")
    group.add_argument("--top-k", type=int, metavar="K", help="only the K most likely")
    group.add_argument("--top-p", type=float, metavar="P", help="only the fewest that hold P")
    group.add_argument(
        "--min-p", type=float, metavar="P", help="of those at least P times the best"
    )
    group.add_argument(
        "--repetition-penalty",
        type=float,
        metavar="NATS",
        help="for every time a 6-mer stands in the last bases, in any frame",
    )
    group.add_argument("--repetition-window", type=int, dest="repetition_window_bp", metavar="BP")


def add_constraints(verb: argparse.ArgumentParser, protein_of_start: str | None = None) -> None:
    """Add what `Constraints` has.

    Args:
        verb: to add it to.
        protein_of_start: what a protein without letters stands for; they must be given if None.
    """
    group = verb.add_argument_group("constraints, kept exactly")
    group.add_argument(
        "--forbid", nargs="+", action="extend", default=[], metavar="MOTIF", help="IUPAC motifs"
    )
    group.add_argument(
        "--require", nargs="+", action="extend", default=[], metavar="MOTIF", help="IUPAC motifs"
    )
    group.add_argument(
        "--gc", nargs=2, type=float, metavar=("MIN", "MAX"), help="share of G and C, 0 to 1"
    )
    group.add_argument(
        "--gc-window", type=int, metavar="BP", help="of each window of so many; default: of all"
    )
    group.add_argument(
        "--no-stop",
        type=int,
        choices=[0, 1, 2],
        metavar="FRAME",
        help="no stop codon so many bases, and every third, after the prompt's start: 0, 1 or 2",
    )
    group.add_argument(
        "--protein",
        nargs=None if protein_of_start is None else "?",
        const=protein_of_start,
        metavar="LETTERS",
        help="amino acids that the generated bases code for, three bases each; * for a stop"
        + ("" if protein_of_start is None else "; without letters, those of --start"),
    )


def constraints_of(arguments: argparse.Namespace) -> "Constraints":
    """Return the constraints that a command line gives."""
    from carbon.inference import Constraints

    return Constraints(
        tuple(arguments.forbid),
        tuple(arguments.require),
        tuple(arguments.gc) if arguments.gc else None,
        arguments.gc_window,
        arguments.no_stop,
        arguments.protein,
    )


def add_oracles(verb: argparse.ArgumentParser, several: str = "") -> None:
    """Add who measures what is drawn, and what is wanted of it; `several` says what more do."""
    verb.add_argument(
        "--oracle",
        action="append",
        required=True,
        dest="oracles",
        metavar="[NAME=]KIND:WHAT",
        help=f"adapted:FOLDER[:LABEL], python:MODULE:FUNCTION or command:COMMAND{several}",
    )
    verb.add_argument(
        "--goal",
        action="append",
        default=[],
        dest="goals",
        metavar="most|least|NUMBER",
        help="of each oracle, in their order; default: most",
    )
