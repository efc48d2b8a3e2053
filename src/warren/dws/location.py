"""In which ways a job's nodes must reach its storage: location constraints (dws-spec section 3.2).

Storage of a job is on rabbits that its nodes are wired to, which is as near as `bestEffort` can
ask for, and every rabbit is reached over the network. What is left to decide is `physical` and
`mandatory`: each node of the job must be wired to a rabbit that holds some of the set.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from warren.dws import kinds
from warren.dws.faults import Fault
from warren.dws.objects import AllocationNeed, DirectiveBreakdown, LocationConstraint

_PLACE: Final = re.compile(r"servers\.spec\.allocationSets\[([0-9]+)\]")

_TYPES: Final = ("network", "physical")
_PRIORITIES: Final = ("mandatory", "bestEffort")


def near(
    needs: Mapping[str, Sequence[AllocationNeed]], breakdowns: Iterable[DirectiveBreakdown]
) -> tuple[bool, ...]:
    """Return for each set, in order, whether every node must be wired to a rabbit that holds it.

    `needs` are a job's own sets by the names of their Servers. Constraints on other Servers are
    about storage that is there already, and are passed over. Raises Fault for what is not
    understood.
    """
    mandatory = {
        place
        for breakdown in breakdowns
        if breakdown.status.compute is not None
        for constraint in breakdown.status.compute.constraints.location
        if (place := _place(constraint, needs)) is not None and _is_near(constraint)
    }
    return tuple(
        (name, index) in mandatory for name, own in needs.items() for index in range(len(own))
    )


def _place(
    constraint: LocationConstraint, needs: Mapping[str, Sequence[AllocationNeed]]
) -> tuple[str, int] | None:
    """Return which of a job's own sets a constraint is about."""
    reference = constraint.reference
    if reference.kind != kinds.SERVERS.name or reference.name not in needs:
        return None
    return reference.name, set_of(constraint, len(needs[reference.name]))


def set_of(constraint: LocationConstraint, count: int) -> int:
    """Return which of so many allocation sets of its Servers a constraint is about.

    Raises Fault where it is about none of them.
    """
    reference = constraint.reference
    found = _PLACE.fullmatch(reference.field_path)
    if found is None or int(found[1]) >= count:
        raise Fault(
            f"the location constraint on {reference.field_path!r} of Servers {reference.name} "
            "names none of its allocation sets"
        )
    return int(found[1])


def _is_near(constraint: LocationConstraint) -> bool:
    for each in constraint.access:
        if each.type not in _TYPES or each.priority not in _PRIORITIES:
            raise Fault(
                f"the location constraint on {constraint.reference.field_path!r} of Servers "
                f"{constraint.reference.name} asks for {each.priority} {each.type} access: there "
                "is network and physical, mandatory and bestEffort"
            )
    # All entries must be met (dws-spec section 3.2).
    return any((one.type, one.priority) == ("physical", "mandatory") for one in constraint.access)
