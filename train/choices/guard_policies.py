"""What is done about a bad step."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True, slots=True)
class GuardPolicy:
    """A bad step does not change the weights, and more may follow.

    Attributes:
        stops: the run ends.
        goes_back: to the last checkpoint, and all steps since are left out as well.
    """

    stops: bool = False
    goes_back: bool = False


GUARD_POLICIES = {
    "skip": GuardPolicy(),
    "rollback": GuardPolicy(goes_back=True),
    "stop": GuardPolicy(stops=True),
}
