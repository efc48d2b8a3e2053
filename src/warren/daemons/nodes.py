"""The emulated nodes of this machine: what stands behind each agent and each shell."""

import asyncio
from pathlib import Path

from warren.controllers.machine import Machine
from warren.daemons.site import Site
from warren.daemons.statedir import StateDir
from warren.dws.node import NodeTrouble
from warren.node import loops
from warren.node.blocks import Blocks, Disk
from warren.node.directory import Directories
from warren.node.flash import Flash
from warren.node.linking import LinkingMachine, own_path
from warren.node.loopdisk import LoopDisk
from warren.node.loops import Loop
from warren.node.machine import NamespacedMachine
from warren.node.namespaces import Namespace, join
from warren.node.volumegroup import PREFIX, VolumeGroup


class Nodes:
    """Makes machines for agents, and puts shells onto nodes.

    Where the kernel does not let this user have mount namespaces, `isolated` is
    false: mounts are links then, and every node has paths of its own.
    """

    def __init__(self, state: StateDir, site: Site, *, isolated: bool) -> None:
        self._state = state
        self._isolated = isolated
        self._rabbits = [chassis.rabbit for chassis in site.chassis()]
        self._directories = Directories(state.flash, site.capacity)
        self._disks = {}
        if site.flash == "image":
            self._disks = {rabbit: _disk(rabbit, state, site) for rabbit in self._rabbits}
        self._flash: Flash = Blocks(self._disk, state.flash) if self._disks else self._directories

    @property
    def prefix(self) -> Path:
        """Where jobs find their storage, on every node."""
        return self._state.mounts

    def machine(self, node: str) -> Machine:
        """Give the machine that is a node."""
        if self._isolated:
            return NamespacedMachine(node, self._flash, self.namespace(node))
        return LinkingMachine(node, self._directories, self._root(node), self._state.mounts)

    def namespace(self, node: str) -> Namespace:
        """Give a node's mount namespace."""
        return Namespace(self._state.nodes / node, self._state.mounts)

    def enter(self, node: str) -> None:
        """Put this process, which must be single-threaded, onto a node. Raises OSError."""
        holder = self.namespace(node).holder if self._isolated else None
        if holder is not None:
            join(holder)

    def place(self, node: str, path: str) -> str:
        """Give where a process that has entered a node finds what jobs know as `path`."""
        if self._isolated:
            return path
        return own_path(self._root(node), self._state.mounts, path)

    def _root(self, node: str) -> Path:
        return self._state.nodes / node / "root"

    def _disk(self, group: str) -> Disk:
        try:
            return self._disks[group]
        except KeyError:
            raise NodeTrouble(f"there is no rabbit {group} here", fatal=True) from None

    def volumes(self) -> list[str]:
        """Give the volumes of all rabbits, as `rabbit/volume`."""
        return [
            f"{rabbit}/{volume}"
            for rabbit in self._rabbits
            for volume in sorted(self._flash.volumes(rabbit))
        ]

    def mounts(self) -> list[str]:
        """Give what is mounted on the nodes for jobs, as `node:path`."""
        prefix = f"{self._state.mounts}/"
        found: list[str] = []
        for directory in sorted(self._state.nodes.iterdir()):
            node = directory.name
            own = {path for path in self.namespace(node).mounts() if path.startswith(prefix)}
            links = {
                f"/{path.relative_to(self._root(node))}"
                for path in self._root(node).glob(f"{prefix.lstrip('/')}**/*")
                if path.is_symlink()
            }
            found.extend(f"{node}:{path}" for path in sorted(own | links))
        return found

    def loops(self) -> list[Loop]:
        """Give the loop devices on the rabbits' disks."""
        disks = [disk for disk in self._disks.values() if isinstance(disk, LoopDisk)]
        return [loop for disk in disks for loop in disk.loops()]

    async def end(self) -> None:
        """Let go of every node: whatever is mounted is unmounted, whatever attached, detached.

        Raises NodeTrouble if something is in use, when all else is let go of.
        """
        for node in self._state.nodes.glob("*/holder"):
            self.namespace(node.parent.name).end()
        ends = await asyncio.gather(*map(loops.detach, self.loops()), return_exceptions=True)
        for end in ends:
            if end is not None:
                raise end


def _disk(rabbit: str, state: StateDir, site: Site) -> Disk:
    """Give a rabbit's disk: the volume group or device that it was given, or an image."""
    device = site.devices.get(rabbit)
    if device is not None and device.startswith(PREFIX):
        return VolumeGroup(rabbit, device.removeprefix(PREFIX), site.capacity)
    backing = Path(device) if device is not None else None
    return LoopDisk(rabbit, state.flash / rabbit, site.capacity, backing)
