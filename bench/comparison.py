"""Time and memory of `carbon compare` on a made-up million: `python bench/comparison.py [ALLELES]`.

Prints a line a format. The two tables are of one chromosome, sorted, with genes and consequences;
deltas are normal, and correlate by 0.8.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from measure import in_own_process

from carbon.compare import CompareJob, run_compare_job
from carbon.io.tables import Columns, chosen_by_ending

FORMATS = (".parquet", ".tsv", ".json", ".vcf")
_COLUMNS: Columns = {
    "contig": str, "position": int, "id": str, "ref": str, "alt": str, "delta": float,
    "reason": str, "gene": str, "consequence": str,
}  # fmt: skip
_CONSEQUENCES = ("missense_variant", "synonymous_variant", "intron_variant", "intergenic_variant")


def _write_scores(path: Path, num_alleles: int, model: int) -> None:
    """Write one model's scores of SNVs that are the same for all models."""
    random = np.random.default_rng(0)
    positions = np.sort(random.choice(200_000_000, num_alleles, replace=False)) + 1
    refs = random.integers(4, size=num_alleles)
    alts = (refs + random.integers(1, 4, size=num_alleles)) % 4
    kinds = random.integers(4, size=num_alleles)
    shared = random.normal(size=num_alleles)
    deltas = shared + 0.5 * np.random.default_rng(model).normal(size=num_alleles)
    settings = {"model": f"made-up {model}", "delta": "made up"}
    rows = (
        ("chr1", int(positions[i]), f"rs{i}", "ACGT"[refs[i]], "ACGT"[alts[i]], float(deltas[i]),
         None, f"G{i // 1000}", _CONSEQUENCES[kinds[i]])
        for i in range(num_alleles)
    )  # fmt: skip
    if path.suffix == ".vcf":
        return _write_vcf(path, rows, settings)
    with chosen_by_ending(path, "table")(path, _COLUMNS, settings) as write:
        for row in rows:
            write(row)


def _write_vcf(path: Path, rows: Any, settings: dict[str, Any]) -> None:
    with path.open("w", encoding="utf-8") as sink:
        sink.write(f"##fileformat=VCFv4.2\n##carbon_variants={json.dumps(settings)}\n")
        sink.write("#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\n")
        for *place, delta, _, gene, consequence in rows:
            info = f"CARBON_DELTA={delta:.9g};CARBON_GENE={gene};CARBON_CONSEQUENCE={consequence}"
            sink.write("\t".join([*map(str, place), ".", ".", info]) + "\n")


def compare(folder: str, ending: str) -> None:
    """Compare the two files of a format, into a table and a picture."""
    a, b = (Path(folder) / f"{model}{ending}" for model in (1, 2))
    plot, output = Path(folder) / "out.png", Path(folder) / "out.parquet"
    run_compare_job(CompareJob(a=a, b=b, output=output, plot=plot))


def main() -> None:
    """Make the files and compare them, a format after another."""
    num_alleles = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    for ending in FORMATS:
        with tempfile.TemporaryDirectory() as folder:
            for model in (1, 2):
                _write_scores(Path(folder) / f"{model}{ending}", num_alleles, model)
            seconds, peak_bytes = in_own_process(f"compare({folder!r}, {ending!r})", "comparison")
        print(f"{ending:<9} {num_alleles:,} alleles: {seconds:.1f} s, {peak_bytes / 2**30:.2f} GiB")


if __name__ == "__main__":
    main()
