"""What the workload manager's side does for one job and its Workflow.

The present state of both decides, whatever woke us: a conductor that was away
takes up each job where it is. Every action may be repeated.
"""

from collections.abc import Collection
from itertools import islice
from typing import Final

from warren.base.objects import Change, Create, Key, Object, Remove
from warren.base.times import rfc3339_micro
from warren.dws import kinds, labels, nodelocal, tolerance
from warren.dws.binding import Phase
from warren.dws.breakdown import maximums
from warren.dws.breakdown.statuses import PERSISTENT
from warren.dws.faults import Fault
from warren.dws.jobs import abort, placement, requireddaemons, resources, trouble, unsavedresults
from warren.dws.jobs.jobactions import (
    Action,
    Drain,
    Finish,
    FreeNodes,
    KeepValues,
    Memo,
    RaiseException,
    ReleaseToScheduler,
    RequeueAfter,
    Start,
    Undrain,
    record_duration,
    record_summary,
    release_workflow,
    request_state,
)
from warren.dws.jobs.jobsnapshot import (
    Job,
    JobSnapshot,
    check_breakdowns,
    is_complete,
    localities,
    needs_of,
    only_destroy_failed,
)
from warren.dws.jobs.timeouts import Timeouts
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.decoding import read
from warren.dws.objects.workflows import State, Workflow
from warren.dws.offload import copyservice
from warren.dws.persistent import expiry, instances
from warren.dws.rabbits import alerts
from warren.dws.workflow import containersteps
from warren.dws.workflow.states import ADVANCE
from warren.rfc import hostlist


def new_persistent_servers(snapshot: JobSnapshot) -> list[Key]:
    """Return the Servers of the storage that the job makes and that outlives it, where it matters.

    It does while the job is about to be released to the scheduler, or its storage to be placed.
    """
    if snapshot.job.phase not in (Phase.HELD, Phase.STARTING):
        return []
    storages = (each.status.storage for each in snapshot.breakdowns.values())
    return [
        each.reference.key for each in storages if each is not None and each.lifetime == PERSISTENT
    ]


def depends_on_held_flash(snapshot: JobSnapshot) -> bool:
    """Return whether `decide` depends on which rabbits' flash the job was given."""
    return (
        snapshot.job.phase is Phase.STARTING
        and snapshot.workflow is not None
        and is_complete(snapshot.workflow, State.PROPOSAL)
        and any(placement.may_have_shared_sets(needs) for needs in needs_of(snapshot).values())
    )


def depends_on_abort(snapshot: JobSnapshot) -> bool:
    """Return whether `decide` depends on whether the job was aborted, its storage left behind."""
    workflow = snapshot.workflow
    return (
        snapshot.job.phase is Phase.OVER
        and workflow is not None
        and not abort.is_marked_aborted(workflow)
        and not is_complete(workflow, State.TEARDOWN)
    )


def depends_on_pods(snapshot: JobSnapshot) -> bool:
    """Return whether `decide` may keep a record of the job's containers."""
    workflow = snapshot.workflow
    if workflow is None or workflow.metadata.deleting:
        return False
    phase = snapshot.job.phase
    return (
        workflow.spec.desired_state is not State.TEARDOWN
        and (phase is Phase.ENDING or (phase is Phase.OVER and abort.is_marked_aborted(workflow)))
        and containersteps.may_have_containers(workflow.spec.dw_directives)
    )


def may_need_action(workflow: Object, timeouts: Timeouts) -> bool:
    """Return whether a Workflow is where `decide` may have something to do.

    That is: where a state is ready, in trouble, or new and under a limit, or it is deleted. In the
    middle of a state there is nothing.
    """
    status = workflow.get("status") or {}
    if "deletionTimestamp" in workflow["metadata"] or status.get("status") in _TROUBLE_STATUSES:
        return True
    if status.get("state") != workflow["spec"].get("desiredState"):
        return False
    return bool(status.get("ready")) or timeouts.limits_states


def is_torn_down_early(job: Job | None, desired_state: str) -> bool:
    """Return whether a Workflow is asked for Teardown before its job ends, by another client.

    The conductor asks for it when a job is ending or over, and never before.
    """
    is_before_ending = job is not None and job.phase in _BEFORE_ENDING and not job.failed
    return is_before_ending and desired_state == State.TEARDOWN


def is_stuck_in_teardown(workflow: Object) -> bool:
    """Return whether a Teardown is in trouble or the Workflow deleted: `FreeNodes` applies then."""
    status = workflow.get("status") or {}
    is_stuck = (
        "deletionTimestamp" in workflow["metadata"] or status.get("status") in _TROUBLE_STATUSES
    )
    return is_stuck and bool(workflow["spec"].get("desiredState") == State.TEARDOWN)


def counts_as_waiting(workflow: Object) -> bool:
    """Return whether a Workflow may be of a job without nodes: these bound no number of them."""
    return workflow["spec"].get("desiredState") in (State.PROPOSAL, State.TEARDOWN)


def has_unmounted(before: Object | None, after: Object | None) -> bool:
    """Return whether by a change of its ClientMount a node has come to have nothing mounted."""
    if before is None or read(before, ClientMount).all_in("unmounted"):
        return False
    return after is None or read(after, ClientMount).all_in("unmounted")


def is_finished(workflow: Object, job: Job | None, finalizer: str) -> bool:
    """Return whether nothing is left to decide on a Workflow, whatever becomes of it yet.

    It is being deleted, its finalizer is removed, and its job is over.
    """
    metadata = workflow["metadata"]
    return (
        "deletionTimestamp" in metadata
        and finalizer not in (metadata.get("finalizers") or ())
        and (job is None or job.phase is Phase.OVER)
    )


def decide(snapshot: JobSnapshot) -> list[Action]:
    """Return what to do now. Raises Fault where the job cannot go on."""
    workflow, job = snapshot.workflow, snapshot.job
    if workflow is not None and labels.is_of_another_wlm_instance(
        workflow.metadata.labels, snapshot.wlm_instance
    ):
        return _decide_name_taken(job)
    if job.unreadable_reason is not None and job.phase in _BEFORE_ENDING:
        raise Fault(f"what the job was given cannot be read: {job.unreadable_reason}")
    if workflow is None:
        return _decide_without_workflow(snapshot)
    if workflow.metadata.deleting:
        return _decide_deleted(snapshot, workflow)
    errors = trouble.report_error(snapshot, workflow)
    fails_job = any(isinstance(each, RaiseException) for each in errors)
    if not fails_job and is_torn_down_early(snapshot.job, workflow.spec.desired_state):
        reason = "is torn down: a user or an admin has asked for it"
        return [RaiseException("dws", f"Workflow {workflow.metadata.name} {reason}")]
    deadline_actions = [] if fails_job else trouble.act_on_deadline(snapshot, workflow)
    is_late = any(not isinstance(each, RequeueAfter) for each in deadline_actions)
    if is_late or (errors and snapshot.job.phase not in (Phase.ENDING, Phase.OVER)):
        return [*errors, *deadline_actions]
    return [*errors, *deadline_actions, *_DECIDE_BY_PHASE[snapshot.job.phase](snapshot, workflow)]


def _decide_name_taken(job: Job) -> list[Action]:
    """Another instance's job has the Workflow of this name: ids are unique to an instance only.

    Nothing of it is the job's, which ends without storage, and it is not touched.
    """
    if job.phase in _BEFORE_ENDING:
        raise Fault(
            f"the Workflow {job.workflow_key.name} is another instance's, by its label "
            f"{labels.WLM_INSTANCE}: submit the job again; where that instance is lost, an admin "
            "takes away the label, and the Workflow is torn down"
        )
    return [Finish()] if job.phase is Phase.ENDING else []


def _decide_without_workflow(snapshot: JobSnapshot) -> list[Action]:
    job = snapshot.job
    match job.phase:
        case Phase.HELD if not snapshot.is_admitted:
            return []
        case Phase.HELD | Phase.QUEUED if not job.failed and (
            job.phase is Phase.HELD or _may_lose_workflow(job)
        ):
            create = Create(kind=kinds.WORKFLOW, object=new_workflow(job, snapshot.wlm_instance))
            return [create, Memo({"rabbit_workflow": job.workflow_key.name})]
        case Phase.QUEUED | Phase.STARTING | Phase.RUNNING if not job.failed:
            return [
                RaiseException(
                    "dws",
                    f"Workflow {job.workflow_key.name} is gone: a user or an admin has deleted it",
                )
            ]
        case Phase.ENDING:
            return [Finish()]
        case Phase.OVER:
            return _undrain(snapshot, snapshot.nodes_to_undrain)
        case _:
            return []


def _decide_deleted(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Another client has asked for the Workflow's deletion. Its controllers tear it down."""
    if snapshot.leftovers is not None:
        return _drain_and_disable(snapshot, workflow)  # once it is marked, its finalizer is removed
    job, actions = snapshot.job, list[Action]()
    if job.phase is Phase.ENDING:
        # Before that, what the job has written is still to be copied out, and never will be.
        in_teardown = workflow.spec.desired_state is State.TEARDOWN
        saved_results = in_teardown or is_complete(workflow, State.DATA_OUT)
        needs_no_exception = saved_results or not job.ran or job.has_failed_while_ending
        if in_teardown:
            actions += _free_nodes(snapshot, workflow)
    else:
        needs_no_exception = job.failed or job.phase is Phase.OVER or _may_lose_workflow(job)
    if not needs_no_exception:
        actions.append(RaiseException("dws", f"Workflow {workflow.metadata.name} was deleted"))
    if job.binding.finalizer in workflow.metadata.finalizers:
        actions.append(release_workflow(job, workflow))
    return actions


def _may_lose_workflow(job: Job) -> bool:
    """Return whether a job that loses its Workflow gets another one, and goes on.

    It does while nothing has been made for it: not in the moment before its tasks begin, in which
    it has all prologs behind it. Persistent storage that it creates is there from Proposal on: it
    goes with the first Workflow, and the second one would find it.
    """
    created_names = instances.instance_names(job.directives, ("create_persistent",))
    return job.phase in (Phase.HELD, Phase.QUEUED) and not job.nodes and not created_names


def new_workflow(job: Job, wlm_instance: str = "") -> Object:
    """Make the Workflow of a job of an instance of the workload manager."""
    annotations = {} if job.expires is None else {labels.EXPIRES: expiry.expiry_text(job.expires)}
    if job.submitted is not None and instances.instance_names(job.directives, ("persistentdw",)):
        annotations[labels.SUBMITTED_AT] = rfc3339_micro(job.submitted)
    if job.max_lost_nodes:
        annotations[labels.FAILURE_TOLERANCE] = str(job.max_lost_nodes)
    if job.phase is Phase.QUEUED:
        annotations[labels.MADE_ANEW] = "yes"
    if job.queue:
        annotations[labels.QUEUE] = job.queue
    return {
        "metadata": {
            "name": job.workflow_key.name,
            "namespace": job.workflow_key.namespace,
            "finalizers": [job.binding.finalizer],
            **({"labels": {labels.WLM_INSTANCE: wlm_instance}} if wlm_instance else {}),
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": {
            "desiredState": State.PROPOSAL,
            "dwDirectives": list(job.directives),
            "jobID": job.formatted_id,
            "userID": job.userid,
            "groupID": job.groupid,
            "wlmID": job.binding.wlm_id,
        },
    }


def _is_served_by_storage(snapshot: JobSnapshot, requirement: str) -> bool:
    """Return whether what a job requires is served by the storage side, and no daemon's matter."""
    configuration = snapshot.configuration
    annotations = configuration.metadata.annotations if configuration is not None else {}
    return (
        requirement == copyservice.REQUIRES_WORD
        and copyservice.find_service(annotations) is not None
    )


def _decide_held(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    if not is_complete(workflow, State.PROPOSAL):
        return []
    check_breakdowns(snapshot, workflow)
    required = requireddaemons.required_daemons(
        each for _, each in sorted(snapshot.breakdowns.items())
    )
    if snapshot.daemons is not None:
        required = tuple(each for each in required if not _is_served_by_storage(snapshot, each))
        requireddaemons.check_known(required, snapshot.daemons)
    needs = [need for each in needs_of(snapshot).values() for need in each]
    policy, job_resources = snapshot.policy, snapshot.job.resources
    if policy.max_gib_per_node:
        typed_needs = maximums.needs_with_types(snapshot.breakdowns.values())
        node_count = resources.least_node_count(job_resources)
        maximums.check_maximums(
            typed_needs, node_count, snapshot.min_allocation_bytes, policy.max_gib_per_node
        )
    rewritten = resources.RewrittenResources(job_resources, {})
    if policy.scheduler_places_flash:
        localities_of_sets = localities(snapshot)
        rewritten = resources.rewrite(
            job_resources,
            needs,
            snapshot.min_allocation_bytes,
            snapshot.largest_rabbit_gib,
            localities_of_sets,
        )
    breakdowns = snapshot.breakdowns.values()
    nodes = nodelocal.allowed_nodes(breakdowns, snapshot.existing_servers, snapshot.configuration)
    if nodes is not None:
        nodelocal.check_enough_nodes(nodes, resources.least_node_count(job_resources))
    # It was shown when the Workflow was made, if the conductor did not end in between.
    memo = {"rabbit_workflow": snapshot.job.workflow_key.name}
    return [
        *([] if memo.items() <= snapshot.shown_memos.items() else [Memo(memo)]),
        *record_duration(snapshot, workflow),
        KeepValues({"rabbit_workflow": snapshot.raw_workflow}),
        ReleaseToScheduler(rewritten.resources, rewritten.constraints, nodes, required),
    ]


def _decide_new(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    return []


def _decide_queued(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    if is_complete(workflow, State.PROPOSAL):
        _check_same_needs(snapshot, workflow)
    return []


def _check_same_needs(snapshot: JobSnapshot, workflow: Workflow) -> None:
    """Raise Fault where a job needs more by its second Workflow than was reserved by its first."""
    if (
        labels.MADE_ANEW not in workflow.metadata.annotations
        or not snapshot.policy.scheduler_places_flash
    ):
        return
    check_breakdowns(snapshot, workflow)
    needs = [need for each in needs_of(snapshot).values() for need in each]
    job_resources, localities_of_sets = snapshot.job.resources, localities(snapshot)
    if not resources.is_still_enough(
        job_resources, needs, snapshot.min_allocation_bytes, localities_of_sets
    ):
        raise Fault(
            "the job has lost its Workflow, and what its #DW directives need has changed since it "
            "was submitted: submit it again"
        )


def _decide_starting(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    missed_memos = _missed_memo(snapshot, workflow)
    if not workflow.has_reached_desired_state:
        return missed_memos
    match workflow.status.state:
        case State.PROPOSAL:
            check_breakdowns(snapshot, workflow)
            _check_same_needs(snapshot, workflow)
            assignments, rabbits = _assign_servers(snapshot)
            # What is shown tells the plugin that the job's storage is being made: it heeds no
            # refusal after that, so all that may be refused comes before.
            return [
                *assignments,
                request_state(snapshot, workflow, State.SETUP),
                Memo({"rabbits": rabbits}),
            ]
        case State.SETUP:
            assignments = _assign_computes(snapshot, tolerance.lost_nodes(workflow.metadata))
            return [
                *missed_memos,
                *record_duration(snapshot, workflow),
                *assignments,
                request_state(snapshot, workflow, State.DATA_IN),
            ]
        case State.DATA_IN:
            return [
                *missed_memos,
                *record_duration(snapshot, workflow),
                request_state(snapshot, workflow, State.PRE_RUN),
            ]
        case State.PRE_RUN:
            return [*missed_memos, *record_duration(snapshot, workflow), Start(workflow.status.env)]
        case _:
            return []


def _missed_memo(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Show which rabbits hold the storage, if a conductor ended before it did and after it asked.

    As the Servers have it, which may be seen after the Workflow.
    """
    if workflow.spec.desired_state is State.PROPOSAL or "rabbits" in snapshot.shown_memos:
        return []
    needs, configuration = needs_of(snapshot), snapshot.configuration
    if not needs:
        return []  # or they are not seen yet
    wiring = configuration.rabbits_of_computes() if configuration is not None else {}
    rabbits = {wiring[node] for node in snapshot.job.nodes if node in wiring}
    for name in needs:
        servers = snapshot.servers.get(name)
        sets = servers.spec.allocation_sets if servers is not None else ()
        assigned_servers = [server for each in sets for server in each.storage]
        if not assigned_servers:
            return []
        rabbits.update(server.name for server in assigned_servers)
    return [Memo({"rabbits": hostlist.encode(sorted(rabbits))})]


def _decide_running(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    job = snapshot.job
    new_alerts = alerts.new_alerts(job.alerts, snapshot.storages, frozenset(job.nodes))
    return [RaiseException(alerts.EXCEPTION, each, alerts.SEVERITY) for each in new_alerts]


def _assign_servers(snapshot: JobSnapshot) -> tuple[list[Action], str]:
    """Say which rabbits hold the storage, as R has it, and return those as a hostlist."""
    needs = needs_of(snapshot)
    # What has no storage of its own may be on any node, such as a job that destroys some.
    node_counts_by_rabbit = (
        nodelocal.node_counts_by_rabbit(snapshot.job.nodes, snapshot.configuration) if needs else {}
    )
    all_needs = [need for each in needs.values() for need in each]
    # All at once, as they were reserved: what one directive has is not another's.
    reserved_counts = resources.counts_across_nodes(snapshot.job.resources)
    localities_of_sets = localities(snapshot)
    flash = (
        snapshot.flash
        if snapshot.policy.scheduler_places_flash
        else placement.unreserved_flash(node_counts_by_rabbit)
    )
    filled_sets = placement.allocation_sets(
        all_needs,
        node_counts_by_rabbit,
        snapshot.min_allocation_bytes,
        flash,
        reserved_counts,
        localities_of_sets,
    )
    rabbits = {
        *node_counts_by_rabbit,
        *(server["name"] for each in filled_sets for server in each["storage"]),
    }
    remaining_sets = iter(filled_sets)
    actions: list[Action] = []
    for name, own_needs in needs.items():
        servers = snapshot.servers.get(name)
        if servers is None:
            raise Fault(f"the Servers {name} are gone")
        actions.append(
            Change(
                kind=kinds.SERVERS,
                key=servers.metadata.key,
                patch={"spec": {"allocationSets": list(islice(remaining_sets, len(own_needs)))}},
            )
        )
    return actions, hostlist.encode(sorted(rabbits))


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


def _decide_ending(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    job = snapshot.job
    if workflow.spec.desired_state is State.TEARDOWN:
        if is_complete(workflow, State.TEARDOWN):
            return [*record_duration(snapshot, workflow), Finish()]
        if only_destroy_failed(workflow):
            return [Finish()]
        return _free_nodes(snapshot, workflow)
    drops_results = unsavedresults.is_dropped(
        job.unsaved_policy, snapshot.default_unsaved_policy, cancelled=job.cancelled
    )
    if (
        not job.ran
        or job.has_failed_while_ending
        or drops_results
        or workflow.status.status == "Error"
    ):
        return [
            *record_summary(snapshot, workflow),
            request_state(snapshot, workflow, State.TEARDOWN),
        ]
    if not workflow.has_reached_desired_state or workflow.status.state is None:
        return []
    next_state = ADVANCE[workflow.status.state]
    actions: list[Action] = []
    if workflow.status.state in (State.POST_RUN, State.DATA_OUT):
        actions.extend(record_duration(snapshot, workflow))
    if next_state is State.TEARDOWN:
        actions += record_summary(snapshot, workflow)
    return [*actions, request_state(snapshot, workflow, next_state)]


def _free_nodes(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """While flash cannot be given back, give back the nodes, which do not need it any more."""
    if not (workflow.status.status in _TROUBLE_STATUSES or workflow.metadata.deleting):
        return []
    nodes = tuple(node for node in snapshot.job.nodes if node not in snapshot.mounted_nodes)
    return [FreeNodes(nodes)] if nodes else []


def _decide_over(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    if snapshot.leftovers is not None:
        return _drain_and_disable(snapshot, workflow)
    if workflow.spec.desired_state is not State.TEARDOWN:
        # Of an aborted job nothing has been kept yet.
        summary = record_summary(snapshot, workflow) if abort.is_marked_aborted(workflow) else []
        return [*summary, request_state(snapshot, workflow, State.TEARDOWN)]
    if not (is_complete(workflow, State.TEARDOWN) or only_destroy_failed(workflow)):
        return []
    has_finalizer = snapshot.job.binding.finalizer in workflow.metadata.finalizers
    release = [release_workflow(snapshot.job, workflow)] if has_finalizer else []
    removal = Remove(kind=kinds.WORKFLOW, key=workflow.metadata.key)
    return [*_undrain_nodes_of_aborted(snapshot, workflow), *release, removal]


def _drain_and_disable(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Keep other jobs from what still has the storage of an aborted job."""
    leftovers = snapshot.leftovers
    assert leftovers is not None  # the job is newly aborted
    if abort.is_waited_for(leftovers):
        return [RequeueAfter(_LEFTOVERS_INTERVAL)]
    nodes = abort.nodes_to_drain(snapshot.computes, leftovers.mounts)
    return [
        # First: a node that is drained is out of reach, and nothing is seen of its rabbit any more.
        *abort.disable_rabbits(workflow, snapshot.servers.values(), leftovers, snapshot.now),
        *([Drain(nodes, abort.DRAIN_REASON)] if nodes else []),
        abort.mark_aborted(workflow, snapshot.computes, snapshot.now),
    ]


def _undrain_nodes_of_aborted(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Let jobs have the nodes of an aborted job again, where a site wants that."""
    if not (snapshot.return_to_service and abort.is_marked_aborted(workflow)):
        return []
    data = snapshot.computes.data if snapshot.computes is not None else ()
    return _undrain(snapshot, {each.name for each in data})


def _undrain(snapshot: JobSnapshot, nodes: Collection[str]) -> list[Action]:
    nodes = {*nodes} - {*snapshot.nodes_shared_with_aborted}
    return [Undrain(tuple(sorted(nodes)), abort.DRAIN_REASON)] if nodes else []


_LEFTOVERS_INTERVAL: Final = 30.0
"""Seconds between looks at what is left behind and waited for."""

_TROUBLE_STATUSES: Final = ("TransientCondition", "Error")

_BEFORE_ENDING: Final = (Phase.HELD, Phase.QUEUED, Phase.STARTING, Phase.RUNNING)

_DECIDE_BY_PHASE: Final = {
    Phase.NEW: _decide_new,
    Phase.HELD: _decide_held,
    Phase.QUEUED: _decide_queued,
    Phase.STARTING: _decide_starting,
    Phase.RUNNING: _decide_running,
    Phase.ENDING: _decide_ending,
    Phase.OVER: _decide_over,
}
