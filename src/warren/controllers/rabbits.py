"""The nodes of the system, from the SystemConfiguration: a namespace for each, and for each rabbit
a Storage, which says what the rabbit says of itself, and its nodes of their links
(`dws.rabbits`)."""

from collections.abc import Mapping
from typing import Final

from warren.base.objects import Key, Object, Write, key_of
from warren.controllers.heartbeats import Heartbeats, lease_removals
from warren.dws import kinds
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import NnfNode, Storage
from warren.dws.objects.systemconfiguration import StorageNode, SystemConfiguration
from warren.dws.rabbits import configurationmistakes, links, rabbitstorages
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

_MIN_DELAY: Final = 0.01
"""Seconds after which a rabbit is looked at again, at least."""


class SystemController:
    """Reconciles the one SystemConfiguration, each rabbit by the key of its NnfNode, and each
    node's namespace by its own.

    An event of one node causes no reconcile of the others.
    """

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._configurations = informers.of(kinds.SYSTEM_CONFIGURATION)
        self._storages = informers.of(kinds.STORAGE)
        self._nnf_nodes = informers.of(kinds.NNF_NODE)
        self._namespaces = informers.of(kinds.NAMESPACE)
        self._configuration: SystemConfiguration | None = None
        self._rabbits: Mapping[Key, StorageNode] = {}
        """Those of the configuration, by the keys of their NnfNodes."""
        self._node_names: Mapping[str, None] = {}
        self._heartbeats = Heartbeats(informers, self._lease_changed)
        self._without_namespace: set[str] = set()
        """The nodes whose namespaces are still to be made."""
        self.reconciler: Reconciler[Key] = Reconciler("system", self.reconcile, workers=1)
        self._configurations.listen(lambda obj: self.reconciler.add(key_of(obj)))
        self._storages.listen(self._storage_changed)
        self._nnf_nodes.listen(self._nnf_node_changed)
        self._namespaces.listen(self._namespace_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile the configuration, or one rabbit."""
        if key == kinds.CONFIGURATION_KEY:
            await perform(self._client, self._configuration_writes())
        elif not key.namespace:
            await self._ensure_namespace(key)
        elif self._configuration is not None and key in self._rabbits:
            writes = self._rabbit_writes(self._configuration, key)
            await perform(self._client, [*self._heartbeats.missing_lease(key.namespace), *writes])
            if not writes:
                # After all else, which does not depend on it.
                await perform(
                    self._client, self._link_requests(self._configuration, self._rabbits[key])
                )
            status = self._configuration.status
            if not (writes or status.ready or status.error):
                self.reconciler.add(kinds.CONFIGURATION_KEY)
            return self._requeue_delay(key.namespace)
        else:
            raw = self._configurations.get(key)
            if raw is not None:
                await perform(
                    self._client, configurationmistakes.report(read(raw, SystemConfiguration))
                )
        return None

    def _configuration_writes(self) -> list[Write]:
        """Learn which rabbits there are; return the writes of the configuration and old rabbits."""
        raw = self._configurations.get(kinds.CONFIGURATION_KEY)
        old, configuration = self._configuration, read(raw, SystemConfiguration) if raw else None
        self._configuration = configuration
        if configuration is None:
            self._rabbits, self._node_names, self._without_namespace = {}, {}, set()
            return []
        if old is None or (old.spec, old.metadata.uid) != (
            configuration.spec,
            configuration.metadata.uid,
        ):
            self._rabbits = {
                _rabbit_key(each.name): each for each in configuration.spec.storage_nodes
            }
            for key in self._rabbits:
                self.reconciler.add(key)
            self._node_names = configuration.nodes()
            existing_names = {key.name for key in self._namespaces.keys()}  # noqa: SIM118
            self._without_namespace = {*self._node_names} - existing_names
            for name in sorted(self._without_namespace):
                self.reconciler.add(Key("", name))
        owner = f"{kinds.SYSTEM_CONFIGURATION.name} {kinds.CONFIGURATION_KEY}"
        own_storages = [read(obj, Storage) for obj in self._storages.by_index("owner", owner)]
        removals = rabbitstorages.remove_unknown(configuration, own_storages)
        all_removals = [*lease_removals(removals), *removals]
        is_at_work = not configuration.status.ready and (
            bool(self._without_namespace)
            or any(self._rabbit_writes(configuration, key) for key in self._rabbits)
        )
        if is_at_work and configurationmistakes.is_valid(configuration):
            return [*all_removals]
        return [*all_removals, *configurationmistakes.report(configuration)]

    async def _ensure_namespace(self, key: Key) -> None:
        """Make the namespace of a node that has none."""
        if self._configuration is None or key.name not in self._node_names:
            return
        if self._namespaces.get(key) is None:
            await perform(
                self._client, [rabbitstorages.namespace_for(self._configuration, key.name)]
            )
        # It is there, though it may not have been seen yet.
        self._without_namespace.discard(key.name)
        if not self._without_namespace and not self._configuration.status.ready:
            self.reconciler.add(kinds.CONFIGURATION_KEY)

    def _namespace_changed(self, obj: Object) -> None:
        key = key_of(obj)
        if key.name not in self._node_names:
            return
        if self._namespaces.get(key) is None:
            self.reconciler.add(key)
        elif self._nnf_nodes.get(_compute_key(key.name)) is None:
            rabbit = self._rabbit_key_of(key.name)
            if rabbit is not None and links.uses_network(self._nnf_node(rabbit)):
                self.reconciler.add(rabbit)

    def _rabbit_writes(self, configuration: SystemConfiguration, key: Key) -> list[Write]:
        rabbit = self._rabbits[key]
        storage = self._storages.get(Key(kinds.DEFAULT_NAMESPACE, rabbit.name))
        node = self._nnf_node(key)
        return list(
            rabbitstorages.decide(
                configuration,
                rabbit,
                read(storage, Storage) if storage is not None else None,
                node,
                self._nnf_nodes_of(rabbit) if links.uses_network(node) else {},
                agent_alive=self._heartbeats.seconds_until_offline(rabbit.name) != 0.0,
                lease_steady=(self._heartbeats.seconds_renewed(rabbit.name) or 0.0)
                >= links.SETTLE_SECONDS,
            )
        )

    def _requeue_delay(self, rabbit: str) -> float | None:
        """Return in how many seconds a rabbit is to be looked at without any event.

        There is none when a Lease is not renewed, and none when it has been renewed for long enough
        for its links to count.
        """
        until_offline = self._heartbeats.seconds_until_offline(rabbit)
        renewed_seconds = self._heartbeats.seconds_renewed(rabbit)
        if not until_offline or renewed_seconds is None or renewed_seconds >= links.SETTLE_SECONDS:
            return until_offline or None
        # What sums of seconds are off by is no time that passes.
        return min(until_offline, max(_MIN_DELAY, links.SETTLE_SECONDS - renewed_seconds))

    def _link_requests(
        self, configuration: SystemConfiguration, rabbit: StorageNode
    ) -> list[Write]:
        """Return what is to be written for a rabbit's nodes to test their links to it.

        Those that have no namespace are asked when they have one.
        """
        if not links.uses_network(self._nnf_node(_rabbit_key(rabbit.name))):
            return []
        nnf_nodes = self._nnf_nodes_of(rabbit)
        # A node that is listed twice, by mistake, is the last one's.
        node_names = [
            each.name
            for each in rabbit.computes_access
            if configuration.rabbits_of_computes()[each.name] == rabbit.name
            and self._has_namespace(each.name)
        ]
        return [
            write
            for name in node_names
            for write in links.request_writes(configuration, rabbit.name, name, nnf_nodes.get(name))
        ]

    def _has_namespace(self, node: str) -> bool:
        """Return whether something can be made in a node's namespace."""
        namespace = self._namespaces.get(Key("", node))
        return namespace is not None and not namespace["metadata"].get("deletionTimestamp")

    def _nnf_nodes_of(self, rabbit: StorageNode) -> dict[str, NnfNode]:
        """Return what the nodes of a rabbit say, by their names."""
        nnf_nodes = {
            each.name: self._nnf_node(_compute_key(each.name)) for each in rabbit.computes_access
        }
        return {name: node for name, node in nnf_nodes.items() if node is not None}

    def _nnf_node(self, key: Key) -> NnfNode | None:
        raw = self._nnf_nodes.get(key)
        return None if raw is None else read(raw, NnfNode)

    def _nnf_node_changed(self, obj: Object) -> None:
        key = key_of(obj)
        if key in self._rabbits:
            self.reconciler.add(key)
        elif key.name == links.NNF_NODE_NAME:
            rabbit = self._rabbit_key_of(key.namespace)
            if rabbit is not None:
                self.reconciler.add(rabbit)

    def _rabbit_key_of(self, compute: str) -> Key | None:
        if self._configuration is None:
            return None
        rabbit = self._configuration.rabbits_of_computes().get(compute)
        return None if rabbit is None else _rabbit_key(rabbit)

    def _lease_changed(self, rabbit: str) -> None:
        if _rabbit_key(rabbit) in self._rabbits:
            self.reconciler.add(_rabbit_key(rabbit))

    def _storage_changed(self, obj: Object) -> None:
        key = _rabbit_key(key_of(obj).name)
        # One of a rabbit that has left since is the configuration's to remove.
        self.reconciler.add(key if key in self._rabbits else kinds.CONFIGURATION_KEY)


def _rabbit_key(rabbit: str) -> Key:
    """Return the key of the NnfNode by which a rabbit reports itself."""
    return Key(rabbit, rabbitstorages.NNF_NODE_NAME)


def _compute_key(compute: str) -> Key:
    """Return the key of the NnfNode in which a compute node says how its link is."""
    return Key(compute, links.NNF_NODE_NAME)
