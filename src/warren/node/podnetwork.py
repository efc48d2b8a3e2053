"""The network of all pods of a machine: a bridge, in a network namespace that a process holds.

Nothing of it is in the machine's own network, and its addresses are no others'. For an ordinary
user the same process holds a user namespace, in which it may be made.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from warren.dws.node import NodeTrouble
from warren.node.namespaces import HeldMountNamespace

BRIDGE: Final = "pods"

_MOST_RABBITS: Final = 2**16 - 2
_FIRST_HOST, _LAST_HOST = 2, 254


class PodNetwork(HeldMountNamespace):
    """The bridge, and the namespaces that it is in. `ensure` makes them."""

    _namespace_options: Sequence[str] = ("--mount", "--net")
    _prepare_command = (
        f"ip link add {BRIDGE} type bridge && ip link set {BRIDGE} up && ip link set lo up"
    )

    def __init__(self, directory: Path) -> None:
        """`directory` remembers who holds it."""
        super().__init__(directory, directory)


def free_address(rabbit_index: int, used_addresses: Sequence[str]) -> str:
    """Return an address for a pod of the machine's rabbit of this number, with its network.

    Each rabbit has 253 of its own, as each node of a Kubernetes cluster has. Raises NodeTrouble.
    """
    number = rabbit_index + 1
    if number > _MOST_RABBITS:
        raise NodeTrouble(
            f"rabbit {rabbit_index} is one too many for the network of pods", fatal=True
        )
    prefix = f"10.{number >> 8}.{number & 255}"
    for host_number in range(_FIRST_HOST, _LAST_HOST + 1):
        address = f"{prefix}.{host_number}/8"
        if address not in used_addresses:
            return address
    raise NodeTrouble(f"all addresses of {prefix}.0/24 are in use: pods have to end first")


def host_address(cluster: str, rabbit_index: int) -> str:
    """Return the address of the machine's rabbit of this number, where its ports are.

    It is one of the loopback device's, of which there are enough for each rabbit to have its own.
    The rabbits of another `cluster` have others.
    """
    first, second, third = hashlib.sha256(cluster.encode()).digest()[:3]
    start = (first << 16 | second << 8 | third) % (2**24 - 2**17)
    number = start + 2**16 + 1 + rabbit_index  # nothing of 127.0.0.0/16, where others are
    return f"127.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
