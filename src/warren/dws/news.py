"""Which changes of a Workflow and its children its controller has something to decide on."""

from warren.base.objects import Kind, Object
from warren.dws import kinds, reports
from warren.dws.objects.workflows import State


def is_settled(workflow: Object) -> bool:
    """Return whether `driver.decide` has nothing to say until a Workflow itself changes.

    It is ready in the state that it is asked for. In Proposal it still loses and gets back what
    it is prepared with.
    """
    status = workflow.get("status") or {}
    state = status.get("state")
    return (
        bool(status.get("ready"))
        and state == workflow["spec"].get("desiredState")
        and state != State.PROPOSAL
        and "deletionTimestamp" not in workflow["metadata"]
    )


def is_news(kind: Kind, child: Object, workflow: Object) -> bool:
    """Return whether `driver.decide` may say something else than before this change.

    In the middle of a mount or a copy it does not: the end of that is news, and so is an error.
    A Workflow that shows one hears of everything, since the error may be over.
    """
    status = child.get("status") or {}
    if "deletionTimestamp" in child["metadata"] or status.get("error"):
        return True
    if reports.in_error(workflow):
        return True
    if kind == kinds.NNF_DATA_MOVEMENT:
        return bool(status.get("state") == "Finished")
    if kind == kinds.NNF_ACCESS:
        reached = status.get("state") == child["spec"].get("desiredState")
        return bool(reached and status.get("ready"))
    return True
