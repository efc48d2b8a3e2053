"""`warren resource`: nodes, what each one does, and keeping them back from jobs."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click
import msgspec

from warren.base.errors import UserMistake
from warren.cli.commandgroups import Group
from warren.cli.common import ask_instance, json_option, print_json, statedir_option
from warren.cli.events import FORMATS, TIME_FORMATS, EventWriter
from warren.cli.outputformat import Format, sort_rows
from warren.daemons.statedir import StateDir
from warren.rfc import hostlist, idset, resource_set
from warren.rfc.eventlog import Event
from warren.rfc.resource_set import ResourceSet
from warren.scheduling import drains
from warren.scheduling.drains import NodeState

if TYPE_CHECKING:
    from warren.rpc.message import Handle

Node = Mapping[str, Any]
"""A node as `resource.status` tells of it."""

NodeRow = Mapping[str, Any]
"""A row of a listing, for one node or several: the values by field."""

F = TypeVar("F", bound=Callable[..., Any])

SCHEDULER_STATES: Final = ("free", "allocated", "down")
"""The states of nodes that the scheduler knows, in the order of the listing."""
LIST_STATES: Final = (*SCHEDULER_STATES, "up", "all")
"""What may be listed: `up` is every node that is not down."""
ADMIN_STATES: Final = (
    "avail",
    *(state for state in NodeState if state not in ("free", "allocated")),
)
"""The states of nodes that administrators set or see."""

_DRAINED: Final = (NodeState.DRAINED, NodeState.DRAINING)
_DRAIN_MODES: Final = (None, "overwrite", "force-overwrite")
"""The mode of a drain, by how often --force is given."""

_LIST_FORMAT: Final = (
    "{state:>10} ?:{queue:<8.8} ?:{propertiesx:<10.10+} {nnodes:>6} {ncores:>8} ?:{ngpus:>8} "
    "{nodelist}"
)
_STATUS_FORMAT: Final = "{state:>10} {up:>2} {nnodes:>6} {nodelist}"
_DRAIN_FORMAT: Final = (
    "{timestamp!d:%b%d %H:%M::<12} {state:<8} {ranks:<8} +:{reason:<10} {nodelist}"
)

_LIST_FIELDS: Final = {
    "state": "STATE", "queue": "QUEUE", "properties": "PROPERTIES", "propertiesx": "PROPERTIES",
    "nnodes": "NNODES", "ncores": "NCORES", "ngpus": "NGPUS", "ranks": "RANKS",
    "nodelist": "NODELIST",
}  # fmt: skip
_GROUPING_FIELDS: Final = ("state", "queue", "properties", "propertiesx")
"""Fields by which nodes are told apart: those that are equal in all that are shown share a row."""

_STATUS_FIELDS: Final = {
    "state": "STATE", "up": "UP", "nnodes": "NNODES", "ranks": "RANKS", "nodelist": "NODELIST",
}  # fmt: skip
_DRAIN_FIELDS: Final = {
    "timestamp": "TIME", "state": "STATE", "ranks": "RANK", "reason": "REASON",
    "nodelist": "NODE", "nnodes": "NNODES",
}  # fmt: skip


class NodeStates(msgspec.Struct, frozen=True, kw_only=True):
    """The states of the nodes, as the instance reports them."""

    status: Mapping[str, Any]
    """The answer of `resource.status`."""
    resources_by_state: Mapping[str, ResourceSet]
    """The nodes in each state that the scheduler knows; `all` are those that it has."""

    @property
    def nodes(self) -> list[Node]:
        return list(self.status["nodes"])

    def resources_in(self, state: str) -> ResourceSet:
        """Return the nodes of one of `LIST_STATES`."""
        if state == "up":
            return resource_set.difference(
                self.resources_by_state["all"], self.resources_by_state["down"]
            )
        return self.resources_by_state[state]

    def chosen_ranks(self, queues: Sequence[str], include: str | None) -> set[int]:
        """Return the ranks that are asked for. Raises UserMistake for what is not there."""
        ranks = {node["rank"] for node in self.nodes}
        if queues:
            ranks &= set().union(*(self._ranks_of_queue(name) for name in queues))
        if include is not None:
            ranks &= set(drains.parse_targets(include, {n["rank"]: n["name"] for n in self.nodes}))
        return ranks

    def _ranks_of_queue(self, name: str) -> tuple[int, ...]:
        ranks_by_queue = self.status["queues"]
        if name not in ranks_by_queue:
            choices = (
                f"name one of {', '.join(ranks_by_queue)}"
                if ranks_by_queue
                else "none is configured"
            )
            raise UserMistake(f"There is no queue {name!r}: {choices}.")
        return idset.decode(ranks_by_queue[name])

    def queues_by_rank(self) -> Mapping[int, list[str]]:
        """Return the queues that each node is in."""
        return _by_rank({name: idset.decode(each) for name, each in self.status["queues"].items()})


@click.group(cls=Group)
def resource() -> None:
    """List, drain and undrain compute nodes.

    TARGETS are nodes by name or by rank: compute-[00-03], or 0-3.
    """


def _node_options(states: Sequence[str], default: str) -> Callable[[F], F]:
    """Add the options that say which nodes are meant.

    The word `all` stands for every state, unless it is one of them.
    """

    def parse_states(_ctx: click.Context, _param: click.Parameter, value: str) -> list[str]:
        state_names = [each.strip() for each in value.split(",")]
        for each in state_names:
            if each not in known_states:
                raise click.BadParameter(f"{each!r} is none of {', '.join(known_states)}.")
        all_states = "all" in state_names and "all" not in states
        return list(states) if all_states else [each for each in states if each in state_names]

    known_states = (*states, *({"all"} - {*states}))

    def add_options(command: F) -> F:
        for option in (
            click.option("-s", "--states", metavar="STATE,...", default=default,
                         callback=parse_states,
                         help=f"Of {', '.join(known_states)}. Default: {default}."),
            click.option("-q", "--queue", "queues", metavar="NAME", multiple=True,
                         help="Show only nodes of a queue. Repeatable."),
            click.option("-i", "--include", metavar="TARGETS", help="Show only these nodes."),
        ):  # fmt: skip
            command = option(command)
        return command

    return add_options


def _format_options(fields: Mapping[str, str], default: str) -> Callable[[F], F]:
    """Add the options of a listing."""

    def read(_ctx: click.Context, _param: click.Parameter, value: str) -> Format:
        return Format(value, fields.get)

    def add_options(command: F) -> F:
        for option in (
            click.option("-o", "--format", "form", metavar="FORMAT", default=default, callback=read,
                         help=f"Fields in braces: {{nnodes:>6}}, of {', '.join(fields)}."),
            click.option("-n", "--no-header", is_flag=True, help="Print no headings."),
        ):  # fmt: skip
            command = option(command)
        return command

    return add_options


@resource.command("list")
@statedir_option
@json_option
@_node_options(LIST_STATES, ",".join(SCHEDULER_STATES))
@_format_options(_LIST_FIELDS, _LIST_FORMAT)
def list_(
    statedir: StateDir,
    as_json: bool,
    states: list[str],
    queues: tuple[str, ...],
    include: str | None,
    form: Format,
    no_header: bool,
) -> None:
    """List free, allocated and down resources.

    A drained node that a job still has is in both of the last two. Nodes share a
    row if they have the same in all fields of the FORMAT but numbers and names:
    -n -o '{nodelist}' prints one line.
    """
    node_states = _read_node_states(statedir)
    shown_fields = _GROUPING_FIELDS if as_json else form.fields
    rows = list(
        scheduler_rows(node_states, states, node_states.chosen_ranks(queues, include), shown_fields)
    )
    _print({"states": rows} if as_json else rows, form, header=not no_header)


def scheduler_rows(
    node_states: NodeStates,
    states: Iterable[str],
    ranks: Collection[int],
    shown_fields: Collection[str],
) -> Iterator[NodeRow]:
    """Yield the rows of nodes as the scheduler sees them; those that look alike share one.

    Nodes are told apart by those of the `shown_fields` that are grouping fields. A state without
    nodes has a row, too.
    """
    queues = node_states.queues_by_rank()
    grouping_fields = [field for field in _GROUPING_FIELDS if field in shown_fields]
    if len(shown_fields) == 1 and "state" not in shown_fields:
        grouping_fields = []  # the format lists all the queues, or properties, that there are
    ranks_by_state_of_row: dict[tuple[str, ...], dict[str, list[int]]] = {}
    for state in states:
        resources = _restrict(node_states.resources_in(state), ranks)
        properties = _by_rank(resources.properties)
        for ranks_of_node in [[each.rank] for each in resources.nodes] or [[]]:
            values_by_field = _grouping_values(state, ranks_of_node, queues, properties)
            row_key = tuple(values_by_field[field] for field in grouping_fields)
            ranks_by_state = ranks_by_state_of_row.setdefault(row_key, {})
            ranks_by_state.setdefault(state, []).extend(ranks_of_node)
    for ranks_by_state in ranks_by_state_of_row.values():
        nodes_of_row = _restrict(node_states.resources_in("all"), ())
        for state, state_ranks in ranks_by_state.items():
            nodes_of_row = resource_set.union(
                nodes_of_row, _restrict(node_states.resources_in(state), state_ranks)
            )
        row_ranks = [each.rank for each in nodes_of_row.nodes]
        yield {
            **_grouping_values(
                next(iter(ranks_by_state)), row_ranks, queues, _by_rank(nodes_of_row.properties)
            ),
            **_counts(nodes_of_row),
            "ranks": idset.encode(row_ranks),
            "nodelist": hostlist.encode(each.host for each in nodes_of_row.nodes),
        }


def _grouping_values(
    state: str,
    ranks: Collection[int],
    queues: Mapping[int, list[str]],
    properties: Mapping[int, list[str]],
) -> dict[str, str]:
    """Return the values of the grouping fields; of several nodes, all that any of them has."""

    def names_of(names_by_rank: Mapping[int, list[str]]) -> list[str]:
        return sorted({name for rank in ranks for name in names_by_rank.get(rank, ())})

    names = names_of(properties)
    plain = [name for name in names if not name.startswith("+")]
    values = ([state], names_of(queues), names, plain)
    return {field: ",".join(value) for field, value in zip(_GROUPING_FIELDS, values, strict=True)}


def _by_rank(ranks_by_name: Mapping[str, Iterable[int]]) -> Mapping[int, list[str]]:
    names_by_rank: dict[int, list[str]] = {}
    for name in sorted(ranks_by_name):
        for rank in ranks_by_name[name]:
            names_by_rank.setdefault(rank, []).append(name)
    return names_by_rank


def _counts(resources: ResourceSet) -> dict[str, int]:
    return {
        "nnodes": len(resources.nodes),
        "ncores": sum(len(node.cores) for node in resources.nodes),
        "ngpus": sum(len(node.gpus) for node in resources.nodes),
    }


@resource.command("info")
@statedir_option
@json_option
@_node_options(LIST_STATES, "all")
def info(
    statedir: StateDir,
    as_json: bool,
    states: list[str],
    queues: tuple[str, ...],
    include: str | None,
) -> None:
    """Print a one-line summary of resources."""
    node_states = _read_node_states(statedir)
    counts = _counts(_in_states(node_states, states, node_states.chosen_ranks(queues, include)))
    if as_json:
        print_json(counts)
    else:
        nodes, cores, gpus = counts.values()
        count_texts = [
            f"{count} {name}{'' if count == 1 else 's'}"
            for count, name in ((nodes, "Node"), (cores, "Core"), (gpus, "GPU"))
        ]
        click.echo(", ".join(count_texts))


@resource.command("R")
@statedir_option
@_node_options(LIST_STATES, "all")
def r(statedir: StateDir, states: list[str], queues: tuple[str, ...], include: str | None) -> None:
    """Print nodes as R, which is JSON (RFC 20)."""
    node_states = _read_node_states(statedir)
    print_json(
        resource_set.encode_all(
            _in_states(node_states, states, node_states.chosen_ranks(queues, include))
        )
    )


def _in_states(
    node_states: NodeStates, states: Sequence[str], ranks: Collection[int]
) -> ResourceSet:
    nodes = _restrict(node_states.resources_in("all"), ())
    for state in ["all"] if {*SCHEDULER_STATES} <= {*states} else states:
        nodes = resource_set.union(nodes, _restrict(node_states.resources_in(state), ranks))
    return nodes


def _restrict(resources: ResourceSet, ranks: Collection[int]) -> ResourceSet:
    ranks = frozenset(ranks)
    excluded_ranks = (each.rank for each in resources.nodes if each.rank not in ranks)
    return resource_set.without_ranks(resources, excluded_ranks)


@resource.command("status")
@statedir_option
@json_option
@_node_options(ADMIN_STATES, "all")
@_format_options(_STATUS_FIELDS, _STATUS_FORMAT)
def status(
    statedir: StateDir,
    as_json: bool,
    states: list[str],
    queues: tuple[str, ...],
    include: str | None,
    form: Format,
    no_header: bool,
) -> None:
    """Show node status for administrators."""
    node_states = _read_node_states(statedir)
    ranks = node_states.chosen_ranks(queues, include)
    nodes = [
        node for node in node_states.nodes if node["rank"] in ranks and _admin_state(node) in states
    ]
    rows = list(status_rows(nodes, idset.decode(node_states.status["offline"]), form.fields))
    _print({"nodes": nodes} if as_json else rows, form, header=not no_header)


def status_rows(
    nodes: Iterable[Node], offline: Collection[int], shown_fields: Collection[str]
) -> Iterator[NodeRow]:
    """Yield the rows of nodes: those in one state that are all online, or all offline, share one.

    Nodes are told apart by the `shown_fields` alone.
    """
    nodes_with_values = [
        ({"state": _admin_state(node), "up": "✗" if node["rank"] in offline else "✔"}, node)
        for node in nodes
    ]
    rows = _group_rows(nodes_with_values, shown_fields)
    yield from sorted(rows, key=lambda row: (row["state"], row["up"] == "✔"))


def _group_rows(
    nodes_with_values: Iterable[tuple[Mapping[str, Any], Node]], shown_fields: Collection[str]
) -> Iterator[NodeRow]:
    """Yield a row for all nodes that have equal values in the fields that are shown."""
    groups: dict[tuple[Any, ...], tuple[Mapping[str, Any], list[Node]]] = {}
    for values_by_field, node in nodes_with_values:
        key = tuple(value for field, value in values_by_field.items() if field in shown_fields)
        groups.setdefault(key, (values_by_field, []))[1].append(node)
    for values_by_field, members in groups.values():
        yield {**values_by_field, **_node_names(members)}


def _admin_state(node: Node) -> str:
    return node["state"] if node["state"] in ADMIN_STATES else "avail"


def _node_names(nodes: Sequence[Node]) -> dict[str, Any]:
    return {
        "nnodes": len(nodes),
        "ranks": idset.encode(node["rank"] for node in nodes),
        "nodelist": hostlist.encode(node["name"] for node in nodes),
    }


@resource.command("drain")
@statedir_option
@json_option
@_format_options(_DRAIN_FIELDS, _DRAIN_FORMAT)
@click.option("-u", "--update", is_flag=True,
              help="Accept nodes that are drained already, and add missing reasons.")  # fmt: skip
@click.option("-f", "--force", count=True,
              help="Replace the reasons of drained nodes; -ff replaces the time, too.")  # fmt: skip
@click.argument("targets", required=False)
@click.argument("reason", nargs=-1)
def drain(
    statedir: StateDir,
    as_json: bool,
    form: Format,
    no_header: bool,
    update: bool,
    force: int,
    targets: str | None,
    reason: tuple[str, ...],
) -> None:
    """Drain nodes, or list drained nodes.

    Jobs keep the nodes that they have.
    """
    if targets is None:
        drained = [node for node in _read_node_states(statedir).nodes if node["state"] in _DRAINED]
        rows = list(drained_rows(drained, form.fields))
        _print({"nodes": drained} if as_json else rows, form, header=not no_header)
        return
    if update and force:
        raise click.UsageError("--update keeps a reason and --force replaces it: give one of them.")
    mode = "update" if update else _DRAIN_MODES[min(force, 2)]
    _change(statedir, as_json, "resource.drain", targets, " ".join(reason), mode)


def drained_rows(nodes: Iterable[Node], shown_fields: Collection[str]) -> Iterator[NodeRow]:
    """Yield the rows of drained nodes; those that were drained together share one.

    Nodes are told apart by the `shown_fields` alone.
    """
    nodes_with_values = [
        ({"timestamp": node["since"], "state": node["state"], "reason": node["reason"]}, node)
        for node in nodes
    ]
    yield from _group_rows(nodes_with_values, shown_fields)


@resource.command("undrain")
@statedir_option
@json_option
@click.option("-f", "--force", is_flag=True, help="Ignore nodes that are not drained.")
@click.argument("targets")
@click.argument("reason", nargs=-1)
def undrain(
    statedir: StateDir, as_json: bool, force: bool, targets: str, reason: tuple[str, ...]
) -> None:
    """Return drained nodes to service."""
    mode = "force" if force else None
    _change(statedir, as_json, "resource.undrain", targets, " ".join(reason), mode)


@resource.command("eventlog")
@statedir_option
@click.option("-f", "--format", "form", type=click.Choice(FORMATS), default="text",
              help="How events are printed.")  # fmt: skip
@click.option("-T", "--time-format", type=click.Choice(TIME_FORMATS), default="raw",
              help="How times are printed.")  # fmt: skip
@click.option("-F", "--follow", is_flag=True, help="Print new events as they come.")
def eventlog_(statedir: StateDir, form: str, time_format: str, follow: bool) -> None:
    """Print the event log of the nodes."""
    writer = EventWriter(form, time_format)

    async def print_events(handle: "Handle") -> None:
        async for answer in handle.stream("resource.journal"):
            for event in answer["events"]:
                click.echo(writer.line(Event(**event)))
            if not answer["events"] and not follow:
                return

    ask_instance(statedir, print_events)


def _change(
    statedir: StateDir, as_json: bool, topic: str, targets: str, reason: str, mode: str | None
) -> None:
    request = {"targets": targets, "reason": reason, "mode": mode}

    async def change(handle: "Handle") -> Mapping[str, Any]:
        return await handle.rpc(topic, request)

    changed = ask_instance(statedir, change)
    if as_json:
        print_json(changed)


def _print(record: Any, form: Format, *, header: bool) -> None:
    """Print rows as a listing, and anything else as JSON."""
    if not isinstance(record, list):
        print_json(record)
        return
    rows = sort_rows([row.__getitem__ for row in record], form.sort_keys)
    for line in form.lines(rows, header=header):
        click.echo(line)


def _read_node_states(statedir: StateDir) -> NodeStates:
    async def query(handle: "Handle") -> NodeStates:
        return node_states_from(
            await handle.rpc("resource.status"), await handle.rpc("sched.resource-status")
        )

    return ask_instance(statedir, query)


def node_states_from(status: Mapping[str, Any], sched: Mapping[str, Any]) -> NodeStates:
    """Put together what the resource service and the scheduler tell."""
    resources_by_state = {name: resource_set.decode_all(encoded) for name, encoded in sched.items()}
    not_free = resource_set.union(resources_by_state["allocated"], resources_by_state["down"])
    return NodeStates(
        status=status,
        resources_by_state={
            **resources_by_state,
            "free": resource_set.difference(resources_by_state["all"], not_free),
        },
    )
