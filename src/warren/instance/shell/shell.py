"""What a shell does from its first to its last moment (RFC 16, 24, 50).

It reads the signed request and R, lets its plugins prepare, meets the job's
other shells, starts the tasks of its node, and has written down what they print.
Its exit code is the greatest of its tasks'. Whatever else there is to do at a point of
its life, plugins do.
"""

import asyncio
import errno
import os
import signal
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import replace

from warren.base.clock import Clock
from warren.instance import keys
from warren.instance.shell import output, plugins, shellinfo, usershell
from warren.instance.shell.options import CannotRun
from warren.instance.shell.output import Output
from warren.instance.shell.peers import ShellPeers
from warren.instance.shell.plugins import ERROR, NOTICE, WARNING, Connection, ShellPlugin, TaskStart
from warren.instance.shell.shellinfo import ShellInfo
from warren.instance.shell.signals import TASK_SIGNAL_OFFSET
from warren.instance.shell.tasks import CannotStart, Inherited, Spawner, Task
from warren.instance.shell.templates import fill_in
from warren.rfc import eventlog, fluid, jobspec, kvsflags, stdio, taskmap, treeobj
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, StreamingMethod
from warren.rpc.message import Request, RpcError

_ENDING_SIGNALS: Final = (signal.SIGTERM, signal.SIGALRM, signal.SIGUSR1)
"""What execution sends when a job has met an exception, or its time is up."""
_FALLBACK_CWD: Final = "/tmp"
"""Where tasks begin if their directory is not there, as with flux."""


@dataclass(kw_only=True)
class Shell:
    """One shell. `run` is its life; `deliver` brings it signals."""

    handle: Connection
    spawner: Spawner
    clock: Clock
    plugins: Sequence[ShellPlugin]
    job: JobId
    rank: int
    uri: str
    """Where the instance is, for the tasks, and to know them by."""
    proven_payload: bytes | None = None
    """The payload of the signed request, if that was proven; else the instance is believed."""
    environment: dict[str, str] = field(default_factory=dict)
    initial_logs: dict[str, list[Event]] = field(default_factory=dict)
    init_context: dict[str, Any] = field(default_factory=dict)
    ending: bool = False
    _info: ShellInfo | None = None
    _peers: ShellPeers | None = None
    _group: asyncio.TaskGroup | None = None
    _background: list[asyncio.Task[None]] = field(default_factory=list)
    _methods: dict[str, Method] = field(default_factory=dict)
    _tasks: dict[int, Task] = field(default_factory=dict)
    """The tasks of this node by rank."""
    _signals: dict[tuple[int, frozenset[int] | None], None] = field(default_factory=dict)
    """What tasks were sent: those that start later get it, too."""
    _early_log: list[Event] | None = field(default_factory=list)
    """What was said before the log of the output was begun: its header comes first."""
    _sequence: int = 0
    _write_lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> int:
        """Run the tasks of this node, and return the exit code."""
        try:
            async with asyncio.TaskGroup() as self._group:
                try:
                    return await self._run()
                finally:
                    for work in self._background:
                        work.cancel()
        except (CannotRun, RpcError, ExceptionGroup) as error:
            await self._log_now(ERROR, _explain(error))
            return 1
        finally:
            await self.spawner.clean_up()
            for leave in plugins.callbacks_on("exit", self.plugins):
                leave(self)

    def deliver(self, signum: int) -> None:
        """Take a signal: for the tasks, or that they are to end, for which SIGUSR1 kills them."""
        if signum > TASK_SIGNAL_OFFSET:
            self.signal(signum - TASK_SIGNAL_OFFSET)
            return
        self.ending = self.ending or signum in _ENDING_SIGNALS
        self.signal(signal.SIGKILL if signum == signal.SIGUSR1 else signum)

    async def _run(self) -> int:
        await self._call_plugins("connect")
        values = await self.handle.rpc(
            "job-info.lookup", {"id": self.job, "keys": ["J", "jobspec", "R"]}
        )
        self._info = info = shellinfo.read(values, self.job, self.rank, self.proven_payload)
        self.environment.update(info.environment)
        user_shell = jobspec.system(info.jobspec).get("exec", {}).get("job_shell")
        if user_shell is not None:
            return await usershell.run(self, self.spawner, self._add_task, user_shell, self.uri)
        self._peers = ShellPeers(self.handle, info)
        task_output = await self._prepare()
        try:
            code = await self._run_tasks(task_output)
        finally:
            task_output.close()
        await self._call_plugins("finish")
        await self._peers.leave(wait_for_all=info.options.exit_timeout is not None)
        return code

    # Preparing

    async def _prepare(self) -> Output:
        """Do all that comes before the first task of the job, wherever it is."""
        info = self.info
        self.environment.update(
            FLUX_URI=self.uri,
            FLUX_JOB_ID=fluid.f58(info.job),
            FLUX_JOB_SIZE=str(info.task_count),
            FLUX_JOB_NNODES=str(len(info.hosts)),
            FLUX_KVS_NAMESPACE=keys.guest_namespace(info.job),
        )
        await self._call_plugins("init")
        self._info = info = replace(info, environment=self.environment)
        await self._choose_cwd()
        task_output = Output(self.clock, self.info, self._append_text)
        if info.rank == 0:
            task_output.truncate()
        if self._methods or len(info.hosts) > 1:
            # Before the log says that there is such a service: its readers ask at once.
            await self._offer()
        if info.rank == 0:
            await self._write_initial_logs()
        if len(info.hosts) > 1:
            await self.peers.gather()
        early, self._early_log = self._early_log, None
        await self.append("output", [*(early or ()), *task_output.open_files()])
        await self._call_plugins("post_init")
        return task_output

    async def _choose_cwd(self) -> None:
        """Choose a working directory that exists, and log it if it is another one."""
        cwd = self.info.cwd
        problem = self.spawner.directory_problem(cwd) if cwd is not None else None
        if problem is not None:
            self._info = replace(self.info, cwd=_FALLBACK_CWD)
            await self.log(WARNING, f"working directory {cwd}: {problem}; going to {_FALLBACK_CWD}")

    async def _offer(self) -> None:
        methods: dict[str, Method | StreamingMethod] = dict(self._methods)
        if self.info.rank == 0:
            methods.update(self.peers.methods())
        offered = asyncio.Event()
        service = self.peers.service(self.info.rank)
        self.background(self.handle.offer(service, methods, offered))
        await offered.wait()

    async def _write_initial_logs(self) -> None:
        """Begin the logs of the job, all at once."""
        now = self.clock.now()
        init: dict[str, Any] = {"leader-rank": 0, "size": len(self.info.hosts), **self.init_context}
        if self._methods:
            init["service"] = self.peers.service(0)
        logs = {
            "output": [stdio.header_event(now, self.info.task_count)],
            "exec.eventlog": [Event(now, "shell.init", init)],
            **self.initial_logs,
        }
        await self._commit([(key, _text(events)) for key, events in logs.items()])

    # Running

    async def _run_tasks(self, task_output: Output) -> int:
        async with asyncio.TaskGroup() as work:
            write_task = work.create_task(task_output.run())
            statuses = await self._run_to_exit(task_output)
            await task_output.end()
            await write_task
        return max((_exit_code(status) for status in statuses), default=0)

    async def _run_to_exit(self, task_output: Output) -> list[int]:
        """Start the tasks of this node, pass on what they print, and return their wait statuses."""
        info = self.info
        async with asyncio.TaskGroup() as work:
            exit_tasks = []
            for index in range(len(info.task_ranks)):
                start, task = await self._start_task(index, task_output)
                exit_tasks.append(work.create_task(self._wait_task(start, task)))
                if task is not None:
                    for stream in output.STREAMS:
                        work.create_task(task_output.forward(task, stream, index))
            await self._call_plugins("start")
            await self.peers.exchange("start", {})
            if info.rank == 0:
                context = {"taskmap": taskmap.wrap(info.taskmap)}
                event = Event(self.clock.now(), "shell.start", context)
                await self.append("exec.eventlog", [event])
            statuses = [await each for each in exit_tasks]
            # What tasks have left behind may hold their output open.
            await self.spawner.clean_up()
        return statuses

    async def _start_task(self, index: int, task_output: Output) -> tuple[TaskStart, Task | None]:
        info = self.info
        rank = info.task_ranks[index]
        start = TaskStart(
            rank=rank,
            index=index,
            command=[fill_in(word, info, index) for word in info.command],
            environment={
                **self.environment,
                "FLUX_TASK_RANK": str(rank),
                "FLUX_TASK_LOCAL_ID": str(index),
            },
        )
        await self._call_plugins("task_init", start)
        inherited = Inherited(
            stdin=start.stdin,
            descriptors=start.descriptors,
            before_exec=_call_all(start.before_exec) if start.before_exec else None,
            own_group=not info.options.nosetpgrp,
            cpus=start.cpus,
            terminal=start.terminal,
        )
        task = None
        try:
            task = await self.spawner.start(start.command, start.environment, info.cwd, inherited)
            self._add_task(rank, task)
        except CannotStart as error:
            await self._log_now(ERROR, str(error))
            await task_output.close_unstarted(index)
        await self._call_plugins("task_fork", start)
        return start, task

    async def _wait_task(self, start: TaskStart, task: Task | None) -> int:
        """Wait for the end of a task, and return its wait status."""
        status = 127 << 8 if task is None else await task.wait()
        await self._call_plugins("task_exit", start, status)
        return status

    # What plugins may call

    @property
    def info(self) -> ShellInfo:
        assert self._info is not None
        return self._info

    @property
    def peers(self) -> ShellPeers:
        assert self._peers is not None
        return self._peers

    def serve(self, name: str, method: Method) -> None:
        self._methods[name] = method

    def check_permitted(self, request: Request) -> None:
        if not request.cred.is_owner and request.cred.userid != self.info.userid:
            raise RpcError(errno.EPERM, "the job is another user's")

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        self._background.append(self._task_group().create_task(work))

    def signal(self, signum: int, ranks: Iterable[int] | None = None) -> None:
        chosen_ranks = None if ranks is None else frozenset(ranks)
        self._signals[signum, chosen_ranks] = None
        for rank, task in self._tasks.items():
            if chosen_ranks is None or rank in chosen_ranks:
                task.signal(signum)

    async def append(self, key: str, events: Sequence[Event]) -> None:
        if events:
            await self._append_text(key, _text(events))

    async def log(self, level: int, message: str) -> None:
        if level > NOTICE + self.info.options.verbose:
            return
        if self._early_log is not None:
            self._early_log.append(self._log_event(level, message))
        else:
            await self._log_now(level, message)

    async def fail(self, note: str, wait_status: int | None = None) -> None:
        request: dict[str, Any] = {"id": self.job, "type": "exec", "severity": 0, "note": note}
        if wait_status is not None:
            request["wait_status"] = wait_status
        with suppress(RpcError):  # a job that is over has failed enough
            await self.handle.rpc("job-manager.raise", request)

    # Inside

    def _add_task(self, rank: int, task: Task) -> None:
        """Forward signals to a task, also those that came before it was there."""
        self._tasks[rank] = task
        for signum, ranks in self._signals:
            if ranks is None or rank in ranks:
                task.signal(signum)

    async def _call_plugins(self, topic: str, *arguments: Any) -> None:
        for callback in plugins.callbacks_on(topic, self.plugins):
            await callback(self, *arguments)

    def _task_group(self) -> asyncio.TaskGroup:
        assert self._group is not None
        return self._group

    async def _append_text(self, key: str, text: str) -> None:
        await self._commit([(key, text)])

    async def _commit(self, texts: Iterable[tuple[str, str]]) -> None:
        """Append texts to logs in the guest namespace, all or none, and once."""
        operations = [
            {"key": key, "flags": kvsflags.TXN_APPEND, "dirent": treeobj.val(text.encode())}
            for key, text in texts
        ]
        # One after the other: the KVS takes a number for done when it has seen a greater one.
        async with self._write_lock:
            self._sequence += 1
            await self.handle.rpc(
                "kvs.commit",
                {
                    "namespace": keys.guest_namespace(self.job),
                    "ops": operations,
                    "writer": f"shell-{self.rank}",
                    "sequence": self._sequence,
                },
            )

    async def _log_now(self, level: int, message: str) -> None:
        """Log a message to the job's output."""
        early, self._early_log = self._early_log, None
        try:
            await self.append("output", [*(early or ()), self._log_event(level, message)])
        except RpcError:
            return  # there is nowhere to say it any more

    def _log_event(self, level: int, message: str) -> Event:
        return stdio.log_event(self.clock.now(), level, message, rank=self.rank, component="shell")


def _text(events: Iterable[Event]) -> str:
    return "".join(map(eventlog.encode, events))


def _call_all(callables: Sequence[Any]) -> Any:
    def call() -> None:
        for each in callables:
            each()

    return call


def _explain(error: Exception) -> str:
    """Return what went wrong, also in the shell's asyncio tasks. Re-raise all that is a bug."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, CannotRun):
        return str(error)
    if isinstance(error, RpcError):
        return f"the shell cannot go on: {error}"
    raise error


def _exit_code(status: int) -> int:
    """Return the exit code that a wait status amounts to."""
    return os.waitstatus_to_exitcode(status) if status & 0x7F == 0 else 128 + (status & 0x7F)
