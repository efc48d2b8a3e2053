"""The property that keeps jobs with storage from nodes whose way to it is broken.

Unlike other properties, which the configuration gives, it comes and goes: what it keeps a job
from today, the job may have tomorrow. So no job is refused for it, and none is told of it in the
words of its constraint, which all jobs with storage have.
"""

from collections.abc import Mapping
from typing import Any, Final

from warren.rfc.constraint import Constraint

TAG: Final = "badrabbit"

UNTAGGED_CONSTRAINT: Final[Mapping[str, Any]] = {"not": [{"properties": [TAG]}]}
"""The constraint of jobs with storage (coral2-spec section 15)."""


def strip_untagged(constraint: Constraint) -> tuple[Constraint, bool]:
    """Return a constraint without `UNTAGGED_CONSTRAINT`, and whether that was seen in it."""
    if constraint == UNTAGGED_CONSTRAINT:
        return {}, True
    if constraint.keys() != {"and"}:
        return constraint, False
    parts = [strip_untagged(each) for each in constraint["and"]]
    if not any(untagged for _, untagged in parts):
        return constraint, False
    remaining = [each for each, _ in parts if each]
    return (remaining[0] if len(remaining) == 1 else {"and": remaining} if remaining else {}), True
