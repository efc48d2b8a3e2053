"""A cluster's API in this process: the store, its rules, and what works behind it."""

import asyncio
from collections.abc import Iterator, Sequence

from warren.base.clock import Clock
from warren.base.objects import Kind, Object, key_of
from warren.journal import Journal
from warren.kube.admission import Admission, AdmissionChain, Denied, Review
from warren.kube.server.access import authorization
from warren.kube.server.access.authorization import Authorizer, escalation_message
from warren.kube.server.access.roles import default_roles
from warren.kube.server.builtin import BUILT_IN, NAMESPACE
from warren.kube.server.finalization import SYSTEM_NAMESPACES, Finalization, NamespaceLifecycle
from warren.kube.server.garbage import GarbageCollector
from warren.kube.server.history import History, ObjectChange
from warren.kube.server.store import Store
from warren.kube.server.webhooks.dispatch import WebhookAdmission


class NoEscalation:
    """Admits roles and bindings that hand out no more than their writer has."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def admit(self, review: Review) -> Object | None:
        if review.new is not None and review.kind in authorization.KINDS:
            missing = self._authorizer.escalated_permissions(
                review.user, review.kind, review.new, review.old
            )
            if missing:
                name = review.key.name
                raise Denied(escalation_message(review.user, review.kind, name, missing))
        return review.new


class EmbeddedApi:
    """The store of one cluster, and the parts that a real API has beside it."""

    def __init__(
        self,
        journal: Journal,
        clock: Clock,
        rules: Sequence[Admission] = (),
        history: History | None = None,
    ) -> None:
        """`rules` are asked one after the other, where a real cluster asks webhooks for them."""
        lifecycle = NamespaceLifecycle()
        self._webhooks = WebhookAdmission()
        self.authorizer = Authorizer(lambda kind: self.store.objects_of(kind))
        chain: list[Admission] = [
            lifecycle,
            self._webhooks.mutating,
            *rules,
            NoEscalation(self.authorizer),
            self._webhooks.validating,
        ]
        self.store = Store(journal, clock, AdmissionChain(chain), history=history)
        lifecycle.connect(self.store.get)
        self._webhooks.connect(self.store)
        self.store.listen(self._changed)
        self._garbage = GarbageCollector(self.store)
        self._finalization = Finalization(self.store)

    async def run(self) -> None:
        """Commit writes, and clear up behind them, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.store.run(), name="store")
            tasks.create_task(self._garbage.run(), name="garbage")
            tasks.create_task(self._finalization.run(), name="ending")
            tasks.create_task(self._webhooks.run(), name="webhooks")

    async def create_defaults(self) -> None:
        """Make what every cluster has, where it is not there yet. `run` must be running."""
        async with asyncio.TaskGroup() as tasks:
            for kind, obj in _default_objects():
                if self.store.is_absent(kind, key_of(obj)):
                    tasks.create_task(self.store.create(kind, obj))

    def _changed(self, change: ObjectChange) -> None:
        if change.group_resource in _ROLE_RESOURCES:
            self.authorizer.forget_policy()


_ROLE_RESOURCES = {(kind.group, kind.plural) for kind in authorization.KINDS}


def _default_objects() -> Iterator[tuple[Kind, Object]]:
    for name in SYSTEM_NAMESPACES:
        yield NAMESPACE, {"metadata": {"name": name}}
    kinds = {resource.kind_name: resource.kind(resource.versions[0]) for resource in BUILT_IN}
    for obj in default_roles():
        yield kinds[obj["kind"]], obj
