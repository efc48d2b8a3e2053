"""Kubernetes Events of Workflows and rabbits (`dws.kubeevents`), for `kubectl describe`."""

from typing import Final

from warren.base import log
from warren.base.clock import Clock
from warren.base.objects import Change, Key, Kind, Object, key_of
from warren.dws import kinds, kubeevents, labels
from warren.dws.kubeevents import EventContent
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.kube.client import AlreadyExists, Client, Forbidden, NotFound
from warren.kube.informer import Informers
from warren.kube.runtime import Reconciler

_COMPONENT: Final = "warren-controllers"


class EventRecorder:
    """Tells what is new of each Workflow and rabbit, by the plural of its kind and its key.

    What was told is not known after a restart: trouble is told again then, which makes no second
    Event, and that all is well is not.
    """

    def __init__(self, client: Client, informers: Informers, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._informers = {
            kind.plural: informers.of(kind) for kind in (kinds.WORKFLOW, kinds.STORAGE)
        }
        self._recorded: dict[tuple[str, Key], frozenset[EventContent]] = {}
        self.reconciler: Reconciler[tuple[str, Key]] = Reconciler(
            "events", self.reconcile, workers=1
        )
        informers.of(kinds.STORAGE).listen(self._rabbit_changed)
        informers.of(kinds.WORKFLOW).listen(self._workflow_changed)

    async def reconcile(self, about: tuple[str, Key]) -> None:
        """Tell what is new of an object."""
        plural, key = about
        raw = self._informers[plural].get(key)
        if raw is None:
            self._recorded.pop(about, None)
            return
        kind, meta, contents = _contents(plural, raw)
        recorded = self._recorded.get(about)
        for each in sorted(
            contents - (recorded or frozenset()), key=lambda content: content.reason
        ):
            if recorded is not None or each.warning:
                await self._record(kind, meta, each, first=recorded is None)
        self._recorded[about] = contents

    async def _record(self, kind: Kind, meta: Meta, content: EventContent, *, first: bool) -> None:
        now = self._clock.now()
        event = kubeevents.event(kind, meta, content, now, _COMPONENT)
        try:
            try:
                await self._client.create(kinds.EVENT, event)
            except AlreadyExists:
                if not first:
                    key = kubeevents.key(meta, content)
                    existing = await self._client.get(kinds.EVENT, key)
                    patch = kubeevents.repetition_patch(existing, now)
                    await self._client.patch(Change(kind=kinds.EVENT, key=key, patch=patch))
        except (Forbidden, NotFound) as error:
            # Nothing depends on it, and its object may be going with its namespace.
            log.info("event is not told", about=meta.name, reason=str(error))

    def _rabbit_changed(self, obj: Object) -> None:
        self.reconciler.add((kinds.STORAGE.plural, key_of(obj)))

    def _workflow_changed(self, obj: Object) -> None:
        about = (kinds.WORKFLOW.plural, key_of(obj))
        if about in self._recorded or _may_have_events(obj):
            self.reconciler.add(about)


def _may_have_events(workflow: Object) -> bool:
    """Return whether there may be Events of a Workflow: most live and die without any."""
    status = (workflow.get("status") or {}).get("status")
    annotations = workflow["metadata"].get("annotations") or {}
    return status in kubeevents.TROUBLE_STATUSES or not {
        labels.ABORTED,
        labels.LOST_NODES,
    }.isdisjoint(annotations)


def _contents(plural: str, raw: Object) -> tuple[Kind, Meta, frozenset[EventContent]]:
    if plural == kinds.WORKFLOW.plural:
        workflow = read(raw, Workflow)
        return kinds.WORKFLOW, workflow.metadata, kubeevents.of_workflow(workflow)
    storage = read(raw, Storage)
    return kinds.STORAGE, storage.metadata, kubeevents.of_storage(storage)
