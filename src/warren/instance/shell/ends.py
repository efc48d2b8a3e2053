"""When one task has ended, the others may not go on for ever (options exit-timeout, -on-error).

Each shell sees to its own tasks, and the leader also to the time since all tasks of another
node have ended.
"""

import asyncio

from warren.instance.shell.plugins import RunningShell, ShellPlugin, TaskStart
from warren.rfc import duration


class FirstExit(ShellPlugin):
    """The plugin."""

    def __init__(self) -> None:
        self._seen = False

    async def start(self, shell: RunningShell) -> None:
        part = shell.part
        if part.rank == 0 and len(part.hosts) > 1 and part.options.exit_timeout is not None:
            shell.background(self._watch_others(shell))

    async def task_exit(self, shell: RunningShell, task: TaskStart, status: int) -> None:
        if self._seen or shell.ending:
            return
        self._seen = True
        part, options = shell.part, shell.part.options
        others = part.size if part.rank == 0 else len(part.ranks)
        if status != 0 and options.exit_on_error:
            how = f"signal {status & 0x7F}" if status & 0x7F else f"exit code {status >> 8}"
            await shell.fail(f"the first task to exit, {task.rank}, ended with {how}")
        elif options.exit_timeout is not None and others > 1:
            shell.background(_limit(shell, options.exit_timeout))

    async def _watch_others(self, shell: RunningShell) -> None:
        await shell.company.first_left.wait()
        timeout = shell.part.options.exit_timeout
        assert timeout is not None
        await _limit(shell, timeout)


async def _limit(shell: RunningShell, seconds: float) -> None:
    await asyncio.sleep(seconds)
    spelled = duration.format_fsd(seconds)
    await shell.fail(f"the first task exited {spelled} ago, and others still run (exit-timeout)")
