"""Stopping a cluster, and what it leaves on the machine: found, and ended."""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from warren.daemons import site as sites
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir, holder
from warren.instance.shell.processes import marked


def down(state: StateDir) -> bool:
    """Stop the cluster of a state directory, and what a dead one has left; tell if one ran."""
    process = holder(state.lock)
    if process:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
        _wait_free(state.lock, process, seconds=30.0)
    sweep(state)
    return process is not None


def sweep(state: StateDir) -> None:
    """End shells, mounts and everything else that a cluster that is not there has left."""
    parent = holder(state.shells_lock)
    if parent:
        with suppress(ProcessLookupError):
            os.kill(parent, signal.SIGTERM)
        _wait_free(state.shells_lock, parent, seconds=5.0)
    nodes = _nodes(state)
    if nodes is not None:
        nodes.end()
    # Agents die with the cluster, and holders were told to; until they have, they hold mounts.
    _wait_gone("=".join(state.mark), seconds=5.0)


def leftovers(state: StateDir) -> list[str]:
    """Say what jobs have left on the machine: volumes, mounts, processes. Nothing is well."""
    nodes = _nodes(state)
    if nodes is None:
        return []
    return [
        *(f"volume {volume}" for volume in nodes.volumes()),
        *(f"mount {mount}" for mount in nodes.mounts()),
        *(f"process {process}" for process in marked(f"FLUX_URI={state.uri}")),
    ]


def _nodes(state: StateDir) -> Nodes | None:
    site = sites.load(state.site)
    return Nodes(state, site, isolated=True) if site is not None else None


def _wait_gone(mark: str, seconds: float) -> None:
    """Wait until all processes with a mark have ended, and kill them when it takes too long."""
    end = time.monotonic() + seconds
    while remaining := marked(mark):
        if time.monotonic() > end:
            for process in remaining:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
        time.sleep(0.02)


def _wait_free(lock: Path, process: int, seconds: float) -> None:
    """Wait until a process has let go of a lock, and kill it when it takes too long."""
    end = time.monotonic() + seconds
    while holder(lock) == process:
        if time.monotonic() > end:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        time.sleep(0.02)
