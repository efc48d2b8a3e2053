"""What a Workflow's objects are called, and what marks them as its own."""

from collections.abc import Mapping
from typing import Any

import msgspec

from warren.base.objects import Kind
from warren.dws import kinds, labels
from warren.dws.objects.meta import Meta
from warren.dws.objects.workflows import Workflow


def name(workflow: Workflow, index: int) -> str:
    """Return the name of the objects made for one directive."""
    return f"{workflow.metadata.name}-{index}"


def metadata(
    workflow: Workflow, name: str, index: int | None = None, finalizer: str | None = None
) -> dict[str, Any]:
    """Return the metadata of an object in the Workflow's namespace that the Workflow owns.

    `index` is that of the directive that it is made for, if it is made for one.
    """
    own_labels = labels.of_workflow(workflow, index)
    return _owned_metadata(kinds.WORKFLOW, workflow.metadata, name, own_labels, finalizer)


class Owner(msgspec.Struct, frozen=True, kw_only=True):
    """What storage is made for: a Workflow's directive, or what the directive has made.

    Storage of a persistent instance is that of the directive with another `kind` and `meta`
    (`msgspec.structs.replace`): labels and variables are of the Workflow that made it.
    """

    kind: Kind
    meta: Meta
    labels: Mapping[str, str]
    """Labels of everything that is made for it, besides those of the owner."""
    variables: Mapping[str, str]
    """What commands of a profile may name (dws-spec section 8)."""
    userid: int
    groupid: int
    annotations: Mapping[str, str] = msgspec.field(default_factory=dict)

    def metadata(self, name: str, finalizer: str) -> dict[str, Any]:
        """Return the metadata of an object in the owner's namespace."""
        base_metadata = _owned_metadata(self.kind, self.meta, name, self.labels, finalizer)
        return (
            {**base_metadata, "annotations": dict(self.annotations)}
            if self.annotations
            else base_metadata
        )


def owner_for_directive(workflow: Workflow, index: int) -> Owner:
    """Return the owner of storage that lives no longer than its Workflow."""
    spec = workflow.spec
    return Owner(
        kind=kinds.WORKFLOW,
        meta=workflow.metadata,
        labels=labels.of_workflow(workflow, index),
        variables={
            "$JOBID": str(spec.job_id),
            "$DIRECTIVE_INDEX": str(index),
            "$WORKFLOW_UID": workflow.metadata.uid,
            "$USERID": str(spec.user_id),
            "$GROUPID": str(spec.group_id),
        },
        userid=spec.user_id,
        groupid=spec.group_id,
    )


def _owned_metadata(
    kind: Kind, meta: Meta, name: str, base_labels: Mapping[str, str], finalizer: str | None
) -> dict[str, Any]:
    new_metadata: dict[str, Any] = {
        "name": name,
        "namespace": meta.namespace,
        "labels": {**base_labels, **labels.of_owner(kind, meta)},
        "ownerReferences": labels.owner_references(kind, meta),
    }
    if finalizer is not None:
        new_metadata["finalizers"] = [finalizer]
    return new_metadata
