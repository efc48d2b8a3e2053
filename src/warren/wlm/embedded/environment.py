"""The shell plugin: tells a job's tasks where their storage is.

For a job with directives it waits for the `dws_environment` event, which comes
before the tasks may start.
"""

from collections.abc import Callable, Mapping
from contextlib import aclosing

from warren.instance.shell.shell import CannotRun, Part
from warren.rfc import eventlog
from warren.rfc import jobspec as jobspecs
from warren.rpc.message import Handle
from warren.wlm.codec import ENVIRONMENT


class DwsEnvironment:
    """The plugin. `place` gives where this node has what others know by a path."""

    def __init__(self, place: Callable[[str], str] = lambda path: path) -> None:
        self._place = place

    async def init(self, handle: Handle, part: Part) -> Mapping[str, str]:
        if "dw" not in jobspecs.system(part.jobspec):
            return {}
        request = {"id": part.job, "path": "eventlog"}
        watch = handle.stream("job-info.eventlog-watch", request)
        async with aclosing(watch) as entries:  # type: ignore[type-var]
            async for entry in entries:
                event = eventlog.decode_line(entry["event"])
                if event.name == ENVIRONMENT:
                    variables = event.context["variables"]
                    return {name: self._place(value) for name, value in variables.items()}
        raise CannotRun("the job's storage was never made ready: no dws_environment event")
