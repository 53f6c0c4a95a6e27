"""Compare two scored outputs of one VCF: `carbon.compare.run(a, b)`.

- `scored_files`: read outputs of `carbon variants`, join their alleles, and group them.
- `compare`: correlations with intervals, differences, the summary and the table.
- `figure`: the scatter plot.

This package does not import torch.
"""

from pathlib import Path

from carbon.compare.compare import CompareJob, run_compare_job
from carbon.compare.scored_files import ScoredFile, read_scored_file
from carbon.io.files import scratch_folder
from carbon.io.rows import Table

__all__ = ["CompareJob", "ScoredFile", "read_scored_file", "run", "run_compare_job"]


def run(
    a: str | Path,
    b: str | Path,
    *,
    labels: tuple[str, str] | None = None,
    output: str | Path | None = None,
    plot: str | Path | None = None,
    top: int = 20,
    common: bool = False,
) -> Table:
    """Compare two scored outputs of one VCF; return a row for each allele.

    `summary` of the result has the correlations and the alleles whose ranks differ most, as
    `carbon compare` prints them.

    Args:
        a: an output of `carbon variants` or `Model.score_vcf`, of any format.
        b: another, of the same VCF.
        labels: of the two outputs, in tables and the figure; None for their names.
        output: also write this .tsv, .json or .parquet.
        plot: scatter plot to write, .png, .svg or .pdf.
        top: number of alleles to report in the summary.
        common: ignore alleles that only one file has.

    Raises:
        UserError: a file is not an output of `carbon variants`, the files are of different VCFs, or
            an output has an unknown ending.
    """
    job = CompareJob(
        a=Path(a),
        b=Path(b),
        labels=labels,
        output=Path(output) if output else None,
        plot=Path(plot) if plot else None,
        top=top,
        common=common,
    )
    with scratch_folder("rows") as folder:
        rows_file = folder / "rows.parquet"
        summary = run_compare_job(job, rows_file)
        return Table(rows_file, summary)
