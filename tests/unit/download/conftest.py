"""What the tests of download share."""

import random
import threading
from http.server import ThreadingHTTPServer

import pytest

from tests.helpers.download import (
    E_COLI,
    E_COLI_FOLDER,
    GENOME_BYTES,
    YEAST_FOLDER,
    FakeNCBI,
    Handler,
)


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
    monkeypatch.setattr("data_pipeline.inputs.ncbi.sleep", seconds.append)
    monkeypatch.setenv("NO_PROXY", "*")
    return seconds


@pytest.fixture
def output(tmp_path):
    return tmp_path / "out"
