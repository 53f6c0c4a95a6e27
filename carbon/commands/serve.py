"""`carbon serve`: serve a model by HTTP."""

from pathlib import Path

from carbon.commands.shared import Device, Loading, Port, Positive, Several, check_inputs
from carbon.errors import UserError
from carbon.progress import say


def serve(
    *,
    loading: Loading,
    device: Device = "auto",
    reference: Path | None = None,
    calibration: Path | None = None,
    host: str = "127.0.0.1",
    port: Port = 8000,
    allowed_hosts: Several = ("localhost",),
    allowed_origins: Several = (),
    most_tokens: Positive = 500_000,
    most_items: Positive = 10_000,
    most_waiting: Positive = 256,
    most_connections: Positive = 512,
    timeout_seconds: Positive = 60,
    grace_seconds: Positive = 30,
) -> None:
    """Serve completions, embeddings, scores and variants by HTTP, with OpenAI's API.

    Answers /v1/completions, /v1/embeddings, /score and /variants until it is stopped; /openapi.json
    lists their fields. Batches requests with equal settings. Needs pip install 'carbon-dna[serve]'.

    Args:
        reference: FASTA for /variants.
        calibration: file of `carbon background --neighbour-bp` for calibrated_delta.
        host: 0.0.0.0 to accept connections from other machines.
        port: 0 for any free port.
        allowed_hosts: names of this server in requests, besides IP addresses; * for any.
        allowed_origins: origins of web pages that may send requests, such as https://lab.org.
        most_tokens: maximum tokens computed for one request.
        most_items: maximum results of one request.
        most_waiting: maximum waiting requests; more get 503.
        most_connections: maximum open connections; more get 503.
        timeout_seconds: seconds for a client to send a request, and to read from its answer.
        grace_seconds: seconds from SIGTERM or Ctrl-C until open connections are closed.
    """
    check_inputs(loading.model, reference, calibration, carbon_only=True)
    if calibration and not reference:
        raise UserError(f"{calibration}: is for variants; give their FASTA with --reference")
    try:
        from carbon.serve import ConnectionLimits, ServeOptions, make_app
        from carbon.serve.server import bind, is_loopback, make_server
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install 'carbon-dna[serve]'") from None
    from carbon.genome import Reference
    from carbon.inference.variants.calibration import Calibration

    name = Path(loading.model).name
    with bind(host, port) as listening:
        options = ServeOptions(
            name=name,
            reference=Reference(reference) if reference else None,
            calibration=Calibration.read(calibration) if calibration else None,
            most_tokens=most_tokens,
            most_items=most_items,
            most_waiting=most_waiting,
            allowed_hosts=(*allowed_hosts, host),
            allowed_origins=allowed_origins,
        )
        limits = ConnectionLimits(
            most_connections=most_connections,
            timeout_seconds=timeout_seconds,
            grace_seconds=grace_seconds,
        )
        server = make_server(make_app(loading.load(device), options), limits)
        if not is_loopback(host):
            say(
                f"{host}: anyone who can reach this address can send requests; there is no password"
            )
        bound_host, bound_port = listening.getsockname()[:2]
        shown_host = f"[{bound_host}]" if ":" in bound_host else bound_host
        say(f"{name} answers at http://{shown_host}:{bound_port}; Ctrl-C ends")
        server.run(sockets=[listening])
