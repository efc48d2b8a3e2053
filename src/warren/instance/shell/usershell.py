"""A shell of the job's own: a program of the user's that does all that this package does.

It is started in our place on each node, as flux-shell is: its argument is the job id, it finds
the instance in FLUX_URI and the job's namespace in FLUX_KVS_NAMESPACE, and its exit code
is the shell's. We stay behind it as the execution system's end: signals go to it, and what it
prints itself becomes `log` events of the job's execution log. Which of the job's shells it is,
it learns from WARREN_SHELL_RANK and WARREN_SHELL_SIZE.
"""

import asyncio
import errno
import os
from collections.abc import Callable
from typing import Any, Final

from warren.instance import keys
from warren.instance.shell.options import OUTPUT_LIMIT, CannotRun
from warren.instance.shell.plugins import RunningShell
from warren.instance.shell.tasks import CannotStart, Spawner, Task
from warren.rfc import fluid, stdio
from warren.rfc.eventlog import Event
from warren.rpc.message import RpcError

STREAMS: Final = ("stdout", "stderr")


async def run(
    shell: RunningShell,
    spawner: Spawner,
    on_start: Callable[[int, Task], None],
    program: Any,
    uri: str,
) -> int:
    """Run a job's own shell to its end, and return its exit code. Raises CannotRun.

    `on_start` is called with the process that signals go to.
    """
    if not isinstance(program, str) or not program:
        raise CannotRun("attributes.system.exec.job_shell is not the path of a program")
    info = shell.info
    environment = {
        **info.environment,
        "FLUX_URI": uri,
        "FLUX_JOB_ID": fluid.f58(info.job),
        "FLUX_KVS_NAMESPACE": keys.guest_namespace(info.job),
        "WARREN_SHELL_RANK": str(info.rank),
        "WARREN_SHELL_SIZE": str(len(info.hosts)),
    }
    cwd = info.cwd if info.cwd is None or spawner.directory_problem(info.cwd) is None else "/"
    try:
        task = await spawner.start([program, str(info.job)], environment, cwd)
    except CannotStart as error:
        raise CannotRun(f"the job's own shell: {error}") from error
    on_start(0, task)
    async with asyncio.TaskGroup() as reading:
        for stream in STREAMS:
            reading.create_task(_log_output(shell, task, stream))
        status = await task.wait()
        await spawner.clean_up()
    code = status & 0x7F
    return 128 + code if code else os.waitstatus_to_exitcode(status)


async def _log_output(shell: RunningShell, task: Task, stream: str) -> None:
    """Log what a shell prints, up to a limit and while there is room; drop the rest."""
    bytes_left = OUTPUT_LIMIT
    while chunk := await task.read(stream):
        piece, bytes_left = chunk[:bytes_left], bytes_left - len(chunk[:bytes_left])
        if piece:
            now = shell.clock.now()
            context = {**stdio.data_event(now, stream, shell.info.rank, piece).context}
            context["component"] = "flux-shell"
            try:
                await shell.append("exec.eventlog", [Event(now, "log", context)])
            except RpcError as error:
                if error.errnum != errno.ENOSPC:
                    raise
                bytes_left = 0
