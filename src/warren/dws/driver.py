"""The work behind each state of a Workflow: what its directives ask for, and whether it is done.

`decide` takes everything that one pass looks at and gives the writes of that
pass. The table `WORK` says which piece of work a command means in a state;
a pair that is not there needs none.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from warren.base.objects import Change, Create, Key, Kind, Object, Remove, Write, merged
from warren.base.times import rfc3339_micro
from warren.directives.diagnostics import Mistake
from warren.directives.parse import Directive, parse
from warren.dws import (
    access,
    breakdown,
    kinds,
    labels,
    movement,
    servers,
    staging,
    storage,
    system,
    validation,
)
from warren.dws import (
    workflow as lifecycle,
)
from warren.dws.faults import STATUS, Fault, raise_for
from warren.dws.node import RawVolumes
from warren.dws.objects import (
    Computes,
    DirectiveBreakdown,
    DriverStatus,
    LustreFileSystem,
    NnfAccess,
    NnfDataMovement,
    NnfStorage,
    Servers,
    State,
    Storage,
    Workflow,
)


@dataclass(frozen=True, kw_only=True)
class Seen:
    """What a pass over one Workflow looks at. Children are by name, in the Workflow's namespace."""

    workflow: Workflow
    breakdowns: Mapping[str, DirectiveBreakdown]
    servers: Mapping[str, Servers]
    storages: Mapping[str, NnfStorage]
    accesses: Mapping[str, NnfAccess]
    movements: Sequence[NnfDataMovement]
    computes: Computes | None
    file_systems: Sequence[LustreFileSystem]
    rabbits: Mapping[str, Storage]
    """All of them: each is read when it is looked at."""
    belongings: Sequence[tuple[Kind, Key]]
    """Everything that is labelled as the Workflow's, of whatever kind."""
    mount_prefix: str
    """Where nodes mount; a Workflow's own place under it has its UID in its name."""
    now: float

    def child(self, index: int) -> str:
        """Return the name of the objects made for one directive."""
        return f"{self.workflow.metadata.name}-{index}"

    def mount_path(self, index: int) -> str:
        """Return where the storage of one directive is mounted, on computes as on rabbits."""
        return f"{self.mount_prefix}/{self.workflow.metadata.uid}-{index}"

    @property
    def directives(self) -> list[Directive]:
        return [parse(text) for text in self.workflow.spec.dw_directives]


@dataclass(frozen=True, kw_only=True)
class Step:
    """What one piece of work does now, and what it waits for; None when it is done."""

    writes: Sequence[Write] = ()
    waiting: str | None = None
    env: Mapping[str, str] | None = None


_DONE: Final = Step()

_GRAVE: Final = ("TransientCondition", "Error")


def wants_fresh(seen: Seen) -> bool:
    """Return whether this pass is about to say that nothing is left of the Workflow.

    What was seen of its children may be older than what was seen of itself, so
    that must be looked at afresh, or a child that was just made would be forgotten.
    """
    ending = seen.workflow.spec.desired_state is State.TEARDOWN or seen.workflow.metadata.deleting
    return ending and not (seen.storages or seen.accesses or seen.movements)


def blames(workflow: Workflow, writes: Sequence[Write]) -> bool:
    """Return whether a pass is about to say that something is wrong, and not only late.

    What was seen of others may be older than the Workflow, so that must be looked at afresh.
    """
    told = [
        write.patch.get("status", {}).get("status")
        for write in writes
        if isinstance(write, Change) and write.kind == kinds.WORKFLOW
    ]
    return any(status in _GRAVE and status != workflow.status.status for status in told)


def decide(seen: Seen) -> list[Write]:
    """Return the writes of one pass. The Workflow itself is written at most once."""
    workflow = seen.workflow
    if workflow.metadata.deleting:
        return _leave(seen)
    if workflow.spec.desired_state is State.PROPOSAL and _unprepared(seen):
        return _prepare(seen)
    patch = lifecycle.entered(workflow, seen.now)
    if patch is not None:
        return [_change(workflow, patch)]
    if workflow.status.ready:
        return []
    return _drive(seen)


# Entering and leaving


def _unprepared(seen: Seen) -> bool:
    workflow = seen.workflow
    return (
        labels.WORKFLOW_FINALIZER not in workflow.metadata.finalizers
        or workflow.status.computes is None
        or workflow.status.state is None
        or seen.computes is None
    )


def _prepare(seen: Seen) -> list[Write]:
    workflow = seen.workflow
    meta = workflow.metadata
    finalizers = {*meta.finalizers, labels.WORKFLOW_FINALIZER}
    reference = {"kind": "Computes", "name": meta.name, "namespace": meta.namespace}
    patch: Object = {
        "metadata": {"finalizers": sorted(finalizers)},
        "status": {"computes": reference},
    }
    entered = lifecycle.entered(workflow, seen.now) or {}
    computes: Object = {
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace,
            "labels": {
                **labels.of_workflow(workflow),
                **labels.of_owner(kinds.WORKFLOW, meta),
            },
            "ownerReferences": labels.controller(kinds.WORKFLOW, meta),
        },
        "data": [],
    }
    # The finalizer first: without it the Workflow may be gone before its Computes are made,
    # and nobody would ever remove them.
    return [
        _change(workflow, merged(patch, entered)),
        Create(kind=kinds.COMPUTES, object=computes),
    ]


def _leave(seen: Seen) -> list[Write]:
    """Take everything down that is the Workflow's; let go of it when nothing is left."""
    workflow = seen.workflow
    if labels.WORKFLOW_FINALIZER not in workflow.metadata.finalizers:
        return []
    steps = [_left(seen, index) for index in range(len(workflow.spec.dw_directives))]
    if any(step.waiting for step in steps):
        return _distinct(steps)
    if seen.belongings:
        return [Remove(kind=kind, key=key) for kind, key in seen.belongings]
    if set(workflow.metadata.finalizers) != {labels.WORKFLOW_FINALIZER}:
        return []  # ours is taken off last
    return [_change(workflow, labels.finalized(workflow.metadata, labels.WORKFLOW_FINALIZER))]


def _left(seen: Seen, index: int) -> Step:
    try:
        return _tear_down(seen, index, None)
    except Fault as fault:  # told to nobody any more
        return Step(waiting=fault.shown)


# Driving a state


def _drive(seen: Seen) -> list[Write]:
    workflow = seen.workflow
    directives = seen.directives
    steps: list[Step] = []
    env: dict[str, str] = {}
    drivers = []
    for driver in lifecycle.drivers_of(workflow):
        if driver.watch_state is workflow.status.state and not driver.completed:
            command = directives[driver.dwd_index].command.text
            work = WORK.get((driver.watch_state, command))
            driver, step = _attempt(seen, driver, directives[driver.dwd_index], work)
            steps.append(step)
            env.update(step.env or {})
        drivers.append(driver)
    status = lifecycle.concluded(workflow, drivers, seen.now)
    patch: dict[str, Any] = {"status": {**status, "drivers": _entries(workflow, drivers)}}
    if env:
        patch["status"]["env"] = env
    if workflow.status.state is State.PROPOSAL:
        patch["status"]["directiveBreakdowns"] = [
            {"kind": "DirectiveBreakdown", "name": name, "namespace": workflow.metadata.namespace}
            for name in sorted(seen.breakdowns)
        ]
    if _says_nothing_new(workflow, status, drivers):
        return _distinct(steps)
    return [*_distinct(steps), _change(workflow, patch)]


def _distinct(steps: Sequence[Step]) -> list[Write]:
    """Return the writes of all steps, without the removals that an earlier one has asked for."""
    asked: set[Remove] = set()
    writes: list[Write] = []
    for write in (write for step in steps for write in step.writes):
        if isinstance(write, Remove):
            if write in asked:
                continue
            asked.add(write)
        writes.append(write)
    return writes


Work = Callable[[Seen, int, Directive], Step]


def _attempt(
    seen: Seen, driver: DriverStatus, directive: Directive, work: Work | None
) -> tuple[DriverStatus, Step]:
    try:
        step = work(seen, driver.dwd_index, directive) if work else _DONE
    except Fault as fault:
        status = STATUS[fault.severity]
        return _entry(driver, status=status, message=fault.shown, error=fault.debug), _DONE
    if step.waiting is not None:
        return _entry(driver, status="Running", message=step.waiting, error=""), step
    done = _entry(driver, status="Completed", message="", error="")
    return (
        _entry(done, completed=True, complete_time=rfc3339_micro(seen.now)),
        step,
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
        seen=workflow.metadata.resource_version,
    )


# The pieces of work


def _propose(seen: Seen, index: int, directive: Directive) -> Step:
    _validate(seen, index, directive)
    found = seen.breakdowns.get(seen.child(index))
    if found is None:
        made = Create(kind=kinds.BREAKDOWN, object=breakdown.child(seen.workflow, index))
        return Step(writes=[made], waiting="status pending")
    raise_for(found.status.error)
    return _DONE if found.status.ready else Step(waiting="status pending")


def _validate(seen: Seen, index: int, directive: Directive) -> Step:
    try:
        wanted = any(each.values.get("type") == "raw" for each in seen.directives)
        validation.check(
            seen.directives,
            seen.file_systems,
            raw=system.raw_volumes(seen.rabbits.values()) if wanted else RawVolumes.FOR_USERS,
            userid=seen.workflow.spec.user_id,
        )
    except Mistake as mistake:
        raise Fault(str(mistake), type="User") from mistake
    return _DONE


def _set_up(seen: Seen, index: int, directive: Directive) -> Step:
    found = seen.storages.get(seen.child(index))
    if found is None:
        need = seen.breakdowns.get(seen.child(index))
        assigned = seen.servers.get(seen.child(index))
        if need is None or need.status.storage is None or assigned is None:
            return Step(waiting="waits for its DirectiveBreakdown and Servers")
        servers.check(need.status.storage.allocation_sets, assigned, seen.rabbits)
        made = storage.child(seen.workflow, index, need, assigned)
        return Step(
            writes=[Create(kind=kinds.NNF_STORAGE, object=made)],
            waiting="allocation set not ready",
        )
    raise_for(found.status.error)
    return _DONE if found.status.ready else Step(waiting="allocation set not ready")


def _mount(seen: Seen, index: int, directive: Directive) -> Step:
    # One NnfAccess mounts a node-local file system at a time: rabbits let go first.
    rabbits = _unmount_rabbits(seen, index)
    if rabbits is not None:
        return rabbits
    path = seen.mount_path(index)
    name = f"{seen.child(index)}-{access.COMPUTES}"
    found = seen.accesses.get(name)
    if found is None:
        made = access.child(seen.workflow, index, access.COMPUTES, path)
        return Step(writes=[Create(kind=kinds.NNF_ACCESS, object=made)], waiting="pending mount")
    raise_for(found.status.error)
    if not (found.status.ready and found.status.state == "mounted"):
        return Step(waiting="pending mount")
    return Step(env=_variables(seen))


def _variables(seen: Seen) -> dict[str, str]:
    """Return what names the job's storage to the job (dws-spec section 9)."""
    env: dict[str, str] = {}
    listed = []
    for name, index in staging.job_storage(seen.directives).items():
        path = seen.mount_path(index)
        env[f"DW_JOB_{name.replace('-', '_')}"] = path
        kind = seen.directives[index].values["type"].upper()
        env.setdefault(f"DW_JOB_{kind}", path)
        listed.append(f"{name}:{path}")
    env["DW_JOBS"] = ",".join(listed)
    return env


def _unmount(seen: Seen, index: int, directive: Directive) -> Step:
    found = seen.accesses.get(f"{seen.child(index)}-{access.COMPUTES}")
    if found is None:
        return _DONE
    if found.spec.desired_state != "unmounted":
        asked = Change(
            kind=kinds.NNF_ACCESS,
            key=found.metadata.key,
            patch={"spec": {"desiredState": "unmounted"}},
            seen=found.metadata.resource_version,
        )
        return Step(writes=[asked], waiting="pending unmount")
    raise_for(found.status.error)
    done = found.status.ready and found.status.state == "unmounted"
    return _DONE if done else Step(waiting="pending unmount")


def _copy(seen: Seen, index: int, directive: Directive) -> Step:
    key = "destination" if directive.command.text == "copy_in" else "source"
    name = staging.parse(directive.values[key]).storage or ""
    target = staging.job_storage(seen.directives).get(name)
    if target is None:  # Proposal was forced
        raise Fault(f"this job has no jobdw named {name!r}", type="User")
    found = seen.storages.get(seen.child(target))
    if found is None:
        raise Fault(f"the storage {name} is gone", severity="Major")
    mounted = seen.accesses.get(f"{seen.child(target)}-{access.SERVERS}")
    if mounted is None:
        made = access.child(seen.workflow, target, access.SERVERS, seen.mount_path(target))
        return Step(writes=[Create(kind=kinds.NNF_ACCESS, object=made)], waiting="pending mount")
    raise_for(mounted.status.error)
    if not (mounted.status.ready and mounted.status.state == "mounted"):
        return Step(waiting="pending mount")
    return _move(seen, index, directive, found, target)


def _move(seen: Seen, index: int, directive: Directive, found: NnfStorage, target: int) -> Step:
    present = {each.metadata.key: each for each in _movements(seen, index)}
    wanted = movement.children(
        seen.workflow, index, directive, found, seen.file_systems, seen.mount_path(target)
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
    last = failed is not None and seen.workflow.status.state is State.DATA_OUT
    awaited = seen.movements if last else present.values()
    left = [each for each in awaited if each.status.state != "Finished"]
    if failed is not None and not (last and (left or missing)):
        raise Fault(
            f"data movement operation failed during '{seen.workflow.status.state}', "
            f"message: {failed.metadata.namespace}: {failed.status.message}",
            type=failed.status.error.type if failed.status.error else "User",
        )
    if missing or left:
        return Step(writes=missing, waiting=f"{len(left) + len(missing)} data movements to finish")
    return _DONE


def _movements(seen: Seen, index: int) -> list[NnfDataMovement]:
    own = str(index)
    return [
        each for each in seen.movements if each.metadata.labels.get(labels.DIRECTIVE_INDEX) == own
    ]


def _tear_down(seen: Seen, index: int, directive: Directive | None) -> Step:
    """Remove what was made for a directive: copies, then mounts, then storage.

    Raises Fault where a node says what is in the way.
    """
    if seen.movements:
        # Of every directive: a copy of another one may be at work in this storage.
        return _removing(
            kinds.NNF_DATA_MOVEMENT,
            {each.metadata.key: each.metadata.deleting for each in seen.movements},
        )
    names = [f"{seen.child(index)}-{who}" for who in (access.COMPUTES, access.SERVERS)]
    mounted = [each for name, each in seen.accesses.items() if name in names]
    if mounted:
        return _giving_up(kinds.NNF_ACCESS, mounted)
    found = seen.storages.get(seen.child(index))
    return _DONE if found is None else _giving_up(kinds.NNF_STORAGE, [found])


def _unmount_rabbits(seen: Seen, index: int) -> Step | None:
    found = seen.accesses.get(f"{seen.child(index)}-{access.SERVERS}")
    if found is None:
        return None
    return _giving_up(kinds.NNF_ACCESS, [found])


def _giving_up(kind: Kind, objects: Sequence[NnfAccess | NnfStorage]) -> Step:
    """Have objects removed that nodes have to let go of. Raises Fault where one cannot."""
    step = _removing(kind, {each.metadata.key: each.metadata.deleting for each in objects})
    if not step.writes:
        for each in objects:
            raise_for(each.status.error)
    return step


def _removing(kind: Kind, objects: Mapping[Key, bool]) -> Step:
    return Step(
        writes=[Remove(kind=kind, key=key) for key, deleting in objects.items() if not deleting],
        waiting="delete",
    )


WORK: Final[Mapping[tuple[State, str], Work]] = {
    (State.PROPOSAL, "jobdw"): _propose,
    (State.PROPOSAL, "copy_in"): _validate,
    (State.PROPOSAL, "copy_out"): _validate,
    (State.SETUP, "jobdw"): _set_up,
    (State.DATA_IN, "copy_in"): _copy,
    (State.PRE_RUN, "jobdw"): _mount,
    (State.POST_RUN, "jobdw"): _unmount,
    (State.DATA_OUT, "copy_out"): _copy,
    (State.TEARDOWN, "jobdw"): _tear_down,
    (State.TEARDOWN, "copy_in"): _tear_down,
    (State.TEARDOWN, "copy_out"): _tear_down,
}
