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

    def usable_count(self, capacity_gib: int | None, external_gib: int) -> int:
        """Return how many of them jobs may have.

        `capacity_gib` is how many GiB the rabbit has, where it says so, and `external_gib` how many
        are taken by what is in no job's R.
        """
        count = len(self.paths)
        total_gib = count * self.gib if capacity_gib is None else capacity_gib
        return max(0, min(count, (total_gib - external_gib) // self.gib))


class FlashGraph(msgspec.Struct, frozen=True, kw_only=True):
    """Where Fluxion has the flash of each rabbit, and each node, by its host."""

    ssds_by_rabbit: Mapping[str, Ssds]
    path_by_host: Mapping[str, str]


def read(scheduling: Mapping[str, Any]) -> FlashGraph:
    """Read what `flux dws2jgf` has written, or `warren dws2jgf`. Raises BadFormat."""
    rabbit_by_path: dict[str, str] = {}
    ssds_by_parent: dict[str, list[jgf.Vertex]] = {}
    path_by_host: dict[str, str] = {}
    for vertex in jgf.decode(scheduling):
        match vertex.type:
            case "node":
                path_by_host[vertex.name] = vertex.path
            case "ssd":
                ssds_by_parent.setdefault(vertex.parent_path, []).append(vertex)
            case _ if rabbit := vertex.properties.get("rabbit"):
                rabbit_by_path[vertex.path] = rabbit
    return FlashGraph(
        ssds_by_rabbit={
            rabbit: Ssds(
                paths=tuple(each.path for each in sorted(vertices, key=lambda each: each.id)),
                gib=max(1, min(each.size for each in vertices)),
            )
            for path, rabbit in rabbit_by_path.items()
            if (vertices := ssds_by_parent.get(path))
        },
        path_by_host=path_by_host,
    )
