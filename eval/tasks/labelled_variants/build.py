"""The variants of a VCF with LABEL and EFFECT in INFO, such as `carbon corpus variants` writes."""

from collections import Counter
from pathlib import Path

from carbon.errors import GenomeError
from carbon.genome import Reference, VcfReader, contig_names
from carbon.genome.vcf import info_of
from eval.contract import BuildReport
from eval.tasks.common.building import write_dataset


def build(output: Path, *, vcf: Path, reference: Path, contigs: str | None = None) -> BuildReport:
    """Write the variants of a VCF with their labels and effects.

    Args:
        output: Parquet to write.
        vcf: VCF with LABEL=0 or LABEL=1 in the INFO of each record, and EFFECT if known.
        reference: FASTA of it.
        contigs: table of contig names, or chr, where the VCF has other names.

    Raises:
        GenomeError: the VCF is not of this reference, or a record has no LABEL.
    """
    with Reference(reference) as fasta:
        names = contig_names(contigs, fasta.contig_lengths_bp)
        rows, dropped = [], Counter[str]()
        for number, row in enumerate(VcfReader(vcf, fasta, contig_names=names), start=1):
            info = info_of(row.columns[7])
            where = f"{vcf} record {number}"
            if info.get("LABEL") not in ("0", "1"):
                raise GenomeError(f"{where}: needs LABEL=0 or LABEL=1 in its INFO")
            for variant in row.variants:
                fasta.check_ref(variant.contig, variant.position, variant.ref, where)
                if reason := variant.why_unscorable():
                    dropped[reason] += 1
                    continue
                rows.append(
                    {
                        "chrom": variant.contig,
                        "pos": variant.position + 1,
                        "ref": variant.ref,
                        "alt": variant.alt,
                        "label": int(info["LABEL"]),
                        "effect": info.get("EFFECT") or "variant",
                    }
                )
    return write_dataset(output, rows, dropped, [vcf, reference], {"task": "labelled_variants"})
