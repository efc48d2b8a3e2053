"""The end of a pipe or of a pseudo-terminal that is read from, without blocking anything."""

import asyncio
import errno
import os
from typing import Final

_CHUNK: Final = 2**16


class Reader:
    """Reads from a descriptor, which is its own from now on."""

    def __init__(self, descriptor: int) -> None:
        os.set_blocking(descriptor, False)
        self._descriptor: int | None = descriptor

    async def read(self) -> bytes:
        """Return what is there, as soon as there is something; nothing at the end."""
        while self._descriptor is not None:
            try:
                chunk = os.read(self._descriptor, _CHUNK)
            except BlockingIOError:
                await _wait_readable(self._descriptor)
                continue
            except OSError as error:
                if error.errno != errno.EIO:  # the other end of a pseudo-terminal is closed
                    raise
                chunk = b""
            if chunk:
                return chunk
            self.close()
        return b""

    def close(self) -> None:
        """Close the descriptor, if the end has not."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


async def _wait_readable(descriptor: int) -> None:
    """Wait until something can be read, or until all writers have closed it."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
