"""What the demo's panels are tested with: a genome with one gene, and a model in a folder."""

from pathlib import Path

import numpy as np

from carbon.genome import Interval, reverse_complement
from carbon.genome.opened import Genome
from carbon.inference import Carbon
from carbon.inference.learning import Learning
from carbon.model import save_model
from demo.lab import Lab
from demo.panel import Progress
from tests.helpers.files import random_bases, write_fasta

GENE = "ABC"
_EXONS, _CDS = ((101, 500), (601, 1000)), ((111, 500), (601, 930))  # 1-based; 240 codons
_CONTIG_BP = 1400


def write_genome(folder: Path, contig: str = "c1", strand: str = "+") -> tuple[Path, Path]:
    """Write a FASTA of 1,400 bases and a GFF3 of one gene of two exons; return both paths."""
    bases = list(random_bases(_CONTIG_BP, seed=5))
    coding = "ATG" + ("TACCAATTAGGAGCA" * 48)[:714] + "TAA"
    bases[110:500], bases[600:930] = coding[:390], coding[390:]
    bases[500:502], bases[598:600] = "GT", "AG"
    exons, cds, text = _EXONS, _CDS, "".join(bases)
    if strand == "-":
        text = reverse_complement(text)
        exons, cds = (
            tuple((_CONTIG_BP + 1 - last, _CONTIG_BP + 1 - first) for first, last in spans)
            for spans in (exons, cds)
        )
    whole = (min(exons)[0], max(exons)[1])
    lines = [("gene", whole, f"ID=g1;Name={GENE}"), ("mRNA", whole, "ID=t1;Parent=g1")]
    lines += [("exon", span, "Parent=t1") for span in exons]
    lines += [("CDS", span, "ID=p1;Parent=t1") for span in cds]
    gff = folder / "genes.gff3"
    gff.write_text("##gff-version 3\n" + "".join(
        f"{contig}\ttest\t{kind}\t{first}\t{last}\t.\t{strand}\t.\t{attributes}\n"
        for kind, (first, last), attributes in lines
    ))  # fmt: skip
    return write_fasta(folder / "genome.fa", {contig: text}), gff


def make_lab(
    folder: Path, model: Carbon, contig: str = "c1", learned: Learning | None = None
) -> Lab:
    """Return a lab whose model and genome are files, as the code that panels show needs them."""
    save_model(model.model.network, folder / "model")
    genome = Genome.open(*write_genome(folder, contig))
    return Lab(model, str(folder / "model"), genome, folder, learned=learned)


def learned_example() -> Learning:
    """Return three steps of the gene and what lies before it, where it alone becomes known."""
    nats = np.full((3, 1000), np.log(4), dtype=np.float16)
    nats[1, 110:500:3], nats[2, 100:] = 0.7, 0.5
    return Learning(Interval("c1", 0, 1000), (0, 25, 9000), nats)


def answered(panel, values):
    """Return the last result of a panel, with each field's default where none is given."""
    from demo.fields import checked_values

    items = panel.answer(checked_values(panel.fields, values))
    return [item for item in items if not isinstance(item, Progress)][-1]
