"""What a workload manager assigns to a Workflow: Servers and Computes."""

from collections.abc import Mapping
from typing import Any

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Meta


class ServersStorage(Struct, frozen=True):
    """How many allocations of a set a rabbit has; `name` is the rabbit's."""

    name: str
    allocation_count: int = 1


class ServersSet(Struct, frozen=True):
    label: str
    allocation_size: int
    storage: tuple[ServersStorage, ...] = ()


class ServersSpec(Struct, frozen=True):
    allocation_sets: tuple[ServersSet, ...] = ()


class ServersStatus(Struct, frozen=True):
    ready: bool = False
    allocation_sets: tuple[Mapping[str, Any], ...] = ()


class Servers(Struct, frozen=True):
    metadata: Meta
    spec: ServersSpec = ServersSpec()
    status: ServersStatus = ServersStatus()


class Compute(Struct, frozen=True):
    name: str


class Computes(Struct, frozen=True):
    metadata: Meta
    data: tuple[Compute, ...] = ()
