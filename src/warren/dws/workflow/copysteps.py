"""The work of copy_in and copy_out: rabbits mount, and copies are made and waited for."""

from collections.abc import Mapping, Sequence
from typing import Final

from warren.base.objects import Create, Object, Write
from warren.directives.parse import Directive
from warren.dws import children, kinds, labels, nodelocal, tolerance
from warren.dws.access import accessobjects
from warren.dws.access.accessobjects import SERVERS
from warren.dws.access.accesssnapshot import names_clients
from warren.dws.copies import copyprofiles, datamovement, staging
from warren.dws.faults import STATUS_BY_SEVERITY, Fault, raise_for
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.workflows import State, Workflow
from warren.dws.offload import movements
from warren.dws.storage import locks
from warren.dws.workflow import states
from warren.dws.workflow.mountorder import instance_name_of, is_mounted, may_mount
from warren.dws.workflow.workflowsnapshot import DONE, Outcome, WorkflowSnapshot

FAILED_MESSAGE: Final = "has failed, and waits for other copies to end"
"""What a copy_out says that has failed, as long as others may save something."""


def pin_profile(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Make the directive's own copy of its profile, if it has one, which is read from then on."""
    name = snapshot.child_name(index)
    if name in snapshot.pinned_copy_profiles:
        return DONE
    source = copyprofiles.choose(directive.values.get("profile"), snapshot.copy_profiles)
    if source is None:
        return DONE
    copyprofiles.annotation(source)  # nothing is begun with one that cannot be used
    pinned_copy = {
        "metadata": children.metadata(snapshot.workflow, name, index),
        "data": {**source["data"], "default": False, "pinned": True},
    }
    write = Create(kind=kinds.COPY_PROFILE, object=pinned_copy)
    return Outcome(writes=[write], waiting="status pending")


def is_movement_of(movement: Object, workflow: Workflow) -> bool:
    """Return whether a movement that is labelled as a Workflow's is one, by its name.

    A rabbit's agent may change the labels of those of its own, and would fail or hold up jobs.
    Those of its directives are meant, and those that its job has asked for.
    """
    own_prefixes = (f"{workflow.metadata.name}-", movements.name_prefix(workflow))
    return str(movement["metadata"]["name"]).startswith(own_prefixes)


def copy(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Have rabbits mount the storage, then make the copies and wait for them."""
    target_index = _target_index(snapshot, directive)
    storage = _storage_of(snapshot, target_index)
    access = snapshot.accesses.get(_access_name(snapshot, target_index))
    if access is None or access.spec.desired_state != "mounted":
        return Outcome(
            writes=_mount_on_rabbits(snapshot, index, target_index, access), waiting="pending mount"
        )
    raise_for(access.status.error)
    if not is_mounted(access):
        return Outcome(waiting="pending mount")
    return _make_movements(snapshot, index, directive, storage, target_index)


def copy_out(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Copy as `copy` does. What has failed is an error only when nothing else may be saved.

    An error has everything torn down at once. What takes for ever meanwhile is ended by the limit
    of DataOut (`dws.jobs.timeouts`: `teardown_after`), as it is where nothing has failed.
    """
    try:
        return copy(snapshot, index, directive)
    except Fault as fault:
        if not _is_fatal(fault) or not _may_save_more(snapshot):
            raise
        return Outcome(waiting=f"{FAILED_MESSAGE}: {fault}")


def _is_fatal(fault: Fault) -> bool:
    return STATUS_BY_SEVERITY[fault.severity] == "Error"


def _may_save_more(snapshot: WorkflowSnapshot) -> bool:
    """Return whether copies that have not failed may still save something in DataOut.

    Each is looked at by itself: two that have failed do not wait for each other.
    """
    failed_indexes: set[str] = set()
    for driver in states.drivers_of(snapshot.workflow):
        if driver.watch_state is not State.DATA_OUT or driver.completed:
            continue
        directive = snapshot.directives[driver.dwd_index]
        try:
            outcome = copy(snapshot, driver.dwd_index, directive)
        except Fault as fault:
            if STATUS_BY_SEVERITY[fault.severity] == "Running":
                return True
            if _is_fatal(fault):
                failed_indexes.add(str(driver.dwd_index))
        else:
            if outcome.waiting and (outcome.writes or _is_begun(snapshot, directive)):
                return True
    return any(
        each.status.state != "Finished"
        and each.metadata.labels.get(labels.DIRECTIVE_INDEX) not in failed_indexes
        for each in snapshot.movements
    )


def _is_begun(snapshot: WorkflowSnapshot, directive: Directive) -> bool:
    """Return whether rabbits are to mount a copy's storage.

    The turn of one whose rabbits are not may never come: that which it waits for may have failed.
    """
    access = snapshot.accesses.get(_access_name(snapshot, _target_index(snapshot, directive)))
    return access is not None and access.spec.desired_state == "mounted"


def _access_name(snapshot: WorkflowSnapshot, target_index: int) -> str:
    return f"{snapshot.child_name(target_index)}-{SERVERS}"


def _target_index(snapshot: WorkflowSnapshot, directive: Directive) -> int:
    """Return the index of the directive to or from whose storage another one copies."""
    path = staging.parse(
        directive.values[staging.STORAGE_ARGUMENT_BY_COMMAND[directive.command.text]]
    )
    target_index = staging.indexes_by_storage(snapshot.directives).get(
        (path.lifetime, path.storage or "")
    )
    if target_index is None:  # Proposal was forced
        command = "persistentdw" if path.lifetime == "persistent" else "jobdw"
        raise Fault(f"this job has no {command} named {path.storage or ''!r}", type="User")
    return target_index


def _storage_of(snapshot: WorkflowSnapshot, index: int) -> NnfStorage:
    """Return the storage of a directive. Raises Fault where it is gone."""
    name = instance_name_of(snapshot.directives[index])
    instance = snapshot.instances.get(name) if name is not None else None
    storage = instance.storage if instance else snapshot.storages.get(snapshot.child_name(index))
    if storage is None:
        name = snapshot.directives[index].values.get("name")
        raise Fault(f"the storage {name} is gone", severity="Major")
    return storage


def _mount_on_rabbits(
    snapshot: WorkflowSnapshot, index: int, target_index: int, access: NnfAccess | None
) -> list[Write]:
    """Have rabbits mount the storage of the directive at `target_index` for the copy at `index`."""
    command = snapshot.directives[index].command.text
    target_index_by_copy = {
        copy_index: _target_index(snapshot, each)
        for copy_index, each in enumerate(snapshot.directives)
        if each.command.text == command
    }
    if not may_mount(snapshot, target_index, target_index_by_copy.values(), SERVERS):
        return []
    if access is not None:
        # By the first copy alone of those that need it: all see the same version.
        first_copy = min(
            copy_index for copy_index, each in target_index_by_copy.items() if each == target_index
        )
        remount = accessobjects.mount_again(access, index, command, snapshot.lost_nodes)
        return [remount] if index == first_copy else []
    new_access = accessobjects.new(
        snapshot.workflow,
        target_index,
        SERVERS,
        snapshot.mount_path(target_index),
        mounted_for=(index, command),
        lost=snapshot.lost_nodes,
        instance_name=instance_name_of(snapshot.directives[target_index]),
    )
    return [Create(kind=kinds.NNF_ACCESS, object=new_access)]


def _allocations_to_copy(
    snapshot: WorkflowSnapshot, target_index: int
) -> Mapping[str, Sequence[int]] | None:
    """Return which allocations are for the job's nodes, without those it has lost; None for all.

    All are meant where no nodes are known and rabbits have mounted all (ADR 065).
    """
    wiring, lost = snapshot.wiring or {}, snapshot.lost_nodes
    if instance_name_of(snapshot.directives[target_index]) is None:
        if (
            not lost
            or _storage_of(snapshot, target_index).spec.file_system_type
            not in locks.EXCLUSIVE_TYPES
        ):
            return None
        return tolerance.remaining_allocations(snapshot.computes, wiring, lost)
    data = snapshot.computes.data if snapshot.computes else ()
    access = snapshot.accesses.get(_access_name(snapshot, target_index))
    if not data and access is not None and not names_clients(access):
        return None
    nodes = [node.name for node in data if node.name not in lost]
    return nodelocal.allocation_numbers_by_rabbit(nodes, wiring, snapshot.positions)


def _make_movements(
    snapshot: WorkflowSnapshot,
    index: int,
    directive: Directive,
    storage: NnfStorage,
    target_index: int,
) -> Outcome:
    present = {each.metadata.key: each for each in _movements(snapshot, index)}
    wanted = datamovement.movements(
        snapshot.workflow,
        index,
        directive,
        storage,
        snapshot.file_systems,
        snapshot.mount_path(target_index),
        _allocations_to_copy(snapshot, target_index),
        _own_profile(snapshot, index, directive),
    )
    if not wanted and not present:  # to say that it is done would lose what was to be copied
        name = snapshot.directives[target_index].values.get("name")
        raise Fault(f"nothing of {name} is for this job's compute nodes", type="WLM")
    missing = [
        Create(kind=kinds.NNF_DATA_MOVEMENT, object=obj)
        for obj in wanted
        if Create(kind=kinds.NNF_DATA_MOVEMENT, object=obj).key not in present
    ]
    failed = next(
        (
            each
            for each in present.values()
            if each.status.state == "Finished" and each.status.status != "Success"
        ),
        None,
    )
    # Before a failed copy_out has everything torn down, its others save what they can.
    may_save_more = failed is not None and snapshot.workflow.status.state is State.DATA_OUT
    unfinished = [each for each in present.values() if each.status.state != "Finished"]
    if failed is not None and not (may_save_more and (unfinished or missing)):
        raise Fault(
            f"data movement operation failed during '{snapshot.workflow.status.state}', "
            f"message: {failed.metadata.namespace}: {failed.status.message}",
            type=failed.status.error.type if failed.status.error else "User",
        )
    if missing or unfinished:
        return Outcome(
            writes=missing, waiting=f"{len(unfinished) + len(missing)} data movements to finish"
        )
    return DONE


def _movements(snapshot: WorkflowSnapshot, index: int) -> list[NnfDataMovement]:
    own_index = str(index)
    return [
        each
        for each in snapshot.movements
        if each.metadata.labels.get(labels.DIRECTIVE_INDEX) == own_index
    ]


def _own_profile(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Object | None:
    """Return the directive's own copy, if it has one. Raises Fault where that is gone."""
    name = snapshot.child_name(index)
    profile = snapshot.pinned_copy_profiles.get(name)
    if profile is None and "profile" in directive.values:
        raise Fault(f"the NnfDataMovementProfile {name} is gone")
    return profile
