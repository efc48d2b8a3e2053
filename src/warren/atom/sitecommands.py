"""The site's commands at the start and at the end of jobs, a few at a time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from warren.atom.config import SiteCommand
from warren.atom.registration import Registration
from warren.base import log, processes
from warren.dws.node import NodeTrouble
from warren.node import commands

JobEvent = Literal["start", "end"]

_MARK_VARIABLE: Final = "ATOM_COMMAND_OF"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class SiteCommandRunner:
    """Runs the site's commands at the start and at the end of jobs on this node."""

    def __init__(
        self,
        start: Sequence[SiteCommand],
        end: Sequence[SiteCommand],
        parallel: int,
        service_mark: str,
        on_command_ended: Callable[[JobEvent, bool], None] = lambda event, succeeded: None,
    ) -> None:
        """`service_mark` is in commands' environment: by it a restarted service knows its own.

        `on_command_ended` is told of each command that has ended, and whether it succeeded.
        """
        self._commands_by_event: Mapping[JobEvent, Sequence[SiteCommand]] = {
            "start": start,
            "end": end,
        }
        # Ends that fail again and again must not keep jobs from starting.
        self._slots_by_event: Mapping[JobEvent, asyncio.Semaphore] = {
            "start": asyncio.Semaphore(parallel),
            "end": asyncio.Semaphore(parallel),
        }
        self._service_mark = service_mark
        self._on_command_ended = on_command_ended

    def has_commands(self, event: JobEvent) -> bool:
        """Return whether any commands are configured for an event."""
        return bool(self._commands_by_event[event])

    async def perform(self, event: JobEvent, job: Registration) -> None:
        """Run the commands of an event one after the other, to the first that fails.

        Raises NodeTrouble, with its words. They have run before if the service died: commands
        must bear to be repeated.
        """
        async with self._slots_by_event[event]:
            for site_command in self._commands_by_event[event]:
                try:
                    output = await commands.run_site_command(
                        site_command.command,
                        self._environment(event, job),
                        seconds=site_command.timeout_seconds,
                    )
                except NodeTrouble:
                    self._on_command_ended(event, False)
                    raise
                self._on_command_ended(event, True)
                log.info(
                    "command done", jobid=job.jobid, command=site_command.command[0], said=output
                )

    async def kill_leftovers(self, job: Registration) -> None:
        """Kill what is still running of the commands that a dead service ran for a job."""
        variable = f"{_MARK_VARIABLE}={self._mark_of(job)}"
        await asyncio.to_thread(processes.kill, lambda: processes.pids_with_variable(variable))

    def _mark_of(self, job: Registration) -> str:
        return f"{self._service_mark}:{job.jobid}"

    def _environment(self, event: JobEvent, job: Registration) -> Mapping[str, str]:
        return {
            "PATH": _PATH,
            "ATOM_EVENT": event,
            "ATOM_JOBID": job.jobid,
            "ATOM_UID": str(job.uid),
            "ATOM_EXCLUSIVE": str(int(job.exclusive)),
            _MARK_VARIABLE: self._mark_of(job),
        }
