"""Options of a server, which all endpoints share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from carbon.errors import UserError
from carbon.genome import Annotation, Reference
from carbon.inference.variants.background import Background
from carbon.inference.variants.calibration import Calibration
from carbon.io.files import why_no_file
from carbon.io.structured import read_bytes

if TYPE_CHECKING:
    from carbon.finetune.predict import FinetunedModel

LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "::1")
_MOST_TOKEN_BYTES = 4096
_LEAST_TOKEN_LETTERS = 16


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeOptions:
    """Options of a server.

    Attributes:
        name: of the model, for clients.
        reference: for variants.
        annotation: of the reference, for consequences of variants.
        genetic_code: table of its CDS without transl_table, or None.
        background: for percentiles of variants.
        calibration: for calibrated deltas of variants.
        finetuned: fine-tuned models by name, for predictions.
        token: that each request must carry, or None.
        most_tokens: maximum tokens that the model computes for one request.
        most_items: maximum results of one request.
        most_waiting: maximum waiting requests; more are refused with 503.
        allowed_hosts: names of this server that a request may have in its Host header, besides IP
            addresses; `*` for any.
        allowed_origins: origins whose web pages may send requests (CORS).
    """

    name: str
    reference: Reference | None = None
    annotation: Annotation | None = None
    genetic_code: str | None = None
    background: Background | None = None
    calibration: Calibration | None = None
    finetuned: Mapping[str, "FinetunedModel"] = field(default_factory=dict)
    token: str | None = field(default=None, repr=False)
    most_tokens: int = 500_000
    most_items: int = 10_000
    most_waiting: int = 256
    allowed_hosts: Sequence[str] = LOOPBACK_HOSTS
    allowed_origins: Sequence[str] = ()


def read_token(path: Path) -> str:
    """Return the bearer token of a file, without the blanks around it.

    Raises:
        UserError: the file is absent or too large, or has no token of at least 16 letters that an
            HTTP header can carry.
    """
    try:
        text = read_bytes(path, _MOST_TOKEN_BYTES).decode("ascii", errors="replace").strip()
    except OSError:
        raise UserError(f"{path}: {why_no_file(path)}") from None
    is_plain = text.isascii() and text.isprintable() and " " not in text
    if len(text) < _LEAST_TOKEN_LETTERS or not is_plain:
        raise UserError(
            f"{path}: a token has at least {_LEAST_TOKEN_LETTERS} ASCII letters, digits or signs, "
            f"without blanks; write one with: openssl rand -hex 32 > {path}"
        )
    return text
