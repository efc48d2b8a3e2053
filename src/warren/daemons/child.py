"""A child process of a cluster: it dies with its parent, and ends at SIGTERM."""

import asyncio
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Final, NoReturn, TextIO, cast

from warren.base.processes import die_with_parent
from warren.daemons import logs

PARENT_VARIABLE: Final = "WARREN_PARENT"
"""The variable that names a child's parent to it."""

LOG_VARIABLE: Final = "WARREN_LOG_FILE"
"""The variable that names the log to a child that its standard error was led into."""


def run_child(work: Coroutine[None, None, None]) -> NoReturn:
    """Run a child process's coroutine until it ends, or until SIGTERM, and exit."""
    # Not who the parent is by now: it may have died while this process was still loading, and
    # nothing would ever end the child of the process that has got it then.
    parent = int(os.environ.pop(PARENT_VARIABLE))
    die_with_parent()
    if os.getppid() != parent:
        work.close()
        sys.exit(1)
    # Supervisors of before do not name it.
    log_file = os.environ.pop(LOG_VARIABLE, None)
    if log_file is None:
        logs.configure()
    else:
        logs.configure(cast(TextIO, logs.RotatingStandardError(Path(log_file), sys.stderr)))
    try:
        asyncio.run(_until_stopped(work))
    except asyncio.CancelledError:
        sys.exit(0)
    sys.exit(1)


async def _until_stopped(work: Coroutine[None, None, None]) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    await work
