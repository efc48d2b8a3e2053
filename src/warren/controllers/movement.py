"""NnfDataMovements, on the rabbit that holds the storage: copies, and how far they are."""

import asyncio
import posixpath
import re
from contextlib import aclosing, suppress

import structlog

from warren.base.bytesize import human
from warren.base.clock import Clock
from warren.base.errors import Retryable
from warren.base.objects import Change, Key, Object, key_of
from warren.base.times import go_duration, rfc3339_micro
from warren.controllers.machine import Machine
from warren.dws import kinds, labels
from warren.dws.node import Copy, NodeTrouble, Progress
from warren.dws.objects import NnfDataMovement, read
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

log = structlog.get_logger()

SLOTS = 8
"""Copies at a time on one rabbit."""


class MovementReconciler:
    """Runs one rabbit's data movements."""

    def __init__(
        self, client: Client, informers: Informers, machine: Machine, clock: Clock
    ) -> None:
        self._client = client
        self._machine = machine
        self._clock = clock
        self._movements = informers.of(kinds.NNF_DATA_MOVEMENT)
        # A copy takes as long as it takes: its pass has no limit.
        self.reconciler: Reconciler[Key] = Reconciler(
            "movement", self.reconcile, workers=SLOTS, limit=None
        )
        self._movements.listen(lambda obj: self.reconciler.add(key_of(obj)))

    async def reconcile(self, key: Key) -> float | None:
        """Make one pass over an NnfDataMovement: all of its copy."""
        raw = self._movements.get(key)
        if raw is None:
            return None
        seen = read(raw, NnfDataMovement)
        if seen.metadata.deleting:
            # No copy of it runs any more: this pass has the key to itself.
            await self._write(key, labels.finalized(seen.metadata, labels.MOVEMENT_FINALIZER))
        elif seen.status.state != "Finished":
            await self._run(key, seen)
        return None

    async def _run(self, key: Key, seen: NnfDataMovement) -> None:
        # If it was Running, the agent had died, and its copier with it: copy again.
        restarts = seen.status.restarts + (seen.status.state == "Running")
        now = rfc3339_micro(self._clock.now())
        started = {"state": "Running", "startTime": now, "restarts": restarts}
        # Only on the newest object: an older one may not know that its copy has ended.
        await self._report(key, started, seen=seen.metadata.resource_version)
        try:
            ended = await self._copy(key, seen)
        except NodeTrouble as trouble:
            error = {
                "debugMessage": str(trouble),
                "userMessage": str(trouble),
                "type": "User",
                "severity": "Fatal",
            }
            ended = {"status": "Failed", "message": str(trouble), "error": error}
        if ended is not None:
            now = rfc3339_micro(self._clock.now())
            await self._insist(key, {**ended, "state": "Finished", "endTime": now})

    async def _copy(self, key: Key, seen: NnfDataMovement) -> dict[str, object] | None:
        """Copy to the end, or until nobody wants it any more; then there is nothing to say."""
        progress = None
        showing: asyncio.Task[None] | None = None
        try:
            async with aclosing(self._machine.copy(_work(seen))) as copying:  # type: ignore[type-var]
                async for progress in copying:
                    current = self._movements.get(key)
                    if current is None or current["metadata"].get("deletionTimestamp"):
                        return None
                    if current["spec"].get("cancel"):
                        return {"status": "Cancelled", "message": "the copy was cancelled"}
                    # Not waited for: a slow API does not make a slow copy.
                    if showing is None or showing.done():
                        showing = asyncio.create_task(self._show(key, progress))
        finally:
            if showing is not None:
                showing.cancel()
                await asyncio.wait({showing})
        return {"status": "Success", "message": _shown(progress)["lastMessage"] if progress else ""}

    async def _show(self, key: Key, progress: Progress) -> None:
        """Report how far a copy is. If nobody hears it, the next word comes soon."""
        with suppress(Retryable):
            await self._report(key, {"commandStatus": _shown(progress)})

    async def _insist(self, key: Key, status: Object) -> None:
        """Report until it is heard: in another pass, everything would be copied again."""
        while True:
            try:
                return await self._report(key, status)
            except Retryable as error:
                log.info("report put off", reason=str(error))
                await asyncio.sleep(error.delay)

    async def _report(self, key: Key, status: Object, *, seen: str | None = None) -> None:
        await self._write(key, {"status": status}, status=True, seen=seen)

    async def _write(
        self, key: Key, patch: Object, *, status: bool = False, seen: str | None = None
    ) -> None:
        kind = kinds.NNF_DATA_MOVEMENT
        change = Change(kind=kind, key=key, patch=patch, seen=seen, status=status)
        await perform(self._client, [change])


def _work(seen: NnfDataMovement) -> Copy:
    return Copy(
        source=seen.spec.source.path,
        destination=seen.spec.destination.path,
        index=_index(seen),
        userid=seen.spec.user_id,
        groupid=seen.spec.group_id,
    )


def _index(seen: NnfDataMovement) -> str | None:
    """Give the index directory, `<rabbit>-<n>`, that the source path goes through."""
    if seen.spec.source.storage_reference.kind != "NnfStorage":
        return None
    form = re.compile(rf"{re.escape(seen.metadata.namespace)}-\d+")
    found = [part for part in seen.spec.source.path.split(posixpath.sep) if form.fullmatch(part)]
    return found[0] if found else None


def _shown(progress: Progress) -> dict[str, object]:
    return {
        "progress": progress.percent,
        "elapsedTime": go_duration(progress.seconds),
        "seconds": f"{progress.seconds:.3f}",
        "files": progress.files,
        "data": human(progress.bytes),
        "rate": f"{human(int(progress.rate))}/s",
        "lastMessage": (
            f"copied {human(progress.bytes)} of {human(progress.total_bytes)} "
            f"in {progress.files} of {progress.total_files} files"
        ),
    }
