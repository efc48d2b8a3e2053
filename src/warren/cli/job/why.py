"""`warren job why`: the one reason why a job does not run, with its arithmetic."""

import errno
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from warren.base.errors import UserMistake
from warren.base.printable import printable
from warren.base.times import rfc3339
from warren.base.words import plural
from warren.cli.common import (
    ask_flux,
    f58,
    json_option,
    print_json,
    print_table,
    statedir_option,
)
from warren.cli.job import pendingreasons
from warren.cli.outputformat import fsd
from warren.daemons.statedir import StateDir
from warren.lifecycle.states import Result, State
from warren.rfc import fluid
from warren.wlm.codec import DEPENDENCY

if TYPE_CHECKING:
    from warren.rpc.message import Handle

Attributes = Mapping[str, Any]

_ATTRIBUTES: Final = (
    *("state", "result", "urgency", "priority", "queue", "dependencies", "annotations"),
    *("nodelist", "t_run"),
)
_FLASH_KINDS: Final = frozenset(("flash", "rabbits", "capacity", "external"))
_OTHER_SCHEDULER: Final = (
    "waits for resources; this instance's scheduler is not Warren's, and does not say what for: "
    "with Fluxion, `flux jobs -o '{id} {annotations.sched}'` has what it tells"
)


@click.command("why")
@statedir_option
@json_option
@click.argument("id_", metavar="JOBID")
def job_why(statedir: StateDir, as_json: bool, id_: str) -> None:
    """Say why a job does not run, with the numbers behind that, and when it could start.

    It is one reason: what must end, come back or be changed for the job to go on. With a broker
    of Flux it is what the conductor knows of the job's storage.
    """
    job = fluid.parse(id_)

    async def query(handle: "Handle") -> dict[str, Any]:
        return await why(handle, job, id_)

    explanation = ask_flux(statedir, query)
    if as_json:
        print_json({"id": f58(job), **explanation})
    else:
        click.echo(printable(f"{f58(job)} {explanation['reason']}."))
        print_numbers(explanation, time.time())


async def why(handle: "Handle", job: int, about: str) -> dict[str, Any]:
    """Return why a job does not run: `state`, `kind`, `reason`, and numbers, if there are any.

    Raises UserMistake where there is no such job.
    """
    from warren.rpc.message import RpcError

    try:
        request = {"id": job, "attrs": list(_ATTRIBUTES)}
        job_attributes = (await handle.rpc("job-list.list-id", request))["job"]
    except RpcError as error:
        raise UserMistake(f"{about}: {error}") from error
    state = next(each for each in State if each.bit == job_attributes["state"])
    return {"state": state.value, **await _explanation(handle, job_attributes, state)}


async def _explanation(handle: "Handle", job: Attributes, state: State) -> dict[str, Any]:
    match state:
        case State.INACTIVE:
            result = next((each for each in Result if each.bit == job.get("result")), None)
            return _answer("over", f"does not wait: it is over ({result or 'no result'})")
        case State.SCHED:
            return await _scheduling_explanation(handle, job)
        case State.PRIORITY:
            return _answer("priority", "waits for its priority, which a plugin of the site gives")
    storage_reason = (await pendingreasons.reasons(handle, [job])).get(job["id"])
    if state is State.DEPEND:
        dependencies = [each for each in job.get("dependencies") or () if each != DEPENDENCY]
        if dependencies:
            names = ", ".join(dependencies)
            noun = "dependency" if len(dependencies) == 1 else "dependencies"
            return _answer("dependency", f"waits for its {noun} {names}", dependencies=dependencies)
    if storage_reason is not None:
        return _answer("storage", storage_reason)
    if state is State.DEPEND:
        return _answer("storage", "waits until it is worked out what its #DW directives need")
    if state is State.CLEANUP:
        return _answer("cleanup", "has ended, and is being cleaned up after")
    nodes_text = f" on {job['nodelist']}" if job.get("nodelist") else ""
    return _answer("running", f"does not wait: it has its resources{nodes_text}")


async def _scheduling_explanation(handle: "Handle", job: Attributes) -> dict[str, Any]:
    from warren.rpc.message import RpcError

    if job.get("priority") == 0:
        if job.get("urgency") == 0:
            remedy = f"`warren job urgency {f58(job['id'])} default` lets it go"
            return _answer("held", f"is held, by an urgency of 0: {remedy}")
        return _answer("priority", "has a priority of 0: a plugin of the site holds it back")
    stop_reason = await pendingreasons.stop_reason(handle, job.get("queue", ""))
    if stop_reason is not None:
        return _answer("queue", f"waits: {stop_reason.removeprefix('waits for ')}")
    try:
        return dict(await handle.rpc("sched.why", {"id": job["id"]}))
    except RpcError as error:
        if error.errnum == errno.ENOENT:
            return _answer("turn", "is on its way to the scheduler, or has just been given to it")
        if error.errnum != errno.ENOSYS:
            raise UserMistake(f"{f58(job['id'])}: the scheduler does not say: {error}") from error
    reason = _pending_reason(job)
    return _answer("scheduler", f"{_OTHER_SCHEDULER}{f' ({reason})' if reason else ''}")


def _pending_reason(job: Attributes) -> str:
    sched = (job.get("annotations") or {}).get("sched") or {}
    return str(sched.get("reason_pending") or "")


def _answer(kind: str, reason: str, **numbers: Any) -> dict[str, Any]:
    return {"kind": kind, "reason": reason, **numbers}


def print_numbers(explanation: Attributes, now: float) -> None:
    """Print the numbers behind a reason."""
    for label, text in _number_rows(explanation, now):
        click.echo(printable(f"  {label:<14} {text}"))
    # Where it is not flash that is lacking, how much each rabbit has is beside the point.
    flash_matters = not _FLASH_KINDS.isdisjoint(explanation.get("kinds", ()))
    rabbits = explanation["flash"]["rabbits"] if flash_matters else ()
    rows = [
        (
            each["rabbit"],
            f"{each['free_gib']} of {each['of_gib']}",
            f"{each['nodes_with_flash']} of {each['nodes_free']}",
            each["lacks_gib"] or "",
            each.get("not_ready", ""),
        )
        for each in rabbits
    ]
    if rows:
        print_table(("RABBIT", "FREE GiB", "NODES WITH IT", "LACKS GiB", "NOT READY"), rows)
        if explanation["flash"]["rabbits_more"]:
            click.echo(f"and {plural(explanation['flash']['rabbits_more'], 'rabbit')} more")


def _number_rows(explanation: Attributes, now: float) -> Iterator[tuple[str, str]]:
    for noun in ("nodes", "cores", "gpus"):
        counts = explanation.get(noun)
        if counts:
            parts = [
                f"{count} {word.replace('_', ' ')}"
                for word, count in counts.items()
                if count or word in ("wanted", "free")
            ]
            yield noun, ", ".join(parts)
    estimate, earliest = explanation.get("t_estimate"), explanation.get("earliest")
    if estimate is not None:
        yield "starts by", f"{_time_text(estimate, now)}{_time_limit_text(explanation)}"
    elif earliest is not None:
        yield (
            "room by",
            f"{_time_text(earliest, now)}{_time_limit_text(explanation)}, if no other takes it",
        )
    elif explanation.get("reserved_at") is not None:
        yield "reserved from", _time_text(explanation["reserved_at"], now)
    if explanation.get("before"):
        yield "before it", plural(explanation["before"], "job")
    read_at, heard_at = (
        (explanation.get("map") or {}).get("read"),
        (explanation.get("map") or {}).get("heard"),
    )
    if read_at is not None:
        age_text = (
            "" if heard_at is None else f"; rabbits were last heard of {fsd(now - heard_at)} ago"
        )
        yield "map", f"read {fsd(now - read_at)} ago{age_text}"


def _time_text(at: float, now: float) -> str:
    return f"{rfc3339(at)} ({'in ' + fsd(at - now) if at > now else 'now'})"


def _time_limit_text(explanation: Attributes) -> str:
    ending_job = explanation.get("ends")
    return "" if ending_job is None else f", when {f58(ending_job)} reaches its time limit"
