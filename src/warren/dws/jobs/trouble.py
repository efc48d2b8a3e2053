"""What goes wrong with a job's storage, and what comes of it: errors, time limits, lost nodes."""

import re
from collections.abc import Collection, Sequence
from typing import Final

from warren.dws import tolerance
from warren.dws.binding import Phase
from warren.dws.breakdown.allocationneeds import PER_COMPUTE
from warren.dws.jobs import timeouts, waits
from warren.dws.jobs.jobactions import (
    Action,
    Drain,
    RaiseException,
    RequeueAfter,
    record_summary,
    request_state,
)
from warren.dws.jobs.jobsnapshot import JobSnapshot, needs_of, only_destroy_failed
from warren.dws.objects.workflows import State, Workflow
from warren.dws.workflow import copysteps, states
from warren.rfc import hostlist


def report_error(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Tell the job of an error of its Workflow, once.

    In Teardown what the job has written is where it belongs already: such an error is told,
    but the job has not failed by it, unless it is what the job was for.
    """
    job, status = snapshot.job, workflow.status
    if workflow.spec.force_ready:
        return []  # the state is over as soon as its controller has seen that
    in_teardown = job.phase is Phase.ENDING and workflow.spec.desired_state is State.TEARDOWN
    if job.phase is Phase.ENDING:
        # What keeps tasks from starting was told when it did, and nothing is to be copied out.
        never_ran = job.failed and not job.ran
        # Until Teardown has begun, the error is still the one of the state before.
        stale = in_teardown and status.state is not State.TEARDOWN
        is_reported = (
            (job.has_exception_while_ending or stale)
            if in_teardown
            else (job.has_failed_while_ending or never_ran)
        )
    else:
        is_reported = job.failed or job.phase is Phase.OVER
    if is_reported:
        return []
    severity = 1 if in_teardown and not only_destroy_failed(workflow) else 0
    message = _message_with_directive(status.message, job.directives)
    transient_limit, seconds_in_trouble = snapshot.timeouts.transient, snapshot.seconds_in_trouble
    wait = 0.0
    if status.status == "Error":
        note = f"workflow hit an error: {message}"
        if seconds_in_trouble is not None and _is_tolerant(snapshot, workflow):
            wait = (transient_limit or _WAIT_FOR_OTHER_NODES) - seconds_in_trouble
    elif (
        status.status == "TransientCondition"
        and transient_limit is not None
        and seconds_in_trouble is not None
    ):
        note = f"workflow in 'TransientCondition' state too long: {message}"
        wait = transient_limit - seconds_in_trouble
    else:
        return []
    if wait > 0:
        return [RequeueAfter(wait)]
    fail = RaiseException("exception", f"DWS/Rabbit interactions failed: {note}", severity)
    # Trouble of persistent storage, too, leads here: other nodes may be about to mount their own.
    return _go_on_without_nodes(snapshot, workflow, snapshot.nodes_at_fault) or [fail]


_WAIT_FOR_OTHER_NODES: Final = 10.0
"""For how many seconds of an error other nodes are waited for, where a site does not say."""


def _is_tolerant(snapshot: JobSnapshot, workflow: Workflow) -> bool:
    """Return whether the job may lose nodes in the state that its Workflow is in."""
    job, state = snapshot.job, workflow.status.state
    if not job.max_lost_nodes or job.phase is not Phase.STARTING:
        return False
    if state is State.PRE_RUN:
        return True
    # A file system that spans rabbits is not there without any of them.
    needs = [need for each in needs_of(snapshot).values() for need in each]
    all_per_compute = all(need.allocation_strategy == PER_COMPUTE for need in needs)
    return state is State.SETUP and bool(needs) and all_per_compute


def _go_on_without_nodes(
    snapshot: JobSnapshot, workflow: Workflow, nodes_to_drain: Collection[str]
) -> list[Action]:
    """Go on without the nodes that lack storage; nothing where these are none, or too many.

    Those of them that are `nodes_to_drain` are drained, if it is the nodes that mount it.
    """
    job = snapshot.job
    if not _is_tolerant(snapshot, workflow) or snapshot.configuration is None:
        return []
    lost_before = tolerance.lost_nodes(workflow.metadata)
    if workflow.status.state is State.SETUP:
        wiring = snapshot.configuration.rabbits_of_computes()
        lacking_nodes = tolerance.nodes_without_storage(
            job.nodes, snapshot.servers.values(), wiring
        )
    else:
        lacking_nodes = frozenset(snapshot.not_fully_mounted_nodes) & frozenset(job.nodes)
    lost = lost_before | lacking_nodes
    if (
        not lacking_nodes - lost_before
        or len(lost) > job.max_lost_nodes
        or lost >= frozenset(job.nodes)
    ):
        return []
    new_nodes = tuple(sorted(lost - job.lost_nodes))
    # A rabbit that makes nothing says so itself, and its nodes are as good as before. So are those
    # that cannot mount persistent storage: what its users have made of it may be the reason.
    drains_nodes = snapshot.drains_lost_nodes and workflow.status.state is State.PRE_RUN
    drained = tuple(node for node in new_nodes if node in nodes_to_drain)
    return [
        *([Drain(drained, tolerance.DRAIN_REASON)] if drained and drains_nodes else []),
        *(
            [RaiseException(tolerance.EXCEPTION, hostlist.encode(new_nodes), severity=1)]
            if new_nodes
            else []
        ),
        tolerance.change_to_go_on_without(workflow, lost),
    ]


def act_on_deadline(snapshot: JobSnapshot, workflow: Workflow) -> list[Action]:
    """Act on a state that takes too long; before it does, have it looked at again then."""
    job = snapshot.job
    if job.has_failed_while_ending or (job.failed and job.phase is not Phase.ENDING):
        return []
    if workflow.spec.force_ready:
        return []
    deadline = timeouts.deadline(
        job.phase, workflow, snapshot.timeouts, snapshot.last_copy_progress_at
    )
    if deadline is None:
        return []
    if deadline.at > snapshot.now:
        return [RequeueAfter(deadline.at - snapshot.now)]
    reason = waits.reason(job, workflow, snapshot.configuration)
    # A job that copies take too long for has not failed; one of which a copy has failed has.
    severity = 0 if _has_failed_copies(workflow) else deadline.severity
    fail = RaiseException(deadline.type, f"{deadline.note}: it {reason}", severity)
    if severity == 0:
        # Nodes that only take long are as good as before.
        nodes_to_drain = {*snapshot.silent_nodes, *snapshot.nodes_at_fault}
        return _go_on_without_nodes(snapshot, workflow, nodes_to_drain) or [fail]
    return [
        *([] if job.has_exception_while_ending else [fail]),
        *record_summary(snapshot, workflow),
        request_state(snapshot, workflow, State.TEARDOWN),
    ]


def _has_failed_copies(workflow: Workflow) -> bool:
    return any(copysteps.FAILED_MESSAGE in each.message for each in states.drivers_of(workflow))


def _message_with_directive(message: str, directives: Sequence[str]) -> str:
    """Return a Workflow's message with the directive that it is about.

    The message names it by a number, in words that are DWS's own, and counts from 0.
    """
    match = re.match(r"DW Directive (\d+): ", message)
    if match is None or int(match[1]) >= len(directives):
        return message
    return f"{message.removesuffix('.')} (in {directives[int(match[1])]!r})"
