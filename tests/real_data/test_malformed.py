"""Files that other projects keep for being nasty: each gives what its format allows, or one line.

`tests/golden/malformed.tsv` is the table of outcomes. After a change that is meant, write it anew
with `CARBON_GOLDEN=write`, and read the difference.
"""

import os
from collections import defaultdict
from pathlib import Path
from types import SimpleNamespace

from carbon.errors import UserError
from carbon.genome import read_annotation, read_sequences, unpack_genbank

GOLDEN = Path(__file__).parents[1] / "golden" / "malformed.tsv"
FOLDERS = ("biopython_fasta", "biopython_genbank", "biopython_gff", "gffutils")


class _AnyContig(defaultdict):
    """A reference that has every contig, as long as one likes."""

    def __init__(self):
        super().__init__(lambda: 10**9)

    def __contains__(self, name):
        return True


def outcome_of(path, scratch):
    try:
        if path.suffix in (".gb", ".gbk", ".gbwithparts", ".seq", ".bgz"):
            genes = unpack_genbank(path, scratch).annotation
        elif path.parent.name == "gffutils" and path.suffix != ".fa":
            everything = SimpleNamespace(path="any reference", contig_lengths_bp=_AnyContig())
            genes = read_annotation(path, everything)
        else:
            sequences = list(read_sequences(path))
            return f"{len(sequences)} sequences, {sum(len(s) for _, s in sequences)} bp"
    except UserError as error:
        assert "\n" not in str(error)
        return f"error: {error}".replace(f"{path.parent}/", "")
    coding = sum(bool(t.cds) for gene in genes.genes for t in gene.transcripts)
    reasons = sorted({each.reason for each in genes.left_out})
    return f"{len(genes.genes)} genes, {coding} CDS" + (
        f"; {', '.join(reasons)}" if reasons else ""
    )


def test_outcomes(real_data, tmp_path):
    rows = []
    for folder in FOLDERS:
        for path in sorted((real_data / "malformed" / folder).iterdir()):
            if path.is_file() and path.suffix != ".fai":  # a reader's, not of the collection
                outcome = outcome_of(path, tmp_path / "x.fa")
                rows.append(f"{folder}/{path.name}\t{outcome}\n")
    if os.environ.get("CARBON_GOLDEN") == "write":
        GOLDEN.write_text("".join(rows))
    assert len(rows) > 80
    assert rows == GOLDEN.read_text().splitlines(keepends=True)
