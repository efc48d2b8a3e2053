"""Execution: a shell on each node of a job, and their end.

Every step may have been done before by a process that is dead now: what stands
in the guest namespace, and which shells there are, says where to go on.
"""

import asyncio
import signal
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Protocol

import msgspec

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import UserMistake, WarrenError
from warren.instance import jobtables, keys
from warren.instance.barrier import Barriers
from warren.instance.exec import testexec
from warren.instance.exec.draining import DrainNodes
from warren.instance.exec.guest import ExecutionHistory, GuestNamespace, LogEntry
from warren.instance.exec.testexec import SimulatedShells
from warren.instance.kvs import PRIMARY, Kvs
from warren.instance.protocols import Message
from warren.instance.shell.signals import TASK_SIGNAL_OFFSET
from warren.lifecycle import kill_escalation
from warren.lifecycle.kill_escalation import KillAction
from warren.rfc import fluid, idset, resource_set
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError

_FAILED_STATUS: Final = 1 << 8
"""The wait status of what went wrong without one of its own."""

_UNKILLABLE_STATUS: Final = 1
"""The least status of a job of which something could not be killed."""


class ShellsLost(WarrenError):
    """A shell that should be there is not known."""


class ShellStuck(ShellsLost):
    """A shell has ended, and something that it has started does not die."""


class Shells(Protocol):
    """Has the shells of jobs. `rank` is a shell's among those of its job: 0 is the leader's."""

    async def start(self, job: JobId, rank: int, host: str, userid: int) -> None:
        """Start a job's shell on a node, unless it was started before."""
        ...

    async def wait(self, job: JobId, rank: int) -> int:
        """Wait for a shell's end, and return its wait status. Raises ShellsLost, or ShellStuck."""
        ...

    async def kill(self, job: JobId, signum: int) -> None:
        """Send a signal to a job's shells. SIGKILL goes to all that they have started, too."""
        ...


class Launcher(Shells, Protocol):
    """Starts shells on nodes, and outlives the instance."""

    async def started_jobs(self) -> Mapping[JobId, frozenset[int]]:
        """Return the jobs, and their shells' ranks, that were started and are not forgotten."""
        ...

    async def forget(self, job: JobId) -> None:
        """Forget a job whose shells have ended."""
        ...


class _RunningJob(msgspec.Struct, kw_only=True):
    """One job at work."""

    job: JobId
    userid: int
    jobspec: Mapping[str, Any]
    nodes: list[resource_set.NodeResources]
    """Where its shells are: the first one has the leader."""
    expiration: float
    namespace: GuestNamespace
    shells: Shells
    exception_type: str | None = None
    """The type of the first fatal exception that it has met."""
    changed: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when there is an exception, or another expiration."""
    shells_started: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    """Set when all shells have been started, as far as they can be."""
    shells_to_start: int = 0
    start_reported: bool = False
    """Whether the job manager has heard, now or in an earlier life, that the job has started."""
    statuses: dict[int, int] = msgspec.field(default_factory=dict)
    """How shells have ended, by their ranks among the job's shells."""
    released_ranks: set[int] = msgspec.field(default_factory=set)
    """Ranks of nodes that were released before the others."""
    stuck_ranks: set[int] = msgspec.field(default_factory=set)
    """Ranks of nodes where something does not die that a shell has left behind."""

    @property
    def label(self) -> str:
        return fluid.f58(self.job)

    @property
    def barrier_prefix(self) -> str:
        """How the names of the barriers begin where the job's shells meet."""
        return f"{fluid.f58plain(self.job)}-"

    def active_ranks(self) -> list[int]:
        """Return the ranks of the nodes whose shells have not ended."""
        return [node.rank for index, node in enumerate(self.nodes) if index not in self.statuses]


_ShellExits = asyncio.Queue[tuple[int, int] | None]
"""Ends of shells, each its rank and its wait status; None when no more are waited for."""


class JobExec:
    """An `Execution`, with shells from a launcher."""

    def __init__(
        self,
        kvs: Kvs,
        clock: Clock,
        launcher: Launcher,
        barriers: Barriers,
        reply: Callable[[Message], None],
        drain: DrainNodes,
        config: jobtables.ExecTable,
    ) -> None:
        self._kvs = kvs
        self._clock = clock
        self._launcher = launcher
        self._barriers = barriers
        self._reply = reply
        self._drain = drain
        self._config = config
        self._running: dict[JobId, _RunningJob] = {}
        self._start_requests: asyncio.Queue[Message] = asyncio.Queue()
        self._signals: dict[tuple[JobId, int], None] = {}
        """What is to be passed on, in order. The same twice is passed on once."""
        self._signalled = asyncio.Event()
        self._all_claimed = asyncio.Event()

    async def run(self) -> None:
        """Run jobs until cancelled. Their shells go on without us."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._end_unclaimed())
            tasks.create_task(self._pass_signals())
            while True:
                message = await self._start_requests.get()
                running = self._running[message["id"]]
                tasks.create_task(
                    self._run(running, reattach=message["reattach"]), name=running.label
                )
                # After a restart, each reads a log which is its user's: one in each turn.
                await asyncio.sleep(0)

    # What the job manager asks

    def start(self, message: Message) -> None:
        job, r = JobId(message["id"]), message["R"]
        nodes = resource_set.decode_nodes(r)
        self._running[job] = _RunningJob(
            job=job,
            userid=message["userid"],
            jobspec=message["jobspec"],
            nodes=nodes,
            expiration=r["execution"].get("expiration", 0.0),
            namespace=GuestNamespace(self._kvs, self._clock, job, message["userid"]),
            shells=self._launcher,
            shells_to_start=len(nodes),
            start_reported=message["reattach"],
        )
        self._start_requests.put_nowait(message)

    def on_exception(self, job: JobId, type: str) -> None:
        running = self._running.get(job)
        if running is not None and running.exception_type is None:
            running.exception_type = type
            running.changed.set()

    def set_expiration(self, job: JobId, expiration: float) -> None:
        """Set when a job's time is up, in seconds since the epoch; 0 for never."""
        running = self._running.get(job)
        if running is not None:
            running.expiration = expiration
            running.changed.set()

    def kill(self, job: JobId, signum: int) -> None:
        self._signals[job, signum + TASK_SIGNAL_OFFSET] = None
        self._signalled.set()

    def may_have_old_shells(self, job: JobId) -> bool:
        # It is durable before the first shell is started, and goes when the last has ended.
        return self._kvs.owner(keys.guest_namespace(job)) is not None

    def end_unclaimed_shells(self) -> None:
        self._all_claimed.set()

    async def _pass_signals(self) -> None:
        while True:
            await self._signalled.wait()
            self._signalled.clear()
            while self._signals:
                job, signum = next(iter(self._signals))
                del self._signals[job, signum]
                if job in self._running:
                    await self._kill(self._running[job], signum)

    async def _end_unclaimed(self) -> None:
        """End the shells of jobs that are not running: their start was never written down.

        What such a job has in its guest namespace is kept with it.
        """
        await self._all_claimed.wait()
        for job in await self._launcher.started_jobs():
            if job not in self._running:
                log.info("shells without a job are ended", job=fluid.f58(job))
                await self._send_signal(self._launcher, job, signal.SIGKILL)
                await self._forget(job)
        for namespace in self._kvs.namespaces():
            namespace_job = keys.job_of(namespace)
            if namespace_job is not None and namespace_job not in self._running:
                userid = self._kvs.owner(namespace) or 0
                await GuestNamespace(self._kvs, self._clock, namespace_job, userid).close()

    # One job

    async def _run(self, running: _RunningJob, *, reattach: bool) -> None:
        try:
            status = await self._end_status(running, reattach=reattach)
        except Exception:  # a bug may cost one job, not all
            log.exception("job not executed", job=running.label)
            status = await self._end_lost(running, "internal error; see the instance's log")
        self._barriers.forget(running.userid, running.barrier_prefix)
        if status is not None and running.start_reported:
            self._respond(running, "finish", {"status": status})
        del self._running[running.job]
        self._respond(running, "release", {"ranks": "all", "final": True})
        # Last: nothing waits for it, and what is left when we die here the next instance ends.
        if running.shells is self._launcher:
            await self._forget(running.job)

    async def _end_status(self, running: _RunningJob, *, reattach: bool) -> int | None:
        history = running.namespace.history()
        if history.status is None:
            return await self._execute(running, history, reattach=reattach)
        await running.namespace.close()
        return history.status

    async def _execute(
        self, running: _RunningJob, history: ExecutionHistory, *, reattach: bool
    ) -> int | None:
        """Start the shells and wait for them. None if they were not to start any more."""
        try:
            mock = self._mock_run(running)
        except UserMistake as mistake:
            self._raise_exception(running, str(mistake))
            return None
        if reattach and not history.recoverable:
            return await self._end_lost(running, "job is not recoverable: no recoverable event")
        # Not what the log says of the start: its user would have nodes given to others meanwhile.
        is_open = running.namespace.is_open
        shells_known = is_open and (
            mock is not None or running.job in await self._launcher.started_jobs()
        )
        if running.exception_type is not None and not (reattach or shells_known):
            if is_open:
                await running.namespace.close()
            return None
        if mock is not None and mock.init_exception is not None:
            self._raise_exception(running, mock.init_exception)
            return None
        if (reattach or history.tasks_started) and not shells_known:
            note = "the job's shells were lost while the cluster was down"
            return await self._end_lost(running, note)
        started_at = history.started_at
        if started_at is None:
            started_at = self._clock.now() if is_open else await running.namespace.open()
        if mock is not None:
            running.shells = SimulatedShells(self._clock, mock, started_at)
        if reattach:
            await running.namespace.log(("reattach", {}))
            running.shells_started.set()
            self._respond(running, "reattached", {})
        return await self._supervise(running, history, mock, reattach=reattach)

    def _mock_run(self, running: _RunningJob) -> testexec.MockRun | None:
        """Return how a job is mocked; None for one that is executed. Raises UserMistake."""
        by_owner = running.userid == self._kvs.owner(PRIMARY)
        return testexec.read_mock_run(running.jobspec, by_owner=by_owner)

    async def _end_lost(self, running: _RunningJob, note: str) -> int:
        """End a job that cannot be taken up again, once its shells have ended or are given up."""
        self._report_start(running)
        self._raise_exception(running, note)
        last_entries = [_log_entry(running, note)]
        stuck = await self._kill_shells(running)
        if stuck:
            last_entries.append(await self._drain_stuck(running, stuck))
        await running.namespace.close(*last_entries, ("complete", {"status": _FAILED_STATUS}))
        return _FAILED_STATUS

    async def _kill_shells(self, running: _RunningJob) -> list[int]:
        """Kill what was started for a job; return the ranks of nodes where it does not die.

        What was, the launcher says: the log is the user's, who gains no node by it.
        """
        shells = (await self._launcher.started_jobs()).get(running.job, frozenset())
        tasks = {
            asyncio.create_task(self._wait_ended(running.job, index)): running.nodes[index].rank
            for index in sorted(shells)
        }
        pending = set(tasks)
        try:
            for wait, _ in kill_escalation.escalation(
                self._config.kill_seconds, self._config.max_kill_count
            ):
                if pending:
                    await self._send_signal(self._launcher, running.job, signal.SIGKILL)
                    _, pending = await asyncio.wait(pending, timeout=wait)
        finally:
            for task in tasks:
                task.cancel()
        return sorted(rank for task, rank in tasks.items() if task in pending or not task.result())

    async def _wait_ended(self, job: JobId, index: int) -> bool:
        """Wait for a shell's end. Return False when something of it stays, or nobody can tell."""
        try:
            await self._launcher.wait(job, index)
        except ShellStuck:
            return False
        except ShellsLost:
            return True
        except Exception:  # a bug may cost a node, not all
            log.exception("a shell's end is not known", job=fluid.f58(job), shell=index)
            return False
        return True

    async def _drain_stuck(self, running: _RunningJob, ranks: list[int]) -> LogEntry:
        """Drain nodes where something does not die; return what the job's log says of it."""
        reason = f"unkillable user processes for job {running.label}"
        log.error("processes cannot be killed", job=running.label, ranks=idset.encode(ranks))
        await self._drain(ranks, reason)
        return _log_entry(running, reason)

    async def _supervise(
        self,
        running: _RunningJob,
        history: ExecutionHistory,
        mock: testexec.MockRun | None,
        *,
        reattach: bool,
    ) -> int:
        """Follow a job's shells from their start, or from where they are, to their end."""
        exits: _ShellExits = asyncio.Queue()
        async with asyncio.TaskGroup() as tasks:
            running_tasks = [
                tasks.create_task(self._run_shell(running, index, exits, start=not reattach))
                for index in range(len(running.nodes))
            ]
            running_tasks.append(tasks.create_task(self._end_early(running, exits)))
            if mock is not None and mock.run_exception is not None and not running.exception_type:
                await running.shells_started.wait()
                self._raise_exception(running, mock.run_exception)
            last_entries = await self._collect_exits(running, history, exits)
            for task in running_tasks:
                task.cancel()
        status = max(running.statuses.values(), default=0)
        stuck = sorted({*running.active_ranks(), *running.stuck_ranks})
        if stuck:
            last_entries.append(await self._drain_stuck(running, stuck))
            status = max(status, _UNKILLABLE_STATUS)
        if status == 0 and running.exception_type is not None:
            status = _FAILED_STATUS
        await running.namespace.close(*last_entries, ("complete", {"status": status}))
        return status

    async def _collect_exits(
        self, running: _RunningJob, history: ExecutionHistory, exits: _ShellExits
    ) -> list[LogEntry]:
        """Wait until all shells have ended or are given up; return what is still to be logged."""
        entries: list[LogEntry] = []
        while len(running.statuses) < len(running.nodes):
            ended = await exits.get()
            if ended is None:
                break
            index, running.statuses[index] = ended
            if index == 0 and not history.leader_exited:
                entries.append(_leader_exit(running))
            if entries and exits.empty() and running.active_ranks():
                await running.namespace.log(*entries)
                entries = []
        return entries

    async def _run_shell(
        self, running: _RunningJob, index: int, exits: _ShellExits, *, start: bool
    ) -> None:
        try:
            if start:
                await self._start_shell(running, index)
            status = await running.shells.wait(running.job, index)
        except (ShellsLost, RpcError) as error:
            if running.exception_type is None:
                self._raise_exception(running, str(error))
            if isinstance(error, ShellStuck):
                running.stuck_ranks.add(running.nodes[index].rank)
            status = _FAILED_STATUS
        if status != 0 or index == 0:
            # Others that wait for this shell would wait for ever; for a leader without a failure,
            # one that lost the answer to its report with its connection.
            self._barriers.abort(running.userid, running.barrier_prefix)
        exits.put_nowait((index, status))

    async def _start_shell(self, running: _RunningJob, index: int) -> None:
        host = running.nodes[index].host
        try:
            await running.shells.start(running.job, index, host, running.userid)
        except RpcError as error:
            running.shells_started.set()
            raise ShellsLost(f"{host}: the shell cannot be started: {error}") from error
        running.shells_to_start -= 1
        if running.shells_to_start == 0:
            running.shells_started.set()
            self._report_start(running)

    def _report_start(self, running: _RunningJob) -> None:
        if not running.start_reported:
            running.start_reported = True
            self._respond(running, "start", {})

    # Ending jobs before their time

    async def _end_early(self, running: _RunningJob, exits: _ShellExits) -> None:
        """End a job when it has met an exception or its time is up."""
        type_ = await self._wait_exception(running)
        # Shells that are being started would miss the signal.
        with suppress(TimeoutError):
            async with asyncio.timeout(self._config.kill_seconds):
                await running.shells_started.wait()
        await self._kill(running, signal.SIGALRM if type_ == "timeout" else signal.SIGTERM)
        for wait, action in kill_escalation.escalation(
            self._config.kill_seconds, self._config.max_kill_count
        ):
            await asyncio.sleep(wait)
            match action:
                case KillAction.KILL_TASKS:
                    await self._kill(running, signal.SIGUSR1)
                case KillAction.KILL_SHELLS:
                    self._release_ended_nodes(running)
                    await self._kill(running, signal.SIGKILL)
                case KillAction.GIVE_UP:
                    exits.put_nowait(None)

    async def _wait_exception(self, running: _RunningJob) -> str:
        """Wait until a job is to end early, and return the type of the exception."""
        while running.exception_type is None:
            left = running.expiration - self._clock.now() if running.expiration else None
            running.changed.clear()
            try:
                async with asyncio.timeout(left):
                    await running.changed.wait()
            except TimeoutError:
                self._raise_exception(running, "resource allocation expired", "timeout")
        return running.exception_type

    def _release_ended_nodes(self, running: _RunningJob) -> None:
        """Release the nodes whose shells have ended: what is stuck on the rest may take long."""
        ended = {node.rank for node in running.nodes} - {
            *running.active_ranks(),
            *running.released_ranks,
        }
        if ended:
            running.released_ranks |= ended
            self._respond(running, "release", {"ranks": idset.encode(ended), "final": False})

    async def _kill(self, running: _RunningJob, signum: int) -> None:
        await self._send_signal(running.shells, running.job, signum)

    async def _send_signal(self, shells: Shells, job: JobId, signum: int) -> None:
        """Send a signal. That it cannot be delivered is no reason to stop trying stronger ones."""
        try:
            async with asyncio.timeout(self._config.kill_seconds):
                await shells.kill(job, signum)
        except (TimeoutError, RpcError) as error:
            words = str(error) or "no answer"
            log.warning("signal is not sent", job=fluid.f58(job), signum=signum, reason=words)

    async def _forget(self, job: JobId) -> None:
        try:
            await self._launcher.forget(job)
        except RpcError as error:
            log.warning("shells are not forgotten", job=fluid.f58(job), reason=str(error))

    # Answers

    def _raise_exception(self, running: _RunningJob, note: str, type: str = "exec") -> None:
        """Raise a fatal exception, and act on it before its event arrives."""
        self.on_exception(running.job, type)
        self._respond(running, "exception", {"severity": 0, "type": type, "note": note})

    def _respond(self, running: _RunningJob, type_: str, data: Mapping[str, Any]) -> None:
        self._reply({"id": running.job, "type": type_, "data": data})


def _leader_exit(running: _RunningJob) -> LogEntry:
    context: dict[str, Any] = {"rank": running.nodes[0].rank, "wait_status": running.statuses[0]}
    active = running.active_ranks()
    return "shell-exit", context | ({"active_ranks": idset.encode(active)} if active else {})


def _log_entry(running: _RunningJob, words: str) -> LogEntry:
    """Return the entry that tells the job's user what execution has to say."""
    rank = str(running.nodes[0].rank)
    return "log", {"component": "job-exec", "stream": "stderr", "rank": rank, "data": words}
