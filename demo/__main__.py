"""`carbon demo`: open the demo on this machine."""

import argparse
import logging
from pathlib import Path
from typing import get_args

from carbon.console import Parser, natural, port_number, run_command
from carbon.errors import UserError
from carbon.inference.options import Dtype
from carbon.progress import say

_LOCAL = "127.0.0.1"


def main(argv: list[str] | None = None) -> int:
    """Parse the arguments and serve; return the exit code."""
    return run_command(lambda: _serve(_parser().parse_args(argv)))


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="carbon demo", description="See what a DNA language model sees, in a browser."
    )
    parser.add_argument(
        "--model",
        help="model folder, or name of a bundled or Hub model (default: bundled yeast model, or "
        "the quickstart's, trained at the first start, if none is bundled)",
    )
    parser.add_argument(
        "--models", nargs="*", default=(), metavar="MODEL",
        help="others that a visitor may switch to: bundled models, folders of models or runs",
    )  # fmt: skip
    parser.add_argument(
        "--any-model", action="store_true",
        help="a visitor may name any model folder of this machine",
    )  # fmt: skip
    parser.add_argument(
        "--genome",
        help="FASTA (default: the held-out chromosome of the bundled model, or a simulated genome)",
    )
    parser.add_argument("--annotation", help="its genes: GFF3, GTF or BED")
    parser.add_argument("--contigs", metavar="TABLE|chr", help="where these name contigs otherwise")
    parser.add_argument("--genetic-code", metavar="N", help="NCBI table, where genes state none")
    parser.add_argument(
        "--runs", type=Path,
        help="folder of training runs, and of what `carbon finetune` wrote, to look at",
    )  # fmt: skip
    parser.add_argument(
        "--home", type=Path, default=Path("quickstart"),
        help="folder of the quickstart (default: quickstart)",
    )  # fmt: skip
    parser.add_argument("--host", default=_LOCAL, help="0.0.0.0 to be seen from other machines")
    parser.add_argument("--port", type=port_number, default=7860)
    parser.add_argument("--calls-per-minute", type=natural, default=1200, help="of one address")
    parser.add_argument("--device", default="auto", help="cpu, cuda, mps, or auto (default)")
    parser.add_argument("--dtype", choices=("auto", *get_args(Dtype)), default="auto")
    return parser


def _serve(arguments: argparse.Namespace) -> None:
    from carbon.genome.genome import Genome
    from demo import first_start
    from demo.allowed_models import AllowedModels
    from demo.app import build
    from demo.lab import Lab, shown_name
    from demo.limits import Limits

    logging.basicConfig(level=logging.WARNING)
    if arguments.annotation and not arguments.genome:
        raise UserError("--annotation: give the --genome that it belongs to")
    model_name = arguments.model or first_start.find_model(arguments.home)
    files = first_start.Genome(arguments.genome, arguments.annotation)
    if not arguments.genome:
        files = first_start.find_genome(model_name, arguments.home)
    say(f"loading {model_name}")
    from carbon.inference import Model, load
    from demo.learning_curves import read_learning
    from demo.model_facts import about_model, model_of_run

    def opened(name: str | Path) -> Model:
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
            server_port=arguments.port,
            prevent_thread_lock=True,
            **options,
        )
    except OSError:
        raise UserError(
            f"port {arguments.port}: is taken, or not allowed; give another --port"
        ) from None
    say(f"open {local} (stop with Ctrl-C)")
    app.block_thread()


if __name__ == "__main__":
    raise SystemExit(main())
