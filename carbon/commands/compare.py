"""`carbon compare` and `carbon join`: compare scored outputs, or join the parts of one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from carbon.commands.shared import Natural, Table
from carbon.console import print_summary


def _labels(hint: Any, tokens: Sequence[Token]) -> tuple[str, str]:
    text = tokens[-1].value
    first, comma, second = text.partition(",")
    if not (first and comma and second) or "," in second or first == second:
        raise ValueError(f"'{text}' is not two labels such as small,large")
    return first, second


def compare(
    a: Path,
    b: Path,
    /,
    *,
    labels: Annotated[
        tuple[str, str] | None, Parameter(converter=_labels, n_tokens=1, metavar="A,B")
    ] = None,
    output: Table | None = None,
    plot: Path | None = None,
    top: Natural = 20,
    common: bool = False,
) -> None:
    """Compare two scored outputs of one VCF: two models, windows or protocols.

    Prints correlations of two outputs of `carbon variants`, and the alleles whose ranks differ
    most, as JSON on standard output and as tables on standard error.

    Args:
        a: an output of `carbon variants`, of any format.
        b: another, of the same VCF.
        labels: names of the two outputs, in tables and the figure.
        output: table with a row for each allele.
        plot: scatter plot, .png, .svg or .pdf.
        top: number of alleles to report.
        common: ignore alleles that only one file has.
    """
    from carbon.compare import CompareJob, run_compare_job
    from carbon.compare.compare import summary_text
    from carbon.progress import say

    table = Path(output) if output else None
    job = CompareJob(a=a, b=b, labels=labels, output=table, plot=plot, top=top, common=common)
    summary = run_compare_job(job)
    say(summary_text(summary))
    print_summary(summary)


def join(*parts: Annotated[Path, Parameter(required=True)], output: Path) -> None:
    """Join the parts of a result that were computed separately.

    Joins tables (.tsv, .parquet), or the JSON summaries that commands print (.json), of parts such
    as `carbon variants --region` writes. All must have the same settings. For scored VCFs use
    `bcftools concat --naive`.

    Args:
        parts: files to join, in the order of the output.
        output: a .tsv, .parquet or .json.
    """
    from carbon.io.join import join_parts

    join_parts(list(parts), output)
