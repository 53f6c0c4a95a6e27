"""`carbon serve`: serve a model by HTTP."""

import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import Parameter

from carbon.commands.shared import (
    Device,
    Genes,
    Loading,
    Port,
    Positive,
    Several,
    check_inputs,
    one_of,
)
from carbon.errors import UserError
from carbon.inference.options import AnnotationOptions
from carbon.progress import say

if TYPE_CHECKING:
    from carbon.finetune.predict import FinetunedModel
    from carbon.genome import Annotation, Reference
    from carbon.inference import Model
    from carbon.inference.variants.background import Background

_PERCENTILES = one_of("Percentiles")
_NO_GENES = AnnotationOptions()


def serve(
    *,
    loading: Loading,
    device: Device = "auto",
    finetuned: Annotated[Several, Parameter(metavar="NAME=FOLDER")] = (),
    reference: Path | None = None,
    genes: Genes = _NO_GENES,
    background: Annotated[Path | None, Parameter(group=_PERCENTILES)] = None,
    no_background: Annotated[bool, Parameter(group=_PERCENTILES)] = False,
    calibration: Path | None = None,
    host: str = "127.0.0.1",
    port: Port = 8000,
    token_file: Path | None = None,
    allowed_hosts: Several = ("localhost",),
    allowed_origins: Several = (),
    most_tokens: Positive = 500_000,
    most_items: Positive = 10_000,
    most_waiting: Positive = 256,
    most_connections: Positive = 512,
    timeout_seconds: Positive = 60,
    grace_seconds: Positive = 30,
) -> None:
    """Serve completions, embeddings, scores, variants and predictions, with OpenAI's API.

    Answers by HTTP until it is stopped; /docs lists the addresses and their fields. Batches
    requests with equal settings. Needs pip install 'carbon-dna[serve]'.

    Args:
        finetuned: fine-tuned models for /predict, each with a name for clients and the folder that
            `carbon finetune` wrote.
        reference: FASTA for /variants.
        background: file of `carbon background` for percentiles of variants; default:
            background.json in the model's folder, if it matches.
        no_background: never return a percentile.
        calibration: file of `carbon background --neighbour-bp` for calibrated_delta.
        host: 0.0.0.0 to accept connections from other machines.
        port: 0 for any free port.
        token_file: file with the token that clients send as Authorization: Bearer TOKEN.
        allowed_hosts: names of this server in requests, besides IP addresses; * for any.
        allowed_origins: origins of web pages that may send requests, such as https://lab.org.
        most_tokens: maximum tokens computed for one request.
        most_items: maximum results of one request.
        most_waiting: maximum waiting requests; more get 503.
        most_connections: maximum open connections; more get 503.
        timeout_seconds: seconds for a client to send a request, and to read from its answer.
        grace_seconds: seconds from SIGTERM or Ctrl-C until open connections are closed.
    """
    folders = _folders(finetuned)
    for_variants = (genes.annotation, background, calibration)
    check_inputs(
        loading.model, reference, *for_variants, token_file, *folders.values(), carbon_only=True
    )
    genes.check()
    for path in for_variants:
        if path and not reference:
            raise UserError(f"{path}: is for variants; give their FASTA with --reference")
    try:
        from carbon.serve import ConnectionLimits, ServeOptions, make_app
        from carbon.serve.options import read_token
        from carbon.serve.server import bind, is_loopback, make_server
    except ModuleNotFoundError as error:
        raise UserError(f"{error.name} is missing: pip install 'carbon-dna[serve]'") from None
    from carbon.genome import Reference
    from carbon.inference.variants.calibration import Calibration

    token = read_token(token_file) if token_file else None
    name = Path(loading.model).name
    with bind(host, port) as listening:
        opened = Reference(reference) if reference else None
        model = loading.load(device)
        uses_own = opened is not None and not no_background
        options = ServeOptions(
            name=name,
            reference=opened,
            annotation=_annotation(genes, opened),
            genetic_code=genes.genetic_code,
            background=_background(model, loading.model, background) if uses_own else None,
            calibration=Calibration.read(calibration) if calibration else None,
            finetuned=_finetuned(folders, device, loading.dtype),
            token=token,
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
        server = make_server(make_app(model, options), limits)
        if not is_loopback(host) and not token:
            say(
                f"{host}: anyone who can reach this address can send requests; --token-file sets a "
                "token"
            )
        _say_address((name, *folders), *listening.getsockname()[:2])
        with _zero_after_sigterm():
            server.run(sockets=[listening])


@contextmanager
def _zero_after_sigterm() -> Iterator[None]:
    """Exit with 0 at SIGTERM, which uvicorn raises again after it has answered open requests."""
    before = signal.signal(signal.SIGTERM, _exit)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit(number: int, frame: Any) -> NoReturn:
    raise SystemExit(0)


def _say_address(names: Sequence[str], host: str, port: int) -> None:
    """Report which models answer, and where."""
    shown_host = f"[{host}]" if ":" in host else host
    answer = "answers" if len(names) == 1 else "answer"
    say(f"{', '.join(names)} {answer} at http://{shown_host}:{port}; Ctrl-C ends")


def _folders(finetuned: Several) -> dict[str, Path]:
    """Return the folder of each fine-tuned model by its name."""
    folders: dict[str, Path] = {}
    for text in finetuned:
        name, _, folder = text.partition("=")
        if not name or not folder:
            raise UserError(
                f"--finetuned {text}: give NAME=FOLDER, such as promoters=runs/promoters"
            )
        if name in folders:
            raise UserError(f"--finetuned {text}: '{name}' is given twice")
        folders[name] = Path(folder)
    return folders


def _finetuned(folders: Mapping[str, Path], device: str, dtype: str) -> "dict[str, FinetunedModel]":
    """Load fine-tuned models, in the dtype of `carbon predict` unless another is given."""
    if not folders:
        return {}
    from carbon.finetune.predict import load_finetuned

    chosen = "bfloat16" if dtype == "bfloat16" else "float32"
    return {
        name: load_finetuned(folder, device=device, dtype=chosen)  # type: ignore[arg-type]
        for name, folder in folders.items()
    }


def _annotation(genes: AnnotationOptions, reference: "Reference | None") -> "Annotation | None":
    """Read the annotation of the reference, and report what it leaves out."""
    if reference is None or genes.annotation is None:
        return None
    from carbon.genome import contig_names
    from carbon.inference.variants.annotate import read_genes, warn_of_unknown_codes

    names = contig_names(genes.contigs, reference.contig_lengths_bp)
    read = read_genes(genes, reference, names)
    warn_of_unknown_codes(genes, read)
    return read.annotation


def _background(model: "Model", source: str, chosen: Path | None) -> "Background | None":
    """Return the background the user chose, or else the model's own if it fits."""
    from carbon.inference.variants.background import FILE_NAME, Background
    from carbon.model import model_folder

    if chosen:
        return Background.read(chosen)  # the application refuses one of another model
    own = model_folder(source).path / FILE_NAME
    if not own.is_file():
        return None
    background = Background.read(own)
    try:
        background.check_model(model.runner, str(own))
    except UserError as why:
        say(f"no percentiles: {why}")
        return None
    return background
