"""Index mounts: storage that has a directory for each compute node, as applications find it.

Rabbits mount their n-th allocation at `RABBIT-n`. An application finds there those of its job's
compute nodes, each also as `node-i`, by the order of the nodes on its rabbit, and by the node's
name (container RFC, "Indexed-Mount Type"). The place of a storage is a directory of the pod, with
these links, below which the allocations are mounted one by one: another job's are not there.
"""

from collections.abc import Iterator, Mapping, Sequence
from shlex import quote
from typing import Final

import msgspec

from warren.base.objects import Object

VOLUME: Final = "nnf-index"
"""The volume of the pod that has a directory for each storage, by the name of its volume."""

_MOUNT_PATH: Final = "/nnf-index"
"""Where the init container has it."""


class IndexMount(msgspec.Struct, frozen=True, kw_only=True):
    """What an application finds in the place of one storage, on one rabbit."""

    volume: str
    """The volume of all that the rabbit has mounted of the storage."""
    allocations: Sequence[str]
    """The names of what is mounted there, by the position of the compute node."""
    links: Mapping[str, str]
    is_raw: bool = False
    """Whether allocations are devices, and no directories."""

    def mounts(self, mount: Object) -> Iterator[Object]:
        """Write a container's mount of the storage as mounts of its parts."""
        mount_path = mount["mountPath"].rstrip("/")
        # What is written beside the allocations would be on no flash: a mistake is to be told.
        yield {"name": VOLUME, "mountPath": mount_path, "subPath": self.volume, "readOnly": True}
        for each in self.allocations:
            yield {**mount, "mountPath": f"{mount_path}/{each}", "subPath": each}

    def script(self) -> str:
        """Return what makes the links, and what is mounted at, which later is read-only."""
        directory = quote(f"{_MOUNT_PATH}/{self.volume}")
        names = " ".join(map(quote, self.allocations))
        make_allocations = f"touch {names}" if self.is_raw else f"mkdir -p {names}"
        make_links = [
            f"ln -sfn {quote(target)} {quote(name)}" for name, target in self.links.items()
        ]
        return "\n".join(
            [
                "set -e",
                f"mkdir -p {directory}",
                f"cd {directory}",
                make_allocations,
                *make_links,
                "",
            ]
        )


def index_mount_for(
    volume: str,
    rabbit: str,
    nodes: Sequence[str],
    allocation_numbers: Mapping[str, int],
    *,
    is_raw: bool,
) -> IndexMount:
    """Return what is in the place of a storage on a rabbit, for these compute nodes.

    `allocation_numbers` say which allocation of their rabbit is theirs.
    """
    allocations = [f"{rabbit}-{allocation_numbers[node]}" for node in nodes]
    target_by_position = {f"node-{position}": name for position, name in enumerate(allocations)}
    target_by_node = {node: f"node-{position}" for position, node in enumerate(nodes)}
    # Where a node has the name of a position, that is what an application means by it.
    links = {
        name: target
        for name, target in {**target_by_node, **target_by_position}.items()
        if name not in allocations
    }
    return IndexMount(volume=volume, allocations=allocations, links=links, is_raw=is_raw)


def pod_volume() -> Object:
    """Write the volume of the pod."""
    return {"name": VOLUME, "emptyDir": {}}


def init_mount() -> Object:
    """Write the mount of the init container that makes the links."""
    return {"name": VOLUME, "mountPath": _MOUNT_PATH}
