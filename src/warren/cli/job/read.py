"""The commands of `warren job` that read."""

import os
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from math import inf
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from warren.base.errors import UserMistake
from warren.base.printable import printable_value
from warren.cli.common import ask_instance, f58, json_option, print_json, statedir_option
from warren.cli.events import FORMATS, TIME_FORMATS, EventWriter
from warren.cli.job import selecting
from warren.daemons.statedir import StateDir
from warren.lifecycle.states import State
from warren.rfc import duration, eventlog, fluid, hostlist, idset, signed_request, taskmap
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.taskmap import Block

if TYPE_CHECKING:
    from warren.rpc.message import Handle

NO_LIMIT: Final = 2**32 - 1
"""What `timeleft` prints for a job that has all the time in the world."""

_FLAG_CURRENT: Final = 2
_LOG_PATHS: Final = {
    "exec": "guest.exec.eventlog",
    "output": "guest.output",
    "input": "guest.input",
}


async def call(
    handle: "Handle", topic: str, request: Mapping[str, Any], about: str
) -> Mapping[str, Any]:
    """Call a method of the instance. A refusal is a UserMistake that says what it is about."""
    from warren.rpc.message import RpcError

    try:
        return await handle.rpc(topic, request)
    except RpcError as error:
        raise UserMistake(f"{about}: {error}") from error


def log_path(name: str) -> str:
    """Return the path of a job's log, which may be spelled in short: exec, output, input."""
    return _LOG_PATHS.get(name, name)


async def follow_events(
    handle: "Handle", job: int, path: str, about: str, *, flags: int = 1
) -> AsyncIterator[Event]:
    """Return the events of a job's log as they come, until there can be no more."""
    from warren.rpc.message import RpcError

    watch = handle.stream("job-info.eventlog-watch", {"id": job, "path": path, "flags": flags})
    try:
        async with aclosing(watch) as answers:  # type: ignore[type-var]
            async for answer in answers:
                yield eventlog.decode_line(answer["event"])
    except RpcError as error:
        raise UserMistake(f"{about} {path}: {error}") from error


# Records


@click.command("info")
@statedir_option
@json_option
@click.option(
    "-o", "--original", is_flag=True, help="Print the jobspec as its author has signed it."
)
@click.option("-b", "--base", is_flag=True, help="Print jobspec or R without later updates.")
@click.argument("id_", metavar="JOBID")
@click.argument("key")
def job_info(
    statedir: StateDir, as_json: bool, original: bool, base: bool, id_: str, key: str
) -> None:
    """Print a key of a job's record: J, jobspec, R, eventlog, guest.output, rabbit_workflow, ...

    jobspec and R are printed as they are now, unless -o or -b ask for an earlier version.
    """
    if original and key != "jobspec":
        raise click.UsageError("only the jobspec has an original: its author signs nothing else.")
    if original and base:
        raise click.UsageError("--original and --base are two versions: ask for one of them.")
    jobid = fluid.parse(id_)
    record_key = "J" if original else key
    request = {"id": jobid, "keys": [record_key], "flags": 0 if base or original else _FLAG_CURRENT}

    async def look_up(handle: "Handle") -> str:
        answer = await call(handle, "job-info.lookup", request, f"{id_} {key}")
        return str(answer[record_key])

    text = ask_instance(statedir, look_up)
    if original:
        text = signed_request.unwrap(text, mechanisms=("none", "munge")).payload.decode()
    if as_json:
        print_json({"id": f58(jobid), key: _json_or_text(text)})
    else:
        click.echo(printable_value(text.removesuffix("\n")))


def _json_or_text(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return text


@click.command("eventlog")
@statedir_option
@click.option("-f", "--format", "form", type=click.Choice(FORMATS), default="text",
              help="How events are printed.")  # fmt: skip
@json_option
@click.option("-T", "--time-format", default="raw", type=click.Choice(TIME_FORMATS),
              help="How times are printed.")  # fmt: skip
@click.option("-H", "--human", is_flag=True, help="The same as -T human.")
@click.option("-F", "--follow", is_flag=True, help="Print new events until the job has ended.")
@click.option("-p", "--path", default="eventlog", show_default=True, metavar="PATH",
              callback=lambda _ctx, _param, value: log_path(value),
              help="Which log: eventlog, exec, output, input, or a key of the job.")  # fmt: skip
@click.argument("id_", metavar="JOBID")
def job_eventlog(
    statedir: StateDir,
    form: str,
    as_json: bool,
    time_format: str,
    human: bool,
    follow: bool,
    path: str,
    id_: str,
) -> None:
    """Print a job's eventlog, or another log of the job."""
    jobid = fluid.parse(id_)
    writer = EventWriter("json" if as_json else form, "human" if human else time_format)

    async def print_events(handle: "Handle") -> None:
        if follow:
            log = follow_events(handle, jobid, path, id_)
            async with aclosing(log) as events:  # type: ignore[type-var]
                async for event in events:
                    click.echo(writer.line(event))
        else:
            request = {"id": jobid, "keys": [path], "flags": 0}
            answer = await call(handle, "job-info.lookup", request, f"{id_} {path}")
            for event in eventlog.decode(answer[path]):
                click.echo(writer.line(event))

    ask_instance(statedir, print_events)


# Lists


@click.command("list")
@statedir_option
@click.option("-a", "--all", "everything", is_flag=True, help="List inactive jobs, too.")
@click.option("-A", "--all-users", is_flag=True, help="List the jobs of all users.")
@click.option("-u", "--user", metavar="USER", help="List the jobs of this user.")
@click.option("-s", "--states", default="pending,running", metavar="STATE,...",
              help="List jobs in these states.")  # fmt: skip
@click.option("-c", "--count", type=click.IntRange(0), default=1000, metavar="N",
              help="List at most N jobs; 0 means all.")  # fmt: skip
@click.option("--since", metavar="WHEN", help="List jobs that were active since then.")
@json_option  # as everywhere; there is no other way here
def job_list(
    statedir: StateDir,
    as_json: bool,
    everything: bool,
    all_users: bool,
    user: str | None,
    states: str,
    count: int,
    since: str | None,
) -> None:
    """List jobs with all their attributes, one JSON object a line."""
    constraints = [] if all_users else selecting.by_user(selecting.userid(user))
    constraints.append(selecting.by_status("pending,running,inactive" if everything else states))
    request = {
        "max_entries": count,
        "attrs": ["all"],
        "since": selecting.past_time(since, time.time()) if since else 0.0,
        "constraint": {"and": constraints},
    }

    async def print_jobs(handle: "Handle") -> None:
        stream = handle.stream("job-list.list", request)
        async with aclosing(stream) as answers:  # type: ignore[type-var]
            async for answer in answers:
                for each in answer["jobs"]:
                    click.echo(orjson.dumps(each))

    ask_instance(statedir, print_jobs)


@click.command("list-ids")
@statedir_option
@click.option("-W", "--wait-state", metavar="STATE", help="Wait until they are in this state.")
@json_option
@click.argument("ids", nargs=-1, required=True, metavar="JOBID...")
def job_list_ids(
    statedir: StateDir, as_json: bool, wait_state: str | None, ids: tuple[str, ...]
) -> None:
    """List jobs by their ids with all their attributes, one JSON object a line."""
    wanted_state_bit = None if wait_state is None else selecting.state_bit(wait_state)
    spelled_and_parsed = [(each, fluid.parse(each)) for each in ids]

    async def print_jobs(handle: "Handle") -> None:
        for id_, job in spelled_and_parsed:
            request = {"id": job, "attrs": ["all"], "state": wanted_state_bit}
            answer = await call(handle, "job-list.list-id", request, id_)
            click.echo(orjson.dumps(answer["job"]))

    ask_instance(statedir, print_jobs)


@click.command("stats")
@statedir_option
@json_option
def job_stats(statedir: StateDir, as_json: bool) -> None:
    """Count the jobs of all users by state, result and queue, as JSON."""
    print_json(ask_instance(statedir, lambda handle: handle.rpc("job-list.job-stats")))


_SLICE_PATTERN: Final = re.compile(r"\[?(-?[0-9]*):(-?[0-9]*)(?::(-?[0-9]*))?\]?")


@click.command("last", context_settings={"ignore_unknown_options": True})
@statedir_option
@json_option
@click.argument("which", default="1", metavar="[N|SLICE]")
def job_last(statedir: StateDir, as_json: bool, which: str) -> None:
    """Print the id of the job that you submitted last, the ids of the last N, or of a SLICE.

    A SLICE is one of Python's of all your jobs, the latest first: [0:3], [:].
    """
    selected = _parse_slice(which)
    forward = (selected.start or 0) >= 0 and (selected.step or 1) > 0
    max_jobs = selected.stop if forward and (selected.stop or 0) > 0 else None
    jobids = ask_instance(statedir, lambda handle: _latest(handle, os.getuid(), max_jobs))[selected]
    if as_json:
        print_json([f58(each) for each in jobids])
    elif not jobids:
        raise UserMistake("you have submitted no such job.")
    else:
        for each in jobids:
            click.echo(f58(each))


def _parse_slice(text: str) -> slice:
    if text.isdecimal():
        return slice(int(text))
    match = _SLICE_PATTERN.fullmatch(text)
    if match is None or match[3] == "0":
        raise UserMistake(f"{text!r} is neither a number nor a slice such as [0:3].")
    return slice(*(int(each) if each else None for each in match.groups()))


async def _latest(handle: "Handle", userid: int, max_jobs: int | None) -> list[int]:
    """Return the jobs of a user, the last submitted one first; all, or enough for `max_jobs`."""

    async def list_submitted(count: int, since: float) -> list[tuple[float, int]]:
        request = {
            "max_entries": count,
            "attrs": ["t_submit"],
            "since": since,
            "constraint": {"userid": [userid]},
        }
        submitted: list[tuple[float, int]] = []
        stream = handle.stream("job-list.list", request)
        async with aclosing(stream) as answers:  # type: ignore[type-var]
            async for answer in answers:
                submitted.extend((each["t_submit"], each["id"]) for each in answer["jobs"])
        return sorted(submitted, reverse=True)

    since = 0.0
    if max_jobs is not None:
        newest = await list_submitted(max_jobs, 0.0)
        if len(newest) == max_jobs:
            # Whatever was submitted later has not ended before that.
            since = newest[-1][0] - 1e-6
    return [job for _, job in await list_submitted(0, since)]


# Questions


@click.command("timeleft")
@statedir_option
@json_option
@click.option("-H", "--human", is_flag=True, help="Print a duration such as 1.5h.")
@click.argument("id_", default="", metavar="[JOBID]")
def job_timeleft(statedir: StateDir, as_json: bool, human: bool, id_: str) -> None:
    """Print the whole seconds that are left to a job: by default the one this command runs in."""
    spelled_id = id_ or os.environ.get("FLUX_JOB_ID", "")
    if not spelled_id:
        raise UserMistake("name a job: this command does not run in one, FLUX_JOB_ID is not set.")
    jobid = fluid.parse(spelled_id)
    request = {"id": jobid, "attrs": ["state", "expiration"]}

    async def query(handle: "Handle") -> Mapping[str, Any]:
        job: Mapping[str, Any] = (await call(handle, "job-list.list-id", request, spelled_id))[
            "job"
        ]
        return job

    seconds_left = _time_left(ask_instance(statedir, query), time.time(), spelled_id)
    if as_json:
        print_json(
            {"id": f58(jobid), "timeleft": None if seconds_left == inf else int(seconds_left)}
        )
    elif human:
        click.echo(duration.format_fsd(seconds_left if seconds_left == inf else int(seconds_left)))
    else:
        click.echo(NO_LIMIT if seconds_left == inf else int(seconds_left))


def _time_left(job: Mapping[str, Any], now: float, spelled_id: str) -> float:
    if job["state"] == State.INACTIVE.bit:
        return 0.0
    if job["state"] not in (State.RUN.bit, State.CLEANUP.bit):
        raise UserMistake(f"{spelled_id}: the job has not started yet.")
    expiration = job.get("expiration")
    return inf if not expiration else max(0.0, expiration - now)


@click.command("taskmap")
@statedir_option
@json_option
@click.option(
    "--taskids",
    "tasks_of_node",
    type=click.IntRange(0),
    metavar="NODEID",
    help="The tasks of a node.",
)
@click.option("--ntasks", "task_count_of_node", type=click.IntRange(0), metavar="NODEID",
              help="How many tasks a node has.")  # fmt: skip
@click.option("--nodeid", "--nodeids", "node_of_task", type=click.IntRange(0), metavar="TASKID",
              help="The node of a task.")  # fmt: skip
@click.option("--hostname", "host_of_task", type=click.IntRange(0), metavar="TASKID",
              help="The name of the node of a task.")  # fmt: skip
@click.option("--to", "form", type=click.Choice(["raw", "pmi", "multiline", "hosts"]),
              help="Print the whole map in another form.")  # fmt: skip
@click.argument("job_or_map", metavar="JOBID|TASKMAP")
def job_taskmap(
    statedir: StateDir,
    as_json: bool,
    tasks_of_node: int | None,
    task_count_of_node: int | None,
    node_of_task: int | None,
    host_of_task: int | None,
    form: str | None,
    job_or_map: str,
) -> None:
    """Print which task runs on which node, of a job that starts, or of a map as JSON, raw or PMI.

    Nodes are counted from 0 within the job.
    """
    questions = [tasks_of_node, task_count_of_node, node_of_task, host_of_task, form]
    if sum(question is not None for question in questions) > 1:
        raise click.UsageError("ask one question at a time.")
    with_hosts = host_of_task is not None or form == "hosts"
    blocks = None if with_hosts else _read_taskmap(job_or_map)
    hosts: list[str] = []
    if blocks is None:
        jobid = fluid.parse(job_or_map)
        blocks, hosts = ask_instance(
            statedir,
            lambda handle: _taskmap_of_job(handle, jobid, job_or_map, with_hosts=with_hosts),
        )
    if tasks_of_node is not None or task_count_of_node is not None:
        node = tasks_of_node if tasks_of_node is not None else task_count_of_node
        assert node is not None
        if node >= taskmap.node_count(blocks):
            raise UserMistake(
                f"there is no node {node}: the tasks have {taskmap.node_count(blocks)}."
            )
        ranks = list(taskmap.ranks_of(blocks, node))
        answer: Any = idset.encode(ranks) if tasks_of_node is not None else len(ranks)
    elif node_of_task is not None:
        answer = taskmap.node_of(blocks, node_of_task)
    elif host_of_task is not None:
        answer = hosts[taskmap.node_of(blocks, host_of_task)]
    else:
        answer = _render_taskmap(blocks, form, hosts)
    print_json({"taskmap": answer}) if as_json else click.echo(_text(answer))


def _text(answer: Any) -> str:
    return answer if isinstance(answer, str) else orjson.dumps(answer).decode()


def _render_taskmap(blocks: Sequence[Block], form: str | None, hosts: Sequence[str]) -> Any:
    match form:
        case "raw":
            return taskmap.to_raw(blocks)
        case "pmi":
            return taskmap.to_pmi(blocks)
        case "multiline" | "hosts":
            nodes = [taskmap.node_of(blocks, rank) for rank in range(taskmap.task_count(blocks))]
            node_names = [hosts[node] if form == "hosts" else str(node) for node in nodes]
            return "\n".join(f"{rank}: {node}" for rank, node in enumerate(node_names))
    return taskmap.wrap(blocks)


def _read_taskmap(text: str) -> list[Block] | None:
    """Read a map from the command line; None for what is a job's id."""
    try:
        if text.startswith(("{", "[")):
            return taskmap.decode(orjson.loads(text))
        if text.startswith("("):
            return taskmap.from_pmi(text)
    except orjson.JSONDecodeError as error:
        raise UserMistake(f"{text!r} is not JSON: {error}.") from None
    try:
        fluid.parse(text)
    except BadFormat:
        if set(text) <= set("0123456789,-;"):
            return taskmap.from_raw(text)
    return None


async def _taskmap_of_job(
    handle: "Handle", job: int, spelled_id: str, *, with_hosts: bool
) -> tuple[list[Block], list[str]]:
    """Return a job's map, once it starts, and the names of its nodes."""
    log = follow_events(handle, job, "guest.exec.eventlog", spelled_id)
    async with aclosing(log) as events:  # type: ignore[type-var]
        async for event in events:
            if event.name == "shell.start":
                hosts = ""
                if with_hosts:
                    request = {"id": job, "attrs": ["nodelist"]}
                    answer = await call(handle, "job-list.list-id", request, spelled_id)
                    hosts = answer["job"]["nodelist"]
                return taskmap.decode(event.context["taskmap"]), hostlist.decode(hosts)
    raise UserMistake(f"{spelled_id}: the job has no tasks, and will have none.")
