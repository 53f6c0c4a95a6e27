"""`carbon serve`: serve a model by HTTP."""

from pathlib import Path

from carbon.commands.shared import Device, Loading, Natural, Port, check_inputs
from carbon.errors import UserError
from carbon.progress import say

_LOCAL = "127.0.0.1"


def serve(
    *,
    loading: Loading,
    device: Device = "auto",
    reference: Path | None = None,
    host: str = _LOCAL,
    port: Port = 8000,
    most_bp: Natural = 1_000_000,
    most_waiting: Natural = 256,
) -> None:
    """Serve completions, embeddings, scores and variants by HTTP, with OpenAI's API.

    Answers /v1/completions, /v1/embeddings, /score and /variants until it is stopped; /openapi.json
    lists their fields. Batches requests with equal settings. Needs pip install 'carbon-dna[serve]'.

    Args:
        reference: FASTA for /variants.
        host: 0.0.0.0 to accept connections from other machines.
        port: 0 for any free port.
        most_bp: maximum bases of one request, given and requested.
        most_waiting: maximum waiting requests; more get 503.
    """
    check_inputs(loading.model, reference)
    try:
        import uvicorn

        from carbon.serve import ServeOptions, make_app
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install 'carbon-dna[serve]'") from None
    from carbon.genome import Reference

    name = Path(loading.model).name
    options = ServeOptions(
        name=name,
        reference=Reference(reference) if reference else None,
        most_bp=most_bp,
        most_waiting=most_waiting,
    )
    app = make_app(loading.load(device), options)
    if host != _LOCAL:
        say(f"{host}: anyone who can reach this address can send requests; there is no password")
    config = uvicorn.Config(app, host, port, log_level="warning")
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    listening.listen(config.backlog)  # requests after the printed line wait for the start
    bound_host, bound_port = listening.getsockname()[:2]
    say(f"{name} answers at http://{bound_host}:{bound_port}; Ctrl-C ends")
    server.run(sockets=[listening])
