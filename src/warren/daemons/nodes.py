"""The emulated nodes of this machine: what stands behind each agent and each shell."""

from pathlib import Path

from warren.controllers.machine import Machine
from warren.daemons.site import Site
from warren.daemons.statedir import StateDir
from warren.node.directory import Directories, DirectoryMachine, LinkingMachine, own_path
from warren.node.namespaces import Namespace, join


class Nodes:
    """Makes machines for agents, and puts shells onto nodes.

    Where the kernel does not let this user have mount namespaces, `isolated` is
    false: mounts are links then, and every node has paths of its own.
    """

    def __init__(self, state: StateDir, site: Site, *, isolated: bool) -> None:
        self._state = state
        self._directories = Directories(state.flash, site.capacity)
        self._isolated = isolated

    def machine(self, node: str) -> Machine:
        """Give the machine that is a node."""
        if self._isolated:
            return DirectoryMachine(self._directories, self.namespace(node))
        return LinkingMachine(self._directories, self._root(node), self._state.mounts)

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

    def volumes(self) -> list[str]:
        """Give the volumes of all rabbits, as `rabbit/volume`."""
        rabbits = sorted(path.name for path in self._state.flash.iterdir())
        return [
            f"{rabbit}/{volume}"
            for rabbit in rabbits
            for volume in sorted(self._directories.volumes(rabbit))
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

    def end(self) -> None:
        """Let go of every node: whatever is mounted is unmounted."""
        for node in self._state.nodes.glob("*/holder"):
            self.namespace(node.parent.name).end()
