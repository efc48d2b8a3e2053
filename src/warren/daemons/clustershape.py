"""The cluster that is emulated on this machine: how many rabbits, nodes, and how large."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.journal import files
from warren.scheduling.topology import ChassisTopology, resource_set_with_graph

DEFAULT_CAPACITY: Final = 144 * GIB
DEFAULT_CORES: Final = 4


class ClusterShape(msgspec.Struct, frozen=True, kw_only=True):
    """What `warren up` was asked for. Kept in the state directory, so that it is again.

    Directories of older versions lack what has come since: every field has its default.
    """

    rabbits: int = 2
    computes_per_rabbit: int = 4
    cores: int = DEFAULT_CORES
    """Of each compute node: what the scheduler hands out, whatever the machine has."""
    capacity: int = DEFAULT_CAPACITY
    """Bytes of flash on each rabbit."""
    flash: Literal["directory", "image", "simulated"] = "directory"
    """What volumes are: directories, or loop devices on a disk image with file systems made; or
    directories whose nodes take the time, and have the faults, of others."""
    faults: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """These times and faults, as `node.behaviour` reads them."""
    devices: Mapping[str, str] = msgspec.field(default_factory=dict)
    """What rabbits have instead of an image, by rabbit: a block device, or `vg:` and a group."""
    global_file_systems: tuple[str, ...] = ()
    """Absolute paths that copies may come from and go to."""
    port: int | None = None
    """Of the API server; None takes the last one again if it is free, or any."""
    isolated: bool | None = None
    """Whether nodes have mount namespaces; None has them where the kernel allows it."""
    separate: bool = False
    """Whether API server, controllers, instance, conductor and the service for copies have a
    process each."""
    conductor: bool = True
    """Whether it has a conductor; if not, one is run beside it."""
    agents: bool = True
    """Whether it has its nodes' agents; if not, they are run beside it."""

    def chassis(self) -> list[ChassisTopology]:
        """Return the rabbits with their compute nodes, which are numbered through."""
        all_chassis = []
        for rabbit in range(self.rabbits):
            first = rabbit * self.computes_per_rabbit
            hosts = tuple(
                f"compute-{number:02d}" for number in range(first, first + self.computes_per_rabbit)
            )
            all_chassis.append(
                ChassisTopology(
                    rabbit=f"rabbit-{rabbit}", capacity_bytes=self.capacity, hosts=hosts
                )
            )
        return all_chassis

    def resource_set(self, quantum_gib: int | None = None) -> Mapping[str, Any]:
        """Return R of all nodes, with the resource graph; its flash is in quanta, if any."""
        return resource_set_with_graph("warren", self.chassis(), self.cores, quantum_gib)


def load(path: Path) -> ClusterShape | None:
    """Read what a state directory was made for; None if it was made for nothing yet."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=ClusterShape)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserMistake(f"{path} cannot be read: {error.strerror}.") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise UserMistake(
            f"{path}: {error}: it says what the cluster is; restore it from a copy, or begin anew "
            "with another state directory."
        ) from error


def save(path: Path, shape: ClusterShape) -> None:
    """Write a shape, whole or not at all, and for good."""
    files.replace(path, msgspec.json.format(msgspec.json.encode(shape)))
