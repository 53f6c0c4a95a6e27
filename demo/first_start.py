"""The model of a first start: the bundled one, or the quickstart's if none is bundled."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from carbon.errors import UserError
from carbon.io.files import behind_links
from carbon.pretrained import BUNDLED_MODELS
from carbon.progress import say

_ROOT = Path(__file__).resolve().parents[1]
_OPENED = "yeast"


class Genome(NamedTuple):
    """Files to open.

    Attributes:
        fasta: the sequence.
        annotation: its genes.
        known_genes: well-known genes by name, each with a sentence on why it is known.
        learning: scans of a region of the genome at several steps of the model's training.
    """

    fasta: str
    annotation: str | None
    known_genes: Mapping[str, str] = MappingProxyType({})
    learning: Path | None = None


def find_model(home: Path) -> str:
    """Return the bundled model, or the quickstart's model, which is trained now if missing.

    Raises:
        UserError: the quickstart failed.
    """
    if BUNDLED_MODELS[_OPENED].is_installed:
        return _OPENED
    model = home / "run" / "export"
    if not (model / "config.json").exists():
        say(f"{model}: no model yet; the quickstart trains one now (minutes, once)")
        _run("bash", "runs/quickstart.sh", OUTPUT=str(behind_links(home)))
    return str(model)


def find_genome(model: str, home: Path) -> Genome:
    """Return the genome of a bundled model, or the quickstart's, simulated if need be.

    Raises:
        UserError: the simulation failed.
    """
    if model in BUNDLED_MODELS and BUNDLED_MODELS[model].is_installed and not Path(model).is_dir():
        entry = BUNDLED_MODELS[model]
        learning = entry.learning if entry.learning.exists() else None
        return Genome(str(entry.genome), str(entry.annotation), entry.known_genes, learning)
    folder = home / "genome"
    if not (folder / "genes.gff3").exists():
        folder = home.with_name(f"{home.name}-genome")
        if not (folder / "genes.gff3").exists():
            say(f"{folder}: simulating an annotated genome")
            words = ("-m", "carbon", "corpus", "simulate", "--output", str(behind_links(folder)))
            _run(sys.executable, *words)
    return Genome(str(folder / "genome.fa"), str(folder / "genes.gff3"))


def _run(*words: str, **environment: str) -> None:
    code = subprocess.run(words, cwd=_ROOT, env=os.environ | environment).returncode
    if code:
        raise UserError(f"`{' '.join(words)}` ended with code {code}; see above")
