"""What every picture of the library is written with; drawing itself needs matplotlib."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

from carbon.errors import UserError

# Neither hour nor version of the library is written, so that the same data is the same file.
PICTURE_METADATA = {
    ".png": {"Software": None},
    ".svg": {"Date": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}
PICTURE_STYLE: dict[Any, Any] = {"svg.hashsalt": "carbon", "svg.fonttype": "none", "font.size": 9}


def check_picture(path: Path | None) -> None:
    """Raise UserError if a picture cannot be drawn: its ending, or a package that is not there."""
    if path is None:
        return
    if path.suffix not in PICTURE_METADATA:
        raise UserError(f"{path}: end the picture with one of {', '.join(PICTURE_METADATA)}")
    check_installed("matplotlib")


def check_installed(package: str, extra: str = "scan") -> None:
    """Raise UserError if a package of an extra is not there."""
    if find_spec(package) is None:
        raise UserError(f"{package} is not installed; run: pip install 'carbon-dna[{extra}]'")
