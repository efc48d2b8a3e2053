"""Stopping a cluster, and what it leaves on the machine: found, and ended."""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from warren.base import processes
from warren.daemons import clustershape, rundir
from warren.daemons.nodes import Nodes
from warren.daemons.statedir import StateDir, lock_holder
from warren.dws.node import NodeTrouble
from warren.instance.shell import cgroups
from warren.node import podmemory

_KILL_TIMEOUT: Final = 20.0
"""Seconds that what has been killed has to die."""


class MachineResources(msgspec.Struct, frozen=True, kw_only=True):
    """What a cluster has on the machine besides its files. Volumes are files, and stay."""

    processes: frozenset[int]
    mounts: frozenset[str]
    loops: frozenset[str]

    def without(self, others: "MachineResources") -> "MachineResources":
        """Return what is here and not in `others`."""
        return MachineResources(
            processes=self.processes - others.processes,
            mounts=self.mounts - others.mounts,
            loops=self.loops - others.loops,
        )

    def counts(self) -> dict[str, int]:
        """Return how many there are of each sort."""
        return {
            "processes": len(self.processes),
            "mounts": len(self.mounts),
            "loops": len(self.loops),
        }


class DownResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of stopping a cluster."""

    stopped: bool
    """Whether one ran."""
    removed: MachineResources
    """What a dead one had left."""
    remaining: MachineResources
    """What of that could not be removed."""


async def down(state_dir: StateDir) -> DownResult:
    """Stop the cluster of a state directory, and what a dead one has left.

    Raises UserMistake for another user's.
    """
    state_dir.check_owner()
    process = lock_holder(state_dir.lock)
    if process:
        await _end_lock_holder(state_dir.lock, process, seconds=30.0)
    resources_before = machine_resources(state_dir)
    await sweep(state_dir)
    remaining = machine_resources(state_dir)
    return DownResult(
        stopped=process is not None,
        removed=resources_before.without(remaining),
        remaining=remaining,
    )


async def sweep(state_dir: StateDir) -> None:
    """End shells, mounts and everything else that a cluster that is not there has left."""
    parent = lock_holder(state_dir.shells_lock)
    if parent:
        await _end_lock_holder(state_dir.shells_lock, parent, seconds=5.0)
        # It is the process above it that holds the lock until nothing of it is left.
        await _wait_ended(
            lambda: list(filter(None, [lock_holder(state_dir.shells_lock)])), seconds=_KILL_TIMEOUT
        )
    await _wait_ended(lambda: _processes_in_cgroups(state_dir), seconds=0.0)
    for cgroup in _base_cgroups(state_dir):
        cgroup.remove()
    nodes = _nodes(state_dir)
    if nodes is not None:
        # Where there are no cgroups, tasks that have lost shell and parent are known by this.
        await _wait_ended(nodes.processes, seconds=0.0)
        with suppress(NodeTrouble):  # a device that is in use goes with its last user
            await nodes.release_all()
    # Agents die with the cluster, and holders were told to; until they have, they hold mounts.
    await _wait_ended(lambda: cluster_processes(state_dir), seconds=5.0)
    # Containers end with the process of their pod, but a moment later.
    await podmemory.remove_of_killed(partial(podmemory.remove_all, str(state_dir.path)))
    rundir.release(state_dir)


def machine_resources(state_dir: StateDir) -> MachineResources:
    """Return what there is on the machine of a cluster that does not run."""
    nodes = _nodes(state_dir)
    parent = lock_holder(state_dir.shells_lock)
    shells = [parent, *_shells(state_dir)] if parent else []
    return MachineResources(
        processes=frozenset(
            {
                *shells,
                *_processes_in_cgroups(state_dir),
                *_processes_on_nodes(state_dir),
                *cluster_processes(state_dir),
            }
        ),
        mounts=frozenset(nodes.mounts() if nodes is not None else ()),
        loops=frozenset(loop.device for loop in nodes.loops()) if nodes else frozenset(),
    )


def leftovers(state_dir: StateDir) -> list[str]:
    """Return what jobs have left on the machine: volumes, mounts, loop devices, processes."""
    nodes = _nodes(state_dir)
    if nodes is None:
        return []
    return [
        *(f"volume {volume}" for volume in nodes.volumes()),
        *(f"mount {mount}" for mount in nodes.mounts()),
        *(f"loop {loop.device}" for loop in nodes.loops()),
        *(
            f"process {process}"
            for process in sorted({*_shells(state_dir), *_processes_in_cgroups(state_dir)})
        ),
    ]


def cluster_processes(state_dir: StateDir) -> list[int]:
    """Return the processes of a cluster, but for its tasks."""
    try:
        process_mark = state_dir.process_mark
    except OSError:  # there never was one
        return []
    return processes.pids_with_variable("=".join(process_mark))


def _shells(state_dir: StateDir) -> list[int]:
    """Return the shells and their tasks, if their parent lives."""
    parent = lock_holder(state_dir.shells_lock)
    return processes.descendants(parent) if parent else []


def _processes_in_cgroups(state_dir: StateDir) -> list[int]:
    """Return the processes of jobs, also those that have become daemons."""
    return [process for each in _base_cgroups(state_dir) for process in each.pids()]


def _base_cgroups(state_dir: StateDir) -> list[cgroups.Cgroup]:
    # Root may end another user's cluster.
    return cgroups.base_cgroups(str(state_dir.path), owner=state_dir.owner)


def _processes_on_nodes(state_dir: StateDir) -> list[int]:
    """Return the processes that are on nodes, where these have mount namespaces."""
    nodes = _nodes(state_dir)
    return nodes.processes() if nodes is not None else []


def _nodes(state_dir: StateDir) -> Nodes | None:
    shape = clustershape.load(state_dir.shape_file)
    return Nodes(state_dir, shape, isolated=True) if shape is not None else None


async def _end_lock_holder(lock: Path, process: int, seconds: float) -> None:
    """Have a process end that holds a lock."""

    def lock_holders() -> list[int]:
        return [process] if lock_holder(lock) == process else []

    processes.send_signal(lock_holders, signal.SIGTERM)
    await _wait_ended(lock_holders, seconds)


async def _wait_ended(find_remaining: Callable[[], Sequence[int]], seconds: float) -> None:
    """Wait until processes have ended or let go, and kill those that take too long.

    What does not die for long, once it is killed, is not waited for.
    """
    deadline = time.monotonic() + seconds
    while find_remaining():
        if time.monotonic() > deadline + _KILL_TIMEOUT:
            return
        if time.monotonic() > deadline:
            processes.send_signal(find_remaining, signal.SIGKILL)
        await asyncio.sleep(0.02)
