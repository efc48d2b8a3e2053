"""The commands of `warren job` that wait: for the end of jobs, and for events."""

import asyncio
import errno
import sys
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, f58, json_option, statedir_option
from warren.cli.events import FORMATS, TIME_FORMATS, EventWriter, matches
from warren.cli.job.read import call, follow_events, log_path
from warren.daemons.statedir import StateDir
from warren.lifecycle.attributes import returncode
from warren.lifecycle.states import Result, State
from warren.rfc import duration, fluid

if TYPE_CHECKING:
    from warren.rpc.message import Handle

_ANY_JOB: Final = -1
"""FLUX_JOBID_ANY: whichever job ends next."""

_END_ATTRIBUTES: Final = (
    *("result", "waitstatus", "exception_occurred"),
    *("exception_type", "exception_severity", "exception_note"),
)


@click.command("status")
@statedir_option
@click.option("-e", "--exception-exit-code", type=click.IntRange(0, 255), metavar="N",
              help="The exit code for jobs that a fatal exception has ended.")  # fmt: skip
@click.option("-j", "--json", "as_json", is_flag=True, help="Print how each job ended, as JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Print the exit code of each job.")
@click.argument("ids", nargs=-1, required=True, metavar="JOBID...")
def job_status(
    statedir: StateDir,
    exception_exit_code: int | None,
    as_json: bool,
    verbose: bool,
    ids: tuple[str, ...],
) -> None:
    """Wait until jobs are over, and exit with the greatest of their exit codes."""
    spelled_and_parsed = [(each, fluid.parse(each)) for each in ids]

    async def wait_all(handle: "Handle") -> list[Mapping[str, Any]]:
        return await asyncio.gather(
            *(wait_ended(handle, job, spelled_id) for spelled_id, job in spelled_and_parsed)
        )

    codes = []
    for (spelled_id, _), end_attributes in zip(
        spelled_and_parsed, ask_instance(statedir, wait_all), strict=True
    ):
        code = exit_code(end_attributes, exception_exit_code)
        codes.append(code)
        if as_json:
            click.echo(orjson.dumps({**end_attributes, "exit_code": code}))
        if verbose:
            click.echo(f"{spelled_id}: exit code {code}", err=True)
    sys.exit(max(codes))


async def wait_ended(handle: "Handle", job: int, spelled_id: str) -> Mapping[str, Any]:
    """Wait until a job is over, and return how it ended. Mistakes name it as `spelled_id`."""
    request = {"id": job, "attrs": _END_ATTRIBUTES, "state": State.INACTIVE.bit}
    answer = await call(handle, "job-list.list-id", request, spelled_id)
    end_attributes: Mapping[str, Any] = answer["job"]
    return end_attributes


def exit_code(job: Mapping[str, Any], of_exception: int | None = None) -> int:
    """Return the exit code that the end of a job stands for."""
    result = next(each for each in Result if each.bit == job["result"])
    is_fatal = job.get("exception_severity") == 0 and result is not Result.COMPLETED
    if is_fatal and of_exception is not None:
        return of_exception
    status = job.get("waitstatus")
    if not status:
        return int(result is not Result.COMPLETED)
    code = returncode(result, status)
    return 128 - code if code < 0 else code


@click.command("wait")
@statedir_option
@json_option
@click.option("-a", "--all", "everything", is_flag=True, help="Wait for all waitable jobs.")
@click.option("-v", "--verbose", is_flag=True, help="Report jobs that succeeded, too.")
@click.argument("id_", default="", metavar="[JOBID]")
def job_wait(statedir: StateDir, as_json: bool, everything: bool, verbose: bool, id_: str) -> None:
    """Wait for a job that was submitted as waitable; or for the next one that ends.

    Each job can be waited for once. Exits with 0 if it succeeded, with 1 if not, and with 2 if
    there is none to wait for.
    """
    if everything and id_:
        raise click.UsageError("--all waits for every job: name none.")
    job = fluid.parse(id_) if id_ else _ANY_JOB

    async def wait_for_jobs(handle: "Handle") -> int:
        code = 0
        while True:
            end_or_reason = await _wait_job(handle, job)
            if isinstance(end_or_reason, str):
                if everything:
                    return code
                raise _NoneToWaitFor(f"{id_}: {end_or_reason}" if id_ else end_or_reason)
            _print_end(end_or_reason, as_json=as_json, id_is_known=job != _ANY_JOB, verbose=verbose)
            code = max(code, 0 if end_or_reason["success"] else 1)
            if not everything:
                return code

    try:
        sys.exit(ask_instance(statedir, wait_for_jobs))
    except _NoneToWaitFor as error:
        click.echo(f"warren: {error}", err=True)
        sys.exit(2)


class _NoneToWaitFor(UserMistake):
    """There is no such job, or it cannot be waited for."""


async def _wait_job(handle: "Handle", job: int) -> Mapping[str, Any] | str:
    """Return how a job ended; the reason where there is none to wait for."""
    from warren.rpc.message import RpcError

    try:
        return await handle.rpc("job-manager.wait", {"id": job})
    except RpcError as error:
        if error.errnum in (errno.ECHILD, errno.ENOENT, errno.EINVAL):
            return str(error)
        raise


def _print_end(end: Mapping[str, Any], *, as_json: bool, id_is_known: bool, verbose: bool) -> None:
    job = f58(end["id"])
    if as_json:
        click.echo(orjson.dumps({**end, "id": job}))
        return
    if not id_is_known:
        click.echo(job)
    if not end["success"]:
        click.echo(f"warren: {job}: {end.get('errstr') or 'the job has failed'}", err=True)
    elif verbose:
        click.echo(f"{job}: the job has succeeded", err=True)


@click.command("wait-event")
@statedir_option
@click.option("-t", "--timeout", metavar="DURATION", help="Wait no longer than this.")
@click.option("-f", "--format", "form", type=click.Choice(FORMATS), default="text",
              help="How events are printed.")  # fmt: skip
@json_option
@click.option("-T", "--time-format", default="raw", type=click.Choice(TIME_FORMATS),
              help="How times are printed.")  # fmt: skip
@click.option("-H", "--human", is_flag=True, help="The same as -T human.")
@click.option("-m", "--match-context", "pairs", multiple=True, metavar="KEY=VAL",
              help="Wait for an event with this in its context, as JSON or as plain text.",
              )  # fmt: skip
@click.option("-p", "--path", default="eventlog", show_default=True, metavar="PATH",
              callback=lambda _ctx, _param, value: log_path(value),
              help="Which log: eventlog, exec, output, input, or a key of the job.")  # fmt: skip
@click.option("-c", "--count", type=click.IntRange(1), default=1, metavar="N",
              help="Wait until there have been N of them.")  # fmt: skip
@click.option("-W", "--waitcreate", is_flag=True, expose_value=False,
              help="Wait until the log exists, which is the default.")  # fmt: skip
@click.option("-q", "--quiet", is_flag=True, help="Do not print the event.")
@click.option("-v", "--verbose", is_flag=True, help="Print all events before it, too.")
@click.argument("id_", metavar="JOBID")
@click.argument("name", metavar="EVENT")
def job_wait_event(
    statedir: StateDir,
    timeout: str | None,
    form: str,
    as_json: bool,
    time_format: str,
    human: bool,
    pairs: tuple[str, ...],
    path: str,
    count: int,
    quiet: bool,
    verbose: bool,
    id_: str,
    name: str,
) -> None:
    """Wait for an event of a job, and print it, also one that has been before."""
    jobid = fluid.parse(id_)
    timeout_seconds = None if timeout is None else duration.parse(timeout)
    context_values = dict(_parse_pair(each) for each in pairs)
    writer = EventWriter("json" if as_json else form, "human" if human else time_format)

    async def wait_for_event(handle: "Handle") -> None:
        events_left = count
        log = follow_events(handle, jobid, path, id_)
        async with aclosing(log) as events:  # type: ignore[type-var]
            async for event in events:
                matched = event.name == name and matches(event, context_values)
                events_left -= matched
                if (events_left == 0 and not quiet) or verbose:
                    click.echo(writer.line(event))
                else:
                    writer.skip(event)
                if events_left == 0:
                    return
        raise UserMistake(f"{id_}: the event {name!r} has not come, and will not.")

    async def wait_with_timeout(handle: "Handle") -> None:
        try:
            async with asyncio.timeout(timeout_seconds):
                await wait_for_event(handle)
        except TimeoutError:
            raise UserMistake(f"{id_}: the event {name!r} has not come within {timeout}.") from None

    ask_instance(statedir, wait_with_timeout)


def _parse_pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise UserMistake(f"{text!r} is not of the form KEY=VAL.")
    return key, value
