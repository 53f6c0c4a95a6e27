"""A model and a genome for a first start, made where there are none."""

import subprocess
import sys
from pathlib import Path

from carbon.console import say
from carbon.errors import UserError
from carbon.files import behind_links

_ROOT = Path(__file__).resolve().parents[1]


def find_model(home: Path) -> Path:
    """Return the quickstart's model, trained now if it is not there.

    Raises:
        UserError: the quickstart did not come to its end.
    """
    model = home / "run" / "export"
    if not (model / "config.json").exists():
        say(f"{model}: no model yet; the quickstart trains one now (minutes, once)")
        _run("scripts/quickstart.py", "--output", str(behind_links(home)))
    return model


def find_genome(home: Path) -> tuple[str, str]:
    """Return FASTA and GFF3 of the quickstart's genome, simulated now if it is not there.

    Raises:
        UserError: the simulation failed.
    """
    folder = home / "genome"
    if not (folder / "genes.gff3").exists():
        folder = home.with_name(f"{home.name}-genome")
        if not (folder / "genes.gff3").exists():
            say(f"{folder}: simulating an annotated genome")
            _run("-m", "data_pipeline", "simulate", "--output", str(behind_links(folder)))
    return str(folder / "genome.fa"), str(folder / "genes.gff3")


def _run(*words: str) -> None:
    code = subprocess.run([sys.executable, *words], cwd=_ROOT).returncode
    if code:
        raise UserError(f"`python {' '.join(words)}` ended with code {code}; see above")
