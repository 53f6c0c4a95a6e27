"""`carbon join`: the parts of a result that were computed apart, as one."""

import argparse

from carbon.io.tables import FORMATS, any_of
from carbon.verbs.common import Verbs


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "join",
        help="join the parts of a result that were computed apart",
        description="Joins tables (.tsv, .parquet), or the JSON summaries that commands print "
        "(.json), of parts such as `carbon variants --region` writes. All must have the same "
        "settings. Join scored VCFs by `bcftools concat --naive`.",
    )
    verb.add_argument("parts", nargs="+", metavar="PART", help="in the order of the output")
    verb.add_argument(
        "--output", required=True, metavar="FILE", help=f"a {any_of(FORMATS['joined parts'])}"
    )
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    from pathlib import Path

    from carbon.parts import join_parts

    join_parts(list(map(Path, arguments.parts)), Path(arguments.output))
