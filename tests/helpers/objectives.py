"""Objectives that no recipe names."""

from carbon.losses.objectives import Objective

ALL_THREE = Objective(token=0.5, bases=0.3, uniform=0.2)


def blend(fns_weight: float) -> Objective:
    """Return `(1 - w) CE + w FNS`."""
    return Objective(token=1 - fns_weight, bases=fns_weight)


def smoothed(share: float) -> Objective:
    """Return CE with labels smoothed."""
    return Objective(token=1 - share, uniform=share)
