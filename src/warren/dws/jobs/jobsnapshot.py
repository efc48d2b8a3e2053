"""A job and its Workflow, as the conductor sees them when it decides (`dws.jobs.conduct`)."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

import msgspec

from warren.base.objects import Key, Object
from warren.base.placing import HeldFlash, Locality
from warren.dws import location
from warren.dws.binding import Binding, Phase
from warren.dws.breakdown.statuses import PERSISTENT
from warren.dws.faults import Fault
from warren.dws.jobs import placement
from warren.dws.jobs.abort import Leftovers
from warren.dws.jobs.timeouts import NO_TIMEOUTS, Timeouts
from warren.dws.jobs.unsavedresults import UnsavedPolicy
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.breakdowns import AllocationNeed, DirectiveBreakdown
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storages import Storage
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import State, Workflow
from warren.dws.persistent import instances
from warren.dws.workflow.states import drivers_of

DEFAULT_URGENCY: Final = 16
"""The urgency of a job that does not say, and the highest that a job's user may ask for."""


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job, as any workload manager can tell of it."""

    id: int
    phase: Phase
    binding: Binding
    userid: int = 0
    groupid: int | None = 0
    """None where the user has no entry in the password file."""
    formatted_id: str = ""
    """How the workload manager spells the id."""
    directives: tuple[str, ...] = ()
    queue: str = ""
    """Empty where the workload manager has none."""
    urgency: int = DEFAULT_URGENCY
    """Which of its user's jobs has its Workflow first; 0 where something else holds the job."""
    submitted: float | None = None
    """When it was submitted, in seconds since the epoch; None where that is not known."""
    expires: float | None = None
    """When the persistent storage that it creates expires; None where it does not say."""
    max_lost_nodes: int = 0
    """How many nodes it may lose to failing storage."""
    lost_nodes: frozenset[str] = frozenset()
    """The nodes of which it was told that it has lost them."""
    alerts: tuple[str, ...] = ()
    """What it was told of its rabbits, in order."""
    resources: Sequence[Mapping[str, Any]] = ()
    nodes: tuple[str, ...] = ()
    """Host names, once there are some."""
    unreadable_reason: str | None = None
    """Why it cannot be told which nodes it was given."""
    ran: bool = False
    """Whether its tasks were started."""
    failed: bool = False
    """Whether it has met a fatal exception."""
    cancelled: bool = False
    """Whether the first one was that a user or an admin has cancelled it."""
    unsaved_policy: UnsavedPolicy | None = None
    """What becomes of what it has written, when it is cancelled; None where it does not say."""
    has_failed_while_ending: bool = False
    """Whether it met one while it was ending: what is left to do for it is not to be done."""
    has_exception_while_ending: bool = False
    """Whether it has met any exception, fatal or not, while it was ending."""

    @property
    def workflow_key(self) -> Key:
        return self.binding.workflow_key(self.id)


class JobSnapshot(msgspec.Struct, frozen=True, kw_only=True):
    """A job, its Workflow and what belongs to that. Breakdowns and Servers are by name."""

    job: Job
    workflow: Workflow | None
    raw_workflow: Object | None = None
    """The Workflow with all its fields, for the record."""
    breakdowns: Mapping[str, DirectiveBreakdown]
    servers: Mapping[str, Servers]
    existing_servers: Mapping[Key, Servers] = msgspec.field(default_factory=dict)
    """The Servers of node-local storage that the job uses and does not make."""
    persistent_instances: Mapping[Key, PersistentStorageInstance] = msgspec.field(
        default_factory=dict
    )
    """The persistent storage that the job makes, by the keys of its Servers."""
    computes: Computes | None
    configuration: SystemConfiguration | None
    mounted_nodes: Collection[str] = ()
    """The job's nodes that have not let go of its storage."""
    not_fully_mounted_nodes: Collection[str] = ()
    """Those that have not mounted all of it; looked up where the job may lose some."""
    silent_nodes: Collection[str] = ()
    """Those of them that say nothing of the mount of what was made for this job alone."""
    nodes_at_fault: Collection[str] = ()
    """Those of them that say that they cannot mount that."""
    wlm_instance: str = ""
    """What marks the Workflows of the workload manager's instance; empty where nothing does."""
    shown_memos: Mapping[str, str] = msgspec.field(default_factory=dict)
    """The memos that this conductor has shown with the job."""
    min_allocation_bytes: int
    """The least size of one allocation, in bytes."""
    largest_rabbit_gib: int | None = None
    """How many GiB the largest rabbit has, where that is known."""
    policy: placement.PlacementPolicy = placement.DEFAULT_POLICY
    daemons: Collection[str] | None = None
    """Those that the workload manager can enable for jobs, where that is known."""
    is_admitted: bool = True
    """Whether a job that is held may have a Workflow: its user's jobs have not too many."""
    flash: Sequence[HeldFlash] = ()
    """The flash that the job's R holds; looked up where `depends_on_held_flash` says so."""
    leftovers: Leftovers | None = None
    """Of a job that was aborted and whose Workflow is not marked so yet; None of all others. Looked
    up if `depends_on_abort` says so."""
    storages: Mapping[str, Storage] = msgspec.field(default_factory=dict)
    """The Storages of all rabbits that a running job depends on, by name."""
    seconds_in_trouble: float | None = None
    """For how many seconds the Workflow has been in TransientCondition, or in Error."""
    drains_lost_nodes: bool = True
    """Whether nodes that a job loses are drained."""
    nodes_shared_with_aborted: Collection[str] = ()
    """The nodes of an aborted job that another aborted job has, too: they stay drained."""
    nodes_to_undrain: Collection[str] = ()
    """The nodes of an aborted job whose Workflow has just gone."""
    return_to_service: bool = False
    """Whether what was taken out of service with a job returns by itself."""
    timeouts: Timeouts = NO_TIMEOUTS
    default_unsaved_policy: UnsavedPolicy = UnsavedPolicy.FLUSH
    """What becomes of what jobs have written that do not say."""
    last_copy_progress_at: float | None = None
    """When copies of the job last went on, where that matters."""
    max_recorded_movements: int = 0
    """How many copies are kept with the record of a job; 0 for none."""
    movements: Sequence[Object] = ()
    """The job's copies, where it is ending."""
    pods: Sequence[Object] = ()
    """The pods of the job's containers; looked up where `depends_on_pods` says so."""
    now: float
    """Seconds since the epoch."""


def is_complete(workflow: Workflow, state: State) -> bool:
    return workflow.has_reached_desired_state and workflow.status.state is state


def check_breakdowns(snapshot: JobSnapshot, workflow: Workflow) -> None:
    """Raise Fault unless all is known that a Workflow needs whose Proposal is done.

    What it needs is said by its breakdowns, which are watched apart from it, and may be seen later.
    """
    for each in workflow.status.directive_breakdowns:
        breakdown = snapshot.breakdowns.get(each.name)
        if breakdown is None or not breakdown.status.ready:
            raise Fault(f"the DirectiveBreakdown {each.name} is gone")


def needs_of(snapshot: JobSnapshot) -> dict[str, tuple[AllocationNeed, ...]]:
    """Return the allocation sets of each breakdown that needs storage, by its Servers' name.

    As the site wants them. Persistent storage that was there before the job needs nothing.
    """
    return {
        breakdown.status.storage.reference.name: snapshot.policy.with_site_limits(
            breakdown.status.storage.allocation_sets
        )
        for _, breakdown in sorted(snapshot.breakdowns.items())
        if breakdown.status.storage is not None
        if breakdown.status.storage.lifetime != PERSISTENT
        or _job_makes_instance(breakdown, breakdown.status.storage.reference.key, snapshot)
    }


def _job_makes_instance(
    breakdown: DirectiveBreakdown, servers_key: Key, snapshot: JobSnapshot
) -> bool:
    """Return whether the job makes persistent storage, rather than find it there.

    The instance says so from before the job has any flash to when its storage is there.
    """
    instance = snapshot.persistent_instances.get(servers_key)
    return instance is not None and instances.is_made_by(instance, breakdown)


def localities(snapshot: JobSnapshot) -> tuple[Locality, ...]:
    """Return for each set of `needs_of`, in order, which rabbits may hold it."""
    return location.localities(
        needs_of(snapshot),
        snapshot.breakdowns.values(),
        allow_any_rabbit=snapshot.policy.allow_any_rabbit,
    )


def only_destroy_failed(workflow: Workflow) -> bool:
    """Return whether all that Teardown lacks is to destroy what is not this Workflow's.

    It may be in use, and stay so for long: nothing of the job waits for it.
    """
    status = workflow.status
    if status.state is not State.TEARDOWN or status.status != "Error":
        return False
    unfinished = [
        each
        for each in drivers_of(workflow)
        if each.watch_state is State.TEARDOWN and not each.completed
    ]
    return bool(unfinished) and all(
        each.status == "Error" and _command(workflow, each.dwd_index) == "destroy_persistent"
        for each in unfinished
    )


def _command(workflow: Workflow, index: int) -> str:
    return workflow.spec.dw_directives[index].split()[1]
