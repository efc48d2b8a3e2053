"""Whether a machine answers on the network, asked without disturbing what listens there."""

import asyncio
import os
from contextlib import suppress
from typing import Final

_OPEN_SECONDS: Final = 1.0
"""Seconds for which a connection stays open. The kernel's target takes it a moment later than TCP
does, and writes an error into the log of its machine if it has been closed by then."""


async def why_unanswered(address: str, port: int, seconds: float) -> str | None:
    """Return why nothing answers at an IP address within some seconds; None if something does.

    That it is refused is an answer, too: the kernel's target listens only while it has something
    to offer, and between jobs it has nothing. A connection that is accepted is closed a moment
    later, and nothing is sent.
    """
    try:
        async with asyncio.timeout(seconds):
            reader, writer = await asyncio.open_connection(address, port)
    except TimeoutError:
        return f"no answer within {seconds:g} s"
    except ConnectionRefusedError:
        return None
    except OSError as error:
        # In the kernel's words: asyncio's have the address in them.
        return os.strerror(error.errno) if error.errno else str(error)
    try:
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_OPEN_SECONDS):
                await reader.read(1)  # it says nothing, or has closed it
    finally:
        writer.close()
    with suppress(OSError):  # that the other end has closed it is as good
        await writer.wait_closed()
    return None
