"""The work behind each state of a Workflow: what its directives ask for, and whether it is done.

`decide` takes a snapshot of the Workflow and its children, and returns what to write. The
table `HANDLERS` says what handles a command in a state; a pair that is not there needs nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec.structs import replace

from warren.base.objects import Change, Create, Object, Remove, Write, merge_patch
from warren.base.times import rfc3339_micro
from warren.directives.parse import Directive
from warren.dws import children, containerauth, kinds, labels, location, reports
from warren.dws.access import accessobjects
from warren.dws.access.accessobjects import COMPUTES, SERVERS
from warren.dws.breakdown import directivebreakdown, newinstance, servers
from warren.dws.copies import staging
from warren.dws.faults import STATUS_BY_SEVERITY, Fault, raise_for
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.workflows import DriverStatus, State, Workflow
from warren.dws.persistent import instances
from warren.dws.persistent.instances import InstanceSnapshot
from warren.dws.storage import nnfstorage
from warren.dws.workflow import containersteps, copysteps, offloadsteps, states, teardown
from warren.dws.workflow.mountorder import instance_name_of, is_mounted, may_mount
from warren.dws.workflow.workflowsnapshot import DONE, Outcome, WorkflowSnapshot

_ERROR_STATUSES: Final = ("TransientCondition", "Error")


def needs_live_read(snapshot: WorkflowSnapshot) -> bool:
    """Return whether `decide` is about to say that nothing is left, of the Workflow or to copy.

    What was seen of its children may be older than what was seen of itself, so
    that must be read from the API, or a child that was just made would be forgotten.
    """
    workflow = snapshot.workflow
    remaining = (
        snapshot.storages or snapshot.accesses or snapshot.movements or snapshot.container_jobs
    )
    if workflow.metadata.deleting:
        return not remaining and not snapshot.dependents
    if offloadsteps.is_about_to_end_post_run(snapshot):
        return True
    is_torn_down = workflow.status.state is State.TEARDOWN and workflow.status.ready
    return workflow.spec.desired_state is State.TEARDOWN and not remaining and not is_torn_down


def is_final(snapshot: WorkflowSnapshot) -> bool:
    """Return whether `decide` adds nothing once what it has written to the Workflow is seen.

    What comes next is an event of another object then. Containers and tokens are looked after by
    time, too.
    """
    workflow = snapshot.workflow
    is_going = workflow.metadata.deleting or workflow.spec.desired_state is not State.PROPOSAL
    is_prepared = is_going or not _needs_preparation(snapshot)
    return is_prepared and not snapshot.has_containers and snapshot.token_secrets is None


def reports_error(workflow: Workflow, writes: Sequence[Write]) -> bool:
    """Return whether writes say that something is wrong, and not only late.

    What was seen of others may be older than the Workflow, so that must be read from the API.
    """
    errors = [
        write.patch.get("status", {}).get("status")
        for write in writes
        if isinstance(write, Change) and write.kind == kinds.WORKFLOW
    ]
    return any(status in _ERROR_STATUSES and status != workflow.status.status for status in errors)


def decide(snapshot: WorkflowSnapshot) -> list[Write]:
    """Return what to write. The Workflow itself is written at most once."""
    workflow = snapshot.workflow
    if workflow.metadata.deleting:
        return _finalize(snapshot)
    if workflow.spec.desired_state is State.PROPOSAL and _needs_preparation(snapshot):
        return _prepare(snapshot)
    entered = states.enter(workflow, snapshot.now)
    if entered is not None:
        # In one write with what is found in the new state: each write wakes all that watch.
        return _drive(replace(snapshot, workflow=states.after_entering(workflow, entered)), entered)
    return [] if workflow.status.ready else _drive(snapshot)


# Entering and leaving


def _needs_preparation(snapshot: WorkflowSnapshot) -> bool:
    workflow = snapshot.workflow
    return (
        labels.WORKFLOW_FINALIZER not in workflow.metadata.finalizers
        or workflow.status.computes is None
        or workflow.status.state is None
        or snapshot.computes is None
    )


def _prepare(snapshot: WorkflowSnapshot) -> list[Write]:
    workflow = snapshot.workflow
    meta = workflow.metadata
    finalizers = {*meta.finalizers, labels.WORKFLOW_FINALIZER}
    reference = {"kind": "Computes", "name": meta.name, "namespace": meta.namespace}
    patch: Object = {
        "metadata": {"finalizers": sorted(finalizers)},
        "status": {"computes": reference},
    }
    entered = states.enter(workflow, snapshot.now) or {}
    computes: Object = {
        "metadata": children.metadata(workflow, meta.name),
        "data": [],
    }
    # The finalizer first: without it the Workflow may be gone before its Computes are made,
    # and nothing would ever remove them.
    return [
        _change(workflow, merge_patch(patch, entered)),
        Create(kind=kinds.COMPUTES, object=computes),
    ]


def _finalize(snapshot: WorkflowSnapshot) -> list[Write]:
    """Take everything down that is the Workflow's; let go of it when nothing is left."""
    workflow = snapshot.workflow
    if labels.WORKFLOW_FINALIZER not in workflow.metadata.finalizers:
        return []
    outcomes = [
        _release_directive(snapshot, index) for index in range(len(workflow.spec.dw_directives))
    ]
    writes = _distinct_writes(outcomes)
    if any(outcome.waiting for outcome in outcomes):
        return writes
    if snapshot.dependents:
        return [*writes, *(Remove(kind=kind, key=key) for kind, key in snapshot.dependents)]
    if set(workflow.metadata.finalizers) != {labels.WORKFLOW_FINALIZER}:
        return writes  # ours is taken off last
    finalizer = labels.WORKFLOW_FINALIZER
    return [*writes, reports.remove_finalizer(kinds.WORKFLOW, workflow.metadata, finalizer)]


def _release_directive(snapshot: WorkflowSnapshot, index: int) -> Outcome:
    try:
        return teardown.release(snapshot, index, None)
    except Fault as fault:  # shown to no user any more
        return Outcome(waiting=fault.workflow_message)


# Driving a state


def _drive(snapshot: WorkflowSnapshot, entered: Object | None = None) -> list[Write]:
    """Do the work of the Workflow's state, which the change `entered`, if any, takes up."""
    workflow = snapshot.workflow
    directives = snapshot.directives
    outcomes: list[Outcome] = []
    env: dict[str, str] = {}
    drivers = []
    for driver in states.drivers_of(workflow):
        if driver.watch_state is workflow.status.state and not driver.completed:
            command = directives[driver.dwd_index].command.text
            handler = HANDLERS.get((driver.watch_state, command))
            driver, outcome = _attempt(snapshot, driver, directives[driver.dwd_index], handler)
            outcomes.append(outcome)
            env.update(outcome.env or {})
        drivers.append(driver)
    if workflow.spec.force_ready and workflow.status.state is State.PRE_RUN:
        env.update(_variables(snapshot))
    status = states.conclude(workflow, drivers, snapshot.now)
    patch: dict[str, Any] = {"status": {**status, "drivers": _encode_drivers(workflow, drivers)}}
    if env:
        patch["status"]["env"] = env
    patch["status"] |= containerauth.token_status(workflow, directives, snapshot.token_secrets)
    if workflow.status.state is State.PROPOSAL:
        patch["status"]["directiveBreakdowns"] = [
            {"kind": "DirectiveBreakdown", "name": name, "namespace": workflow.metadata.namespace}
            for name in sorted(snapshot.breakdowns)
        ]
    writes = _distinct_writes(outcomes)
    if entered is None:
        is_unchanged = _says_nothing_new(workflow, status, drivers)
        return writes if is_unchanged else [*writes, _change(workflow, patch)]
    # First, so that the time of a state also goes by where its work cannot be asked for; but
    # nothing is called done before it is.
    change = _change(workflow, merge_patch(entered, patch))
    all_awaited = all(outcome.waiting is not None for outcome in outcomes if outcome.writes)
    return [change, *writes] if all_awaited else [*writes, change]


def _distinct_writes(outcomes: Sequence[Outcome]) -> list[Write]:
    """Return the writes of all steps, without the removals that an earlier one has asked for."""
    removals: set[Remove] = set()
    writes: list[Write] = []
    for write in (write for outcome in outcomes for write in outcome.writes):
        if isinstance(write, Remove):
            if write in removals:
                continue
            removals.add(write)
        writes.append(write)
    return writes


Handler = Callable[[WorkflowSnapshot, int, Directive], Outcome]


def _attempt(
    snapshot: WorkflowSnapshot, driver: DriverStatus, directive: Directive, handler: Handler | None
) -> tuple[DriverStatus, Outcome]:
    try:
        outcome = handler(snapshot, driver.dwd_index, directive) if handler else DONE
    except Fault as fault:
        status = STATUS_BY_SEVERITY[fault.severity]
        return _changed_driver(
            driver, status=status, message=fault.workflow_message, error=fault.debug
        ), DONE
    if outcome.waiting is not None:
        return _changed_driver(driver, status="Running", message=outcome.waiting, error=""), outcome
    done = _changed_driver(driver, status="Completed", message="", error="")
    return (
        _changed_driver(done, completed=True, complete_time=rfc3339_micro(snapshot.now)),
        outcome,
    )


def _changed_driver(driver: DriverStatus, **changes: Any) -> DriverStatus:
    return msgspec.structs.replace(driver, **changes)


def _encode_drivers(workflow: Workflow, drivers: Sequence[DriverStatus]) -> list[Object]:
    """Return the entries of drivers in a status, with the fields that are not known here."""
    entries: list[Object] = []
    for old, driver in zip(workflow.status.drivers, drivers, strict=True):
        entry = dict(old)
        entry.update(status=driver.status, completed=driver.completed)
        for name, value in (
            ("message", driver.message),
            ("error", driver.error),
            ("completeTime", driver.complete_time),
        ):
            if value:
                entry[name] = value
            else:
                entry.pop(name, None)
        entries.append(entry)
    return entries


def _says_nothing_new(
    workflow: Workflow, status: Mapping[str, Any], drivers: Sequence[DriverStatus]
) -> bool:
    current = workflow.status
    return (
        not status["ready"]
        and status["status"] == current.status
        and status["message"] == current.message
        and _encode_drivers(workflow, drivers) == list(current.drivers)
    )


def _change(workflow: Workflow, patch: Object) -> Change:
    return Change(
        kind=kinds.WORKFLOW,
        key=workflow.metadata.key,
        patch=patch,
        resource_version=workflow.metadata.resource_version,
    )


# The handlers


def _propose(
    snapshot: WorkflowSnapshot,
    index: int,
    directive: Directive,
    used_instance: str | None = None,
) -> Outcome:
    _validate(snapshot, index, directive)
    breakdown = snapshot.breakdowns.get(snapshot.child_name(index))
    if breakdown is None:
        new_breakdown = directivebreakdown.new(snapshot.workflow, index, used_instance)
        write = Create(kind=kinds.BREAKDOWN, object=new_breakdown)
        return Outcome(writes=[write], waiting="status pending")
    raise_for(breakdown.status.error)
    return DONE if breakdown.status.ready else Outcome(waiting="status pending")


def _validate(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    mistake = snapshot.mistakes.get(index)
    if mistake is not None:
        raise Fault(str(mistake), type="User") from mistake
    return DONE


def _set_up(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    token_outcome = offloadsteps.set_up(snapshot)
    if token_outcome is not DONE:
        return token_outcome
    storage = snapshot.storages.get(snapshot.child_name(index))
    if storage is None:
        breakdown = snapshot.breakdowns.get(snapshot.child_name(index))
        assigned_servers = snapshot.servers.get(snapshot.child_name(index))
        if breakdown is None or breakdown.status.storage is None or assigned_servers is None:
            return Outcome(waiting="waits for its DirectiveBreakdown and Servers")
        sets = breakdown.status.storage.allocation_sets
        localities = location.localities(
            {breakdown.status.storage.reference.name: sets}, [breakdown]
        )
        servers.check(
            sets, assigned_servers, snapshot.rabbits, _node_counts_by_rabbit(snapshot), localities
        )
        new_storage = nnfstorage.new(
            children.owner_for_directive(snapshot.workflow, index),
            snapshot.child_name(index),
            breakdown.status.storage.allocation_sets[0].label,
            assigned_servers,
        )
        return Outcome(
            writes=[Create(kind=kinds.NNF_STORAGE, object=new_storage)],
            waiting="allocation set not ready",
        )
    raise_for(storage.status.error)
    return DONE if storage.status.ready else Outcome(waiting="allocation set not ready")


def _set_up_instance(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Make the storage of an instance, which owns it: what is made here outlives the Workflow."""
    name = directive.values["name"]
    instance = _usable_instance(snapshot, index, name)
    breakdown = snapshot.breakdowns.get(snapshot.child_name(index))
    if breakdown is not None:
        # Again: what was there in Proposal may be gone, and another user's have its name.
        newinstance.check_same(instance.object, breakdown, directive)
    raise_for(instance.object.status.error)
    if instance.storage is None:
        owns_servers = instance.servers is not None and instance.owns(instance.servers.metadata)
        if (
            breakdown is None
            or breakdown.status.storage is None
            or instance.servers is None
            or not owns_servers
        ):
            return Outcome(waiting="waits for its DirectiveBreakdown and Servers")
        if not instances.is_made_by(instance.object, breakdown):
            return Outcome(waiting="waits for the job that creates the same")
        servers.check(breakdown.status.storage.allocation_sets, instance.servers, snapshot.rabbits)
        new_storage = nnfstorage.new(
            instances.storage_owner(
                instance.object, children.owner_for_directive(snapshot.workflow, index)
            ),
            name,
            breakdown.status.storage.allocation_sets[0].label,
            instance.servers,
        )
        return Outcome(
            writes=[Create(kind=kinds.NNF_STORAGE, object=new_storage)],
            waiting="allocation set not ready",
        )
    is_usable = instance.object.status.state in instances.USABLE_STATES
    return DONE if is_usable else Outcome(waiting="allocation set not ready")


def _propose_instance(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    instance = snapshot.instances.get(directive.values["name"])
    if instance is not None:
        instances.check_may_use(instance.object, snapshot.workflow, snapshot.groups)
        raise_for(instance.object.status.error)  # nothing comes of it, and its breakdown would wait
    return _propose(snapshot, index, directive)


def _usable_instance(snapshot: WorkflowSnapshot, index: int, name: str) -> InstanceSnapshot:
    """Return the instance of the directive at `index`, which its user may use. Raises Fault."""
    return instances.usable_instance(
        snapshot.instances.get(name),
        name,
        snapshot.workflow,
        snapshot.groups,
        snapshot.now,
        snapshot.breakdowns.get(snapshot.child_name(index)),
    )


def _propose_use(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    instance = _usable_instance(snapshot, index, directive.values["name"])
    # In Setup there may be another one of its name.
    return _propose(snapshot, index, directive, instance.object.metadata.uid)


def _add_consumer(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Enter the Workflow into the instance, which cannot be destroyed from then on."""
    token_outcome = offloadsteps.set_up(snapshot)
    if token_outcome is not DONE:
        return token_outcome
    instance = _usable_instance(snapshot, index, directive.values["name"])
    change = instances.change_to_add_consumer(
        instance.object, instances.consumer(snapshot.workflow, index)
    )
    if change is not None:
        return Outcome(writes=[change], waiting="waits to be a user of the persistent storage")
    is_ready = instance.storage is not None and instance.storage.status.ready
    return DONE if is_ready else Outcome(waiting="allocation set not ready")


def _node_counts_by_rabbit(snapshot: WorkflowSnapshot) -> Mapping[str, int]:
    """Count the job's compute nodes by their rabbits, as far as they are known already."""
    wiring = snapshot.wiring or {}
    nodes = snapshot.computes.data if snapshot.computes else ()
    return Counter(wiring[node.name] for node in nodes if wiring.get(node.name))


def _check_computes(snapshot: WorkflowSnapshot) -> None:
    """Raise Fault where nodes are named that the system does not have (dws-spec section 4)."""
    if snapshot.wiring is None or snapshot.computes is None:
        return
    unknown = [node.name for node in snapshot.computes.data if node.name not in snapshot.wiring]
    if unknown:
        more_count = len(unknown) - _MAX_NAMES
        suffix = f" and {more_count} more" if more_count > 0 else ""
        raise Fault(
            f"Computes {snapshot.computes.metadata.name} names nodes that are not in the "
            f"SystemConfiguration: {', '.join(unknown[:_MAX_NAMES])}{suffix}",
            type="WLM",
        )


_MAX_NAMES: Final = 10
"""How many of many nodes a message names."""


def _mount(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    offload_target_indexes = offloadsteps.target_indexes(snapshot)
    if index not in (*offload_target_indexes, *containersteps.all_target_indexes(snapshot)):
        # One NnfAccess mounts a node-local file system at a time: rabbits let go first.
        rabbits_outcome = _unmount_access(
            snapshot.accesses.get(f"{snapshot.child_name(index)}-{SERVERS}")
        )
        if rabbits_outcome is not DONE:
            return rabbits_outcome
    path = snapshot.mount_path(index)
    name = f"{snapshot.child_name(index)}-{COMPUTES}"
    access = snapshot.accesses.get(name)
    if access is None:
        _check_computes(snapshot)
        if not may_mount(snapshot, index, range(len(snapshot.directives)), COMPUTES):
            return Outcome(waiting="pending mount")
        new_access = accessobjects.new(
            snapshot.workflow, index, COMPUTES, path, instance_name=instance_name_of(directive)
        )
        return Outcome(
            writes=[Create(kind=kinds.NNF_ACCESS, object=new_access)], waiting="pending mount"
        )
    raise_for(access.status.error)
    if not is_mounted(access):
        return Outcome(waiting="pending mount")
    serving_outcome = (
        _mount_on_rabbits(snapshot, index, offload_target_indexes)
        if index in offload_target_indexes
        else DONE
    )
    if serving_outcome is not DONE:
        return serving_outcome
    return Outcome(env={**_variables(snapshot), **offloadsteps.variables(snapshot)})


def _variables(snapshot: WorkflowSnapshot) -> dict[str, str]:
    """Return what names the job's storage to the job (dws-spec section 9)."""
    env: dict[str, str] = {}
    paths_by_variable: dict[str, list[str]] = {}
    for index, directive in enumerate(snapshot.directives):
        name, path = directive.values.get("name", ""), snapshot.mount_path(index)
        lifetime = _LIFETIME_BY_COMMAND.get(directive.command.text)
        if lifetime is None:
            continue
        env[f"DW_{lifetime}_{name.replace('-', '_')}"] = path
        paths_by_variable.setdefault(f"DW_{lifetime}S", []).append(f"{name}:{path}")
        if "type" in directive.values:
            # HPE's controllers make `DW_PERSISTENT_` of the type that a persistentdw does not have.
            env.setdefault(f"DW_{lifetime}_{directive.values['type'].upper()}", path)
    return {**env, **{name: ",".join(entries) for name, entries in paths_by_variable.items()}}


_LIFETIME_BY_COMMAND: Final = {"jobdw": "JOB", "persistentdw": "PERSISTENT"}


def _unmount(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    access = snapshot.accesses.get(f"{snapshot.child_name(index)}-{COMPUTES}")
    outcome = _unmount_access(access, snapshot.lost_nodes)
    return outcome if outcome is not DONE else offloadsteps.finish(snapshot)


def _unmount_access(access: NnfAccess | None, lost: Collection[str] = ()) -> Outcome:
    """Have the nodes of an access unmount; done when they have, or there is none."""
    if access is None:
        return DONE
    if access.spec.desired_state != "unmounted":
        return Outcome(writes=[accessobjects.unmount(access, lost)], waiting="pending unmount")
    raise_for(access.status.error)
    is_unmounted = access.status.ready and access.status.state == "unmounted"
    return DONE if is_unmounted else Outcome(waiting="pending unmount")


def _propose_copy(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    outcome = _validate(snapshot, index, directive)
    path = staging.parse(
        directive.values[staging.STORAGE_ARGUMENT_BY_COMMAND[directive.command.text]]
    )
    instance = snapshot.instances.get(path.storage or "") if path.lifetime != "job" else None
    if instance is not None and instance.object.spec.fs_type == "raw":
        raise Fault("data movement can not be used with raw allocations", type="User")
    return copysteps.pin_profile(snapshot, index, directive) if outcome is DONE else outcome


def _propose_container(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    _validate(snapshot, index, directive)
    return containersteps.pin_profile(snapshot, index, directive)


def _start(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Have rabbits mount what a directive's containers use, and start those."""
    target_indexes = containersteps.target_indexes(snapshot, directive)
    outcomes = [
        _mount_on_rabbits(snapshot, target_index, target_indexes) for target_index in target_indexes
    ]
    unfinished = next((each for each in outcomes if each is not DONE), None)
    if unfinished is not None:
        return Outcome(
            writes=[w for each in outcomes for w in each.writes], waiting=unfinished.waiting
        )
    return containersteps.start(snapshot, index, directive)


def _mount_on_rabbits(
    snapshot: WorkflowSnapshot, target_index: int, target_indexes: Sequence[int]
) -> Outcome:
    """Have rabbits mount the storage of the directive at `target_index` until Teardown."""
    access = snapshot.accesses.get(f"{snapshot.child_name(target_index)}-{SERVERS}")
    # Copies while the job runs have it so, too: until Teardown, as containers do.
    mounted_for = (target_index, "container")
    if access is None:
        if not may_mount(snapshot, target_index, target_indexes, SERVERS):
            return Outcome(waiting="pending mount")
        new_access = accessobjects.new(
            snapshot.workflow,
            target_index,
            SERVERS,
            snapshot.mount_path(target_index),
            mounted_for=mounted_for,
            lost=snapshot.lost_nodes,
            instance_name=instance_name_of(snapshot.directives[target_index]),
        )
        return Outcome(
            writes=[Create(kind=kinds.NNF_ACCESS, object=new_access)], waiting="pending mount"
        )
    is_until_teardown = access.metadata.labels.get(labels.TEARDOWN_STATE) == State.TEARDOWN
    if access.spec.desired_state != "mounted" or not is_until_teardown:
        remount = accessobjects.mount_again(access, *mounted_for, snapshot.lost_nodes)
        return Outcome(writes=[remount], waiting="pending mount")
    raise_for(access.status.error)
    return DONE if is_mounted(access) else Outcome(waiting="pending mount")


HANDLERS: Final[Mapping[tuple[State, str], Handler]] = {
    (State.PROPOSAL, "jobdw"): _propose,
    (State.PROPOSAL, "create_persistent"): _propose_instance,
    (State.PROPOSAL, "persistentdw"): _propose_use,
    (State.PROPOSAL, "destroy_persistent"): _validate,
    (State.PROPOSAL, "container"): _propose_container,
    (State.PROPOSAL, "copy_in"): _propose_copy,
    (State.PROPOSAL, "copy_out"): _propose_copy,
    (State.SETUP, "jobdw"): _set_up,
    (State.SETUP, "create_persistent"): _set_up_instance,
    (State.SETUP, "persistentdw"): _add_consumer,
    (State.SETUP, "container"): containersteps.set_up,
    (State.DATA_IN, "copy_in"): copysteps.copy,
    (State.PRE_RUN, "jobdw"): _mount,
    (State.PRE_RUN, "persistentdw"): _mount,
    (State.PRE_RUN, "container"): _start,
    (State.POST_RUN, "jobdw"): _unmount,
    (State.POST_RUN, "persistentdw"): _unmount,
    (State.POST_RUN, "container"): containersteps.finish,
    (State.DATA_OUT, "copy_out"): copysteps.copy_out,
    (State.TEARDOWN, "jobdw"): teardown.tear_down,
    (State.TEARDOWN, "create_persistent"): teardown.leave_behind,
    (State.TEARDOWN, "persistentdw"): teardown.release,
    (State.TEARDOWN, "destroy_persistent"): teardown.destroy,
    (State.TEARDOWN, "copy_in"): teardown.tear_down,
    (State.TEARDOWN, "copy_out"): teardown.tear_down,
    (State.TEARDOWN, "container"): teardown.stop,
}
