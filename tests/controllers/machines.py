"""A node that notes what its agent asks of it, and fails where it is told to."""

from collections.abc import AsyncIterator, Sequence
from typing import Any, Final

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Copy, Progress, Volume
from warren.dws.persistent.sharing import Sharing
from warren.node.simulated import SimulatedFlash, SimulatedNode

CAPACITY: Final = 2**40


class Noting(SimulatedNode):
    """A simulated node. What `troubles` has for a request is raised, until it is taken out."""

    def __init__(
        self, name: str = "n0", flash: SimulatedFlash | None = None, **options: Any
    ) -> None:
        self.flash = flash or SimulatedFlash(CAPACITY)
        super().__init__(name, self.flash, **options)
        self.asked: list[tuple[Any, ...]] = []
        self.troubles: dict[tuple[Any, ...], Exception] = {}

    def _note(self, *request: Any) -> None:
        self.asked.append(request)
        if request in self.troubles:
            raise self.troubles[request]

    async def capacity(self) -> int:
        self._note("capacity")
        return await super().capacity()

    async def make(self, volume: Volume) -> None:
        self._note("make", volume.name)
        await super().make(volume)

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        self._note("release", rabbit, name)
        await super().release(rabbit, name, profile)

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        self._note("mount", rabbit, name, file_system, path)
        await super().mount(rabbit, name, file_system, path, shared, profile)

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        self._note("configure mgs", *map(tuple, commands))
        await super().configure_mgs(commands)

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        self._note("unmount", path, userid)
        await super().unmount(path, userid, profile)

    async def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        self._note("copy", copy.source)
        async for progress in super().copy(copy):
            yield progress
        self.asked.append(("copied", copy.source))
