"""The site's commands at the start and at the end of jobs, a few at a time."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from warren.atom.config import Action
from warren.atom.registration import Registration
from warren.base import log, processes
from warren.dws.node import NodeTrouble
from warren.node import commands

Event = Literal["start", "end"]

_OWNER_VARIABLE: Final = "ATOM_COMMAND_OF"
_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Actions:
    """What is to be done around jobs on this node."""

    def __init__(
        self,
        start: Sequence[Action],
        end: Sequence[Action],
        parallel: int,
        owner: str,
        on_command_ended: Callable[[Event, bool], None] = lambda event, succeeded: None,
    ) -> None:
        """`owner` marks commands as this service's: after a restart it knows them by that.

        `on_command_ended` is told of each command that has ended, and whether it succeeded.
        """
        self._actions_by_event: Mapping[Event, Sequence[Action]] = {"start": start, "end": end}
        # Ends that fail again and again must not keep jobs from starting.
        self._slots_by_event: Mapping[Event, asyncio.Semaphore] = {
            "start": asyncio.Semaphore(parallel),
            "end": asyncio.Semaphore(parallel),
        }
        self._owner = owner
        self._on_command_ended = on_command_ended

    def has_commands(self, event: Event) -> bool:
        """Return whether there is anything to do."""
        return bool(self._actions_by_event[event])

    async def perform(self, event: Event, job: Registration) -> None:
        """Run the commands of an event one after the other, to the first that fails.

        Raises NodeTrouble, with its words. They have run before if the service died: commands
        must bear to be repeated.
        """
        async with self._slots_by_event[event]:
            for action in self._actions_by_event[event]:
                try:
                    output = await commands.run_site_command(
                        action.command,
                        self._environment(event, job),
                        seconds=action.timeout_seconds,
                    )
                except NodeTrouble:
                    self._on_command_ended(event, False)
                    raise
                self._on_command_ended(event, True)
                log.info("command done", jobid=job.jobid, command=action.command[0], said=output)

    async def kill_leftovers(self, job: Registration) -> None:
        """Kill what is still running of the commands that a dead service ran for a job."""
        entry = f"{_OWNER_VARIABLE}={self._owner_of(job)}"
        await asyncio.to_thread(processes.kill, lambda: processes.pids_with_variable(entry))

    def _owner_of(self, job: Registration) -> str:
        return f"{self._owner}:{job.jobid}"

    def _environment(self, event: Event, job: Registration) -> Mapping[str, str]:
        return {
            "PATH": _PATH,
            "ATOM_EVENT": event,
            "ATOM_JOBID": job.jobid,
            "ATOM_UID": str(job.uid),
            "ATOM_EXCLUSIVE": str(int(job.exclusive)),
            _OWNER_VARIABLE: self._owner_of(job),
        }
