"""The emulated nodes of this machine: what stands behind each agent and each shell."""

import asyncio
import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from warren.base import fuse, userlimits
from warren.base.mountinfo import LONGEST_LINE
from warren.daemons.clustershape import ClusterShape
from warren.daemons.statedir import StateDir
from warren.dws.node import NodeTrouble
from warren.node import loops, mountpoints, usermounts, volumegroup
from warren.node.blocks import BlockFlash, Disk
from warren.node.busy import GracePeriod
from warren.node.directory import DirectoryFlash
from warren.node.flash import Flash
from warren.node.images import Images
from warren.node.linking import LinkingNode, node_path
from warren.node.loopdisk import LoopDisk
from warren.node.loops import Loop
from warren.node.namespacednode import NamespacedNode
from warren.node.namespaces import HeldMountNamespace, HolderEnded, join, pids_in
from warren.node.podmemory import PodMemory
from warren.node.podnetwork import PodNetwork, host_address
from warren.node.pods import Pods
from warren.node.threads import in_thread
from warren.node.usage import Process, processes_using_mounts
from warren.node.usermounts import AskAbsent
from warren.node.volumegroup import VolumeGroup

_AGENT_SECONDS: Final = 60.0
"""How long a restarted agent may take to make a node's namespace again."""

_POLL_INTERVAL: Final = 0.02


class Nodes:
    """Makes the nodes of agents, and puts shells onto nodes.

    Where the kernel does not let this user have mount namespaces, `isolated` is
    false: mounts are links then, and every node has paths of its own.
    """

    def __init__(
        self,
        state_dir: StateDir,
        shape: ClusterShape,
        *,
        isolated: bool,
        grace_period: GracePeriod | None = None,
        pod_memory: PodMemory | None = None,
    ) -> None:
        """`grace_period` is for storage that is in use when it is to be given back.

        `pod_memory` is what pods have of the machine's; without it they take any amount.
        """
        self._pod_memory = pod_memory
        self._grace_period = grace_period
        self._state_dir = state_dir
        self._isolated = isolated
        self._owner = os.geteuid()
        self._rabbits = [chassis.rabbit for chassis in shape.chassis()]
        self._directory_flash = DirectoryFlash(state_dir.flash, shape.capacity)
        self._disks = {}
        if shape.flash == "image":
            self._disks = {
                rabbit: _build_disk(rabbit, state_dir, shape) for rabbit in self._rabbits
            }
        self._block_flash = BlockFlash(self._disk, state_dir.flash, grace_period=grace_period)
        self._flash: Flash = self._block_flash if self._disks else self._directory_flash
        self._namespaces: dict[str, HeldMountNamespace] = {}

    @property
    def mount_prefix(self) -> Path:
        """Where jobs find their storage, on every node."""
        return self._state_dir.mounts

    @property
    def in_user_namespaces(self) -> bool:
        """Whether tasks of different nodes are in different user namespaces."""
        return self._isolated and self._owner != 0

    def local_node(self, node: str) -> NamespacedNode | LinkingNode:
        """Return what the agent of a node acts on."""
        if self._isolated:
            return NamespacedNode(node, self._flash, self.namespace(node), self._grace_period)
        return LinkingNode(node, self._directory_flash, self._root(node), self._state_dir.mounts)

    def pods(self, rabbit: str) -> Pods:
        """Return the pods of a rabbit."""
        return Pods(
            self._state_dir.pods / rabbit,
            self._rabbits.index(rabbit),
            PodNetwork(self._state_dir.pods / ".network"),
            self.namespace(rabbit) if self._isolated else None,
            Images(self._state_dir.image_cache, self._state_dir.images),
            self._address(rabbit),
            self._pod_memory,
        )

    def _address(self, rabbit: str) -> str:
        return host_address(str(self._state_dir.path), self._rabbits.index(rabbit))

    def write_hosts(self) -> None:
        """Write down the hosts that nodes know: the machine's, and the rabbits. Raises OSError."""
        machine_hosts = ""
        with suppress(OSError):
            machine_hosts = Path("/etc/hosts").read_text(errors="replace")
        lines = [f"{self._address(rabbit)} {rabbit}" for rabbit in self._rabbits]
        self._state_dir.hosts_file.write_text("\n".join([machine_hosts.rstrip("\n"), *lines, ""]))
        self._state_dir.hosts_file.chmod(0o644)

    def namespace(self, node: str) -> HeldMountNamespace:
        """Return a node's mount namespace, the same one each time."""
        if node not in self._namespaces:
            self._namespaces[node] = HeldMountNamespace(
                self._state_dir.nodes / node, self._state_dir.mounts, self._state_dir.hosts_file
            )
        return self._namespaces[node]

    def enter(self, node: str, seconds: float = _AGENT_SECONDS) -> None:
        """Put this process, which must be single-threaded, onto a node.

        A node that has lost its namespace, by a power cut or with its holder, is waited for: its
        agent makes another. Raises OSError, and NodeTrouble if that takes longer than `seconds`.
        """
        namespace = self.namespace(node)
        if not self._isolated:
            return
        if not namespace.was_made:
            join(None, node)  # nothing was ever mounted there
            return
        deadline = time.monotonic() + seconds
        while True:
            holder = namespace.holder
            if holder is not None:
                with suppress(HolderEnded):
                    join(holder, node)
                    return
            if time.monotonic() > deadline:
                raise NodeTrouble(f"{node} has lost its mount namespace, and its agent makes none")
            time.sleep(_POLL_INTERVAL)

    def left_mounts(self, node: str) -> Callable[[AskAbsent], int] | None:
        """Return what detaches what users have left mounted on a node; None if there is nothing.

        It is called in a process of its own, which it puts onto the node, and returns how many
        mounts it has detached. Where a node has no namespace of its own, users mount on the machine
        as any login does there; and without root's rights theirs are not ours to unmount.
        """
        if not self._isolated or self._owner != 0 or not fuse.may_be_mounted():
            return None
        holder = self.namespace(node).holder
        if holder is None:
            return None

        def detach_left(ask_absent: AskAbsent) -> int:
            # Users choose how long tables are, of which the kernel keeps each line whole.
            userlimits.raise_oom_score(userlimits.LARGEST_OOM_SCORE_ADJ)
            own_table = Path("/proc/self/mountinfo")
            with own_table.open("rb", LONGEST_LINE) as machine_table, suppress(HolderEnded):
                join(holder, node)
                with own_table.open("rb", LONGEST_LINE) as node_table:
                    return usermounts.detach_left(node, node_table, machine_table, ask_absent)
            return 0

        return detach_left

    def has_storage(self, node: str, path: str) -> bool:
        """Return whether a process that has entered a node finds the storage that is at `path`."""
        if self._isolated:
            return mountpoints.mount_id(path) is not None
        return Path(self.path_on_node(node, path)).exists()

    def path_on_node(self, node: str, path: str) -> str:
        """Return where a process that has entered a node finds what jobs know as `path`."""
        if self._isolated:
            return path
        return node_path(self._root(node), self._state_dir.mounts, path)

    def _root(self, node: str) -> Path:
        return self._state_dir.nodes / node / "root"

    def _disk(self, rabbit: str) -> Disk:
        try:
            return self._disks[rabbit]
        except KeyError:
            raise NodeTrouble(f"there is no rabbit {rabbit} here", fatal=True) from None

    def volumes(self) -> list[str]:
        """Return the volumes of all rabbits, as `rabbit/volume`."""
        return [
            f"{rabbit}/{volume}"
            for rabbit in self._rabbits
            for volume in sorted(self._flash.volumes(rabbit))
        ]

    def mounts(self) -> list[str]:
        """Return what is mounted on the nodes for jobs, as `node:path`."""
        prefix = f"{self._state_dir.mounts}/"
        mounts: list[str] = []
        for directory in sorted(self._state_dir.nodes.iterdir()):
            node = directory.name
            mounts_in_namespace = self.namespace(node).mounts_below_prefix()
            links = {
                f"/{path.relative_to(self._root(node))}"
                for path in self._root(node).glob(f"{prefix.lstrip('/')}**/*")
                if path.is_symlink()
            }
            mounts.extend(f"{node}:{path}" for path in sorted(mounts_in_namespace | links))
        return mounts

    def loops(self) -> list[Loop]:
        """Return the loop devices on the rabbits' disks."""
        return [loop for _, disk in self._loop_disks() for loop in disk.loops()]

    def stray_loops(self) -> list[tuple[str, str]]:
        """Return the loop devices that show no volume as its record says, each after its rabbit."""
        return [
            (rabbit, loop.device) for rabbit, disk in self._loop_disks() for loop in disk.strays()
        ]

    async def detach_stray_loop(self, rabbit: str, device: str) -> None:
        """Detach a loop device if it still shows no volume. Raises NodeTrouble."""
        for name, disk in self._loop_disks():
            if name == rabbit:
                await disk.detach_stray(device)

    async def processes_using_volume(self, rabbit: str, name: str) -> list[Process]:
        """Return the processes that use a volume. Raises NodeTrouble."""
        return await self._block_flash.processes_using(rabbit, name) if self._disks else []

    async def suspects_of_volume(self, rabbit: str, name: str) -> list[Process]:
        """Return the processes that may use a volume without being seen to. Raises NodeTrouble."""
        return await self._block_flash.processes_of_owner(rabbit, name) if self._disks else []

    async def processes_using_mount(self, node: str, path: str) -> list[Process]:
        """Return the processes with something open on what is mounted on a node."""
        mount_id = self.namespace(node).mount_id(path)
        return [] if mount_id is None else await in_thread(processes_using_mounts, [mount_id])

    def _loop_disks(self) -> list[tuple[str, LoopDisk]]:
        return [(name, disk) for name, disk in self._disks.items() if isinstance(disk, LoopDisk)]

    def processes(self) -> list[int]:
        """Return the processes in the mount namespaces of nodes: tasks, and what they started."""
        return pids_in(self.namespace(node) for node in self._nodes_with_namespace())

    def _nodes_with_namespace(self) -> list[str]:
        """Return the nodes that ever had a mount namespace."""
        return [record.parent.name for record in self._state_dir.nodes.glob("*/holder")]

    async def release_all(self) -> None:
        """Release every node: whatever is mounted is unmounted, whatever attached, detached.

        Raises NodeTrouble if something is in use, after all else has been released.
        """
        for node in self._nodes_with_namespace():
            self.namespace(node).end()
        errors = await asyncio.gather(*map(loops.detach, self.loops()), return_exceptions=True)
        for error in errors:
            if error is not None:
                raise error


def _build_disk(rabbit: str, state_dir: StateDir, shape: ClusterShape) -> Disk:
    """Return a rabbit's disk: the volume group or device that it was given, or an image."""
    device = shape.devices.get(rabbit)
    if device is not None and device.startswith(volumegroup.PREFIX):
        return VolumeGroup(rabbit, device.removeprefix(volumegroup.PREFIX), shape.capacity)
    backing = Path(device) if device is not None else None
    return LoopDisk(rabbit, state_dir.flash / rabbit, shape.capacity, backing)
