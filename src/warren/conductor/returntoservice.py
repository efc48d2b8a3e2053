"""Rabbits that were disabled with storage of jobs go back into service.

Which of them, `dws.rabbits.selftest` decides.
"""

from warren.base.clock import Clock
from warren.base.objects import Key, Object, key_of
from warren.dws import kinds, labels
from warren.dws.jobs import abort
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storages import Storage
from warren.dws.rabbits import alerts, selftest
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler


class ReturnToService:
    """Reconciles each rabbit that is Disabled, by its name."""

    def __init__(
        self, client: Client, informers: Informers, clock: Clock, *, enabled: bool = False
    ) -> None:
        """Where it is not `enabled`, tests that were begun are taken away, and no more."""
        self._client = client
        self._clock = clock
        self._enabled = enabled
        self._storages = informers.of(kinds.STORAGE)
        self._servers = informers.of(kinds.SERVERS)
        self._workflows = informers.of(kinds.WORKFLOW)
        self._tests = informers.of(kinds.NNF_STORAGE)
        self.reconciler: Reconciler[str] = Reconciler("returning", self.reconcile, workers=1)
        self._storages.listen(lambda obj: self.reconciler.add(key_of(obj).name))
        self._servers.listen(self._servers_changed)
        self._tests.listen(self._test_changed)
        self._workflows.listen(self._workflow_changed)

    def configure(self, *, enabled: bool) -> None:
        """Return rabbits to service from now on, or do not."""
        if enabled != self._enabled:
            self._enabled = enabled
            for obj in self._storages.all():
                self.reconciler.add(key_of(obj).name)

    async def reconcile(self, rabbit: str) -> None:
        """Take the next step of a rabbit's way back."""
        raw = self._storages.get(Key(kinds.DEFAULT_NAMESPACE, rabbit))
        if raw is None:
            return
        storage = read(raw, Storage)
        raw_test = self._tests.get(selftest.test_key(rabbit))
        test = None if raw_test is None else read(raw_test, NnfStorage)
        if test is None and storage.spec.state != "Disabled":
            return
        is_wanted = (
            self._enabled
            and selftest.is_wanted(storage, abort.DISABLED_BY)
            and not self._has_storage_of_aborted_jobs(storage)
        )
        now = self._clock.now()
        writes = selftest.decide(storage, test, wanted=is_wanted, by=abort.DISABLED_BY, now=now)
        await perform(self._client, writes)

    def _has_storage_of_aborted_jobs(self, storage: Storage) -> bool:
        """Return whether storage of an aborted job is still to be taken from a rabbit."""
        # It is disabled before its Workflow is marked: this one holds it in between, too.
        disabled_for = storage.metadata.annotations.get(labels.DISABLED_FOR)
        if disabled_for is not None and self._workflows.get(Key.parse(disabled_for)) is not None:
            return True
        for each in self._servers.by_index("rabbit", storage.metadata.name):
            for name in labels.workflow_of(each):
                raw = self._workflows.get(Key.parse(name))
                if raw and abort.has_abort_annotation(raw):
                    return True
        return False

    def _workflow_changed(self, obj: Object) -> None:
        key = key_of(obj)
        if self._workflows.get(key) is not None or not abort.has_abort_annotation(obj):
            return
        for raw in self._storages.all():
            annotations = raw["metadata"].get("annotations") or {}
            if annotations.get(labels.DISABLED_FOR) == str(key):
                self.reconciler.add(key_of(raw).name)

    def _servers_changed(self, obj: Object) -> None:
        # Gone without a deletionTimestamp: that was while nothing was watched.
        if self._servers.get(key_of(obj)) is None or "deletionTimestamp" in obj["metadata"]:
            for rabbit in alerts.rabbits_of(obj):
                self.reconciler.add(rabbit)

    def _test_changed(self, obj: Object) -> None:
        # By its name: one of another's with it is in the way of a test.
        rabbit = selftest.rabbit_of(key_of(obj))
        if rabbit is not None:
            self.reconciler.add(rabbit)
