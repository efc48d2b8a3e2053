"""What there is on nodes and in the API that nothing owns any more.

Nothing should ever be found: each reconcile of each controller gives back what it
made. This is for what bugs, foreign hands and restored backups leave behind.
"""

from collections.abc import Collection, Mapping, Sequence
from enum import StrEnum

import msgspec

from warren.base.bytesize import format_bytes
from warren.base.objects import Key, Kind, Object, Remove, key_of
from warren.dws import kinds, labels
from warren.dws.node import IN_USE_SEVERITY
from warren.dws.objects.accesses import ClientMount
from warren.dws.objects.assignments import Computes
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage
from warren.dws.objects.workflows import Workflow
from warren.dws.storage.nnfstorage import volume_group_and_name, volume_size
from warren.rfc import hostlist

OWNERS = (kinds.WORKFLOW, kinds.PERSISTENT_INSTANCE, kinds.SYSTEM_STORAGE, kinds.STORAGE)
"""The kinds of objects that storage is made for."""

DEPENDENTS = (
    kinds.COMPUTES,
    kinds.BREAKDOWN,
    kinds.SERVERS,
    kinds.NNF_STORAGE,
    kinds.NNF_ACCESS,
    kinds.NNF_DATA_MOVEMENT,
    kinds.NNF_NODE_STORAGE,
    kinds.NNF_NODE_BLOCK_STORAGE,
    kinds.CLIENT_MOUNT,
)
"""The kinds of objects that belong to a Workflow, owners before what they own."""


class FindingType(StrEnum):
    """What a finding is about."""

    VOLUME = "volume"
    MOUNT = "mount"
    DEVICE = "device"
    PROCESS = "process"
    OBJECT = "object"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that nothing owns."""

    type: FindingType
    where: str
    """The node, or the kind of an object."""
    name: str
    """A volume's name, a mount point, a device, a process id, or `namespace/name`."""
    why: str
    uid: str = ""
    """Of an object: another one may have its name by the time that it is removed."""


class NodeInventory(msgspec.Struct, frozen=True, kw_only=True):
    """What is there, whatever owns it. Pairs are of a node and a name there."""

    volumes: frozenset[tuple[str, str]] = frozenset()
    mounts: frozenset[tuple[str, str]] = frozenset()
    devices: frozenset[tuple[str, str]] = frozenset()
    """Loop devices on rabbits' disks that show no volume as its record says."""
    processes: Mapping[int, str]
    """The tasks of jobs: process ids, and the ids of the jobs."""

    def intersection(self, later: "NodeInventory") -> "NodeInventory":
        """Return what was there, and is there later, too: not what is just coming or going."""
        return NodeInventory(
            volumes=self.volumes & later.volumes,
            mounts=self.mounts & later.mounts,
            devices=self.devices & later.devices,
            processes={
                process: job
                for process, job in self.processes.items()
                if later.processes.get(process) == job
            },
        )


class PendingRemoval(msgspec.Struct, frozen=True, kw_only=True):
    """What nodes are to remove, and still have: the userid of each, by node and name there."""

    volumes: Mapping[tuple[str, str], int]
    mounts: Mapping[tuple[str, str], int]


def orphans(
    inventory: NodeInventory,
    objects: Mapping[Kind, Sequence[Object]],
    active_job_ids: Collection[str],
) -> list[Finding]:
    """Return all that nothing owns: objects come in the order in which they are to be removed.

    `objects` are all of `OWNERS` and all of `DEPENDENTS`; `active_job_ids` those of the
    jobs that are not over.
    """
    findings = [
        Finding(
            type=FindingType.PROCESS,
            where="",
            name=str(process),
            why=f"its job {job} is over",
        )
        for process, job in sorted(inventory.processes.items())
        if job not in active_job_ids
    ]
    workflow_uids = {each["metadata"]["uid"] for each in objects[kinds.WORKFLOW]}
    instance_keys = {str(key_of(each)) for each in objects[kinds.PERSISTENT_INSTANCE]}
    system_storage_uids = {
        each["metadata"]["uid"] for each in objects.get(kinds.SYSTEM_STORAGE, ())
    }
    rabbit_names = {each["metadata"]["name"] for each in objects.get(kinds.STORAGE, ())}
    for kind in DEPENDENTS:
        for each in objects[kind]:
            object_labels = each["metadata"].get("labels") or {}
            if object_labels.get(labels.SYSTEM_STORAGE) in system_storage_uids or (
                object_labels.get(labels.SELF_TEST) in rabbit_names
            ):
                continue
            instance = labels.persistent_instance_of(each)
            if instance and labels.WORKFLOW_UID not in object_labels:
                if instance[0] not in instance_keys:
                    why = f"the persistent storage {instance[0]} does not exist"
                    findings.append(_orphan(kind, each, why))
            elif object_labels.get(labels.WORKFLOW_UID) not in workflow_uids:
                name = object_labels.get(labels.WORKFLOW_NAME, "that it names")
                findings.append(_orphan(kind, each, f"the Workflow {name} does not exist"))
    return [*findings, *unrequested_resources(inventory, objects)]


def _orphan(kind: Kind, obj: Object, why: str) -> Finding:
    return Finding(
        type=FindingType.OBJECT,
        where=kind.name,
        name=str(key_of(obj)),
        why=why,
        uid=obj["metadata"]["uid"],
    )


def unrequested_resources(
    inventory: NodeInventory, objects: Mapping[Kind, Sequence[Object]]
) -> list[Finding]:
    """Return the mounts, devices and volumes of nodes that none of their objects asks for.

    `objects` are the ClientMounts of these nodes and, for rabbits, the NnfNodeStorages.
    """
    requested_mounts = {
        (mount.spec.node, each.mount_path)
        for mount in (read(each, ClientMount) for each in objects[kinds.CLIENT_MOUNT])
        for each in mount.spec.mounts
    }
    findings = [
        Finding(type=FindingType.MOUNT, where=node, name=path, why="no ClientMount asks for it")
        for node, path in sorted(inventory.mounts - requested_mounts)
    ]
    findings += [
        Finding(
            type=FindingType.DEVICE,
            where=rabbit,
            name=device,
            why="it shows no volume of the rabbit",
        )
        for rabbit, device in sorted(inventory.devices)
    ]
    requested_volumes = {
        volume_group_and_name(share, number)
        for share in (
            read(each, NnfNodeStorage) for each in objects.get(kinds.NNF_NODE_STORAGE, ())
        )
        for number in range(share.spec.count)
    }
    findings += [
        Finding(
            type=FindingType.VOLUME, where=rabbit, name=name, why="no NnfNodeStorage asks for it"
        )
        for rabbit, name in sorted(inventory.volumes - requested_volumes)
    ]
    return findings


def pending_removal(objects: Mapping[Kind, Sequence[Object]]) -> PendingRemoval:
    """Return the volumes and mounts that their objects say are to go."""
    shares = [read(each, NnfNodeStorage) for each in objects[kinds.NNF_NODE_STORAGE]]
    mounts = [read(each, ClientMount) for each in objects[kinds.CLIENT_MOUNT]]
    return PendingRemoval(
        volumes={
            volume_group_and_name(share, number): share.spec.user_id
            for share in shares
            if share.metadata.deleting
            for number in range(share.spec.count)
        },
        mounts={
            (mount.spec.node, each.mount_path): each.user_id
            for mount in mounts
            if mount.metadata.deleting or mount.spec.desired_state == "unmounted"
            for each in mount.spec.mounts
        },
    )


class OverdueVolumes(msgspec.Struct, frozen=True, kw_only=True):
    """Volumes of a job on a rabbit that are to go and have not, when they were waited for."""

    rabbit: str
    names: Sequence[str]
    size: int
    """Bytes of each."""
    userid: int
    job: str
    nodes: Sequence[str]
    """Where processes of the job were."""
    reason: str
    """In the words of the rabbit."""


def overdue_volumes(objects: Mapping[Kind, Sequence[Object]]) -> list[OverdueVolumes]:
    """Return the volumes that are to go, and of which their rabbit reports more than a use."""
    workflows_by_uid = {each["metadata"]["uid"]: each for each in objects[kinds.WORKFLOW]}
    computes_by_key = {key_of(each): each for each in objects[kinds.COMPUTES]}
    block_storages_by_key = {key_of(each): each for each in objects[kinds.NNF_NODE_BLOCK_STORAGE]}
    overdue = []
    for share in (read(raw, NnfNodeStorage) for raw in objects[kinds.NNF_NODE_STORAGE]):
        block_storage = block_storages_by_key.get(share.metadata.key)
        error = share.status.error
        if not share.metadata.deleting or error is None or error.severity == IN_USE_SEVERITY:
            continue
        workflow = workflows_by_uid.get(share.metadata.labels.get(labels.WORKFLOW_UID, ""))
        raw_computes = computes_by_key.get(key_of(workflow)) if workflow else None
        overdue.append(
            OverdueVolumes(
                rabbit=share.metadata.namespace,
                names=[
                    volume_group_and_name(share, number)[1] for number in range(share.spec.count)
                ],
                size=volume_size(
                    share, read(block_storage, NnfNodeBlockStorage) if block_storage else None, 0
                ),
                userid=share.spec.user_id,
                job=str(read(workflow, Workflow).spec.job_id) if workflow else "",
                nodes=[each.name for each in read(raw_computes, Computes).data]
                if raw_computes
                else [],
                reason=error.debug_message,
            )
        )
    return overdue


def overdue_finding(overdue: OverdueVolumes, name: str, user: str, candidates: str) -> Finding:
    """Return the finding that a volume is kept, and that no process is seen to keep it.

    `candidates` names the processes of its user, of which any may do so; it may be empty.
    """
    where = hostlist.encode([*overdue.nodes, overdue.rabbit])
    of_job = f", job {overdue.job}" if overdue.job else ""
    hint = f"; any of these may keep it: {candidates}" if candidates else ""
    return Finding(
        type=FindingType.VOLUME,
        where=overdue.rabbit,
        name=name,
        why=(
            f"{format_bytes(overdue.size)} of {user} (user {overdue.userid}{of_job}) are to go, "
            f"and no process is seen to keep them: {overdue.reason}. End the processes of {user} "
            f"on {where}, or restart these nodes{hint}"
        ),
    )


def busy_finding(where: str, name: str, process_id: str, command: str, *, is_own: bool) -> Finding:
    """Return the finding that a process keeps a volume or a mount that is to go.

    `is_own` is whether it is a process of the storage's user.
    """
    hint = "" if is_own else ": it is another user's, end it by hand"
    return Finding(
        type=FindingType.PROCESS,
        where=where,
        name=process_id,
        why=f"{command} keeps {name}, which is to go{hint}",
    )


def removal(finding: Finding) -> Remove:
    """Return the write that removes an object that was found, and no other of its name."""
    kind = next(each for each in DEPENDENTS if each.name == finding.where)
    namespace, _, name = finding.name.rpartition("/")
    return Remove(kind=kind, key=Key(namespace, name), uid=finding.uid)
