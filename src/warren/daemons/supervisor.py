"""Child processes that are to be there: started, started again when they end, and ended."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import structlog

from warren.daemons import logs
from warren.daemons.statedir import holder

log = structlog.get_logger()

_AGAIN: Final = 1.0
"""Seconds before a child that has ended is started again."""

_GRACE: Final = 5.0
"""Seconds that a child has to end before it is killed."""


async def keep(name: str, module: str, arguments: Sequence[str], log_file: Path) -> None:
    """Keep a child running until cancelled, then end it."""
    while True:
        code = await _run_once(module, arguments, log_file)
        log.warning("child has ended", child=name, code=code)
        await asyncio.sleep(_AGAIN)


async def keep_detached(
    name: str, module: str, arguments: Sequence[str], log_file: Path, lock: Path
) -> None:
    """Keep a child running that may have been started by our predecessor, and outlives us.

    The lock tells whether there is one.
    """
    while True:
        if holder(lock) is None:
            process = await _start(module, arguments, log_file)
            code = await process.wait()
            log.warning("child has ended", child=name, code=code)
        await asyncio.sleep(_AGAIN)


async def _start(
    module: str, arguments: Sequence[str], log_file: Path
) -> asyncio.subprocess.Process:
    with logs.rotated(log_file).open("ab") as output:
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


async def _run_once(module: str, arguments: Sequence[str], log_file: Path) -> int:
    process = await _start(module, arguments, log_file)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            await asyncio.shield(_end(process))


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(_GRACE):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()
