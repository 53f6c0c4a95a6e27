"""Genomes and annotation from NCBI, by assembly accession: checksummed, resumable and polite.

The layout of the server is described in https://ftp.ncbi.nlm.nih.gov/genomes/all/README.txt: an
assembly's folder is named `[accession.version]_[assembly name]`, as its files begin, and lists
their MD5 in `md5checksums.txt`.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple, TypeVar

import requests
import tomli_w
import urllib3
from tenacity import (
    RetryCallState,
    RetryError,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_exponential,
)

from carbon import __version__
from carbon.errors import UserError
from carbon.io.files import atomic_file, behind_links
from carbon.io.structured import read_json
from carbon.progress import progress, say
from carbon.tokenizer import SPECIES_TAG_OF

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
    try:
        return urllib3.Retry().parse_retry_after(text)
    except urllib3.exceptions.InvalidHeader:
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
    """Return the first error of a chain: the libraries wrap it until the line is hard to read."""
    return _root_of(error.__context__) if error.__context__ else error


class Connection:
    """One request at a time, none too soon after the last, and patience with a server's bad times.

    Attributes:
        server: the root of all addresses, without a slash at the end.
    """

    def __init__(self, session: requests.Session, server: str, seconds_between: float) -> None:
        self.server = server
        self._session = session
        # Bytes as stored: published sizes and MD5 sums refer to the compressed file.
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
        """Append the missing bytes of a file to `part`, showing progress."""
        self._patiently(url, lambda: self._continue(url, part, description))

    def _continue(self, url: str, part: Path, description: str) -> None:
        have_bytes = part.stat().st_size if part.exists() else 0
        with self._ask(url, have_bytes) as reply:
            if reply.status_code == 404:
                raise UserError(f"{url}: the server has no such file; try again later")
            if reply.status_code == 416:  # the file is complete; its MD5 decides
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

        def report(state: RetryCallState) -> None:
            error = state.outcome and state.outcome.exception()
            assert error
            say(f"{url}: {_root_of(error)}; trying again in {state.upcoming_sleep:.0f} s")

        try:
            return Retrying(
                stop=stop_after_attempt(MOST_TRIES),
                wait=_backoff,
                retry=retry_if_exception_type(_PASSING),
                before_sleep=report,
                sleep=sleep,
            )(attempt)
        except RetryError as error:
            reason = _root_of(error.last_attempt.exception() or error)
            raise UserError(
                f"{url}: {MOST_TRIES} tries failed, the last with: {reason}; check the network "
                "and run the command again, which goes on where this one stopped"
            ) from None
        except requests.RequestException as error:
            raise UserError(f"{url}: {error}; give a server such as {NCBI}") from None


def _backoff(state: RetryCallState) -> float:
    """Return the seconds to wait: 1, 2, 4, ..., or more if the server asks for it."""
    error = state.outcome and state.outcome.exception()
    asked = error.retry_after_seconds if isinstance(error, _BusyError) else 0.0
    return max(wait_exponential(FIRST_BACKOFF_SECONDS)(state), asked)


SECONDS_BETWEEN = 0.34  # as NCBI asks of programs that use its E-utilities

# A whole file name is the folder's name and one of these, so that `*_cds_from_genomic.fna.gz` and
# `*_rna_from_genomic.fna.gz`, which end as the genome does, are not mistaken for it.
ENDINGS = {
    "genome": "_genomic.fna.gz",
    "annotation": "_genomic.gff.gz",
    "report": "_assembly_report.txt",
}
RECORD = "verified.json"
RECIPE = "assemblies.toml"


class Accession(NamedTuple):
    """An assembly to download, such as `GCF_000005845.2`, and its species type if one is known."""

    name: str
    species_type: str | None = None

    @property
    def parent(self) -> str:
        """The path of the listing that shows the assembly's folder: `GCF/000/005/845`."""
        prefix, digits = self.name[:3], self.name[4:13]
        return f"{prefix}/{digits[:3]}/{digits[3:6]}/{digits[6:]}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Assembly:
    """A downloaded assembly as a recipe names it; paths are absolute."""

    name: str
    genome: str
    annotation: str | None
    organism: str
    accession: str
    species_type: str | None


class Downloaded(NamedTuple):
    """Downloaded assemblies in the order of the list, and the accessions that were skipped."""

    assemblies: tuple[Assembly, ...]
    skipped: tuple[str, ...]


class _Published(NamedTuple):
    """A file on the server and the MD5 published with it."""

    url: str
    md5: str

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]


def read_accessions(path: Path) -> list[Accession]:
    """Read one accession a line, optionally with a TAB and a species type such as `mam`.

    Blank lines and what follows a `#` are ignored.

    Raises:
        UserError: a line is malformed, an accession is named twice, or there is none.
    """
    accessions: dict[str, Accession] = {}
    # A file that is not UTF-8 has no accession either, and is reported as such.
    lines = path.read_text(encoding="utf-8-sig", errors="replace").splitlines()
    for number, line in enumerate(lines, 1):
        if text := line.partition("#")[0].strip():
            where = f"{path} line {number}"
            accession = _parse_accession(text, where)
            if accession.name in accessions:
                raise UserError(f"{where}: {accession.name} is named twice; remove one of the two")
            accessions[accession.name] = accession
    if not accessions:
        raise UserError(f"{path}: no accession in it; write one a line, such as GCF_000005845.2")
    return list(accessions.values())


def _parse_accession(text: str, where: str) -> Accession:
    name, *rest = (column.strip() for column in text.split("\t"))
    if not re.fullmatch(r"GC[AF]_[0-9]{9}\.[0-9]+", name):
        raise UserError(
            f"{where}: {name!r} is not an assembly accession with its version; write it as "
            "GCF_000005845.2, and a species type after a TAB"
        )
    if len(rest) > 1:
        raise UserError(f"{where}: {1 + len(rest)} columns; give an accession and a species type")
    if rest and rest[0] not in SPECIES_TAG_OF:
        known = ", ".join(SPECIES_TAG_OF)
        raise UserError(f"{where}: unknown species type {rest[0]!r}; give one of {known}, or none")
    return Accession(name, *rest)


def download(
    accessions: Sequence[Accession],
    output: Path,
    server: str = NCBI,
    keep_going: bool = False,
    seconds_between: float = SECONDS_BETWEEN,
) -> Downloaded:
    """Fetch genome, annotation (if there is one) and report of each into `output/<accession>/`.

    At the end `output/assemblies.toml` has an `[[assemblies]]` table for each, for a recipe. What
    an earlier run left is used: of a whole assembly nothing is asked, a file that was cut off is
    continued.

    Args:
        accessions: the assemblies, as `read_accessions` returns them.
        output: the folder, made if need be.
        server: the root of NCBI's public files or of a mirror with the same layout.
        keep_going: report an assembly that cannot be fetched and continue, instead of stopping.
        seconds_between: the shortest time between the starts of two requests.

    Raises:
        UserError: an assembly is unknown or suppressed, or cannot be fetched whole.
    """
    output = behind_links(output)
    output.mkdir(parents=True, exist_ok=True)
    assemblies: list[Assembly] = []
    skipped: list[str] = []
    with requests.Session() as session:
        connection = Connection(session, server.rstrip("/"), seconds_between)
        for number, accession in enumerate(accessions, 1):
            say(f"{number}/{len(accessions)} {accession.name}")
            try:
                assemblies.append(_download_one(connection, accession, output / accession.name))
            except UserError as error:
                message = f"{accession.name}: {error}"
                if not keep_going:
                    raise UserError(message) from None
                say(f"skipped: {message}")
                skipped.append(accession.name)
    with atomic_file(output / RECIPE) as temporary:
        temporary.write_text("\n".join(map(_as_toml, assemblies)), encoding="utf-8")
    if skipped:
        say(f"{len(skipped)} of {len(accessions)} skipped: {', '.join(skipped)}")
    return Downloaded(tuple(assemblies), tuple(skipped))


def _as_toml(assembly: Assembly) -> str:
    """Return an assembly as an entry of a recipe, without unknown keys."""
    known = {key: value for key, value in asdict(assembly).items() if value is not None}
    return f"[[assemblies]]\n{tomli_w.dumps(known)}"


def _download_one(connection: Connection, accession: Accession, folder: Path) -> Assembly:
    files = _recorded(folder)
    if files is None:
        files = _find(connection, accession)
        folder.mkdir(exist_ok=True)
        for role, file in files.items():
            _fetch(connection, file, folder / file.name, f"{accession.name} {role}, bytes")
        with atomic_file(folder / RECORD) as temporary:
            record = {role: file._asdict() for role, file in files.items()}
            temporary.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    paths = {role: folder / file.name for role, file in files.items()}
    header = _read_report_header(paths["report"])
    return Assembly(
        name=header["Assembly name"],
        genome=str(paths["genome"]),
        annotation=str(paths["annotation"]) if "annotation" in paths else None,
        organism=re.sub(r"\s*\([^()]*\)$", "", header["Organism name"]),
        accession=accession.name,
        species_type=accession.species_type,
    )


def _recorded(folder: Path) -> dict[str, _Published] | None:
    """Return the files that an earlier run verified here, or None if they are not all whole."""
    record = folder / RECORD
    if not record.is_file():
        return None
    files = read_json(record, dict[str, _Published], remedy="remove it")
    whole = all(_is_whole(folder / file.name, file.md5) for file in files.values())
    return files if whole else None


def _find(connection: Connection, accession: Accession) -> dict[str, _Published]:
    """Ask the server which files an assembly has; returns them by their key in ENDINGS."""
    listing_url = f"{connection.server}/genomes/all/{accession.parent}/"
    listing = connection.text(listing_url)
    found = re.search(rf'href="({re.escape(accession.name)}_[^"/]+)/"', listing)
    if not found:
        raise UserError(
            f"no such assembly in {listing_url}; check the number and the version, or look up "
            "which assembly replaces it"
        )
    folder = found[1]
    url = f"{listing_url}{folder}"
    if "status=suppressed" in connection.text(f"{url}/assembly_status.txt"):
        raise UserError("NCBI has suppressed this assembly; choose another of the species")
    checksums = connection.text(f"{url}/md5checksums.txt")
    lines = re.findall(r"^([0-9a-f]{32})\s+\./(\S+)", checksums, re.M)
    md5_of = {name: md5 for md5, name in lines}
    files = {
        role: _Published(f"{url}/{folder}{ending}", md5_of[f"{folder}{ending}"])
        for role, ending in ENDINGS.items()
        if f"{folder}{ending}" in md5_of
    }
    for role in ("genome", "report"):
        if role not in files:
            raise UserError(
                f"{url}/md5checksums.txt lists no {folder}{ENDINGS[role]}; NCBI does not keep all "
                "files of old versions, so choose a newer one"
            )
    if "annotation" not in files:
        say(f"{accession.name}: NCBI has no annotation of it, only the genome")
    return files


def _fetch(connection: Connection, file: _Published, path: Path, description: str) -> None:
    """Fetch a file to `path` by way of `path.part`, which a later run continues.

    Raises:
        UserError: its MD5 is wrong even when it is fetched from zero.
    """
    if _is_whole(path, file.md5):
        return
    part = path.with_name(f"{path.name}.part")
    for _ in range(2):
        connection.save(file.url, part, description)
        if _is_whole(part, file.md5):
            os.replace(part, path)
            return
        say(f"{file.name}: its MD5 is not the one in md5checksums.txt")
        part.unlink()
    raise UserError(f"{file.url}: fetched from zero, its MD5 is wrong; try again later")


def _is_whole(path: Path, md5: str) -> bool:
    if not path.is_file():
        return False
    with path.open("rb") as handle:
        found = hashlib.file_digest(handle, lambda: hashlib.md5(usedforsecurity=False))
    return found.hexdigest() == md5


def _read_report_header(path: Path) -> dict[str, str]:
    """Read the lines `# key:  value` that an assembly report begins with."""
    text = path.read_text(encoding="utf-8", errors="replace")
    header = dict(re.findall(r"^# ([^:\n]+):[ \t]*(.*\S)", text, re.M))
    for key in ("Assembly name", "Organism name"):
        if key not in header:
            raise UserError(f"{path}: no line '# {key}:'; this is not an NCBI assembly report")
    return header
