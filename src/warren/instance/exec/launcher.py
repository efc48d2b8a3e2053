"""A `Launcher` whose shells are started by a parent in another process (`shell.parent`).

The parent comes and goes; with each coming it says which shells it has. What it
does not know then is lost. It believes nothing that it is told of another user's job but
the signed request, which is sent with it.
"""

import asyncio
from collections.abc import Mapping
from typing import Final

from warren.instance.exec.execution import ShellsLost, ShellStuck
from warren.instance.shell.parent import SERVICE
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Handle, Payload, Request, RpcError

_RETRY_DELAY: Final = 0.2
"""Seconds until a parent that did not answer is asked again."""


class ShellRefused(ShellsLost):
    """There can be no such shell; the words say why."""


class RemoteLauncher:
    """Asks the parent of shells, whenever there is one."""

    def __init__(self, handle: Handle, owner: int, suffix: str = "") -> None:
        """`owner` is the instance's, and that of the shells that are no other user's.

        `suffix` ends the name of the service, where there are several parents.
        """
        self._service = f"{SERVICE}{suffix}"
        self._handle = handle
        self._owner = owner
        self._shells: dict[tuple[JobId, int], int | None] = {}
        """The shells that the parent has, with the wait status of those that have ended."""
        self._failures: dict[tuple[JobId, int], ShellsLost] = {}
        """Why shells have not become any, or left something behind for good."""
        self._changed = asyncio.Event()
        self._hello_received = asyncio.Event()

    def methods(self) -> Methods:
        """Return the `job-exec` service, where the parent tells what it has."""
        return {"hello": Method(self._hello), "exited": Method(self._exited)}

    async def start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        await self._hello_received.wait()
        if (job, rank) not in self._shells:
            # Before asking, since the end may be told before the answer is read; and after
            # it, since a parent that was restarted meanwhile has told of no shell yet.
            self._shells[job, rank] = None
            request: dict[str, object] = {"id": job, "rank": rank, "host": host, "userid": userid}
            if userid != self._owner:
                answer = await self._handle.rpc("job-info.lookup", {"id": job, "keys": ["J"]})
                request["J"] = answer["J"]
            await self._ask("start", request)
            self._shells.setdefault((job, rank), None)

    async def started_jobs(self) -> Mapping[JobId, frozenset[int]]:
        await self._hello_received.wait()
        ranks_by_job: dict[JobId, set[int]] = {}
        for job, rank in self._shells:
            ranks_by_job.setdefault(job, set()).add(rank)
        return {job: frozenset(ranks) for job, ranks in ranks_by_job.items()}

    async def wait(self, job: JobId, rank: int) -> int:
        await self._hello_received.wait()
        while True:
            if (job, rank) not in self._shells:
                raise ShellsLost("the job's shells were lost: their parent process was restarted")
            if (job, rank) in self._failures:
                raise self._failures[job, rank]
            status = self._shells[job, rank]
            if status is not None:
                return status
            await self._changed.wait()

    async def kill(self, job: JobId, signum: int) -> None:
        await self._ask("kill", {"id": job, "signum": signum})

    async def forget(self, job: JobId) -> None:
        for key in [key for key in self._shells if key[0] == job]:
            del self._shells[key]
            self._failures.pop(key, None)
        await self._ask("forget", {"id": job})

    async def _ask(self, method: str, payload: Payload) -> None:
        """Ask the parent, as often as it takes: everything that it is asked may be repeated."""
        while True:
            try:
                await self._handle.rpc(f"{self._service}.{method}", payload)
            except RpcError as error:
                if not error.unserved:
                    raise
                await asyncio.sleep(_RETRY_DELAY)
            else:
                return

    async def _hello(self, request: Request) -> Payload:
        self._shells, self._failures = {}, {}
        for shell in request.payload["shells"]:
            self._record(shell)
        self._hello_received.set()
        self._wake()
        return {}

    async def _exited(self, request: Request) -> Payload:
        if (JobId(request.payload["id"]), request.payload["rank"]) in self._shells:
            self._record(request.payload)
        self._wake()
        return {}

    def _record(self, shell: Payload) -> None:
        key = (JobId(shell["id"]), shell["rank"])
        self._shells[key] = shell["status"]
        if shell["note"]:
            self._failures[key] = ShellRefused(shell["note"])
        elif shell["left"]:
            self._failures[key] = ShellStuck(f"processes do not die: {shell['left']}")

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class PerNodeLauncher:
    """A `Launcher` over nodes that have a parent of shells each."""

    def __init__(self, launcher_by_node: Mapping[str, RemoteLauncher]) -> None:
        """`launcher_by_node` goes by the names of the nodes."""
        self._launcher_by_node = launcher_by_node
        self._launchers: dict[tuple[JobId, int], RemoteLauncher] = {}

    async def start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        self._launchers[job, rank] = self._launcher_by_node[host]
        await self._launcher_by_node[host].start(job, rank, host, userid)

    async def started_jobs(self) -> Mapping[JobId, frozenset[int]]:
        ranks_by_job: dict[JobId, frozenset[int]] = {}
        for launcher in self._launcher_by_node.values():
            for job, ranks in (await launcher.started_jobs()).items():
                ranks_by_job[job] = ranks_by_job.get(job, frozenset()) | ranks
        return ranks_by_job

    async def wait(self, job: JobId, rank: int) -> int:
        return await self._launchers[job, rank].wait(job, rank)

    async def kill(self, job: JobId, signum: int) -> None:
        await asyncio.gather(*(launcher.kill(job, signum) for launcher in self._launchers_of(job)))

    async def forget(self, job: JobId) -> None:
        await asyncio.gather(*(launcher.forget(job) for launcher in self._launchers_of(job)))
        for key in [key for key in self._launchers if key[0] == job]:
            del self._launchers[key]

    def _launchers_of(self, job: JobId) -> set[RemoteLauncher]:
        return {launcher for (other, _), launcher in self._launchers.items() if other == job}
