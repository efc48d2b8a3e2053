"""What the workload manager's side does for one job and its Workflow.

The present state of both decides, whatever woke us: a conductor that was away
takes up each job where it is. Every action may be repeated.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final

from warren.base.objects import Change, Create, Key, Object, Remove, Write
from warren.base.placing import Held, Locality
from warren.dws import (
    abort,
    alerts,
    daemons,
    expiry,
    kinds,
    labels,
    location,
    nodelocal,
    persistent,
    placement,
    reports,
    resources,
    timeouts,
    tolerance,
    waits,
)
from warren.dws.binding import Binding, Phase
from warren.dws.breakdown import PER_COMPUTE, PERSISTENT
from warren.dws.faults import Fault
from warren.dws.objects import (
    AllocationNeed,
    Computes,
    DirectiveBreakdown,
    PersistentStorageInstance,
    Servers,
    State,
    Storage,
    SystemConfiguration,
    Workflow,
)
from warren.dws.timeouts import NO_TIMEOUTS, Timeouts
from warren.dws.workflowstates import ADVANCE, drivers_of
from warren.rfc import hostlist


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job, as any workload manager can tell of it."""

    id: int
    phase: Phase
    binding: Binding
    userid: int = 0
    groupid: int = 0
    label: str = ""
    """How the workload manager spells the id."""
    directives: tuple[str, ...] = ()
    expires: float | None = None
    """When the persistent storage that it creates expires; None where it does not say."""
    tolerance: int = 0
    """How many nodes it may lose to failing storage."""
    lost: frozenset[str] = frozenset()
    """The nodes of which it was told that it has lost them."""
    alerts: tuple[str, ...] = ()
    """What it was told of its rabbits, in order."""
    resources: Sequence[Mapping[str, Any]] = ()
    nodes: tuple[str, ...] = ()
    """Host names, once there are some."""
    ran: bool = False
    """Whether its tasks were started."""
    failed: bool = False
    """Whether it has met a fatal exception."""
    abandoned: bool = False
    """Whether it met one while it was ending: what is left to do for it is not to be done."""
    warned: bool = False
    """Whether it has met any exception, fatal or not, while it was ending."""

    @property
    def workflow(self) -> Key:
        return self.binding.workflow(self.id)


@dataclass(frozen=True, kw_only=True)
class JobSnapshot:
    """A job, its Workflow and what belongs to that. Breakdowns and Servers are by name."""

    job: Job
    workflow: Workflow | None
    raw: Object | None = None
    """The Workflow with all its fields, for the record."""
    breakdowns: Mapping[str, DirectiveBreakdown]
    servers: Mapping[str, Servers]
    used: Mapping[Key, Servers] = field(default_factory=dict)
    """The Servers of storage that outlives jobs, of which `nodelocal.referred` tells."""
    instances: Mapping[Key, PersistentStorageInstance] = field(default_factory=dict)
    """The persistent storage that the job makes, of which `made` tells, by its Servers."""
    computes: Computes | None
    configuration: SystemConfiguration | None
    mounted: Collection[str] = ()
    """The job's nodes that have not let go of its storage."""
    unmounted: Collection[str] = ()
    """Those that have not mounted all of it; looked up where the job may lose some."""
    floor: int
    """The least size of one allocation, in bytes."""
    largest: int | None = None
    """How many GiB the largest rabbit has, where that is known."""
    policy: placement.Policy = placement.NO_POLICY
    daemons: Collection[str] | None = None
    """Those that the workload manager can enable for jobs, where that is known."""
    flash: Sequence[Held] = ()
    """The flash that the job's R holds; looked up where `needs_flash` says so."""
    aborted: bool = False
    """Whether the job was let go before its storage; looked up where `asks_for_abort` says so."""
    storages: Mapping[str, Storage] = field(default_factory=dict)
    """The rabbits that hold the job's flash, where it was; and those of a running job."""
    transient: float | None = None
    """For how many seconds the Workflow has been in TransientCondition, or in Error."""
    drains: bool = True
    """Whether nodes that a job loses are drained."""
    timeouts: Timeouts = NO_TIMEOUTS
    moved: float | None = None
    """When copies of the job last went on, where that matters."""
    kept_movements: int = 0
    """How many copies are kept with the record of a job; 0 for none."""
    movements: Sequence[Object] = ()
    """The job's copies, where some are kept and it is ending."""
    now: float
    """Seconds since the epoch."""


@dataclass(frozen=True)
class Release:
    """Let the scheduler have the job, with these resources."""

    resources: Sequence[Mapping[str, Any]]
    constraints: Mapping[str, Any] = field(default_factory=dict)
    """What their flash demands of rabbits (`dws.resources`)."""
    nodes: tuple[str, ...] | None = None
    """The nodes that it may have; None for all."""
    daemons: tuple[str, ...] = ()
    """The daemons that are to be enabled for it."""


@dataclass(frozen=True)
class Start:
    """Let the job's tasks start, with these environment variables."""

    variables: Mapping[str, str]


@dataclass(frozen=True)
class Finish:
    """Let the job go."""


@dataclass(frozen=True)
class FreeNodes:
    """Give nodes back before the job goes: its flash stays with it."""

    nodes: tuple[str, ...]


@dataclass(frozen=True)
class Drain:
    """Keep jobs from nodes, for a reason."""

    nodes: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class Fail:
    """Give the job an exception; one of severity 0 ends it."""

    type: str
    note: str
    severity: int = 0


@dataclass(frozen=True)
class Note:
    """Keep something with the job's record."""

    key: str
    value: Any


@dataclass(frozen=True)
class Memo:
    """Show something in listings of the job."""

    values: Mapping[str, str]


@dataclass(frozen=True)
class Later:
    """Look again after so many seconds."""

    seconds: float


Action = Write | Release | Start | Finish | FreeNodes | Drain | Fail | Note | Memo | Later


def made(snapshot: JobSnapshot) -> list[Key]:
    """Return the Servers of the storage that the job makes and that outlives it, where it matters.

    It does while the job is about to be let go, or its storage to be placed.
    """
    if snapshot.job.phase not in (Phase.HELD, Phase.STARTING):
        return []
    stored = (each.status.storage for each in snapshot.breakdowns.values())
    return [
        each.reference.key for each in stored if each is not None and each.lifetime == PERSISTENT
    ]


def needs_flash(snapshot: JobSnapshot) -> bool:
    """Return whether `decide` depends on which rabbits' flash the job was given."""
    return (
        snapshot.job.phase is Phase.STARTING
        and snapshot.workflow is not None
        and _complete(snapshot.workflow, State.PROPOSAL)
        and any(placement.spreads(needs) for needs in _needs(snapshot).values())
    )


def asks_for_abort(snapshot: JobSnapshot) -> bool:
    """Return whether `decide` depends on whether the job was let go before its storage."""
    workflow = snapshot.workflow
    return (
        snapshot.job.phase is Phase.OVER
        and workflow is not None
        and not workflow.metadata.deleting
        and labels.ABORTED not in workflow.metadata.annotations
        and not _complete(workflow, State.TEARDOWN)
    )


def decide(snapshot: JobSnapshot) -> list[Action]:
    """Return what to do now. Raises Fault where the job cannot go on."""
    workflow = snapshot.workflow
    if workflow is None:
        return _without_workflow(snapshot.job)
    if workflow.metadata.deleting:
        return _deleted(snapshot.job, workflow)
    trouble = _trouble(snapshot, workflow)
    failing = any(isinstance(each, Fail) for each in trouble)
    overdue = [] if failing else _overdue(snapshot, workflow)
    late = any(not isinstance(each, Later) for each in overdue)
    if late or (trouble and snapshot.job.phase not in (Phase.ENDING, Phase.OVER)):
        return [*trouble, *overdue]
    return [*trouble, *overdue, *_PHASES[snapshot.job.phase](snapshot, workflow)]


def _without_workflow(job: Job) -> list[Action]:
    match job.phase:
        case Phase.HELD if not job.failed:
            made = Create(kind=kinds.WORKFLOW, object=new_workflow(job))
            return [made, Memo({"rabbit_workflow": job.workflow.name})]
        case Phase.QUEUED | Phase.STARTING | Phase.RUNNING if not job.failed:
            return [
                Fail(
                    "dws",
                    f"Workflow {job.workflow.name} is gone: a user or an admin has deleted it",
                )
            ]
        case Phase.ENDING:
            return [Finish()]
        case _:
            return []


def _deleted(job: Job, workflow: Workflow) -> list[Action]:
    """Another client has asked for the Workflow's deletion. Its controllers tear it down."""
    actions: list[Action] = []
    if job.phase is Phase.ENDING:
        # Before that, what the job has written is still to be copied out, and never will be.
        torn = workflow.spec.desired_state is State.TEARDOWN
        done = torn or _complete(workflow, State.DATA_OUT)
        reported = done or not job.ran or job.abandoned
    else:
        reported = job.failed or job.phase is Phase.OVER
    if not reported:
        actions.append(Fail("dws", f"Workflow {workflow.metadata.name} was deleted"))
    if job.binding.finalizer in workflow.metadata.finalizers:
        actions.append(_let_go(job, workflow))
    return actions


def _trouble(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Tell the job of an error of its Workflow, once.

    In Teardown what the job has written is where it belongs already: such an error is told,
    but the job has not failed by it, unless it is what the job was for.
    """
    job, status = snapshot.job, workflow.status
    if workflow.spec.force_ready:
        return []  # the state is over as soon as its controller has seen that
    torn = job.phase is Phase.ENDING and workflow.spec.desired_state is State.TEARDOWN
    if job.phase is Phase.ENDING:
        # What keeps tasks from starting was told when it did, and nothing is to be copied out.
        lost = job.failed and not job.ran
        # Until Teardown has begun, the error is still the one of the state before.
        stale = torn and status.state is not State.TEARDOWN
        reported = (job.warned or stale) if torn else (job.abandoned or lost)
    else:
        reported = job.failed or job.phase is Phase.OVER
    if reported:
        return []
    severity = 1 if torn and not _is_refused(workflow) else 0
    named = _named(status.message, job.directives)
    limit, since = snapshot.timeouts.transient, snapshot.transient
    wait = 0.0
    if status.status == "Error":
        note = f"workflow hit an error: {named}"
        if since is not None and _is_tolerant(snapshot, workflow):
            wait = (limit or _FOR_THE_OTHERS) - since
    elif status.status == "TransientCondition" and limit is not None and since is not None:
        note = f"workflow in 'TransientCondition' state too long: {named}"
        wait = limit - since
    else:
        return []
    if wait > 0:
        return [Later(wait)]
    failed = Fail("exception", f"DWS/Rabbit interactions failed: {note}", severity)
    return _without_nodes(snapshot, workflow) or [failed]


_FOR_THE_OTHERS: Final = 10.0
"""For how many seconds of an error other nodes are waited for, where a site does not say."""


def _is_tolerant(snapshot: JobSnapshot, workflow: Workflow) -> bool:
    """Return whether the job may lose nodes in the state that its Workflow is in."""
    job, state = snapshot.job, workflow.status.state
    if not job.tolerance or job.phase is not Phase.STARTING:
        return False
    if state is State.PRE_RUN:
        return True
    # A file system that spans rabbits is not there without any of them.
    needs = [need for each in _needs(snapshot).values() for need in each]
    own = all(need.allocation_strategy == PER_COMPUTE for need in needs)
    return state is State.SETUP and bool(needs) and own


def _without_nodes(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Go on without the nodes that lack storage; nothing where these are none, or too many."""
    job = snapshot.job
    if not _is_tolerant(snapshot, workflow) or snapshot.configuration is None:
        return []
    before = tolerance.of(workflow.metadata)
    if workflow.status.state is State.SETUP:
        wiring = snapshot.configuration.rabbits_of_computes()
        found = tolerance.without_storage(job.nodes, snapshot.servers.values(), wiring)
    else:
        found = frozenset(snapshot.unmounted) & frozenset(job.nodes)
    lost = before | found
    if not found - before or len(lost) > job.tolerance or lost >= frozenset(job.nodes):
        return []
    new = tuple(sorted(lost - job.lost))
    return [
        *([Drain(new, tolerance.REASON)] if new and snapshot.drains else []),
        *([Fail(tolerance.EXCEPTION, hostlist.encode(new), severity=1)] if new else []),
        tolerance.gone_on_without(workflow, lost),
    ]


def _overdue(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Act on a state that takes too long; before it does, have it looked at again then."""
    job = snapshot.job
    if job.abandoned or (job.failed and job.phase is not Phase.ENDING):
        return []
    if workflow.spec.force_ready:
        return []
    limit = timeouts.deadline(job.phase, workflow, snapshot.timeouts, snapshot.moved)
    if limit is None:
        return []
    if limit.at > snapshot.now:
        return [Later(limit.at - snapshot.now)]
    reason = waits.reason(job, workflow, snapshot.configuration)
    failed = Fail(limit.type, f"{limit.words}: it {reason}", limit.severity)
    if limit.severity == 0:
        return _without_nodes(snapshot, workflow) or [failed]
    return [
        *([] if job.warned else [failed]),
        *_last_record(snapshot),
        _ask(snapshot, workflow, State.TEARDOWN),
    ]


def _named(message: str, directives: Sequence[str]) -> str:
    """Return a Workflow's message with the directive that it is about.

    The message names it by a number, in words that are DWS's own, and counts from 0.
    """
    number = re.match(r"DW Directive (\d+): ", message)
    if number is None or int(number[1]) >= len(directives):
        return message
    return f"{message.removesuffix('.')} (in {directives[int(number[1])]!r})"


def new_workflow(job: Job) -> Object:
    """Make the Workflow of a job."""
    annotations = {} if job.expires is None else {labels.EXPIRES: expiry.written(job.expires)}
    if job.tolerance:
        annotations[labels.FAILURE_TOLERANCE] = str(job.tolerance)
    return {
        "metadata": {
            "name": job.workflow.name,
            "namespace": job.workflow.namespace,
            "finalizers": [job.binding.finalizer],
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "desiredState": State.PROPOSAL,
            "dwDirectives": list(job.directives),
            "jobID": job.label,
            "userID": job.userid,
            "groupID": job.groupid,
            "wlmID": job.binding.wlm_id,
        },
    }


def _held(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    if not _complete(workflow, State.PROPOSAL):
        return []
    required = daemons.required(each for _, each in sorted(snapshot.breakdowns.items()))
    if snapshot.daemons is not None:
        daemons.demand_known(required, snapshot.daemons)
    needs = [need for each in _needs(snapshot).values() for need in each]
    changed = resources.rewritten(
        snapshot.job.resources, needs, snapshot.floor, snapshot.largest, _localities(snapshot)
    )
    breakdowns = snapshot.breakdowns.values()
    nodes = nodelocal.nodes_for(breakdowns, snapshot.used, snapshot.configuration)
    if nodes is not None:
        nodelocal.demand_enough(nodes, resources.nodes_of(snapshot.job.resources))
    return [
        *_record(snapshot, workflow),
        Note("rabbit_workflow", snapshot.raw),
        Release(changed.resources, changed.constraints, nodes, required),
    ]


def _queued(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    return []


def _starting(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    if not workflow.reached:
        return []
    match workflow.status.state:
        case State.PROPOSAL:
            return [*_assign_servers(snapshot), _ask(snapshot, workflow, State.SETUP)]
        case State.SETUP:
            assigned = _assign_computes(snapshot, tolerance.of(workflow.metadata))
            return [
                *_record(snapshot, workflow),
                *assigned,
                _ask(snapshot, workflow, State.DATA_IN),
            ]
        case State.DATA_IN:
            return [*_record(snapshot, workflow), _ask(snapshot, workflow, State.PRE_RUN)]
        case State.PRE_RUN:
            return [*_record(snapshot, workflow), Start(workflow.status.env)]
        case _:
            return []


def _running(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    job = snapshot.job
    news = alerts.untold(job.alerts, snapshot.storages, frozenset(job.nodes))
    return [Fail(alerts.EXCEPTION, each, alerts.SEVERITY) for each in news]


def _assign_servers(snapshot: JobSnapshot) -> list[Action]:
    """Say which rabbits hold the storage, as R has it."""
    needs = _needs(snapshot)
    # What has no storage of its own may be on any node, such as a job that destroys some.
    counts = nodelocal.per_rabbit(snapshot.job.nodes, snapshot.configuration) if needs else {}
    every = [need for each in needs.values() for need in each]
    # All at once, as they were reserved: what one directive has is not another's.
    reserved = resources.counts(snapshot.job.resources)
    where = _localities(snapshot)
    filled = placement.filled(every, counts, snapshot.floor, snapshot.flash, reserved, where)
    rabbits = {*counts, *(share["name"] for each in filled for share in each["storage"])}
    sets = iter(filled)
    actions: list[Action] = []
    for name, own in needs.items():
        current = snapshot.servers.get(name)
        if current is None:
            raise Fault(f"the Servers {name} are gone")
        actions.append(
            Change(
                kind=kinds.SERVERS,
                key=current.metadata.key,
                patch={"spec": {"allocationSets": list(islice(sets, len(own)))}},
            )
        )
    return [*actions, Memo({"rabbits": hostlist.encode(sorted(rabbits))})]


def _assign_computes(snapshot: JobSnapshot, lost: Collection[str]) -> list[Action]:
    if snapshot.computes is None:
        raise Fault("the job's Computes are gone")
    return [
        Change(
            kind=kinds.COMPUTES,
            key=snapshot.computes.metadata.key,
            patch={"data": [{"name": node} for node in snapshot.job.nodes if node not in lost]},
        )
    ]


def _ending(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    job = snapshot.job
    if workflow.spec.desired_state is State.TEARDOWN:
        if _complete(workflow, State.TEARDOWN):
            return [*_record(snapshot, workflow), Finish()]
        if _is_refused(workflow):
            return [Finish()]
        return _free_nodes(snapshot, workflow)
    if not job.ran or job.abandoned or workflow.status.status == "Error":
        return [*_last_record(snapshot), _ask(snapshot, workflow, State.TEARDOWN)]
    if not workflow.reached or workflow.status.state is None:
        return []
    following = ADVANCE[workflow.status.state]
    actions: list[Action] = []
    if workflow.status.state in (State.POST_RUN, State.DATA_OUT):
        actions.extend(_record(snapshot, workflow))
    if following is State.TEARDOWN:
        actions += _last_record(snapshot)
    return [*actions, _ask(snapshot, workflow, following)]


def _is_refused(workflow: Workflow) -> bool:
    """Return whether all that Teardown lacks is to destroy what is not this Workflow's.

    It may be in use, and stay so for long: nothing of the job waits for it.
    """
    status = workflow.status
    if status.state is not State.TEARDOWN or status.status != "Error":
        return False
    left = [
        each
        for each in drivers_of(workflow)
        if each.watch_state is State.TEARDOWN and not each.completed
    ]
    return bool(left) and all(
        each.status == "Error" and _command(workflow, each.dwd_index) == "destroy_persistent"
        for each in left
    )


def _command(workflow: Workflow, index: int) -> str:
    return workflow.spec.dw_directives[index].split()[1]


def _free_nodes(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """While flash cannot be given back, give back the nodes, which do not need it any more."""
    if workflow.status.status not in ("TransientCondition", "Error"):
        return []
    nodes = tuple(node for node in snapshot.job.nodes if node not in snapshot.mounted)
    return [FreeNodes(nodes)] if nodes else []


def _over(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    if snapshot.aborted:
        return _aborted(snapshot, workflow)
    if workflow.spec.desired_state is not State.TEARDOWN:
        return [_ask(snapshot, workflow, State.TEARDOWN)]
    if not (_complete(workflow, State.TEARDOWN) or _is_refused(workflow)):
        return []
    held = snapshot.job.binding.finalizer in workflow.metadata.finalizers
    kept = [_let_go(snapshot.job, workflow)] if held else []
    return [*kept, Remove(kind=kinds.WORKFLOW, key=workflow.metadata.key)]


def _aborted(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Keep others from what still has a job's storage that was let go before it."""
    nodes = abort.mounted(snapshot.computes, snapshot.mounted)
    servers = snapshot.servers.values()
    return [
        *([Drain(nodes, abort.REASON)] if nodes else []),
        *abort.disabled(workflow, servers, snapshot.storages, snapshot.now),
        abort.marked(workflow, snapshot.now),
    ]


_PHASES: Final = {
    Phase.NEW: _queued,
    Phase.HELD: _held,
    Phase.QUEUED: _queued,
    Phase.STARTING: _starting,
    Phase.RUNNING: _running,
    Phase.ENDING: _ending,
    Phase.OVER: _over,
}


def _complete(workflow: Workflow, state: State) -> bool:
    return workflow.reached and workflow.status.state is state


def _needs(snapshot: JobSnapshot) -> dict[str, tuple[AllocationNeed, ...]]:
    """Return the allocation sets of each breakdown that needs storage, by its Servers' name.

    As the site wants them. Persistent storage that was there before the job needs nothing.
    """
    return {
        breakdown.status.storage.reference.name: snapshot.policy.applied(
            breakdown.status.storage.allocation_sets
        )
        for _, breakdown in sorted(snapshot.breakdowns.items())
        if breakdown.status.storage is not None
        if breakdown.status.storage.lifetime != PERSISTENT
        or _is_maker(breakdown, breakdown.status.storage.reference.key, snapshot)
    }


def _is_maker(breakdown: DirectiveBreakdown, key: Key, snapshot: JobSnapshot) -> bool:
    """Return whether the job makes persistent storage, rather than find it there.

    The instance says so from before the job has any flash to when its storage is there.
    """
    instance = snapshot.instances.get(key)
    return instance is not None and persistent.made_by(instance, breakdown)


def _localities(snapshot: JobSnapshot) -> tuple[Locality, ...]:
    """Return for each of these sets which rabbits may hold it."""
    return location.localities(
        _needs(snapshot), snapshot.breakdowns.values(), anywhere=snapshot.policy.anywhere
    )


TIMING: Final = re.compile("rabbit_([a-z]+)_timing")
"""The keys of notes that say how long a state took."""


def _record(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Keep how long the present state took."""
    state = workflow.status.state
    if state is None or workflow.status.elapsed_time_last_state is None:
        return []
    return [Note(f"rabbit_{state.lower()}_timing", workflow.status.elapsed_time_last_state)]


def _last_record(snapshot: JobSnapshot) -> list[Action]:
    """Keep the Workflow, and as many copies as a site wants, before Teardown takes them away."""
    actions: list[Action] = [Note("rabbit_workflow", snapshot.raw)]
    if snapshot.kept_movements:
        first = sorted(snapshot.movements, key=_was_successful)[: snapshot.kept_movements]
        actions.append(Note("rabbit_datamovements", first))
    return actions


def _was_successful(movement: Object) -> bool:
    status = movement.get("status") or {}
    return status.get("state") != "Finished" or status.get("status") == "Success"


def _ask(snapshot: JobSnapshot, workflow: Workflow, state: State) -> Change:
    """Ask for a state. When Teardown begins, the Workflow is let go of: it may be deleted then."""
    finalizer = snapshot.job.binding.finalizer
    metadata: dict[str, Any] = {}
    if state is State.DATA_OUT:
        metadata["annotations"] = {labels.ENDED_AT: workflow.status.desired_state_change}
    if state is State.TEARDOWN and finalizer in workflow.metadata.finalizers:
        metadata |= labels.finalized(workflow.metadata, finalizer)["metadata"]
    return Change(
        kind=kinds.WORKFLOW,
        key=workflow.metadata.key,
        patch={"spec": {"desiredState": state}, **({"metadata": metadata} if metadata else {})},
        resource_version=workflow.metadata.resource_version,
    )


def _let_go(job: Job, workflow: Workflow) -> Change:
    return reports.finalized(kinds.WORKFLOW, workflow.metadata, job.binding.finalizer)
