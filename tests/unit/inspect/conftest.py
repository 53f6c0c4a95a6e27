"""What the tests of inspect share."""

import re

import pysam
import pytest

from data_pipeline.__main__ import main
from tests.helpers.files import write_fasta
from tests.helpers.inspect import build


@pytest.fixture(scope="session")
def contigs(tmp_path_factory):
    """A simulated genome as folder and bases: some masked, some unknown, and a stretch in copies.

    The first 9,000 bases of chr1 stand again as `twin`, and as `kin` with every 150th changed.
    """
    folder = tmp_path_factory.mktemp("sim") / "genome"
    assert main(["simulate", "--output", str(folder), "--genome-bp", "90000", "--seed", "7"]) == 0
    with pysam.FastaFile(str(folder / "genome.fa")) as fasta:
        bases = {name: fasta.fetch(name) for name in fasta.references}
    (folder / "genome.fa.fai").unlink()
    for name, text in bases.items():
        bases[name] = text[:2000] + text[2000:3000].lower() + "N" * 7 + text[3007:]
    bases["twin"] = bases["chr1"][:9000]
    kin = list(bases["twin"])
    kin[::150] = ["A" if base in "Cc" else "C" for base in kin[::150]]
    bases["kin"] = "".join(kin)
    write_fasta(folder / "genome.fa", bases)
    with (folder / "genes.gff3").open("a") as gff3:
        for line in (folder / "genes.gff3").read_text().splitlines():
            if line.startswith("chr1\t") and int(line.split("\t")[4]) < 8700:
                for name in ("twin", "kin"):
                    renamed = re.sub(r"(ID|Parent)=([^;]+)", rf"\1=\2_{name}", line[5:])
                    gff3.write(f"{name}\t{renamed}\n")
    return folder, bases


@pytest.fixture(scope="session")
def corpus(contigs, tmp_path_factory):
    output = tmp_path_factory.mktemp("built") / "corpus"
    build(contigs[0], output)
    return output
