"""Which rabbits' agents are alive: by the Lease that each of them renews.

As Kubernetes has it for its nodes, there is a namespace with a Lease for each rabbit, of the
rabbit's name. What counts is how long a Lease has not changed, by the clock of the observer:
the moments in it are for people to read, and no two machines' clocks are compared. After a
restart of the controllers the time begins anew, so that no rabbit is given up for that.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import WarrenError
from warren.base.objects import Change, Create, Key, Object, Remove, key_of
from warren.base.times import rfc3339_micro
from warren.kube.client import Client, Refused
from warren.kube.informer import Informers
from warren.kube.leader import LEASE
from warren.kube.refusallog import RefusalLog

NAMESPACE: Final = "warren-node-lease"
"""Where the Leases are. Other Leases of a cluster, which may be many, are not looked at."""

_RETRY_DELAY: Final = 1.0
"""Seconds after which an agent tries again to renew its Lease."""


class Timing(msgspec.Struct, frozen=True, kw_only=True):
    """For how long a Lease counts, in seconds: as kubelets have it."""

    lease_duration: int = 40
    renew_period: float = 10.0


DEFAULT_TIMING: Final = Timing()


def lease_key(rabbit: str) -> Key:
    """Return the key of the Lease of a rabbit."""
    return Key(NAMESPACE, rabbit)


def lease_removals(storage_removals: Iterable[Remove]) -> list[Remove]:
    """Return the removals of the Leases of rabbits, from the removals of their Storages."""
    return [Remove(kind=LEASE, key=lease_key(each.key.name)) for each in storage_removals]


async def renew(client: Client, clock: Clock, rabbit: str, timing: Timing = DEFAULT_TIMING) -> None:
    """Renew the Lease of a rabbit until cancelled.

    It is not released then: an agent that is started again has lost nothing.
    """
    refusals = RefusalLog()
    while True:
        spec = {
            "holderIdentity": rabbit,
            "leaseDurationSeconds": timing.lease_duration,
            "renewTime": rfc3339_micro(clock.now()),
        }
        try:
            async with asyncio.timeout(timing.renew_period):
                await client.patch(Change(kind=LEASE, key=lease_key(rabbit), patch={"spec": spec}))
        except Refused as error:
            refusals.note_refusal(rabbit, str(error))
        except (WarrenError, TimeoutError) as error:
            # The controllers make it, and may not be there yet.
            log.info("lease not renewed", rabbit=rabbit, reason=str(error))
        else:
            refusals.note_success(rabbit)
            await asyncio.sleep(timing.renew_period)
            continue
        await asyncio.sleep(_RETRY_DELAY)


async def release(client: Client, clock: Clock, rabbit: str) -> None:
    """Report that a rabbit's agent has ended: for its supervisor, which has seen it end."""
    spec = {"holderIdentity": "", "renewTime": rfc3339_micro(clock.now())}
    try:
        await client.patch(Change(kind=LEASE, key=lease_key(rabbit), patch={"spec": spec}))
    except WarrenError as error:
        # It runs out by itself.
        log.info("lease not released", rabbit=rabbit, reason=str(error))


class _LeaseSnapshot(msgspec.Struct, frozen=True):
    """A Lease, and when it was first seen as it is."""

    spec: Object
    unchanged_since: float
    renewed_since: float | None
    """Since when it is renewed in time, as far as was seen here; None if that was not seen."""


class Heartbeats:
    """What the Leases of all rabbits say."""

    def __init__(self, informers: Informers, on_change: Callable[[str], None]) -> None:
        """`on_change` is told of rabbits whose agent has come or gone, and whose Lease is new."""
        self._leases = informers.of(LEASE, NAMESPACE)
        self._on_change = on_change
        self._lease_snapshots: dict[str, _LeaseSnapshot] = {}
        self._leases.listen(self._lease_changed)

    def missing_lease(self, rabbit: str) -> list[Create]:
        """Return the Lease that is to be made for a rabbit, if it has none."""
        if self._leases.get(lease_key(rabbit)) is not None:
            return []
        # Its agent will hold it.
        return [
            Create(
                kind=LEASE,
                object={"metadata": {"name": rabbit, "namespace": NAMESPACE}, "spec": {}},
            )
        ]

    def seconds_until_offline(self, rabbit: str) -> float | None:
        """Return in how many seconds a rabbit counts as Offline; 0 if it does.

        None where that is not known: no agent has ever renewed its Lease, as that of an
        older version does not.
        """
        seen = self._lease_snapshots.get(rabbit)
        if seen is None or "renewTime" not in seen.spec:
            return None
        if not seen.spec.get("holderIdentity"):
            return 0.0
        duration = seen.spec.get("leaseDurationSeconds") or DEFAULT_TIMING.lease_duration
        return max(0.0, seen.unchanged_since + duration - asyncio.get_running_loop().time())

    def seconds_renewed(self, rabbit: str) -> float | None:
        """Return for how many seconds a rabbit's Lease has been renewed in time.

        None where it is over, and where no renewal was seen here: a Lease that was found may be
        that of a rabbit without power, and counts for a while all the same.
        """
        seen = self._lease_snapshots.get(rabbit)
        if seen is None or seen.renewed_since is None or not self.seconds_until_offline(rabbit):
            return None
        return asyncio.get_running_loop().time() - seen.renewed_since

    def _lease_changed(self, obj: Object) -> None:
        rabbit = key_of(obj).name
        lease: Any = self._leases.get(lease_key(rabbit))
        if lease is None:
            self._lease_snapshots.pop(rabbit, None)
            self._on_change(rabbit)
            return
        spec = lease.get("spec") or {}
        seen = self._lease_snapshots.get(rabbit)
        if seen is not None and seen.spec == spec:
            return
        left_until_now = self.seconds_until_offline(rabbit)
        now = asyncio.get_running_loop().time()
        renewed_since = None
        if seen is not None:
            in_time = bool(left_until_now) and seen.renewed_since is not None
            renewed_since = seen.renewed_since if in_time else now
        self._lease_snapshots[rabbit] = _LeaseSnapshot(spec, now, renewed_since)
        if not left_until_now or not self.seconds_until_offline(rabbit):
            # A renewal in time is no event to look at: that is looked at when the time is over.
            self._on_change(rabbit)
