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


def read(tables: Mapping[str, Any], name: str) -> Configuration:
    """Read a configuration, from the file of that name. Raises UserMistake."""
    try:
        return msgspec.convert(tables, Configuration)
    except msgspec.ValidationError as error:
        raise UserMistake(f"{name}: {error}.") from None


def resource_set_of(configuration: Configuration, name: str) -> dict[str, Any]:
    """Return R. Raises UserMistake where the tables describe none."""
    cores: dict[str, set[int]] = {}
    gpus: dict[str, set[int]] = {}
    properties: dict[str, set[str]] = {}
    for index, table in enumerate(configuration.resource.config):
        try:
            hosts = hostlist.decode(table.hosts)
            cores_and_gpus = set(idset.decode(table.cores)), set(idset.decode(table.gpus))
        except BadFormat as error:
            raise UserMistake(f"{name}: resource.config[{index}]: {error}.") from None
        for host in hosts:
            cores[host] = cores.get(host, set()) | cores_and_gpus[0]
            gpus[host] = gpus.get(host, set()) | cores_and_gpus[1]
        for each in table.properties:
            properties.setdefault(each, set()).update(hosts)
    if not cores:
        raise UserMistake(f"{name} names no resources: add a table [[resource.config]] with hosts.")
    without_cores = [host for host, ids in cores.items() if not ids]
    if without_cores:
        raise UserMistake(
            f"{name}: {hostlist.encode(without_cores)} has no cores in resource.config."
        )
    # Most hosts have what others have, and one tuple of it is enough.
    tuple_by_ids: dict[frozenset[int], tuple[int, ...]] = {}

    def ordered(ids: set[int]) -> tuple[int, ...]:
        return tuple_by_ids.setdefault(frozenset(ids), tuple(sorted(ids)))

    ranks = {host: rank for rank, host in enumerate(cores)}
    return resource_set.encode_nodes(
        [
            NodeResources(rank, host, ordered(cores[host]), ordered(gpus[host]))
            for host, rank in ranks.items()
        ],
        properties={each: [ranks[host] for host in hosts] for each, hosts in properties.items()},
    )
