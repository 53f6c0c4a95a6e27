"""Numbers made fit to be learned, and made back; fitted on what is learned from, on nothing else.

A head without knowledge of the labels' unit learns their mean first; standardised ones spare it
that, and let one rate fit all labels.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from carbon.errors import UserError

Floats = NDArray[np.float64]


class Form(NamedTuple):
    """A kind of transform.

    Attributes:
        forward: from a label to what is learned, before it is standardised.
        inverse: back.
        above: labels must be above this.
        standardised: to mean 0 and standard deviation 1 of what is learned from.
    """

    forward: Callable[[Floats], Floats]
    inverse: Callable[[Floats], Floats]
    above: float
    standardised: bool


def _same(values: Floats) -> Floats:
    return values


TRANSFORMS: dict[str, Form] = {
    "z_score": Form(_same, _same, -np.inf, standardised=True),
    "none": Form(_same, _same, -np.inf, standardised=False),
    "log1p": Form(np.log1p, np.expm1, -1.0, standardised=False),
    "log1p_z_score": Form(np.log1p, np.expm1, -1.0, standardised=True),
    "asinh_z_score": Form(np.arcsinh, np.sinh, -np.inf, standardised=True),
}


@dataclass(frozen=True)
class Transform:
    """A fitted transform of one number.

    Attributes:
        name: key of `TRANSFORMS`.
        mean: that is taken off, after `forward`.
        sd: that is divided by then.
    """

    name: str = "none"
    mean: float = 0.0
    sd: float = 1.0

    @classmethod
    def fitted(cls, name: str, labels: NDArray[Any], what: str) -> Self:
        """Fit to labels, (rows,), of which NaN are passed over; SD is that of the population.

        Raises:
            UserError: a label is outside of what the transform takes, or all are equal.
        """
        form = TRANSFORMS[name]
        known = np.asarray(labels, dtype=np.float64)
        known = known[~np.isnan(known)]
        if not len(known):
            raise UserError(f"{what}: no known number to learn from; give some")
        if known.min() <= form.above:
            raise UserError(
                f"{what}: {known.min():g} has no {name}, which takes numbers above {form.above:g}; "
                "choose another question.transform"
            )
        if not form.standardised:
            return cls(name)
        values = form.forward(known)
        if not values.std() > 0:
            raise UserError(f"{what}: all {len(known)} numbers to learn from are {known[0]:g}")
        return cls(name, float(values.mean()), float(values.std()))

    def apply(self, labels: NDArray[Any]) -> Floats:
        """Return what is learned of labels; NaN stay."""
        form = TRANSFORMS[self.name]
        # What is not learned from may lie outside of what the transform takes: unknown, then.
        with np.errstate(invalid="ignore", divide="ignore"):
            values = form.forward(np.asarray(labels, dtype=np.float64))
        return (np.where(np.isfinite(values), values, np.nan) - self.mean) / self.sd

    def undo(self, values: NDArray[Any]) -> Floats:
        """Return numbers in the unit of the labels."""
        return TRANSFORMS[self.name].inverse(np.asarray(values, np.float64) * self.sd + self.mean)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Self:
        """Return what `to_json` wrote."""
        return cls(**found)
