"""What an answer costs: seconds, tokens that a network reads, and the peak of memory."""

import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from carbon import __version__
from eval.contract import Model

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "datasets", "pyarrow")
_ROOT = Path(__file__).parents[1]


class TokenCount:
    """Tokens that a network has read, padding and all.

    Attributes:
        tokens: so far.
    """

    def __init__(self) -> None:
        """Begin at none."""
        self.tokens = 0

    def _add(self, module: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        ids = named.get("input_ids", inputs[0] if inputs else None)
        self.tokens += 0 if ids is None else int(ids.numel())


@contextmanager
def tokens_counted(model: Model) -> Iterator[TokenCount]:
    """Count the tokens that the model's network reads; a model without a network reads none."""
    count = TokenCount()
    network = getattr(model, "network", None)
    if network is None:
        yield count
        return
    handle = network.register_forward_pre_hook(count._add, with_kwargs=True)
    try:
        yield count
    finally:
        handle.remove()


def forget_peak() -> None:
    """Reset the peak of memory to the present use, if the system can."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.reset_peak_memory_stats()
    try:
        _CLEAR.write_text("5", encoding="utf-8")
    except OSError:
        return


def peak_bytes() -> int | None:
    """Return the peak since `forget_peak`: of the GPU where there is one, else of the process."""
    import torch

    if torch.cuda.is_available():
        return int(torch.cuda.max_memory_allocated())
    try:
        lines = _STATUS.read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((1024 * int(x.split()[1]) for x in lines if x.startswith("VmHWM")), None)


def software() -> dict[str, Any]:
    """Return versions, and the git revision of the checkout, with `+` if files were changed."""
    return {
        "carbon": __version__,
        "git_revision": _revision(),
        "python": platform.python_version(),
        **{name: found for name in _PACKAGES if (found := _version(name)) is not None},
    }


def hardware() -> dict[str, Any]:
    """Return a description of the machine."""
    import torch

    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return {
        "machine": f"{platform.system()} {platform.machine()}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "gpus": gpus,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _revision() -> str | None:
    """Return the commit that this checkout is at, with a `+` if it was changed; None without git.

    A source archive has none, also when it is unpacked inside another project's checkout.
    """

    def git(*words: str) -> str:
        command = ["git", "-C", str(_ROOT), *words]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")).resolve() != _ROOT.resolve():
            return None
        changed = git("status", "--porcelain", "--untracked-files=no")
        return git("rev-parse", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return None
