"""Commands of the machine: the only place where a node runs a program.

Argument vectors, never a shell; a time limit on each; the whole process group
is killed when it runs out, or when nobody waits any more.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Final

from warren.dws.node import NodeTrouble

SECONDS: Final = 20.0
"""How long a command may take unless it is said otherwise."""

_KEPT: Final = 4000
"""Characters of a command's words that are passed on."""


async def run(argv: Sequence[str], *, seconds: float = SECONDS, merged: bool = False) -> str:
    """Run a command and give what it printed, complaints too if `merged`.

    Raises NodeTrouble with its own words if it fails.
    """
    # What its agent has not waited for would go on beside what the next agent does.
    bound = ["setpriv", "--pdeathsig", "KILL", *argv]
    if shutil.which(argv[0]) is None:
        raise NodeTrouble(f"{argv[0]} cannot be run: it is not there")
    async with _started(bound, asyncio.subprocess.STDOUT if merged else PIPE) as process:
        try:
            async with asyncio.timeout(seconds):
                output, errors = await process.communicate()
        except TimeoutError:
            raise NodeTrouble(f"{argv[0]} did not end within {seconds:g} s") from None
    if process.returncode:
        words = _words(errors or output or b"") or ending(process.returncode)
        named = words.partition(":")[0] in argv
        raise NodeTrouble(words if named else f"{argv[0]}: {words}")
    return output.decode(errors="replace")


async def lines(argv: Sequence[str]) -> AsyncIterator[str]:
    """Run a command for as long as it takes and give its lines as they come.

    Raises NodeTrouble, with the last of its complaints, if it fails. Closing the
    iterator ends the command.
    """
    async with _started(argv) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = asyncio.create_task(process.stderr.read())
        try:
            async for line in process.stdout:
                yield line.decode(errors="replace")
            code = await process.wait()
            errors = await complaints
        finally:
            complaints.cancel()
    if code:
        raise NodeTrouble(_words(errors) or f"{argv[0]}: {ending(code)}")


@asynccontextmanager
async def _started(
    argv: Sequence[str], complaints: int = PIPE
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a command in a process group of its own, which does not outlive the block."""
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=PIPE,
            stderr=complaints,
            start_new_session=True,
        )
    )
    try:
        process = await asyncio.shield(starting)
    except OSError as error:
        raise NodeTrouble(f"{argv[0]} cannot be run: {error.strerror}") from error
    except asyncio.CancelledError:
        # asyncio waits for ever for a process whose start is cut short: it may come to its end.
        await asyncio.wait({starting})
        if starting.exception() is None:
            await _end(starting.result())
        raise
    try:
        yield process
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Shielded: a cancelled caller must not leave a zombie behind.
        await asyncio.shield(process.wait())


def _words(output: bytes) -> str:
    return " ".join(output.decode(errors="replace").split())[-_KEPT:]


def ending(code: int) -> str:
    """Say how a process has ended, from its return code."""
    return f"killed by signal {-code}" if code < 0 else f"exit status {code}"
