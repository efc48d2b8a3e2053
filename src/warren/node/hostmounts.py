"""Nodes unmount what the machine has unmounted.

A node's mount namespace begins with all mounts of the machine. Where those are shared,
the kernel takes along what is unmounted later; where `/` is private, each node would keep
the file system busy for ever. Each node's record of the mounts that it began with tells
what has gone since.
"""

import asyncio
import os
import select
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from warren.base import log
from warren.dws.node import NodeTrouble
from warren.node.namespaces import HeldMountNamespace, mount_points
from warren.node.threads import in_thread

_MOUNTINFO: Final = Path("/proc/self/mountinfo")

_PAUSE: Final = 1.0
"""Seconds between two looks at all nodes: users may mount and unmount without end (FUSE)."""


_PAUSE_WHILE_UNKNOWN: Final = 60.0
"""While the table cannot be read. To try takes the kernel seconds, in which none can mount."""


async def follow_unmounts(namespaces: Sequence[HeldMountNamespace]) -> None:
    """Unmount in each node what the machine has unmounted, until cancelled.

    Only root can: in a namespace of another user's, the kernel locks what came from outside.
    """
    if os.geteuid() != 0:
        return
    async for _ in _changes():
        try:
            # Once for all nodes, and in a thread: the table is as long as users make it.
            machine_mounts = await in_thread(mount_points, os.getpid())
        except OSError as error:
            log.warning("mounts of the machine are not followed", why=error.strerror)
            await asyncio.sleep(_PAUSE_WHILE_UNKNOWN)
            continue
        for namespace in namespaces:
            try:
                await namespace.drop_unmounted(machine_mounts)
            except NodeTrouble as trouble:
                log.warning("mount kept", node=str(namespace), reason=str(trouble))
        await asyncio.sleep(_PAUSE)


async def _changes() -> AsyncIterator[None]:
    """Yield when the mounts of the machine may have changed: once at first, then at each change."""
    descriptor = os.open(_MOUNTINFO, os.O_RDONLY | os.O_CLOEXEC)
    # Not in the loop's own: to be read, it is always ready. A change is out of band.
    epoll = select.epoll()
    change_event = asyncio.Event()
    loop = asyncio.get_running_loop()
    try:
        epoll.register(descriptor, select.EPOLLPRI)
        loop.add_reader(epoll.fileno(), change_event.set)
        while True:
            with suppress(InterruptedError):
                epoll.poll(0)  # or the loop is told of the same change again
            change_event.clear()
            yield
            await change_event.wait()
    finally:
        loop.remove_reader(epoll.fileno())
        epoll.close()
        os.close(descriptor)
