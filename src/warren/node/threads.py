"""Actions that block, in a thread: done to their end, also where the caller is cancelled."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, ParamSpec, TypeVar

_SPARE_THREADS: Final = 32
"""Threads for actions that do not hang, such as looking up the names of hosts."""

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(action: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do an action in a thread and return its result.

    A caller that is cancelled leaves only when the action is done: what it does next, or
    lets others do, must not meet a thread that is still at it.
    """
    task = asyncio.ensure_future(asyncio.to_thread(action, *args, **kwargs))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        while not task.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait({task})
        task.exception()  # retrieved, so that asyncio does not warn that it was not
        raise


def set_thread_pool_size(max_hanging: int) -> None:
    """Have the running event loop go on with other actions while so many hang.

    Threads are started when they are needed. By default there are few more than there are CPUs.
    """
    pool = ThreadPoolExecutor(max_hanging + _SPARE_THREADS, thread_name_prefix="action")
    asyncio.get_running_loop().set_default_executor(pool)
