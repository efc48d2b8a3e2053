"""The objects as far as decisions read them.

Decoded here, and sent back only as patches, so that fields that are not known
here survive. Sizes are bytes.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cached_property, lru_cache
from typing import Any, Final, TypeVar

import msgspec

from warren.base.errors import UserMistake
from warren.base.objects import Key, Object
from warren.base.times import parse_rfc3339

T = TypeVar("T")


class Malformed(UserMistake):
    """An object that is not of its kind; the sentence names the path."""


class _Reading:
    """An object as a kind. The same object is the same reading; an equal one is another."""

    __slots__ = ("kind", "object")

    def __init__(self, obj: Object, kind: type[Any]) -> None:
        self.object = obj
        self.kind = kind

    def __hash__(self) -> int:
        return hash((id(self.object), self.kind))

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, _Reading) and self.object is other.object and self.kind is other.kind
        )


@lru_cache(maxsize=2**14)
def _decoded(reading: _Reading) -> Any:
    return msgspec.convert(reading.object, type=reading.kind)


def read(obj: Object, kind: type[T]) -> T:
    """Decode an object. Raises Malformed with the path of what is wrong.

    Objects are never modified, and each reconcile reads dozens of them: what was decoded
    lately is not decoded again.
    """
    try:
        found: T = _decoded(_Reading(obj, kind))
    except msgspec.ValidationError as error:
        metadata = obj.get("metadata", {})
        raise Malformed(f"{obj.get('kind')} {metadata.get('name')}: {error}") from None
    return found


class _Struct(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    pass


class State(StrEnum):
    """The seven states of a Workflow, in order."""

    PROPOSAL = "Proposal"
    SETUP = "Setup"
    DATA_IN = "DataIn"
    PRE_RUN = "PreRun"
    POST_RUN = "PostRun"
    DATA_OUT = "DataOut"
    TEARDOWN = "Teardown"


class Meta(_Struct, frozen=True):
    """What every object's metadata says."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    finalizers: tuple[str, ...] = ()
    resource_version: str | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def deleting(self) -> bool:
        return self.deletion_timestamp is not None


class Reference(_Struct, frozen=True):
    """A reference to an object."""

    kind: str = ""
    name: str = ""
    namespace: str = ""

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


class Error(_Struct, frozen=True):
    """The `error` of most statuses."""

    debug_message: str
    user_message: str = ""
    type: str = "Internal"
    severity: str = "Minor"


class WorkflowSpec(_Struct, frozen=True):
    desired_state: State
    job_id: int | str = msgspec.field(name="jobID", default=0)
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)
    wlm_id: str = msgspec.field(name="wlmID", default="")
    dw_directives: tuple[str, ...] = msgspec.field(name="dwDirectives", default=())
    hurry: bool = False
    force_ready: bool = False


class DriverStatus(_Struct, frozen=True):
    """One piece of work of a driver, in one state, on one directive."""

    driver_id: str = msgspec.field(name="driverID")
    dwd_index: int
    watch_state: State
    status: str = "Pending"
    completed: bool = False
    message: str = ""
    error: str = ""
    complete_time: str | None = None


class SecretReference(_Struct, frozen=True):
    """Where a Secret is."""

    secret_name: str
    secret_namespace: str

    @property
    def key(self) -> Key:
        return Key(self.secret_namespace, self.secret_name)


class WorkflowStatus(_Struct, frozen=True):
    state: State | None = None
    ready: bool = False
    status: str = ""
    message: str = ""
    env: Mapping[str, str] = {}
    drivers: tuple[Mapping[str, Any], ...] = ()
    directive_breakdowns: tuple[Reference, ...] = ()
    computes: Reference | None = None
    requires: tuple[str, ...] = ()
    workflow_token: SecretReference | None = None
    desired_state_change: str | None = None
    elapsed_time_last_state: str | None = None


class Workflow(_Struct, frozen=True):
    metadata: Meta
    spec: WorkflowSpec
    status: WorkflowStatus = WorkflowStatus()

    @property
    def reached(self) -> bool:
        """Whether the state that is desired is there, and done with."""
        return self.status.state is self.spec.desired_state and self.status.ready


class Compute(_Struct, frozen=True):
    name: str


class Computes(_Struct, frozen=True):
    metadata: Meta
    data: tuple[Compute, ...] = ()


EXCLUSIVE: Final = "exclusive"
"""The colocation by which allocations with one key are on different rabbits."""


class Colocation(_Struct, frozen=True):
    type: str = EXCLUSIVE
    key: str = ""


class Constraints(_Struct, frozen=True):
    labels: tuple[str, ...] = ()
    count: int | None = None
    scale: int | None = None
    most: int | None = None
    """How many allocations there may be: a site's, and in no breakdown."""
    colocation: tuple[Colocation, ...] = ()


class AllocationNeed(_Struct, frozen=True):
    """One allocation set of a breakdown: what storage is needed."""

    allocation_strategy: str
    minimum_capacity: int
    label: str
    constraints: Constraints = Constraints()


class BreakdownStorage(_Struct, frozen=True):
    lifetime: str = "job"
    reference: Reference = Reference()
    allocation_sets: tuple[AllocationNeed, ...] = ()


class BreakdownSpec(_Struct, frozen=True):
    directive: str
    user_id: int = msgspec.field(name="userID", default=0)


class ConstraintAccess(_Struct, frozen=True):
    type: str
    """`network` or `physical`."""
    priority: str
    """`mandatory` or `bestEffort`."""


class PlaceReference(Reference, frozen=True):
    field_path: str = ""
    """The part of the object: `servers.spec.allocationSets[0]`."""


class LocationConstraint(_Struct, frozen=True):
    """In which ways a job's nodes must reach an allocation set."""

    access: tuple[ConstraintAccess, ...] = ()
    reference: PlaceReference = PlaceReference()


class ComputeConstraints(_Struct, frozen=True):
    location: tuple[LocationConstraint, ...] = ()


class BreakdownCompute(_Struct, frozen=True):
    constraints: ComputeConstraints = ComputeConstraints()


class BreakdownStatus(_Struct, frozen=True):
    ready: bool = False
    storage: BreakdownStorage | None = None
    compute: BreakdownCompute | None = None
    requires: tuple[str, ...] = ()
    required_daemons: tuple[str, ...] = ()
    """The older word for `requires`."""
    error: Error | None = None


class DirectiveBreakdown(_Struct, frozen=True):
    metadata: Meta
    spec: BreakdownSpec
    status: BreakdownStatus = BreakdownStatus()


class StorageShare(_Struct, frozen=True):
    name: str
    allocation_count: int = 1


class ServersSet(_Struct, frozen=True):
    label: str
    allocation_size: int
    storage: tuple[StorageShare, ...] = ()


class ServersSpec(_Struct, frozen=True):
    allocation_sets: tuple[ServersSet, ...] = ()


class ServersStatus(_Struct, frozen=True):
    ready: bool = False
    allocation_sets: tuple[Mapping[str, Any], ...] = ()


class Servers(_Struct, frozen=True):
    metadata: Meta
    spec: ServersSpec = ServersSpec()
    status: ServersStatus = ServersStatus()


class PersistentSpec(_Struct, frozen=True):
    name: str
    fs_type: str
    dw_directive: str = ""
    user_id: int = msgspec.field(name="userID", default=0)
    state: str = "Active"
    consumer_references: tuple[Reference, ...] = ()


class PersistentStatus(_Struct, frozen=True):
    state: str = ""
    servers: Reference | None = None
    error: Error | None = None


class PersistentStorageInstance(_Struct, frozen=True):
    """Storage that outlives the Workflow that has made it."""

    metadata: Meta
    spec: PersistentSpec
    status: PersistentStatus = PersistentStatus()


class ComputeLink(_Struct, frozen=True):
    name: str
    status: str = ""


class StorageAccess(_Struct, frozen=True):
    servers: tuple[ComputeLink, ...] = ()
    computes: tuple[ComputeLink, ...] = ()


class StorageSpec(_Struct, frozen=True):
    state: str = "Enabled"
    mode: str = "Live"


class StorageDevice(_Struct, frozen=True):
    capacity: int = 0
    serial_number: str = ""
    status: str = ""


class StorageStatus(_Struct, frozen=True):
    type: str = ""
    status: str = "Starting"
    capacity: int = 0
    access: StorageAccess = StorageAccess()
    devices: tuple[StorageDevice, ...] = ()
    message: str = ""
    reboot_required: bool = False


class Storage(_Struct, frozen=True):
    """A rabbit."""

    metadata: Meta
    spec: StorageSpec = StorageSpec()
    status: StorageStatus = StorageStatus()


class ComputeAccess(_Struct, frozen=True):
    name: str
    index: int = 0


class StorageNode(_Struct, frozen=True):
    name: str
    type: str = "Rabbit"
    computes_access: tuple[ComputeAccess, ...] = ()


class ExternalCompute(_Struct, frozen=True):
    name: str


class SystemConfigurationSpec(_Struct, frozen=True):
    storage_nodes: tuple[StorageNode, ...] = ()
    external_compute_nodes: tuple[ExternalCompute, ...] = ()
    ports: tuple[int | str, ...] = ()
    """Numbers, and ranges such as 5000-5099."""
    ports_cooldown_in_seconds: int = 60
    container_host_port_range_min: int | None = None
    """The container RFC's form of `ports`, and so is the other end of the range."""
    container_host_port_range_max: int | None = None


class SystemConfigurationStatus(_Struct, frozen=True):
    ready: bool = False
    error: Error | None = None


class SystemConfiguration(_Struct, frozen=True, dict=True):
    metadata: Meta
    spec: SystemConfigurationSpec = SystemConfigurationSpec()
    status: SystemConfigurationStatus = SystemConfigurationStatus()

    def rabbits_of_computes(self) -> Mapping[str, str]:
        """Return each compute node's rabbit. Made once: a job looks up a few of them."""
        return self._rabbits

    @cached_property
    def _rabbits(self) -> dict[str, str]:
        return {
            compute.name: node.name
            for node in self.spec.storage_nodes
            for compute in node.computes_access
        }

    def nodes(self) -> dict[str, None]:
        """Return the names of all nodes, rabbits and computes, in order."""
        return dict.fromkeys([*(node.name for node in self.spec.storage_nodes), *self.wiring()])

    def wiring(self) -> dict[str, str]:
        """Return each compute node's rabbit; empty for nodes that are wired to none."""
        external = {node.name: "" for node in self.spec.external_compute_nodes}
        return external | self._rabbits


class NodeCount(_Struct, frozen=True):
    name: str
    count: int


class NnfStorageSet(_Struct, frozen=True):
    name: str
    capacity: int
    command_variables: tuple[Mapping[str, Any], ...] = ()
    nodes: tuple[NodeCount, ...] = ()


class NnfStorageSpec(_Struct, frozen=True):
    file_system_type: str
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)
    allocation_sets: tuple[NnfStorageSet, ...] = ()


class NnfStorageStatus(_Struct, frozen=True):
    ready: bool = False
    health: str = ""
    file_system_name: str = ""
    """Of Lustre, and so is the address of its MGS."""
    mgs_address: str = ""
    error: Error | None = None


class NnfStorage(_Struct, frozen=True):
    metadata: Meta
    spec: NnfStorageSpec
    status: NnfStorageStatus = NnfStorageStatus()


class LustreTargets(_Struct, frozen=True):
    """What the allocations of a share of Lustre are: targets of one kind, in order."""

    target_type: str
    file_system_name: str = ""
    mgs_address: str = ""
    start_index: int = 0
    back_fs: str = "zfs"


class LustreClaim(_Struct, frozen=True):
    reference: Reference
    fsname: str = ""


class LustreMgtSpec(_Struct, frozen=True):
    addresses: tuple[str, ...] = ()
    fs_name_start: str = "aaaaaaaa"
    fs_name_black_list: tuple[str, ...] = ()
    claim_list: tuple[Reference, ...] = ()


class LustreMgtStatus(_Struct, frozen=True):
    fs_name_next: str = ""
    claim_list: tuple[LustreClaim, ...] = ()


class NnfLustreMGT(_Struct, frozen=True):
    """An MGT, which gives each Lustre file system that it serves a name of its own."""

    metadata: Meta
    spec: LustreMgtSpec = LustreMgtSpec()
    status: LustreMgtStatus = LustreMgtStatus()


class NnfNodeStorageSpec(_Struct, frozen=True):
    count: int
    capacity: int
    file_system_type: str
    block_reference: Reference | None = None
    """What the volumes are made of; None in objects of versions that had no such kind."""
    lustre_storage: LustreTargets | None = None
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)


class BlockAllocation(_Struct, frozen=True):
    capacity: int
    access: tuple[str, ...] = ()


class NnfNodeBlockStorageSpec(_Struct, frozen=True):
    allocations: tuple[BlockAllocation, ...] = ()
    shared_allocation: bool = False


class NnfNodeBlockStorageStatus(_Struct, frozen=True):
    ready: bool = False


class NnfNodeBlockStorage(_Struct, frozen=True):
    """The flash under the share of one rabbit, and which nodes reach it."""

    metadata: Meta
    spec: NnfNodeBlockStorageSpec = NnfNodeBlockStorageSpec()
    status: NnfNodeBlockStorageStatus = NnfNodeBlockStorageStatus()


class NnfNodeStorageStatus(_Struct, frozen=True):
    ready: bool = False
    error: Error | None = None


class NnfNodeStorage(_Struct, frozen=True):
    """The share of one rabbit in an NnfStorage: `count` allocations of `capacity` bytes.

    That is what the user gets; a volume has more, as much as the NnfNodeBlockStorage says.
    """

    metadata: Meta
    spec: NnfNodeStorageSpec
    status: NnfNodeStorageStatus = NnfNodeStorageStatus()


class NnfAccessSpec(_Struct, frozen=True):
    desired_state: str
    target: str
    mount_path: str
    storage_reference: Reference
    client_reference: Reference | None = None
    make_client_mounts: bool = True
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)


class NnfAccessStatus(_Struct, frozen=True):
    state: str = ""
    ready: bool = False
    error: Error | None = None


class NnfAccess(_Struct, frozen=True):
    metadata: Meta
    spec: NnfAccessSpec
    status: NnfAccessStatus = NnfAccessStatus()


class LvmDevice(_Struct, frozen=True):
    volume_group: str
    logical_volume: str


class LustreDevice(_Struct, frozen=True):
    file_system_name: str
    mgs_addresses: str


class Device(_Struct, frozen=True):
    type: str
    lvm: LvmDevice | None = None
    lustre: LustreDevice | None = None


class Mount(_Struct, frozen=True):
    mount_path: str
    type: str
    device: Device
    user_id: int = msgspec.field(name="userID", default=0)
    group_id: int = msgspec.field(name="groupID", default=0)


class MountInfo(_Struct, frozen=True):
    state: str = ""
    ready: bool = False


class ClientMountSpec(_Struct, frozen=True):
    node: str
    desired_state: str
    mounts: tuple[Mount, ...]


class ClientMountStatus(_Struct, frozen=True):
    mounts: tuple[MountInfo, ...] = ()
    all_ready: bool = False
    error: Error | None = None


class ClientMount(_Struct, frozen=True):
    """The mounts of one job on one node."""

    metadata: Meta
    spec: ClientMountSpec
    status: ClientMountStatus = ClientMountStatus()

    def all_in(self, state: str) -> bool:
        """Whether every mount is in `state` and ready."""
        return (
            self.status.all_ready
            and len(self.status.mounts) == len(self.spec.mounts)
            and all(mount.state == state and mount.ready for mount in self.status.mounts)
        )


class MovementEnd(_Struct, frozen=True):
    path: str
    storage_reference: Reference = Reference()


class UserConfig(_Struct, frozen=True):
    dryrun: bool = False


class NnfDataMovementSpec(_Struct, frozen=True):
    source: MovementEnd
    destination: MovementEnd
    user_id: int = 0
    group_id: int = 0
    cancel: bool = False
    user_config: UserConfig = UserConfig()


class CommandStatus(_Struct, frozen=True):
    progress: int | None = None
    files: int | None = None
    data: str = ""
    rate: str = ""
    last_message: str = ""
    last_message_time: str | None = None
    """When it last went on."""


class NnfDataMovementStatus(_Struct, frozen=True):
    state: str = ""
    status: str = ""
    message: str = ""
    restarts: int = 0
    end_time: str | None = None
    """When the last try has ended."""
    command_status: CommandStatus | None = None
    error: Error | None = None

    @property
    def last_moved(self) -> float | None:
        """When the copy last went on, in seconds since the epoch."""
        last = self.command_status.last_message_time if self.command_status else None
        return parse_rfc3339(last) if last else None


class NnfDataMovement(_Struct, frozen=True):
    metadata: Meta
    spec: NnfDataMovementSpec
    status: NnfDataMovementStatus = NnfDataMovementStatus()


class VolumesSpec(_Struct, frozen=True):
    """In which modes a namespace is to have volumes of a file system."""

    modes: tuple[str, ...] = ()


class LustreSpec(_Struct, frozen=True):
    name: str
    mount_root: str
    namespaces: Mapping[str, VolumesSpec] = {}


class VolumeStatus(_Struct, frozen=True):
    state: str = ""
    persistent_volume_ref: Mapping[str, str] | None = None
    persistent_volume_claim_ref: Mapping[str, str] | None = None

    @property
    def is_there(self) -> bool:
        """Whether a volume or a claim has been made."""
        return bool(self.persistent_volume_ref or self.persistent_volume_claim_ref)


class VolumesStatus(_Struct, frozen=True):
    modes: Mapping[str, VolumeStatus] = {}


class LustreStatus(_Struct, frozen=True):
    namespaces: Mapping[str, VolumesStatus] = {}


class LustreFileSystem(_Struct, frozen=True):
    metadata: Meta
    spec: LustreSpec
    status: LustreStatus = LustreStatus()


class FileSystemProfile(_Struct, frozen=True):
    """How one kind of file system is made that is on one allocation."""

    capacity_scaling_factor: str = "1.0"
    allocation_padding: str = "0"
    """What comes on top: bytes, a size, or percent."""
    storage_labels: tuple[str, ...] = ()
    shared_allocation: bool = False
    variable_override: Mapping[str, str] = {}
    block_device_commands: Mapping[str, Any] = {}
    file_system_commands: Mapping[str, Any] = {}
    user_commands: Mapping[str, Any] = {}

    @property
    def commands(self) -> Mapping[str, Mapping[str, Any]]:
        """Command lines, in the groups that the profile has them in."""
        return {
            "blockDeviceCommands": self.block_device_commands,
            "fileSystemCommands": self.file_system_commands,
            "userCommands": self.user_commands,
        }


class LustreTarget(_Struct, frozen=True):
    """How the targets of one kind are made and placed; not every kind has every option."""

    capacity: str = "5GiB"
    capacity_scaling_factor: str = "1.0"
    """Of an OST, whose capacity is what the directive asks for."""
    exclusive: bool = False
    """Of an MDT: not beside another one that is."""
    external_mgs: str = ""
    standalone_mgt_pool_name: str = ""
    colocate_computes: bool = False
    count: int | None = None
    scale: int | None = None
    storage_labels: tuple[str, ...] = ()
    variable_override: Mapping[str, str] = {}
    commandlines: Mapping[str, Any] = {}
    pre_mount_commands: tuple[str, ...] = ()
    """Of an MGT, for each file system that it is to serve."""

    @property
    def commands(self) -> Mapping[str, Any]:
        """Command lines, in the groups that the profile has them in."""
        return {"commandlines": self.commandlines, "preMountCommands": self.pre_mount_commands}


class LustreClient(_Struct, frozen=True):
    variable_override: Mapping[str, str] = {}
    commandlines: Mapping[str, Any] = {}


class LustreProfile(_Struct, frozen=True):
    """How Lustre file systems are made of targets."""

    combined_mgt_mdt: bool = False
    mgt_options: LustreTarget = LustreTarget()
    mdt_options: LustreTarget = LustreTarget()
    mgt_mdt_options: LustreTarget = LustreTarget()
    ost_options: LustreTarget = LustreTarget()
    client_options: LustreClient = LustreClient()

    @property
    def targets(self) -> Mapping[str, LustreTarget]:
        """The options of each kind of target, by the label of its allocation set."""
        return {
            "mgt": self.mgt_options,
            "mdt": self.mdt_options,
            "mgtmdt": self.mgt_mdt_options,
            "ost": self.ost_options,
        }


class ProfileData(_Struct, frozen=True):
    default: bool = False
    pinned: bool = False
    xfs_storage: FileSystemProfile = FileSystemProfile()
    ext4_storage: FileSystemProfile = FileSystemProfile(allocation_padding="5%")
    """HPE's definition does not have it; what ext4 needs for itself comes on top all the same."""
    raw_storage: FileSystemProfile = FileSystemProfile()
    gfs2_storage: FileSystemProfile = FileSystemProfile()
    lustre_storage: LustreProfile = LustreProfile()

    @property
    def file_systems(self) -> Mapping[str, FileSystemProfile]:
        """What it says of each type of file system that is not made of targets."""
        return {
            "xfs": self.xfs_storage,
            "ext4": self.ext4_storage,
            "raw": self.raw_storage,
            "gfs2": self.gfs2_storage,
        }


class NnfStorageProfile(_Struct, frozen=True):
    metadata: Meta
    data: ProfileData


class SystemStorageSpec(_Struct, frozen=True):
    storage_profile: Reference = Reference()
    system_configuration: Reference = Reference()
    capacity: int = 2**30
    type: str = "raw"
    include_rabbits: tuple[str, ...] = ()
    exclude_rabbits: tuple[str, ...] = ()
    exclude_disabled_rabbits: bool = False
    include_computes: tuple[str, ...] = ()
    exclude_computes: tuple[str, ...] = ()
    computes_target: str = "all"
    computes_pattern: tuple[int, ...] = ()
    shared: bool = True
    make_client_mounts: bool = False
    client_mount_path: str = ""
    ignore_offline_computes: bool = False


class SystemStorageStatus(_Struct, frozen=True):
    ready: bool = False
    error: Error | None = None


class NnfSystemStorage(_Struct, frozen=True):
    """Storage of the system's own on rabbits."""

    metadata: Meta
    spec: SystemStorageSpec = SystemStorageSpec()
    status: SystemStorageStatus | None = None


class NnfServer(_Struct, frozen=True):
    """The far end of a PCIe link: a compute node, or the rabbit itself."""

    hostname: str = ""
    status: str = ""


class Drive(_Struct, frozen=True):
    """What a rabbit's flash is on, as its agent knows it."""

    id: str = ""
    capacity: int = 0
    serial_number: str = ""
    status: str = ""


class NnfNodeStatus(_Struct, frozen=True):
    status: str = "Starting"
    capacity: int = 0
    fenced: bool = False
    lnet_nid: str = ""
    """Where Lustre's servers on the rabbit are found."""
    servers: tuple[NnfServer, ...] = ()
    drives: tuple[Drive, ...] = ()


class NnfNode(_Struct, frozen=True):
    """What a rabbit says of itself, in its own namespace."""

    metadata: Meta
    status: NnfNodeStatus = NnfNodeStatus()
