"""Flash whose volumes are offered on a network, and are not in use when they are released."""

from collections.abc import Awaitable, Callable, Mapping

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import RawVolumeAccess, Volume
from warren.node.flash import Flash, MountSource


class ExportedFlash:
    """`Flash` like another one, whose volumes no node reaches any more when they are released."""

    def __init__(self, flash: Flash, withdraw: Callable[[str], Awaitable[None]]) -> None:
        self._flash = flash
        self._withdraw = withdraw

    async def capacity(self, rabbit: str) -> int:
        return await self._flash.capacity(rabbit)

    async def raw_volume_access(self, rabbit: str) -> RawVolumeAccess:
        # Nodes have file systems attached, and no bare devices.
        return RawVolumeAccess.NONE

    async def unsupported_types(self, rabbit: str) -> Mapping[str, str]:
        return await self._flash.unsupported_types(rabbit)

    async def lnet_nid(self) -> str:
        return await self._flash.lnet_nid()

    async def make(self, volume: Volume) -> None:
        await self._flash.make(volume)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        # The kernel's target keeps a device as a process does, and none would be found.
        await self._withdraw(name)
        await self._flash.release(rabbit, name, profile)

    async def source(self, rabbit: str, name: str, file_system: str) -> MountSource:
        return await self._flash.source(rabbit, name, file_system)

    def volumes(self, rabbit: str) -> Mapping[str, int]:
        return self._flash.volumes(rabbit)
