"""NnfDataMovements, on the rabbit that holds the storage: copies, and how far they are."""

import asyncio
import posixpath
import re
from collections.abc import Iterator
from contextlib import aclosing
from math import ceil
from typing import Final

from warren.base import log
from warren.base.bytesize import format_bytes
from warren.base.clock import Clock
from warren.base.errors import Retryable, UserMistake
from warren.base.objects import Change, Key, Object, key_of
from warren.base.times import go_duration, parse_rfc3339, rfc3339_micro
from warren.controllers.copies import SLOTS, Copies
from warren.controllers.localnode import LocalNode
from warren.controllers.users import UserKey, user_getter
from warren.dws import kinds, labels
from warren.dws.copies import commands, copyprofiles
from warren.dws.copies.retries import Retries
from warren.dws.node import Copy, CopyFailed, NodeTrouble, Progress
from warren.dws.objects.datamovements import MovementEnd, NnfDataMovement
from warren.dws.objects.decoding import read
from warren.kube.client import Client
from warren.kube.informer import Informers
from warren.kube.perform import perform
from warren.kube.runtime import Reconciler

_REFUSED_RETRY_DELAY: Final = 30.0
"""Seconds before a status is reported again that the API has refused."""


class MovementReconciler:
    """Runs one rabbit's data movements: its reconciles, and the copies, which take longer.

    Both `reconciler.run` and `copies.run` are to live as long as the agent.
    """

    def __init__(
        self,
        client: Client,
        informers: Informers,
        local_node: LocalNode,
        clock: Clock,
        *,
        slots: int = SLOTS,
        retries: Retries = Retries(),  # noqa: B008 - a value
    ) -> None:
        """At most `slots` copies are made at a time, and one of each user in any case.

        `retries` is for those that fail.
        """
        self._client = client
        self._local_node = local_node
        self._clock = clock
        self._retries = retries
        self._movements = informers.of(kinds.NNF_DATA_MOVEMENT)
        # One more than there are copies: each may wait for the end of a copier that hangs in
        # the kernel.
        self.reconciler: Reconciler[Key] = Reconciler(
            "movement",
            self.reconcile,
            workers=slots + 1,
            user=user_getter(self._movements, _user_of),
        )
        self.copies = Copies(self._copy, self.reconciler.add, slots)
        self._movements.listen(lambda obj: self.reconciler.add(key_of(obj)))

    async def reconcile(self, key: Key) -> float | None:
        """Reconcile an NnfDataMovement: have its copy begun, or ended.

        Events of a deletion or cancellation come here, whatever the copier does meanwhile.
        """
        current = self._current(key)
        if current is None:
            await self.copies.stop(key)
        elif current.metadata.deleting:
            await self.copies.stop(key)
            await self._write(
                key, labels.without_finalizer(current.metadata, labels.MOVEMENT_FINALIZER)
            )
        elif current.status.state == "Finished":
            pass
        elif current.spec.cancel:
            await self.copies.stop(key)
            outcome = {"status": "Cancelled", "message": "the copy was cancelled"}
            # Only on the newest object: its copy may have come to its end before.
            await self._report(
                key, self._finished_status(outcome), version=current.metadata.resource_version
            )
        else:
            wait = self._seconds_to_wait(current)
            if wait > 0:
                return wait
            self.copies.enqueue(key, current.spec.user_id)
        return None

    def _current(self, key: Key) -> NnfDataMovement | None:
        raw = self._movements.get(key)
        return None if raw is None else read(raw, NnfDataMovement)

    def _seconds_to_wait(self, current: NnfDataMovement) -> float:
        """Return the seconds until a copy may be tried once more."""
        status = current.status
        if status.state != "Starting" or status.end_time is None:
            return 0.0
        seconds_since_end = self._clock.now() - parse_rfc3339(status.end_time)
        return self._retries.delay(status.restarts, seconds_since_end)

    # One copy, in its slot

    async def _copy(self, key: Key) -> None:
        # A task, and what is bound here is bound in its own context, as in a reconcile.
        log.bind(reconciler=self.reconciler.name, key=str(key))
        while (current := self._due_movement(key)) is not None:
            try:
                await self._report_begun(key, current)
            except Retryable as error:
                log.info("copy put off", reason=str(error))
                await asyncio.sleep(error.delay)
            except Exception as error:
                log.exception("copy not begun")
                return await self._report_until_accepted(
                    key, self._internal_failure(current, error)
                )
            else:
                return await self._report_until_accepted(key, await self._try_copy(key, current))

    def _due_movement(self, key: Key) -> NnfDataMovement | None:
        """Return a movement whose copy is to begin now; None if it is not wanted now."""
        current = self._current(key)
        if (
            current is None
            or current.metadata.deleting
            or current.spec.cancel
            or current.status.state == "Finished"
            or self._seconds_to_wait(current) > 0
        ):
            return None
        return current

    async def _report_begun(self, key: Key, current: NnfDataMovement) -> None:
        """Say that a copy has begun."""
        started = {
            "state": "Running",
            "startTime": rfc3339_micro(self._clock.now()),
            "endTime": None,
            "restarts": _restarts(current),
        }
        # Only on the newest object: an older one may not know that its copy has ended.
        await self._report(key, started, version=current.metadata.resource_version)

    async def _try_copy(self, key: Key, current: NnfDataMovement) -> Object:
        """Copy, and return the status after it."""
        try:
            return self._finished_status(await self._copy_to_end(key, current))
        except NodeTrouble as trouble:
            by_copier = isinstance(trouble, CopyFailed)
            return self._status_after_failure(current, str(trouble), by_copier=by_copier)
        except Exception as error:  # a bug may cost one copy, not the agent
            log.exception("copy failed")
            return self._internal_failure(current, error)

    async def _copy_to_end(self, key: Key, current: NnfDataMovement) -> dict[str, object]:
        """Copy to the end. Raises NodeTrouble, and CopyFailed for what the copier tells itself."""
        if current.spec.user_config.dryrun:
            return {"status": "Success", "message": "nothing is copied: this was a dry run"}
        progress = None
        last_mark: object = None
        progressed_at = self._clock.now()
        reporting: asyncio.Task[None] | None = None
        try:
            work = _copy_of(current, _restarts(current))
            async with aclosing(self._local_node.copy(work)) as updates:  # type: ignore[type-var]
                async for progress in updates:
                    # A copy that hangs tells how far it is all the same: it has not gone on.
                    mark = _progress_mark(progress)
                    if mark != last_mark:
                        last_mark = mark
                        progressed_at = self._clock.now()
                    # Not waited for: a slow API does not make a slow copy.
                    if reporting is None or reporting.done():
                        reporting = asyncio.create_task(
                            self._report_progress(key, progress, progressed_at)
                        )
        finally:
            if reporting is not None:
                reporting.cancel()
                await asyncio.wait({reporting})
        if progress is None:
            return {"status": "Success", "message": ""}
        final_status = _command_status(progress) | {"lastMessageTime": rfc3339_micro(progressed_at)}
        return {
            "status": "Success",
            "message": final_status["lastMessage"],
            "commandStatus": final_status,
        }

    def _internal_failure(self, current: NnfDataMovement, error: Exception) -> Object:
        message = f"the copy has failed inside Warren: {error!r}"
        return self._status_after_failure(current, message, by_copier=False)

    def _status_after_failure(
        self, current: NnfDataMovement, reason: str, *, by_copier: bool
    ) -> Object:
        """Return the status after a try that has failed: another one, or the end."""
        restarts = _restarts(current)
        command = current.metadata.labels.get(labels.INITIATOR, "")
        if self._retries.should_retry(command, restarts, by_copier=by_copier):
            log.info("copy is tried again", reason=reason)
            return {
                "state": "Starting",
                "restarts": restarts + 1,
                "endTime": rfc3339_micro(self._clock.now()),
                "message": f"try {restarts + 1} has failed: {reason}",
            }
        message = f"{reason} (tried {restarts + 1} times)" if restarts else reason
        return self._fatal_status(message, "User" if by_copier else "Internal")

    def _fatal_status(self, message: str, type: str) -> Object:
        """Return the status of a copy that has failed for good."""
        error = {
            "debugMessage": message,
            "userMessage": message,
            "type": type,
            "severity": "Fatal",
        }
        return self._finished_status({"status": "Failed", "message": message, "error": error})

    def _finished_status(self, outcome: Object) -> Object:
        return {**outcome, "state": "Finished", "endTime": rfc3339_micro(self._clock.now())}

    async def _report_progress(self, key: Key, progress: Progress, progressed_at: float) -> None:
        """Report how far a copy is, and when it last went on.

        If it is not heard, the next word comes soon.
        """
        try:
            command_status = _command_status(progress) | {
                "lastMessageTime": rfc3339_micro(progressed_at)
            }
            await self._report(key, {"commandStatus": command_status})
        except Retryable:
            pass
        except Exception as error:
            # What a command says of itself may be anything; how it ends is told all the same.
            log.info("progress not told", reason=repr(error))

    async def _report_until_accepted(self, key: Key, status: Object) -> None:
        """Report until it is heard: at the next reconcile, everything would be copied again.

        A status that cannot be told is told as a failure, which has nothing in it of what a copier
        has said.
        """
        delay = 0.0
        while True:
            try:
                return await self._report(key, status)
            except Retryable as error:
                log.info("report put off", reason=str(error))
                await asyncio.sleep(error.delay)
            except Exception as error:  # an error would end the agent, and begin the copy again
                log.error("report refused", reason=repr(error))
                await asyncio.sleep(delay)
                delay = _REFUSED_RETRY_DELAY
                message = f"what has become of the copy cannot be reported: {error}"
                status = self._fatal_status(message, "Internal")

    async def _report(self, key: Key, status: Object, *, version: str | None = None) -> None:
        await self._write(key, {"status": status}, status=True, version=version)

    async def _write(
        self, key: Key, patch: Object, *, status: bool = False, version: str | None = None
    ) -> None:
        kind = kinds.NNF_DATA_MOVEMENT
        change = Change(kind=kind, key=key, patch=patch, resource_version=version, status=status)
        await perform(self._client, [change])


def _user_of(movement: Object) -> UserKey:
    user: UserKey = movement.get("spec", {}).get("userId")
    return user


def _restarts(current: NnfDataMovement) -> int:
    """Return how many tries a copy that begins now has had before."""
    # If it was Running, the agent had died, and its copier with it.
    return current.status.restarts + (current.status.state == "Running")


def _copy_of(current: NnfDataMovement, restarts: int) -> Copy:
    """Return what is to be copied. Raises CopyFailed for a command that cannot be run."""
    created = current.metadata.creation_timestamp
    try:
        options = copyprofiles.copy_options(current.metadata)
    except UserMistake as error:
        raise CopyFailed(str(error)) from error
    return Copy(
        source=_source(current),
        destination=current.spec.destination.path,
        index=_index_directory(current),
        source_storage=_storage_mount_path(current, labels.SOURCE_STORAGE, current.spec.source),
        destination_storage=_storage_mount_path(
            current, labels.DESTINATION_STORAGE, current.spec.destination
        ),
        userid=current.spec.user_id,
        groupid=current.spec.group_id,
        movement=current.metadata.uid,
        since=parse_rfc3339(created) if restarts and created is not None else 0.0,
        **options,
    )


def _source(current: NnfDataMovement) -> str:
    """Return what is copied: of the root of a storage without allocations, what is in it.

    Its name is of no use to users. That of an allocation is its index directory.
    """
    path = current.spec.source.path
    is_root = path == current.metadata.annotations.get(labels.SOURCE_STORAGE)
    is_allocation = re.fullmatch(_allocation_pattern(current), posixpath.basename(path)) is not None
    return f"{path}/" if is_root and not is_allocation else path


def _allocation_pattern(current: NnfDataMovement) -> str:
    """Return the pattern of a rabbit's allocations: `<rabbit>-<n>`."""
    return rf"{re.escape(current.metadata.namespace)}-\d+"


def _index_directory(current: NnfDataMovement) -> str | None:
    """Return the index directory, `<rabbit>-<n>`, that is to be in the destination, too."""
    if labels.SOURCE_STORAGE in current.metadata.annotations:
        return None
    return posixpath.basename(_allocation_path(current, current.spec.source)) or None


def _storage_mount_path(current: NnfDataMovement, annotation: str, end: MovementEnd) -> str:
    """Return where the storage is mounted that an end (source or destination) is in, if any."""
    return current.metadata.annotations.get(annotation) or _allocation_path(current, end)


def _allocation_path(current: NnfDataMovement, end: MovementEnd) -> str:
    """Return the path of the allocation that an end is in, `.../<rabbit>-<n>`, if it is in one."""
    if end.storage_reference.kind != "NnfStorage":
        return ""
    pattern = re.compile(_allocation_pattern(current))
    parts = end.path.split(posixpath.sep)
    matches = [position for position, part in enumerate(parts) if pattern.fullmatch(part)]
    return posixpath.sep.join(parts[: matches[0] + 1]) if matches else ""


def _progress_mark(progress: Progress) -> object:
    """Return what is the same for as long as a copy does not go on."""
    if progress.command_status is not None:
        return progress.command_status.get("progress_mark")
    return (progress.files, progress.bytes)


def _command_status(progress: Progress) -> dict[str, object]:
    if progress.command_status is not None:
        return {
            "lastMessage": "",
            "elapsedTime": go_duration(progress.seconds),
            "seconds": f"{progress.seconds:.3f}",
            **commands.command_status(progress.command_status),
            **({"lastMessage": progress.remark} if progress.remark else {}),
        }
    return {
        "progress": progress.percent,
        "elapsedTime": go_duration(progress.seconds),
        "seconds": f"{progress.seconds:.3f}",
        "items": min(progress.files + progress.directories, commands.INT32_MAX),
        "directories": min(progress.directories, commands.INT32_MAX),
        "files": min(progress.files - progress.links, commands.INT32_MAX),
        "links": min(progress.links, commands.INT32_MAX),
        "data": format_bytes(progress.bytes),
        "rate": f"{format_bytes(int(progress.rate))}/s",
        "lastMessage": "; ".join(_message_parts(progress)),
    }


def _message_parts(progress: Progress) -> Iterator[str]:
    yield (
        f"copied {format_bytes(progress.bytes)} of {format_bytes(progress.total_bytes)} "
        f"in {progress.files} of {progress.total_files} files"
    )
    if progress.earlier_bytes:
        yield f"{format_bytes(progress.earlier_bytes)} of it by an earlier try"
    if progress.seconds_left is not None:
        yield f"about {go_duration(ceil(progress.seconds_left))} left"
    if progress.remark:
        yield progress.remark
