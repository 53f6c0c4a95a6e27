"""What the tests of scan share."""

import pytest

from carbon.genome import Reference
from carbon.model import save_model
from tests.helpers.files import write_fasta
from tests.helpers.scan import CONTIGS, GENE_BASES, GFF3, GTF


@pytest.fixture(scope="module")
def reference(tmp_path_factory):
    return Reference(write_fasta(tmp_path_factory.mktemp("scan") / "r.fa", CONTIGS))


@pytest.fixture(scope="module")
def folder(tmp_path_factory, network):
    folder = tmp_path_factory.mktemp("scan-files")
    save_model(network, folder / "model")
    write_fasta(folder / "r.fa", {**CONTIGS, "c1": GENE_BASES})
    twice = "".join(
        f"c1\tx\tgene\t{at}\t{at + 9}\t.\t+\t.\tID=copy{at};Name=TWIN\n" for at in (5, 35)
    )
    (folder / "g.gff3").write_text(GFF3 + twice)
    (folder / "g.gtf").write_text(GTF)
    return folder
