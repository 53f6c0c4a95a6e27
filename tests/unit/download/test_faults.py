"""The downloader against a small copy of NCBI's layout, served from this machine with faults."""

import errno
import socket
import struct
import tomllib
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest

from carbon.errors import UserError
from tests.helpers.download import (
    ABSENT,
    E_COLI,
    E_COLI_FOLDER,
    GENOME,
    GENOME_BYTES,
    YEAST,
    YEAST_FOLDER,
    files_in,
    get,
    original,
)


def busy(status, **headers):
    return lambda handler, content: handler.reply(status, b"busy", **headers)


def other_bytes(handler, content):
    handler.reply(200, bytes(len(content)))


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
    handler.server.ncbi.stalled.wait(60)  # set when the test ends
    handler.close_connection = True


class TestBadTimes:
    @pytest.mark.parametrize(
        ("status", "name"), [(429, GENOME), (500, "md5checksums.txt"), (503, "md5checksums.txt")]
    )
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

    def test_a_connection_cut_and_reset(self, ncbi, output, waits):
        """In the middle of a reply, and before one."""
        ncbi.faults["md5checksums.txt"] = [cut, reset]
        ncbi.faults[GENOME] = [cut, reset, cut_and_reset]
        (assembly,) = get(ncbi, output).assemblies
        assert assembly.annotation and waits == [1, 2, 1, 2, 4]
        assert ncbi.ranges_of(GENOME)[:2] == [None, f"bytes={GENOME_BYTES // 2}-"]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    def test_silence(self, ncbi, output, waits, monkeypatch, capsys):
        monkeypatch.setattr("data_pipeline.inputs.ncbi.TIMEOUT_SECONDS", (5, 0.2))
        ncbi.faults[GENOME] = [stall]
        get(ncbi, output)
        assert waits == [1] and "timed out" in capsys.readouterr().err
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    def test_a_wrong_md5_is_tried_once_more(self, ncbi, output):
        ncbi.faults[GENOME] = [other_bytes] * 3
        with pytest.raises(UserError, match=f"{E_COLI}: .*{GENOME}: .* MD5"):
            get(ncbi, output)
        assert files_in(output / E_COLI) == [] and ncbi.ranges_of(GENOME) == [None, None]
        get(ncbi, output)
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)

    def test_a_full_disk(self, ncbi, output, monkeypatch):
        """It stops everything; the next run goes on from what was written."""

        @contextmanager
        def no_space(description, total, done):
            def advance(n):
                raise OSError(errno.ENOSPC, "No space left on device")

            yield advance

        with monkeypatch.context() as patch, pytest.raises(OSError, match="No space left"):
            patch.setattr("data_pipeline.inputs.ncbi.progress", no_space)
            get(ncbi, output, keep_going=True)
        assert files_in(output) == [E_COLI]
        assert files_in(output / E_COLI) == [f"{GENOME}.part"]
        written = (output / E_COLI / f"{GENOME}.part").stat().st_size
        get(ncbi, output)
        assert ncbi.ranges_of(GENOME) == [None, f"bytes={written}-"]
        assert (output / E_COLI / GENOME).read_bytes() == original(ncbi, GENOME)


def suppress(folder):
    (folder / "assembly_status.txt").write_text("status=suppressed\n")


def keep_no_genome(folder):
    lines = (folder / "md5checksums.txt").read_text().splitlines(keepends=True)
    kept = [line for line in lines if f"./{GENOME}" not in line]
    (folder / "md5checksums.txt").write_text("".join(kept))


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
        assert capsys.readouterr().err.splitlines()[-1] == f"2 of 3 skipped: {ABSENT}, {YEAST}"

    @pytest.mark.parametrize(
        ("harm", "message"),
        [
            (suppress, "suppressed"),
            (keep_no_genome, f"lists no {GENOME}"),
            (lose_genome, f"{GENOME}: the server has no such file"),
        ],
    )
    def test_a_harmed_folder(self, ncbi, output, harm, message):
        harm(next(ncbi.root.rglob(E_COLI_FOLDER)))
        with pytest.raises(UserError, match=f"{E_COLI}: .*{message}"):
            get(ncbi, output)
        assert not list(output.rglob("*.gz*"))
