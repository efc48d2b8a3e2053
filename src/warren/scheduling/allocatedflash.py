"""What a job's R says of flash: how much the job holds on each rabbit."""

from collections.abc import Mapping
from typing import Final

import msgspec

from warren.base.placing import HeldFlash
from warren.rfc.errors import BadFormat
from warren.scheduling import flash


class _Paths(msgspec.Struct, frozen=True, gc=False):
    containment: str

    @property
    def parent(self) -> str:
        return self.containment.rpartition("/")[0]


class _Chassis(msgspec.Struct, frozen=True, tag_field="type", tag="chassis"):
    paths: _Paths
    properties: Mapping[str, str] = {}


class _Ssd(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="ssd"):
    paths: _Paths
    size: int = 1


class _Node(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="node"):
    paths: _Paths
    rank: int = -1


class _Cluster(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="cluster"):
    pass


class _Core(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="core"):
    pass


class _Gpu(msgspec.Struct, frozen=True, gc=False, tag_field="type", tag="gpu"):
    pass


class _Vertex(msgspec.Struct, frozen=True, gc=False):
    metadata: _Chassis | _Ssd | _Node | _Cluster | _Core | _Gpu


class _Graph(msgspec.Struct, frozen=True):
    nodes: list[_Vertex]


class _Scheduling(msgspec.Struct, frozen=True):
    graph: _Graph


class _R(msgspec.Struct, frozen=True):
    """What is needed of an R: all else of its hundred thousand vertices is passed over."""

    scheduling: _Scheduling | None = None


_DECODER: Final = msgspec.json.Decoder(_R)


class _AllocatedChassis(msgspec.Struct):
    rabbit: str
    is_pool: bool
    labels: frozenset[str]
    ssd_gibs: list[int] = msgspec.field(default_factory=list)
    ranks: list[int] = msgspec.field(default_factory=list)


def allocated_flash(r: bytes | str) -> list[HeldFlash]:
    """Return the flash that the text of an R tells of, rabbit by rabbit, in the order of its nodes.

    Last are the rabbits that none of its nodes is wired to, in the order of the graph.
    Empty for an R without graph. Raises BadFormat for a graph that `inventory` has not written.
    """
    try:
        scheduling = _DECODER.decode(r).scheduling
    except (msgspec.MsgspecError, ValueError) as error:
        raise BadFormat(f"R cannot be read: {error}") from None
    chassis_by_path: dict[str, _AllocatedChassis] = {}
    for vertex in scheduling.graph.nodes if scheduling is not None else ():
        match vertex.metadata:
            case _Core():  # most of them
                pass
            case _Chassis(paths=paths, properties=properties):
                is_pool = properties.get(flash.KIND_PROPERTY) == flash.POOL
                labels = frozenset(
                    f"{key}={value}"
                    for key, value in properties.items()
                    if key not in flash.RESERVED_PROPERTIES
                )
                chassis_by_path[paths.containment] = _AllocatedChassis(
                    properties.get("rabbit", ""), is_pool, labels
                )
            case _Ssd(paths=paths, size=size) if paths.parent in chassis_by_path:
                chassis_by_path[paths.parent].ssd_gibs.append(size)
            case _Node(paths=paths, rank=rank) if paths.parent in chassis_by_path:
                chassis_by_path[paths.parent].ranks.append(rank)
    allocated = sorted(
        (each for each in chassis_by_path.values() if each.ranks or each.ssd_gibs),
        key=lambda each: (not each.ranks, min(each.ranks, default=0)),
    )
    return [_held_flash(each) for each in allocated]


def _held_flash(chassis: _AllocatedChassis) -> HeldFlash:
    unit_gib = 1 if chassis.is_pool else max(chassis.ssd_gibs, default=1)
    return HeldFlash(
        chassis.rabbit,
        len(chassis.ranks),
        unit_gib,
        sum(chassis.ssd_gibs) // unit_gib,
        chassis.labels,
    )
