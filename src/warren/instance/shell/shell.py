"""What a shell does from its first to its last moment (RFC 16, 24, 50).

It reads the signed request and R, lets its plugins prepare, meets the job's
other shells in a barrier, starts the tasks of its node, and writes down what
they print. Its exit code is the greatest of its tasks'.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Protocol

import orjson

from warren.base.clock import Clock
from warren.base.errors import UserMistake, WarrenError
from warren.instance import keys
from warren.instance.shell.tasks import CannotStart, Spawner, Task
from warren.rfc import (
    eventlog,
    fluid,
    resource_set,
    signed_request,
    stdio,
    taskmap,
    treeobj,
)
from warren.rfc import (
    jobspec as jobspecs,
)
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.message import Handle, RpcError

STREAMS: Final = ("stdout", "stderr")
_AUTHORS: Final = ("cwd", "environment", "shell")
"""Attributes that say what is done as the author, and where."""

_APPEND: Final = 32
_PENDING: Final = 64
"""Chunks of output that may wait to be written down; then the tasks have to wait."""


class CannotRun(WarrenError):
    """The shell cannot run its part of the job; the job's author reads why."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """One node's part of a job."""

    job: JobId
    rank: int
    """Of the shell: 0 is the leader."""
    hosts: Sequence[str]
    tasks_per_node: Sequence[int]
    jobspec: Mapping[str, Any]
    environment: Mapping[str, str]
    cwd: str | None

    @property
    def host(self) -> str:
        return self.hosts[self.rank]

    @property
    def ranks(self) -> range:
        """The ranks of the tasks of this node."""
        first = sum(self.tasks_per_node[: self.rank])
        return range(first, first + self.tasks_per_node[self.rank])


class ShellPlugin(Protocol):
    """Prepares a job's environment before its tasks start."""

    async def init(self, handle: Handle, part: Part) -> Mapping[str, str]:
        """Give variables to set for all tasks. Raises CannotRun."""
        ...


@dataclass(kw_only=True)
class Shell:
    """One shell. `run` is its life; `deliver` brings it signals."""

    handle: Handle
    spawner: Spawner
    clock: Clock
    plugins: Sequence[ShellPlugin]
    job: JobId
    rank: int
    uri: str
    """Where the instance is, for the tasks, and to know them by."""
    request: bytes | None = None
    """What of the signed request was proven; None, and the instance is believed."""
    _tasks: list[Task] = field(default_factory=list)
    _sequence: int = 0
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> int:
        """Run the part, and give the exit code."""
        try:
            part = await self._prepare()
            await self._meet("init", part)
            return await self._run_tasks(part)
        except CannotRun as error:
            await self._complain(str(error))
            return 1
        except (RpcError, ExceptionGroup) as error:
            await self._complain(f"the shell cannot go on: {_refusal(error)}")
            return 1
        finally:
            await self.spawner.clean_up()

    def deliver(self, signum: int) -> None:
        """Pass a signal on to the tasks. SIGUSR1 asks for SIGKILL."""
        for task in self._tasks:
            task.signal(signal.SIGKILL if signum == signal.SIGUSR1 else signum)

    # Preparing

    async def _prepare(self) -> Part:
        part = await self._read()
        environment = dict(part.environment)
        for plugin in self.plugins:
            environment.update(await plugin.init(self.handle, part))
        if part.rank == 0:
            header = stdio.header(self.clock.now(), sum(part.tasks_per_node))
            await self._append("output", [header])
            init = Event(
                self.clock.now(), "shell.init", {"leader-rank": 0, "size": len(part.hosts)}
            )
            await self._append("exec.eventlog", [init])
        return replace(part, environment=environment)

    async def _read(self) -> Part:
        found = await self.handle.rpc(
            "job-info.lookup", {"id": self.job, "keys": ["J", "jobspec", "R"]}
        )
        try:
            signed = orjson.loads(self.request or _unproven(found["J"]))
            spec = as_signed(orjson.loads(found["jobspec"]), signed)
            hosts = resource_set.nodelist(orjson.loads(found["R"]))
            counted = jobspecs.summary(spec)
        except (UserMistake, ValueError, KeyError) as error:
            raise CannotRun(f"the job cannot be read: {error}") from error
        # The environment is in the signed request alone, and never changes after it.
        system = jobspecs.system(signed)
        return Part(
            job=self.job,
            rank=self.rank,
            hosts=hosts,
            tasks_per_node=_spread(counted.tasks, len(hosts)),
            jobspec=spec,
            environment=system.get("environment", {}),
            cwd=system.get("cwd"),
        )

    async def _meet(self, name: str, part: Part) -> None:
        """Wait until all the job's shells are here."""
        request = {
            "name": f"{fluid.f58plain(self.job)}-{name}",
            "nprocs": len(part.hosts),
            "who": str(part.rank),
        }
        await self.handle.rpc("barrier.enter", request)

    # Running

    async def _run_tasks(self, part: Part) -> int:
        pending: asyncio.Queue[Event | None] = asyncio.Queue(_PENDING)
        async with asyncio.TaskGroup() as work:
            writing = work.create_task(self._write(pending))
            statuses = await self._tend(part, pending)
            await pending.put(None)
            await writing
        return max((_code(status) for status in statuses), default=0)

    async def _tend(self, part: Part, pending: "asyncio.Queue[Event | None]") -> list[int]:
        """Start the tasks of this node, pass on what they print, and give their wait statuses."""
        async with asyncio.TaskGroup() as work:
            waiting = [
                work.create_task(self._task(part, index, pending, work))
                for index in range(len(part.ranks))
            ]
            if len(part.hosts) > 1:
                await self._meet("start", part)
            if part.rank == 0:
                started = {"taskmap": {"version": 1, "map": taskmap.encode(part.tasks_per_node)}}
                event = Event(self.clock.now(), "shell.start", started)
                await self._append("exec.eventlog", [event])
            statuses = [await task for task in waiting]
            # What tasks have left behind may hold their output open.
            await self.spawner.clean_up()
        return statuses

    async def _task(
        self,
        part: Part,
        index: int,
        pending: "asyncio.Queue[Event | None]",
        work: asyncio.TaskGroup,
    ) -> int:
        """Run one task, and give its wait status."""
        rank = part.ranks[index]
        command = part.jobspec["tasks"][0]["command"]
        environment = self._environment(part, rank, index)
        try:
            task = await self.spawner.start(command, environment, part.cwd)
        except CannotStart as error:
            await self._complain(str(error))
            for stream in STREAMS:
                await pending.put(stdio.eof(self.clock.now(), stream, rank))
            return 127 << 8
        self._tasks.append(task)
        for stream in STREAMS:
            work.create_task(self._read_stream(task, stream, rank, pending))
        return await task.wait()

    def _environment(self, part: Part, rank: int, index: int) -> dict[str, str]:
        return {
            **part.environment,
            "FLUX_URI": self.uri,
            "FLUX_JOB_ID": fluid.f58(part.job),
            "FLUX_JOB_SIZE": str(sum(part.tasks_per_node)),
            "FLUX_JOB_NNODES": str(len(part.hosts)),
            "FLUX_KVS_NAMESPACE": keys.guest(part.job),
            "FLUX_TASK_RANK": str(rank),
            "FLUX_TASK_LOCAL_ID": str(index),
        }

    async def _read_stream(
        self, task: Task, stream: str, rank: int, pending: "asyncio.Queue[Event | None]"
    ) -> None:
        while chunk := await task.read(stream):
            await pending.put(stdio.data(self.clock.now(), stream, rank, chunk))
        await pending.put(stdio.eof(self.clock.now(), stream, rank))

    async def _write(self, pending: "asyncio.Queue[Event | None]") -> None:
        """Write down what comes, as much at a time as there is."""
        ended = False
        while not ended:
            batch = [await pending.get()]
            while not pending.empty():
                batch.append(pending.get_nowait())
            ended = None in batch
            await self._append("output", [event for event in batch if event is not None])

    async def _append(self, key: str, events: Sequence[Event]) -> None:
        """Append to a log in the guest namespace, once, however often it has to be asked for."""
        if not events:
            return
        text = "".join(eventlog.encode(event) for event in events)
        operation = {"key": key, "flags": _APPEND, "dirent": treeobj.val(text.encode())}
        # One after the other: the KVS takes a number for done when it has seen a greater one.
        async with self._writing:
            self._sequence += 1
            await self.handle.rpc(
                "kvs.commit",
                {
                    "namespace": keys.guest(self.job),
                    "ops": [operation],
                    "writer": f"shell-{self.rank}",
                    "sequence": self._sequence,
                },
            )

    async def _complain(self, words: str) -> None:
        """Tell the job's author, in the job's output."""
        event = Event(
            self.clock.now(),
            "log",
            {"level": 3, "message": words, "rank": self.rank, "component": "shell"},
        )
        try:
            await self._append("output", [event])
        except RpcError:
            return  # there is nowhere to say it any more


def _unproven(token: str) -> bytes:
    """Give the payload of a request that the instance answers for."""
    return signed_request.unwrap(token, mechanisms=signed_request.MECHANISMS).payload


def as_signed(spec: Mapping[str, Any], signed: Mapping[str, Any]) -> dict[str, Any]:
    """Give the instance's jobspec with all that is the author's alone as he has signed it.

    Resources and the other attributes are the instance's to change. Raises CannotRun where
    there are other tasks than those that were signed.
    """
    if len(spec["tasks"]) != len(signed["tasks"]):
        raise CannotRun("the job's tasks are not those that its user has signed")
    tasks = [
        {**task, "command": own["command"]}
        for task, own in zip(spec["tasks"], signed["tasks"], strict=True)
    ]
    system = {key: value for key, value in jobspecs.system(spec).items() if key not in _AUTHORS}
    system |= {key: value for key, value in jobspecs.system(signed).items() if key in _AUTHORS}
    return {**spec, "tasks": tasks, "attributes": {**spec["attributes"], "system": system}}


def _refusal(error: Exception) -> RpcError:
    """Find the refusal in what went wrong among the shell's own tasks. All else is raised."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, RpcError):
        raise error
    return error


def _spread(tasks: int, nodes: int) -> list[int]:
    """Give each node its share of the tasks, the first ones the larger shares."""
    return [tasks // nodes + (node < tasks % nodes) for node in range(nodes)]


def _code(status: int) -> int:
    """Give the exit code that a wait status amounts to."""
    return os.waitstatus_to_exitcode(status) if status & 0x7F == 0 else 128 + (status & 0x7F)
