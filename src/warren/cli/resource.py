"""`warren resource`: compute nodes, what each one does, and keeping them back from jobs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

import click

from warren.cli.common import ask_instance, json_option, print_json, print_table, statedir_option
from warren.daemons.statedir import StateDir
from warren.rfc import hostlist, idset
from warren.scheduling.drains import State

if TYPE_CHECKING:
    from warren.rpc.message import Handle

Node = Mapping[str, Any]
"""A node as `resource.status` tells of it."""

_DRAINED: Final = (State.DRAINED, State.DRAINING)
_FORCE: Final = (None, "overwrite", "force-overwrite")
"""The mode of a drain, by how often --force is given."""


@click.group()
def resource() -> None:
    """List, drain and undrain compute nodes.

    TARGETS are nodes by name or by rank: compute-[00-03], or 0-3.
    """


@resource.command("list")
@statedir_option
@json_option
def list_(state: StateDir, as_json: bool) -> None:
    """List what jobs may get, what they have, and what is kept back.

    A drained node that a job still has is in both of the last two.
    """
    rows = scheduled(_nodes(state))
    if as_json:
        print_json({"states": rows})
        return
    headers = ("STATE", "NNODES", "NCORES", "NODELIST")
    print_table(headers, [list(row.values()) for row in rows], right="STATE NNODES NCORES")


def scheduled(nodes: Sequence[Node]) -> list[dict[str, Any]]:
    """Give nodes and cores as the scheduler sees them: free, allocated, and down if drained."""
    cores: Mapping[str, Callable[[Node], int]] = {
        "free": lambda node: 0 if node["state"] in _DRAINED else node["cores"] - node["allocated"],
        "allocated": lambda node: node["allocated"],
        "down": lambda node: node["cores"] if node["state"] in _DRAINED else 0,
    }
    rows = []
    for state, of in cores.items():
        counted = [(node["name"], of(node)) for node in nodes if of(node)]
        rows.append(
            {
                "state": state,
                "nnodes": len(counted),
                "ncores": sum(count for _, count in counted),
                "nodelist": hostlist.encode(name for name, _ in counted),
            }
        )
    return rows


@resource.command("status")
@statedir_option
@json_option
def status(state: StateDir, as_json: bool) -> None:
    """List nodes as whoever looks after them sees them."""
    nodes = _nodes(state)
    if as_json:
        print_json({"nodes": nodes})
        return
    named: dict[str, list[str]] = {}
    for node in nodes:
        shown = node["state"] if node["state"] in _DRAINED else "avail"
        named.setdefault(shown, []).append(node["name"])
    rows = [(shown, len(names), hostlist.encode(names)) for shown, names in sorted(named.items())]
    print_table(("STATE", "NNODES", "NODELIST"), rows, right="STATE NNODES")


@resource.command("drain")
@statedir_option
@json_option
@click.option("-u", "--update", is_flag=True,
              help="Where one is drained already, add a missing reason.")  # fmt: skip
@click.option("-f", "--force", count=True,
              help="Where one is drained already, replace its reason; -ff: and time.")  # fmt: skip
@click.argument("targets", required=False)
@click.argument("reason", nargs=-1)
def drain(
    state: StateDir,
    as_json: bool,
    update: bool,
    force: int,
    targets: str | None,
    reason: tuple[str, ...],
) -> None:
    """Give nodes to no more jobs; or list the nodes that are drained.

    Jobs keep the nodes that they have.
    """
    if targets is None:
        _list_drained(state, as_json)
        return
    if update and force:
        raise click.UsageError("--update keeps a reason and --force replaces it: give one of them.")
    mode = "update" if update else _FORCE[min(force, 2)]
    _change(state, as_json, "resource.drain", targets, " ".join(reason), mode)


@resource.command("undrain")
@statedir_option
@json_option
@click.option("-f", "--force", is_flag=True, help="Pass over nodes that are not drained.")
@click.argument("targets")
@click.argument("reason", nargs=-1)
def undrain(
    state: StateDir, as_json: bool, force: bool, targets: str, reason: tuple[str, ...]
) -> None:
    """Let jobs have nodes again."""
    mode = "force" if force else None
    _change(state, as_json, "resource.undrain", targets, " ".join(reason), mode)


def _change(
    state: StateDir, as_json: bool, topic: str, targets: str, reason: str, mode: str | None
) -> None:
    request = {"targets": targets, "reason": reason, "mode": mode}

    async def asked(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc(topic, request)

    changed = ask_instance(state, asked)
    if as_json:
        print_json(changed)


def _list_drained(state: StateDir, as_json: bool) -> None:
    drained = [node for node in _nodes(state) if node["state"] in _DRAINED]
    if as_json:
        print_json({"nodes": drained})
        return
    headers = ("TIME", "STATE", "RANK", "REASON", "NODE")
    print_table(headers, drained_rows(drained))


def drained_rows(nodes: Iterable[Node]) -> list[tuple[str, ...]]:
    """Give the rows of drained nodes; those that were drained together share one."""
    together: dict[tuple[float, str, str], list[Node]] = {}
    for node in nodes:
        together.setdefault((node["since"], node["state"], node["reason"]), []).append(node)
    return [
        (
            datetime.fromtimestamp(since).astimezone().strftime("%b%d %H:%M"),
            state,
            idset.encode(node["rank"] for node in alike),
            reason,
            hostlist.encode(node["name"] for node in alike),
        )
        for (since, state, reason), alike in together.items()
    ]


def _nodes(state: StateDir) -> list[Node]:
    async def asked(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc("resource.status")

    return list(ask_instance(state, asked)["nodes"])
