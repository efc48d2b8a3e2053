"""The persistent storage of a cluster, as ingest asks about it: by name, where one is named."""

from collections.abc import Iterator, Mapping, Sequence

from warren.base.objects import Key, Object
from warren.dws import kinds, nodelocal
from warren.dws.breakdown.computeaccess import is_node_local
from warren.dws.objects.assignments import Servers
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.validation.facts import InstanceFacts, instance_facts
from warren.kube.informer import Informers


class StorageInstances(Mapping[str, InstanceFacts]):
    """The instances in the namespace of jobs' Workflows, by name."""

    def __init__(self, informers: Informers) -> None:
        self._instances = informers.of(kinds.PERSISTENT_INSTANCE)
        self._servers = informers.of(kinds.SERVERS)
        self._configurations = informers.of(kinds.SYSTEM_CONFIGURATION)
        self._raw_configuration: Object | None = None
        self._configuration: SystemConfiguration | None = None
        """What was seen, read once: it names every node of the system."""

    def __getitem__(self, name: str) -> InstanceFacts:
        raw = self._instances.get(Key(kinds.DEFAULT_NAMESPACE, name))
        if raw is None:
            raise KeyError(name)
        return instance_facts(raw)

    def __iter__(self) -> Iterator[str]:
        for raw in self._instances.all():
            if raw["metadata"]["namespace"] == kinds.DEFAULT_NAMESPACE:
                yield raw["metadata"]["name"]

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def nodes(self, name: str) -> Sequence[str] | None:
        """Return the nodes that an instance is for; None for all, and where it is not known yet."""
        instance = self.get(name)
        if instance is None or not is_node_local(instance.fs_type):
            return None
        servers = self._servers.get(Key(kinds.DEFAULT_NAMESPACE, name))
        sets = read(servers, Servers).spec.allocation_sets if servers is not None else ()
        raw = self._configurations.get(kinds.CONFIGURATION_KEY)
        if raw is not self._raw_configuration:
            self._raw_configuration, self._configuration = (
                raw,
                read(raw, SystemConfiguration) if raw else None,
            )
        if not sets or self._configuration is None:
            return None
        return nodelocal.nodes_of(sets[0], self._configuration)
