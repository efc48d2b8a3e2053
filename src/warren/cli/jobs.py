"""`warren jobs`, `warren cancel`, `warren job`: listed, ended and looked into."""

import pwd
import sys
import time
from collections.abc import Mapping
from contextlib import aclosing
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click
import orjson

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, json_option, print_json, print_table, statedir_option
from warren.daemons.statedir import StateDir
from warren.lifecycle.states import ACTIVE, Result, State
from warren.rfc import duration, eventlog, fluid
from warren.rfc.eventlog import Event

if TYPE_CHECKING:
    from warren.rpc.message import Handle


@click.command()
@statedir_option
@click.option("-a", "--all", "everything", is_flag=True, help="Inactive jobs, too.")
@click.option("-c", "--count", type=click.IntRange(1), default=1000, metavar="N",
              help="How many jobs at the most.")  # fmt: skip
@json_option
def jobs(state: StateDir, everything: bool, count: int, as_json: bool) -> None:
    """List jobs: active ones, or all with -a."""
    states = 0 if everything else sum(each.bit for each in ACTIVE)
    request: dict[str, Any] = {"max_entries": count}
    if states:
        request["states"] = states

    async def listed(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("job-list.list", request)

    found = ask_instance(state, listed)["jobs"]
    if as_json:
        print_json({"jobs": found})
        return
    headers = ("JOBID", "USER", "NAME", "ST", "NTASKS", "NNODES", "TIME", "INFO")
    rows = [
        (
            fluid.f58(each["id"]),
            _user(each["userid"]),
            each["name"][:20],
            _status(each),
            each["ntasks"],
            each.get("nnodes", "-"),
            _time(each),
            _info(each),
        )
        for each in found
    ]
    print_table(headers, rows, right="JOBID ST NTASKS NNODES TIME")


def _user(userid: int) -> str:
    try:
        return pwd.getpwuid(userid).pw_name
    except KeyError:
        return str(userid)


def _state(each: Mapping[str, Any]) -> State:
    return next(state for state in State if state.bit == each["state"])


def _status(each: Mapping[str, Any]) -> str:
    state = _state(each)
    if state is State.INACTIVE:
        return next(result for result in Result if result.bit == each["result"]).abbreviation
    return state.letter


def _time(each: Mapping[str, Any]) -> str:
    if "t_run" not in each:
        return "-"
    ended = each.get("t_cleanup", time.time())
    # The clock may have been set back since: no time has passed, then.
    return duration.format_fsd(float(f"{max(0.0, ended - each['t_run']):.3g}"))


def _info(each: Mapping[str, Any]) -> str:
    state = _state(each)
    if state is State.DEPEND:
        return f"depends:{','.join(each.get('dependencies', ()))}"
    if state is State.SCHED:
        return str(each.get("annotations", {}).get("sched", {}).get("reason_pending", ""))
    if state is State.INACTIVE and each.get("exception_type"):
        return f"{each['exception_type']}: {each.get('exception_note', '')}".splitlines()[0]
    return str(each.get("nodelist", ""))


@click.command()
@statedir_option
@click.option("-m", "--message", default="", metavar="NOTE", help="Why, for the job's record.")
@click.argument("ids", nargs=-1, required=True, metavar="JOBID...")
def cancel(state: StateDir, message: str, ids: tuple[str, ...]) -> None:
    """Cancel jobs."""
    found = [fluid.parse(each) for each in ids]

    async def cancelled(handle: "Handle") -> list[str]:
        failures = []
        for each in found:
            refused = await _raise(handle, each, message)
            if refused:
                failures.append(f"{fluid.f58(each)}: {refused}")
        return failures

    failures = ask_instance(state, cancelled)
    if failures:
        raise UserMistake("; ".join(failures))


async def _raise(handle: "Handle", job: int, note: str) -> str | None:
    from warren.rpc.message import RpcError

    try:
        await handle.rpc(
            "job-manager.raise", {"id": job, "type": "cancel", "severity": 0, "note": note}
        )
    except RpcError as error:
        return str(error)
    return None


@click.group()
def job() -> None:
    """Look into one job."""


@job.command("id")
@click.option("--to", "spelling", default="f58",
              type=click.Choice(list(fluid.SPELLINGS)),
              help="How to spell it.")  # fmt: skip
@click.argument("ids", nargs=-1, required=True, metavar="JOBID...")
def job_id(spelling: str, ids: tuple[str, ...]) -> None:
    """Spell job ids in another way."""
    spell = fluid.SPELLINGS[spelling]
    for each in ids:
        click.echo(spell(fluid.parse(each)))


@job.command("info")
@statedir_option
@click.argument("id_", metavar="JOBID")
@click.argument("key")
def job_info(state: StateDir, id_: str, key: str) -> None:
    """Print a key of a job's record: J, jobspec, R, eventlog, rabbit_workflow, ..."""
    found = fluid.parse(id_)

    async def looked_up(handle: "Handle") -> Mapping[str, Any]:
        from warren.rpc.message import RpcError

        try:
            return await handle.rpc("job-info.lookup", {"id": found, "keys": [key]})
        except RpcError as error:
            raise UserMistake(f"{id_} {key}: {error}") from error

    click.echo(ask_instance(state, looked_up)[key].removesuffix("\n"))


@job.command("attach")
@statedir_option
@click.argument("id_", metavar="JOBID")
def job_attach(state: StateDir, id_: str) -> None:
    """Show a job's output until it ends, and exit as it does."""
    from warren.cli.attach import attach

    found = fluid.parse(id_)
    code = ask_instance(state, lambda handle: attach(handle, found, shown=sys.stderr.isatty()))
    sys.exit(code)


@job.command("eventlog")
@statedir_option
@click.option("-f", "--format", "form", type=click.Choice(["text", "json"]), default="text")
@json_option
@click.option("-T", "--time-format", "times", default="raw",
              type=click.Choice(["raw", "iso", "offset", "human"]))  # fmt: skip
@click.option("-F", "--follow", is_flag=True, help="Go on until the job has ended.")
@click.option("-p", "--path", default="eventlog", show_default=True,
              help="Which log: eventlog, guest.exec.eventlog, guest.output.")  # fmt: skip
@click.argument("id_", metavar="JOBID")
def job_eventlog(
    state: StateDir, form: str, as_json: bool, times: str, follow: bool, path: str, id_: str
) -> None:
    """Print a job's eventlog."""
    found = fluid.parse(id_)
    printer = _Printer("json" if as_json else form, times)

    async def printed(handle: "Handle") -> None:
        from warren.rpc.message import RpcError

        try:
            if follow:
                watch = handle.stream("job-info.eventlog-watch", {"id": found, "path": path})
                async with aclosing(watch) as entries:  # type: ignore[type-var]
                    async for entry in entries:
                        printer.show(eventlog.decode_line(entry["event"]))
            else:
                answer = await handle.rpc("job-info.lookup", {"id": found, "keys": [path]})
                for event in eventlog.decode(answer[path]):
                    printer.show(event)
        except RpcError as error:
            raise UserMistake(f"{id_} {path}: {error}") from error

    ask_instance(state, printed)


class _Printer:
    """Prints events one by one, as `flux job eventlog` does."""

    def __init__(self, form: str, times: str) -> None:
        self._form = form
        self._times = times
        self._first: float | None = None
        self._minute = ""

    def show(self, event: Event) -> None:
        if self._form == "json":
            click.echo(eventlog.encode(event), nl=False)
            return
        pairs = [f"{name}={_compact(value)}" for name, value in event.context.items()]
        click.echo(" ".join([self._moment(event.timestamp), event.name, *pairs]))

    def _moment(self, timestamp: float) -> str:
        self._first = timestamp if self._first is None else self._first
        offset = timestamp - self._first
        if self._times == "raw":
            return f"{timestamp:.6f}"
        if self._times == "iso":
            return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if self._times == "offset":
            return f"{offset:.6f}"
        minute = datetime.fromtimestamp(timestamp).astimezone().strftime("%b%d %H:%M")
        if minute != self._minute:
            self._minute = minute
            return f"[{minute}]"
        return f"[{f'+{offset:.6f}':>11}]"


def _compact(value: Any) -> str:
    return orjson.dumps(value).decode()
