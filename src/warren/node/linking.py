"""A node with symbolic links for mounts, where the kernel forbids this user mount namespaces."""

import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path

from msgspec.structs import replace

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Copy, LustreMount, NodeTrouble, Progress, RawVolumeAccess, Volume
from warren.dws.persistent.sharing import Sharing
from warren.node import copiers, rootaccess
from warren.node.directory import DirectoryFlash
from warren.node.namespacednode import prune
from warren.node.threads import in_thread


class LinkingNode:
    """A `LocalNode` whose mounts are symbolic links under the node's own root.

    What jobs know as `path` is at `node_path(root, prefix, path)`.
    """

    def __init__(self, name: str, flash: DirectoryFlash, root: Path, prefix: Path) -> None:
        """Paths under `prefix` are the node's own; all others are shared by all nodes."""
        self._name = name
        self._flash = flash
        self._root = root
        self._prefix = prefix

    async def capacity(self) -> int:
        return await self._flash.capacity(self._name)

    async def raw_volume_access(self) -> RawVolumeAccess:
        return await self._flash.raw_volume_access(self._name)

    async def unsupported_types(self) -> Mapping[str, str]:
        return await self._flash.unsupported_types(self._name)

    async def lnet_nid(self) -> str:
        return ""

    async def make(self, volume: Volume) -> None:
        await self._flash.make(volume)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        await self._flash.release(rabbit, name, profile)

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared_with: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        files = self._flash.files_path(rabbit, name)
        if not files.is_dir():
            raise NodeTrouble(f"{rabbit}/{name} does not exist")
        link = Path(node_path(self._root, self._prefix, path))
        try:
            await in_thread(_link, files, link)
            if shared_with is not None and os.geteuid() == 0:
                await in_thread(rootaccess.set_access, files, shared_with)
        except OSError as error:
            raise NodeTrouble(f"{error.filename}: {error.strerror}") from error

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        raise NodeTrouble(f"{path}: only root mounts Lustre", fatal=True)

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        raise NodeTrouble("only root serves Lustre", fatal=True)

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        link = Path(node_path(self._root, self._prefix, path))
        try:
            await in_thread(prune, link, self._root)
        except OSError as error:
            raise NodeTrouble(f"{error.filename}: {error.strerror}") from error

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        local_copy = replace(
            copy,
            source=node_path(self._root, self._prefix, copy.source),
            destination=node_path(self._root, self._prefix, copy.destination),
            source_storage=node_path(self._root, self._prefix, copy.source_storage),
            destination_storage=node_path(self._root, self._prefix, copy.destination_storage),
        )
        async with aclosing(copiers.run(local_copy)) as updates:  # type: ignore[type-var]
            async for progress in updates:
                yield progress


def node_path(root: Path, prefix: Path, path: str) -> str:
    """Return where a node without a mount namespace has what jobs know as `path`."""
    if path == str(prefix) or path.startswith(f"{prefix}/"):
        return f"{root}{path}"
    return path


def _link(files: Path, link: Path) -> None:
    if link.is_symlink() and link.readlink() == files:
        return
    link.parent.mkdir(parents=True, exist_ok=True)
    link.unlink(missing_ok=True)
    link.symlink_to(files)
