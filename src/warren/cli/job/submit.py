"""`warren submit` and `warren run`: jobs from the command line, spelled as flux spells them."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, f58, json_option, print_json, socket_of, statedir_option
from warren.cli.job import dryrun, scripts
from warren.cli.job import specs as jobspecs
from warren.cli.job.specs import make_jobspec
from warren.daemons.statedir import StateDir
from warren.rfc import fluid, idset, jobflags, signed_request

if TYPE_CHECKING:
    from warren.rpc.message import Handle

F = TypeVar("F", bound=Callable[..., Any])

CONTEXT_SETTINGS: Final = {"ignore_unknown_options": False, "allow_interspersed_args": False}


_MAX_CONCURRENT: Final = 64
"""Submissions under way: as many share a commit."""


def submission_options(command: F) -> F:
    """Add the options that are not of the jobspec, but of its submission."""
    for option in reversed(
        [
            statedir_option,
            click.option("--urgency", default="16", metavar="N", callback=_parse_urgency,
                         help="The urgency: 0 to 31, or hold, default, expedite."),
            click.option("--flags", default="", metavar="FLAG,...", callback=_parse_flags,
                         help="Flags of the job: debug, waitable, novalidate."),
            click.option("--dry-run", is_flag=True, help="Print the jobspec, say what the job "
                         "would wait for, and submit nothing."),
        ]
    ):  # fmt: skip
        command = option(command)
    return command


def _parse_urgency(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    urgency_by_name = {"hold": 0, "default": 16, "expedite": 31}
    if value in urgency_by_name:
        return urgency_by_name[value]
    if not value.isdecimal() or int(value) > 31:
        raise click.BadParameter(f"{value!r} is not a number from 0 to 31.")
    return int(value)


def _parse_flags(_ctx: click.Context, _param: click.Parameter, value: str) -> int:
    names = [name for name in value.split(",") if name]
    for name in names:
        if name not in jobflags.BY_NAME:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(jobflags.BY_NAME)}.")
    return sum({jobflags.BY_NAME[name] for name in names})


def _parse_flags_or_signed(
    ctx: click.Context, param: click.Parameter, value: str
) -> tuple[int, bool]:
    """Read flags of which `signed` is not for the instance, but for us."""
    names = value.split(",")
    instance_flags = ",".join(name for name in names if name != "signed")
    return _parse_flags(ctx, param, instance_flags), "signed" in names


@click.command(context_settings=CONTEXT_SETTINGS)
@jobspecs.jobspec_options
@jobspecs.task_options
@submission_options
@json_option
@click.option("--cc", metavar="IDSET", help="Submit a copy for each id, and print all their ids. "
              "{cc} is the id, in COMMAND and in files; so is FLUX_JOB_CC in the job.")  # fmt: skip
@click.option("--bcc", metavar="IDSET", help="The same, without FLUX_JOB_CC.")
@click.option("--quiet", is_flag=True, help="Do not print ids.")
@click.option(
    "--wait", is_flag=True, help="Wait until the jobs end; exit with the greatest exit code."
)
@click.option("--wait-event", metavar="NAME", help="Wait for an event of each job.")
@click.option("--watch", is_flag=True, help="Show the jobs' output until they end.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def submit(
    statedir: StateDir,
    as_json: bool,
    dry_run: bool,
    urgency: int,
    flags: int,
    cc: str | None,
    bcc: str | None,
    quiet: bool,
    wait: bool,
    wait_event: str | None,
    watch: bool,
    **options: Any,
) -> None:
    """Submit COMMAND as a job and print its id.

    If COMMAND is a script with #DW lines among its first comments, and no dw
    attribute is given, those are the job's directives. A line that ends in a
    backslash goes on in the next one. Variables of your environment are filled
    in, except $DW_..., which are the job's.
    """
    if cc is not None and bcc is not None:
        raise UserMistake("--cc and --bcc: give one of them.")
    specs = list(_specs_of_copies(options, cc, bcc))
    scripts.print_warnings(specs, options["command"][0])
    if dry_run:
        for spec in specs:
            print_json(spec)
        dryrun.print_outcomes(statedir, specs, urgency, flags)
        return

    def print_id(job: fluid.JobId) -> None:
        if not quiet and not as_json:
            click.echo(f58(job))

    async def work(handle: "Handle") -> list[tuple[fluid.JobId, int]]:
        slots = asyncio.Semaphore(_MAX_CONCURRENT)

        async def submit_one(spec: Mapping[str, Any]) -> fluid.JobId:
            async with slots:
                return await submitter(statedir, spec, urgency, flags)(handle)

        submissions = [asyncio.create_task(submit_one(spec)) for spec in specs]
        try:
            jobs = []
            for submission in submissions:
                jobs.append(await submission)
                print_id(jobs[-1])
            codes = await asyncio.gather(*(wait_for(handle, job) for job in jobs))
        finally:
            for submission in submissions:
                submission.cancel()
        return list(zip(jobs, codes, strict=True))

    async def wait_for(handle: "Handle", job: fluid.JobId) -> int:
        from warren.cli.job.attach import attach
        from warren.cli.job.wait import exit_code, wait_ended

        if wait_event is not None:
            await _wait_event(handle, job, wait_event)
        if watch:
            return await attach(handle, job, read_only=True)
        return exit_code(await wait_ended(handle, job, f58(job))) if wait else 0

    results = ask_instance(statedir, work)
    if as_json:
        ids = [{"id": f58(job)} for job, _ in results]
        print_json(ids[0] if cc is None and bcc is None else ids)
    sys.exit(max(code for _, code in results))


@click.command(context_settings=CONTEXT_SETTINGS)
@jobspecs.jobspec_options
@jobspecs.task_options
@submission_options
@click.option("-v", "--verbose", count=True,
              help="Print the job's id; -vv: its events, too; -vvv: those of its shells, too.",
              )  # fmt: skip
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def run(
    statedir: StateDir, dry_run: bool, urgency: int, flags: int, verbose: int, **options: Any
) -> None:
    """Submit COMMAND as a job, show its output, and exit as it does."""
    from warren.cli.job import terminal
    from warren.cli.job.attach import attach

    spec = make_jobspec(**options)
    terminal.set_pty_size(spec)
    scripts.print_warnings([spec], options["command"][0])
    label = options["label_io"] and options["output"] is None
    if dry_run:
        print_json(spec)
        dryrun.print_outcomes(statedir, [spec], urgency, flags)
        return

    async def submit_and_attach(handle: "Handle") -> int:
        job = await submitter(statedir, spec, urgency, flags)(handle)
        if verbose:
            click.echo(f"jobid: {f58(job)}", err=True)
        return await attach(
            handle,
            job,
            show_waiting=sys.stderr.isatty(),
            show_events=verbose > 1,
            show_shell_events=verbose > 2,
            label=label,
        )

    sys.exit(ask_instance(statedir, submit_and_attach))


@click.command("submit")
@statedir_option
@json_option
@click.option("-u", "--urgency", default="16", metavar="N", callback=_parse_urgency,
              help="The urgency: 0 to 31, or hold, default, expedite.")  # fmt: skip
@click.option("-f", "--flags", default="", metavar="FLAG,...",
              callback=_parse_flags_or_signed,
              help="Flags of the job: debug, waitable, novalidate; or signed, where FILE is a "
              "signed request.",
              )  # fmt: skip
@click.argument("file", default="-", metavar="[FILE]")
def job_submit(
    statedir: StateDir, as_json: bool, urgency: int, flags: tuple[int, bool], file: str
) -> None:
    """Submit a jobspec, as --dry-run prints it, and print the job's id.

    Without a FILE, or where it is -, the jobspec is read from standard input.
    """
    bits, is_signed = flags
    text = _read(file)
    if is_signed:
        work = _submitter_of(lambda: text.decode(errors="replace").strip(), urgency, bits)
    else:
        try:
            work = submitter(statedir, json.loads(text), urgency, bits)
        except (ValueError, RecursionError) as error:
            source = "standard input" if file == "-" else file
            raise UserMistake(f"{source}: the jobspec is not JSON: {error}.") from error
    job = ask_instance(statedir, work)
    if as_json:
        print_json({"id": f58(job)})
    else:
        click.echo(f58(job))


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(file).read_bytes()
    except OSError as error:
        raise UserMistake(f"{file}: {error.strerror}.") from error


def submitter(
    statedir: StateDir, spec: Any, urgency: int = 16, flags: int = 0
) -> "Callable[[Handle], Awaitable[fluid.JobId]]":
    """Return a function that submits a jobspec. It raises UserMistake with the refusal's words."""

    def sign() -> str:
        return _sign(json.dumps(spec).encode(), socket_of(statedir).stat().st_uid)

    return _submitter_of(sign, urgency, flags)


def _submitter_of(
    make_signed_request: Callable[[], str], urgency: int, flags: int
) -> "Callable[[Handle], Awaitable[fluid.JobId]]":
    async def work(handle: "Handle") -> fluid.JobId:
        from warren.rpc.message import RpcError

        request = {"J": make_signed_request(), "urgency": urgency, "flags": flags}
        try:
            answer = await handle.rpc("job-ingest.submit", request)
        except RpcError as error:
            raise dryrun.refusal_error(error) from error
        return fluid.JobId(answer["id"])

    return work


async def _wait_event(handle: "Handle", job: fluid.JobId, name: str) -> None:
    from warren.cli.job.read import follow_events

    label = f58(job)
    async with aclosing(follow_events(handle, job, "eventlog", label)) as events:  # type: ignore[type-var]
        async for event in events:
            if event.name == name:
                return
    raise UserMistake(f"{label}: the job has ended, and never had an event {name!r}.")


def _sign(payload: bytes, owner: int) -> str:
    """Sign a request: the instance's owner needs no proof, all others have MUNGE's."""
    user = os.getuid()
    if user == owner:
        return signed_request.wrap(payload, user)
    from warren.rpc import munge

    # As MUNGE's own programs are told where their daemon is, if it is not where it usually is.
    socket = os.environ.get("MUNGE_SOCKET")
    return munge.wrap(payload, user, munge.system_munge(socket))


def _specs_of_copies(
    options: Mapping[str, Any], cc: str | None, bcc: str | None
) -> Iterator[dict[str, Any]]:
    """Make the jobspec, or one for each id of --cc or --bcc."""
    ids = cc if cc is not None else bcc
    if ids is None:
        yield make_jobspec(**options)
        return
    numbers = idset.decode(ids)
    if not numbers:
        option = "--bcc" if cc is None else "--cc"
        raise UserMistake(f"{option} {ids!r} names no copy: write 0-3, for example.")
    for number in numbers:
        copy_options = {name: _fill_cc(value, number) for name, value in options.items()}
        spec = make_jobspec(**copy_options)
        if cc is not None:
            spec["attributes"]["system"]["environment"]["FLUX_JOB_CC"] = str(number)
        yield spec


def _fill_cc(value: Any, number: int) -> Any:
    if isinstance(value, tuple):
        return tuple(_fill_cc(each, number) for each in value)
    return value.replace("{cc}", str(number)) if isinstance(value, str) else value
