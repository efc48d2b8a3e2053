"""`warren queue`: which queues there are, which take jobs, and which are served.

Commands and what they print are those of flux-queue(1).
"""

import asyncio
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from warren.base.errors import UserMistake
from warren.base.words import plural
from warren.cli.commandgroups import Group
from warren.cli.common import (
    F,
    ask_instance,
    json_option,
    print_json,
    print_table,
    statedir_option,
)
from warren.daemons.statedir import StateDir
from warren.lifecycle import policy as policies
from warren.lifecycle.policy import SIZE_KEYS, Policy, Queue, QueueLimits
from warren.rfc import duration
from warren.rfc.errors import BadFormat

if TYPE_CHECKING:
    from warren.rpc.message import Handle

QueueStatus = Mapping[str, Any]
"""A queue as `job-manager.queue-status` tells of it."""


class QueueConfig(msgspec.Struct, frozen=True):
    """What `config.get` says of queues."""

    policy: Policy = Policy()
    queues: Mapping[str, Queue] = {}


_PROGRESS_INTERVAL: Final = 2.0
"""Seconds between two lines of progress."""


@click.group(cls=Group)
def queue() -> None:
    """List and control queues.

    An instance without named queues has one anonymous queue: leave QUEUE out.
    """


def _queue_argument(command: F) -> F:
    """Add QUEUE, which may be said as an option, too."""
    command = click.option("-q", "--queue", "queue_option", metavar="QUEUE", hidden=True)(command)
    return click.argument("name", metavar="[QUEUE]", required=False)(command)


def _change_options(command: F) -> F:
    """Add what all commands have that change a queue."""
    command = click.option("-a", "--all", "all_", is_flag=True, help="All queues.")(command)
    command = click.option("-v", "--verbose", is_flag=True,
                           help="Show all queues, and how many jobs wait and run.",
                           )(command)  # fmt: skip
    command = click.option("--quiet", is_flag=True, help="Print nothing but errors.")(command)
    return json_option(statedir_option(_queue_argument(command)))


def _message_option(command: F) -> F:
    return click.option("-m", "--message", metavar="REASON", help="The reason, shown to users.")(
        command
    )


def _timeout_option(command: F) -> F:
    return click.option("-t", "--timeout", metavar="FSD", callback=_parse_timeout,
                        help="How long to wait at most, as in 1.5h.")(command)  # fmt: skip


def _parse_timeout(
    _context: click.Context, _parameter: click.Parameter, text: str | None
) -> float | None:
    try:
        return None if text is None else duration.parse(text)
    except BadFormat as error:
        raise click.BadParameter(str(error)) from None


# Looking


@queue.command("list")
@statedir_option
@json_option
@click.option(
    "-q",
    "--queue",
    "queue_names",
    metavar="QUEUE,...",
    multiple=True,
    help="List only these queues.",
)
def list_(statedir: StateDir, as_json: bool, queue_names: tuple[str, ...]) -> None:
    """List queues with the time limits and sizes of their jobs.

    The default queue has an asterisk. EN: whether it accepts jobs; ST: whether it starts jobs, or
    p while its parent is stopped.
    """

    async def query(handle: "Handle") -> tuple[QueueConfig, dict[str | None, QueueStatus]]:
        config = msgspec.convert(await handle.rpc("config.get"), QueueConfig)
        return config, await _statuses(handle, None)

    config, statuses = ask_instance(statedir, query)
    names = [name for word in queue_names for name in word.split(",")]
    for name in names:
        if name not in statuses:
            existing_names = [each for each in statuses if each is not None]
            raise UserMistake(
                f"There is no queue {name!r}: {policies.queue_choices(existing_names)}."
            )
    rows = queue_rows(config, {n: s for n, s in statuses.items() if not names or n in names})
    if as_json:
        print_json({"queues": rows})
        return
    headers, cells = _table(rows, symbols=_symbols())
    print_table(headers, cells, right_aligned="EN ST TDEFAULT TLIMIT NNODES NCORES NGPUS")


def queue_rows(
    config: QueueConfig, statuses: Mapping[str | None, QueueStatus]
) -> list[dict[str, Any]]:
    """Return what is told of each queue. A limit of None is none."""
    queue_limits = policies.queue_limits(config.queues, config.policy)
    default = policies.default_queue(config.queues, config.policy)
    return [
        {
            "queue": name or "",
            "default": name is not None and name == default,
            **({"parent": limits.parent} if limits.parent is not None else {}),
            **status,
            "timelimit": {
                "default": limits.default_duration or None,
                "max": None if math.isinf(limits.max_duration) else limits.max_duration,
            },
            **{
                size_name: {
                    "min": limits.min_sizes.get(size_name, 0),
                    "max": limits.max_sizes.get(size_name),
                }
                for size_name in SIZE_KEYS
            },
        }
        for name, status in statuses.items()
        for limits in [queue_limits.get(name, QueueLimits())]
    ]


def _table(
    rows: Sequence[Mapping[str, Any]], symbols: Mapping[str, str]
) -> tuple[list[str], list[list[str]]]:
    """Return headers and cells. What no queue has, a name or a parent, has no column."""
    columns: dict[str, Callable[[Mapping[str, Any]], str]] = {
        "QUEUE": lambda row: f"{row['queue']}{'*' * row['default']}",
        "PARENT": lambda row: row.get("parent", ""),
        "EN": lambda row: symbols["y" if row["enable"] else "n"],
        "ST": lambda row: symbols[_start_symbol(row)],
        "TDEFAULT": lambda row: _fsd(row["timelimit"]["default"]),
        "TLIMIT": lambda row: _fsd(row["timelimit"]["max"]),
        **{size_name.upper(): _range(size_name) for size_name in SIZE_KEYS},
    }
    for header in ("QUEUE", "PARENT"):
        if not any(columns[header](row) for row in rows):
            del columns[header]
    return list(columns), [[cell(row) for cell in columns.values()] for row in rows]


def _range(size_name: str) -> Callable[[Mapping[str, Any]], str]:
    def cell(row: Mapping[str, Any]) -> str:
        max_size = row[size_name]["max"]
        return f"{row[size_name]['min']}-{'inf' if max_size is None else max_size}"

    return cell


def _start_symbol(status: QueueStatus) -> str:
    if status["start"]:
        return "y"
    return "p" if status.get("blocked") == "parent" else "n"


def _symbols() -> Mapping[str, str]:
    """Return what shows yes, no and paused where it can be printed."""
    symbols = {"y": "✔", "n": "✗", "p": "⏸"}
    try:
        "".join(symbols.values()).encode(sys.stdout.encoding or "ascii")
    except UnicodeEncodeError:
        return {symbol: symbol for symbol in symbols}
    return symbols


def _fsd(seconds: float | None) -> str:
    return "inf" if seconds is None else duration.format_fsd(seconds)


@queue.command("status")
@statedir_option
@json_option
@_queue_argument
@click.option(
    "-v", "--verbose", is_flag=True, help="Show all queues, and how many jobs wait and run."
)
def status(
    statedir: StateDir, as_json: bool, name: str | None, queue_option: str | None, verbose: bool
) -> None:
    """Show whether queues accept and start jobs."""
    _show(
        statedir, None, name or queue_option, as_json, verbose, (_submission_line, _scheduling_line)
    )


# Changing


@queue.command("enable")
@_change_options
def enable(**options: Any) -> None:
    """Accept new jobs in a queue."""
    _change(options, "enable", {"enable": True}, _submission_line)


@queue.command("disable")
@_message_option
@_change_options
def disable(message: str | None, **options: Any) -> None:
    """Refuse new jobs in a queue. Those that are in it stay."""
    reason = message or "disabled by administrator"
    _change(options, "enable", {"enable": False, "reason": reason}, _submission_line)


@queue.command("start")
@_change_options
def start(**options: Any) -> None:
    """Start the jobs of a queue."""
    _change(options, "start", {"start": True}, _scheduling_line)


@queue.command("stop")
@_message_option
@click.option(
    "--nocheckpoint", is_flag=True, help="Stop it only until the instance is started again."
)
@_change_options
def stop(message: str | None, nocheckpoint: bool, **options: Any) -> None:
    """Start no more jobs of a queue. Those that run go on."""
    request = {"start": False, "reason": message, "nocheckpoint": nocheckpoint}
    _change(options, "start", request, _scheduling_line)


def _change(
    options: Mapping[str, Any],
    method: str,
    request: Mapping[str, Any],
    write_status: "_StatusWriter",
) -> None:
    name = options["name"] or options["queue_option"]
    payload = {**request, "all": options["all_"], **({"name": name} if name else {})}

    async def change(handle: "Handle") -> None:
        await handle.rpc(f"job-manager.queue-{method}", payload)

    if options["quiet"]:
        ask_instance(options["statedir"], change)
    else:
        _show(
            options["statedir"],
            change,
            name,
            options["as_json"],
            options["verbose"],
            (write_status,),
        )


_StatusWriter = Callable[[str | None, QueueStatus], str]


def _show(
    statedir: StateDir,
    change_first: Callable[["Handle"], Any] | None,
    name: str | None,
    as_json: bool,
    verbose: bool,
    status_writers: Sequence[_StatusWriter],
) -> None:
    """Print queues, after `change_first` on the same connection, if it is given."""

    async def query(handle: "Handle") -> tuple[dict[str | None, QueueStatus], Mapping[str, int]]:
        if change_first is not None:
            await change_first(handle)
        alloc_counts = await handle.rpc("job-manager.alloc-query") if verbose else {}
        return await _statuses(handle, None if verbose else name), alloc_counts

    statuses, alloc_counts = ask_instance(statedir, query)
    if as_json:
        queues = [{"queue": each or "", **status} for each, status in statuses.items()]
        print_json({"queues": queues, **alloc_counts})
        return
    for each, status in statuses.items():
        for write_status in status_writers:
            click.echo(write_status(each, status))
    if verbose:
        click.echo(f"{alloc_counts['queue_length']} alloc requests queued")
        click.echo(f"{alloc_counts['alloc_pending']} alloc requests pending to scheduler")
        click.echo(f"{alloc_counts['running']} running jobs")


async def _statuses(handle: "Handle", name: str | None) -> dict[str | None, QueueStatus]:
    """Return one queue or, without a name, all of them."""
    names: Sequence[str | None] = [name]
    if name is None:
        names = (await handle.rpc("job-manager.queue-list"))["queues"] or [None]
    return {
        each: await handle.rpc("job-manager.queue-status", {} if each is None else {"name": each})
        for each in names
    }


def _submission_line(name: str | None, status: QueueStatus) -> str:
    text = "enabled" if status["enable"] else f"disabled: {status['disable_reason']}"
    return f"{_prefix(name)}Job submission is {text}"


def _scheduling_line(name: str | None, status: QueueStatus) -> str:
    text = "started" if status["start"] else "stopped"
    if status.get("blocked") == "parent":
        text += f" (parent {status['parent']})"
    if "stop_reason" in status:
        text += f": {status['stop_reason']}"
    return f"{_prefix(name)}Scheduling is {text}"


def _prefix(name: str | None) -> str:
    return "" if name is None else f"{name}: "


# Waiting


@queue.command("drain")
@statedir_option
@json_option
@_queue_argument
@_timeout_option
def drain(
    statedir: StateDir,
    as_json: bool,
    name: str | None,
    queue_option: str | None,
    timeout: float | None,
) -> None:
    """Wait until a queue, or every queue, is empty.

    Best after `disable`: jobs that come in the meantime are waited for, too.
    """
    answer = _wait(statedir, "drain", name or queue_option, timeout)
    if as_json:
        print_json(answer)


@queue.command("idle")
@statedir_option
@json_option
@_queue_argument
@_timeout_option
@click.option("--quiet", is_flag=True, help="Print how many jobs are left only if some are.")
def idle(
    statedir: StateDir,
    as_json: bool,
    name: str | None,
    queue_option: str | None,
    timeout: float | None,
    quiet: bool,
) -> None:
    """Wait until no job runs, in one queue or in all, and print how many wait.

    Best after `stop`: what is started in the meantime is waited for, too.
    """
    answer = _wait(statedir, "idle", name or queue_option, timeout)
    if as_json:
        print_json(answer)
    elif answer["pending"] or not quiet:
        click.echo(plural(answer["pending"], "job"))


def _wait(
    statedir: StateDir, method: str, name: str | None, timeout: float | None
) -> Mapping[str, Any]:
    """Wait for an answer, and tell a person at a terminal meanwhile what there is to wait for."""

    async def wait(handle: "Handle") -> Mapping[str, Any]:
        request = {} if name is None else {"name": name}
        answer = asyncio.ensure_future(handle.rpc(f"job-manager.{method}", request))
        try:
            async with asyncio.timeout(timeout):
                while not (await asyncio.wait([answer], timeout=_PROGRESS_INTERVAL))[0]:
                    if _is_interactive():
                        click.echo(await _progress(handle), err=True)
                return answer.result()
        except TimeoutError:
            raise UserMistake(
                f"{method}: the timeout has expired, and there are still jobs."
            ) from None
        finally:
            answer.cancel()

    return ask_instance(statedir, wait)


async def _progress(handle: "Handle") -> str:
    counts = await handle.rpc("job-manager.alloc-query")
    ready_count = counts["queue_length"] + counts["alloc_pending"]
    running = plural(counts["running"], "job runs", "jobs run")
    return f"waiting: {running}, {ready_count} {'is' if ready_count == 1 else 'are'} ready to"


def _is_interactive() -> bool:
    return sys.stderr.isatty()
