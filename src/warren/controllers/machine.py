"""The port to a node: what its agent may do there. Implemented by `warren.node`."""

from collections.abc import AsyncIterator
from typing import Protocol

from warren.dws.node import Copy, Progress, Volume


class Machine(Protocol):
    """One node. Every deed may be repeated: what is done already is left as it is.

    Everything raises NodeTrouble where it fails.
    """

    async def capacity(self) -> int:
        """Give how many bytes of flash the node has in all."""
        ...

    async def make(self, volume: Volume) -> None:
        """Reserve a volume's space and make its file system, owned by its user."""
        ...

    async def release(self, group: str, name: str) -> None:
        """Give a volume's space back, with whatever is in it."""
        ...

    async def mount(self, group: str, name: str, file_system: str, path: str) -> None:
        """Mount a volume at `path`, for everything that runs on the node."""
        ...

    async def unmount(self, path: str) -> None:
        """Unmount what is mounted at `path`, if anything is."""
        ...

    def copy(self, copy: Copy) -> AsyncIterator[Progress]:
        """Copy as the user, telling the progress twice a second; ends when all is copied.

        Closing the iterator ends the copy.
        """
        ...
