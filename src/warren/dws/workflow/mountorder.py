"""Whose storage a directive mounts, and in which order storage is mounted."""

from collections.abc import Iterable

from warren.directives.parse import Directive
from warren.dws.objects.accesses import NnfAccess
from warren.dws.workflow.workflowsnapshot import WorkflowSnapshot


def is_mounted(access: NnfAccess | None) -> bool:
    """Return whether the nodes of an access have mounted what they are to mount."""
    return access is not None and access.status.ready and access.status.state == "mounted"


def may_mount(snapshot: WorkflowSnapshot, index: int, indexes: Iterable[int], clients: str) -> bool:
    """Return whether the storage of `index` may be mounted: that with earlier names is mounted.

    Others wait for persistent storage that is mounted. All take it in one order, so that no two
    wait for each other. `indexes` are those of all directives whose storage is mounted now.
    """
    names = {each: instance_name_of(snapshot.directives[each]) for each in (*indexes, index)}
    own_name = names[index]
    return own_name is None or all(
        is_mounted(snapshot.accesses.get(f"{snapshot.child_name(each)}-{clients}"))
        for each, name in names.items()
        if name is not None and name < own_name
    )


def instance_name_of(directive: Directive) -> str | None:
    """Return the name of the instance whose storage a directive uses; None for the job's own."""
    return directive.values["name"] if directive.command.text == "persistentdw" else None
