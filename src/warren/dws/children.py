"""What a Workflow's objects are called, and what marks them as its own."""

from typing import Any

from warren.dws import kinds, labels
from warren.dws.objects import Workflow


def name(workflow: Workflow, index: int) -> str:
    """Return the name of the objects made for one directive."""
    return f"{workflow.metadata.name}-{index}"


def metadata(
    workflow: Workflow, name: str, index: int | None = None, finalizer: str | None = None
) -> dict[str, Any]:
    """Return the metadata of an object in the Workflow's namespace that the Workflow owns.

    `index` is that of the directive that it is made for, if it is one's.
    """
    meta = workflow.metadata
    made: dict[str, Any] = {
        "name": name,
        "namespace": meta.namespace,
        "labels": {
            **labels.of_workflow(workflow, index),
            **labels.of_owner(kinds.WORKFLOW, meta),
        },
        "ownerReferences": labels.controller(kinds.WORKFLOW, meta),
    }
    if finalizer is not None:
        made["finalizers"] = [finalizer]
    return made
