"""`warren rabbits`: what rabbits there are, and taking them out of service and back."""

import os
import pwd
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from warren.base.errors import UserMistake
from warren.base.objects import Change, Object, key_of
from warren.cli.commandgroups import Group
from warren.cli.common import (
    json_option,
    print_json,
    print_table,
    require_running,
    run,
    statedir_option,
)
from warren.cli.storage import list_rabbits
from warren.daemons.statedir import StateDir
from warren.dws import kinds, labels
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import Storage
from warren.dws.rabbits import links, outofservice
from warren.dws.rabbits.outofservice import ServiceAction


@click.group(cls=Group, invoke_without_command=True)
@statedir_option
@json_option
@click.pass_context
def rabbits(context: click.Context, statedir: StateDir, as_json: bool) -> None:
    """List rabbits, or take them out of service and back."""
    if context.invoked_subcommand is None:
        list_rabbits(statedir, as_json)


@rabbits.command("status")
@statedir_option
@json_option
@click.argument("targets", metavar="[RABBIT]", required=False)
def status(statedir: StateDir, as_json: bool, targets: str | None) -> None:
    """Show the status of rabbits: which are out of service, since when, by whom and why."""
    summaries = [
        service_summary(each) for each in _named_rabbits(_list_storages(statedir), targets)
    ]
    if as_json:
        print_json({"rabbits": summaries})
        return
    from warren.rfc import hostlist

    rows = [
        (
            each["name"],
            each["status"],
            each["since"],
            each["by"],
            each["reason"],
            hostlist.encode(each["lost"]),
            # That it is drained, and why, stands beside it already.
            "" if each["reason"] and each["reason"] in each["message"] else each["message"],
        )
        for each in summaries
    ]
    print_table(("NAME", "STATUS", "SINCE", "BY", "REASON", "LOST", "MESSAGE"), rows)


@rabbits.command("links")
@statedir_option
@json_option
@click.argument("targets", metavar="[RABBIT]", required=False)
def show_links(statedir: StateDir, as_json: bool, targets: str | None) -> None:
    """Show which links of compute nodes are lost, since when and why."""
    link_rows = [
        row
        for each in _named_rabbits(_list_storages(statedir), targets)
        for row in links.lost_link_rows(read(each, Storage))
    ]
    if as_json:
        print_json({"links": link_rows})
        return
    columns = ("rabbit", "node", "status", "since", "why")
    print_table(
        tuple(each.upper() for each in columns),
        [tuple(row[each] for each in columns) for row in link_rows],
    )


def service_summary(obj: Object) -> dict[str, Any]:
    """Return whether a rabbit is in service, and if not, since when, by whom and why."""
    storage = read(obj, Storage)
    annotations = storage.metadata.annotations
    disabled = storage.spec.state == "Disabled"
    note = outofservice.note(annotations, labels.DISABLED if disabled else labels.DRAINED)
    compute_links = storage.status.access.computes
    return {
        "name": storage.metadata.name,
        "state": storage.spec.state,
        "status": storage.status.status,
        "drained": labels.DRAINED in annotations,
        "since": note.get("since", ""),
        "by": note.get("by", ""),
        "reason": note.get("reason", ""),
        "lost": [each.name for each in compute_links if each.status != "Ready"],
        "message": storage.status.message,
    }


_HELP = {
    ServiceAction.DRAIN: "Give out no more flash of a rabbit. Jobs keep what they have of it.",
    ServiceAction.UNDRAIN: "Return a drained rabbit to service.",
    ServiceAction.DISABLE: "Disable a rabbit: it makes no storage for any job.",
    ServiceAction.ENABLE: "Return a disabled rabbit to service.",
}


def _add_command(action: ServiceAction) -> None:
    """Make the command of an action."""
    takes_reason = action in (ServiceAction.DRAIN, ServiceAction.DISABLE)

    def work(
        statedir: StateDir, targets: str, reason: tuple[str, ...] = (), force: bool = False
    ) -> None:
        # Everything is refused before anything is changed.
        changes = [
            outofservice.change(
                read(each, Storage),
                action,
                by=_own_user_name(),
                now=time.time(),
                reason=" ".join(reason),
                force=force,
            )
            for each in _named_rabbits(_list_storages(statedir), targets)
        ]
        _patch_all(statedir, changes)

    if takes_reason:  # the last one first, as decorators go
        work = click.argument("reason", nargs=-1)(work)
        force_help = "Replace the reason of a rabbit that has one already."
        work = click.option("-f", "--force", is_flag=True, help=force_help)(work)
    work = click.argument("targets", metavar="RABBIT")(statedir_option(work))
    decorate: Callable[[Any], click.Command] = rabbits.command(action.value, help=_HELP[action])
    decorate(work)


for _action in ServiceAction:
    _add_command(_action)


def _own_user_name() -> str:
    """Return the name of the user of this process, or the number without one."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def _named_rabbits(storages: Sequence[Object], targets: str | None) -> Sequence[Object]:
    """Return the rabbits that are named, as a hostlist, or all. Raises UserMistake."""
    if targets is None:
        return storages
    from warren.rfc import hostlist

    by_name = {key_of(each).name: each for each in storages}
    names = dict.fromkeys(hostlist.decode(targets))
    unknown = [name for name in names if name not in by_name]
    if unknown or not names:
        hint = f"name some of {hostlist.encode(by_name)}." if by_name else "there are none yet."
        unknown_names = hostlist.encode(unknown) or repr(targets)
        raise UserMistake(f"There is no rabbit {unknown_names}: {hint}")
    return [by_name[name] for name in names]


def _list_storages(statedir: StateDir) -> list[Object]:
    from warren.kube import kubeconfig
    from warren.kube.http import connect

    require_running(statedir)
    statedir.check_owner()

    async def work() -> list[Object]:
        async with connect(kubeconfig.load(statedir.kubeconfig)) as client:
            listing = await client.list(kinds.STORAGE, kinds.DEFAULT_NAMESPACE)
            return sorted(listing.items, key=lambda obj: str(key_of(obj)))

    return run(work())


def _patch_all(statedir: StateDir, changes: Sequence[Change]) -> None:
    from warren.kube import kubeconfig
    from warren.kube.http import connect

    async def work() -> None:
        async with connect(kubeconfig.load(statedir.kubeconfig)) as client:
            for change in changes:
                await client.patch(change)

    run(work())
