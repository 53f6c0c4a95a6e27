"""Arguments that verbs share."""

import argparse
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from carbon.errors import UserError
from carbon.options import PROTOCOLS, STRANDS_READ, By, Dtype

if TYPE_CHECKING:
    from carbon.inference import Carbon

T = TypeVar("T")
Verbs = Any  # what `add_subparsers` returns; its class is private

NOT_GIVEN: Any = argparse.SUPPRESS
"""The default of an option that has its default where it is used: see `options_of`."""


def add_model(verb: argparse.ArgumentParser) -> None:
    """Add what every verb that reads DNA with a model takes."""
    add_loading(verb)
    verb.add_argument("--tag", action="append", default=[], dest="tags", help="metadata tag")


def add_loading(verb: argparse.ArgumentParser) -> None:
    """Add which model is loaded, and how."""
    verb.add_argument(
        "--model", required=True, help="model folder, or a name in the box or on the Hub"
    )
    verb.add_argument(
        "--device", default="auto", help="cpu, mps, cuda, a list such as cuda:0,cuda:1, or auto"
    )
    verb.add_argument(
        "--dtype",
        choices=("auto", *get_args(Dtype)),
        default="auto",
        help="of weights and activations; default: auto, bfloat16 on a CUDA GPU, else float32",
    )
    verb.add_argument(
        "--attention", default="auto", help="sdpa, flash_attention_2, or auto (default)"
    )
    verb.add_argument(
        "--yarn", type=float, metavar="FACTOR", help="stretch the context so many times"
    )


def add_gone(verb: argparse.ArgumentParser, option: str, instead: str) -> None:
    """Add an option that the verb once had: whoever gives it reads what stands in its place."""

    class Gone(argparse.Action):
        def __call__(self, *_: Any) -> None:
            verb.exit(2, f"error: {option} is gone, take it out: {instead}\n")

    verb.add_argument(option, action=Gone, nargs=0, default=NOT_GIVEN, help=argparse.SUPPRESS)


def add_contigs(verb: argparse.ArgumentParser) -> None:
    """Add how the contigs of a file that meets a reference are named."""
    verb.add_argument(
        "--contigs",
        metavar="TABLE|chr",
        help="where a file names contigs otherwise than the reference: a table of its names and "
        "the reference's, or chr to add or take away a 'chr' (and M for MT)",
    )


def add_genetic_code(verb: argparse.ArgumentParser) -> None:
    """Add the genetic code of an annotation that states none."""
    verb.add_argument(
        "--genetic-code",
        metavar="N|CONTIG=N",
        help="NCBI translation table of CDS for which the annotation states none (transl_table), "
        "such as 4, or 1,Mito=3 with contigs of the reference; default: 1, and none for "
        "mitochondria",
    )


def check_genetic_code(arguments: argparse.Namespace) -> None:
    """Check `--genetic-code` before anything large is imported.

    Raises:
        UserError: there is no such table, or no annotation that it could be for.
    """
    from carbon.genome.genetic_codes import tables_chosen

    tables_chosen(arguments.genetic_code)
    if arguments.genetic_code and not arguments.annotation:
        raise UserError("--genetic-code: give the --annotation that it is for")


def add_variant_method(verb: argparse.ArgumentParser) -> None:
    """Add what `VariantOptions` has."""
    verb.add_argument(
        "--protocol",
        choices=PROTOCOLS,
        default=NOT_GIVEN,
        help="compare windows around the variant (default), or the alleles, up to where they "
        "differ, behind a window",
    )
    windows = (f"{known.default_window_bp} ({name})" for name, known in PROTOCOLS.items())
    verb.add_argument(
        "--window",
        type=int,
        default=NOT_GIVEN,
        dest="window_bp",
        metavar="BP",
        help=f"default: {', '.join(windows)}, or what fits",
    )
    verb.add_argument("--by", choices=get_args(By), default=NOT_GIVEN)
    verb.add_argument(
        "--strands",
        choices=STRANDS_READ,
        default=NOT_GIVEN,
        help="that are read; both (default) is their mean, and tells how far they disagree",
    )
    verb.add_argument(
        "--frames", type=frames, default=NOT_GIVEN, help="mean over frames such as 0,2,4, or all"
    )


def check_inputs(arguments: argparse.Namespace, *paths: str | None) -> Path:
    """Look for the model and for input files before anything large is imported.

    Returns:
        The model's folder.

    Raises:
        UserError: there is no such model, its files do not fit one another, or a file is absent.
    """
    from carbon.model import model_folder

    for path in paths:
        if path not in (None, "-") and not Path(path).exists():
            raise UserError(f"{path}: no such file")
    return model_folder(arguments.model).path


def load(arguments: argparse.Namespace) -> "Carbon":
    """Load the model that the arguments name."""
    from carbon.inference import load

    return load(
        arguments.model,
        device=arguments.device,
        dtype=arguments.dtype,
        attention=arguments.attention,
        yarn=arguments.yarn,
    )


def loading_of(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keywords by which a worker loads the model."""
    from carbon.parallel.options import loaded_device

    names = ("dtype", "attention", "yarn")
    return {"device": loaded_device(arguments)} | {name: getattr(arguments, name) for name in names}


def read_named(
    records: Iterable[tuple[str, str]], read: Callable[[Iterator[str]], Iterator[T]], path: str
) -> Iterator[tuple[str, str, T]]:
    """Return the name and the bases of each record, with what `read` makes of its bases.

    Only what is read and not yet answered is in memory.

    Raises:
        ModelError: the model says nothing finite of a record, whose name is told.
    """
    waiting: deque[tuple[str, str]] = deque()

    def sequences() -> Iterator[str]:
        for record in records:
            waiting.append(record)
            yield record[1]

    return _named(read(sequences()), waiting, path)


def _named(
    results: Iterator[T], waiting: deque[tuple[str, str]], path: str
) -> Iterator[tuple[str, str, T]]:
    from carbon.inference.reading.checks import NotFinite

    try:
        for result in results:
            yield *waiting.popleft(), result
    except NotFinite:
        raise NotFinite(f"{path}: record '{waiting[0][0]}'") from None


def options_of(arguments: argparse.Namespace, kind: type[T]) -> T:
    """Return the options of a kind, such as `ScanOptions`, that the command line gives.

    An argument that is one of them has its name as `dest`, and `NOT_GIVEN` for its default.
    """
    names = kind.__annotations__
    return kind(**{name: value for name, value in vars(arguments).items() if name in names})


def frames(text: str) -> tuple[int, ...]:
    """Read frames such as `0,2,4` or `all`, for `argparse`."""
    if text == "all":
        return (0, 1, 2, 3, 4, 5)
    if not all(part in "012345" and len(part) == 1 for part in text.split(",")):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of frames such as 0,2,4 or all")
    return tuple(int(part) for part in text.split(","))
