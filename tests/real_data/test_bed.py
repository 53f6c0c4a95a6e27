"""Yeast's GTF written as BED12 by code of its own gives the corpus of the GTF."""

import gzip
import re
from collections import Counter, defaultdict

import pytest

from tests.helpers.curation import build, rows_of

YEAST = (
    "yeast/Saccharomyces_cerevisiae.R64-1-1.dna.toplevel.fa.gz",
    "yeast/Saccharomyces_cerevisiae.R64-1-1.96.gtf.gz",
)
SOURCES = ("eukaryote", "eukaryote_concatenated", "mrna", "mrna_splice", "promoter")


def bed12(lines) -> str:
    """Write a GTF's transcripts as BED12: exons as blocks, CDS and stop codon as the thick part."""
    exons, coding, place = defaultdict(list), defaultdict(list), {}
    for line in lines:
        contig, _, kind, first, last, _, strand, *_, text = line.rstrip("\n").split("\t")
        match = re.search(r'transcript_id "([^"]+)"', text)
        if match and kind in ("exon", "CDS", "stop_codon"):
            (exons if kind == "exon" else coding)[match[1]].append((int(first) - 1, int(last)))
            place[match[1]] = contig, strand
    written = []
    for name, (contig, strand) in place.items():
        blocks = sorted(exons[name])
        start, end = blocks[0][0], blocks[-1][1]
        ends = [edge for span in coding[name] for edge in span] or [start]
        sizes, starts = ([b - a for a, b in blocks], [a - start for a, _ in blocks])
        columns = [contig, start, end, name, 0, strand, min(ends), max(ends), 0, len(blocks)]
        lists = [",".join(map(str, each)) for each in (sizes, starts)]
        written.append("\t".join(map(str, columns + lists)) + "\n")
    return "".join(written)


@pytest.fixture(scope="module")
def corpora(real_data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bed")
    with gzip.open(real_data / YEAST[1], "rt") as lines:
        text = bed12(line for line in lines if line[0] != "#")
    (folder / "yeast.bed").write_text(text)
    common = [
        f"assemblies.0.genome={real_data / YEAST[0]}", 'assemblies.0.holdout=["VIII"]',
        "keep.near_identity=1",
        f"assemblies.0.sources={list(SOURCES)}".replace("'", '"'),
    ]  # fmt: skip
    assert build(folder / "gtf", *common, f"assemblies.0.annotation={real_data / YEAST[1]}") == 0
    assert build(folder / "bed", *common, f"assemblies.0.annotation={folder / 'yeast.bed'}") == 0
    return folder / "gtf", folder / "bed"


@pytest.mark.parametrize("source", SOURCES)
def test_records_of_a_bed_are_those_of_the_gtf(corpora, source):
    """But for names of genes and types of RNA, which a BED does not tell.

    Nor does it tell genes: 20 promoters are of RNAs that share a base of an exon with a coding
    transcript, with which they are one gene here.
    """

    def told(row):
        segments = tuple(tuple(segment.values()) for segment in row["segments"])
        coding = row["gene_type"] if row["gene_type"] == "cds" and source != "promoter" else ""
        return row["sequence"], segments, row["record_id"], row["assembly"], coding

    of_gtf, of_bed = (Counter(map(told, rows_of(corpus, source))) for corpus in corpora)
    assert of_bed == of_gtf and len(of_bed) > 50
