"""What bcftools does with variants, as an independent answer."""

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from carbon.genome import Reference, Variant
from tests.helpers.files import write_vcf


def normalized_by_bcftools(
    reference: Reference, variants: Sequence[Variant], folder: Path
) -> list[Variant]:
    """Return what `bcftools norm` makes of variants, in their order, alleles in upper case."""
    if shutil.which("bcftools") is None:
        pytest.skip("bcftools is not installed")
    contigs = {name: number for number, name in enumerate(reference.contig_lengths_bp)}
    header = "".join(f"##contig=<ID={name}>\n" for name in contigs)
    numbers = sorted(
        range(len(variants)), key=lambda n: (contigs[variants[n].contig], variants[n].position)
    )
    records = [
        f"{v.contig}\t{v.position + 1}\t{n}\t{v.ref}\t{v.alt}\t.\t.\t."
        for n in numbers
        for v in [variants[n]]
    ]
    vcf = write_vcf(folder / "written.vcf", records, header)
    command = ["bcftools", "norm", "--fasta-ref", str(reference.path), str(vcf)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    lines = [line.split("\t") for line in done.stdout.splitlines() if not line.startswith("#")]
    found = {
        int(name): Variant(contig, int(position) - 1, ref.upper(), alt.upper())
        for contig, position, name, ref, alt, *_ in lines
    }
    return [found[number] for number in range(len(variants))]
