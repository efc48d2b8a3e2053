"""The SystemConfiguration: which rabbits there are, and which compute nodes each is wired to."""

from collections.abc import Mapping
from functools import cached_property

from warren.dws.objects.decoding import Struct
from warren.dws.objects.meta import Error, Meta


class ComputeAccess(Struct, frozen=True):
    name: str
    index: int = 0


class StorageNode(Struct, frozen=True):
    name: str
    type: str = "Rabbit"
    computes_access: tuple[ComputeAccess, ...] = ()


class ExternalCompute(Struct, frozen=True):
    name: str


class SystemConfigurationSpec(Struct, frozen=True):
    storage_nodes: tuple[StorageNode, ...] = ()
    external_compute_nodes: tuple[ExternalCompute, ...] = ()
    ports: tuple[int | str, ...] = ()
    """Numbers, and ranges such as 5000-5099."""
    ports_cooldown_in_seconds: int = 60
    container_host_port_range_min: int | None = None
    """The container RFC's form of `ports`, and so is the other end of the range."""
    container_host_port_range_max: int | None = None


class SystemConfigurationStatus(Struct, frozen=True):
    ready: bool = False
    error: Error | None = None


class SystemConfiguration(Struct, frozen=True, dict=True):
    metadata: Meta
    spec: SystemConfigurationSpec = SystemConfigurationSpec()
    status: SystemConfigurationStatus = SystemConfigurationStatus()

    def rabbits_of_computes(self) -> Mapping[str, str]:
        """Return the rabbit of each compute node that is wired to one.

        Made once: a job looks up a few of them.
        """
        return self._rabbits

    @cached_property
    def _rabbits(self) -> dict[str, str]:
        return {
            compute.name: node.name
            for node in self.spec.storage_nodes
            for compute in node.computes_access
        }

    def nodes(self) -> dict[str, None]:
        """Return the names of all nodes, rabbits and computes, in order."""
        return dict.fromkeys(
            [*(node.name for node in self.spec.storage_nodes), *self.rabbits_of_all_computes()]
        )

    def rabbits_of_all_computes(self) -> dict[str, str]:
        """Return the rabbit of each compute node; empty for external ones, which have none."""
        external = {node.name: "" for node in self.spec.external_compute_nodes}
        return external | self._rabbits
