"""`warren persistent`: storage that outlives jobs, made, listed, shared and destroyed."""

import asyncio
import grp
import pwd
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from warren.base import accounts
from warren.base.bytesize import format_bytes
from warren.base.errors import UserMistake
from warren.cli.commandgroups import Group
from warren.cli.common import (
    F,
    ask_instance,
    f58,
    json_option,
    print_json,
    print_table,
    statedir_option,
)
from warren.daemons.statedir import StateDir

if TYPE_CHECKING:
    from warren.rpc.message import Handle

_POLL_INTERVAL: Final = 0.2
"""Seconds between two requests for the state of what is waited for."""
_PROGRESS_DELAY: Final = 1.0
"""Seconds after which progress is printed."""

StorageInstance = Mapping[str, Any]
"""An instance as `persistent.list` reports it."""


@click.group(cls=Group)
def persistent() -> None:
    """Create, list, share and destroy persistent storage.

    It outlives jobs: those that say '#DW persistentdw name=NAME' find it at $DW_PERSISTENT_NAME.
    """


def _expiration_options(command: F) -> F:
    command = click.option("--for", "lifetime", metavar="DURATION",
                           help="How long from now it expires: 12h, 30d.")(command)  # fmt: skip
    return click.option("--until", metavar="WHEN",
                        help="When it expires: +DURATION, a time, a date, or both, or seconds "
                        "since 1970.")(command)  # fmt: skip


def _name_argument(command: F) -> F:
    return click.argument("name", metavar="NAME")(command)


# Looking


@persistent.command("list")
@statedir_option
@json_option
def list_(statedir: StateDir, as_json: bool) -> None:
    """List the persistent storage that you may use; the owner of the instance sees all."""
    instances = ask_instance(statedir, _list_instances)
    if as_json:
        print_json({"persistent": instances})
        return
    rows = [
        (
            each["name"],
            each["type"],
            format_bytes(each["capacity"]) if each["capacity"] else "",
            accounts.user_name(each["userid"]),
            each["state"],
            ",".join(_consumers(each)),
            ",".join(_shared_with(each)),
            _time_text(each["expires"]),
            _hostlist_text(each["rabbits"]),
        )
        for each in instances
    ]
    headers = (
        "NAME",
        "TYPE",
        "CAPACITY",
        "OWNER",
        "STATE",
        "USED BY",
        "SHARED WITH",
        "EXPIRES",
        "RABBITS",
    )
    print_table(headers, rows, right_aligned="CAPACITY")


@persistent.command()
@statedir_option
@json_option
@_name_argument
def show(statedir: StateDir, as_json: bool, name: str) -> None:
    """Show persistent storage NAME in detail."""
    instance = ask_instance(statedir, lambda handle: _find_instance(handle, name))
    if as_json:
        print_json(instance)
        return
    lines = {
        "Name": instance["name"],
        "Type": instance["type"],
        "Capacity": format_bytes(instance["capacity"]) if instance["capacity"] else "",
        "Owner": accounts.user_name(instance["userid"]),
        "State": instance["state"],
        "Used by": ", ".join(_consumers(instance)),
        "Shared with": ", ".join(_shared_with(instance)),
        "Expires": _time_text(instance["expires"]),
        "Rabbits": _hostlist_text(instance["rabbits"]),
        "Made by": instance["directive"],
        "Error": instance["error"],
    }
    for label, value in lines.items():
        if value:
            click.echo(f"{label + ':':<13}{value}")


def _consumers(instance: StorageInstance) -> list[str]:
    return [*(f58(job) for job in instance["jobs"]), *instance["workflows"]]


def _shared_with(instance: StorageInstance) -> list[str]:
    sharing = instance["shared"]
    return [
        *(["everyone"] if sharing["everyone"] else []),
        *(accounts.user_name(user) for user in sharing["users"]),
        *(f"group:{accounts.group_name(group)}" for group in sharing["groups"]),
    ]


def _time_text(moment: float | None) -> str:
    return "" if moment is None else f"{datetime.fromtimestamp(moment).astimezone():%F %T %z}"


def _hostlist_text(names: Sequence[str]) -> str:
    from warren.rfc import hostlist

    return hostlist.encode(names)


# Changing


@persistent.command()
@statedir_option
@json_option
@click.option("--type", "kind", required=True, metavar="TYPE", help="xfs, ext4, raw, ...")
@click.option("--capacity", metavar="SIZE", help="Size of each allocation, such as 100GiB.")
@click.option("--profile", metavar="NAME", help="The storage profile (default: the site's own).")
@click.option("-N", "--nodes", type=click.IntRange(1), default=1, metavar="N",
              help="How many compute nodes have an allocation each beside them (default: 1).",
              )  # fmt: skip
@click.option("--requires", "requirements", multiple=True, metavar="QUERY",
              help="Which compute nodes, such as 'host:n[1-4]' or 'rabbit:r1'.")  # fmt: skip
@_expiration_options
@click.option("-q", "--queue", metavar="NAME", help="The queue of the job that makes it.")
@click.option("-t", "--time-limit", metavar="DURATION", help="The time limit of that job.")
@_name_argument
def create(
    statedir: StateDir,
    as_json: bool,
    kind: str,
    capacity: str | None,
    profile: str | None,
    nodes: int,
    until: str | None,
    lifetime: str | None,
    name: str,
    **job_options: Any,
) -> None:
    """Create persistent storage NAME, and wait until it is there.

    A job makes it, which takes a core of each node for a moment. Ctrl-C cancels the job.
    """
    from warren.cli.job.specs import make_jobspec
    from warren.cli.job.submit import submitter

    arguments = {"type": kind, "capacity": capacity, "profile": profile, "name": name}
    for key, value in arguments.items():
        if value is not None and (not value or value.split() != [value]):
            raise UserMistake(f"{key} {value!r} is not one word.")
    arguments_text = " ".join(
        f"{key}={value}" for key, value in arguments.items() if value is not None
    )
    spec = make_jobspec(
        command=("true",),
        nodes=nodes if nodes > 1 else None,
        ntasks=nodes,
        attributes=(f"dw=#DW create_persistent {arguments_text}",),
        job_name=f"create {name}",
        **job_options,
    )
    expires = expiration(until, lifetime, time.time())
    if expires is not None:
        spec["attributes"]["system"]["dw_expires"] = expires

    async def work(handle: "Handle") -> StorageInstance:
        for each in await _list_instances(handle):
            if each["name"] == name:
                owner = accounts.user_name(each["userid"])
                raise UserMistake(
                    f"There is persistent storage named {name!r} already, {owner}'s: "
                    "choose another name."
                )
        job = await submitter(statedir, spec)(handle)
        try:
            await _wait_ended(handle, job)
        except asyncio.CancelledError:
            request = {"id": job, "type": "cancel", "severity": 0, "note": "interrupted"}
            await handle.rpc("job-manager.raise", request)
            raise
        return await _find_instance(handle, name)

    instance = ask_instance(statedir, work)
    if as_json:
        print_json(instance)
    else:
        size = format_bytes(instance["capacity"])
        click.echo(f"{name}: {size} of {instance['type']} on {_hostlist_text(instance['rabbits'])}")


async def _wait_ended(handle: "Handle", job: int) -> None:
    """Wait until the job that makes storage is over. Raises UserMistake where it has failed."""
    from warren.cli.job import pendingreasons
    from warren.cli.job.wait import exit_code
    from warren.lifecycle.states import State

    attrs = ["state", "result", "waitstatus", "exception_severity", "exception_note",
             "dependencies", "annotations", "priority", "queue"]  # fmt: skip
    progress = _Progress()
    while True:
        answer = await handle.rpc("job-list.list-id", {"id": job, "attrs": attrs})
        job_attributes = {"id": job, **answer["job"]}
        if job_attributes["state"] == State.INACTIVE.bit:
            break
        if progress.is_due:
            reasons = await pendingreasons.reasons(handle, [job_attributes])
            progress.tell(f"job {f58(job)}: {reasons.get(job, 'is being run')}")
        await asyncio.sleep(_POLL_INTERVAL)
    if exit_code(job_attributes):
        note = job_attributes.get("exception_note") or f"see: warren job eventlog {f58(job)}"
        raise UserMistake(f"The job {f58(job)} that was to create it has failed: {note}")


@persistent.command()
@statedir_option
@click.option("--no-wait", is_flag=True, help="Do not wait until it is gone.")
@_name_argument
def destroy(statedir: StateDir, no_wait: bool, name: str) -> None:
    """Destroy persistent storage NAME with all that is in it.

    Only its owner can, or the owner of the instance, and not while jobs use it.
    """

    async def work(handle: "Handle") -> None:
        for each in await _list_instances(handle):
            consumers = _consumers(each)
            if each["name"] == name and consumers:
                raise UserMistake(
                    f"The persistent storage {name!r} is in use by {', '.join(consumers)}: "
                    "destroy it when they have ended."
                )
        await _call(handle, "persistent.destroy", {"name": name})
        progress = _Progress()
        while not no_wait:
            remaining = [each for each in await _list_instances(handle) if each["name"] == name]
            if not remaining:
                return
            if progress.is_due:
                why = f": {remaining[0]['error']}" if remaining[0]["error"] else ""
                progress.tell(f"{name}: its rabbits give it back{why}")
            await asyncio.sleep(_POLL_INTERVAL)

    ask_instance(statedir, work)


def _sharing_options(command: F) -> F:
    for option in reversed(
        [
            click.option("-u", "--user", "users", multiple=True, metavar="USER,...",
                         help="Share with users, by name or number."),
            click.option("-g", "--group", "groups", multiple=True, metavar="GROUP,...",
                         help="Groups, by name or number."),
            click.option("--everyone", is_flag=True, help="All users."),
        ]
    ):  # fmt: skip
        command = option(command)
    return json_option(statedir_option(_name_argument(command)))


@persistent.command()
@_sharing_options
def share(statedir: StateDir, as_json: bool, name: str, **sharing_options: Any) -> None:
    """Let other users use persistent storage NAME in their jobs.

    They find its root directory open, may make files of their own there, and read what its files'
    modes let them. Jobs that begin from now on have it so.
    """
    _change_sharing(statedir, as_json, {"name": name, "add": _parse_sharing(**sharing_options)})


@persistent.command()
@_sharing_options
def unshare(statedir: StateDir, as_json: bool, name: str, **sharing_options: Any) -> None:
    """Stop sharing persistent storage NAME: with the users and groups given, or with all.

    Jobs that use it already go on with what they have open.
    """
    if any(sharing_options.values()):
        removed = _parse_sharing(**sharing_options)
    else:
        removed = ask_instance(statedir, lambda handle: _find_instance(handle, name))["shared"]
    _change_sharing(statedir, as_json, {"name": name, "remove": removed})


def _parse_sharing(
    users: tuple[str, ...], groups: tuple[str, ...], everyone: bool
) -> dict[str, Any]:
    if not (users or groups or everyone):
        raise UserMistake("Say with whom: --user, --group, or --everyone.")
    return {
        "everyone": everyone,
        "users": list(_parse_ids(users, "user", lambda name: pwd.getpwnam(name).pw_uid)),
        "groups": list(_parse_ids(groups, "group", lambda name: grp.getgrnam(name).gr_gid)),
    }


def _parse_ids(texts: Iterable[str], kind: str, id_of_name: Callable[[str], int]) -> Iterable[int]:
    for name in (name for word in texts for name in word.split(",")):
        try:
            yield int(name) if name.isascii() and name.isdecimal() else id_of_name(name)
        except KeyError:
            raise UserMistake(f"There is no {kind} {name!r}.") from None


def _change_sharing(statedir: StateDir, as_json: bool, request: Mapping[str, Any]) -> None:
    answer = ask_instance(statedir, lambda handle: _call(handle, "persistent.share", request))
    instance = answer["persistent"]
    if as_json:
        print_json(instance)
    else:
        click.echo(f"{instance['name']}: {', '.join(_shared_with(instance)) or 'its owner alone'}")


@persistent.command()
@statedir_option
@json_option
@_expiration_options
@click.option("--never", is_flag=True, help="Keep it until it is destroyed.")
@_name_argument
def expire(
    statedir: StateDir,
    as_json: bool,
    name: str,
    until: str | None,
    lifetime: str | None,
    never: bool,
) -> None:
    """Set when persistent storage NAME expires.

    It is destroyed then, or when the last job that uses it has ended. No job begins to use it
    after that moment, nor one whose time limit would go beyond it.
    """
    if (until is None and lifetime is None) is not never:
        raise UserMistake("Say one of --until, --for and --never.")
    request = {"name": name, "expires": expiration(until, lifetime, time.time())}
    answer = ask_instance(statedir, lambda handle: _call(handle, "persistent.expire", request))
    instance = answer["persistent"]
    if as_json:
        print_json(instance)
    else:
        click.echo(f"{name}: {_time_text(instance['expires']) or 'never expires'}")


def expiration(until: str | None, lifetime: str | None, now: float) -> float | None:
    """Return the moment that --until or --for says; None without either. Raises UserMistake."""
    if until is not None and lifetime is not None:
        raise UserMistake("--until and --for: give one of them.")
    from warren.cli import futuretime
    from warren.rfc import duration
    from warren.rfc.errors import BadFormat

    if until is not None:
        return futuretime.parse_future_time(until, now, "--until")
    try:
        return None if lifetime is None else now + duration.parse(lifetime)
    except BadFormat as error:
        raise UserMistake(f"--for {lifetime}: {error}.") from None


# Asking


async def _list_instances(handle: "Handle") -> list[StorageInstance]:
    instances: list[StorageInstance] = (await _call(handle, "persistent.list", {}))["persistent"]
    return instances


async def _find_instance(handle: "Handle", name: str) -> StorageInstance:
    from warren.directives.diagnostics import did_you_mean

    instance_by_name = {str(each["name"]): each for each in await _list_instances(handle)}
    if name not in instance_by_name:
        hint = did_you_mean(name, sorted(instance_by_name))
        raise UserMistake(
            f"There is no persistent storage named {name!r} that you may use."
            + (f" {hint}" if hint else "")
        )
    return instance_by_name[name]


async def _call(handle: "Handle", topic: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
    from warren.rpc.message import RpcError

    try:
        return await handle.rpc(topic, dict(payload))
    except RpcError as error:
        raise UserMistake(str(error)) from error


class _Progress:
    """What is waited for, told once it takes long, and each time that it changes."""

    def __init__(self) -> None:
        self._started_at = time.monotonic()
        self._last = ""

    @property
    def is_due(self) -> bool:
        return time.monotonic() - self._started_at > _PROGRESS_DELAY

    def tell(self, text: str) -> None:
        if text != self._last:
            self._last = text
            click.echo(text, err=True)
