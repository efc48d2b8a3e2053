"""Keeps child processes running: starts them, restarts those that end, and stops them."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from warren.base import log
from warren.daemons import logs
from warren.daemons.child import LOG_VARIABLE, PARENT_VARIABLE
from warren.daemons.statedir import lock_holder

_RESTART_DELAY: Final = 1.0
"""Seconds before a child that has ended is started again."""

_GRACE_SECONDS: Final = 5.0
"""Seconds that a child has to end before it is killed."""


class Child(msgspec.Struct, frozen=True, kw_only=True):
    """A Python module that runs as a process of its own."""

    name: str
    module: str
    arguments: Sequence[str]
    log_file: Path
    environment: Mapping[str, str]
    """What it has in its environment besides ours."""


async def _do_nothing() -> None:
    """Do nothing."""


async def supervise(child: Child, on_end: Callable[[], Awaitable[None]] = _do_nothing) -> None:
    """Keep a child running until cancelled, then end it.

    `on_end` is called at once when it has ended by itself; it must not raise.
    """
    while True:
        try:
            code = await _run_once(child)
        except OSError as error:  # there is no room for its log, maybe, nor memory
            log.warning("child cannot be started", child=child.name, why=str(error))
            await asyncio.sleep(_RESTART_DELAY)
            continue
        log.warning("child has ended", child=child.name, code=code)
        await on_end()
        await asyncio.sleep(_RESTART_DELAY)


async def supervise_detached(child: Child, lock: Path) -> None:
    """Keep a child running that may have been started by our predecessor, and outlives us.

    The lock tells whether there is one.
    """
    while True:
        if lock_holder(lock) is None:
            try:
                process = await _start(child)
            except OSError as error:
                log.warning("child cannot be started", child=child.name, why=str(error))
            else:
                code = await process.wait()
                log.warning("child has ended", child=child.name, code=code)
        await asyncio.sleep(_RESTART_DELAY)


async def _start(child: Child, variables: Mapping[str, str] = {}) -> asyncio.subprocess.Process:
    with logs.open_log(child.log_file) as output:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            # Not from where the cluster is started, which others may write.
            "-P",
            "-m",
            child.module,
            *child.arguments,
            env={**os.environ, **child.environment, **variables},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def _run_once(child: Child) -> int:
    variables = {PARENT_VARIABLE: str(os.getpid()), LOG_VARIABLE: str(child.log_file)}
    process = await _start(child, variables)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_GRACE_SECONDS):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
