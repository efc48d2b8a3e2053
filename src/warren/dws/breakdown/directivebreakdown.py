"""From a directive to what it needs: DirectiveBreakdowns (dws-spec section 3).

A `jobdw` needs storage and nodes that reach it; `create_persistent` needs storage, which
will be an instance's; `persistentdw` needs nodes that reach the storage of an instance.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from warren.base.objects import Create, Object, Write
from warren.directives.diagnostics import Mistake
from warren.directives.parse import Directive, parse
from warren.dws import children, kinds, labels
from warren.dws.breakdown import allocationneeds, newinstance, statuses
from warren.dws.breakdown.breakdownsnapshot import BreakdownSnapshot
from warren.dws.breakdown.profile import choose
from warren.dws.breakdown.statuses import PERSISTENT
from warren.dws.faults import Fault
from warren.dws.objects.breakdowns import AllocationNeed, DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.workflows import Workflow
from warren.dws.persistent import expiry
from warren.dws.storage import storageprofiles


def new(workflow: Workflow, index: int, used_instance: str | None = None) -> Object:
    """Make the DirectiveBreakdown of one directive of a Workflow.

    `used_instance` is the UID of the instance that it uses, if it uses one.
    """
    metadata = {
        **children.metadata(workflow, children.name(workflow, index), index),
        **expiry.inherited_metadata(workflow.metadata),
    }
    if used_instance is not None:
        uses = {labels.USED_INSTANCE: used_instance}
        metadata["annotations"] = {**metadata.get("annotations", {}), **uses}
    return {
        "metadata": metadata,
        "spec": {
            "directive": workflow.spec.dw_directives[index],
            "userID": workflow.spec.user_id,
        },
    }


def decide(snapshot: BreakdownSnapshot) -> Sequence[Write]:
    """Break the directive down: make what is to be filled in, then report the need.

    What is made is waited for: the pinned profile is what the need is read from.
    """
    breakdown = snapshot.breakdown
    if breakdown.status.ready or breakdown.metadata.deleting:
        return ()
    try:
        directive = parse(breakdown.spec.directive)
        handler = HANDLER_BY_COMMAND.get(directive.command.text)
        if handler is None:
            raise Fault(f"{directive.command.text} needs no storage and no nodes", type="User")
        return handler(snapshot, directive)
    except Mistake as mistake:
        return statuses.report_failure(breakdown, Fault(str(mistake), type="User"))
    except Fault as fault:
        return statuses.report_failure(breakdown, fault)


def report_unsupported(breakdown: DirectiveBreakdown, why: str) -> Sequence[Write]:
    """Report that the definitions of this cluster do not support what the directive needs."""
    fs_type = parse(breakdown.spec.directive).values.get("type", "")
    message = f"the definitions of this cluster do not allow for type {fs_type}"
    return statuses.report_failure(
        breakdown, Fault(message, type="User", debug=f"{message}: {why}")
    )


def _break_down_jobdw(snapshot: BreakdownSnapshot, directive: Directive) -> Sequence[Write]:
    """Storage for a job: Servers and a pinned profile of the breakdown's own."""
    meta = snapshot.breakdown.metadata
    inherited = labels.inherited_labels(meta)
    if snapshot.pinned_profile is None:
        profile_copy = storageprofiles.pinned_copy(
            choose(snapshot, directive), kinds.BREAKDOWN, meta, inherited
        )
        return [Create(kind=kinds.NNF_STORAGE_PROFILE, object=profile_copy)]
    storageprofiles.check_copy(snapshot.pinned_profile, kinds.BREAKDOWN, meta)
    profile = read(snapshot.pinned_profile, NnfStorageProfile)
    needs = _needs(snapshot, directive, profile)
    servers = {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {**inherited, **labels.of_owner(kinds.BREAKDOWN, meta)},
            "ownerReferences": labels.owner_references(kinds.BREAKDOWN, meta),
            "finalizers": [labels.SERVERS_FINALIZER],
        },
        "spec": {},
    }
    status = {
        **statuses.requires(directive),
        "storage": statuses.storage(snapshot, needs, "job", meta.name),
        "compute": statuses.compute(
            snapshot, meta.name, directive.values["type"], [need.label for need in needs], profile
        ),
    }
    return [Create(kind=kinds.SERVERS, object=servers), statuses.report_ready(snapshot, status)]


def _break_down_create_persistent(
    snapshot: BreakdownSnapshot, directive: Directive
) -> Sequence[Write]:
    """Storage that outlives its job: an instance, which has the Servers and the profile.

    One that is there already is taken if the same user has made it by the same directive, and
    is left as it is.
    """
    instance = snapshot.instance
    if instance is None:
        return [
            Create(kind=kinds.PERSISTENT_INSTANCE, object=newinstance.make(snapshot, directive))
        ]
    newinstance.check_same(instance, snapshot.breakdown, directive)
    meta = instance.metadata
    if snapshot.pinned_profile is None:
        profile_copy = storageprofiles.pinned_copy(
            choose(snapshot, directive), kinds.PERSISTENT_INSTANCE, meta, {}
        )
        return [Create(kind=kinds.NNF_STORAGE_PROFILE, object=profile_copy)]
    storageprofiles.check_copy(snapshot.pinned_profile, kinds.PERSISTENT_INSTANCE, meta)
    needs = _needs(snapshot, directive, read(snapshot.pinned_profile, NnfStorageProfile))
    if snapshot.instance_servers is None:
        return ()  # the instance's controller makes them
    return [
        statuses.report_ready(
            snapshot, {"storage": statuses.storage(snapshot, needs, PERSISTENT, meta.name)}
        )
    ]


def _break_down_persistentdw(snapshot: BreakdownSnapshot, directive: Directive) -> Sequence[Write]:
    """Nodes that reach the storage of an instance, as its Servers say where it is.

    By the type of the instance: NNF takes all for node-local (dws-spec section 3.2).
    """
    name, instance = directive.values["name"], snapshot.instance
    if instance is None or instance.metadata.deleting:
        raise Fault(f"PersistentStorageInstance {name!r} not found", type="User", argument="name")
    servers = snapshot.instance_servers
    sets = servers.spec.allocation_sets if servers is not None else ()
    if not sets:
        raise Fault(
            f"persistent storage {name!r} is not there yet: the job that creates it has not come "
            "to Setup",
            type="User",
            severity="Minor",
        )
    profile = None
    if snapshot.pinned_profile is not None:
        storageprofiles.check_copy(
            snapshot.pinned_profile, kinds.PERSISTENT_INSTANCE, instance.metadata
        )
        profile = read(snapshot.pinned_profile, NnfStorageProfile)
    set_labels = [each.label for each in sets]
    compute = statuses.compute(snapshot, name, instance.spec.fs_type, set_labels, profile)
    return [statuses.report_ready(snapshot, {**statuses.requires(directive), "compute": compute})]


def _needs(
    snapshot: BreakdownSnapshot, directive: Directive, profile: NnfStorageProfile
) -> list[AllocationNeed]:
    needs = allocationneeds.needs_of(directive, profile)
    fs_type = directive.values["type"]
    return (
        allocationneeds.with_supported_type_label(needs, fs_type)
        if snapshot.only_some_rabbits_make(fs_type)
        else needs
    )


HANDLER_BY_COMMAND: Final[
    Mapping[str, Callable[[BreakdownSnapshot, Directive], Sequence[Write]]]
] = {
    "jobdw": _break_down_jobdw,
    "create_persistent": _break_down_create_persistent,
    "persistentdw": _break_down_persistentdw,
}
