"""The configuration of an agent that is a service: one TOML file, and what it comes to.

Everything has its default but the size of flash that has none of its own.
"""

import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from warren.base.errors import UserMistake
from warren.daemons import network as networks
from warren.daemons.network import Network
from warren.directives import capacity
from warren.dws.node import FILE_SYSTEM_TYPES
from warren.lifecycle import tables
from warren.lifecycle.tables import Duration, Table, check_durations
from warren.node import behaviour, loops, volumegroup
from warren.node.blocks import BlockFlash, Disk
from warren.node.busy import GracePeriod
from warren.node.directory import DirectoryFlash
from warren.node.flash import Flash, path_component
from warren.node.hostnamespace import HostNamespace
from warren.node.loopdisk import LoopDisk
from warren.node.namespacednode import MountNamespace, NamespacedNode
from warren.node.namespaces import HeldMountNamespace
from warren.node.nvmehost import NvmeHost
from warren.node.nvmetarget import Exports
from warren.node.volumegroup import VolumeGroup

HOST_NAMESPACE: Final = "host"
"""The `namespace` that stands for the mount namespace of the machine."""

DEFAULT_PATH: Final = Path("/etc/warren/agent.toml")
"""Where the file is looked for if none is named."""

_UNLIMITED: Final = capacity.MAX_BYTES_EXCLUSIVE - 1
"""The capacity of a device or a volume group of which all may be used."""


_DIRECTORY_KINDS: Final = ("directory", "simulated")


class FlashTable(Table, frozen=True):
    """Table `flash`: what volumes are made of, and where a compute node finds them."""

    kind: Literal["directory", "image", "device", "volume-group", "simulated"] = "directory"
    directory: str | None = None
    """Where directories, an image, and what is remembered of a device are kept."""
    device: str | None = None
    """The block device of kind `device`."""
    volume_group: str | None = None
    """The name of the volume group."""
    capacity: str | None = None
    """How much is given out; of a device and a volume group, at most."""
    faults: Mapping[str, Any] = {}
    """Of kind `simulated`: how long what the node does takes, and how often it fails."""

    def __post_init__(self) -> None:
        self._check_given("device", self.device)
        self._check_given("volume-group", self.volume_group)
        if self.faults and self.kind != "simulated":
            raise ValueError(f"faults: kind {self.kind!r} has none")
        try:
            behaviour.parse(self.faults)
        except UserMistake as mistake:
            raise ValueError(f"faults: {mistake}".removesuffix(".")) from None
        if self.device is not None:
            _check_absolute("device", self.device)
        if self.directory is not None:
            _check_absolute("directory", self.directory)
        if self.capacity is not None:
            try:
                size = capacity.parse(self.capacity)
            except UserMistake as mistake:
                raise ValueError(f"capacity: {mistake}".removesuffix(".")) from None
            if not size:
                raise ValueError("capacity: 0 bytes hold nothing")

    def _check_given(self, kind: str, value: str | None) -> None:
        if self.kind == kind and not value:
            raise ValueError(f"{kind}: kind {kind!r} needs it")
        if self.kind != kind and value is not None:
            raise ValueError(f"{kind}: kind {self.kind!r} has none")

    @property
    def capacity_bytes(self) -> int | None:
        """How much is given out; None if that is not said, and must be."""
        if self.capacity is not None:
            return capacity.parse(self.capacity)
        return None if self.kind in (*_DIRECTORY_KINDS, "image") else _UNLIMITED


class Config(Table, frozen=True):
    """The configuration of an agent."""

    node: str | None = None
    """The node's name in the SystemConfiguration; None is the machine's host name."""
    kubeconfig: str | None = None
    mounts: str = "/mnt/nnf"
    """The directory below which storage is mounted, as the controllers' --mount-prefix."""
    more_mounts: tuple[str, ...] = ()
    """Directories elsewhere below which system storage may be mounted."""
    namespace: str = HOST_NAMESPACE
    """In which mount namespace storage is mounted: the machine's, or one that the agent makes, and
    that outlives it. Then it is the directory that remembers its holder."""
    flash: FlashTable = FlashTable()
    network: Network | None = None
    """How compute nodes reach rabbits' volumes that are wired to no rabbit; None where all are."""
    busy_timeout: Duration = 30.0
    """FSD or seconds for which a process that still uses a job's storage is waited for."""
    busy_policy: Literal["kill", "keep"] = "kill"
    """Whether processes of the job's user are killed then. Others never are."""

    def __post_init__(self) -> None:
        check_durations(self, "busy_timeout")
        _check_absolute("mounts", self.mounts)
        for path in self.more_mounts:
            _check_absolute("more-mounts", path)
        if self.namespace != HOST_NAMESPACE:
            _check_absolute("namespace", self.namespace)
        if self.kubeconfig is not None:
            _check_absolute("kubeconfig", self.kubeconfig)
        if self.node is not None and not self.node:
            raise ValueError("node: a node has a name")

    @property
    def node_name(self) -> str:
        """The node's name."""
        return self.node or socket.gethostname()

    @property
    def mount_prefix(self) -> Path:
        return Path(self.mounts)

    @property
    def mount_roots(self) -> list[Path]:
        """The directories below which anything may be mounted."""
        return [Path(each) for each in (self.mounts, *self.more_mounts)]


def with_node_name(config: Config, node: str) -> Config:
    """Return a configuration for a node of another name."""
    return msgspec.structs.replace(config, node=node)


def load(path: Path | None) -> Config:
    """Read a file; None is the usual one, if it is there, or else all defaults.

    Raises UserMistake with its name and the path of the mistake.
    """
    if path is None:
        if not DEFAULT_PATH.exists():
            return Config()
        path = DEFAULT_PATH
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UserMistake(f"{path} cannot be read: {error}.") from error
    return tables.parse(text, Config, str(path))


def refusal(config: Config, *, is_rabbit: bool) -> str | None:
    """Return why an agent cannot be what it is configured to be on this machine; None if it can."""
    table = config.flash
    if config.network is not None:
        why_not = networks.refusal(config.network, is_rabbit=is_rabbit)
        if why_not is not None:
            return why_not
        try:
            config.network.read_secret()
        except UserMistake as mistake:
            return str(mistake).removesuffix(".")
        if is_rabbit and table.kind in _DIRECTORY_KINDS:
            return "flash.kind: directories are not offered over a network: take another kind"
    if config.namespace == HOST_NAMESPACE and os.geteuid() != 0:
        return "namespace: to mount in the machine's own takes root: name a directory for another"
    if is_rabbit and table.capacity_bytes is None:
        return f"flash.capacity: kind {table.kind!r} needs it, such as 3TiB"
    if table.kind in ("image", "device"):
        why_not = loops.why_unavailable()
        if why_not is not None:
            return f"flash.kind: {table.kind!r} cannot be: {why_not}"
    if table.device is not None and not Path(table.device).is_block_device():
        return f"flash.device: {table.device} is no block device"
    return None


async def volume_group_refusal(config: Config) -> str | None:
    """Return why the volume group that is named cannot be used; None if it can, or none is.

    Raises NodeTrouble where LVM does not say.
    """
    name = config.flash.volume_group
    if name is None:
        return None
    groups = sorted(await volumegroup.volume_group_names())
    if name in groups:
        return None
    return f"flash.volume-group: there is no {name}; there are {', '.join(groups) or 'none'}"


async def file_system_support(config: Config, state_directory: Path) -> dict[str, str | None]:
    """Return for each type of file system why it cannot be made here; None where it can."""
    flash, _ = build_flash(config, state_directory)
    unsupported = {**await flash.unsupported_types(config.node_name)}
    if config.network is not None:
        unsupported |= networks.UNSUPPORTED_TYPES
    return {each: unsupported.get(each) for each in FILE_SYSTEM_TYPES}


def grace_period(config: Config) -> GracePeriod:
    """Return how storage is waited for that is in use."""
    return GracePeriod(seconds=tables.seconds(config.busy_timeout), policy=config.busy_policy)


def build_flash(
    config: Config, state_directory: Path
) -> tuple[Flash, Callable[[str], Disk] | None]:
    """Return the flash of an agent, and what returns the disk of a rabbit, if it has disks."""
    table = config.flash
    directory = Path(table.directory) if table.directory else state_directory / "flash"
    size = table.capacity_bytes or 0
    if table.kind in _DIRECTORY_KINDS:
        return DirectoryFlash(directory, size), None
    disks: dict[str, Disk] = {}

    def disk_of(rabbit: str) -> Disk:
        if rabbit not in disks:
            disks[rabbit] = _build_disk(path_component(rabbit), table, directory, size)
        return disks[rabbit]

    cluster = config.network.dlm_cluster() if config.network is not None else None
    flash = BlockFlash(
        disk_of,
        state_directory,
        grace_period=grace_period(config),
        cluster=cluster,
        one_kernel=False,
    )
    return flash, disk_of


class AgentNode(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent acts on."""

    local_node: NamespacedNode
    flash: Flash
    disk_of: Callable[[str], Disk] | None
    """Returns the disk of a rabbit, where volumes are block devices."""
    mount_namespace: MountNamespace
    own_mount_namespace: HeldMountNamespace | None
    """The same, where it is the agent's own and has a holder."""
    exports: Exports | None = None
    """What a rabbit offers on the network, if it is to."""
    nvme_host: NvmeHost | None = None
    """A compute node's connections to rabbits, where it reaches them over a network."""


def build_node(config: Config, state_directory: Path, *, is_rabbit: bool) -> AgentNode:
    """Return the node of an agent that keeps what it must in `state_directory`."""
    flash, disk_of = build_flash(config, state_directory)
    exports, nvme_host = None, None
    if config.network is not None and not is_rabbit:
        flash, nvme_host = networks.compute_flash(config.network, config.node_name)
    elif config.network is not None and disk_of is not None:
        flash, exports = networks.rabbit_flash(
            config.network, config.node_name, flash, disk_of(config.node_name)
        )
    own_mount_namespace = None
    if config.namespace != HOST_NAMESPACE:
        own_mount_namespace = HeldMountNamespace(Path(config.namespace), config.mount_prefix)
    mount_namespace = own_mount_namespace or HostNamespace(config.mount_prefix)
    local_node = NamespacedNode(
        config.node_name, flash, mount_namespace, grace_period(config), config.mount_roots
    )
    return AgentNode(
        local_node=local_node,
        flash=flash,
        disk_of=disk_of,
        mount_namespace=mount_namespace,
        own_mount_namespace=own_mount_namespace,
        exports=exports,
        nvme_host=nvme_host,
    )


def _build_disk(rabbit: str, table: FlashTable, directory: Path, size: int) -> Disk:
    if table.volume_group is not None:
        return VolumeGroup(rabbit, table.volume_group, size)
    backing = Path(table.device).resolve() if table.device is not None else None
    return LoopDisk(rabbit, directory / rabbit, size, backing)


def _check_absolute(key: str, path: str) -> None:
    if not os.path.isabs(path) or os.path.normpath(path) != path or path == "/":
        raise ValueError(f"{key}: {path!r} is no absolute path without '..' and '/' at its end")
