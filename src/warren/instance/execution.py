"""Execution: the guest namespace of a job, a shell on each of its nodes, and their end.

Every step may have been done before by a process that is dead now: what stands
in the guest namespace, and which shells there are, says where to go on.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import structlog

from warren.base.clock import Clock
from warren.base.errors import WarrenError
from warren.instance import keys
from warren.instance.barrier import Barriers
from warren.instance.kvs import Kvs, create_namespace, graft, link
from warren.instance.ports import Message
from warren.rfc import eventlog, fluid, resource_set
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId

log = structlog.get_logger()

KILL_SECONDS: Final = 5.0
"""How long tasks have between one signal and a stronger one."""


class ShellsLost(WarrenError):
    """Nobody knows of a shell that should be there."""


class Launcher(Protocol):
    """Starts shells on nodes, and outlives the instance."""

    async def start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        """Start a job's shell on a node, unless it was started before."""
        ...

    async def known(self) -> Mapping[JobId, frozenset[int]]:
        """Give the jobs, and their shells' ranks, that were started and are not forgotten."""
        ...

    async def wait(self, job: JobId, rank: int) -> int:
        """Wait for a shell's end, and give its wait status. Raises ShellsLost."""
        ...

    async def kill(self, job: JobId, signum: int) -> None:
        """Send a signal to a job's shells. SIGKILL goes to all that they have started, too."""
        ...

    async def forget(self, job: JobId) -> None:
        """Forget a job whose shells have ended."""
        ...


@dataclass
class _Running:
    """One job at work."""

    job: JobId
    userid: int
    hosts: list[str]
    expiration: float
    exception: "asyncio.Future[str]" = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )

    @property
    def label(self) -> str:
        return fluid.f58(self.job)

    @property
    def meetings(self) -> str:
        """How the names of the barriers begin where the job's shells meet."""
        return f"{fluid.f58plain(self.job)}-"


class JobExec:
    """An `Execution`, with shells from a launcher."""

    def __init__(
        self,
        kvs: Kvs,
        clock: Clock,
        launcher: Launcher,
        barriers: Barriers,
        reply: Callable[[Message], None],
    ) -> None:
        self._kvs = kvs
        self._clock = clock
        self._launcher = launcher
        self._barriers = barriers
        self._reply = reply
        self._running: dict[JobId, _Running] = {}
        self._starts: asyncio.Queue[Message] = asyncio.Queue()
        self._signals: asyncio.Queue[tuple[JobId, int]] = asyncio.Queue()
        self._restarted = asyncio.Event()

    async def run(self) -> None:
        """Run jobs until cancelled. Their shells go on without us."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._audit())
            tasks.create_task(self._pass_signals())
            while True:
                message = await self._starts.get()
                running = self._running[message["id"]]
                tasks.create_task(
                    self._run(running, reattach=message["reattach"]), name=running.label
                )

    def start(self, message: Message) -> None:
        job = JobId(message["id"])
        r = message["R"]
        self._running[job] = _Running(
            job=job,
            userid=message["userid"],
            hosts=resource_set.nodelist(r),
            expiration=r["execution"].get("expiration", 0.0),
        )
        self._starts.put_nowait(message)

    def exception(self, job: JobId, type: str) -> None:
        running = self._running.get(job)
        if running is not None and not running.exception.done():
            running.exception.set_result(type)

    def kill(self, job: JobId, signum: int) -> None:
        self._signals.put_nowait((job, signum))

    async def _pass_signals(self) -> None:
        while True:
            await self._launcher.kill(*await self._signals.get())

    def restarted(self) -> None:
        self._restarted.set()

    async def _audit(self) -> None:
        """End the shells of jobs that nobody runs: their start was never written down.

        What such a job has in its guest namespace is kept with it.
        """
        await self._restarted.wait()
        for job in await self._launcher.known():
            if job not in self._running:
                log.info("shells without a job are ended", job=fluid.f58(job))
                await self._launcher.kill(job, signal.SIGKILL)
                await self._launcher.forget(job)
        for namespace in self._kvs.namespaces():
            owner = keys.job_of(namespace)
            if owner is not None and owner not in self._running:
                await self._shut(owner)

    # One job

    async def _run(self, running: _Running, *, reattach: bool) -> None:
        status = self._ended(running.job)
        if status is None:
            await self._open(running)
            status = await self._execute(running, reattach=reattach)
        if status is not None:
            self._tell(running, "finish", {"status": status})
        await self._close(running)
        del self._running[running.job]
        self._tell(running, "release", {"ranks": "all", "final": True})

    async def _execute(self, running: _Running, *, reattach: bool) -> int | None:
        """Start the shells and wait for them. None if they were not to start any more."""
        known = running.job in await self._launcher.known()
        if running.exception.done() and not reattach and not known:
            return None
        if reattach and not known:
            note = "the job's shells were lost while the cluster was down"
            self._tell(running, "exception", {"severity": 0, "type": "exec", "note": note})
            await self._log(running, "complete", {"status": 1 << 8})
            return 1 << 8
        for rank, host in enumerate(running.hosts):
            await self._launcher.start(running.job, rank, host, running.userid)
        self._tell(running, "start", {})
        status = await self._wait(running)
        await self._log(running, "complete", {"status": status})
        return status

    async def _wait(self, running: _Running) -> int:
        """Wait for all shells; hurry them when the job has met an exception or its time is up."""
        async with asyncio.TaskGroup() as tasks:
            shells = [
                tasks.create_task(self._wait_one(running, rank))
                for rank in range(len(running.hosts))
            ]
            hurry = tasks.create_task(self._hurry(running))
            await asyncio.wait(shells)
            hurry.cancel()
        return max(shell.result() for shell in shells)

    async def _wait_one(self, running: _Running, rank: int) -> int:
        try:
            status = await self._launcher.wait(running.job, rank)
        except ShellsLost as error:
            self._tell(running, "exception", {"severity": 0, "type": "exec", "note": str(error)})
            status = 1 << 8
        if status != 0:
            # Who waits for this shell in a barrier would wait for ever.
            self._barriers.break_off(running.userid, running.meetings)
        return status

    async def _hurry(self, running: _Running) -> None:
        left = running.expiration - self._clock.now() if running.expiration else None
        try:
            async with asyncio.timeout(left):
                type_ = await asyncio.shield(running.exception)
        except TimeoutError:
            note = "resource allocation expired"
            self._tell(running, "exception", {"severity": 0, "type": "timeout", "note": note})
            type_ = "timeout"
        gentle = signal.SIGALRM if type_ == "timeout" else signal.SIGTERM
        # SIGUSR1 asks a shell to kill its tasks; SIGKILL ends shells with all they started.
        for signum in (gentle, signal.SIGUSR1):
            await self._launcher.kill(running.job, signum)
            await asyncio.sleep(KILL_SECONDS)
        while True:
            await self._launcher.kill(running.job, signal.SIGKILL)
            await asyncio.sleep(KILL_SECONDS)

    # The guest namespace

    async def _open(self, running: _Running) -> None:
        job = running.job
        if self._kvs.owner(keys.guest(job)) is None:
            now = self._clock.now()
            await self._kvs.commit(
                [
                    create_namespace(keys.guest(job), running.userid),
                    keys.log_execution(job, Event(now, "init")),
                    keys.log_execution(job, Event(now, "starting")),
                    link(keys.of(job, "guest"), keys.guest(job)),
                ]
            )

    async def _close(self, running: _Running) -> None:
        """Keep what the guest namespace holds with the job, and forget the shells."""
        job = running.job
        if self._kvs.owner(keys.guest(job)) is not None:
            await self._shut(job)
        self._barriers.forget(running.userid, running.meetings)
        await self._launcher.forget(job)

    async def _shut(self, job: JobId) -> None:
        done = keys.log_execution(job, Event(self._clock.now(), "done"))
        await self._kvs.commit([done, graft(keys.of(job, "guest"), keys.guest(job))])

    async def _log(self, running: _Running, name: str, context: Mapping[str, Any]) -> None:
        event = Event(self._clock.now(), name, context)
        await self._kvs.commit([keys.log_execution(running.job, event)])

    def _ended(self, job: JobId) -> int | None:
        """Give the status that a job's shells have ended with, if that was written down."""
        text = self._kvs.get(keys.of(job, "guest.exec.eventlog"))
        for event in eventlog.decode(text.decode()) if text else ():
            if event.name == "complete":
                return int(event.context["status"])
        return None

    def _tell(self, running: _Running, type_: str, data: Mapping[str, Any]) -> None:
        self._reply({"id": running.job, "type": type_, "data": data})
