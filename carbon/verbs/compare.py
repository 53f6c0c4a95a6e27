"""`carbon compare`: two outputs of `carbon variants` on one VCF, side by side."""

import argparse
import json
from pathlib import Path

from carbon.console import natural, say
from carbon.io.tables import FORMATS, any_of
from carbon.verbs.common import Verbs


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "compare",
        help="compare two scored outputs of one VCF, of two models, windows or protocols",
        description="Prints how far two outputs of `carbon variants` agree, as JSON on stdout and "
        "as tables on stderr, and the alleles whose ranks differ most.",
    )
    verb.add_argument("a", metavar="A", help="an output of `carbon variants`, of any format")
    verb.add_argument("b", metavar="B", help="another, of the same VCF")
    verb.add_argument(
        "--labels", type=_labels, metavar="A,B", help="what tables and the picture call them"
    )
    verb.add_argument(
        "--output", metavar="FILE", help=f"a {any_of(FORMATS['table'])} with a row an allele"
    )
    verb.add_argument("--plot", metavar="OUT.png", help="a scatter, .png, .svg or .pdf")
    verb.add_argument(
        "--top", type=natural, default=20, metavar="N", help="how many are told; default: 20"
    )
    verb.add_argument(
        "--common", action="store_true", help="pass over alleles that one file alone has"
    )
    verb.set_defaults(run=run)


def _labels(text: str) -> tuple[str, str]:
    first, comma, second = text.partition(",")
    if not (first and comma and second) or "," in second or first == second:
        raise argparse.ArgumentTypeError(f"'{text}' is not two labels such as small,large")
    return first, second


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from carbon.comparison import CompareJob, run_compare_job
    from carbon.comparison.told import told

    summary = run_compare_job(
        CompareJob(
            a=Path(arguments.a),
            b=Path(arguments.b),
            labels=arguments.labels,
            output=Path(arguments.output) if arguments.output else None,
            plot=Path(arguments.plot) if arguments.plot else None,
            top=arguments.top,
            common=arguments.common,
        )
    )
    say(told(summary))
    print(json.dumps(summary))
