"""`warren jobs`: jobs listed, chosen and laid out as `flux jobs` does."""

import os
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Final

import click

from warren.base import accounts
from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, f58, json_option, print_json, statedir_option
from warren.cli.job import fields as jobfields
from warren.cli.job import pendingreasons, selecting
from warren.cli.outputformat import Format, sort_rows
from warren.daemons.statedir import StateDir
from warren.lifecycle.states import Result
from warren.rfc import fluid
from warren.rfc.errors import BadFormat

if TYPE_CHECKING:
    from warren.rpc.message import Handle

Attributes = Mapping[str, Any]

_COLORS: Final = {
    Result.COMPLETED: "01;32",
    Result.FAILED: "01;31",
    Result.CANCELED: "37",
    Result.TIMEOUT: "01;31",
}
"""How a terminal shows jobs that are over: green, red, and gray."""


@click.command()
@statedir_option
@click.option("-a", "all_states", is_flag=True, help="List inactive jobs, too.")
@click.option("-A", "all_users", is_flag=True, help="List the jobs of all users.")
@click.option("-u", "--user", metavar="USER",
              help="List the jobs of this user, by name or number; all means all users.",
              )  # fmt: skip
@click.option("-f", "--filter", "status", metavar="STATE|RESULT,...",
              help="List jobs in these states or with these results: pending, failed, ...",
              )  # fmt: skip
@click.option("-c", "--count", type=click.IntRange(0), default=1000, metavar="N",
              help="List at most N jobs; 0 means all. Default: 1000.")  # fmt: skip
@click.option("-o", "--format", "form", default="default", metavar="FORMAT",
              help="The output format: its name (help lists the names), or fields in braces.",
              )  # fmt: skip
@click.option(
    "--sort", metavar="FIELD,...", help="Sort by fields; '-' before one reverses its order."
)
@click.option("--since", metavar="WHEN",
              help="List jobs that were active since then: 2026-01-31, -2h, yesterday, ...",
              )  # fmt: skip
@click.option("-n", "--no-header", "--suppress-header", "no_header", is_flag=True,
              help="Print no headings.")  # fmt: skip
@click.option("-q", "--queue", metavar="QUEUE,...", help="List jobs of these queues.")
@click.option(
    "-i", "--include", metavar="HOSTS|RANKS", help="List jobs that have or had these nodes."
)
@click.option("--name", metavar="NAME", help="List jobs of this name.")
@click.option("--color", type=click.Choice(["always", "never", "auto"]), is_flag=False,
              flag_value="always", metavar="WHEN",
              help="Color jobs that are over: always, which is what --color alone means, never, "
              "or auto: on a terminal, unless NO_COLOR is set.")  # fmt: skip
@click.option("--stats", is_flag=True, help="Print counts of jobs before the list.")
@click.option("--stats-only", is_flag=True,
              help="Print only the counts; exit with 1 if no job is active.")  # fmt: skip
@json_option
@click.argument("ids", nargs=-1, metavar="[JOBID...]")
def jobs(
    statedir: StateDir,
    all_states: bool,
    all_users: bool,
    user: str | None,
    status: str | None,
    count: int,
    form: str,
    sort: str | None,
    since: str | None,
    no_header: bool,
    queue: str | None,
    include: str | None,
    name: str | None,
    color: str | None,
    stats: bool,
    stats_only: bool,
    as_json: bool,
    ids: tuple[str, ...],
) -> None:
    """List your active jobs, or the jobs that are named or chosen.

    A FORMAT is text with fields in braces, such as '{id.f58:>12} {name:<10.10+} {runtime!F:h}
    {user.rabbits}'. With --json, jobs have the attributes of job-list as they are.
    """
    if form == "help":
        _print_formats()
        return
    output_format = _read_format(form)
    sort_keys = output_format.parse_sort_keys(sort) if sort else output_format.sort_keys
    wanted_ids = [fluid.parse(each) for each in ids]
    now = time.time()
    constraints = [
        *([] if all_users else selecting.by_user(selecting.userid(user))),
        *([selecting.by_status(_status_filter(status, all_states, since))]),
        *([selecting.by_names("queue", queue)] if queue else []),
        *([selecting.by_nodes(include)] if include else []),
        *([{"name": [name]}] if name else []),
    ]
    use_colors = use_color(color, sys.stdout.isatty(), os.environ)
    field_names = [
        *output_format.fields,
        *(["result"] if use_colors else []),
        *(key.removeprefix("-") for key in sort_keys),
    ]
    attributes = ["all"] if as_json else jobfields.needed_attributes(field_names)
    request = {
        "max_entries": count,
        "attrs": attributes,
        "since": selecting.past_time(since, now) if since else 0.0,
        "constraint": {"and": constraints},
    }

    async def query(handle: "Handle") -> tuple[list[Attributes], Attributes, list[str]]:
        counts = await handle.rpc("job-list.job-stats") if stats or stats_only else {}
        if stats_only:
            return [], counts, []
        if wanted_ids:
            listed_jobs, missing_messages = await _jobs_by_id(handle, wanted_ids, attributes)
        else:
            listed_jobs, missing_messages = await list_jobs(handle, request), []
        if "contextual_info" in field_names and not as_json:
            reasons = await pendingreasons.reasons(handle, listed_jobs)
            listed_jobs = [{**job, jobfields.WAIT: reasons.get(job["id"])} for job in listed_jobs]
        return listed_jobs, counts, missing_messages

    listed_jobs, counts, missing_messages = ask_instance(statedir, query)
    if as_json:
        print_json({"jobs": listed_jobs, **({"stats": counts} if counts else {})})
    else:
        if counts:
            click.echo(stats_line(counts))
        if not stats_only:
            rows = [jobfields.row(each, now, accounts.user_name) for each in listed_jobs]
            # An id is shown in letters, and goes by its number.
            row_keys = [{"id": "id.dec", "-id": "-id.dec"}.get(key, key) for key in sort_keys]
            rows = sort_rows(rows, row_keys)
            lines = output_format.lines(rows, header=not no_header)
            if not no_header:
                click.echo(next(lines))
            for row, line in zip(rows, lines, strict=True):
                click.echo(
                    _color_line(line, row("result")) if use_colors else line, color=use_colors
                )
    if missing_messages:
        raise UserMistake("; ".join(missing_messages))
    if stats_only and not _count_active(counts):
        sys.exit(1)


def use_color(when: str | None, is_terminal: bool, environment: Mapping[str, str]) -> bool:
    """Return whether to color: as --color says, or where output goes to a terminal."""
    if when is None and environment.get("NO_COLOR"):
        return False
    return when == "always" or (when != "never" and is_terminal)


def _color_line(line: str, result: str) -> str:
    return f"\033[{_COLORS[Result(result)]}m{line}\033[0m" if result else line


def _status_filter(status: str | None, all_states: bool, since: str | None) -> str:
    if status is not None:
        return status
    return "pending,running,inactive" if all_states or since else "pending,running"


def _read_format(form: str) -> Format:
    if "{" in form:
        return Format(form, jobfields.heading)
    if form not in jobfields.FORMATS:
        raise BadFormat(
            f"there is no format {form!r}: they are {', '.join(jobfields.FORMATS)}; "
            "or write fields in braces, such as '{id} {name}'."
        )
    return Format(jobfields.FORMATS[form][1], jobfields.heading)


def _print_formats() -> None:
    for name, (description, form) in jobfields.FORMATS.items():
        click.echo(f"{name:<10} {description}\n           {form}")


async def list_jobs(handle: "Handle", request: Mapping[str, Any]) -> list[Attributes]:
    """Return the jobs that `job-list.list` is asked for, however many they are."""
    listed_jobs: list[Attributes] = []
    stream = handle.stream("job-list.list", request)
    async with aclosing(stream) as answers:  # type: ignore[type-var]
        async for answer in answers:
            listed_jobs.extend(answer["jobs"])
    return listed_jobs


async def _jobs_by_id(
    handle: "Handle", ids: Sequence[int], attributes: Sequence[str]
) -> tuple[list[Attributes], list[str]]:
    """Return the jobs with these ids, and a sentence for each that does not exist."""
    from warren.rpc.message import RpcError

    found_jobs, missing_messages = [], []
    for each in ids:
        try:
            answer = await handle.rpc("job-list.list-id", {"id": each, "attrs": attributes})
            found_jobs.append(answer["job"])
        except RpcError as error:
            missing_messages.append(f"{f58(each)}: {error}")
    return found_jobs, missing_messages


def stats_line(stats: Attributes) -> str:
    """Return how many jobs there are, as `flux jobs --stats` does."""
    states = stats["job_states"]
    pending = sum(states[name] for name in ("depend", "priority", "sched"))
    counts = (
        f"{states['run'] + states['cleanup']} running, {stats['successful']} completed, "
        f"{stats['failed']} failed, {pending} pending"
    )
    purged = stats.get("inactive_purged", 0)
    return f"{counts}, {purged} inactive purged" if purged else counts


def _count_active(stats: Attributes) -> int:
    states = stats["job_states"]
    return int(states["total"] - states["inactive"])
