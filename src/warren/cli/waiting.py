"""Waiting for jobs: for one of their events, or for their end."""

from collections.abc import AsyncIterator
from contextlib import aclosing
from typing import TYPE_CHECKING

from warren.base.errors import UserMistake
from warren.rfc import eventlog, fluid
from warren.rfc.eventlog import Event

if TYPE_CHECKING:
    from warren.rpc.message import Handle


async def events(handle: "Handle", job: int, path: str = "eventlog") -> AsyncIterator[Event]:
    """Give the events of a log, as they come, until the last one."""
    watch = handle.stream("job-info.eventlog-watch", {"id": job, "path": path})
    async with aclosing(watch) as entries:  # type: ignore[type-var]
        async for entry in entries:
            yield eventlog.decode_line(entry["event"])


async def wait_event(handle: "Handle", job: int, name: str) -> Event:
    """Wait for an event. Raises UserMistake where the job ends without one."""
    async with aclosing(events(handle, job)) as following:  # type: ignore[type-var]
        async for event in following:
            if event.name == name:
                return event
    raise UserMistake(f"{fluid.f58(job)}: the job has ended, and never had an event {name!r}.")


async def wait_end(handle: "Handle", job: int) -> int:
    """Wait for a job's end, and give the exit code that it stands for."""
    ending = Ending()
    async with aclosing(events(handle, job)) as following:  # type: ignore[type-var]
        async for event in following:
            ending.see(event)
    return ending.code


class Ending:
    """How a job ends, as its events tell it one by one."""

    def __init__(self) -> None:
        self.status: int | None = None
        """The tasks' wait status; None before they have ended, and if none was ever started."""
        self.fatal: Event | None = None
        """The first exception that has ended the job."""

    def see(self, event: Event) -> None:
        """Take the next event."""
        if event.name == "finish":
            self.status = event.context["status"]
        elif event.name == "exception" and event.context["severity"] == 0:
            self.fatal = self.fatal or event

    @property
    def code(self) -> int:
        """The exit code: the tasks', 128 and the signal that killed one, 1 where none has run."""
        if self.status is None:
            return 1
        code = 128 + (self.status & 0x7F) if self.status & 0x7F else self.status >> 8
        return code or (1 if self.fatal is not None else 0)
