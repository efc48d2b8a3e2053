"""Labels, annotations, finalizers and owner references, by which objects find each other.

Of a name that is an annotation's, and no label's, it is said what it annotates.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from warren.base.objects import Key, Kind, Object
from warren.dws.objects.meta import Meta
from warren.dws.objects.workflows import Workflow

_PREFIX: Final = "dataworkflowservices.github.io"
WORKFLOW_NAME: Final = f"{_PREFIX}/workflow.name"
WORKFLOW_NAMESPACE: Final = f"{_PREFIX}/workflow.namespace"
WORKFLOW_UID: Final = f"{_PREFIX}/workflow.uid"
PERSISTENT_NAME: Final = f"{_PREFIX}/persistentstorage.name"
PERSISTENT_NAMESPACE: Final = f"{_PREFIX}/persistentstorage.namespace"
IGNORE_UID: Final = f"{_PREFIX}/ignore-uid"
"""Annotates a PersistentStorageInstance that other users than its own may use, too."""
LOCK: Final = "nnf.cray.hpe.com/access"
"""Annotates an NnfStorage with the NnfAccess that alone mounts it: `name/namespace`."""
STORAGE_TYPE: Final = f"{_PREFIX}/storage"
DIRECTIVE_INDEX: Final = "nnf.cray.hpe.com/directive_index"
PINNED_PROFILE_NAME: Final = "nnf.cray.hpe.com/pinned_storage_profile_name"
PINNED_PROFILE_NAMESPACE: Final = "nnf.cray.hpe.com/pinned_storage_profile_namespace"
TARGET_INDEX: Final = "nnf.cray.hpe.com/target_directive_index"
TARGET_OWNER: Final = "nnf.cray.hpe.com/target_owner_uid"
"""The directive whose storage a ClientMount mounts, and the UID of what the storage is made for."""
TEARDOWN_STATE: Final = "nnf.cray.hpe.com/teardown_state"
CONTAINER: Final = "nnf.cray.hpe.com/container"
"""Says of a pod, and what makes it, of which Workflow's containers it is."""
PINNED_CONTAINER_PROFILE_NAME: Final = "nnf.cray.hpe.com/pinned_container_profile_name"
PINNED_CONTAINER_PROFILE_NAMESPACE: Final = "nnf.cray.hpe.com/pinned_container_profile_namespace"
JOB_ID: Final = "nnf.cray.hpe.com/job_id"
STANDALONE_MGT: Final = "nnf.cray.hpe.com/standalone_mgt"
"""Says of persistent storage that is an MGT alone of which pool it is."""
COPY_PROFILE: Final = "warren.cluster/copy-profile"
"""Annotates an NnfDataMovement with what the profile says that its copy is made by, as JSON: agents
read nothing but what is in their own namespaces."""
SOURCE_STORAGE: Final = "warren.cluster/source-storage"
DESTINATION_STORAGE: Final = "warren.cluster/destination-storage"
"""Annotate an NnfDataMovement with where its rabbit has mounted the storage that an end is in, if
that is no index directory. No link leads a copy out of there (ADR 093)."""
COPY_OFFLOAD: Final = "warren.cluster/copy-offload"
"""Annotates the SystemConfiguration with where the service is that running jobs ask for copies, as
JSON (`dws.offload`)."""
RAW_VOLUMES: Final = "warren.cluster/raw-volumes"
"""Says of a rabbit who may have its volumes as bare devices (`RawVolumeAccess`)."""
UNSUPPORTED_TYPES: Final = "warren.cluster/lacks"
"""Annotates a rabbit with the types of file systems that it does not make, and why, as JSON."""
SUPPORTED_TYPE_PREFIX: Final = "warren.cluster/makes-"
"""Begins the labels of a rabbit with the types that it makes: `warren.cluster/makes-gfs2=true`."""
COMMANDS: Final = "warren.cluster/commands"
"""Annotates a rabbit's share of storage, and its mounts, with the commands of the profile."""
MADE_BY: Final = "warren.cluster/made-by"
"""Annotates the NnfStorage of an instance with the Workflow that has made it: `namespace/name`."""
ENDED_AT: Final = "warren.cluster/ended-at"
"""Annotates a Workflow in DataOut with the moment at which its PostRun began."""
ABORTED: Final = "warren.cluster/aborted"
"""Annotates the Workflow of a job that was let go while it had storage with the moment at which
that was dealt with (`dws.jobs.abort`)."""
ABORTED_NODES: Final = "warren.cluster/aborted-nodes"
"""Annotates it with the job's compute nodes, some of which were drained for it."""
WLM_INSTANCE: Final = "warren.cluster/instance"
"""Which instance of the workload manager a Workflow's job is of."""
MADE_ANEW: Final = "warren.cluster/made-anew"
"""Annotates the Workflow of a job that had lost one while it was queued, with its flash chosen."""
QUEUE: Final = "warren.cluster/queue"
"""Annotates a Workflow with the queue that its job had when it was made: it counts there when the
job is known no more (ADR 107)."""
LOST_NODES: Final = "warren.cluster/lost-nodes"
"""Annotates a Workflow, and its NnfAccesses, with the compute nodes that it goes on without
(`dws.tolerance`)."""
FAILURE_TOLERANCE: Final = "warren.cluster/failure-tolerance"
"""Annotates a Workflow with how many nodes its job may lose to failing storage."""
SHARED_WITH: Final = "warren.cluster/shared-with"
"""Annotates a PersistentStorageInstance with the users and groups that may use it, and what mounts
it with those that its root directory lets in (`dws.persistent.sharing`)."""
USED_INSTANCE: Final = "warren.cluster/used-instance"
"""Annotates the DirectiveBreakdown of a persistentdw with the UID of the instance that it is for:
another one may have its name when the job begins (ADR 106)."""
SUBMITTED_AT: Final = "warren.cluster/submitted-at"
"""Annotates the Workflow of a job that uses persistent storage with when the job was submitted:
what another user has made since cannot be what it asked for (ADR 106)."""
EXPIRES: Final = "warren.cluster/expires"
"""Annotates a PersistentStorageInstance, and what makes one, with the moment when it expires."""
FAILURE: Final = "warren.cluster/failure"
"""Annotates the NnfNode of a rabbit whose flash cannot be used with the reason."""
NETWORK: Final = "warren.cluster/network"
"""Annotates the NnfNode of a rabbit whose compute nodes reach its volumes over a network."""
RABBIT: Final = "warren.cluster/rabbit"
"""Annotates the NnfNode of such a compute node with its rabbit (`dws.rabbits.links`)."""
LOST_LINK: Final = "warren.cluster/lost-link"
"""Annotates it, while the node does not reach its rabbit, with what it says of that."""
LOST_LINKS: Final = "warren.cluster/lost-links"
"""Annotates a Storage with what those of its nodes say that do not reach it."""
DRAINED: Final = "warren.cluster/drained"
"""Annotates a Storage that takes no new allocations, with who says so (`outofservice`)."""
DISABLED: Final = "warren.cluster/disabled"
"""Annotates a Storage that is Disabled with who has done that."""
DISABLED_FOR: Final = "warren.cluster/disabled-for"
"""Annotates it with the Workflow that was let go, where it was done for that: `namespace/name`."""
SELF_TEST: Final = "warren.cluster/self-test"
"""Annotates a Disabled Storage with how its test went, and what is made for that with the rabbit
(`dws.rabbits.selftest`)."""
SYSTEM_STORAGE: Final = "warren.cluster/system-storage"
"""The UID of the NnfSystemStorage that something is part of."""
INITIATOR: Final = "dm.cray.hpe.com/initiator"

WORKFLOW_FINALIZER: Final = f"{_PREFIX}/workflow"
PERSISTENT_FINALIZER: Final = "nnf.cray.hpe.com/persistentStorage"
STORAGE_FINALIZER: Final = "nnf.cray.hpe.com/nnf_storage"
SERVERS_FINALIZER: Final = "nnf.cray.hpe.com/nnf-servers"
"""Keeps Servers until the NnfStorage of their name has gone."""
NODE_STORAGE_FINALIZER: Final = "nnf.cray.hpe.com/nnf_node_storage"
NODE_BLOCK_STORAGE_FINALIZER: Final = "nnf.cray.hpe.com/nnf_node_block_storage"
ACCESS_FINALIZER: Final = "nnf.cray.hpe.com/nnf_access"
CLIENT_MOUNT_FINALIZER: Final = "nnf.cray.hpe.com/nnf_clientmount"
MOVEMENT_FINALIZER: Final = "dm.cray.hpe.com"
SYSTEM_STORAGE_FINALIZER: Final = "nnf.cray.hpe.com/nnf_system_storage"
LUSTRE_MGT_FINALIZER: Final = "nnf.cray.hpe.com/nnf_lustre_mgt"
LUSTRE_FINALIZER: Final = "lus.cray.hpe.com/lustre_fs"

_MAX_VALUE_LENGTH: Final = 63
"""Characters of a label's value."""


def of_workflow(workflow: Workflow, index: int | None = None) -> dict[str, str]:
    """Return the labels of everything that belongs to a Workflow, or to one of its directives."""
    labels = {
        WORKFLOW_NAME: workflow.metadata.name,
        WORKFLOW_NAMESPACE: workflow.metadata.namespace,
        WORKFLOW_UID: workflow.metadata.uid,
    }
    if index is not None:
        labels[DIRECTIVE_INDEX] = str(index)
        labels[JOB_ID] = label_value(str(workflow.spec.job_id))
    return labels


def is_of_another_wlm_instance(workflow_labels: Mapping[str, str], wlm_instance: str) -> bool:
    """Return whether a Workflow's labels say that its job is another workload manager instance's.

    One without a mark is ours: it was made before there were marks, or an admin has taken the mark
    away.
    """
    return workflow_labels.get(WLM_INSTANCE, wlm_instance) != wlm_instance


def label_value(text: str) -> str:
    """Return a text as a label's value, which is not free: NNF writes spaces as dashes."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", text)[:_MAX_VALUE_LENGTH].strip("-_.")


def of_owner(kind: Kind, meta: Meta) -> dict[str, str]:
    """Return the labels that name an object's owner, which may be in another namespace."""
    return {
        f"{_PREFIX}/owner.kind": kind.name,
        f"{_PREFIX}/owner.name": meta.name,
        f"{_PREFIX}/owner.namespace": meta.namespace,
        f"{_PREFIX}/owner.uid": meta.uid,
    }


def of_profile(name: str, namespace: str) -> dict[str, str]:
    """Return the labels that name the profile which was pinned for storage."""
    return {PINNED_PROFILE_NAME: name, PINNED_PROFILE_NAMESPACE: namespace}


def owner_uid(meta: Meta) -> str:
    """Return the UID of an object's owner, as its labels name it."""
    return meta.labels.get(f"{_PREFIX}/owner.uid", "")


def owner_name(object_labels: Mapping[str, str]) -> str:
    """Return the name of the owner that labels name."""
    return object_labels.get(f"{_PREFIX}/owner.name", "")


def is_owner(kind: Kind, owner: Meta, object_labels: Mapping[str, str]) -> bool:
    """Return whether the labels that an object carries name this owner, and no older namesake."""
    return of_owner(kind, owner).items() <= object_labels.items()


def inherited_labels(meta: Meta) -> dict[str, str]:
    """Return a parent's labels without those that name the parent's own owner."""
    return {
        name: value
        for name, value in meta.labels.items()
        if not name.startswith(f"{_PREFIX}/owner.")
    }


def workflow_of(obj: Object) -> tuple[str, ...]:
    """Index objects by the Workflow they belong to: `namespace/name`."""
    labels = obj["metadata"].get("labels") or {}
    if WORKFLOW_NAME not in labels:
        return ()
    return (f"{labels.get(WORKFLOW_NAMESPACE, '')}/{labels[WORKFLOW_NAME]}",)


def owner_of(obj: Object) -> tuple[str, ...]:
    """Index objects by the owner that their labels name: `Kind namespace/name`."""
    labels = obj["metadata"].get("labels") or {}
    name = labels.get(f"{_PREFIX}/owner.name")
    if name is None:
        return ()
    kind = labels.get(f"{_PREFIX}/owner.kind", "")
    return (f"{kind} {labels.get(f'{_PREFIX}/owner.namespace', '')}/{name}",)


def owner_keys(obj: Object) -> tuple[Key, ...]:
    """Return the key of the owner that an object's labels name, of whatever kind, if any."""
    return tuple(Key.parse(owner.partition(" ")[2]) for owner in owner_of(obj))


def persistent_instance_of(obj: Object) -> tuple[str, ...]:
    """Index objects by the persistent storage that they are part of: `namespace/name`."""
    labels = obj["metadata"].get("labels") or {}
    if PERSISTENT_NAME not in labels:
        return ()
    return (f"{labels.get(PERSISTENT_NAMESPACE, '')}/{labels[PERSISTENT_NAME]}",)


def owner_references(kind: Kind, meta: Meta) -> list[Mapping[str, Any]]:
    """Return the ownerReferences of a child in the same namespace."""
    return [
        {
            "apiVersion": kind.api_version,
            "kind": kind.name,
            "name": meta.name,
            "uid": meta.uid,
            "controller": True,
            "blockOwnerDeletion": True,
        }
    ]


def without_finalizer(meta: Meta, finalizer: str) -> dict[str, Any]:
    """Return the patch that takes one finalizer off and leaves the others."""
    return {"metadata": {"finalizers": [each for each in meta.finalizers if each != finalizer]}}
