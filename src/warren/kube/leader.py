"""One leader at a time among processes that could do the same work, by a Lease of the API.

The leader renews the Lease; a replica that waits watches how long it has not
changed, by its own clock alone. No replica compares what another machine's clock
said: the moments in a Lease are for people to read. So there is never a second
leader as long as all clocks run at the same rate, and each leader's part ends
within what is left of the Lease once it is cancelled.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import Retryable, WarrenError
from warren.base.objects import Change, Key, Kind, Object
from warren.base.times import rfc3339_micro
from warren.kube.client import AlreadyExists, Client, Forbidden, NotFound
from warren.kube.refusallog import RefusalLog

LEASE: Final = Kind("coordination.k8s.io", "v1", "Lease", "leases")

_JITTER: Final = 0.2
"""How much longer a candidate's pause may become, so that two do not ask at the same time."""


class LeaseLost(Retryable):
    """Another replica may lead by now: begin anew as one that waits."""


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """For how long a Lease counts, in seconds."""

    lease_duration: int = 15
    """How long others leave a Lease alone that is not renewed."""
    renew_deadline: float = 10.0
    """How long a leader goes on without having renewed it. What is left of `lease_duration` after
    that is the time that its work has to end."""
    retry_period: float = 2.0
    """The pause between two tries."""

    def __post_init__(self) -> None:
        if not 0 < self.retry_period < self.renew_deadline < self.lease_duration:
            raise ValueError(f"a leader by {self} would not let go before another one leads")


DEFAULT_TIMING: Final = LeaseTiming()


def _ignore(leads: bool) -> None:
    """Do nothing."""


async def lead(
    client: Client,
    clock: Clock,
    key: Key,
    identity: str,
    run: Callable[[], Awaitable[None]],
    *,
    timing: LeaseTiming = DEFAULT_TIMING,
    jitter: Callable[[], float] = random.random,
    on_change: Callable[[bool], None] = _ignore,
) -> None:
    """Wait to become the leader, and `run` for as long as that holds.

    `key` is that of the Lease, and `identity` that of this life of this process: no other's, nor
    that of a leader that may still be alive. `on_change` is called when leading begins and ends.
    When `run` has ended, or has been cancelled, the Lease is given back, so that the next leader
    need not wait. Raises LeaseLost once `run` has ended after the Lease was lost, and Refused
    where the API will have none; what `run` raises comes in a group. While our role does not let
    us have the Lease, it waits.
    """
    candidate = _Candidate(client, clock, key, identity, timing)
    await candidate.acquire(jitter)
    log.info("leading", lease=str(key), identity=identity)
    on_change(True)
    try:
        was_lost = await _run_while_renewing(candidate, run)
    finally:
        on_change(False)
        await candidate.release()
    if was_lost:
        raise LeaseLost(f"the lease {key} could not be renewed")


async def _run_while_renewing(candidate: "_Candidate", run: Callable[[], Awaitable[None]]) -> bool:
    """Call `run` while the Lease is renewed; return whether it had to end because that failed."""
    async with asyncio.TaskGroup() as tasks:
        renewing = tasks.create_task(candidate.keep_renewing(), name="lease")
        leading = tasks.create_task(_await(run), name="leader")
        try:
            await asyncio.wait({renewing, leading}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            was_lost = not leading.done()
            # The Lease is renewed for as long as `run` takes to end.
            leading.cancel()
            await asyncio.wait({leading})
            renewing.cancel()
    return was_lost


async def _await(run: Callable[[], Awaitable[None]]) -> None:
    await run()


class _Candidate:
    """A candidate: it has the Lease, or tries to get it."""

    def __init__(
        self, client: Client, clock: Clock, key: Key, identity: str, timing: LeaseTiming
    ) -> None:
        self._client = client
        self._clock = clock
        self._key = key
        self._identity = identity
        self._timing = timing
        self._own_version: str | None = None
        """The version of the Lease as we wrote it last; None where that is not certain."""
        self._refusals = RefusalLog()
        self._deadline = 0.0
        """When we must not lead any more, unless it is renewed before."""
        self._seen_spec: Mapping[str, Any] = {}
        self._changed_at = 0.0
        """When the Lease became what was seen last."""

    async def acquire(self, jitter: Callable[[], float]) -> None:
        """Try until the Lease is ours."""
        while True:
            if await self.attempt():
                return
            await asyncio.sleep(self._timing.retry_period * (1 + _JITTER * jitter()))

    async def keep_renewing(self) -> None:
        """Renew the Lease until it is lost."""
        try:
            async with asyncio.timeout_at(self._deadline) as limit:
                while True:
                    await asyncio.sleep(self._timing.retry_period)
                    if await self.attempt():
                        limit.reschedule(self._deadline)
                    elif self._is_held_by_another():
                        break
        except TimeoutError:
            pass
        log.error("the lease is lost", lease=str(self._key), holder=_holder(self._seen_spec))

    async def attempt(self) -> bool:
        """Take the Lease if it is to be had, or renew it; return whether it is ours now."""
        try:
            async with asyncio.timeout(self._timing.renew_deadline):
                is_ours = await self._attempt()
            self._refusals.note_success(str(self._key))
            return is_ours
        except Forbidden as error:
            self._refusals.note_refusal(str(self._key), str(error))
            return False
        except (Retryable, NotFound, AlreadyExists, TimeoutError) as error:
            log.info("no word about the lease", lease=str(self._key), reason=str(error))
            return False

    async def release(self) -> None:
        """Release the Lease, if it is still ours: the next leader need not wait then."""
        moment = rfc3339_micro(self._clock.now())
        spec = {
            "holderIdentity": "",
            "leaseDurationSeconds": 1,
            "acquireTime": moment,
            "renewTime": moment,
        }
        try:
            async with asyncio.timeout(self._timing.retry_period):
                own_version = self._own_version or await self._find_own_version()
                if own_version is not None:
                    await self._client.patch(self._change(spec, own_version))
        except (WarrenError, TimeoutError) as error:
            log.info("lease not released", lease=str(self._key), reason=str(error))

    async def _find_own_version(self) -> str | None:
        """Return the version of the Lease, if it is ours."""
        lease = await self._client.get(LEASE, self._key)
        is_ours = _holder(lease.get("spec") or {}) == self._identity
        return lease["metadata"]["resourceVersion"] if is_ours else None

    async def _attempt(self) -> bool:
        if self._own_version is not None:
            return await self._write(self._renewed_spec(), self._own_version)
        try:
            lease = await self._client.get(LEASE, self._key)
        except NotFound:
            return await self._write({**self._acquired_spec(), "leaseTransitions": 0}, None)
        self._observe(lease.get("spec") or {})
        if _holder(self._seen_spec) == self._identity:
            spec = self._renewed_spec()
        elif self._is_available():
            transitions = self._seen_spec.get("leaseTransitions") or 0
            spec = {**self._acquired_spec(), "leaseTransitions": transitions + 1}
        else:
            return False
        return await self._write(spec, lease["metadata"]["resourceVersion"])

    async def _write(self, spec: Object, seen_version: str | None) -> bool:
        # From here on, and not from the answer: others count from when they see the write,
        # which is later than this, however long the answer takes.
        sent_at = asyncio.get_running_loop().time()
        # Without an answer, it may have been written all the same: then look first.
        self._own_version = None
        if seen_version is None:
            metadata = {"name": self._key.name, "namespace": self._key.namespace}
            written = await self._client.create(LEASE, {"metadata": metadata, "spec": spec})
        else:
            written = await self._client.patch(self._change(spec, seen_version))
        self._own_version = written["metadata"]["resourceVersion"]
        self._seen_spec = written["spec"]
        self._deadline = sent_at + self._timing.renew_deadline
        return True

    def _observe(self, spec: Mapping[str, Any]) -> None:
        if spec != self._seen_spec:
            if _holder(spec) != _holder(self._seen_spec):
                log.info("another leads", lease=str(self._key), holder=_holder(spec))
            self._seen_spec = spec
            self._changed_at = asyncio.get_running_loop().time()

    def _is_available(self) -> bool:
        lease_duration = self._seen_spec.get("leaseDurationSeconds") or self._timing.lease_duration
        now = asyncio.get_running_loop().time()
        return not _holder(self._seen_spec) or now >= self._changed_at + lease_duration

    def _is_held_by_another(self) -> bool:
        return _holder(self._seen_spec) != self._identity

    def _acquired_spec(self) -> dict[str, Any]:
        renewed = self._renewed_spec()
        return {**renewed, "acquireTime": renewed["renewTime"]}

    def _renewed_spec(self) -> dict[str, Any]:
        return {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": self._timing.lease_duration,
            "renewTime": rfc3339_micro(self._clock.now()),
        }

    def _change(self, spec: Object, seen_version: str) -> Change:
        return Change(
            kind=LEASE, key=self._key, patch={"spec": spec}, resource_version=seen_version
        )


def _holder(spec: Mapping[str, Any]) -> str:
    return spec.get("holderIdentity") or ""
