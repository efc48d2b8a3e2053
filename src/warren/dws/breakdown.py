"""From a directive to what it needs: DirectiveBreakdowns (dws-spec section 3)."""

import re
from collections.abc import Sequence
from typing import Any

from warren.base.errors import UserMistake
from warren.base.objects import Create, Object, Write
from warren.directives import capacity
from warren.directives.parse import Directive, parse
from warren.dws import children, kinds, labels, reports
from warren.dws.faults import Fault
from warren.dws.objects import (
    AllocationNeed,
    Constraints,
    DirectiveBreakdown,
    NnfStorageProfile,
    Workflow,
)

PER_COMPUTE = "AllocatePerCompute"
ACROSS_SERVERS = "AllocateAcrossServers"
SINGLE_SERVER = "AllocateSingleServer"

NODE_LOCAL = ("raw", "xfs", "ext4")
"""File systems of which every compute node has its own."""


def child(workflow: Workflow, index: int) -> Object:
    """Make the DirectiveBreakdown of one directive of a Workflow."""
    return {
        "metadata": children.metadata(workflow, children.name(workflow, index), index),
        "spec": {
            "directive": workflow.spec.dw_directives[index],
            "userID": workflow.spec.user_id,
        },
    }


def decide(breakdown: DirectiveBreakdown, profiles: Sequence[NnfStorageProfile]) -> Sequence[Write]:
    """Break the directive down: make the Servers to be filled in, then report the need."""
    meta = breakdown.metadata
    if breakdown.status.ready or meta.deleting:
        return ()
    directive = parse(breakdown.spec.directive)
    if directive.command.text == "persistentdw":
        return [reports.status(kinds.BREAKDOWN, meta, {"ready": True, "error": None})]
    try:
        needs = needs_of(directive, profiles)
    except Fault as fault:
        return _failed(breakdown, fault)
    if directive.command.text == "create_persistent":
        return _persistent(breakdown, directive, needs)
    reference: dict[str, Any] = {"kind": "Servers", "name": meta.name, "namespace": meta.namespace}
    servers = {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {**labels.inherited(meta), **labels.of_owner(kinds.BREAKDOWN, meta)},
            "ownerReferences": labels.controller(kinds.BREAKDOWN, meta),
        },
        "spec": {},
    }
    status: dict[str, Any] = {
        "ready": True,
        "error": None,
        "storage": {
            "lifetime": "job",
            "reference": reference,
            "allocationSets": [_need(need) for need in needs],
        },
        "compute": {
            "constraints": {
                "location": [
                    {
                        "access": [{"type": "physical", "priority": "mandatory"}],
                        "reference": {
                            **reference,
                            "fieldPath": f"servers.spec.allocationSets[{number}]",
                        },
                    }
                    for number in range(len(needs))
                ]
            }
        },
    }
    return [
        Create(kind=kinds.SERVERS, object=servers),
        reports.status(kinds.BREAKDOWN, breakdown.metadata, status),
    ]


def _persistent(
    breakdown: DirectiveBreakdown, directive: Directive, needs: Sequence[AllocationNeed]
) -> Sequence[Write]:
    """Make an instance, which makes its own Servers (dws-spec section 7)."""
    meta, name = breakdown.metadata, directive.values["name"]
    instance = {
        "metadata": {
            "name": name,
            "namespace": meta.namespace,
            "labels": labels.of_owner(kinds.BREAKDOWN, meta),
            "ownerReferences": labels.controller(kinds.BREAKDOWN, meta),
            "finalizers": [labels.PERSISTENT_FINALIZER],
        },
        "spec": {
            "name": name,
            "fsType": directive.values["type"],
            "dwDirective": breakdown.spec.directive,
            "userID": breakdown.spec.user_id,
            "state": "Active",
        },
    }
    status: dict[str, Any] = {
        "ready": True,
        "error": None,
        "storage": {
            "lifetime": "persistent",
            "reference": {"kind": "Servers", "name": name, "namespace": meta.namespace},
            "allocationSets": [_need(need) for need in needs],
        },
    }
    return [
        Create(kind=kinds.PERSISTENT, object=instance),
        reports.status(kinds.BREAKDOWN, meta, status),
    ]


def unsaid(breakdown: DirectiveBreakdown, why: str) -> Sequence[Write]:
    """Report that the definitions of this cluster have no words for what the directive needs."""
    kind = parse(breakdown.spec.directive).values.get("type", "")
    words = f"the definitions of this cluster do not allow for type {kind}"
    return _failed(breakdown, Fault(words, type="User", debug=f"{words}: {why}"))


def _failed(breakdown: DirectiveBreakdown, fault: Fault) -> Sequence[Write]:
    known = breakdown.status.error
    if known is not None and known.debug_message == fault.debug:
        return ()
    return [
        reports.status(
            kinds.BREAKDOWN, breakdown.metadata, {"ready": False, "error": fault.as_status()}
        )
    ]


def needs_of(directive: Directive, profiles: Sequence[NnfStorageProfile]) -> list[AllocationNeed]:
    """Return the allocation sets that a jobdw needs. Raises Fault."""
    values = directive.values
    kind = values["type"]
    if kind not in NODE_LOCAL:
        raise Fault(
            f"file systems of type {kind} are not made by this cluster",
            type="User",
            argument="type",
        )
    profile = chosen(values.get("profile"), profiles).data.of(kind)
    try:
        asked = capacity.parse(values["capacity"])
        size = int(float(profile.capacity_scaling_factor) * asked)
        size += _padding(profile.allocation_padding, size)
    except (UserMistake, ValueError) as error:
        raise Fault(str(error).removesuffix("."), type="User", argument="capacity") from error
    if asked == 0:
        raise Fault("'capacity' must be a non-zero value", type="User", argument="capacity")
    if size >= capacity.LIMIT:
        raise Fault(
            f"{values['capacity']!r} is too large: with what its file system needs for itself, a "
            "capacity is less than 8 EiB",
            type="User",
            argument="capacity",
        )
    constraints = Constraints(labels=(*profile.storage_labels, f"{labels.STORAGE_TYPE}=Rabbit"))
    return [
        AllocationNeed(
            allocation_strategy=PER_COMPUTE,
            minimum_capacity=size,
            label=kind,
            constraints=constraints,
        )
    ]


def chosen(name: str | None, profiles: Sequence[NnfStorageProfile]) -> NnfStorageProfile:
    """Find the profile that a directive names, or the one that is the default. Raises Fault."""
    if name is not None:
        for profile in profiles:
            if profile.metadata.name == name:
                return profile
        raise Fault(f"Unable to find NnfStorageProfile: {name}", type="User", argument="profile")
    defaults = [profile for profile in profiles if profile.data.default]
    if len(defaults) != 1:
        raise Fault(f"{len(defaults)} NnfStorageProfiles are the default, and one must be")
    return defaults[0]


def _padding(text: str, size: int) -> int:
    percent = re.fullmatch(r"(\d+(?:\.\d+)?)%", text)
    if percent is not None:
        return int(float(percent[1]) * 0.01 * size)
    return int(text) if text.isdecimal() else capacity.parse(text)


def _need(need: AllocationNeed) -> dict[str, Any]:
    constraints: dict[str, Any] = {"labels": list(need.constraints.labels)}
    return {
        "allocationStrategy": need.allocation_strategy,
        "minimumCapacity": need.minimum_capacity,
        "label": need.label,
        "constraints": constraints,
    }
