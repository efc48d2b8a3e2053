"""Which rabbits may hold storage, by its location constraints (dws-spec section 3.2).

Storage of a job is on rabbits that its nodes are wired to, which is as near as `bestEffort` can
ask for, and every rabbit is reached over the network. Where access is `physical` and `mandatory`,
each node of the job must be wired to a rabbit that holds some of the set. Where network access is
enough, a site may have it on other rabbits as well, when those of the nodes have no room.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from warren.base.placing import Locality
from warren.dws import kinds
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import AllocationNeed, DirectiveBreakdown, LocationConstraint

_SET_FIELD_PATH: Final = re.compile(r"servers\.spec\.allocationSets\[([0-9]+)\]")

_ACCESS_TYPES: Final = ("network", "physical")
_ACCESS_PRIORITIES: Final = ("mandatory", "bestEffort")


def localities(
    needs: Mapping[str, Sequence[AllocationNeed]],
    breakdowns: Iterable[DirectiveBreakdown],
    *,
    allow_any_rabbit: bool = False,
) -> tuple[Locality, ...]:
    """Return for each set, in order, which rabbits may hold it.

    `needs` are a job's own sets by the names of their Servers. Constraints on other Servers are
    about storage that is there already, and are passed over. `allow_any_rabbit` is the site's
    consent to rabbits that none of the job's nodes is wired to (`placement.PlacementPolicy`).
    Raises Fault for what is not understood.
    """
    access_by_set: dict[tuple[str, int], set[tuple[str, str]]] = {}
    for breakdown in breakdowns:
        if breakdown.status.compute is not None:
            for constraint in breakdown.status.compute.constraints.location:
                set_reference = _set_reference(constraint, needs)
                if set_reference is not None:
                    access_by_set.setdefault(set_reference, set()).update(
                        _checked_access(constraint)
                    )
    return tuple(
        locality(access_by_set.get((name, index), ()), allow_any_rabbit=allow_any_rabbit)
        for name, set_needs in needs.items()
        for index in range(len(set_needs))
    )


def _set_reference(
    constraint: LocationConstraint, needs: Mapping[str, Sequence[AllocationNeed]]
) -> tuple[str, int] | None:
    """Return which of a job's own sets a constraint is about."""
    reference = constraint.reference
    if reference.kind != kinds.SERVERS.name or reference.name not in needs:
        return None
    return reference.name, set_index(constraint, len(needs[reference.name]))


def set_index(constraint: LocationConstraint, count: int) -> int:
    """Return which of so many allocation sets of its Servers a constraint is about.

    Raises Fault where it is about none of them.
    """
    reference = constraint.reference
    match = _SET_FIELD_PATH.fullmatch(reference.field_path)
    if match is None or int(match[1]) >= count:
        raise Fault(
            f"the location constraint on {reference.field_path!r} of Servers {reference.name} "
            "names none of its allocation sets"
        )
    return int(match[1])


def locality(access: Collection[tuple[str, str]], *, allow_any_rabbit: bool) -> Locality:
    """Return which rabbits may hold what is to be reached in some ways: types with priorities.

    All of them must be met (dws-spec section 3.2).
    """
    if ("physical", "mandatory") in access:
        return Locality.EVERY_RABBIT_OF_JOB
    return Locality.ANY if allow_any_rabbit and ("network", "mandatory") in access else Locality.JOB


def _checked_access(constraint: LocationConstraint) -> Iterator[tuple[str, str]]:
    for each in constraint.access:
        if each.type not in _ACCESS_TYPES or each.priority not in _ACCESS_PRIORITIES:
            raise Fault(
                f"the location constraint on {constraint.reference.field_path!r} of Servers "
                f"{constraint.reference.name} asks for {each.priority} {each.type} access: there "
                "is network and physical, mandatory and bestEffort"
            )
        yield each.type, each.priority
