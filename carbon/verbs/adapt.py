"""`carbon adapt`: learn labels of sequences on top of a model."""

import argparse
import json
import os
from pathlib import Path
from typing import Any

from carbon.verbs.common import Verbs


def add_parser(verbs: Verbs) -> None:
    """Add the verb."""
    verb = verbs.add_parser(
        "adapt",
        help="learn labels of sequences on top of a model",
        description="Writes a folder for `carbon predict`, with results beside baselines. On many "
        "devices: torchrun --nproc-per-node N -m carbon adapt --config FILE.",
    )
    what = verb.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--config", metavar="FILE|NAME",
        help="TOML, or a published task of docs/adapting.md, such as deepstarr",
    )  # fmt: skip
    what.add_argument(
        "--report",
        metavar="FOLDER",
        help="write report and card of a folder that is there anew, and learn nothing",
    )
    verb.add_argument(
        "--set",
        action="append",
        default=[],
        dest="overrides",
        metavar="KEY=VALUE",
        help="change a value, such as way.name=probe",
    )
    verb.add_argument("--dry-run", action="store_true", help="read and check, learn nothing")
    verb.add_argument("--resume", action="store_true", help="go on where a run was stopped")
    verb.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    """Run the verb."""
    if arguments.report:
        _report(Path(arguments.report))
        return

    from carbon.adapt.recipes import read_run, recipe_of

    config = read_run(arguments.config, arguments.overrides)

    from carbon.adapt.job import plan_adapt, run_adapt

    if arguments.dry_run:
        print(json.dumps(plan_adapt(config)))
        return
    rank = int(os.environ.get("RANK", "0"))
    results = run_adapt(config, resume=arguments.resume, rank=rank)
    if rank == 0:
        recipe = recipe_of(arguments.config)
        published = {"published": recipe.published} if recipe else {}
        print(json.dumps({"output": config.output, **_short(results), **published}))


def _report(folder: Path) -> None:
    """Write the pages of a folder again, and print where they are."""
    from carbon.pictures import check_installed

    check_installed("matplotlib", "adapt")

    from carbon.adapt.card import write_card
    from carbon.adapt.report import write_report

    print(json.dumps({"report": str(write_report(folder)), "card": str(write_card(folder))}))


def _short(results: dict[str, Any]) -> dict[str, Any]:
    """Return of every predictor the score that the model was chosen by; the rest is in a file."""
    name = results["chosen_by"]
    return {
        "score": name,
        "test": {who: scores[name] for who, scores in results["test"].items()},
        "model_minus": {who: scores[name] for who, scores in results["model_minus"].items()},
        "split_sha256": results["split_sha256"],
    }
