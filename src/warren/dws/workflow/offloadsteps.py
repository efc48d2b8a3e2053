"""Copies that a running job asks for: what is done for them in each state of its Workflow.

Setup makes the token by which the job is known; in PreRun the rabbits mount what they are to copy
from and to, beside the compute nodes, until Teardown; PostRun waits for those that go on, and tells
of those that have failed (dws-spec section 11, ADR 092).
"""

from collections.abc import Mapping

from warren.dws.faults import Fault
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.workflows import State
from warren.dws.offload import copyservice, movements
from warren.dws.workflow import containersteps
from warren.dws.workflow.workflowsnapshot import DONE, Outcome, WorkflowSnapshot

_STORAGE_COMMANDS = ("jobdw", "persistentdw")
_FAILED_STATUSES = ("Failed", "Invalid")


def target_indexes(snapshot: WorkflowSnapshot) -> list[int]:
    """Return the indexes of the directives whose storage rabbits are to have mounted, too."""
    if snapshot.offload_service is None or not copyservice.is_requested(snapshot.directives):
        return []
    return [
        index
        for index, directive in enumerate(snapshot.directives)
        if directive.command.text in _STORAGE_COMMANDS
        and containersteps.type_of(snapshot, index) not in copyservice.TYPES_MOUNTED_ONCE
    ]


def set_up(snapshot: WorkflowSnapshot) -> Outcome:
    """Have the token made, if the job asks for copies."""
    return (
        containersteps.make_token(snapshot)
        if copyservice.is_requested(snapshot.directives)
        else DONE
    )


def variables(snapshot: WorkflowSnapshot) -> Mapping[str, str]:
    """Return the variables by which tasks find the service, if they ask it for copies."""
    if snapshot.offload_service is None or not target_indexes(snapshot):
        return {}
    return copyservice.variables(snapshot.offload_service)


def unfinished_copies(snapshot: WorkflowSnapshot) -> list[NnfDataMovement]:
    """Return the copies that were asked for and have not ended."""
    return [each for each in _requested_copies(snapshot) if each.status.state != "Finished"]


def finish(snapshot: WorkflowSnapshot) -> Outcome:
    """Wait for all copies that were asked for. Raises Fault where one has failed."""
    unfinished = unfinished_copies(snapshot)
    if unfinished:
        return Outcome(waiting=f"{len(unfinished)} data movements to finish")
    for each in _requested_copies(snapshot):
        status = each.status
        if status.status in _FAILED_STATUSES:
            # Mostly, it begins with the path that it is about.
            path = each.spec.source.path
            message = status.message if path in status.message else f"{path}: {status.message}"
            raise Fault(
                f"data movement failed: {message}",
                type=status.error.type if status.error else "User",
            )
    return DONE


def _requested_copies(snapshot: WorkflowSnapshot) -> list[NnfDataMovement]:
    workflow = snapshot.workflow
    if not copyservice.is_enabled(workflow):
        return []
    return [
        each
        for each in snapshot.movements
        if each.metadata.name.startswith(movements.name_prefix(workflow))
    ]


def is_about_to_end_post_run(snapshot: WorkflowSnapshot) -> bool:
    """Return whether PostRun is about to say that no copy is left: movements are read anew first.

    What was seen of copies may be older than the job's end, and one that was asked for in its last
    moment would be lost, with what the application was told.
    """
    workflow = snapshot.workflow
    is_ending = workflow.spec.desired_state is State.POST_RUN
    is_over = workflow.status.state is State.POST_RUN and workflow.status.ready
    return (
        is_ending
        and not is_over
        and copyservice.is_enabled(workflow)
        and not unfinished_copies(snapshot)
    )
