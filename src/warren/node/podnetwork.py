"""The network of all pods of a machine: a bridge, in a network namespace that a process holds.

Nothing of it is in the machine's own network, and its addresses are no others'. For an ordinary
user the same process holds a user namespace, in which it may be made.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from warren.dws.node import NodeTrouble
from warren.node.namespaces import Namespace

BRIDGE: Final = "pods"

_MOST: Final = 2**16 - 2
_FIRST, _LAST = 2, 254


class PodNetwork(Namespace):
    """The bridge, and the namespaces that it is in. `ensure` makes them."""

    _kinds: Sequence[str] = ("--mount", "--net")
    _prepare = f"ip link add {BRIDGE} type bridge && ip link set {BRIDGE} up && ip link set lo up"

    def __init__(self, directory: Path) -> None:
        """`directory` remembers who holds it."""
        super().__init__(directory, directory)


def free_address(rabbit: int, taken: Sequence[str]) -> str:
    """Return an address for a pod of the machine's rabbit of this number, with its network.

    Each rabbit has 253 of its own, as each node of a Kubernetes cluster has. Raises NodeTrouble.
    """
    number = rabbit + 1
    if number > _MOST:
        raise NodeTrouble(f"rabbit {rabbit} is one too many for the network of pods", fatal=True)
    net = f"10.{number >> 8}.{number & 255}"
    for last in range(_FIRST, _LAST + 1):
        address = f"{net}.{last}/8"
        if address not in taken:
            return address
    raise NodeTrouble(f"all addresses of {net}.0/24 are in use: pods have to end first")
