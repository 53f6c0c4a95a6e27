"""`carbon serve`: one model behind one address."""

import argparse
from pathlib import Path

from carbon.console import natural, port_number, say
from carbon.errors import UserError
from carbon.verbs.common import Verbs, add_loading, check_inputs, load

_LOCAL = "127.0.0.1"


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "serve",
        help="answer completions, embeddings, scores and variants by HTTP, in OpenAI's form",
        description="Answers /v1/completions, /v1/embeddings, /score and /variants until it is "
        "stopped; /openapi.json lists their fields. Requests that are alike are read together. "
        "Needs pip install 'carbon-dna[serve]'.",
    )
    add_loading(verb)
    verb.add_argument("--reference", help="FASTA, of which /variants scores variants")
    verb.add_argument("--host", default=_LOCAL, help="0.0.0.0 to be seen from other machines")
    verb.add_argument("--port", type=port_number, default=8000, help="0 for any that is free")
    verb.add_argument(
        "--most-bp", type=natural, default=1_000_000, help="of one request, given and asked for"
    )
    verb.add_argument(
        "--most-waiting", type=natural, default=256, help="requests; one more gets 503"
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    check_inputs(arguments, arguments.reference)
    try:
        import uvicorn

        from carbon.serve import ServeOptions, make_app
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install 'carbon-dna[serve]'") from None
    from carbon.genome import Reference

    reference = Reference(arguments.reference) if arguments.reference else None
    name = Path(arguments.model).name
    options = ServeOptions(
        name=name,
        reference=reference,
        most_bp=arguments.most_bp,
        most_waiting=arguments.most_waiting,
    )
    app = make_app(load(arguments), options)
    if arguments.host != _LOCAL:
        say(f"{arguments.host}: whoever reaches this address may ask; there is no password")
    config = uvicorn.Config(app, arguments.host, arguments.port, log_level="warning")
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    listening.listen(config.backlog)  # whoever has read the line may ask, and waits for the start
    host, port = listening.getsockname()[:2]
    say(f"{name} answers at http://{host}:{port}; Ctrl-C ends")
    server.run(sockets=[listening])
