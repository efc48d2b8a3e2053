"""Pods of one node: what a kubelet does, where the embedded cluster's rabbits have none.

A pod that is run has a finalizer of ours, so that it goes when nothing of it runs any more.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, suppress
from typing import Final, NamedTuple, Protocol

from warren.base import log
from warren.base.clock import Clock
from warren.base.objects import Change, Key, Kind, Object, key_of
from warren.base.times import parse_rfc3339
from warren.controllers.pulls import Pulls
from warren.controllers.users import UserKey, user_getter
from warren.dws import kinds, labels, reports
from warren.dws.node import NodeTrouble
from warren.dws.objects.decoding import read
from warren.dws.pods import plans, podstatus
from warren.dws.pods.plans import Image, MissingReference, References, UnsupportedPod
from warren.dws.pods.pod import Pod, PodState
from warren.kube.client import Client, NotFound
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

FINALIZER: Final = "warren.cluster/pod"

MAX_RETRY_DELAY: Final = 20.0
"""The longest pause before what has failed is tried again, in seconds: a job waits for the pod."""

_PULLING_MESSAGE: Final = "the images of the pod are being fetched"

_FOLLOW_RETRY_DELAY: Final = 5.0
"""Seconds until a pod that could not be followed is followed again."""


class PodId(NamedTuple):
    """A pod, and not its namesakes."""

    key: Key
    uid: str


class NotBegun(NodeTrouble):
    """A pod cannot begin yet."""

    delay = 1.0


class _PodSnapshot(NamedTuple):
    """What is compared of a pod, as the informer saw it last."""

    own_fields: Object
    """Those from which follows what is to be done. Not its status, which is written here."""
    sibling_fields: Object
    """Those that other pods of its subdomain know of it."""


class PodRunner(Protocol):
    """What runs pods on one node. Everything raises NodeTrouble where it fails."""

    @property
    def host_address(self) -> str:
        """The address of the node."""
        ...

    async def why_unavailable(self) -> str | None:
        """Return why no pods can be run here; None if they can."""
        ...

    def uids(self) -> Sequence[str]:
        """Return the uids of the pods that there are, alive or not."""
        ...

    def state(self, uid: str) -> PodState | None:
        """Return how a pod is; None for one that has not begun."""
        ...

    def address(self, uid: str) -> str | None:
        """Return the address of a pod that there is."""
        ...

    async def ensure_image(self, reference: str) -> Image:
        """Return an image, fetched and unpacked if it must be."""
        ...

    async def start(self, uid: str, make_plan: Callable[[str], Object]) -> None:
        """Begin a pod, unless it has begun. `make_plan` makes its plan, for the address it has."""
        ...

    def follow(self, uid: str) -> AsyncIterator[PodState]:
        """Return how a pod is, and again each time that it changes, until its process has ended."""
        ...

    def stop(self, uid: str) -> None:
        """Ask a pod's containers to end, and have them killed when their time for that is over."""
        ...

    async def remove(self, uid: str) -> None:
        """End a pod at once, if it is alive, and forget it."""
        ...

    def tell_hosts(self, uid: str, text: str) -> None:
        """Have a living pod's containers know hosts by what /etc/hosts says."""
        ...


class PodReconciler:
    """Makes what runs on a node what its pods say."""

    def __init__(
        self,
        client: Client,
        informers: Informers,
        runner: PodRunner,
        clock: Clock,
        node: str,
        *,
        max_retry_delay: float = MAX_RETRY_DELAY,
    ) -> None:
        """`informers` have the index `subdomain` of pods (`podstatus.subdomain_of`).

        What has failed is tried again after `max_retry_delay` seconds at most.
        """
        self._client = client
        self._runner = runner
        self._clock = clock
        self._node = node
        self._pods = informers.of(kinds.POD, kinds.DEFAULT_NAMESPACE)
        self._followed: set[PodId] = set()
        self._to_follow: asyncio.Queue[PodId] = asyncio.Queue()
        user = user_getter(self._pods, _user_of)
        self.reconciler: Reconciler[PodId] = Reconciler(
            "pods",
            self.reconcile,
            user=lambda pod_id: user(pod_id.key),
            max_retry_delay=max_retry_delay,
        )
        self._pulls: Pulls[PodId] = Pulls(
            runner.ensure_image, self.reconciler.add, max_retry_delay=max_retry_delay
        )
        self._pods.listen_to_changes(self._pod_changed)

    async def run(self) -> None:
        """Follow the pods that run, and fetch images, until cancelled. Pods outlive that."""
        await self._pods.wait_synced()
        present_uids = {obj["metadata"]["uid"] for obj in self._pods.all()}
        for uid in self._runner.uids():
            if uid not in present_uids:  # it went while there was no agent
                self.reconciler.add(PodId(Key(kinds.DEFAULT_NAMESPACE, uid), uid))
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._pulls.run(), name="images")
            while True:
                pod_id = await self._to_follow.get()
                tasks.create_task(self._follow(pod_id), name=f"pod {pod_id.key}")

    async def reconcile(self, pod_id: PodId) -> float | None:
        """Reconcile a pod."""
        raw = self._pods.get(pod_id.key)
        if raw is None or raw["metadata"]["uid"] != pod_id.uid:
            self._pulls.forget(pod_id)
            await self._runner.remove(pod_id.uid)
            return None
        pod = read(raw, Pod)
        if pod.metadata.deleting or pod.has_ended:
            self._pulls.forget(pod_id)
            return await self._end_pod(pod_id, pod) if pod.metadata.deleting else None
        if FINALIZER not in pod.metadata.finalizers:
            await perform(
                self._client, [_change_finalizers(pod, (*pod.metadata.finalizers, FINALIZER))]
            )
            return None  # there is an event of that
        now = self._clock.now()
        seconds_left = _seconds_left(pod, now)
        is_overdue = seconds_left is not None and seconds_left <= 0
        state = self._runner.state(pod_id.uid)
        if state is None and not is_overdue:
            state = await self._begin(pod_id, pod, raw)
            if state is None:
                return seconds_left
        self._pulls.forget(pod_id)
        if state is None:
            await self._report(pod, raw, podstatus.deadline_exceeded_status(raw, now))
            return None
        if state.alive:
            self._ensure_followed(pod_id)
            address = self._runner.address(pod_id.uid) or ""
            self._runner.tell_hosts(pod_id.uid, podstatus.hosts(raw, address, self._siblings(raw)))
            if is_overdue and not state.stopped:
                self._runner.stop(pod_id.uid)
        addresses = (self._runner.address(pod_id.uid) or "", self._runner.host_address)
        status = podstatus.running_status(
            raw, state, self._clock.now(), addresses, past_deadline=is_overdue
        )
        await self._report(pod, raw, status)
        return None if is_overdue else seconds_left

    async def _begin(self, pod_id: PodId, pod: Pod, raw: Object) -> PodState | None:
        """Begin a pod; None where it has not, and the reason is told."""
        now = self._clock.now()
        try:
            images = self._pulls.images(pod_id, plans.images_of(raw))
        except NodeTrouble as trouble:
            await self._report(
                pod, raw, podstatus.waiting_status(raw, now, "ErrImagePull", str(trouble))
            )
            return None  # it is tried again, and there is an event of that
        if images is None:
            await self._report(
                pod, raw, podstatus.waiting_status(raw, now, "Pulling", _PULLING_MESSAGE)
            )
            return None  # there is an event of their end
        namespace = pod.metadata.namespace
        config_maps = await self._read_named(kinds.CONFIG_MAP, namespace, plans.config_maps_of(raw))
        secrets = await self._read_named(kinds.SECRET, namespace, plans.secrets_of(raw))

        # Not in `make_plan`, which may be in a thread. What changes later is told when it runs.
        siblings = self._siblings(raw)

        def make_plan(address: str) -> Object:
            references = References(
                images=images,
                config_maps=config_maps,
                secrets=secrets,
                address=address,
                host_address=self._runner.host_address,
            )
            hosts = podstatus.hosts(raw, address, siblings)
            return {**plans.plan(raw, references), "hosts": hosts}

        try:
            await self._runner.start(pod_id.uid, make_plan)
        except UnsupportedPod as unsupported:
            await self._report(
                pod, raw, podstatus.refused_status(raw, now, "Unfit", str(unsupported))
            )
            return None
        except MissingReference as missing:
            status = podstatus.waiting_status(raw, now, "CreateContainerConfigError", str(missing))
            await self._report(pod, raw, status)
            raise NotBegun(str(missing)) from missing
        except NodeTrouble as trouble:
            status = podstatus.waiting_status(raw, now, "CreatePodSandboxError", str(trouble))
            await self._report(pod, raw, status)
            raise NotBegun(str(trouble), fatal=trouble.fatal) from trouble
        return self._runner.state(pod_id.uid)

    async def _end_pod(self, pod_id: PodId, pod: Pod) -> float | None:
        """End what runs of a pod that is to go, and let go of it."""
        state = self._runner.state(pod_id.uid)
        if state is not None and state.alive:
            self._ensure_followed(pod_id)
            if not state.stopped:
                self._runner.stop(pod_id.uid)
            return None  # its end is an event
        await self._runner.remove(pod_id.uid)
        if FINALIZER in pod.metadata.finalizers:
            other_finalizers = tuple(each for each in pod.metadata.finalizers if each != FINALIZER)
            await perform(self._client, [_change_finalizers(pod, other_finalizers)])
        return None

    async def _read_named(self, kind: Kind, namespace: str, names: set[str]) -> dict[str, Object]:
        objects = {}
        for name in sorted(names):
            with suppress(NotFound):
                objects[name] = await self._client.get(kind, Key(namespace, name))
        return objects

    async def _report(self, pod: Pod, raw: Object, status: Object) -> None:
        current = raw.get("status") or {}
        if any(current.get(name) != value for name, value in status.items()):
            await perform(self._client, [reports.status(kinds.POD, pod.metadata, status)])

    def _siblings(self, raw: Object) -> list[Object]:
        """Return the pods that are in the subdomain of one."""
        return [
            each
            for subdomain in podstatus.subdomain_of(raw)
            for each in self._pods.by_index("subdomain", subdomain)
        ]

    def _pod_changed(self, before: Object | None, after: Object | None) -> None:
        old, new = _pod_snapshot(before), _pod_snapshot(after)
        versions = [obj for obj in (before, after) if obj is not None]
        affected = versions if old.own_fields != new.own_fields else []
        if old.sibling_fields != new.sibling_fields:
            affected = [*affected, *(each for obj in versions for each in self._siblings(obj))]
        for each in affected:
            if self._is_here(each):
                self.reconciler.add(PodId(key_of(each), each["metadata"]["uid"]))

    def _is_here(self, obj: Object) -> bool:
        return bool((obj.get("spec") or {}).get("nodeName") == self._node)

    def _ensure_followed(self, pod_id: PodId) -> None:
        if pod_id not in self._followed:
            self._followed.add(pod_id)
            self._to_follow.put_nowait(pod_id)

    async def _follow(self, pod_id: PodId) -> None:
        try:
            async with aclosing(self._runner.follow(pod_id.uid)) as states:  # type: ignore[type-var]
                async for _ in states:
                    self.reconciler.add(pod_id)
        except Exception as trouble:  # one pod's is not that of the others
            log.warning("pod not followed", pod=str(pod_id.key), reason=str(trouble))
            await asyncio.sleep(_FOLLOW_RETRY_DELAY)
        finally:
            self._followed.discard(pod_id)
            self.reconciler.add(pod_id)


def _user_of(obj: Object) -> UserKey:
    """Return the user that a pod runs as; of one that does not say, the UID of its Workflow."""
    spec = obj.get("spec") or {}
    for each in (*(spec.get("containers") or ()), spec):
        user: UserKey = (each.get("securityContext") or {}).get("runAsUser")
        if user is not None:
            return user
    workflow_uid: UserKey = (obj["metadata"].get("labels") or {}).get(labels.WORKFLOW_UID)
    return workflow_uid


def _change_finalizers(pod: Pod, finalizers: tuple[str, ...]) -> Change:
    return Change(
        kind=kinds.POD,
        key=pod.metadata.key,
        patch={"metadata": {"finalizers": [*finalizers] or None}},
        resource_version=pod.metadata.resource_version,
    )


def _pod_snapshot(obj: Object | None) -> _PodSnapshot:
    if obj is None:
        return _PodSnapshot({}, {})
    meta = obj["metadata"]
    own_fields = {
        "uid": meta["uid"],
        "deletionTimestamp": meta.get("deletionTimestamp"),
        "finalizers": meta.get("finalizers"),
        "spec": obj.get("spec"),
    }
    return _PodSnapshot(own_fields, podstatus.hosts_entry(obj))


def _seconds_left(pod: Pod, now: float) -> float | None:
    """Return for how many seconds a pod may still run, counted from now if it has not begun."""
    limit, started_at = pod.spec.active_deadline_seconds, pod.status.start_time
    if limit is None:
        return None
    return limit if started_at is None else parse_rfc3339(started_at) + limit - now
