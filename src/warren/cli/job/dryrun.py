"""What `--dry-run` tells of a submission: whether it is refused, and when the job could start."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from warren.base.errors import UserMistake
from warren.base.printable import printable
from warren.cli.common import run, socket_of
from warren.cli.job import pendingreasons
from warren.daemons.statedir import StateDir
from warren.lifecycle import urgency as urgencies

if TYPE_CHECKING:
    from warren.rpc.message import Handle

_TIMEOUT: Final = 10.0
"""For how long an instance is asked: what it says is not what the command is for."""


def print_outcomes(
    statedir: StateDir, specs: Iterable[Mapping[str, Any]], urgency: int, flags: int
) -> None:
    """Say, beside the jobspecs, what jobs would wait for if they were submitted now.

    Raises UserMistake in the words of a submission that is refused.
    Where no instance can be asked, nothing is said.
    """
    from warren.rpc.client import connect
    from warren.rpc.message import RpcError

    path = socket_of(statedir)
    if path == statedir.socket and (statedir.status() is None or statedir.is_closed):
        return

    async def query() -> list[str]:
        async with asyncio.timeout(_TIMEOUT), connect(path) as handle:
            return [await _outcome(handle, spec, urgency, flags) for spec in specs]

    try:
        outcomes = run(query())
    except (RpcError, TimeoutError):
        return  # it has gone, or does not answer, or is another one than ours
    for each in dict.fromkeys(outcomes):
        click.echo(printable(f"warren: {each}"), err=True)


async def _outcome(handle: "Handle", spec: Mapping[str, Any], urgency: int, flags: int) -> str:
    from warren.rpc.message import RpcError

    try:
        request = {"jobspec": spec, "urgency": urgency, "flags": flags}
        checked_spec = (await handle.rpc("job-ingest.check", request))["jobspec"]
    except RpcError as error:
        if error.unserved:
            raise
        raise refusal_error(error) from error
    if urgency == urgencies.HOLD:
        return "the job would be held, by its urgency of 0."
    system = (spec.get("attributes") or {}).get("system") or {}
    if system.get("dependencies"):
        return "the job would wait for its dependencies first."
    stop_reason = await pendingreasons.stop_reason(
        handle, checked_spec["attributes"]["system"].get("queue", "")
    )
    if stop_reason is not None:
        return f"the job would wait: {stop_reason}."
    why_request = {"jobspec": checked_spec, "priority": urgencies.priority(urgency, None)}
    answer = await handle.rpc("sched.why", why_request)
    if answer["kind"] == "turn":
        return "the job would start at once."
    return f"the job {_in_conditional(answer['reason'])}."


def _in_conditional(reason: str) -> str:
    return f"would wait{reason.removeprefix('waits')}" if reason.startswith("waits") else reason


def refusal_error(error: Exception) -> UserMistake:
    """Return the error of a submission that is refused; what has several lines stands below."""
    has_several_lines = "\n" in str(error)
    return UserMistake(
        f"the job is refused.\n{error}" if has_several_lines else f"the job is refused: {error}"
    )
