"""`warren job storage`: the storage life of one job, while it lasts and afterwards."""

import asyncio
import errno
import re
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import click
import orjson

from warren.base.bytesize import format_bytes
from warren.base.errors import UserMistake
from warren.base.printable import printable
from warren.base.times import from_go_duration, parse_rfc3339, rfc3339
from warren.cli.common import (
    ask_instance,
    f58,
    json_option,
    print_json,
    print_table,
    statedir_option,
)
from warren.daemons.statedir import StateDir
from warren.rfc import eventlog, fluid

if TYPE_CHECKING:
    from warren.rpc.message import Handle

_STATES: Final = ("Proposal", "Setup", "DataIn", "PreRun", "PostRun", "DataOut", "Teardown")
_OWN_MOUNT_PATTERN: Final = re.compile(
    r"/.*/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}-(?P<index>\d+)/(?P<rest>.*)"
)
"""Where a directive's storage is mounted on its rabbits: by the Workflow's UID."""

_NAME_PATTERN: Final = re.compile(r"\bname=(\S+)")
_CONDUCTOR_TIMEOUT: Final = 2.0
"""For how long a conductor is waited for."""


@click.command("storage")
@statedir_option
@json_option
@click.argument("id_", metavar="JOBID")
def job_storage(statedir: StateDir, as_json: bool, id_: str) -> None:
    """Show a job's storage: its rabbits, states, copies, containers, lost nodes and exceptions.

    For a job that is over, it shows what there was when its Teardown began.
    """
    job = fluid.parse(id_)

    async def look_up(handle: "Handle") -> dict[str, Any]:
        return await _read_storage(handle, job, id_)

    storage = ask_instance(statedir, look_up)
    if as_json:
        print_json({"id": f58(job), **storage})
    else:
        _print(f58(job), storage)


async def _read_storage(handle: "Handle", job: int, about: str) -> dict[str, Any]:
    """Return what is told of it. Raises UserMistake where there is no such job, or no storage."""
    from warren.rpc.message import RpcError

    async def look_up(name: str) -> str | None:
        try:
            answer = await handle.rpc("job-info.lookup", {"id": job, "keys": [name], "flags": 0})
        except RpcError as error:
            if error.errnum == errno.ENOENT and name != "eventlog":
                return None
            raise UserMistake(f"{about}: {error}") from error
        return str(answer[name])

    log = eventlog.decode(await look_up("eventlog") or "")
    from_conductor = await _ask_conductor(handle, job)
    text = await look_up("rabbit_storage")
    recorded = orjson.loads(text) if text else None
    storage = from_conductor if from_conductor is not None else recorded
    if storage is not None and recorded is not None and not storage.get("containers"):
        # Teardown takes them away first.
        storage = {**storage, "containers": recorded.get("containers") or []}
    if storage is None:
        # Another user's conductor tells its owner alone; and older ones kept no summary.
        text = await look_up("rabbit_workflow")
        if text is None:
            raise UserMistake(
                f"{about} has no storage: it has no #DW directives, or no Workflow yet "
                "(`warren jobs` says what it waits for)."
            )
        workflow = orjson.loads(text)
        directives = workflow["spec"]["dwDirectives"]
        storage = {"workflow": workflow["metadata"]["name"], "directives": directives}
    timings = await asyncio.gather(*(look_up(f"rabbit_{each.lower()}_timing") for each in _STATES))
    return {
        **storage,
        "live": from_conductor is not None,
        "over": any(event.name == "clean" for event in log),
        "states": {
            name: from_go_duration(orjson.loads(each))
            for name, each in zip(_STATES, timings, strict=True)
            if each
        },
        "exceptions": [
            {"timestamp": event.timestamp, **event.context}
            for event in log
            if event.name == "exception"
        ],
    }


async def _ask_conductor(handle: "Handle", job: int) -> Mapping[str, Any] | None:
    """Return what the conductor tells; None where it does not, or the job has no Workflow."""
    from warren.rpc.message import RpcError

    try:
        async with asyncio.timeout(_CONDUCTOR_TIMEOUT):
            return await handle.rpc("dws.storage", {"id": job})
    except (TimeoutError, RpcError):
        return None


def _print(name: str, storage: Mapping[str, Any]) -> None:
    from_record = " (from the job's record: the conductor tells nothing of it now)"
    remark = ", which is gone" if storage["over"] else from_record
    click.echo(f"{name}  Workflow {storage['workflow']}{'' if storage['live'] else remark}")
    for each in storage["directives"]:
        click.echo(printable(f"  {each}"))
    rabbits = storage.get("rabbits") or {}
    if rabbits:
        shares_text = ", ".join(
            f"{rabbit} {format_bytes(size)}" for rabbit, size in rabbits.items()
        )
        click.echo(f"storage: {format_bytes(storage['bytes'])} on {shares_text}")
    for field in ("nodes", "lost", "mounted"):
        # What was mounted when Teardown began is not any more.
        if storage.get(field) and (storage["live"] or field != "mounted"):
            label = "mounted on" if field == "mounted" else field
            click.echo(f"{label}: {storage[field]}")
    print_table(("STATE", "SECONDS", ""), [*_state_rows(storage)])
    _print_containers(storage.get("containers") or ())
    copies = storage.get("copies") or ()
    if copies:
        rows = [
            (
                _short_path(each["source"], storage["directives"]),
                _short_path(each["destination"], storage["directives"]),
                each["status"],
                f"{each['progress']}%",
                each["rate"],
                each["message"],
            )
            for each in copies
        ]
        headers = ("FROM", "TO", "STATUS", "DONE", "RATE", "MESSAGE")
        print_table(headers, rows)
        unlisted_count = sum(storage["copied"].values()) - len(copies)
        if unlisted_count:
            click.echo(f"and {unlisted_count} more {'copy' if unlisted_count == 1 else 'copies'}")
    for each in storage["exceptions"]:
        severity = "" if each.get("severity") == 0 else " (not fatal)"
        note = each.get("note", "")
        click.echo(printable(f"{rfc3339(each['timestamp'])} {each['type']}{severity}: {note}"))


def _print_containers(pods: Sequence[Mapping[str, Any]]) -> None:
    """Print how the containers beside the job are, a rabbit and an application a line."""
    rows = [
        (
            each["rabbit"],
            each["pod"],
            each["phase"],
            str(each["tries"]),
            "" if each["exit"] is None else str(each["exit"]),
            (each["words"].splitlines() or [""])[-1],
        )
        for each in pods
    ]
    if rows:
        print_table(("RABBIT", "POD", "PHASE", "TRIES", "EXIT", "LAST WORDS"), rows)


def _short_path(path: str, directives: Sequence[str]) -> str:
    """Return a path on a job's own storage as `NAME:PATH`, and any other path as it is."""
    match = _OWN_MOUNT_PATTERN.fullmatch(path)
    index = int(match["index"]) if match else len(directives)
    name_match = _NAME_PATTERN.search(directives[index]) if index < len(directives) else None
    return f"{name_match[1]}:{match['rest']}" if match and name_match else path


def _state_rows(storage: Mapping[str, Any]) -> Sequence[tuple[str, str, str]]:
    rows = [(name, f"{seconds:.3f}", "") for name, seconds in storage["states"].items()]
    desired_state = storage.get("desired")
    if (
        storage["live"]
        and desired_state
        and not (storage["ready"] and desired_state in storage["states"])
    ):
        since = storage.get("since")
        seconds_so_far = f"{max(0.0, time.time() - parse_rfc3339(since)):.3f}" if since else ""
        rows.append(
            (
                desired_state,
                seconds_so_far,
                storage.get("waits") or ("ready" if storage["ready"] else "goes on"),
            )
        )
    return rows
