"""The port to a node: what its agent may do there. Implemented by `warren.node`."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Protocol

from warren.dws.commandlines import NO_COMMANDS, ProfileCommands
from warren.dws.node import Copy, LustreMount, Progress, RawVolumeAccess, Volume
from warren.dws.persistent.sharing import Sharing


class LocalNode(Protocol):
    """The node that an agent acts on. Every action may be repeated: what is done stays as it is.

    Everything raises NodeTrouble where it fails.
    """

    async def capacity(self) -> int:
        """Return how many bytes of flash the node has in all, having tried that it can be used."""
        ...

    async def raw_volume_access(self) -> RawVolumeAccess:
        """Return whom a volume of the node may be given as a bare device."""
        ...

    async def unsupported_types(self) -> Mapping[str, str]:
        """Return the types of file systems that the node does not make, each with the reason."""
        ...

    async def lnet_nid(self) -> str:
        """Return where Lustre's servers on the node are found; nothing where they cannot be."""
        ...

    async def make(self, volume: Volume) -> None:
        """Reserve a volume's space and make its file system, owned by its user."""
        ...

    async def release(self, rabbit: str, name: str, profile: ProfileCommands = NO_COMMANDS) -> None:
        """Give a volume's space back, with whatever is in it.

        Raises InUse for a bounded time while a process uses it, and then may kill those of
        its user; what is used by others is kept, with NodeTrouble, until they are gone.
        """
        ...

    async def mount(
        self,
        rabbit: str,
        name: str,
        file_system: str,
        path: str,
        shared_with: Sharing | None = None,
        profile: ProfileCommands = NO_COMMANDS,
    ) -> None:
        """Mount a volume at `path`, for everything that runs on the node.

        With `shared_with`, its root directory lets in its owner and those users alone; where that
        is None, whom its owner lets in. Raises NotShared where it is mounted, and does
        not let them all in.
        """
        ...

    async def mount_lustre(
        self, source: LustreMount, path: str, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        """Mount a Lustre file system at `path`, and make it its user's where it is still root's."""
        ...

    async def configure_mgs(self, commands: Sequence[Sequence[str]]) -> None:
        """Run the commands that a Lustre file system has for its MGS, which is on the node."""
        ...

    async def unmount(
        self, path: str, userid: int = 0, profile: ProfileCommands = NO_COMMANDS
    ) -> None:
        """Unmount what is mounted at `path`, if anything is.

        What still uses it is waited for, with InUse, for a bounded time. After that it is
        unmounted all the same; processes of the user `userid` that use it may be killed.
        """
        ...

    def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        """Copy as the user, telling the progress twice a second; ends when all is copied.

        Closing the iterator ends the copy.
        """
        ...
