"""`warren kvs namespace`: create, list and remove namespaces of the key-value store."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from warren.cli.commandgroups import Group
from warren.cli.common import ask_instance, json_option, print_json, print_table, statedir_option
from warren.cli.kvs.common import name_in_refusal
from warren.daemons.statedir import StateDir

if TYPE_CHECKING:
    from warren.rpc.message import Handle


@click.group("namespace", cls=Group)
def namespace() -> None:
    """Create, list and remove namespaces."""


@namespace.command("create")
@statedir_option
@click.option("-o", "--owner", type=click.IntRange(0), metavar="UID",
              help="The user who may use them, besides the instance's owner.")  # fmt: skip
@click.option("-r", "--rootref", metavar="BLOBREF", help="The root directory that they begin with.")
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def namespace_create(
    statedir: StateDir, owner: int | None, rootref: str | None, names: tuple[str, ...]
) -> None:
    """Create namespaces."""
    all_options = {"owner": owner, "rootref": rootref}
    options = {name: value for name, value in all_options.items() if value is not None}

    async def create(handle: "Handle") -> None:
        for name in names:
            with name_in_refusal(name):
                await handle.rpc("kvs.namespace-create", {"namespace": name, "flags": 0, **options})

    ask_instance(statedir, create)


@namespace.command("remove")
@statedir_option
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def namespace_remove(statedir: StateDir, names: tuple[str, ...]) -> None:
    """Remove namespaces with all that they hold."""

    async def remove(handle: "Handle") -> None:
        for name in names:
            with name_in_refusal(name):
                await handle.rpc("kvs.namespace-remove", {"namespace": name})

    ask_instance(statedir, remove)


@namespace.command("list")
@statedir_option
@json_option
def namespace_list(statedir: StateDir, as_json: bool) -> None:
    """List the namespaces that you may use."""

    async def query(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("kvs.namespace-list")

    answer = ask_instance(statedir, query)
    if as_json:
        print_json(answer)
        return
    rows = [(each["namespace"], each["owner"], f"0x{each['flags']:08x}")
            for each in answer["namespaces"]]  # fmt: skip
    print_table(("NAMESPACE", "OWNER", "FLAGS"), rows, right_aligned="OWNER FLAGS")
