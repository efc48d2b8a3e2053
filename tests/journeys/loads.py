"""What the tests share that put a load on a cluster and kill it at random moments."""

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import orjson

from tests.journeys.conftest import Cluster
from warren.daemons.statedir import lock_holder
from warren.rfc import signed_request
from warren.rfc.fluid import JobId
from warren.rpc.client import connect
from warren.rpc.message import Handle, RpcError

T = TypeVar("T")

SEED: Final = int(os.environ.get("WARREN_SEED", "1"))


async def answered(cluster: Cluster, action: Callable[[Handle], Awaitable[T]]) -> T:
    """Do something with the instance as soon as it answers, and again if it goes meanwhile."""
    while True:
        try:
            async with connect(cluster.state.socket) as handle:
                return await action(handle)
        except RpcError as error:
            if not error.unserved:
                raise
        await asyncio.sleep(0.02)


async def submit(handle: Handle, spec: Mapping[str, Any]) -> JobId:
    """Submit a job, and return the id that its user is told."""
    token = signed_request.wrap(orjson.dumps(spec), os.getuid())
    return JobId((await handle.rpc("job-ingest.submit", {"J": token}))["id"])


async def listed(handle: Handle) -> list[Mapping[str, Any]]:
    """Return all jobs. Those that are over have a `result`."""
    return list((await handle.rpc("job-list.list", {"max_entries": 0}))["jobs"])


async def cancel(handle: Handle, job: JobId) -> bool:
    """Cancel a job; tell if it was there."""
    try:
        await handle.rpc("job-manager.raise", {"id": job, "type": "cancel", "severity": 0})
    except RpcError as error:
        if error.unserved:
            raise
        return False
    return True


def open_files(cluster: Cluster) -> int:
    """Return how many files the control process and the parent of the shells have open.

    Agents' connections, of which there are as many as they like, do not count.
    """
    assert cluster.process is not None
    agents = {line.split()[9] for line in Path("/proc/net/tcp").read_text().splitlines()}
    found = 0
    for process in (cluster.process.pid, lock_holder(cluster.state.shells_lock)):
        for each in Path(f"/proc/{process}/fd").iterdir():
            with suppress(FileNotFoundError):
                found += os.readlink(each).strip("socket:[]") not in agents
    return found
