"""Ports for containers: each NnfPortManager allocates them to Workflows (`containers.ports`)."""

from warren.base.clock import Clock
from warren.base.objects import Key, Object, key_of
from warren.dws import kinds
from warren.dws.containers import ports
from warren.dws.containers.ports import NnfPortManager, PortSnapshot
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class PortController:
    """Reconciles every NnfPortManager."""

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._managers = informers.of(kinds.PORT_MANAGER)
        self._configurations = informers.of(kinds.SYSTEM_CONFIGURATION)
        self._workflows = informers.of(kinds.WORKFLOW)
        self.reconciler: Reconciler[Key] = Reconciler("ports", self.reconcile)
        self._managers.listen(lambda obj: self.reconciler.add(key_of(obj)))
        self._configurations.listen(lambda obj: self._wake_all())
        self._workflows.listen(self._workflow_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfPortManager."""
        raw = self._managers.get(key)
        if raw is None:
            return None
        manager = read(raw, NnfPortManager)
        configuration = self._configurations.get(manager.spec.system_configuration.key)
        workflows = [self._workflows.get(each) for each in ports.workflows_of(raw)]
        snapshot = PortSnapshot(
            manager=manager,
            configuration=read(configuration, SystemConfiguration) if configuration else None,
            userid_by_workflow_uid={
                each["metadata"]["uid"]: each["spec"].get("userID", 0)
                for each in workflows
                if each is not None
            },
            now=self._clock.now(),
        )
        writes, delay = ports.decide(snapshot)
        await perform(self._client, writes)
        return delay

    def _wake_all(self) -> None:
        for each in self._managers.all():
            self.reconciler.add(key_of(each))

    def _workflow_changed(self, obj: Object) -> None:
        """Wake the managers that a Workflow has asked which is gone."""
        key = key_of(obj)
        if self._workflows.get(key) is None:
            for each in self._managers.all():
                if key in ports.workflows_of(each):
                    self.reconciler.add(key_of(each))
