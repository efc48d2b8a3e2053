"""Where Fluxion's graph has the flash of rabbits, and their nodes (coral2-spec section 17)."""

from collections.abc import Mapping
from typing import Any

import msgspec

from warren.rfc import jgf


class Ssds(msgspec.Struct, frozen=True, kw_only=True):
    """The flash of one rabbit: vertices of one size, by their ids."""

    paths: tuple[str, ...]
    gib: int
    """The size of each."""

    def usable_count(self, capacity: int | None, external_gib: int) -> int:
        """Return how many of them jobs may have.

        `capacity` is how many GiB the rabbit has, where it says so, and `external_gib` how many
        are taken by what is in no job's R.
        """
        count = len(self.paths)
        capacity_gib = count * self.gib if capacity is None else capacity
        return max(0, min(count, (capacity_gib - external_gib) // self.gib))


class FlashGraph(msgspec.Struct, frozen=True, kw_only=True):
    """The rabbits' flash by rabbit, and the paths of nodes by host."""

    rabbits: Mapping[str, Ssds]
    nodes: Mapping[str, str]


def read(scheduling: Mapping[str, Any]) -> FlashGraph:
    """Read what `flux dws2jgf` has written, or `warren dws2jgf`. Raises BadFormat."""
    owners: dict[str, str] = {}
    ssds: dict[str, list[jgf.Vertex]] = {}
    nodes: dict[str, str] = {}
    for vertex in jgf.decode(scheduling):
        match vertex.type:
            case "node":
                nodes[vertex.name] = vertex.path
            case "ssd":
                ssds.setdefault(vertex.parent, []).append(vertex)
            case _ if rabbit := vertex.properties.get("rabbit"):
                owners[vertex.path] = rabbit
    return FlashGraph(
        rabbits={
            rabbit: Ssds(
                paths=tuple(each.path for each in sorted(vertices, key=lambda each: each.id)),
                gib=max(1, min(each.size for each in vertices)),
            )
            for path, rabbit in owners.items()
            if (vertices := ssds.get(path))
        },
        nodes=nodes,
    )
