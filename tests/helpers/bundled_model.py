"""The bundled model for tests: the real one if it is there, and one with random weights."""

import gzip
import json
from pathlib import Path

import torch

from carbon.model import save_model
from carbon.pretrained import BUNDLED_MODELS, Entry
from tests.helpers.files import random_bases

NATS_PER_BASE = 1.2345
CONTIG_BP = 3000
_GENE = 'VIII\tsgd\t{kind}\t301\t600\t.\t+\t{phase}\tgene_id "G1"; transcript_id "T1";\n'


def real_entry(name: str) -> Entry:
    """The entry of the bundled model that the project has."""
    return BUNDLED_MODELS[name].require()


def fill(folder: Path, network) -> str:
    """Make the folder of a bundled model with a network, a contig of random bases and a gene on it.

    Returns:
        The bases of the contig.
    """
    entry = BUNDLED_MODELS["yeast"]
    save_model(network, folder)
    inner = "ATG" + "GCA" * 98 + "TAA"
    bases = random_bases(300, seed=1) + inner + random_bases(CONTIG_BP - 600, seed=2)
    write_gzip(folder / entry.genome_file, f">VIII\n{bases}\n")
    lines = [_GENE.format(kind=kind, phase=phase) for kind, phase in
             (("gene", "."), ("transcript", "."), ("exon", "."), ("CDS", "0"))]  # fmt: skip
    write_gzip(folder / entry.annotation_file, "".join(lines))
    row = f"VIII\t301\t.\t{inner[0]}\tC\t.\t.\t.\n"
    header = "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n"
    (folder / entry.variants_file).write_text(header + row)
    values = {"values": {entry.name: {"value": NATS_PER_BASE}}}
    results = {"heldout": {"tasks": {"heldout_likelihood": values}}}
    (folder / "results.json").write_text(json.dumps(results))
    return bases


def write_gzip(path: Path, text: str) -> None:
    path.write_bytes(gzip.compress(text.encode()))


def count_parameters(network: torch.nn.Module) -> int:
    """Each tensor once: a tied head is the embedding."""
    return sum(tensor.numel() for tensor in network.parameters())
