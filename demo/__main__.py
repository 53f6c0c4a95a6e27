"""`carbon demo`: open the demo on this machine."""

import argparse
import ctypes
import logging
import socket
from contextlib import suppress
from pathlib import Path
from typing import get_args

from carbon.console import Parser, epilogue, natural, port_number, run_command
from carbon.errors import UserError
from carbon.inference.options import Dtype
from carbon.progress import say

_LOCAL = "127.0.0.1"
_M_ARENA_MAX = -8  # malloc.h of glibc


def main(argv: list[str] | None = None) -> int:
    """Parse the arguments and serve; return the exit code."""
    return run_command(lambda: _serve(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="carbon demo",
        description="Show in a browser how a DNA language model sees DNA.",
        epilog=epilogue(
            "docs/demo.md", "carbon demo", "carbon demo --model runs/mine/export --port 7861"
        ),
    )
    _add_model(parser.add_argument_group("Model"))
    _add_input(parser.add_argument_group("Input"))
    _add_server(parser.add_argument_group("Server"))
    return parser


def _add_model(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--model",
        help="model folder, or name of a bundled or Hub model; if not given, yeast, or the "
        "quickstart's, which the first start trains, if none is bundled",
    )
    group.add_argument(
        "--models", nargs="*", default=(), metavar="MODEL",
        help="other models that visitors may choose: names, folders of models or runs",
    )  # fmt: skip
    group.add_argument(
        "--any-model", action="store_true",
        help="visitors may name any model folder of this machine",
    )  # fmt: skip
    group.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto")
    group.add_argument(
        "--dtype", choices=("auto", *get_args(Dtype)), default="auto",
        help="of weights and activations",
    )  # fmt: skip


def _add_input(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--genome",
        help="FASTA; if not given, the chromosome held out of the bundled model's training, or a "
        "simulated genome",
    )
    group.add_argument("--annotation", help="genes of --genome: GFF3, GTF or BED")
    group.add_argument(
        "--contigs", metavar="TABLE|chr",
        help="if the annotation uses other contig names than the genome: a table, or chr",
    )  # fmt: skip
    group.add_argument(
        "--genetic-code", metavar="N", help="NCBI translation table if genes state none"
    )
    group.add_argument(
        "--runs", type=Path,
        help="folder of training runs, and of what `carbon finetune` wrote; if not given, --home",
    )  # fmt: skip
    group.add_argument(
        "--home", type=Path, default=Path("quickstart"), help="folder of the quickstart"
    )


def _add_server(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--host", default=_LOCAL, help="0.0.0.0 accepts other machines")
    group.add_argument("--port", type=port_number, default=7860, help="0 for any free port")
    group.add_argument(
        "--calls-per-minute", type=natural, default=1200, help="maximum requests of one address"
    )


def _serve(arguments: argparse.Namespace) -> None:
    from carbon.genome.genome import Genome
    from demo import first_start
    from demo.app import build
    from demo.lab import Lab, shown_name
    from demo.limits import Limits
    from demo.models import AllowedModels, about_model, model_of_run

    logging.basicConfig(level=logging.WARNING)
    share_heap()
    if arguments.annotation and not arguments.genome:
        raise UserError("--annotation: give the --genome that it belongs to")
    model_name = arguments.model or first_start.find_model(arguments.home)
    files = first_start.Genome(arguments.genome, arguments.annotation)
    if not arguments.genome:
        files = first_start.find_genome(model_name, arguments.home)
    say(f"loading {model_name}")
    from carbon.inference import Model, load
    from carbon.model.folder import carbon_folder
    from demo.learning_curves import read_learning

    def opened(name: str | Path) -> Model:
        carbon_folder(name)  # refuses models that cannot generate
        return load(name, device=arguments.device, dtype=arguments.dtype)

    sources = {shown_name(source): source for source in (model_name, *arguments.models)}
    if len(sources) <= len(arguments.models):
        raise UserError("--models: two have one name; name each once, and rename the folder of one")
    for source in arguments.models:
        about_model(str(model_of_run(source)))  # report invalid models before the server starts
    del sources[shown_name(model_name)]
    has_others = sources or arguments.any_model
    allowed = AllowedModels(sources, arguments.any_model, opened) if has_others else None
    model = opened(model_name)
    genome = Genome.open(files.fasta, files.annotation, arguments.contigs, arguments.genetic_code)
    runs = arguments.runs or arguments.home
    learned = read_learning(files.learning) if files.learning else None
    lab = Lab(model, model_name, genome, runs, files.known_genes, learned, allowed)
    limits = Limits(calls_per_minute=arguments.calls_per_minute)
    app, options = build(lab, limits)
    try:
        _, local, _ = app.launch(
            server_name=arguments.host,
            server_port=arguments.port or _free_port(arguments.host),
            prevent_thread_lock=True,
            **options,
        )
    except OSError:
        raise UserError(
            f"port {arguments.port}: is taken, or not allowed; give another --port"
        ) from None
    say(f"open {local} (stop with Ctrl-C)")
    app.block_thread()


def share_heap() -> None:
    """Let all threads of this process allocate from one heap, where glibc is the C library.

    Answers are computed in turn, by many threads. With a heap for each of them, which is the
    default, what one has freed is lost to the next, and memory grows with the threads.
    """
    with suppress(AttributeError, TypeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


def _free_port(host: str) -> int:
    """Return a free port; Gradio takes 0 for the number of the port that it then asks."""
    with socket.create_server((host, 0)) as free:
        port: int = free.getsockname()[1]
        return port


if __name__ == "__main__":
    raise SystemExit(main())
