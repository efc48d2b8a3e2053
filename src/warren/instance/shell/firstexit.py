"""When one task has ended, the others may not go on for ever (options exit-timeout, -on-error).

Each shell sees to its own tasks, and the leader also to the time since all tasks of another
node have ended. When the time is up, what counts is which tasks run then.
"""

import asyncio

from warren.instance.shell.plugins import RunningShell, ShellPlugin, TaskStart
from warren.rfc import duration
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request


class FirstExit(ShellPlugin):
    """The plugin."""

    def __init__(self) -> None:
        self._exit_seen = False
        self._running_count = 0
        """How many of this node's tasks have not ended."""

    async def init(self, shell: RunningShell) -> None:
        self._running_count = len(shell.info.task_ranks)
        if shell.info.rank != 0:
            shell.serve("running", Method(lambda request: self._serve(shell, request), guest=True))

    async def start(self, shell: RunningShell) -> None:
        info = shell.info
        if info.rank == 0 and len(info.hosts) > 1 and info.options.exit_timeout is not None:
            shell.background(self._watch_others(shell))

    async def task_exit(self, shell: RunningShell, task: TaskStart, status: int) -> None:
        self._running_count -= 1
        if self._exit_seen or shell.ending:
            return
        self._exit_seen = True
        info, options = shell.info, shell.info.options
        task_count = info.task_count if info.rank == 0 else len(info.task_ranks)
        if status != 0 and options.exit_on_error:
            how = f"signal {status & 0x7F}" if status & 0x7F else f"exit code {status >> 8}"
            # The others are ended for it: how that goes is not what the job has ended with.
            note = f"the first task to exit, {task.rank}, ended with {how}"
            await shell.fail(note, wait_status=status)
        elif options.exit_timeout is not None and task_count > 1:
            shell.background(self._fail_after(shell, options.exit_timeout))

    async def _watch_others(self, shell: RunningShell) -> None:
        await shell.peers.some_node_done.wait()
        timeout = shell.info.options.exit_timeout
        assert timeout is not None
        await self._fail_after(shell, timeout)

    async def _fail_after(self, shell: RunningShell, seconds: float) -> None:
        await asyncio.sleep(seconds)
        if await self._any_running(shell):
            spelled = duration.format_fsd(seconds)
            message = f"the first task exited {spelled} ago, and others still run (exit-timeout)"
            await shell.fail(message)

    async def _any_running(self, shell: RunningShell) -> bool:
        """Return whether tasks run here, or at the leader whether they do anywhere.

        Nodes are asked, and waited for: that one has not said that its tasks have ended may be
        because no other shell could be reached.
        """
        if self._running_count or shell.info.rank != 0:
            return self._running_count > 0
        other_nodes = range(1, len(shell.info.hosts))
        requests = (shell.peers.ask(other, "running", {}) for other in other_nodes)
        answers = await asyncio.gather(*requests)
        return any(answer["running"] for answer in answers if answer is not None)

    async def _serve(self, shell: RunningShell, request: Request) -> Payload:
        shell.check_permitted(request)
        return {"running": self._running_count}
