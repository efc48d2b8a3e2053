"""The shell plugin: tells a job's tasks where their storage is, and that it is there.

For a job with directives it waits for the `dws_environment` event, which comes
before the tasks may start. What was mounted then may be lost since, with the node's power;
the node's agent mounts it again. The token of its containers is in no event: the shell asks.
"""

import asyncio
import errno
import re
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Final, Protocol

from warren.dws import containerauth, tolerance
from warren.instance.shell.options import CannotRun
from warren.instance.shell.plugins import RunningShell, ShellPlugin
from warren.rfc import eventlog
from warren.rpc.message import RpcError
from warren.wlm import jobdirectives
from warren.wlm.codec import ENVIRONMENT
from warren.wlm.tokens import TOPIC

_TIMEOUT: Final = 60.0
"""How long storage is waited for that is not there, and a token that cannot be read now."""

TOKEN_VARIABLE: Final = "DW_WORKFLOW_TOKEN"

_LIST_VARIABLES: Final = ("DW_JOBS", "DW_PERSISTENTS")
"""Variables that hold `name:path,name:path` (dws-spec section 9)."""

_POLL_INTERVAL: Final = 0.05
_TOKEN_RETRY_DELAY: Final = 1.0
"""The pause before the token is asked for again."""


class ShellNode(Protocol):
    """The node that a shell is on. Paths are those that a Workflow's environment has."""

    def local_path(self, path: str) -> str:
        """Return this node's path for one in the Workflow's environment."""
        ...

    def is_mounted(self, path: str) -> bool:
        """Return whether storage is mounted there."""
        ...


class DwsEnvironment(ShellPlugin):
    """The plugin."""

    def __init__(self, node: ShellNode, seconds: float = _TIMEOUT) -> None:
        """What is not there is waited for so many `seconds`, and then the job cannot run."""
        self._node = node
        self._wait_seconds = seconds

    async def init(self, shell: RunningShell) -> None:
        directives = jobdirectives.directives(shell.info.jobspec)
        if directives is None:
            return
        variables, lost_nodes = await self._variables(shell)
        # Others name files of the machine, and nothing that is mounted.
        storage_values = (value for name, value in variables.items() if name.startswith("DW_"))
        paths = [each for each in storage_values if each[:1] == "/"]
        if shell.info.host not in lost_nodes:
            await self._wait_mounted(paths)
        shell.environment.update(self._localize(variables, paths))
        if containerauth.has_token(directives):
            token = await _token(shell, self._wait_seconds)
            if token is not None:
                shell.environment[TOKEN_VARIABLE] = token

    async def _variables(self, shell: RunningShell) -> tuple[Mapping[str, str], set[str]]:
        """Return what the event says, also from an instance that is restarted meanwhile.

        With it come the nodes that the job goes on without, of which it was told before.

        Raises CannotRun where the job's eventlog ends without the event.
        """
        request = {"id": shell.info.job, "path": "eventlog"}
        while True:
            lost_nodes: set[str] = set()
            watch = shell.handle.stream("job-info.eventlog-watch", request)
            try:
                async with aclosing(watch) as entries:  # type: ignore[type-var]
                    async for entry in entries:
                        event = eventlog.decode_line(entry["event"])
                        if event.name == ENVIRONMENT:
                            return event.context["variables"], lost_nodes
                        if (
                            event.name == "exception"
                            and event.context["type"] == tolerance.EXCEPTION
                        ):
                            lost_nodes |= tolerance.node_names(event.context.get("note", ""))
            except RpcError as error:
                if not (error.unserved or error.busy):
                    raise
                await asyncio.sleep(_POLL_INTERVAL)
            else:
                raise CannotRun("the job's storage was never made ready: no dws_environment event")

    def _localize(self, variables: Mapping[str, str], paths: Sequence[str]) -> dict[str, str]:
        """Return variables with the node's own paths, also within lists (`DW_JOBS`)."""
        local_paths = {path: self._node.local_path(path) for path in paths}
        # By the paths that are known: one may hold a comma.
        any_path = "|".join(map(re.escape, sorted(local_paths, key=len, reverse=True)))
        path_in_list = re.compile(f":({any_path})(?=,|$)")

        return {
            name: path_in_list.sub(lambda each: f":{local_paths[each[1]]}", value)
            if name in _LIST_VARIABLES
            else local_paths.get(value, value)
            for name, value in variables.items()
        }

    async def _wait_mounted(self, paths: Sequence[str]) -> None:
        """Return when all storage is there. Raises CannotRun if that takes too long."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._wait_seconds
        while missing := [path for path in paths if not self._node.is_mounted(path)]:
            if loop.time() > deadline:
                raise CannotRun(f"the node has lost the job's storage: {missing[0]} is not mounted")
            await asyncio.sleep(_POLL_INTERVAL)


async def _token(shell: RunningShell, seconds: float) -> str | None:
    """Return the job's token, which its user alone is told; None where its Workflow has none.

    It is asked for again while the instance is away, as its events are, and for so many seconds
    where the instance answers that it cannot tell now. Raises CannotRun where it cannot be read.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while True:
        try:
            answer = await shell.handle.rpc(TOPIC, {"id": shell.info.job})
        except RpcError as error:
            if error.errnum == errno.ENOENT:
                return None
            if error.unserved:
                deadline = loop.time() + seconds
            elif not error.busy or loop.time() > deadline:
                raise CannotRun(f"no {TOKEN_VARIABLE} for the job: {error}") from error
            await asyncio.sleep(_TOKEN_RETRY_DELAY)
        else:
            return str(answer["token"])
