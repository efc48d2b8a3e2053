"""Stopping a cluster, and what it leaves on the machine: found, and ended."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final

from warren.daemons import site as sites
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir, holder
from warren.dws.node import NodeTrouble
from warren.instance.shell import cgroups
from warren.instance.shell.processes import marked

_PATIENCE: Final = 20.0
"""Seconds that what has been killed has to die."""


async def down(state: StateDir) -> bool:
    """Stop the cluster of a state directory, and what a dead one has left; tell if one ran.

    Raises UserMistake for another user's.
    """
    state.demand_owner()
    process = holder(state.lock)
    if process:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        await _gone(lambda: [process] if holder(state.lock) == process else [], seconds=30.0)
    await sweep(state)
    return process is not None


async def sweep(state: StateDir) -> None:
    """End shells, mounts and everything else that a cluster that is not there has left."""
    parent = holder(state.shells_lock)
    if parent:
        with suppress(ProcessLookupError):
            os.kill(parent, signal.SIGTERM)
        await _gone(lambda: [parent] if holder(state.shells_lock) == parent else [], seconds=5.0)
    await _gone(lambda: _in_cgroups(state), seconds=0.0)
    for cgroup in cgroups.left(str(state.path)):
        cgroup.remove()
    nodes = _nodes(state)
    if nodes is not None:
        with suppress(NodeTrouble):  # a device that is in use goes with its last user
            await nodes.end()
    # Agents die with the cluster, and holders were told to; until they have, they hold mounts.
    await _gone(lambda: marked("=".join(state.mark)), seconds=5.0)


def leftovers(state: StateDir) -> list[str]:
    """Say what jobs have left on the machine: volumes, mounts, processes. Nothing is well."""
    nodes = _nodes(state)
    if nodes is None:
        return []
    return [
        *(f"volume {volume}" for volume in nodes.volumes()),
        *(f"mount {mount}" for mount in nodes.mounts()),
        *(f"loop {loop.device}" for loop in nodes.loops()),
        *(
            f"process {process}"
            for process in sorted({*marked(f"FLUX_URI={state.uri}"), *_in_cgroups(state)})
        ),
    ]


def _in_cgroups(state: StateDir) -> list[int]:
    """Give the processes of jobs, whatever they have done to be nobody's."""
    return [process for each in cgroups.left(str(state.path)) for process in each.processes()]


def _nodes(state: StateDir) -> Nodes | None:
    site = sites.load(state.site)
    return Nodes(state, site, isolated=True) if site is not None else None


async def _gone(remaining: Callable[[], Sequence[int]], seconds: float) -> None:
    """Wait until processes have ended or let go, and kill those that take too long.

    What does not die for long, once it is killed, is not waited for.
    """
    end = time.monotonic() + seconds
    while processes := remaining():
        if time.monotonic() > end + _PATIENCE:
            return
        if time.monotonic() > end:
            for process in processes:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        await asyncio.sleep(0.02)
