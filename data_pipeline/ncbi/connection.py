"""A server of files, asked one request at a time, politely and with patience."""

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from time import monotonic, sleep
from typing import TypeVar

import requests
import urllib3

from carbon import __version__
from carbon.errors import UserError
from carbon.progress import progress, say

T = TypeVar("T")

NCBI = "https://ftp.ncbi.nlm.nih.gov"
MOST_TRIES = 5
FIRST_BACKOFF_SECONDS = 1.0
TIMEOUT_SECONDS = (10.0, 60.0)  # to connect, and of silence while reading
CHUNK_BYTES = 1 << 16
BUSY = (429, 500, 502, 503, 504)


class _BusyError(Exception):
    """The server asks to come again later."""

    def __init__(self, reply: requests.Response) -> None:
        super().__init__(f"{reply.status_code} {reply.reason}")
        self.retry_after_seconds = _retry_after_seconds(reply.headers.get("Retry-After", "0"))


def _retry_after_seconds(text: str) -> float:
    """Read a Retry-After header, which holds seconds or a date (RFC 9110, section 10.2.3)."""
    if text.isdigit():
        return float(text)
    try:
        return (parsedate_to_datetime(text) - datetime.now(UTC)).total_seconds()
    except ValueError:
        return 0.0


# What may go well at the next try. The body is read below `requests`, hence the errors of urllib3.
_PASSING = (
    _BusyError,
    requests.ConnectionError,
    requests.Timeout,
    requests.exceptions.ChunkedEncodingError,
    urllib3.exceptions.HTTPError,
)


def _root_of(error: BaseException) -> BaseException:
    """Return what was raised first: the libraries wrap it until the line is hard to read."""
    return _root_of(error.__context__) if error.__context__ else error


class Connection:
    """One request at a time, none too soon after the last, and patience with a server's bad times.

    Attributes:
        server: the root of all addresses, without a slash at the end.
    """

    def __init__(self, session: requests.Session, server: str, seconds_between: float) -> None:
        self.server = server
        self._session = session
        # Bytes as they are stored: a size and an MD5 are those of the compressed file.
        session.headers["Accept-Encoding"] = "identity"
        session.headers["User-Agent"] = f"carbon-dna/{__version__}"
        self._seconds_between = seconds_between
        self._next_request = 0.0

    def text(self, url: str) -> str:
        """Return a small text, empty if the server has no such page."""

        def attempt() -> str:
            with self._ask(url, 0) as reply:
                return "" if reply.status_code == 404 else reply.text

        return self._patiently(url, attempt)

    def save(self, url: str, part: Path, description: str) -> None:
        """Add to `part` what it lacks of a file, showing progress in bytes."""
        self._patiently(url, lambda: self._continue(url, part, description))

    def _continue(self, url: str, part: Path, description: str) -> None:
        have_bytes = part.stat().st_size if part.exists() else 0
        with self._ask(url, have_bytes) as reply:
            if reply.status_code == 404:
                raise UserError(f"{url}: the server has no such file; try again later")
            if reply.status_code == 416:  # nothing follows what we have; its MD5 will tell
                return
            if reply.status_code == 200:  # all of it, whatever we asked for
                have_bytes = 0
            length = reply.headers.get("Content-Length")
            total_bytes = have_bytes + int(length) if length else None
            with (
                part.open("ab" if have_bytes else "wb") as sink,
                progress(description, total_bytes, have_bytes) as advance,
            ):
                # Not iter_content: it unpacks files that a server marks as gzip-encoded.
                for chunk in reply.raw.stream(CHUNK_BYTES, decode_content=False):
                    sink.write(chunk)
                    advance(len(chunk))

    def _ask(self, url: str, first_byte: int) -> requests.Response:
        """Send one request; returns a reply of status 200, 206, 404 or 416, its body unread."""
        if (wait := self._next_request - monotonic()) > 0:
            sleep(wait)
        self._next_request = monotonic() + self._seconds_between
        headers = {"Range": f"bytes={first_byte}-"} if first_byte else {}
        reply = self._session.get(url, headers=headers, stream=True, timeout=TIMEOUT_SECONDS)
        if reply.status_code in (200, 206, 404, 416):
            return reply
        with reply:
            if reply.status_code in BUSY:
                raise _BusyError(reply)
            raise UserError(
                f"{url}: the server answers {reply.status_code} {reply.reason}; check the address"
            )

    def _patiently(self, url: str, attempt: Callable[[], T]) -> T:
        """Try up to MOST_TRIES times, waiting twice as long each time or as long as asked to."""
        tries, backoff = 0, FIRST_BACKOFF_SECONDS
        while True:
            tries += 1
            try:
                return attempt()
            except _PASSING as error:
                reason = _root_of(error)
                if tries == MOST_TRIES:
                    raise UserError(
                        f"{url}: {tries} tries failed, the last with: {reason}; check the network "
                        "and run the command again, which goes on where this one stopped"
                    ) from None
                asked = error.retry_after_seconds if isinstance(error, _BusyError) else 0.0
                wait = max(backoff, asked)
                say(f"{url}: {reason}; trying again in {wait:.0f} s")
            except requests.RequestException as error:
                raise UserError(f"{url}: {error}; give a server such as {NCBI}") from None
            sleep(wait)
            backoff *= 2
