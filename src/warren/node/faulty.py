"""A real node, with simulated delays and faults added to its work.

What does not fail is done as ever, so that jobs find their storage and their data: what it takes is
added to what is simulated. So sites rehearse flash that they do not have yet.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Copy, LustreMount, Progress, RawVolumeAccess, Volume
from warren.dws.persistent.sharing import Sharing
from warren.node.behaviour import Behaviour
from warren.node.linking import LinkingNode
from warren.node.namespacednode import NamespacedNode


class FaultyNode:
    """Delays and fails the work of a `LocalNode`."""

    def __init__(self, name: str, node: NamespacedNode | LinkingNode, behaviour: Behaviour) -> None:
        self._node = node
        self._faults = behaviour.fault_injector(name)

    async def capacity(self) -> int:
        return await self._node.capacity()

    async def raw_volume_access(self) -> RawVolumeAccess:
        return await self._node.raw_volume_access()

    async def unsupported_types(self) -> Mapping[str, str]:
        return await self._node.unsupported_types()

    async def lnet_nid(self) -> str:
        return await self._node.lnet_nid()

    async def make(self, volume: Volume) -> None:
        await self._faults.inject("make")
        await self._node.make(volume)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        await self._faults.inject("release")
        await self._node.release(rabbit, name, profile)

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared_with: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        await self._faults.inject("mount")
        await self._node.mount(rabbit, name, file_system, path, shared_with, profile)

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        await self._faults.inject("mount")
        await self._node.mount_lustre(source, path, profile)

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        await self._faults.inject("make")
        await self._node.configure_mgs(commands)

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        await self._faults.inject("unmount")
        await self._node.unmount(path, userid, profile)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        await self._faults.inject("copy")
        async with aclosing(self._node.copy(copy)) as updates:  # type: ignore[type-var]
            async for progress in updates:
                yield progress
