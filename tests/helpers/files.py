"""Small genomes written by hand, and a folder behind HTTP."""

import functools
import gzip
import http.server
import io
import os
import random
import re
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def random_bases(length_bp: int, seed: int = 0) -> str:
    return "".join(random.Random(seed).choices("ACGT", k=length_bp))


def write_fasta(path: Path, contigs: dict[str, str], width: int = 60) -> Path:
    lines = []
    for name, bases in contigs.items():
        lines.append(f">{name}\n")
        lines += [f"{bases[i : i + width]}\n" for i in range(0, len(bases), width)]
    text = "".join(lines)
    if path.suffix == ".gz":
        with gzip.open(path, "wt") as sink:
            sink.write(text)
    else:
        path.write_text(text)
    return path


def write_vcf(path: Path, records: list[str], header: str = "") -> Path:
    path.write_text(
        f"##fileformat=VCFv4.2\n{header}#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
        + "".join(f"{record}\n" for record in records)
    )
    return path


def write_bcf(path: Path, vcf: Path, output_type: str = "b") -> Path:
    """Write the records of a VCF as BCF; output type `u` is that of bcftools, not compressed."""
    from pysam import bcftools

    options = ("--no-version", "-O", output_type, "-o", str(path), str(vcf))
    bcftools.view(*options, catch_stdout=False)
    return path


def place_gene(strand: str = "+") -> tuple[str, str, str]:
    """Return `(contig, gff3, gtf)` of one gene of two exons on a contig of 400 bp.

    Forward, the exons are 101-160 and 221-280 (1-based), the CDS 110-160 and 221-241: with
    51 + 21 = 72 bases it is 24 codons, the stop among them.
    """
    contig = list(random_bases(400, seed=3))
    coding = "ATG" + ("TACCAATTAGGAGCA" * 5)[:66] + "TAA"
    contig[109:160], contig[220:241] = coding[:51], coding[51:]
    contig[160:162], contig[218:220] = "GT", "AG"
    bases = "".join(contig)
    spans = {
        "gene": [(101, 280)],
        "exon": [(101, 160), (221, 280)],
        "CDS": [(110, 160), (221, 241)],
    }
    if strand == "-":
        from carbon.genome import reverse_complement

        bases = reverse_complement(bases)
        spans = {k: [(401 - b, 401 - a) for a, b in reversed(v)] for k, v in spans.items()}

    def line(kind: str, span: tuple[int, int], attributes: str) -> str:
        return f"c1\ttest\t{kind}\t{span[0]}\t{span[1]}\t.\t{strand}\t.\t{attributes}\n"

    gff3 = "##gff-version 3\n"
    gff3 += line("gene", spans["gene"][0], "ID=g1;Name=ABC;biotype=protein_coding")
    gff3 += line("mRNA", spans["gene"][0], "ID=t1;Parent=g1")
    gff3 += "".join(line("exon", s, "Parent=t1") for s in spans["exon"])
    gff3 += "".join(line("CDS", s, "ID=p1;Parent=t1") for s in spans["CDS"])

    ids = 'gene_id "g1"; transcript_id "t1"; gene_name "ABC"; gene_biotype "protein_coding";'
    gtf = line(
        "gene", spans["gene"][0], 'gene_id "g1"; gene_name "ABC"; gene_biotype "protein_coding";'
    )
    gtf += line("transcript", spans["gene"][0], ids)
    gtf += "".join(line("exon", s, ids) for s in spans["exon"])
    # A GTF leaves the stop codon out of the CDS.
    first, last = spans["CDS"]
    if strand == "+":
        stop, last = (last[1] - 2, last[1]), (last[0], last[1] - 3)
    else:
        stop, first = (first[0], first[0] + 2), (first[0] + 3, first[1])
    gtf += line("CDS", first, ids) + line("CDS", last, ids) + line("stop_codon", stop, ids)
    return bases, gff3, gtf


class _Ranges(http.server.SimpleHTTPRequestHandler):
    """Serves a folder, and parts of files as RFC 9110 section 14 says."""

    def send_head(self):
        path, asked = Path(self.translate_path(self.path)), self.headers.get("Range")
        if asked is None or not path.is_file():
            return super().send_head()
        data = path.read_bytes()
        first, last = re.fullmatch(r"bytes=(\d+)-(\d*)", asked).groups()
        part = data[int(first) : int(last or len(data)) + 1]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        end = int(first) + len(part) - 1
        self.send_header("Content-Range", f"bytes {first}-{end}/{len(data)}")
        self.end_headers()
        return io.BytesIO(part)

    def end_headers(self):
        self.send_header("Accept-Ranges", "bytes")
        super().end_headers()

    def log_message(self, *_):
        pass


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder over HTTP on this machine and give its address."""
    handler = functools.partial(_Ranges, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def same_files(left: Path, right: Path) -> bool:
    """Tell whether two model folders hold the same bytes, but for the card."""

    def contents(folder: Path) -> dict[Path, bytes]:
        files = [p for p in folder.rglob("*") if p.is_file() and p.name != "README.md"]
        return {path.relative_to(folder): path.read_bytes() for path in files}

    return contents(left) == contents(right)


@contextmanager
def room_for(most_bytes):
    """Let no file grow larger, as on a full disk; children have the bound too."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def replace_unnoticed(path: Path, old: bytes, new: bytes) -> None:
    """Put other content in a file, of equal size and time of change, as `cp -p` does."""
    before, content = path.stat(), path.read_bytes()
    assert len(old) == len(new) and content.count(old) >= 1
    path.write_bytes(content.replace(old, new, 1))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    after = path.stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)
