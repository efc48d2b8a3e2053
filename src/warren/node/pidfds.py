"""Waits for the end of processes that are not our children, by pidfd_open(2)."""

import asyncio
import os
from collections.abc import Callable


async def wait_process_ended(pid: int, is_same: Callable[[], bool] = lambda: True) -> None:
    """Return when a process has ended.

    It may have ended before, and its number may be another process's by now: `is_same` returns
    whether it is not. It is called once a pidfd is open, which is never another process's.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    # A pidfd can be read when its process has ended: pidfd_open(2).
    loop.add_reader(pidfd, ended.set)
    try:
        if is_same():
            await ended.wait()
    finally:
        loop.remove_reader(pidfd)
        os.close(pidfd)
