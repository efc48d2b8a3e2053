"""Replacement of the process that holds a node's mount namespace, if it ends before its agent.

Without its holder a node cannot be entered, and what was mounted there is left to the tasks
that were there already. A holder is watched through a pidfd, so that its end is noticed
when it comes, without polling.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from warren.base import log
from warren.dws.node import NodeTrouble
from warren.node.namespaces import HeldMountNamespace
from warren.node.pidfds import wait_process_ended

SHORTEST_PAUSE: Final = 0.5
LONGEST_PAUSE: Final = 60.0
"""Bounds of the pause between two tries, in seconds."""


async def keep_running(
    namespace: HeldMountNamespace,
    mount_again: Callable[[], None],
    *,
    shortest_pause: float = SHORTEST_PAUSE,
    longest_pause: float = LONGEST_PAUSE,
) -> None:
    """Keep a holder running for a node whose namespace was ever made, until cancelled.

    `mount_again` is called whenever there is a holder that may be new, in whose namespace nothing
    may be mounted yet. What fails at once, or is killed at once, is tried again at once, and then
    after `shortest_pause` seconds, which double up to `longest_pause`.
    """
    loop = asyncio.get_running_loop()
    pause = 0.0
    reported_trouble = ""
    await namespace.wait_made()
    while True:
        began = loop.time()
        try:
            holder = await namespace.ensure()
        except NodeTrouble as trouble:
            if str(trouble) != reported_trouble:
                log.warning("node without namespace", node=str(namespace), reason=str(trouble))
                reported_trouble = str(trouble)
        else:
            if reported_trouble:
                log.info("node has a namespace again", node=str(namespace))
                reported_trouble = ""
            mount_again()
            # It may have ended before, and another process have got its number.
            await wait_process_ended(holder, partial(_is_holder, namespace, holder))
            log.warning("holder ended", node=str(namespace), process=holder)
        if loop.time() - began >= longest_pause:
            pause = 0.0
        await asyncio.sleep(pause)
        pause = min(max(2 * pause, shortest_pause), longest_pause)


def _is_holder(namespace: HeldMountNamespace, holder: int) -> bool:
    return namespace.holder == holder
