"""What the tests of download share."""

import hashlib
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from data_pipeline.inputs.ncbi import Accession, download

E_COLI, YEAST, ABSENT = "GCF_000005845.2", "GCA_000146045.2", "GCF_000005845.9"


E_COLI_FOLDER, YEAST_FOLDER = f"{E_COLI}_ASM584v2", f"{YEAST}_R64"


GENOME_BYTES = 300_000


GENOME, ANNOTATION, REPORT = (
    f"{E_COLI_FOLDER}{ending}"
    for ending in ("_genomic.fna.gz", "_genomic.gff.gz", "_assembly_report.txt")
)


class FakeNCBI:
    """A tree of files, the requests that were made for them, and faults for a file's next replies.

    A request is `(last part of the path, Range header)`.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.requests: list[tuple[str, str | None]] = []
        self.headers: set[tuple[str, str]] = set()
        self.clients: set[int] = set()
        self.faults: dict[str, list] = {}
        self.stalled = threading.Event()

    def add(self, folder: str, report: str, files: dict[str, bytes]) -> Path:
        """Add an assembly; its genome is random bytes, as good as gzip to who only copies them."""
        digits = folder[4:13]
        path = self.root.joinpath(
            "genomes", "all", folder[:3], digits[:3], digits[3:6], digits[6:], folder
        )
        path.mkdir(parents=True)
        everything = {"_assembly_report.txt": report.encode(), **files}
        lines = []
        for ending, content in everything.items():
            (path / f"{folder}{ending}").write_bytes(content)
            lines.append(f"{hashlib.md5(content).hexdigest()}  ./{folder}{ending}\n")
        (path / "md5checksums.txt").write_text("".join(lines))
        (path / "assembly_status.txt").write_text("status=latest\n")
        return path

    def ranges_of(self, name: str) -> list[str | None]:
        return [asked for requested, asked in self.requests if requested == name]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else each reply waits 40 ms for the client

    def do_GET(self):
        ncbi = self.server.ncbi
        path = ncbi.root / self.path.strip("/")
        asked = self.headers["Range"]
        ncbi.requests.append((path.name, asked))
        ncbi.headers.add((self.headers["User-Agent"], self.headers["Accept-Encoding"]))
        ncbi.clients.add(self.client_address[1])
        if ncbi.faults.get(path.name):
            ncbi.faults[path.name].pop(0)(self, path.read_bytes() if path.is_file() else b"")
        elif path.is_dir():
            links = "".join(f'<a href="{p.name}/">{p.name}/</a>\n' for p in path.iterdir())
            self.reply(200, f'<a href="../">Parent</a>\n{links}'.encode())
        elif not path.is_file():
            self.reply(404, b"what a missing page says is no status=suppressed")
        elif asked:
            content, first = path.read_bytes(), int(asked.removeprefix("bytes=").rstrip("-"))
            self.reply(206, content[first:]) if first < len(content) else self.reply(416, b"no")
        else:
            self.reply(200, path.read_bytes())

    def reply(self, status, body, **headers):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


def get(ncbi, output, *names, **options):
    accessions = [Accession(name) for name in names or (E_COLI,)]
    return download(accessions, output, ncbi.url, seconds_between=0, **options)


def original(ncbi, name):
    (path,) = ncbi.root.rglob(name)
    return path.read_bytes()


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())
