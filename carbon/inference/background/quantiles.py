"""A background: the quantiles of the deltas of random variants, by kind, in a small JSON file."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError
from carbon.genome import Reference, Variant
from carbon.inference.background.draw import Drawn
from carbon.inference.background.kinds import KINDS
from carbon.io.files import atomic_file, why_no_file

FILE_NAME = "background.json"
"""Of a background that a model brings with it, in its folder."""

LEAST_VARIANTS = 100
"""With fewer, a kind has no quantiles, and the next broader one stands in for it."""

_FORMAT = "carbon background 1"
_SUM = "sha256"
# Percent. The tails are where a reader looks, so that they are finer.
_PERCENTS = (0, 0.2, 0.5, *range(1, 100), 99.5, 99.8, 100)
_DIGITS = 4

Float64s = NDArray[np.float64]


class _Steps(NamedTuple):
    """A curve from deltas to percentiles; deltas rise and no two are the same."""

    deltas: Float64s
    percents: Float64s


class Background:
    """The deltas of random variants of every kind.

    Attributes:
        kinds: which table of kinds, `change` or `consequence`.
        settings: the model and the method that scored the variants; others are refused.
        drawn: what was drawn, for the record.
        table: from the name of a kind to what is known of it: `variants`, how many were drawn, and
            `quantiles` in nats at `percents`, or else `instead`, the broader kind that is taken.
    """

    def __init__(self, content: Mapping[str, Any]) -> None:
        """Take what a file holds, without its sum."""
        self._content = content
        self.kinds: str = content["kinds_by"]
        self.settings: dict[str, Any] = content["settings"]
        self.drawn: dict[str, Any] = content["drawn"]
        self.table: dict[str, dict[str, Any]] = content["kinds"]

    @classmethod
    def read(cls, path: str | Path) -> "Background":
        """Read a file.

        Raises:
            UserError: it is absent, torn, changed by hand, or no background of this version.
        """
        if not Path(path).is_file():
            raise UserError(f"{path}: {why_no_file(path)}; `carbon background` writes one")
        try:
            content = json.loads(Path(path).read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            content = None
        if not isinstance(content, dict) or content.get("format") != _FORMAT:
            raise UserError(
                f"{path}: is torn or no file of `carbon background` of this version; make it again"
            )
        if content.pop(_SUM, None) != _sum_of(content):
            raise UserError(f"{path}: is damaged or changed by hand; make it again")
        return cls(content)

    def write(self, path: str | Path) -> None:
        """Write the file, which appears when it is whole."""
        with atomic_file(path) as temporary:
            temporary.write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return what the file holds: JSON, a line a kind."""
        content = {**self._content, _SUM: _sum_of(self._content)}
        lines = [f"{json.dumps(name)}: {_lines(value)}" for name, value in content.items()]
        return ("{\n" + ",\n".join(lines) + "\n}\n").encode()

    @property
    def needs_consequence(self) -> bool:
        """Whether kinds cannot be told without an annotation."""
        return KINDS[self.kinds].needs_consequence

    @property
    def tolerances(self) -> dict[str, dict[str, Any]]:
        """By a dtype other than that of the settings: how far it moves deltas and percentiles.

        `delta`, in nats, and `percentile`, in points, hold for 95 % of `variants` variants;
        `weights_sha256` is that of the rounded weights.
        """
        found: dict[str, dict[str, Any]] = self._content.get("tolerances", {})
        return found

    def with_tolerance(self, dtype: str, tolerance: Mapping[str, Any]) -> "Background":
        """Return a background that serves deltas of another dtype too."""
        return Background({**self._content, "tolerances": {**self.tolerances, dtype: tolerance}})

    def why_other(self, settings: Mapping[str, Any]) -> str | None:
        """Name the first setting of a scoring that does not fit the background, or None.

        A dtype that has a tolerance fits.
        """
        others = json.loads(json.dumps(settings))
        own = self.settings
        if tolerance := self.tolerances.get(others.get("dtype")):
            rounded = {"dtype": others["dtype"], "weights_sha256": tolerance["weights_sha256"]}
            own = own | rounded
        for name in others | own:
            there, here = own.get(name), others.get(name)
            if there != here:
                if name == "weights_sha256":
                    return "is of a model with other weights"
                return f"was made with {name} {there}, and this is {name} {here}"
        return None

    def kind_of(
        self, reference: Reference, variant: Variant, consequence: str | None = None
    ) -> str | None:
        """Return the kind that a variant is compared with; None if it is of no kind.

        Args:
            reference: of the variant.
            variant: with bases for alleles.
            consequence: of `carbon.genome.Consequences`, where kinds are told by it.
        """
        path = KINDS[self.kinds].path_of(reference, variant, consequence)
        return next((kind for kind in path if "quantiles" in self.table.get(kind, ())), None)

    def percentile(
        self,
        reference: Reference,
        variant: Variant,
        delta: float | None,
        consequence: str | None = None,
    ) -> float | None:
        """Return how many in a hundred random variants of the same kind have a lower delta.

        Of those with the same delta half are counted.

        Args:
            reference: of the variant.
            variant: with bases for alleles.
            delta: of the same model and settings, in nats.
            consequence: of `carbon.genome.Consequences`, where kinds are told by it.

        Returns:
            0 to 100; None without a delta, or where the variant is of no kind.
        """
        kind = None if delta is None else self.kind_of(reference, variant, consequence)
        return None if kind is None or delta is None else self.percentile_in(kind, delta)

    def percentile_in(self, kind: str, delta: float) -> float:
        """Return the percentile of a delta among those of a kind that has quantiles."""
        curve = self._curves[kind]
        return float(np.interp(delta, curve.deltas, curve.percents))

    @cached_property
    def _curves(self) -> dict[str, _Steps]:
        percents = np.array(self._content["percents"], np.float64)
        return {
            kind: _curve(np.array(known["quantiles"], np.float64), percents)
            for kind, known in self.table.items()
            if "quantiles" in known
        }


def background_of(
    drawn: Iterable[Drawn], deltas: Iterable[float | None], about: Mapping[str, Any]
) -> Background:
    """Make a background of variants and their scores.

    Args:
        drawn: variants, their kinds and weights.
        deltas: of each in nats, None where it has no score.
        about: `kinds_by`, `settings` and `drawn` of the file.
    """
    values: dict[str, list[tuple[float, float]]] = {}
    broader: dict[str, str] = {}
    for one, delta in zip(drawn, deltas, strict=True):
        broader.update(zip(one.path, one.path[1:], strict=False))
        for kind in one.path:
            values.setdefault(kind, [])
            if delta is not None:
                values[kind].append((delta, one.weight))
    enough = {kind for kind, some in values.items() if len(some) >= LEAST_VARIANTS}
    table = {
        kind: {"variants": len(values[kind])}
        | (
            {"quantiles": quantiles(values[kind])}
            if kind in enough
            else {"instead": _instead(kind, broader, enough)}
        )
        for kind in sorted(values)
    }
    content = {"format": _FORMAT, **about, "percents": _PERCENTS, "kinds": table}
    return Background(json.loads(json.dumps(content)))  # as it would be read


def quantiles(weighted: Iterable[tuple[float, float]]) -> list[float]:
    """Return the deltas below which lie so many percent, to four digits.

    A sorted delta stands at the middle of its own weight, and between two it is linear (Hazen's
    plotting positions); the first and the last are the least and the greatest.

    Args:
        weighted: deltas and weights.
    """
    values, weights = np.array(sorted(weighted), np.float64).T
    at = (np.cumsum(weights) - weights / 2) / weights.sum() * 100
    return [float(f"{value:.{_DIGITS}g}") for value in np.interp(_PERCENTS, at, values)]


def _instead(kind: str, broader: Mapping[str, str], enough: set[str]) -> str | None:
    wider = broader.get(kind)
    return wider if wider is None or wider in enough else _instead(wider, broader, enough)


def _curve(deltas: Float64s, percents: Float64s) -> _Steps:
    """Join quantiles that are the same: a delta that many variants have stands at their middle."""
    values = np.unique(deltas)
    first = np.searchsorted(deltas, values, side="left")
    last = np.searchsorted(deltas, values, side="right") - 1
    return _Steps(values, (percents[first] + percents[last]) / 2)


def _sum_of(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _lines(value: Any) -> str:
    """Write an object with a line a key, and anything else in one line."""
    if not isinstance(value, dict) or not value:
        return json.dumps(value, separators=(",", ":"))
    inside = (f"{json.dumps(k)}: {json.dumps(v, separators=(',', ':'))}" for k, v in value.items())
    return "{\n" + ",\n".join(inside) + "\n}"
