"""`warren resource`: nodes, what each one does, and keeping them back from jobs."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from warren.base.errors import UserMistake
from warren.cli.common import ask_instance, json_option, print_json, statedir_option
from warren.cli.events import FORMS, TIMES, Writer
from warren.cli.outputformat import Format
from warren.daemons.statedir import StateDir
from warren.rfc import hostlist, idset, resource_set
from warren.rfc.eventlog import Event
from warren.rfc.resource_set import ResourceSet
from warren.scheduling import drains
from warren.scheduling.drains import State

if TYPE_CHECKING:
    from warren.rpc.message import Handle

Node = Mapping[str, Any]
"""A node as `resource.status` tells of it."""

F = TypeVar("F", bound=Callable[..., Any])

STATES: Final = ("free", "allocated", "down")
"""What the scheduler knows, in the order of the listing."""
CARED: Final = ("avail", *(state for state in State if state not in ("free", "allocated")))
"""What whoever looks after the nodes knows."""

_DRAINED: Final = (State.DRAINED, State.DRAINING)
_FORCE: Final = (None, "overwrite", "force-overwrite")
"""The mode of a drain, by how often --force is given."""

_LIST: Final = (
    "{state:>10} ?:{queue:<8.8} ?:{propertiesx:<10.10+} {nnodes:>6} {ncores:>8} ?:{ngpus:>8} "
    "{nodelist}"
)
_STATUS: Final = "{state:>10} {up:>2} {nnodes:>6} {nodelist}"
_DRAINS: Final = "{timestamp!d:%b%d %H:%M::<12} {state:<8} {ranks:<8} +:{reason:<10} {nodelist}"

_LIST_FIELDS: Final = {
    "state": "STATE", "queue": "QUEUE", "properties": "PROPERTIES", "propertiesx": "PROPERTIES",
    "nnodes": "NNODES", "ncores": "NCORES", "ngpus": "NGPUS", "ranks": "RANKS",
    "nodelist": "NODELIST",
}  # fmt: skip
_MARKS: Final = ("queue", "properties", "propertiesx")
"""Fields by which nodes of one state are told apart."""

_STATUS_FIELDS: Final = {
    "state": "STATE", "up": "UP", "nnodes": "NNODES", "ranks": "RANKS", "nodelist": "NODELIST",
}  # fmt: skip
_DRAIN_FIELDS: Final = {
    "timestamp": "TIME", "state": "STATE", "ranks": "RANK", "reason": "REASON",
    "nodelist": "NODE", "nnodes": "NNODES",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Known:
    """What the instance tells of its nodes."""

    status: Mapping[str, Any]
    """The answer of `resource.status`."""
    sets: Mapping[str, ResourceSet]
    """Nodes by what the scheduler does with them; `all` are those that it has."""

    @property
    def nodes(self) -> list[Node]:
        return list(self.status["nodes"])

    def chosen(self, queues: Sequence[str], include: str | None) -> set[int]:
        """Give the ranks that are asked for. Raises UserMistake for what is not there."""
        ranks = {node["rank"] for node in self.nodes}
        if queues:
            ranks &= set().union(*(self._queue(name) for name in queues))
        if include is not None:
            ranks &= set(drains.targets(include, {n["rank"]: n["name"] for n in self.nodes}))
        return ranks

    def _queue(self, name: str) -> tuple[int, ...]:
        known = self.status["queues"]
        if name not in known:
            these = f"name one of {', '.join(known)}" if known else "none is configured"
            raise UserMistake(f"There is no queue {name!r}: {these}.")
        return idset.decode(known[name])

    def queues_of(self) -> Mapping[int, list[str]]:
        """Give the queues that each node is in."""
        return _by_rank({name: idset.decode(each) for name, each in self.status["queues"].items()})


@click.group()
def resource() -> None:
    """List, drain and undrain compute nodes.

    TARGETS are nodes by name or by rank: compute-[00-03], or 0-3.
    """


def _choosing(states: Sequence[str], default: str) -> Callable[[F], F]:
    """Add the options that say which nodes are meant."""

    def chosen(_ctx: click.Context, _param: click.Parameter, value: str) -> list[str]:
        wanted = [each.strip() for each in value.split(",")]
        for each in wanted:
            if each not in (*states, "all"):
                raise click.BadParameter(f"{each!r} is none of {', '.join(states)}, all.")
        return list(states) if "all" in wanted else [each for each in states if each in wanted]

    def added(command: F) -> F:
        for option in (
            click.option("-s", "--states", metavar="STATE,...", default=default, callback=chosen,
                         help=f"Of {', '.join(states)}; or all."),
            click.option("-q", "--queue", "queues", metavar="NAME", multiple=True,
                         help="Only nodes of a queue; may be repeated."),
            click.option("-i", "--include", metavar="TARGETS", help="Only these nodes."),
        ):  # fmt: skip
            command = option(command)
        return command

    return added


def _listing(fields: Mapping[str, str], default: str) -> Callable[[F], F]:
    """Add the options of a listing."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str) -> Format:
        return Format(value, fields.get)

    def added(command: F) -> F:
        for option in (
            click.option("-o", "--format", "form", metavar="FORMAT", default=default, callback=read,
                         help=f"Fields in braces: {{nnodes:>6}}, of {', '.join(fields)}."),
            click.option("-n", "--no-header", is_flag=True, help="Print no headings."),
        ):  # fmt: skip
            command = option(command)
        return command

    return added


@resource.command("list")
@statedir_option
@json_option
@_choosing(STATES, "all")
@_listing(_LIST_FIELDS, _LIST)
def list_(
    state: StateDir,
    as_json: bool,
    states: list[str],
    queues: tuple[str, ...],
    include: str | None,
    form: Format,
    no_header: bool,
) -> None:
    """List what jobs may get, what they have, and what is kept back.

    A drained node that a job still has is in both of the last two.
    """
    known = _known(state)
    shown = _MARKS if as_json else form.fields
    rows = list(scheduled(known, states, known.chosen(queues, include), shown))
    _print({"states": rows} if as_json else rows, form, header=not no_header)


def scheduled(
    known: Known, states: Iterable[str], ranks: Collection[int], shown: Collection[str]
) -> Iterator[Node]:
    """Give nodes as the scheduler sees them: each state, with those in a row that look alike.

    `shown` says by which of queue, properties and propertiesx, without those of queues, nodes
    are told apart.
    """
    queues = known.queues_of()
    for state in states:
        nodes = _only(known.sets[state], ranks)
        properties = _by_rank(nodes.properties)
        alike: dict[tuple[str, ...], list[int]] = {}
        for rank in (each.rank for each in nodes.ranks):
            names = properties.get(rank, [])
            marks = (
                queues.get(rank, []),
                names,
                [name for name in names if not name.startswith("+")],
            )
            key = tuple(
                ",".join(mark) if field in shown else ""
                for field, mark in zip(_MARKS, marks, strict=True)
            )
            alike.setdefault(key, []).append(rank)
        for key, members in (alike or {("",) * len(_MARKS): []}).items():
            part = _only(nodes, members)
            yield {
                "state": state,
                **dict(zip(_MARKS, key, strict=True)),
                **_counts(part),
                "ranks": resource_set.ranks_text(part.ranks),
                "nodelist": hostlist.encode(rank.host for rank in part.ranks),
            }


def _by_rank(named: Mapping[str, Iterable[int]]) -> Mapping[int, list[str]]:
    found: dict[int, list[str]] = {}
    for name in sorted(named):
        for rank in named[name]:
            found.setdefault(rank, []).append(name)
    return found


def _counts(nodes: ResourceSet) -> dict[str, int]:
    return {
        "nnodes": len(nodes.ranks),
        "ncores": sum(len(rank.cores) for rank in nodes.ranks),
        "ngpus": sum(len(rank.gpus) for rank in nodes.ranks),
    }


@resource.command("info")
@statedir_option
@json_option
@_choosing(STATES, "all")
def info(
    state: StateDir, as_json: bool, states: list[str], queues: tuple[str, ...], include: str | None
) -> None:
    """Say in a line how much there is."""
    known = _known(state)
    counts = _counts(_in_states(known, states, known.chosen(queues, include)))
    if as_json:
        print_json(counts)
    else:
        nodes, cores, gpus = counts.values()
        plural = [
            f"{count} {name}{'' if count == 1 else 's'}"
            for count, name in ((nodes, "Node"), (cores, "Core"), (gpus, "GPU"))
        ]
        click.echo(", ".join(plural))


@resource.command("R")
@statedir_option
@_choosing(STATES, "all")
def r(state: StateDir, states: list[str], queues: tuple[str, ...], include: str | None) -> None:
    """Print nodes as R, which is JSON (RFC 20)."""
    known = _known(state)
    print_json(resource_set.write(_in_states(known, states, known.chosen(queues, include))))


def _in_states(known: Known, states: Sequence[str], ranks: Collection[int]) -> ResourceSet:
    if set(states) == set(STATES):
        return _only(known.sets["all"], ranks)
    found = _only(known.sets["all"], ())
    for state in states:
        found = resource_set.union(found, _only(known.sets[state], ranks))
    return found


def _only(nodes: ResourceSet, ranks: Collection[int]) -> ResourceSet:
    ranks = frozenset(ranks)
    others = (each.rank for each in nodes.ranks if each.rank not in ranks)
    return resource_set.without_ranks(nodes, others)


@resource.command("status")
@statedir_option
@json_option
@_choosing(CARED, "all")
@_listing(_STATUS_FIELDS, _STATUS)
def status(
    state: StateDir,
    as_json: bool,
    states: list[str],
    queues: tuple[str, ...],
    include: str | None,
    form: Format,
    no_header: bool,
) -> None:
    """List nodes as whoever looks after them sees them."""
    known = _known(state)
    ranks = known.chosen(queues, include)
    nodes = [node for node in known.nodes if node["rank"] in ranks and _cared(node) in states]
    rows = list(cared_for(nodes, idset.decode(known.status["offline"])))
    _print({"nodes": nodes} if as_json else rows, form, header=not no_header)


def cared_for(nodes: Iterable[Node], offline: Collection[int]) -> Iterator[Node]:
    """Give the rows of nodes: those of one state, and those of them that are there, in one."""
    named: dict[tuple[str, bool], list[Node]] = {}
    for node in nodes:
        named.setdefault((_cared(node), node["rank"] not in offline), []).append(node)
    for (shown, up), alike in sorted(named.items()):
        yield {"state": shown, "up": "✔" if up else "✗", **_names(alike)}


def _cared(node: Node) -> str:
    return node["state"] if node["state"] in CARED else "avail"


def _names(nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        "nnodes": len(nodes),
        "ranks": idset.encode(node["rank"] for node in nodes),
        "nodelist": hostlist.encode(node["name"] for node in nodes),
    }


@resource.command("drain")
@statedir_option
@json_option
@_listing(_DRAIN_FIELDS, _DRAINS)
@click.option("-u", "--update", is_flag=True,
              help="Where one is drained already, add a missing reason.")  # fmt: skip
@click.option("-f", "--force", count=True,
              help="Where one is drained already, replace its reason; -ff: and time.")  # fmt: skip
@click.argument("targets", required=False)
@click.argument("reason", nargs=-1)
def drain(
    state: StateDir,
    as_json: bool,
    form: Format,
    no_header: bool,
    update: bool,
    force: int,
    targets: str | None,
    reason: tuple[str, ...],
) -> None:
    """Give nodes to no more jobs; or list the nodes that are drained.

    Jobs keep the nodes that they have.
    """
    if targets is None:
        drained = [node for node in _known(state).nodes if node["state"] in _DRAINED]
        rows = list(drained_rows(drained))
        _print({"nodes": drained} if as_json else rows, form, header=not no_header)
        return
    if update and force:
        raise click.UsageError("--update keeps a reason and --force replaces it: give one of them.")
    mode = "update" if update else _FORCE[min(force, 2)]
    _change(state, as_json, "resource.drain", targets, " ".join(reason), mode)


def drained_rows(nodes: Iterable[Node]) -> Iterator[Node]:
    """Give the rows of drained nodes; those that were drained together share one."""
    together: dict[tuple[float, str, str], list[Node]] = {}
    for node in nodes:
        together.setdefault((node["since"], node["state"], node["reason"]), []).append(node)
    for (since, state, reason), alike in together.items():
        yield {"timestamp": since, "state": state, "reason": reason, **_names(alike)}


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


@resource.command("eventlog")
@statedir_option
@click.option("-f", "--format", "form", type=click.Choice(FORMS), default="text",
              help="How events are printed.")  # fmt: skip
@click.option("-T", "--time-format", "times", type=click.Choice(TIMES), default="raw",
              help="How moments are printed.")  # fmt: skip
@click.option("-F", "--follow", is_flag=True, help="Go on with what happens from now on.")
def eventlog_(state: StateDir, form: str, times: str, follow: bool) -> None:
    """Print what has happened to nodes."""
    writer = Writer(form, times)

    async def asked(handle: "Handle") -> None:
        async for told in handle.stream("resource.journal"):
            for event in told["events"]:
                click.echo(writer.line(Event(**event)))
            if not told["events"] and not follow:
                return

    ask_instance(state, asked)


def _change(
    state: StateDir, as_json: bool, topic: str, targets: str, reason: str, mode: str | None
) -> None:
    request = {"targets": targets, "reason": reason, "mode": mode}

    async def asked(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc(topic, request)

    changed = ask_instance(state, asked)
    if as_json:
        print_json(changed)


def _print(told: Any, form: Format, *, header: bool) -> None:
    """Print rows as a listing, and anything else as JSON."""
    if not isinstance(told, list):
        print_json(told)
        return
    for line in form.lines([row.__getitem__ for row in told], header=header):
        click.echo(line)


def _known(state: StateDir) -> Known:
    async def asked(handle: "Handle") -> Known:
        return known_from(
            await handle.rpc("resource.status"), await handle.rpc("sched.resource-status")
        )

    return ask_instance(state, asked)


def known_from(status: Mapping[str, Any], sched: Mapping[str, Any]) -> Known:
    """Put together what the resource service and the scheduler tell."""
    sets = {name: resource_set.read(given) for name, given in sched.items()}
    taken = resource_set.union(sets["allocated"], sets["down"])
    return Known(status=status, sets={**sets, "free": resource_set.difference(sets["all"], taken)})
