"""The shell plugin: tells a job's tasks where their storage is.

For a job with directives it waits for the `dws_environment` event, which comes
before the tasks may start.
"""

from collections.abc import Callable
from contextlib import aclosing

from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import RunningShell, ShellPlugin
from warren.rfc import eventlog
from warren.rfc import jobspec as jobspecs
from warren.wlm.codec import ENVIRONMENT


class DwsEnvironment(ShellPlugin):
    """The plugin. `place` gives where this node has what others know by a path."""

    def __init__(self, place: Callable[[str], str] = lambda path: path) -> None:
        self._place = place

    async def init(self, shell: RunningShell) -> None:
        if "dw" not in jobspecs.system(shell.part.jobspec):
            return
        request = {"id": shell.part.job, "path": "eventlog"}
        watch = shell.handle.stream("job-info.eventlog-watch", request)
        async with aclosing(watch) as entries:  # type: ignore[type-var]
            async for entry in entries:
                event = eventlog.decode_line(entry["event"])
                if event.name == ENVIRONMENT:
                    for name, value in event.context["variables"].items():
                        shell.environment[name] = self._place(value)
                    return
        raise CannotRun("the job's storage was never made ready: no dws_environment event")
