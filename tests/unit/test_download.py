"""The downloader against a small copy of NCBI's layout, served from this machine with faults."""

import errno
import gzip
import hashlib
import random
import socket
import struct
import threading
import tomllib
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from carbon import __version__
from carbon.console import run_command
from carbon.errors import UserError
from data_pipeline.download import Accession, download, main_download, read_accessions

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


def busy(status, **headers):
    return lambda handler, content: handler.reply(status, b"busy", **headers)


def whole_whatever_was_asked(handler, content):
    handler.reply(200, content)


def other_bytes(handler, content):
    handler.reply(200, bytes(len(content)))


def marked_as_encoded(handler, content):
    handler.reply(200, content, Content_Encoding="gzip")


def cut(handler, content):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(content)))
    handler.end_headers()
    handler.wfile.write(content[: len(content) // 2])
    handler.close_connection = True


def reset(handler, content):
    no_time = struct.pack("ii", 1, 0)
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, no_time)
    handler.server.shutdown_request = handler.server.close_request  # no orderly end before it
    handler.close_connection = True


def cut_and_reset(handler, content):
    cut(handler, content)
    reset(handler, content)


def stall(handler, content):
    handler.server.ncbi.stalled.wait(5)
    handler.close_connection = True


@pytest.fixture
def ncbi(tmp_path):
    fake = FakeNCBI(tmp_path / "server")
    bases = random.Random(1)
    fake.add(
        E_COLI_FOLDER,
        "# Assembly name:  ASM584v2\r\n"
        "# Organism name:  Escherichia coli str. K-12 substr. MG1655 (E. coli)\r\n"
        "# Taxid:          511145\r\n# Submitter:\r\n#\r\nno header line: x\r\n",
        {
            "_cds_from_genomic.fna.gz": b"coding sequences",
            "_rna_from_genomic.fna.gz": b"transcripts",
            "_genomic.fna.gz": bases.randbytes(GENOME_BYTES),
            "_genomic.gff.gz": bases.randbytes(1000),
        },
    )
    fake.add(
        YEAST_FOLDER,
        "# Assembly name:  R64\n# Organism name:  Saccharomyces cerevisiae S288C\n",
        {"_genomic.fna.gz": bases.randbytes(2000)},
    )
    fake.add(f"{E_COLI}0_ASM9", "# Assembly name:  another version\n", {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.ncbi = fake
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    fake.url = f"http://127.0.0.1:{server.server_port}"
    yield fake
    fake.stalled.set()
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def waits(monkeypatch):
    """How long the downloader would have slept, each time it would have."""
    seconds: list[float] = []
    monkeypatch.setattr("data_pipeline.connection.sleep", seconds.append)
    monkeypatch.setenv("NO_PROXY", "*")
    return seconds


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out"


def get(ncbi, output, *names, **options):
    accessions = [Accession(name) for name in names or (E_COLI,)]
    return download(accessions, output, ncbi.url, seconds_between=0, **options)


def original(ncbi, name):
    (path,) = ncbi.root.rglob(name)
    return path.read_bytes()


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


class TestTheList:
    def read(self, tmp_path, text):
        (tmp_path / "list.tsv").write_text(text)
        return read_accessions(tmp_path / "list.tsv")

    def test_a_good_one(self, tmp_path):
        text = f"# bacteria\n\n{E_COLI}\tpro  # K-12\r\n  {YEAST}  \nGCF_000001405.40\tmam\n"
        assert self.read(tmp_path, text) == [
            Accession(E_COLI, "pro"), Accession(YEAST, None), Accession("GCF_000001405.40", "mam")
        ]  # fmt: skip

    def test_bytes_of_other_systems(self, tmp_path):
        (tmp_path / "windows.txt").write_bytes(f"\ufeff{E_COLI}\r\n".encode())
        assert read_accessions(tmp_path / "windows.txt") == [Accession(E_COLI)]
        (tmp_path / "list.gz").write_bytes(gzip.compress(E_COLI.encode()))
        with pytest.raises(UserError, match=r"list.gz line 1: .* is not an assembly accession"):
            read_accessions(tmp_path / "list.gz")

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("GCF_00000584.2", "line 2: 'GCF_00000584.2' is not an assembly accession"),
            ("GCF_000005845", "line 2: 'GCF_000005845' is not an assembly accession with its"),
            ("xGCF_000005845.2", "line 2: 'xGCF_000005845.2' is not"),
            ("NC_000913.3", "line 2: 'NC_000913.3' is not"),
            (f"{E_COLI} pro", f"line 2: '{E_COLI} pro' is not .* after a TAB"),
            (f"{E_COLI}\tbacteria", "line 2: unknown species type 'bacteria'; give one of mam, "),
            (f"{E_COLI}\tpro\tx", "line 2: 3 columns; give an accession and a"),
            (f"{YEAST}", f"line 2: {YEAST} is named twice; remove one"),
        ],
    )
    def test_bad_lines(self, tmp_path, text, message):
        with pytest.raises(UserError, match=f"list.tsv {message}"):
            self.read(tmp_path, f"{YEAST}\n{text}\n")

    def test_an_empty_one(self, tmp_path):
        with pytest.raises(UserError, match=r"list.tsv: no accession in it; write one a line"):
            self.read(tmp_path, "# nothing\n")


class TestDownload:
    def test_what_comes(self, ncbi, output):
        """The genome is not one of the two other files whose names end as its name does."""
        get(ncbi, output)
        assert files_in(output) == [E_COLI, "assemblies.toml"]
        assert files_in(output / E_COLI) == sorted([GENOME, ANNOTATION, REPORT, "verified.json"])
        for name in (GENOME, ANNOTATION, REPORT):
            assert (output / E_COLI / name).read_bytes() == original(ncbi, name)

    def test_the_recipe(self, ncbi, output, monkeypatch):
        monkeypatch.chdir(output.parent)
        accessions = [Accession(YEAST, "fng"), Accession(E_COLI)]
        download(accessions, Path(output.name), ncbi.url, seconds_between=0)
        recipe = (output / "assemblies.toml").read_text()
        assert recipe.startswith("[[assemblies]]\n")
        assert tomllib.loads(recipe) == {
            "assemblies": [
                {
                    "name": "R64",
                    "genome": str(output / YEAST / f"{YEAST_FOLDER}_genomic.fna.gz"),
                    "organism": "Saccharomyces cerevisiae S288C",
                    "accession": YEAST,
                    "species_type": "fng",
                },
                {
                    "name": "ASM584v2",
                    "genome": str(output / E_COLI / GENOME),
                    "annotation": str(output / E_COLI / ANNOTATION),
                    "organism": "Escherichia coli str. K-12 substr. MG1655",
                    "accession": E_COLI,
                },
            ]
        }

    def test_no_annotation_is_said(self, ncbi, output, capsys):
        (assembly,) = get(ncbi, output, YEAST).assemblies
        assert assembly.annotation is None
        assert f"{YEAST}: NCBI has no annotation" in capsys.readouterr().err

    def test_politeness(self, ncbi, output, waits):
        """One connection, who we are, and a pause before every request but the first."""
        download([Accession(E_COLI), Accession(YEAST)], output, ncbi.url, seconds_between=50)
        assert len(ncbi.requests) == 11  # a listing, a status, checksums; three and two files
        assert len(waits) == 10 and all(40 < seconds <= 50 for seconds in waits)
        assert len(ncbi.clients) == 1
        assert ncbi.headers == {(f"carbon-dna/{__version__}", "identity")}

    def test_a_file_marked_as_encoded_is_not_unpacked(self, ncbi, output):
        folder = ncbi.add("GCF_000000001.1_A", "# Assembly name: A\n# Organism name: B\n",
                          {"_genomic.fna.gz": gzip.compress(b">c\nACGT\n")})  # fmt: skip
        name = f"{folder.name}_genomic.fna.gz"
        ncbi.faults[name] = [marked_as_encoded]
        (assembly,) = get(ncbi, output, "GCF_000000001.1").assemblies
        assert gzip.decompress(Path(assembly.genome).read_bytes()) == b">c\nACGT\n"


class TestAnotherRun:
    def test_asks_nothing_of_what_is_whole(self, ncbi, output):
        first = get(ncbi, output, E_COLI, YEAST)
        recipe = (output / "assemblies.toml").read_text()
        (output / "assemblies.toml").unlink()
        ncbi.requests.clear()
        assert get(ncbi, output, E_COLI, YEAST) == first
        assert ncbi.requests == []
        assert (output / "assemblies.toml").read_text() == recipe

    @pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(b"x")])
    def test_fetches_only_what_is_not_whole(self, ncbi, output, damage):
        get(ncbi, output)
        damage(output / E_COLI / ANNOTATION)
        ncbi.requests.clear()
        get(ncbi, output)
        assert ncbi.ranges_of(ANNOTATION) == [None]
        assert ncbi.ranges_of(GENOME) == ncbi.ranges_of(REPORT) == []
        assert (output / E_COLI / ANNOTATION).read_bytes() == original(ncbi, ANNOTATION)

    def begin(self, output, content):
        (output / E_COLI).mkdir(parents=True)
        (output / E_COLI / f"{GENOME}.part").write_bytes(content)

    def test_goes_on_with_a_part(self, ncbi, output):
        self.begin(output, original(ncbi, GENOME)[:1234])
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == ["bytes=1234-"]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)
        assert not (output / E_COLI / f"{GENOME}.part").exists()

    def test_starts_over_where_ranges_are_ignored(self, ncbi, output, capsys):
        self.begin(output, original(ncbi, GENOME)[:1234])
        ncbi.faults[GENOME] = [whole_whatever_was_asked]
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == ["bytes=1234-"]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)
        assert "MD5" not in capsys.readouterr().err

    def test_takes_a_part_that_is_all_of_it(self, ncbi, output):
        self.begin(output, original(ncbi, GENOME))
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == [f"bytes={GENOME_BYTES}-"]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    @pytest.mark.parametrize("length", [1234, GENOME_BYTES, GENOME_BYTES + 1])
    def test_fetches_anew_where_the_part_is_of_something_else(self, ncbi, output, length):
        self.begin(output, bytes(length))
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == [f"bytes={length}-", None]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)


class TestBadTimes:
    @pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
    @pytest.mark.parametrize("name", [GENOME, "md5checksums.txt"])
    def test_busy(self, ncbi, output, waits, name, status):
        ncbi.faults[name] = [busy(status, Retry_After="7"), busy(status)]
        get(ncbi, output)
        assert waits == [7, 2]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    def test_retry_after_a_date(self, ncbi, output, waits):
        later = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
        earlier = "Wed, 21 Oct 2015 07:28:00 GMT"
        dates = (later, earlier, "soon")
        ncbi.faults[GENOME] = [busy(503, Retry_After=date) for date in dates]
        get(ncbi, output)
        assert 50 < waits[0] <= 60 and waits[1:] == [2, 4]

    def test_five_tries_and_no_more(self, ncbi, output, waits):
        ncbi.faults[GENOME] = [busy(503)] * 9
        with pytest.raises(UserError, match=f"{E_COLI}: .*{GENOME}: 5 tries failed, .* 503 Serv"):
            get(ncbi, output)
        assert len(ncbi.ranges_of(GENOME)) == 5 and waits == [1, 2, 4, 8]
        assert files_in(output) == [E_COLI] and files_in(output / E_COLI) == []

    def test_a_connection_cut_in_the_middle(self, ncbi, output, waits):
        ncbi.faults[GENOME] = [cut]
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == [None, f"bytes={GENOME_BYTES // 2}-"]
        assert waits == [1]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    def test_a_connection_reset(self, ncbi, output, waits, capsys):
        """Before a reply, and in the middle of one."""
        ncbi.faults["md5checksums.txt"] = [reset]
        ncbi.faults[GENOME] = [reset, cut_and_reset]
        get(ncbi, output)
        said = [line for line in capsys.readouterr().err.splitlines() if "trying again" in line]
        assert waits == [1, 1, 2] and len(said) == 3
        assert all("Connection reset by peer; trying" in line for line in said[:2])
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    @pytest.mark.parametrize("name", [GENOME, "md5checksums.txt"])
    def test_silence(self, ncbi, output, waits, monkeypatch, capsys, name):
        monkeypatch.setattr("data_pipeline.connection.TIMEOUT_SECONDS", (5, 0.2))
        ncbi.faults[name] = [stall]
        get(ncbi, output)
        assert waits == [1] and "timed out" in capsys.readouterr().err
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    def test_text_cut_in_the_middle(self, ncbi, output, waits):
        ncbi.faults["md5checksums.txt"] = [cut]
        (assembly,) = get(ncbi, output).assemblies
        assert assembly.annotation and waits == [1]

    def test_a_wrong_md5_once(self, ncbi, output):
        ncbi.faults[GENOME] = [other_bytes]
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == [None, None]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    def test_a_wrong_md5_twice(self, ncbi, output):
        ncbi.faults[GENOME] = [other_bytes, other_bytes]
        with pytest.raises(UserError, match=f"{E_COLI}: .*{GENOME}: .* its MD5 is wrong; try"):
            get(ncbi, output)
        assert len(ncbi.ranges_of(GENOME)) == 2
        assert files_in(output / E_COLI) == []

    @pytest.mark.parametrize("keep_going", [False, True])
    def test_a_full_disk(self, ncbi, output, monkeypatch, keep_going):
        """It stops everything; the next run goes on from what was written."""

        @contextmanager
        def no_space(description, total, done):
            def advance(n):
                raise OSError(errno.ENOSPC, "No space left on device")

            yield advance

        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
            patch.setattr("data_pipeline.connection.progress", no_space)
            get(ncbi, output, keep_going=keep_going)
        assert files_in(output) == [E_COLI]
        assert files_in(output / E_COLI) == [f"{GENOME}.part"]
        written = (output / E_COLI / f"{GENOME}.part").stat().st_size
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == [None, f"bytes={written}-"]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)


def suppress(folder):
    (folder / "assembly_status.txt").write_text("status=suppressed\n")


def forget_status(folder):
    (folder / "assembly_status.txt").unlink()


def keep_no_genome(folder):
    lines = (folder / "md5checksums.txt").read_text().splitlines(keepends=True)
    kept = [line for line in lines if f"./{GENOME}" not in line]
    (folder / "md5checksums.txt").write_text("".join(kept))


def keep_no_checksums(folder):
    (folder / "md5checksums.txt").unlink()


def lose_genome(folder):
    (folder / GENOME).unlink()


class TestWhatCannotBeHad:
    @pytest.mark.parametrize("name", [ABSENT, "GCF_999999999.1"])
    def test_an_unknown_accession(self, ncbi, output, name):
        """Absent from its listing, and without a listing."""
        with pytest.raises(UserError, match=f"{name}: no such assembly in http.*; check the"):
            get(ncbi, output, name, YEAST)
        assert files_in(output) == []

    def test_keep_going(self, ncbi, output, capsys):
        ncbi.faults[f"{YEAST_FOLDER}_genomic.fna.gz"] = [busy(403)]
        done = get(ncbi, output, ABSENT, E_COLI, YEAST, keep_going=True)
        assert done.skipped == (ABSENT, YEAST)
        (table,) = tomllib.loads((output / "assemblies.toml").read_text())["assemblies"]
        assert table["accession"] == E_COLI
        lines = capsys.readouterr().err.splitlines()
        assert lines[-1] == f"2 of 3 skipped: {ABSENT}, {YEAST}"
        assert any(line.startswith(f"skipped: {ABSENT}: no such assembly") for line in lines)
        assert any(line.startswith(f"skipped: {YEAST}: ") and "403 Forb" in line for line in lines)

    @pytest.mark.parametrize(
        ("harm", "message"),
        [
            (suppress, "NCBI has suppressed this assembly; choose another"),
            (keep_no_genome, f"md5checksums.txt lists no {GENOME}; NCBI does not keep"),
            (keep_no_checksums, f"md5checksums.txt lists no {GENOME}; NCBI does not keep"),
            (lose_genome, f"{GENOME}: the server has no such file; try again later"),
        ],
    )
    def test_a_harmed_folder(self, ncbi, output, harm, message):
        harm(next(ncbi.root.rglob(E_COLI_FOLDER)))
        with pytest.raises(UserError, match=f"{E_COLI}: .*{message}"):
            get(ncbi, output)
        assert not list(output.rglob("*.gz*"))

    def test_a_folder_without_status_is_taken_as_it_is(self, ncbi, output):
        forget_status(next(ncbi.root.rglob(E_COLI_FOLDER)))
        assert len(get(ncbi, output).assemblies) == 1

    def test_a_report_without_a_name(self, ncbi, output):
        ncbi.add("GCF_000000001.1_A", "# Assembly name: A\n", {"_genomic.fna.gz": b"x"})
        with pytest.raises(UserError, match="no line '# Organism name:'"):
            get(ncbi, output, "GCF_000000001.1")

    def test_a_server_that_is_none(self, output):
        with pytest.raises(UserError, match=r"give a server such as https://ftp\.ncbi"):
            download([Accession(E_COLI)], output, "ncbi", seconds_between=0)


@pytest.mark.parametrize(
    ("names", "keep_going", "code"),
    [((E_COLI,), False, 0), ((E_COLI, ABSENT), True, 1), ((E_COLI, ABSENT), False, 2)],
)
def test_the_command(ncbi, output, tmp_path, capsys, names, keep_going, code):
    path = tmp_path / "list.txt"
    path.write_text("\n".join(names))
    assert run_command(lambda: main_download(path, output, ncbi.url, keep_going)) == code
    printed = capsys.readouterr().out
    if code == 2:
        assert printed == "" and not (output / "assemblies.toml").exists()
    else:
        assert len(tomllib.loads(Path(printed.strip()).read_text())["assemblies"]) == 1
