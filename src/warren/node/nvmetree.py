"""What is to be changed in the kernel's tree of NVMe targets, from what is there. Pure.

The kernel shows its targets as directories (configfs): each one that is made is a part of a
target, each attribute a file, and each link says that one part may use another.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from warren.node.nvmenames import NvmeVolume, dhchap_key, host_nqn, model_number

NAMESPACE: Final = "1"

KEY_ATTRIBUTE: Final = "dhchap_key"
"""The attribute of a host that has its key."""


class Make(msgspec.Struct, frozen=True):
    """Make a directory, if there is none."""

    path: str


@dataclass(frozen=True)
class Write:
    """Write an attribute, one that only root may read if it is `root_only`."""

    path: str
    text: str = field(repr=False)
    root_only: bool = False


class Link(msgspec.Struct, frozen=True):
    """Make a link to another directory, if there is none."""

    path: str
    to: str


class Unlink(msgspec.Struct, frozen=True):
    """Remove a link, if there is one."""

    path: str


class Remove(msgspec.Struct, frozen=True):
    """Remove a directory, if it is there. One that others use may stay, with `unless_used`."""

    path: str
    unless_used: bool = False


Step = Make | Write | Link | Unlink | Remove


class Subsystem(msgspec.Struct, frozen=True, kw_only=True):
    """A subsystem that is there."""

    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    namespaces: Mapping[str, Mapping[str, str]] = msgspec.field(default_factory=dict)
    """Their attributes."""
    hosts: frozenset[str] = frozenset()
    """The NQNs of the hosts that are let in."""


class Port(msgspec.Struct, frozen=True, kw_only=True):
    """A port that is there."""

    attributes: Mapping[str, str] = msgspec.field(default_factory=dict)
    subsystems: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class TargetTree:
    """All targets of a machine, and what is no rabbit's among them."""

    subsystems: Mapping[str, Subsystem] = field(default_factory=dict)
    ports: Mapping[str, Port] = field(default_factory=dict)
    keys: Mapping[str, str] = field(default_factory=dict, repr=False)
    """By which hosts prove who they are; empty texts of those that need not."""


class ListenAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The address at which a rabbit's volumes are reached."""

    address: str
    """An IP address."""
    port: int = 4420
    """The TCP port: the transport service id of NVMe, `trsvcid`."""

    @property
    def attributes(self) -> dict[str, str]:
        """The attributes of the port that listens there."""
        return {
            "addr_trtype": "tcp",
            "addr_adrfam": "ipv6" if ":" in self.address else "ipv4",
            "addr_traddr": self.address,
            "addr_trsvcid": str(self.port),
        }


def export_steps(
    tree: TargetTree,
    target: NvmeVolume,
    device: str,
    nodes: Collection[str],
    listen_address: ListenAddress,
    secret: bytes | None = None,
) -> Sequence[Step]:
    """Return what makes a volume's device reachable for some nodes and for no others.

    With a `secret` they have to prove who they are.
    """
    subsystem = tree.subsystems.get(target.nqn, Subsystem())
    keys = {host_nqn(node): "" if secret is None else dhchap_key(secret, node) for node in nodes}
    hosts = keys.keys()
    port_number, port = _find_port(tree, listen_address)
    base = f"subsystems/{target.nqn}"
    steps: list[Step] = []
    removed_hosts = subsystem.hosts - hosts
    if removed_hosts:
        # Hosts that are connected stay so, also when access changes: all are cut off, and the
        # others come back by themselves.
        steps += _unlink_ports(tree, target.nqn)
        port = Port(attributes=port.attributes, subsystems=port.subsystems - {target.nqn})
    steps += [Unlink(f"{base}/allowed_hosts/{each}") for each in sorted(removed_hosts)]
    steps += [Remove(f"hosts/{each}", unless_used=True) for each in sorted(removed_hosts)]
    if target.nqn not in tree.subsystems:
        steps.append(Make(base))
    attributes = {
        "attr_allow_any_host": "0",
        "attr_model": model_number(target.rabbit),
        "attr_serial": target.serial,
    }
    steps += _write_steps(base, attributes, subsystem.attributes)
    steps += _namespace_steps(base, target, device, subsystem)
    for each in sorted(hosts):
        if each not in subsystem.hosts:
            steps.append(Make(f"hosts/{each}"))
        # Before it is let in.
        if keys[each] and tree.keys.get(each) != keys[each]:
            steps.append(Write(f"hosts/{each}/{KEY_ATTRIBUTE}", keys[each], root_only=True))
        if each not in subsystem.hosts:
            steps.append(Link(f"{base}/allowed_hosts/{each}", f"hosts/{each}"))
    if port_number not in tree.ports:
        steps.append(Make(f"ports/{port_number}"))
    steps += _write_steps(f"ports/{port_number}", listen_address.attributes, port.attributes)
    # Last: a host that connects finds all of it.
    if target.nqn not in port.subsystems:
        steps.append(Link(f"ports/{port_number}/subsystems/{target.nqn}", base))
    return steps


def withdraw_steps(tree: TargetTree, nqn: str) -> Sequence[Step]:
    """Return what takes a subsystem away, with what would be left of it."""
    subsystem = tree.subsystems.get(nqn)
    if subsystem is None:
        return []
    base = f"subsystems/{nqn}"
    steps: list[Step] = [*_unlink_ports(tree, nqn)]
    steps += [Unlink(f"{base}/allowed_hosts/{each}") for each in sorted(subsystem.hosts)]
    for number in subsystem.namespaces:
        steps.append(Write(f"{base}/namespaces/{number}/enable", "0"))
        steps.append(Remove(f"{base}/namespaces/{number}"))
    steps.append(Remove(base))
    steps += [Remove(f"hosts/{each}", unless_used=True) for each in sorted(subsystem.hosts)]
    steps += [
        Remove(f"ports/{number}", unless_used=True)
        for number, port in tree.ports.items()
        if port.subsystems == {nqn}
    ]
    return steps


def subsystems_of_rabbit(tree: TargetTree, rabbit: str) -> list[str]:
    """Return the names of the subsystems that are a rabbit's, as their model number says.

    One that was about to be made when its agent died has none yet: it offers nothing.
    """
    own_model = model_number(rabbit)
    return [
        nqn
        for nqn, subsystem in tree.subsystems.items()
        if subsystem.attributes["attr_model"] == own_model
    ]


def _unlink_ports(tree: TargetTree, nqn: str) -> Iterator[Unlink]:
    for number, port in tree.ports.items():
        if nqn in port.subsystems:
            yield Unlink(f"ports/{number}/subsystems/{nqn}")


def _namespace_steps(
    base: str, target: NvmeVolume, device: str, subsystem: Subsystem
) -> Iterator[Step]:
    path = f"{base}/namespaces/{NAMESPACE}"
    current_attributes = subsystem.namespaces.get(NAMESPACE)
    new_attributes = {
        "device_path": device,
        "device_uuid": target.namespace_uuid,
        "device_nguid": target.namespace_uuid,
    }
    if current_attributes is None:
        yield Make(path)
        current_attributes = {}
    changes = list(_write_steps(path, new_attributes, current_attributes))
    enabled = current_attributes.get("enable") == "1"
    if enabled and changes:
        yield Write(f"{path}/enable", "0")  # the kernel takes no change of what is enabled
    yield from changes
    if changes or not enabled:
        yield Write(f"{path}/enable", "1")


def _write_steps(
    base: str, wanted: Mapping[str, str], current: Mapping[str, str]
) -> Iterator[Write]:
    for name, text in wanted.items():
        if current.get(name) != text:
            yield Write(f"{base}/{name}", text)


def _find_port(tree: TargetTree, listen_address: ListenAddress) -> tuple[str, Port]:
    """Return the port that listens there, or the number of a new one."""
    wanted = listen_address.attributes.items()
    for number, port in tree.ports.items():
        if wanted <= port.attributes.items():
            return number, port
    # One that was about to be made when its agent died listens nowhere, and is taken.
    free_number = next(
        str(number)
        for number in range(1, 2**16)
        if str(number) not in tree.ports
        or not (
            tree.ports[str(number)].subsystems
            or tree.ports[str(number)].attributes.get("addr_traddr")
        )
    )
    return free_number, tree.ports.get(free_number, Port())
