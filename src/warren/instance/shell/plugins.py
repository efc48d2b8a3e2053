"""Shell plugins: what they are called for, and what they may call (flux-shell-plugins).

The topics come in this order: `connect`, `init`, `post_init`, then for each task `task_init`,
`task_exec` and `task_fork`, `start`, for each task `task_exit`, `finish`, `exit`. All shells of
a job have gone through `init` before one goes through `post_init`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

import msgspec

from warren.base.clock import Clock
from warren.instance.shell.shellinfo import ShellInfo
from warren.instance.shell.terminal import Terminal
from warren.rfc.eventlog import Event
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Handle, Payload, Request

ERROR, WARNING, NOTICE, INFO, DEBUG = 3, 4, 5, 6, 7
"""Levels of what a shell says, as RFC 24 has them."""


class Connection(Handle, Protocol):
    """A shell's way to the instance, which outlives restarts of the instance."""

    async def offer(self, service: str, methods: Methods, offered: asyncio.Event) -> None:
        """Keep a service on offer, over every connection that there is. Runs until cancelled.

        `offered` is set when it can be asked for the first time.
        """
        ...


class Peers(Protocol):
    """The shells of a job among themselves."""

    some_node_done: asyncio.Event
    """Set at the leader when all tasks of some other node have ended."""

    def service(self, rank: int) -> str:
        """Return the name of a shell's service."""
        ...

    async def exchange(self, name: str, contribution: Mapping[str, Any]) -> Mapping[str, Any]:
        """Wait until all shells have come with a contribution, and return all of them as one map.

        Raises RpcError(ECANCELED) where one of them cannot come any more.
        """
        ...

    async def ask(self, rank: int, method: str, payload: Payload) -> Payload | None:
        """Ask another shell, as the leader, and return its answer; None when it has left."""
        ...


class TaskStart(msgspec.Struct, kw_only=True):
    """A task before it is started. Plugins may change all but its rank and index."""

    rank: int
    index: int
    """Among the tasks of its node."""
    command: list[str]
    environment: dict[str, str]
    stdin: int | None = None
    """The descriptor to read from; the task reads nothing without one."""
    descriptors: list[int] = msgspec.field(default_factory=list)
    """Further descriptors that the task inherits under their numbers."""
    terminal: Terminal | None = None
    """What it has for its standard streams instead of pipes."""
    cpus: frozenset[int] | None = None
    """The CPUs that it may run on; None for those of the shell."""
    before_exec: list[Callable[[], None]] = msgspec.field(default_factory=list)
    """The `task_exec` of plugins that ask for it: called in the new process, which may fail."""


class RunningShell(Protocol):
    """A shell, as plugins see it."""

    handle: Connection
    clock: Clock
    environment: dict[str, str]
    """What all tasks of the node are given. To change in `init` and `post_init`."""
    initial_logs: dict[str, list[Event]]
    """What the leader writes to logs of the guest namespace before any task starts."""
    init_context: dict[str, Any]
    """What the leader's event `shell.init` tells beside what it always does."""

    ending: bool
    """Whether the tasks were told to end, since the job is to."""

    @property
    def info(self) -> ShellInfo:
        """What the shell knows of its job. Not there yet in `connect`."""
        ...

    @property
    def peers(self) -> Peers:
        """The other shells of the job. Not there yet in `connect`."""
        ...

    def serve(self, name: str, method: Method) -> None:
        """Add a method to the shell's service. In `init`."""
        ...

    def check_permitted(self, request: Request) -> None:
        """Raise RpcError(EPERM) unless the job's user asks, or the instance's owner."""
        ...

    def background(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something as long as the shell lives."""
        ...

    def signal(self, signum: int, ranks: Iterable[int] | None = None) -> None:
        """Send a signal to tasks of this node: to all, or to those of these ranks."""
        ...

    async def append(self, key: str, events: Sequence[Event]) -> None:
        """Append to a log in the guest namespace, once, however often it has to be asked for."""
        ...

    async def log(self, level: int, message: str) -> None:
        """Log a message to the job's output, if it is to be that verbose."""
        ...

    async def fail(self, note: str, wait_status: int | None = None) -> None:
        """Raise a fatal exception of type exec on the job, which has ended so if that is said."""
        ...


class ShellPlugin:
    """Does nothing on any topic; a plugin overrides what it is there for.

    Wherever it may wait it may raise CannotRun, and the job does not run.
    """

    async def connect(self, shell: RunningShell) -> None:
        """The shell has a connection, and has read nothing yet."""

    async def init(self, shell: RunningShell) -> None:
        """The job is known (`info`); no task is started anywhere."""

    async def post_init(self, shell: RunningShell) -> None:
        """All shells of the job have come this far."""

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        """A task is about to be started."""

    async def task_fork(self, shell: RunningShell, task: TaskStart) -> None:
        """A task was started, or could not be."""

    async def start(self, shell: RunningShell) -> None:
        """All tasks of the node were started."""

    async def task_exit(self, shell: RunningShell, task: TaskStart, status: int) -> None:
        """A task has ended with a wait status."""

    async def finish(self, shell: RunningShell) -> None:
        """All tasks of the node have ended, and their output is written down."""

    def exit(self, shell: RunningShell) -> None:
        """The shell ends, whichever way. Nothing of the tasks is left."""


def callbacks_on(topic: str, plugins: Iterable[ShellPlugin]) -> list[Callable[..., Any]]:
    """Return the callbacks of plugins on a topic, in order, without those that do nothing."""
    nothing = getattr(ShellPlugin, topic)
    return [
        getattr(plugin, topic) for plugin in plugins if getattr(type(plugin), topic) is not nothing
    ]
