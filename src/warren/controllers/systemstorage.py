"""NnfSystemStorages (decided in `dws.storage.systemstorage`)."""

from typing import Final, TypeVar

from warren.base.objects import Key, Kind, Object, key_of
from warren.controllers.live import REQUEUE_DELAY, read_live
from warren.dws import kinds
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storages import Storage
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.systemstorages import NnfSystemStorage
from warren.dws.rabbits import rabbitstorages
from warren.dws.storage import systemstorage
from warren.dws.storage.systemstorage import SystemStorageSnapshot
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

T = TypeVar("T")

DEPENDENT_KINDS: Final = (kinds.SERVERS, kinds.COMPUTES, kinds.NNF_STORAGE, kinds.NNF_ACCESS)
"""The kinds of what is made for a system storage: an object of each, with its name."""


class SystemStorageController:
    """Reconciles every NnfSystemStorage."""

    def __init__(self, client: Client, informers: Informers) -> None:
        self._client = client
        self._system_storages = informers.of(kinds.SYSTEM_STORAGE)
        self._dependents = {kind: informers.of(kind) for kind in DEPENDENT_KINDS}
        self._configurations = informers.of(kinds.SYSTEM_CONFIGURATION)
        self._storages = informers.of(kinds.STORAGE)
        self._profiles = informers.of(kinds.NNF_STORAGE_PROFILE)
        self.reconciler: Reconciler[Key] = Reconciler("system storage", self.reconcile)
        self._system_storages.listen(lambda obj: self.reconciler.add(key_of(obj)))
        self._configurations.listen(lambda obj: self._wake_all())
        self._storages.listen(self._rabbit_changed)
        self._profiles.listen(self._profile_changed)
        for informer in self._dependents.values():
            informer.listen(self._dependent_changed)

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfSystemStorage."""
        raw = self._system_storages.get(key)
        if raw is None:
            return None
        delay = None
        current = read(raw, NnfSystemStorage)
        snapshot = self._snapshot(
            current, {kind: each.get(key) for kind, each in self._dependents.items()}
        )
        if systemstorage.is_about_to_go(snapshot):
            # About to let go: what was just made may not have been seen yet.
            snapshot = self._snapshot(
                current,
                {kind: await read_live(self._client, kind, key) for kind in DEPENDENT_KINDS},
            )
            delay = REQUEUE_DELAY if snapshot.dependents else None
        await perform(self._client, systemstorage.decide(snapshot))
        return delay

    def _snapshot(
        self, current: NnfSystemStorage, dependents: dict[Kind, Object | None]
    ) -> SystemStorageSnapshot:
        def dependent(kind: Kind, type_: type[T]) -> T | None:
            obj = dependents[kind]
            return None if obj is None else read(obj, type_)

        configuration = self._configurations.get(kinds.CONFIGURATION_KEY)
        return SystemStorageSnapshot(
            object=current,
            configuration=read(configuration, SystemConfiguration) if configuration else None,
            is_usable=self._is_usable,
            has_profile=self._profiles.get(current.spec.storage_profile.key) is not None,
            servers=dependent(kinds.SERVERS, Servers),
            computes=dependent(kinds.COMPUTES, Computes),
            storage=dependent(kinds.NNF_STORAGE, NnfStorage),
            access=dependent(kinds.NNF_ACCESS, NnfAccess),
        )

    def _is_usable(self, rabbit: str) -> bool:
        raw = self._storages.get(Key(kinds.DEFAULT_NAMESPACE, rabbit))
        return raw is not None and rabbitstorages.is_usable(read(raw, Storage))

    def _wake_all(self) -> None:
        for key in self._system_storages.keys():  # noqa: SIM118
            self.reconciler.add(key)

    def _rabbit_changed(self, obj: Object) -> None:
        # There are few of these, and rabbits become ready seldom.
        if self._is_usable(key_of(obj).name):
            self._wake_all()

    def _profile_changed(self, obj: Object) -> None:
        for each in self._system_storages.by_index("system profile", str(key_of(obj))):
            self.reconciler.add(key_of(each))

    def _dependent_changed(self, obj: Object) -> None:
        # By name, whatever owns it: that a name is free again is an event, too.
        if self._system_storages.get(key_of(obj)) is not None:
            self.reconciler.add(key_of(obj))
