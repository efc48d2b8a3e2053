"""Which changes of an object a controller, or the conductor, has something to decide on.

A change of what the decision does not look at does not count. All of this is about changes by
others: those that a reconcile has made itself are known to its `Reconciler` (ADR 095).
"""

from warren.base.objects import Kind, Object
from warren.dws import kinds, labels, reports
from warren.dws.node import LUSTRE
from warren.dws.objects.workflows import State


def has_nothing_to_decide(workflow: Object) -> bool:
    """Return whether `driver.decide` has nothing to say until a Workflow itself changes.

    It is ready in the state that it is asked for. In Proposal it still loses and gets back what
    it is prepared with.
    """
    status = workflow.get("status") or {}
    state = status.get("state")
    return (
        bool(status.get("ready"))
        and state == workflow["spec"].get("desiredState")
        and state != State.PROPOSAL
        and "deletionTimestamp" not in workflow["metadata"]
    )


def is_relevant_to_workflow(
    kind: Kind, before: Object | None, after: Object | None, workflow: Object
) -> bool:
    """Return whether `driver.decide` may say something else than before this change of a child.

    In the middle of a mount or a copy it does not: the end of that counts, and so does an error.
    A Workflow that shows one hears of everything, since the error may be over.
    """
    if after is None or reports.in_error(workflow):
        return True
    if before is None and "deletionTimestamp" in workflow["metadata"]:
        return True  # it came late, and is to go
    status = after.get("status") or {}
    if status.get("error") or ((before or {}).get("status") or {}).get("error"):
        return True
    if kind == kinds.NNF_STORAGE:
        # Which accesses hold it is no matter of the Workflow's, and that it goes only at the end.
        return bool(status.get("ready")) and _differs(before, after)
    if kind == kinds.BREAKDOWN:
        return bool(status.get("ready"))
    if kind == kinds.SERVERS:
        # They are looked at when they have been filled in.
        proposing = workflow["spec"].get("desiredState") == State.PROPOSAL
        return not proposing and _differs(before, after, "spec")
    if kind == kinds.NNF_STORAGE_PROFILE:
        return False  # a breakdown's copy, of which only the end is waited for
    if kind == kinds.NNF_ACCESS:
        reached = status.get("state") == after["spec"].get("desiredState")
        return bool(reached and status.get("ready")) and _differs(before, after)
    if kind == kinds.NNF_DATA_MOVEMENT and "deletionTimestamp" not in after["metadata"]:
        return bool(status.get("state") == "Finished")
    return True


def is_relevant_to_conductor(
    kind: Kind, before: Object | None, after: Object | None, workflow: Object
) -> bool:
    """Return whether `conduct.decide` may say something else than before this change of a child.

    What workload managers fill in, which is in spec and data, it looks at again in PreRun alone.
    A child that comes or goes counts always, and nothing does for a Workflow that is deleted.
    """
    if "deletionTimestamp" in workflow["metadata"]:
        return False
    if before is None or after is None:
        return True
    if kind == kinds.BREAKDOWN:
        return _differs(before, after)
    running = (workflow.get("status") or {}).get("state") == State.PRE_RUN
    return running and _differs(before, after, "spec", "data")


def is_relevant_node_storage_change(before: Object | None, after: Object | None) -> bool:
    """Return whether an NnfStorage may have something to say of an NnfNodeStorage's change."""
    if after is None:
        return True
    status = after.get("status") or {}
    if before is None:
        # A share of Lustre may be what others wait for.
        return bool(status.get("ready") or status.get("error")) or _is_lustre(after)
    return _differs(before, after)


def is_relevant_block_storage_change(before: Object | None, after: Object | None) -> bool:
    """Return whether an NnfStorage may have something to say of its flash's change.

    All that matters is whether it is there.
    """
    return after is None


def is_relevant_storage_change(before: Object | None, after: Object) -> bool:
    """Return whether an NnfStorage may have something to do after this change of itself.

    By which accesses it is held matters once it is deleted.
    """
    if before is None or "deletionTimestamp" in after["metadata"]:
        return True
    return _differs(before, after) or _labels(before) != _labels(after)


def is_relevant_servers_change(before: Object | None, after: Object | None) -> bool:
    """Return whether there may be something to report in Servers, or to release, after a change."""
    if after is None:
        return False
    metadata = after["metadata"]
    if "deletionTimestamp" in metadata:
        return labels.SERVERS_FINALIZER in (metadata.get("finalizers") or ())
    if before is None:
        return bool((after.get("spec") or {}).get("allocationSets") or after.get("status"))
    return _differs(before, after)


def is_relevant_mount_change(before: Object | None, after: Object | None) -> bool:
    """Return whether an NnfAccess may have something to decide on a ClientMount's change.

    That it goes is its own doing, and what it waits for is that it is gone.
    """
    return after is None or _differs(before, after) or _labels(before) != _labels(after)


def _differs(before: Object | None, after: Object, *fields: str) -> bool:
    """Return whether two forms of an object differ in spec or status, or in some fields alone."""
    if before is None:
        return True
    return any(before.get(each) != after.get(each) for each in fields or ("spec", "status"))


def _labels(obj: Object | None) -> Object:
    return ((obj or {}).get("metadata") or {}).get("labels") or {}


def _is_lustre(share: Object) -> bool:
    return bool((share.get("spec") or {}).get("fileSystemType") == LUSTRE)
