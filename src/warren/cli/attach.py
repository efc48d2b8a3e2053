"""Following a job: its output as it comes, and how it ended."""

import asyncio
import errno
import sys
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import click

from warren.rfc import eventlog, fluid, stdio
from warren.rfc.eventlog import Event

if TYPE_CHECKING:
    from warren.rpc.message import Handle

_WAITING = {
    "depend": "waiting for priority assignment",
    "priority": "waiting for resources",
    "alloc": "starting",
    "prolog-start": "waiting for prolog",
    "prolog-finish": "starting",
}


async def attach(handle: "Handle", job: int, *, shown: bool = False) -> int:
    """Show a job's output until it ends; give the exit code that the job stands for.

    `shown` says on standard error what is waited for.
    """
    output = asyncio.create_task(_output(handle, job))
    try:
        code = await _events(handle, job, shown=shown)
        if code[1]:
            await output
        return code[0]
    finally:
        output.cancel()


async def _events(handle: "Handle", job: int, *, shown: bool) -> tuple[int, bool]:
    """Follow the job's events to the end; give its exit code, and whether it has output."""
    status: int | None = None
    fatal: Event | None = None
    watch = handle.stream("job-info.eventlog-watch", {"id": job, "path": "eventlog"})
    async with aclosing(watch) as entries:  # type: ignore[type-var]
        async for entry in entries:
            event = eventlog.decode_line(entry["event"])
            if event.name == "exception":
                _tell_exception(job, event)
                if event.context["severity"] == 0 and fatal is None:
                    fatal = event
            elif event.name == "finish":
                status = event.context["status"]
            elif shown and event.name in _WAITING:
                click.echo(f"{fluid.f58(job)}: {_WAITING[event.name]}", err=True)
    return _code(status, fatal), status is not None


def _tell_exception(job: int, event: Event) -> None:
    context = event.context
    click.echo(
        f"{fluid.f58(job)}: job.exception type={context['type']} "
        f"severity={context['severity']} {context.get('note', '')}".rstrip(),
        err=True,
    )


def _code(status: int | None, fatal: Event | None) -> int:
    if status is None:
        return 1
    code = 128 + (status & 0x7F) if status & 0x7F else status >> 8
    return code or (1 if fatal is not None else 0)


async def _output(handle: "Handle", job: int) -> None:
    from warren.rpc.message import RpcError

    watch = handle.stream("job-info.eventlog-watch", {"id": job, "path": "guest.output"})
    try:
        async with aclosing(watch) as entries:  # type: ignore[type-var]
            async for entry in entries:
                show(eventlog.decode_line(entry["event"]))
    except RpcError as error:
        if error.errnum != errno.ENOENT:
            raise


def show(event: Event) -> None:
    """Print one event of a job's output where it belongs."""
    if event.name == "log":
        click.echo(f"flux-shell: {event.context['message']}", err=True)
    for piece in stdio.read([event]):
        stream: Any = sys.stdout.buffer if piece.stream == "stdout" else sys.stderr.buffer
        stream.write(piece.data)
        stream.flush()
