"""DirectiveBreakdowns: what each directive needs of storage and of compute nodes."""

from typing import Final

import msgspec

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Error, Meta, Reference

EXCLUSIVE: Final = "exclusive"
"""The colocation by which allocations with one key are on different rabbits."""


class Colocation(Struct, frozen=True):
    type: str = EXCLUSIVE
    key: str = ""


class Constraints(Struct, frozen=True):
    labels: tuple[str, ...] = ()
    count: int | None = None
    scale: int | None = None
    max_allocations: int | None = None
    """How many allocations there may be: a site's, and in no breakdown."""
    colocation: tuple[Colocation, ...] = ()


class AllocationNeed(Struct, frozen=True):
    """One allocation set of a breakdown: what storage is needed."""

    allocation_strategy: str
    minimum_capacity: int
    label: str
    constraints: Constraints = Constraints()


class BreakdownStorage(Struct, frozen=True):
    lifetime: str = "job"
    reference: Reference = Reference()
    allocation_sets: tuple[AllocationNeed, ...] = ()


class BreakdownSpec(Struct, frozen=True):
    directive: str
    user_id: int = msgspec.field(name="userID", default=0)


class ConstraintAccess(Struct, frozen=True):
    type: str
    """`network` or `physical`."""
    priority: str
    """`mandatory` or `bestEffort`."""


class SetReference(Reference, frozen=True):
    field_path: str = ""
    """The part of the object: `servers.spec.allocationSets[0]`."""


class LocationConstraint(Struct, frozen=True):
    """In which ways a job's nodes must reach an allocation set."""

    access: tuple[ConstraintAccess, ...] = ()
    reference: SetReference = SetReference()


class ComputeConstraints(Struct, frozen=True):
    location: tuple[LocationConstraint, ...] = ()


class BreakdownCompute(Struct, frozen=True):
    constraints: ComputeConstraints = ComputeConstraints()


class BreakdownStatus(Struct, frozen=True):
    ready: bool = False
    storage: BreakdownStorage | None = None
    compute: BreakdownCompute | None = None
    requires: tuple[str, ...] = ()
    required_daemons: tuple[str, ...] = ()
    """The older word for `requires`."""
    error: Error | None = None


class DirectiveBreakdown(Struct, frozen=True):
    metadata: Meta
    spec: BreakdownSpec
    status: BreakdownStatus = BreakdownStatus()
