"""The work behind each state of a Workflow: what its directives ask for, and whether it is done.

`decide` takes a snapshot of the Workflow and its children, and returns what to write. The
table `HANDLERS` says what handles a command in a state; a pair that is not there needs nothing.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import msgspec

from warren.base.objects import Change, Create, Key, Kind, Object, Remove, Write, merged
from warren.base.times import rfc3339_micro
from warren.base.words import plural
from warren.directives.parse import Directive
from warren.dws import (
    access,
    breakdown,
    children,
    containerauth,
    containerlife,
    copyprofiles,
    kinds,
    labels,
    location,
    locks,
    movement,
    nodelocal,
    offloadlife,
    persistent,
    reports,
    servers,
    sharing,
    staging,
    storage,
    tolerance,
    workflowstates,
)
from warren.dws.faults import STATUS, Fault, raise_for
from warren.dws.objects import (
    DriverStatus,
    NnfAccess,
    NnfDataMovement,
    NnfStorage,
    State,
    Workflow,
)
from warren.dws.persistent import Instance
from warren.dws.workflowsnapshot import DONE, Outcome, WorkflowSnapshot

_GRAVE: Final = ("TransientCondition", "Error")


def needs_live_read(snapshot: WorkflowSnapshot) -> bool:
    """Return whether `decide` is about to say that nothing is left, of the Workflow or to copy.

    What was seen of its children may be older than what was seen of itself, so
    that must be read from the API, or a child that was just made would be forgotten.
    """
    workflow = snapshot.workflow
    left = snapshot.storages or snapshot.accesses or snapshot.movements or snapshot.jobs
    if workflow.metadata.deleting:
        return not left and not snapshot.dependents
    if offloadlife.is_last_look(snapshot):
        return True
    said = workflow.status.state is State.TEARDOWN and workflow.status.ready
    return workflow.spec.desired_state is State.TEARDOWN and not left and not said


def reports_error(workflow: Workflow, writes: Sequence[Write]) -> bool:
    """Return whether writes say that something is wrong, and not only late.

    What was seen of others may be older than the Workflow, so that must be read from the API.
    """
    errors = [
        write.patch.get("status", {}).get("status")
        for write in writes
        if isinstance(write, Change) and write.kind == kinds.WORKFLOW
    ]
    return any(status in _GRAVE and status != workflow.status.status for status in errors)


def decide(snapshot: WorkflowSnapshot) -> list[Write]:
    """Return what to write. The Workflow itself is written at most once."""
    workflow = snapshot.workflow
    if workflow.metadata.deleting:
        return _leave(snapshot)
    if workflow.spec.desired_state is State.PROPOSAL and _unprepared(snapshot):
        return _prepare(snapshot)
    entered = workflowstates.entered(workflow, snapshot.now)
    if entered is not None:
        # In one write with what is found in the new state: each write wakes all that watch.
        return _drive(replace(snapshot, workflow=workflowstates.within(workflow, entered)), entered)
    return [] if workflow.status.ready else _drive(snapshot)


# Entering and leaving


def _unprepared(snapshot: WorkflowSnapshot) -> bool:
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
    entered = workflowstates.entered(workflow, snapshot.now) or {}
    computes: Object = {
        "metadata": children.metadata(workflow, meta.name),
        "data": [],
    }
    # The finalizer first: without it the Workflow may be gone before its Computes are made,
    # and nothing would ever remove them.
    return [
        _change(workflow, merged(patch, entered)),
        Create(kind=kinds.COMPUTES, object=computes),
    ]


def _leave(snapshot: WorkflowSnapshot) -> list[Write]:
    """Take everything down that is the Workflow's; let go of it when nothing is left."""
    workflow = snapshot.workflow
    if labels.WORKFLOW_FINALIZER not in workflow.metadata.finalizers:
        return []
    outcomes = [_left(snapshot, index) for index in range(len(workflow.spec.dw_directives))]
    writes = _distinct(outcomes)
    if any(outcome.waiting for outcome in outcomes):
        return writes
    if snapshot.dependents:
        return [*writes, *(Remove(kind=kind, key=key) for kind, key in snapshot.dependents)]
    if set(workflow.metadata.finalizers) != {labels.WORKFLOW_FINALIZER}:
        return writes  # ours is taken off last
    finalizer = labels.WORKFLOW_FINALIZER
    return [*writes, reports.finalized(kinds.WORKFLOW, workflow.metadata, finalizer)]


def _left(snapshot: WorkflowSnapshot, index: int) -> Outcome:
    try:
        return _release(snapshot, index, None)
    except Fault as fault:  # shown to no user any more
        return Outcome(waiting=fault.shown)


# Driving a state


def _drive(snapshot: WorkflowSnapshot, entered: Object | None = None) -> list[Write]:
    """Do the work of the Workflow's state, which the change `entered`, if any, takes up."""
    workflow = snapshot.workflow
    directives = snapshot.directives
    outcomes: list[Outcome] = []
    env: dict[str, str] = {}
    drivers = []
    for driver in workflowstates.drivers_of(workflow):
        if driver.watch_state is workflow.status.state and not driver.completed:
            command = directives[driver.dwd_index].command.text
            handler = HANDLERS.get((driver.watch_state, command))
            driver, outcome = _attempt(snapshot, driver, directives[driver.dwd_index], handler)
            outcomes.append(outcome)
            env.update(outcome.env or {})
        drivers.append(driver)
    if workflow.spec.force_ready and workflow.status.state is State.PRE_RUN:
        env.update(_variables(snapshot))
    status = workflowstates.concluded(workflow, drivers, snapshot.now)
    patch: dict[str, Any] = {"status": {**status, "drivers": _entries(workflow, drivers)}}
    if env:
        patch["status"]["env"] = env
    patch["status"] |= containerauth.told(workflow, directives, snapshot.token)
    if workflow.status.state is State.PROPOSAL:
        patch["status"]["directiveBreakdowns"] = [
            {"kind": "DirectiveBreakdown", "name": name, "namespace": workflow.metadata.namespace}
            for name in sorted(snapshot.breakdowns)
        ]
    writes = _distinct(outcomes)
    if entered is None:
        silent = _says_nothing_new(workflow, status, drivers)
        return writes if silent else [*writes, _change(workflow, patch)]
    # First, so that the time of a state also goes by where its work cannot be asked for; but
    # nothing is called done before it is.
    change = _change(workflow, merged(entered, patch))
    awaited = all(outcome.waiting is not None for outcome in outcomes if outcome.writes)
    return [change, *writes] if awaited else [*writes, change]


def _distinct(outcomes: Sequence[Outcome]) -> list[Write]:
    """Return the writes of all steps, without the removals that an earlier one has asked for."""
    asked: set[Remove] = set()
    writes: list[Write] = []
    for write in (write for outcome in outcomes for write in outcome.writes):
        if isinstance(write, Remove):
            if write in asked:
                continue
            asked.add(write)
        writes.append(write)
    return writes


Handler = Callable[[WorkflowSnapshot, int, Directive], Outcome]


def _attempt(
    snapshot: WorkflowSnapshot, driver: DriverStatus, directive: Directive, handler: Handler | None
) -> tuple[DriverStatus, Outcome]:
    try:
        outcome = handler(snapshot, driver.dwd_index, directive) if handler else DONE
    except Fault as fault:
        status = STATUS[fault.severity]
        return _entry(driver, status=status, message=fault.shown, error=fault.debug), DONE
    if outcome.waiting is not None:
        return _entry(driver, status="Running", message=outcome.waiting, error=""), outcome
    done = _entry(driver, status="Completed", message="", error="")
    return (
        _entry(done, completed=True, complete_time=rfc3339_micro(snapshot.now)),
        outcome,
    )


def _entry(driver: DriverStatus, **changes: Any) -> DriverStatus:
    return msgspec.structs.replace(driver, **changes)


def _entries(workflow: Workflow, drivers: Sequence[DriverStatus]) -> list[Object]:
    """Write the entries back, with the fields that are not known here."""
    written: list[Object] = []
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
        written.append(entry)
    return written


def _says_nothing_new(
    workflow: Workflow, status: Mapping[str, Any], drivers: Sequence[DriverStatus]
) -> bool:
    known = workflow.status
    return (
        not status["ready"]
        and status["status"] == known.status
        and status["message"] == known.message
        and _entries(workflow, drivers) == list(known.drivers)
    )


def _change(workflow: Workflow, patch: Object) -> Change:
    return Change(
        kind=kinds.WORKFLOW,
        key=workflow.metadata.key,
        patch=patch,
        resource_version=workflow.metadata.resource_version,
    )


# The handlers


def _propose(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    _validate(snapshot, index, directive)
    found = snapshot.breakdowns.get(snapshot.child(index))
    if found is None:
        made = Create(kind=kinds.BREAKDOWN, object=breakdown.child(snapshot.workflow, index))
        return Outcome(writes=[made], waiting="status pending")
    raise_for(found.status.error)
    return DONE if found.status.ready else Outcome(waiting="status pending")


def _validate(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    mistake = snapshot.mistakes.get(index)
    if mistake is not None:
        raise Fault(str(mistake), type="User") from mistake
    return DONE


def _set_up(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    token = offloadlife.set_up(snapshot)
    if token is not DONE:
        return token
    found = snapshot.storages.get(snapshot.child(index))
    if found is None:
        need = snapshot.breakdowns.get(snapshot.child(index))
        assigned = snapshot.servers.get(snapshot.child(index))
        if need is None or need.status.storage is None or assigned is None:
            return Outcome(waiting="waits for its DirectiveBreakdown and Servers")
        sets = need.status.storage.allocation_sets
        where = location.localities({need.status.storage.reference.name: sets}, [need])
        servers.check(sets, assigned, snapshot.rabbits, _placed(snapshot), where)
        made = storage.child(
            children.of_directive(snapshot.workflow, index),
            snapshot.child(index),
            need.status.storage.allocation_sets[0].label,
            assigned,
        )
        return Outcome(
            writes=[Create(kind=kinds.NNF_STORAGE, object=made)],
            waiting="allocation set not ready",
        )
    raise_for(found.status.error)
    return DONE if found.status.ready else Outcome(waiting="allocation set not ready")


def _set_up_instance(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Make the storage of an instance, which owns it: what is made here outlives the Workflow."""
    name = directive.values["name"]
    found = _usable(snapshot, name)
    raise_for(found.object.status.error)
    if found.storage is None:
        need = snapshot.breakdowns.get(snapshot.child(index))
        own = found.servers is not None and found.has(found.servers.metadata)
        if need is None or need.status.storage is None or found.servers is None or not own:
            return Outcome(waiting="waits for its DirectiveBreakdown and Servers")
        if not persistent.made_by(found.object, need):
            return Outcome(waiting="waits for the job that creates the same")
        servers.check(need.status.storage.allocation_sets, found.servers, snapshot.rabbits)
        made = storage.child(
            persistent.owner(found.object, children.of_directive(snapshot.workflow, index)),
            name,
            need.status.storage.allocation_sets[0].label,
            found.servers,
        )
        return Outcome(
            writes=[Create(kind=kinds.NNF_STORAGE, object=made)],
            waiting="allocation set not ready",
        )
    done = found.object.status.state in persistent.USABLE
    return DONE if done else Outcome(waiting="allocation set not ready")


def _propose_instance(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    found = snapshot.instances.get(directive.values["name"])
    if found is not None:
        persistent.demand_shared(found.object, snapshot.workflow, snapshot.groups)
        raise_for(found.object.status.error)  # nothing comes of it, and its breakdown would wait
    return _propose(snapshot, index, directive)


def _usable(snapshot: WorkflowSnapshot, name: str) -> Instance:
    """Return an instance that the Workflow's user may use. Raises Fault."""
    found = snapshot.instances.get(name)
    return persistent.found(found, name, snapshot.workflow, snapshot.groups, snapshot.now)


def _propose_use(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    name = directive.values["name"]
    _usable(snapshot, name)
    return _propose(snapshot, index, directive)


def _claim(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Enter the Workflow into the instance, which cannot be destroyed from then on."""
    token = offloadlife.set_up(snapshot)
    if token is not DONE:
        return token
    name = directive.values["name"]
    found = _usable(snapshot, name)
    claim = persistent.claimed(found.object, persistent.consumer(snapshot.workflow, index))
    if claim is not None:
        return Outcome(writes=[claim], waiting="waits to be a user of the persistent storage")
    ready = found.storage is not None and found.storage.status.ready
    return DONE if ready else Outcome(waiting="allocation set not ready")


def _placed(snapshot: WorkflowSnapshot) -> Mapping[str, int]:
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
        rest = len(unknown) - _NAMED
        more = f" and {rest} more" if rest > 0 else ""
        raise Fault(
            f"Computes {snapshot.computes.metadata.name} names nodes that are not in the "
            f"SystemConfiguration: {', '.join(unknown[:_NAMED])}{more}",
            type="WLM",
        )


_NAMED: Final = 10
"""How many of many nodes a message names."""


def _mount(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    offloads = offloadlife.targets(snapshot)
    if index not in (*offloads, *containerlife.all_targets(snapshot)):
        # One NnfAccess mounts a node-local file system at a time: rabbits let go first.
        rabbits = _unmounted(snapshot.accesses.get(f"{snapshot.child(index)}-{access.SERVERS}"))
        if rabbits is not DONE:
            return rabbits
    path = snapshot.mount_path(index)
    name = f"{snapshot.child(index)}-{access.COMPUTES}"
    found = snapshot.accesses.get(name)
    if found is None:
        _check_computes(snapshot)
        if not _is_its_turn(snapshot, index, range(len(snapshot.directives)), access.COMPUTES):
            return Outcome(waiting="pending mount")
        made = access.child(
            snapshot.workflow, index, access.COMPUTES, path, **_lasting(snapshot, directive)
        )
        return Outcome(writes=[Create(kind=kinds.NNF_ACCESS, object=made)], waiting="pending mount")
    raise_for(found.status.error)
    if not _is_mounted(found):
        return Outcome(waiting="pending mount")
    served = _served(snapshot, index, offloads) if index in offloads else DONE
    if served is not DONE:
        return served
    return Outcome(env={**_variables(snapshot), **offloadlife.variables(snapshot)})


def _is_mounted(found: NnfAccess | None) -> bool:
    return found is not None and found.status.ready and found.status.state == "mounted"


def _is_its_turn(
    snapshot: WorkflowSnapshot, index: int, indexes: Iterable[int], clients: str
) -> bool:
    """Return whether the storage of `index` may be mounted: that with earlier names is mounted.

    Others wait for persistent storage that is mounted. All take it in one order, so that no two
    wait for each other. `indexes` are those of all directives whose storage is mounted now.
    """
    names = {each: _instance_of(snapshot.directives[each]) for each in (*indexes, index)}
    own = names[index]
    return own is None or all(
        _is_mounted(snapshot.accesses.get(f"{snapshot.child(each)}-{clients}"))
        for each, name in names.items()
        if name is not None and name < own
    )


def _variables(snapshot: WorkflowSnapshot) -> dict[str, str]:
    """Return what names the job's storage to the job (dws-spec section 9)."""
    env: dict[str, str] = {}
    listed: dict[str, list[str]] = {}
    for index, directive in enumerate(snapshot.directives):
        name, path = directive.values.get("name", ""), snapshot.mount_path(index)
        lifetime = _LIFETIMES.get(directive.command.text)
        if lifetime is None:
            continue
        env[f"DW_{lifetime}_{name.replace('-', '_')}"] = path
        listed.setdefault(f"DW_{lifetime}S", []).append(f"{name}:{path}")
        if "type" in directive.values:
            # HPE's controllers make `DW_PERSISTENT_` of the type that a persistentdw does not have.
            env.setdefault(f"DW_{lifetime}_{directive.values['type'].upper()}", path)
    return {**env, **{name: ",".join(places) for name, places in listed.items()}}


_LIFETIMES: Final = {"jobdw": "JOB", "persistentdw": "PERSISTENT"}


def _instance_of(directive: Directive) -> str | None:
    """Return the name of the instance whose storage a directive uses; None for the job's own."""
    return directive.values["name"] if directive.command.text == "persistentdw" else None


def _lasting(snapshot: WorkflowSnapshot, directive: Directive) -> dict[str, Any]:
    """Return what an access is told of the instance whose storage a directive uses, if any."""
    name = _instance_of(directive)
    found = snapshot.instances.get(name) if name is not None else None
    return {
        "persistent": name,
        "shared": sharing.of(found.object.metadata.annotations) if found is not None else None,
    }


def _unmount(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    found = snapshot.accesses.get(f"{snapshot.child(index)}-{access.COMPUTES}")
    outcome = _unmounted(found, snapshot.lost)
    return outcome if outcome is not DONE else offloadlife.finish(snapshot)


def _unmounted(found: NnfAccess | None, lost: Collection[str] = ()) -> Outcome:
    """Have the nodes of an access unmount; done when they have, or there is none."""
    if found is None:
        return DONE
    if found.spec.desired_state != "unmounted":
        return Outcome(writes=[access.unmounted(found, lost)], waiting="pending unmount")
    raise_for(found.status.error)
    done = found.status.ready and found.status.state == "unmounted"
    return DONE if done else Outcome(waiting="pending unmount")


def _propose_copy(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    outcome = _validate(snapshot, index, directive)
    path = staging.parse(directive.values[staging.OWN_END[directive.command.text]])
    instance = snapshot.instances.get(path.storage or "") if path.lifetime != "job" else None
    if instance is not None and instance.object.spec.fs_type == "raw":
        raise Fault("data movement can not be used with raw allocations", type="User")
    return copyprofiles.pin(snapshot, index, directive) if outcome is DONE else outcome


def _propose_container(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    _validate(snapshot, index, directive)
    return containerlife.pin(snapshot, index, directive)


def _copy(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    target = _target(snapshot, directive)
    found = _storage_of(snapshot, target)
    mounted = snapshot.accesses.get(f"{snapshot.child(target)}-{access.SERVERS}")
    if mounted is None or mounted.spec.desired_state != "mounted":
        return Outcome(writes=_mounting(snapshot, index, target, mounted), waiting="pending mount")
    raise_for(mounted.status.error)
    if not _is_mounted(mounted):
        return Outcome(waiting="pending mount")
    return _move(snapshot, index, directive, found, target)


def _start(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Have rabbits mount what a directive's containers use, and start those."""
    targets = containerlife.targets(snapshot, directive)
    served = [_served(snapshot, target, targets) for target in targets]
    waiting = next((each for each in served if each is not DONE), None)
    if waiting is not None:
        return Outcome(writes=[w for each in served for w in each.writes], waiting=waiting.waiting)
    return containerlife.start(snapshot, index, directive)


def _served(snapshot: WorkflowSnapshot, target: int, targets: Sequence[int]) -> Outcome:
    """Have rabbits mount the storage of the directive `target` until Teardown."""
    found = snapshot.accesses.get(f"{snapshot.child(target)}-{access.SERVERS}")
    copy = (target, "container")
    if found is None:
        if not _is_its_turn(snapshot, target, targets, access.SERVERS):
            return Outcome(waiting="pending mount")
        made = access.child(
            snapshot.workflow,
            target,
            access.SERVERS,
            snapshot.mount_path(target),
            copy=copy,
            lost=snapshot.lost,
            **_lasting(snapshot, snapshot.directives[target]),
        )
        return Outcome(writes=[Create(kind=kinds.NNF_ACCESS, object=made)], waiting="pending mount")
    is_kept = found.metadata.labels.get(labels.TEARDOWN_STATE) == State.TEARDOWN
    if found.spec.desired_state != "mounted" or not is_kept:
        again = access.mounted_again(found, *copy, snapshot.lost)
        return Outcome(writes=[again], waiting="pending mount")
    raise_for(found.status.error)
    return DONE if _is_mounted(found) else Outcome(waiting="pending mount")


def _target(snapshot: WorkflowSnapshot, directive: Directive) -> int:
    """Return the index of the directive to or from whose storage another one copies."""
    path = staging.parse(directive.values[staging.OWN_END[directive.command.text]])
    target = staging.storage_named(snapshot.directives).get((path.lifetime, path.storage or ""))
    if target is None:  # Proposal was forced
        command = "persistentdw" if path.lifetime == "persistent" else "jobdw"
        raise Fault(f"this job has no {command} named {path.storage or ''!r}", type="User")
    return target


def _storage_of(snapshot: WorkflowSnapshot, index: int) -> NnfStorage:
    """Return the storage of a directive. Raises Fault where it is gone."""
    name = _instance_of(snapshot.directives[index])
    instance = snapshot.instances.get(name) if name is not None else None
    found = instance.storage if instance else snapshot.storages.get(snapshot.child(index))
    if found is None:
        name = snapshot.directives[index].values.get("name")
        raise Fault(f"the storage {name} is gone", severity="Major")
    return found


def _mounting(
    snapshot: WorkflowSnapshot, index: int, target: int, found: NnfAccess | None
) -> list[Write]:
    """Have rabbits mount the storage of the directive `target` for the copy at `index`."""
    command = snapshot.directives[index].command.text
    targets = {
        number: _target(snapshot, each)
        for number, each in enumerate(snapshot.directives)
        if each.command.text == command
    }
    if not _is_its_turn(snapshot, target, targets.values(), access.SERVERS):
        return []
    if found is not None:
        # By the first copy alone of those that need it: all see the same version.
        first = min(number for number, each in targets.items() if each == target)
        again = access.mounted_again(found, index, command, snapshot.lost)
        return [again] if index == first else []
    made = access.child(
        snapshot.workflow,
        target,
        access.SERVERS,
        snapshot.mount_path(target),
        copy=(index, command),
        lost=snapshot.lost,
        **_lasting(snapshot, snapshot.directives[target]),
    )
    return [Create(kind=kinds.NNF_ACCESS, object=made)]


def _parts(snapshot: WorkflowSnapshot, target: int) -> Mapping[str, Sequence[int]] | None:
    """Return which allocations are for the job's nodes, without those it has lost; None for all."""
    wiring, lost = snapshot.wiring or {}, snapshot.lost
    if _instance_of(snapshot.directives[target]) is None:
        if not lost or _storage_of(snapshot, target).spec.file_system_type not in locks.EXCLUSIVE:
            return None
        return tolerance.kept(snapshot.computes, wiring, lost)
    data = snapshot.computes.data if snapshot.computes else ()
    nodes = [node.name for node in data if node.name not in lost]
    return nodelocal.parts(nodes, wiring, snapshot.places)


def _move(
    snapshot: WorkflowSnapshot, index: int, directive: Directive, found: NnfStorage, target: int
) -> Outcome:
    present = {each.metadata.key: each for each in _movements(snapshot, index)}
    wanted = movement.children(
        snapshot.workflow,
        index,
        directive,
        found,
        snapshot.file_systems,
        snapshot.mount_path(target),
        _parts(snapshot, target),
        copyprofiles.own(snapshot, index, directive),
    )
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
    # Before a failed copy_out has everything torn down, all others save what they can.
    last = failed is not None and snapshot.workflow.status.state is State.DATA_OUT
    awaited = snapshot.movements if last else present.values()
    left = [each for each in awaited if each.status.state != "Finished"]
    if failed is not None and not (last and (left or missing)):
        raise Fault(
            f"data movement operation failed during '{snapshot.workflow.status.state}', "
            f"message: {failed.metadata.namespace}: {failed.status.message}",
            type=failed.status.error.type if failed.status.error else "User",
        )
    if missing or left:
        return Outcome(
            writes=missing, waiting=f"{len(left) + len(missing)} data movements to finish"
        )
    return DONE


def _movements(snapshot: WorkflowSnapshot, index: int) -> list[NnfDataMovement]:
    own = str(index)
    return [
        each
        for each in snapshot.movements
        if each.metadata.labels.get(labels.DIRECTIVE_INDEX) == own
    ]


def _tear_down(snapshot: WorkflowSnapshot, index: int, directive: Directive | None) -> Outcome:
    """Remove what was made for a directive: copies, then mounts, then storage.

    Raises Fault where a node says what is in the way.
    """
    if snapshot.movements:
        # Of every directive: a copy of another one may be at work in this storage.
        return _removing(
            kinds.NNF_DATA_MOVEMENT,
            {each.metadata.key: each.metadata.deleting for each in snapshot.movements},
        )
    if snapshot.jobs:
        # Nothing is unmounted under a container; a job goes after its pods.
        found_jobs = {each.metadata.key: each.metadata.deleting for each in snapshot.jobs.values()}
        return _removing(kinds.JOB, found_jobs)
    names = [f"{snapshot.child(index)}-{who}" for who in (access.COMPUTES, access.SERVERS)]
    mounted = [each for name, each in snapshot.accesses.items() if name in names]
    if mounted:
        return _giving_up(kinds.NNF_ACCESS, mounted)
    found = snapshot.storages.get(snapshot.child(index))
    return DONE if found is None else _giving_up(kinds.NNF_STORAGE, [found])


def _release(snapshot: WorkflowSnapshot, index: int, directive: Directive | None) -> Outcome:
    """Unmount, then let go of persistent storage: it may be destroyed from then on."""
    outcome = _tear_down(snapshot, index, directive)
    if outcome.waiting is not None:
        return outcome
    own = persistent.consumer(snapshot.workflow, index)
    # No news of it would come here: it is written before what depends on it, and not waited for.
    return Outcome(
        writes=[
            persistent.without(each.object, [own])
            for each in snapshot.instances.values()
            if own in each.object.spec.consumer_references
        ]
    )


def _stop(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Remove containers, and then give their ports back."""
    outcome = _tear_down(snapshot, index, directive)
    return outcome if outcome.waiting is not None else containerlife.free_ports(snapshot)


def _leave_behind(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    """Let an instance live on its own, if it has become one; else it goes."""
    found = snapshot.instances.get(directive.values["name"])
    made_by = snapshot.breakdowns.get(snapshot.child(index))
    if found is None or not persistent.made_by(found.object, made_by):
        return DONE
    complete = all(
        driver.completed
        for driver in workflowstates.drivers_of(snapshot.workflow)
        if driver.dwd_index == index and driver.watch_state is not State.TEARDOWN
    )
    if complete and not found.going:
        return Outcome(writes=[persistent.disowned(found.object)])
    return _destroying(found, [Remove(kind=kinds.PERSISTENT, key=found.key)])


def _destroy(snapshot: WorkflowSnapshot, index: int, directive: Directive) -> Outcome:
    found = snapshot.instances.get(directive.values["name"])
    if found is None:
        return DONE
    return _destroying(found, persistent.destroyed(found.object, snapshot.workflow))


def _destroying(found: Instance, writes: Sequence[Write]) -> Outcome:
    if not found.object.metadata.deleting:
        return Outcome(writes=writes, waiting="delete")
    raise_for(found.object.status.error)
    users = len(found.object.spec.consumer_references)
    return Outcome(waiting=f"delete, once {plural(users, 'user')} let go" if users else "delete")


def _giving_up(kind: Kind, objects: Sequence[NnfAccess | NnfStorage]) -> Outcome:
    """Have objects removed that nodes have to let go of. Raises Fault where one cannot."""
    outcome = _removing(kind, {each.metadata.key: each.metadata.deleting for each in objects})
    if not outcome.writes:
        for each in objects:
            raise_for(each.status.error)
    return outcome


def _removing(kind: Kind, objects: Mapping[Key, bool]) -> Outcome:
    return Outcome(
        writes=[Remove(kind=kind, key=key) for key, deleting in objects.items() if not deleting],
        waiting="delete",
    )


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
    (State.SETUP, "persistentdw"): _claim,
    (State.SETUP, "container"): containerlife.set_up,
    (State.DATA_IN, "copy_in"): _copy,
    (State.PRE_RUN, "jobdw"): _mount,
    (State.PRE_RUN, "persistentdw"): _mount,
    (State.PRE_RUN, "container"): _start,
    (State.POST_RUN, "jobdw"): _unmount,
    (State.POST_RUN, "persistentdw"): _unmount,
    (State.POST_RUN, "container"): containerlife.finish,
    (State.DATA_OUT, "copy_out"): _copy,
    (State.TEARDOWN, "jobdw"): _tear_down,
    (State.TEARDOWN, "create_persistent"): _leave_behind,
    (State.TEARDOWN, "persistentdw"): _release,
    (State.TEARDOWN, "destroy_persistent"): _destroy,
    (State.TEARDOWN, "copy_in"): _tear_down,
    (State.TEARDOWN, "copy_out"): _tear_down,
    (State.TEARDOWN, "container"): _stop,
}
