"""What a jobspec asks of the graph.

These shapes are understood: slots of cores, alone or on nodes, and gpus beside the cores;
slots of whole nodes; and what the storage side has rewritten, `slot(rabbit) > [node, ssd]`,
where each node's ssds must be of its own chassis; or `chassis > [node, ssd]`, with as many nodes
on each of so many chassis, and so many GiB for each node. Next to the entry with the nodes there
may be `chassis > ssd`, the flash that nodes share (`shared_flash`): so many allocations of so
many GiB, each on any chassis that has nodes of the job, or on any at all. The system attribute
`dw_constraints` says what either demands of rabbits. Counts may leave a choice.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import orjson
from msgspec.structs import replace

from warren.base.placing import AllocationSet, Locality
from warren.rfc import constraint, counts, ranges
from warren.rfc.counts import Count
from warren.rfc.errors import BadFormat
from warren.scheduling import tags

Part = Literal["nodes", "slots", "cores", "gpus"]
ResourceVertex = Mapping[str, Any]

_KINDS_TEXT: Final = "node, slot, core, gpu and ssd"

_MAX_ALLOCATIONS: Final = 16384
"""Beside those of nodes: each is placed by itself, while other requests wait."""

_MAX_CONSTRAINT_LENGTH: Final = 2**20
"""Characters of what a job demands of nodes: enough for the names of all nodes, which the system
adds for storage that only these reach."""


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted. Without `nodes`, slots may lie anywhere."""

    nodes: int | None
    """How many; where a slot holds several nodes, how many slots (`node_count` has the nodes)."""
    slots: int
    """On each node; without `nodes`, altogether."""
    cores: int
    """Of each slot."""
    gpus: int = 0
    """Of each slot."""
    exclusive: bool = False
    """Whether the nodes are to be idle, and are given whole."""
    chassis_count: int = 0
    """On how many chassis the nodes are to be, as many on each; 0 where that does not matter."""
    nodes_per_slot: int = 1
    """How many nodes one slot holds."""
    ssd_gib: int = 0
    """Flash beside each node, in GiB."""
    shared_flash: tuple[AllocationSet, ...] = ()
    """Flash beside that, on the rabbits of whichever of the nodes, or on any."""
    labels: tuple[str, ...] = ()
    """What the rabbit of each node must carry, where flash is beside the nodes."""
    constraint: str = ""
    """What the nodes have to meet (RFC 31), as JSON text."""
    needs_untagged: bool = False
    """Whether nodes that are tagged are not wanted (`tags`)."""
    open_counts: tuple[tuple[Part, Count], ...] = ()
    """Which of the numbers above are but the least, from the outside in, and what may be
    given instead: the most that there is room for."""

    @property
    def wants_flash(self) -> bool:
        """Whether flash is wanted at all."""
        return bool(self.ssd_gib or self.shared_flash)

    @property
    def any_rabbit(self) -> bool:
        """Whether some of it may be on rabbits of none of the nodes."""
        return any(each.locality is Locality.ANY for each in self.shared_flash)

    @property
    def node_count(self) -> int:
        return (self.nodes or 0) * self.nodes_per_slot

    @property
    def nodes_per_chassis(self) -> int:
        """How many nodes are to be on each chassis; 0 where that does not matter."""
        return self.node_count // self.chassis_count if self.chassis_count else 0

    @property
    def slot_count(self) -> int:
        return (self.nodes or 1) * self.slots

    @property
    def node_cores(self) -> int:
        """Cores of each node that is asked for."""
        return self.slots * self.cores

    @property
    def node_gpus(self) -> int:
        return self.slots * self.gpus


def from_jobspec(spec: Mapping[str, Any]) -> Request:
    """Read what a canonical jobspec asks for.

    Raises BadFormat, with the place, for shapes that are not understood.
    """
    first, *others = spec["resources"]
    if any(each["type"] != "chassis" for each in others):
        raise BadFormat(
            f"jobspec: resources holds {1 + len(others)} entries, not 1 and chassis with ssds"
        )
    request = _Reader(spec).request(first)
    system = (spec["attributes"] or {}).get("system") or {}
    demands = _demands(system.get("dw_constraints") or {})
    shared_flash = tuple(
        _read_shared_flash(each, f"resources[{n}]", demands) for n, each in enumerate(others, 1)
    )
    if sum(each.count for each in shared_flash) > _MAX_ALLOCATIONS:
        raise BadFormat(f"jobspec: resources asks for more than {_MAX_ALLOCATIONS} allocations")
    if shared_flash and request.nodes is None:
        raise BadFormat("jobspec: resources[1] is on chassis of the job's nodes, and it names none")
    demand = demands.get(first.get("label", ""), _NO_DEMAND) if request.ssd_gib else _NO_DEMAND
    return replace(request, shared_flash=shared_flash, labels=demand.labels)


class _Reader:
    """Reads one jobspec, from the outside in."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._label = spec["tasks"][0]["slot"]
        self._open_counts: list[tuple[Part, Count]] = []
        system = (spec["attributes"] or {}).get("system") or {}
        self._constraint, self._needs_untagged = _read_constraint(system.get("constraints"))

    def request(self, top: ResourceVertex) -> Request:
        path = "resources[0]"
        if top["type"] == "node":
            return self._node(top, path, top, path)
        if top["type"] == "chassis":
            return self._on_chassis(top, path)
        if top["type"] != "slot":
            raise BadFormat(
                f"jobspec: {path}: resources of type {top['type']!r} cannot be scheduled; "
                f"{_KINDS_TEXT} can"
            )
        if any(child["type"] == "node" for child in top["with"]):
            return self._around_node(top, path)
        self._check_label(top, path)
        slots = self._count("slots", top, path)
        cores, gpus = self._cores_and_gpus(top, path)
        return self._request(nodes=None, slots=slots, cores=cores, gpus=gpus)

    def _on_chassis(self, chassis: ResourceVertex, path: str) -> Request:
        """Read `chassis > [node, ssd]`: so many nodes of each, and flash for all of these."""
        parts = _children(chassis, path, ("node", "ssd"))
        if "node" not in parts:
            raise BadFormat(f"jobspec: {path}.with holds no node")
        node, node_path = parts["node"]
        count, per_chassis = _fixed_count(chassis, path), _fixed_count(node, node_path)
        gib = -(-_fixed_count(*parts["ssd"]) // per_chassis) if "ssd" in parts else 0
        all_nodes = {**node, "count": count * per_chassis}
        return replace(
            self._node(all_nodes, node_path, all_nodes, node_path, gib), chassis_count=count
        )

    def _around_node(self, slot: ResourceVertex, path: str) -> Request:
        """Read `slot > node`: the task's slot, or one that holds a node with flash beside it."""
        parts = _children(slot, path, ("node", "ssd"))
        node, node_path = parts["node"]
        gib = 0
        if "ssd" in parts:
            ssd, ssd_path = parts["ssd"]
            gib = _fixed_count(ssd, ssd_path)
            if node["count"] != 1:
                raise BadFormat(
                    f"jobspec: {node_path}.count is not 1, where flash is beside the node"
                )
        if slot.get("label") != self._label:
            return self._node(node, node_path, slot, path, gib, _fixed_count(node, node_path))
        nodes = self._count("nodes", slot, path)
        nodes_per_slot = _fixed_count(node, node_path)
        cores, gpus = 1, 0
        if node.get("with"):
            cores, gpus = self._cores_and_gpus(node, node_path)
        return self._request(
            nodes=nodes,
            slots=1,
            cores=cores,
            gpus=gpus,
            # What is in a slot is the job's alone, unless it says otherwise (RFC 14).
            exclusive=node.get("exclusive", True),
            nodes_per_slot=nodes_per_slot,
            ssd_gib=gib,
        )

    def _node(
        self,
        node: ResourceVertex,
        path: str,
        counted: ResourceVertex,
        counted_path: str,
        gib: int = 0,
        inner_count: int = 1,
    ) -> Request:
        """Read `node > slot`. `counted` says how often: the node, or what is around it."""
        parts = _children(node, path, ("slot",))
        if "slot" not in parts:
            raise BadFormat(f"jobspec: {path}.with holds no slot for the job's tasks")
        slot, slot_path = parts["slot"]
        self._check_label(slot, slot_path)
        if inner_count != 1:
            raise BadFormat(f"jobspec: {path}.count is not 1, inside of {counted_path}")
        nodes = self._count("nodes", counted, counted_path)
        slots = self._count("slots", slot, slot_path)
        cores, gpus = self._cores_and_gpus(slot, slot_path)
        exclusive = node.get("exclusive", False)
        return self._request(
            nodes=nodes, slots=slots, cores=cores, gpus=gpus, exclusive=exclusive, ssd_gib=gib
        )

    def _request(self, **counted: Any) -> Request:
        return Request(
            **counted,
            constraint=self._constraint,
            needs_untagged=self._needs_untagged,
            open_counts=tuple(self._open_counts),
        )

    def _check_label(self, slot: ResourceVertex, path: str) -> None:
        if slot.get("label") != self._label:
            raise BadFormat(
                f"jobspec: {path}.label is {slot.get('label')!r}, "
                f"and the job's tasks are for the slot {self._label!r}"
            )

    def _cores_and_gpus(self, holder: ResourceVertex, path: str) -> tuple[int, int]:
        """Return the least numbers of cores and gpus that something holds."""
        parts = _children(holder, path, ("core", "gpu"))
        if "core" not in parts:
            raise BadFormat(f"jobspec: {path}.with holds no core")
        cores = self._count("cores", *parts["core"])
        return cores, self._count("gpus", *parts["gpu"]) if "gpu" in parts else 0

    def _count(self, part: Part, vertex: ResourceVertex, path: str) -> int:
        """Return the least of what a count allows, and keep in mind what else it does."""
        count = vertex["count"]
        if type(count) is int:
            return count
        parsed = _parse_count(count, path)
        if _leaves_choice(parsed):
            self._open_counts.append((part, parsed))
        return parsed.min


class _Demand(msgspec.Struct, frozen=True):
    """What some flash demands of its rabbits."""

    labels: tuple[str, ...] = ()
    colocation_keys: tuple[str, ...] = ()
    locality: Locality = Locality.JOB


_NO_DEMAND: Final = _Demand()


def _demands(value: Any) -> Mapping[str, _Demand]:
    """Read what flash demands of rabbits, by the labels of the resources (`dws.jobs.resources`)."""
    path = "jobspec: attributes.system.dw_constraints"
    if not isinstance(value, Mapping):
        raise BadFormat(f"{path} is not an object")
    demand_by_label = {}
    for label, each in value.items():
        try:
            constraints = msgspec.convert(each, _Constraints)
        except msgspec.ValidationError as error:
            raise BadFormat(f"{path}.{label}: {error}") from None
        if any(one.type != "exclusive" for one in constraints.colocation):
            raise BadFormat(f"{path}.{label}.colocation is not 'exclusive'")
        demand_by_label[label] = _Demand(
            constraints.labels,
            tuple(one.key for one in constraints.colocation),
            _locality([(one.type, one.priority) for one in constraints.access]),
        )
    return demand_by_label


def _locality(access: Collection[tuple[str, str]]) -> Locality:
    """Return which rabbits will do, by the words of DWS: access over the network is to all."""
    if ("physical", "mandatory") in access:
        return Locality.EVERY_RABBIT_OF_JOB
    return Locality.ANY if ("network", "mandatory") in access else Locality.JOB


class _Colocation(msgspec.Struct, frozen=True):
    type: str = "exclusive"
    key: str = ""


class _Access(msgspec.Struct, frozen=True):
    type: str
    priority: str


class _Constraints(msgspec.Struct, frozen=True):
    labels: tuple[str, ...] = ()
    access: tuple[_Access, ...] = ()
    colocation: tuple[_Colocation, ...] = ()


def _read_shared_flash(
    top: ResourceVertex, path: str, demands: Mapping[str, _Demand]
) -> AllocationSet:
    """Read flash that stands next to the nodes."""
    parts = _children(top, path, ("ssd",))
    if "ssd" not in parts:
        raise BadFormat(f"jobspec: {path}.with holds no ssd")
    demand = demands.get(top.get("label", ""), _NO_DEMAND)
    gib = _fixed_count(*parts["ssd"])
    return AllocationSet(
        _fixed_count(top, path), gib, demand.labels, demand.colocation_keys, demand.locality
    )


def _fixed_count(vertex: ResourceVertex, path: str) -> int:
    count = _parse_count(vertex["count"], path)
    if _leaves_choice(count):
        raise BadFormat(f"jobspec: {path}.count leaves a choice, which it cannot")
    return count.min


def _parse_count(count: Any, path: str) -> Count:
    try:
        return counts.parse(count)
    except BadFormat as error:
        raise BadFormat(f"jobspec: {path}.{error}") from None


def _leaves_choice(count: Count) -> bool:
    return count.greatest(ranges.LARGEST) != count.min


def _children(
    holder: ResourceVertex, path: str, allowed: Sequence[str]
) -> dict[str, tuple[ResourceVertex, str]]:
    """Return what something holds, with its paths, by type; each type once."""
    child_by_type: dict[str, tuple[ResourceVertex, str]] = {}
    for index, child in enumerate(holder.get("with", ())):
        kind, child_path = child["type"], f"{path}.with[{index}]"
        if kind not in allowed:
            raise BadFormat(
                f"jobspec: {child_path}: resources of type {kind!r} cannot be scheduled "
                f"in a {holder['type']}; {' and '.join(allowed)} can"
            )
        if kind == "ssd" and kind in child_by_type:
            # One entry for each directive's flash: to the scheduler they are one.
            count = _fixed_count(child_by_type[kind][0], child_by_type[kind][1]) + _fixed_count(
                child, child_path
            )
            child = {**child, "count": count}
        elif kind in child_by_type:
            raise BadFormat(f"jobspec: {child_path} is a second {kind} in {path}")
        if kind in ("core", "gpu", "ssd") and child.get("with"):
            raise BadFormat(f"jobspec: {child_path}.with: a {kind} holds nothing")
        child_by_type[kind] = (child, child_path)
    return child_by_type


def _read_constraint(value: Any) -> tuple[str, bool]:
    if not value:
        return "", False
    try:
        constraint.check(value, "attributes.system.constraints")
    except BadFormat as error:
        raise BadFormat(f"jobspec: {error}") from None
    remaining, untagged = tags.strip_untagged(value)
    text = orjson.dumps(remaining, option=orjson.OPT_SORT_KEYS).decode() if remaining else ""
    if len(text) > _MAX_CONSTRAINT_LENGTH:
        raise BadFormat(
            f"jobspec: attributes.system.constraints has {len(text)} characters, and "
            f"{_MAX_CONSTRAINT_LENGTH} at most: name hosts as a list, such as node[01-64]"
        )
    return text, untagged
