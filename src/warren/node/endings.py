"""The end of processes that are not our children, by the news of a pidfd."""

import asyncio
import os
from collections.abc import Callable


async def wait_ended(process: int, is_it: Callable[[], bool] = lambda: True) -> None:
    """Return when a process has ended.

    `is_it` is asked, once it can be told from others, whether the number still is that process's.
    """
    try:
        opened = os.pidfd_open(process)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    # A pidfd can be read when its process has ended: pidfd_open(2).
    loop.add_reader(opened, ended.set)
    try:
        if is_it():
            await ended.wait()
    finally:
        loop.remove_reader(opened)
        os.close(opened)
