"""A user's script, for mypy and pyright: what is right passes, and each mistake is reported.

A comment `type: ignore` that nothing needs is an error for both.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, assert_type

import carbon


def rows(vcf: Path, reference: str) -> list[float]:
    with carbon.load("yeast") as model:
        assert_type(model, carbon.Model)
        table = model.score_vcf(
            vcf,
            reference=reference,
            region=carbon.Interval("VIII", 0, 600),
            protocol="tiled",
            strands="both",
            scores=["jsd"],
            output="scores.vcf.gz",
            processes=2,
        )
        assert_type(table, carbon.Table)
        assert_type(table.summary, dict[str, Any])
        return [row["delta"] for row in table]


def records(vcf: Path, fasta: Path) -> Iterator[carbon.Variant]:
    for record in carbon.read_vcf(vcf, "VIII:1-600"):
        assert_type(record, carbon.VcfRow)
        yield from record.variants
    for sequence in carbon.read_fasta(fasta):
        assert_type(sequence, carbon.SequenceRecord)


def functions(model: carbon.Model, folder: Path) -> None:
    assert_type(model.embed_fasta("s.fa", pool="mean"), carbon.Table)
    assert_type(model.scan_region("c:1-9", reference="r.fa", sides="both"), carbon.Table)
    assert_type(model.score_fasta("s.fa", per_base=True), carbon.Table)
    assert_type(model.generate(["ATG"], 60, temperature=0.9), list[str])
    with carbon.Reference("r.fa") as genome:
        whole = carbon.join_chunks(model.scan(genome, carbon.Interval("VIII", 0, 600)))
    assert_type(whole, carbon.ScanChunk)
    designs = carbon.design.run(model, [lambda s: map(len, s)], length_bp=60, sites=("EcoRI",))
    print(designs[0].values, designs[0].bases)
    results = carbon.finetune.run(model, {"output": str(folder)}, overrides=("seeds=[1]",))
    assert_type(results, dict[str, Any])
    assert_type(carbon.rl.run(model, ["python:m:f"], folder, length_bp=60), carbon.Model)
    assert_type(carbon.compare.run("a.tsv", "b.tsv", top=5), carbon.Table)
    assert_type(carbon.load_finetuned(folder), carbon.FinetunedModel)
    for entry in carbon.pretrained.list():
        print(entry.name, entry.genome)


def mistakes(model: carbon.Model) -> None:
    model.score_vcf("v.vcf")  # type: ignore
    model.score_vcf("v.vcf", reference="r.fa", window=6)  # type: ignore
    model.score_vcf("v.vcf", reference="r.fa", strands="up")  # type: ignore
    model.score("ATG", by="chance")  # type: ignore
    carbon.design.run(model, ["python:m:f"], length=60)  # type: ignore
    carbon.read_vfc("v.vcf")  # type: ignore
    model.close(1)  # type: ignore
