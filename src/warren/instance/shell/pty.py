"""Tasks on pseudo-terminals (shell option `pty`), and one to which a client is attached.

What is typed comes as other input does (`input`). What an interactive task prints is asked for:
`<service>.pty-output` with how many bytes were `seen` answers, when there is more, with `data`
from byte `offset` on, or with `end`. So a client is never sent more than it takes, and sees each
byte once over restarts of the instance. `<service>.pty-resize` says how many `rows` and `columns`
its terminal has.
"""

import errno
from asyncio import Event
from typing import Final

from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import RunningShell, ShellPlugin, TaskStart
from warren.instance.shell.terminal import DRAIN_TIMEOUT, Terminal, WatchedTerminal
from warren.rfc import stdio
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request, RpcError

OUTPUT: Final = "pty-output"
RESIZE: Final = "pty-resize"
INTERACTIVE_RANK: Final = 0
"""The rank of the task to which a client may be attached."""

_MAX_DIMENSION: Final = 2**16 - 1


class Pty(ShellPlugin):
    """The plugin."""

    def __init__(self, drain_timeout: float = DRAIN_TIMEOUT) -> None:
        """`drain_timeout` is how many seconds a client has for the last of what was printed."""
        self._drain_timeout = drain_timeout
        self._terminals: dict[int, Terminal] = {}
        self._terminal_ready = Event()
        """Set when the interactive task has its terminal."""

    async def init(self, shell: RunningShell) -> None:
        info = shell.info
        if not info.options.pty.interactive or info.rank != 0:
            return
        if INTERACTIVE_RANK not in info.task_ranks:
            raise CannotRun("shell option pty.interactive: task 0 is not on the job's first node")
        shell.init_context["pty"] = {"capture": info.options.pty.capture}
        shell.serve(RESIZE, Method(lambda request: self._resize(shell, request), guest=True))
        if not info.options.pty.capture:
            shell.serve(OUTPUT, Method(lambda request: self._output(shell, request), guest=True))

    async def task_init(self, shell: RunningShell, task: TaskStart) -> None:
        option = shell.info.options.pty
        if not option.includes(task.rank):
            return
        is_interactive = option.interactive and task.rank == INTERACTIVE_RANK
        try:
            if is_interactive and not option.capture:
                task.terminal = WatchedTerminal(option.size, drain_timeout=self._drain_timeout)
            else:
                task.terminal = Terminal(option.size, echo=is_interactive)
        except OSError as error:
            message = f"there is no pseudo-terminal for task {task.rank}: {error.strerror}"
            raise CannotRun(message) from error
        self._terminals[task.rank] = task.terminal
        if is_interactive:
            self._terminal_ready.set()

    async def task_fork(self, shell: RunningShell, task: TaskStart) -> None:
        if task.terminal is not None:
            task.terminal.close_slave()

    async def task_exit(self, shell: RunningShell, task: TaskStart, status: int) -> None:
        if task.terminal is not None:
            task.terminal.on_task_exit()

    def exit(self, shell: RunningShell) -> None:
        for terminal in self._terminals.values():
            terminal.close()

    # The service

    async def _output(self, shell: RunningShell, request: Request) -> Payload:
        shell.check_permitted(request)
        seen = request.payload.get("seen", 0)
        if not isinstance(seen, int):
            raise RpcError(errno.EPROTO, f"{OUTPUT} takes how much was seen")
        await self._terminal_ready.wait()
        terminal = self._terminals[INTERACTIVE_RANK]
        assert isinstance(terminal, WatchedTerminal)
        offset, chunk, end = await terminal.unseen.read_from(seen)
        context = stdio.data_event(1, "stdout", INTERACTIVE_RANK, chunk).context
        encoding = context.get("encoding", "UTF-8")
        return {"offset": offset, "data": context["data"], "encoding": encoding, "end": end}

    async def _resize(self, shell: RunningShell, request: Request) -> Payload:
        shell.check_permitted(request)
        rows, columns = (
            _check_dimension(request.payload.get(name)) for name in ("rows", "columns")
        )
        await self._terminal_ready.wait()
        self._terminals[INTERACTIVE_RANK].resize(rows, columns)
        return {}


def _check_dimension(value: object) -> int:
    if not isinstance(value, int) or not 0 < value <= _MAX_DIMENSION:
        raise RpcError(errno.EPROTO, f"{RESIZE} takes rows and columns")
    return value
