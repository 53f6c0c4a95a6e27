"""What the tests of scan share."""

from carbon.cli import main
from carbon.genome import reverse_complement
from carbon.inference import ScanChunk, join_chunks
from tests.helpers.files import place_gene, random_bases

BASES = random_bases(700, 11)


GAPS = list(random_bases(400, 12))


GAPS[100], GAPS[230:250], GAPS[399] = "N", "R" * 20, "n"


GAPPED = "".join(GAPS)


CONTIGS = {
    "c": BASES[:300] + BASES[300:].lower(),
    "gaps": GAPPED,
    "turned": reverse_complement(GAPPED),
    "short": "ACG",
}


def scanned(model, reference, interval, **how) -> ScanChunk:
    return join_chunks(model.scan(reference, interval, **how))


GENE_BASES, GFF3, GTF = place_gene("-")


def run_scan(folder, *words):
    common = ["--model", str(folder / "model"), "--reference", str(folder / "r.fa")]
    return main(["scan", *common, *map(str, words)])
