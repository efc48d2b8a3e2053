"""What a DirectiveBreakdown reports: which storage and compute nodes are needed, or a fault."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from warren.base.objects import Write
from warren.directives.parse import Directive
from warren.dws import kinds, reports
from warren.dws.breakdown.breakdownsnapshot import BreakdownSnapshot
from warren.dws.breakdown.computeaccess import access_constraints
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import AllocationNeed, DirectiveBreakdown
from warren.dws.objects.storageprofiles import NnfStorageProfile

PERSISTENT: Final = "persistent"
"""The lifetime of storage that becomes an instance."""


def report_ready(snapshot: BreakdownSnapshot, fields: Mapping[str, Any]) -> Write:
    """Report a breakdown that is done."""
    status = {"ready": True, "error": None, **fields}
    return reports.status(kinds.BREAKDOWN, snapshot.breakdown.metadata, status)


def report_failure(breakdown: DirectiveBreakdown, fault: Fault) -> Sequence[Write]:
    """Report why a directive is not broken down, where that is not said yet."""
    current_error = breakdown.status.error
    if current_error is not None and current_error.debug_message == fault.debug:
        return ()
    return [
        reports.status(
            kinds.BREAKDOWN, breakdown.metadata, {"ready": False, "error": fault.as_error()}
        )
    ]


def requires(directive: Directive) -> dict[str, Any]:
    """Return the daemons that a directive asks for, if it names any."""
    requires_text = directive.values.get("requires")
    return {} if requires_text is None else {"requires": requires_text.split(",")}


def storage(
    snapshot: BreakdownSnapshot, needs: Sequence[AllocationNeed], lifetime: str, servers_name: str
) -> dict[str, Any]:
    """Say which storage is needed, and which Servers are to say where it is."""
    return {
        "lifetime": lifetime,
        "reference": _reference(snapshot, servers_name),
        "allocationSets": [_encode_need(need) for need in needs],
    }


def compute(
    snapshot: BreakdownSnapshot,
    servers_name: str,
    fs_type: str,
    set_labels: Sequence[str],
    profile: NnfStorageProfile | None,
) -> dict[str, Any]:
    """Say in which ways nodes must reach each of some allocation sets, given by their labels."""
    location: list[Mapping[str, Any]] = [
        {
            "access": list(access_constraints(fs_type, label, profile)),
            "reference": {
                **_reference(snapshot, servers_name),
                "fieldPath": f"servers.spec.allocationSets[{number}]",
            },
        }
        for number, label in enumerate(set_labels)
    ]
    return {"constraints": {"location": location}}


def _reference(snapshot: BreakdownSnapshot, servers_name: str) -> dict[str, Any]:
    namespace = snapshot.breakdown.metadata.namespace
    return {"kind": "Servers", "name": servers_name, "namespace": namespace}


def _encode_need(need: AllocationNeed) -> dict[str, Any]:
    need_constraints = need.constraints
    constraints: dict[str, Any] = {"labels": list(need_constraints.labels)}
    if need_constraints.count is not None:
        constraints["count"] = need_constraints.count
    if need_constraints.scale is not None:
        constraints["scale"] = need_constraints.scale
    if need_constraints.colocation:
        constraints["colocation"] = [
            {"type": each.type, "key": each.key} for each in need_constraints.colocation
        ]
    return {
        "allocationStrategy": need.allocation_strategy,
        "minimumCapacity": need.minimum_capacity,
        "label": need.label,
        "constraints": constraints,
    }
