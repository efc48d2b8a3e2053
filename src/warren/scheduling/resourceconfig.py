"""The resources that a configuration of Flux names, in its tables `[[resource.config]]`.

As `flux R parse-config` reads them: a host may be in several tables, and has what any gives it;
ranks are in the order in which hosts are named first.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from warren.base.errors import UserMistake
from warren.rfc import hostlist, idset, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.resource_set import NodeResources


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    hosts: str
    cores: str = ""
    gpus: str = ""
    properties: tuple[str, ...] = ()


class _Resource(msgspec.Struct, frozen=True):
    config: tuple[_Table, ...] = ()
    exclude: str | None = None


class _Rabbit(msgspec.Struct, frozen=True):
    mapping: str | None = None


class Configuration(msgspec.Struct, frozen=True):
    """What is read of a configuration of Flux."""

    resource: _Resource = _Resource()
    rabbit: _Rabbit = _Rabbit()


def read(tables: Mapping[str, Any], source: str) -> Configuration:
    """Read a configuration. Raises UserMistake, which names the `source`: a file, or a service."""
    try:
        return msgspec.convert(tables, Configuration)
    except msgspec.ValidationError as error:
        raise UserMistake(f"{source}: {error}.") from None


def resource_set_of(configuration: Configuration, source: str) -> dict[str, Any]:
    """Return the R that the tables describe. Raises UserMistake where they describe none."""
    cores_by_host: dict[str, set[int]] = {}
    gpus_by_host: dict[str, set[int]] = {}
    hosts_by_property: dict[str, set[str]] = {}
    for index, table in enumerate(configuration.resource.config):
        try:
            hosts = hostlist.decode(table.hosts)
            cores, gpus = set(idset.decode(table.cores)), set(idset.decode(table.gpus))
        except BadFormat as error:
            raise UserMistake(f"{source}: resource.config[{index}]: {error}.") from None
        for host in hosts:
            cores_by_host[host] = cores_by_host.get(host, set()) | cores
            gpus_by_host[host] = gpus_by_host.get(host, set()) | gpus
        for each in table.properties:
            hosts_by_property.setdefault(each, set()).update(hosts)
    if not cores_by_host:
        raise UserMistake(
            f"{source} names no resources: add a table [[resource.config]] with hosts."
        )
    without_cores = [host for host, ids in cores_by_host.items() if not ids]
    if without_cores:
        raise UserMistake(
            f"{source}: {hostlist.encode(without_cores)} has no cores in resource.config."
        )
    # Most hosts have what others have, and one tuple of it is enough.
    tuple_by_ids: dict[frozenset[int], tuple[int, ...]] = {}

    def ordered(ids: set[int]) -> tuple[int, ...]:
        return tuple_by_ids.setdefault(frozenset(ids), tuple(sorted(ids)))

    rank_by_host = {host: rank for rank, host in enumerate(cores_by_host)}
    return resource_set.encode_nodes(
        [
            NodeResources(rank, host, ordered(cores_by_host[host]), ordered(gpus_by_host[host]))
            for host, rank in rank_by_host.items()
        ],
        properties={
            each: [rank_by_host[host] for host in hosts]
            for each, hosts in hosts_by_property.items()
        },
    )
