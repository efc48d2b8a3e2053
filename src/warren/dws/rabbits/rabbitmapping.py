"""Which compute nodes are wired to which rabbit, as a file that flux-coral2 writes and reads.

`flux rabbitmapping` and `warren rabbitmapping` write it (coral2-spec section 17), and
`rabbit.mapping` names it.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from warren.base.errors import UserMistake
from warren.dws import labels, reservednames
from warren.dws.objects.assignments import Servers
from warren.dws.objects.decoding import Malformed, read_json
from warren.dws.objects.storages import Storage
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.rfc import hostlist
from warren.rfc.errors import BadFormat


class Rabbit(msgspec.Struct, frozen=True):
    hostlist: str
    capacity: int = 0
    """Bytes."""


class RabbitMapping(msgspec.Struct, frozen=True):
    """The content of such a file."""

    computes: Mapping[str, str]
    """The rabbit of each compute node."""
    rabbits: Mapping[str, Rabbit]

    def computes_of(self, rabbits: Iterable[str]) -> list[str]:
        """Return the compute nodes of some rabbits. Raises UserMistake for an unknown one."""
        found: list[str] = []
        for rabbit in rabbits:
            if rabbit not in self.rabbits:
                raise UserMistake(
                    f"Could not find rabbit {rabbit}: {self._known_names('rabbits')}."
                )
            found += hostlist.decode(self.rabbits[rabbit].hostlist)
        return list(dict.fromkeys(found))

    def rabbits_of(self, computes: Iterable[str]) -> list[str]:
        """Return the rabbits of some compute nodes. Raises UserMistake for an unknown one."""
        found: list[str] = []
        for compute in computes:
            if compute not in self.computes:
                raise UserMistake(
                    f"Could not find compute {compute}: {self._known_names('computes')}."
                )
            found.append(self.computes[compute])
        return list(dict.fromkeys(found))

    def computes_by_rabbit(self) -> dict[str, list[str]]:
        """Return the compute nodes of each rabbit, in order.

        Raises UserMistake where both halves of the mapping do not say the same.
        """
        hosts_by_rabbit = {
            name: _decode_hosts(name, each.hostlist) for name, each in self.rabbits.items()
        }
        wired = [(host, name) for name, hosts in hosts_by_rabbit.items() for host in hosts]
        for host, rabbit in wired:
            if self.computes.get(host) != rabbit:
                other = self.computes.get(host, "no rabbit")
                raise UserMistake(
                    f"The rabbit mapping contradicts itself: {host} is in the hostlist of "
                    f"{rabbit}, and computes says {other}: write it anew."
                )
        unlisted = self.computes.keys() - dict(wired).keys()
        if unlisted or len(wired) != len(self.computes):
            contradiction = (
                f"{min(unlisted)} is in computes, and in no hostlist"
                if unlisted
                else "a hostlist names a node twice"
            )
            raise UserMistake(
                f"The rabbit mapping contradicts itself: {contradiction}: write it anew."
            )
        return hosts_by_rabbit

    def _known_names(self, field: str) -> str:
        names: Mapping[str, Any] = getattr(self, field)
        return f"the mapping has {hostlist.encode(names) or 'none'}"


def _decode_hosts(rabbit: str, text: str) -> list[str]:
    try:
        return hostlist.decode(text)
    except BadFormat as error:
        raise UserMistake(
            f"The rabbit mapping: rabbits.{rabbit}: {error}: write it anew."
        ) from None


def mapping_of(
    configuration: SystemConfiguration, storages: Iterable[Storage], servers: Iterable[Servers]
) -> RabbitMapping:
    """Return the mapping of a live system, without the flash that others than Flux have.

    A rabbit that says no capacity, or has no compute nodes, is taken to be like the largest one.
    `servers` are all that there are, or none for all flash. Raises UserMistake where a rabbit
    has nodes that the SystemConfiguration does not wire to it.
    """
    computes_by_rabbit: dict[str, list[str]] = {
        node.name: [] for node in configuration.spec.storage_nodes
    }
    rabbit_by_compute = configuration.rabbits_of_computes()
    for compute, rabbit in rabbit_by_compute.items():
        computes_by_rabbit[rabbit].append(compute)
    capacities = {}
    for storage in storages:
        name = storage.metadata.name
        _check_agreement(name, storage, rabbit_by_compute)
        if name in computes_by_rabbit:
            capacities[name] = storage.status.capacity
    largest = max(capacities.values(), default=0)
    taken_bytes = _bytes_outside_flux(servers)
    rabbits = {
        name: Rabbit(
            hostlist=hostlist.encode(hosts),
            capacity=max(((hosts and capacities.get(name)) or largest) - taken_bytes[name], 0),
        )
        for name, hosts in computes_by_rabbit.items()
    }
    return RabbitMapping(computes=dict(rabbit_by_compute), rabbits=rabbits)


def _check_agreement(name: str, storage: Storage, rabbit_by_compute: Mapping[str, str]) -> None:
    for link in storage.status.access.computes:
        if rabbit_by_compute.get(link.name) != name:
            wired = rabbit_by_compute.get(link.name, "no rabbit")
            raise UserMistake(
                f"Mismatch: Storage {name} has the compute node {link.name}, which the "
                f"SystemConfiguration wires to {wired}: correct the SystemConfiguration."
            )


def _bytes_outside_flux(servers: Iterable[Servers]) -> Counter[str]:
    """Return how many bytes of each rabbit belong to none of Flux's jobs."""
    taken_bytes: Counter[str] = Counter()
    for each in servers:
        if _is_of_flux_job(each):
            continue  # the scheduler gives it out itself
        for allocation_set in each.spec.allocation_sets:
            for server in allocation_set.storage:
                taken_bytes[server.name] += allocation_set.allocation_size * server.allocation_count
    return taken_bytes


def _is_of_flux_job(servers: Servers) -> bool:
    # Persistent storage outlives the job that has made it, whatever it is called.
    meta = servers.metadata
    return (
        meta.name.startswith(reservednames.FLUX_JOB_PREFIX)
        and labels.PERSISTENT_NAME not in meta.labels
    )


def parse(text: bytes, name: str) -> RabbitMapping:
    """Read a file's content. Raises UserMistake with `name` and the path of what is wrong."""
    try:
        return read_json(text, RabbitMapping)
    except Malformed as error:
        raise UserMistake(f"{name} is no rabbit mapping: {error}: write it anew.") from error
