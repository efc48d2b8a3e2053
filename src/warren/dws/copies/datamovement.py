"""NnfDataMovement: one copy of one staging directive, for one allocation of one rabbit."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from warren.base.objects import Object
from warren.directives.parse import Directive
from warren.dws import kinds, labels
from warren.dws.copies import copyprofiles, staging
from warren.dws.faults import Fault
from warren.dws.node import LUSTRE
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.workflows import State, Workflow

_STATE_BY_COMMAND: Final[Mapping[str, State]] = {
    "copy_in": State.DATA_IN,
    "copy_out": State.DATA_OUT,
}
"""In which state a command copies: what NNF writes as its movements' teardown state."""


def movements(
    workflow: Workflow,
    index: int,
    directive: Directive,
    storage: NnfStorage,
    file_systems: Sequence[LustreFileSystem],
    mount_path: str,
    allocation_numbers: Mapping[str, Sequence[int]] | None = None,
    profile: Object | None = None,
) -> list[Object]:
    """Make the movements of a copy_in or copy_out, one for each allocation of its storage.

    A Lustre file system is one, which a rabbit with OSTs copies to or from (dws-spec section 11).
    `allocation_numbers` are those that are meant, by rabbit; None for all. `profile` is the
    directive's own. Raises Fault where the global file system is gone, and for a bad profile.
    """
    meta = workflow.metadata
    annotations, profile_fields = copyprofiles.movement_additions(profile)
    command = directive.command.text
    is_lustre = storage.spec.file_system_type == LUSTRE
    allocations = (
        _lustre_allocation(storage)
        if is_lustre
        else _allocations_to_copy(storage, allocation_numbers)
    )
    objects: list[Object] = []
    for rabbit, number in allocations:
        storage_root = mount_path if is_lustre else f"{mount_path}/{rabbit}-{number}"
        root_annotations = (
            {_ROOT_ANNOTATIONS[staging.STORAGE_ARGUMENT_BY_COMMAND[command]]: storage_root}
            if is_lustre
            else {}
        )
        ends = {
            key: _end(directive.values[key], storage, file_systems, storage_root)
            for key in ("source", "destination")
        }
        objects.append(
            {
                "metadata": {
                    "name": f"{meta.name}-{index}-{number}",
                    "namespace": rabbit,
                    "labels": {
                        **labels.of_workflow(workflow, index),
                        **labels.of_owner(kinds.WORKFLOW, meta),
                        labels.INITIATOR: command,
                        labels.TEARDOWN_STATE: _STATE_BY_COMMAND[command],
                    },
                    "finalizers": [labels.MOVEMENT_FINALIZER],
                    **(
                        {"annotations": {**annotations, **root_annotations}}
                        if annotations or root_annotations
                        else {}
                    ),
                },
                "spec": {
                    **ends,
                    "userId": workflow.spec.user_id,
                    "groupId": workflow.spec.group_id,
                    "cancel": False,
                    **profile_fields,
                },
            }
        )
    return objects


_ROOT_ANNOTATIONS: Final = {
    "source": labels.SOURCE_STORAGE,
    "destination": labels.DESTINATION_STORAGE,
}


def _allocations_to_copy(
    storage: NnfStorage, allocation_numbers: Mapping[str, Sequence[int]] | None
) -> Iterator[tuple[str, int]]:
    """Return the allocations that are copied to or from: each one's rabbit, and number there."""
    count_by_rabbit: dict[str, int] = {}
    for each in storage.spec.allocation_sets:
        for node in each.nodes:
            first = count_by_rabbit.get(node.name, 0)
            count_by_rabbit[node.name] = first + node.count
            for number in range(first, first + node.count):
                if allocation_numbers is None or number in allocation_numbers.get(node.name, ()):
                    yield node.name, number


def _lustre_allocation(storage: NnfStorage) -> Iterator[tuple[str, int]]:
    """Return what stands for a Lustre file system: the first rabbit that mounts it, and 0.

    Those with OSTs mount it (`dws.access.clientmounts`).
    """
    rabbits = (
        node.name for each in storage.spec.allocation_sets if each.name == "ost"
        for node in each.nodes
    )  # fmt: skip
    for first in islice(rabbits, 1):
        yield first, 0


def _end(
    text: str,
    storage: NnfStorage,
    file_systems: Sequence[LustreFileSystem],
    storage_root: str,
) -> Mapping[str, object]:
    staging_path = staging.parse(text)
    if staging_path.storage is not None:
        reference = {
            "kind": "NnfStorage",
            "name": storage.metadata.name,
            "namespace": storage.metadata.namespace,
        }
        return {
            "path": staging.path_inside(storage_root, staging_path.path),
            "storageReference": reference,
        }
    file_system = staging.file_system_of(staging_path.path, file_systems)
    if file_system is None:  # it was there in Proposal
        raise Fault(
            f"no global file system contains {staging_path.path!r} any more", severity="Major"
        )
    reference = {
        "kind": "LustreFileSystem",
        "name": file_system.metadata.name,
        "namespace": file_system.metadata.namespace,
    }
    return {"path": staging_path.path, "storageReference": reference}
