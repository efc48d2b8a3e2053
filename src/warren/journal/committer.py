"""Group commit: records in the order they come, as many as have come, one sync for all.

The rule of every store: change nothing that readers can see before it is
durable. A record is submitted together with what makes it visible.

On a full disk what was submitted waits, in its order, until there is room. A store
takes no new work then (`full_reason`): what is under way comes to its end in the room that
the journal has set aside for it (ADR 030).
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final

import msgspec

from warren.base import log
from warren.journal import Journal, JournalFull

_MIN_REWRITE_LIMIT: Final = 16 * 2**20
"""Bytes that may always be appended before the journal is rewritten."""


def rewrite_limit(base_bytes: int) -> int:
    """Return how many bytes may be appended to a journal whose last rewrite had `base_bytes`.

    As many again, and 16 MiB at least, for a rewrite costs seconds of work.
    """
    return max(_MIN_REWRITE_LIMIT, base_bytes)


class _Submission(msgspec.Struct, frozen=True):
    """A record that is submitted, and not committed yet."""

    record: bytes
    publish: Callable[[], None]
    done: "asyncio.Future[None]"


class Committer:
    """Commits what is submitted. `run` must be running for anything to become durable."""

    def __init__(
        self,
        journal: Journal,
        snapshot: Callable[[], Iterable[bytes]],
        base_bytes: int = 0,
        appended_bytes: int = 0,
        pause: float = 1.0,
        limit: Callable[[int], int] = rewrite_limit,
    ) -> None:
        """`snapshot` gives records that say the same as all that are visible at the first of them.

        They are taken from it little by little, while commits go on. `base_bytes` is how many
        bytes the journal's last rewrite had, and `appended_bytes` how many came since: it is
        rewritten again when they are more than `limit` gives for `base_bytes`. `pause` is how many
        seconds pass between two looks for room on a full disk.
        """
        self._journal = journal
        self._snapshot = snapshot
        self._submissions: list[_Submission] = []
        self._submitted = asyncio.Event()
        self._appended_bytes = appended_bytes
        self._rewrite_limit = limit
        self._max_appended_bytes = limit(base_bytes)
        self._rewrite_task: asyncio.Task[None] | None = None
        self._pause = pause
        self._reserve_tried_at = 0.0
        self._full_reason: str | None = None
        self._stuck = False

    @property
    def full_reason(self) -> str | None:
        """Why no new work is to be taken: the disk is full, in a sentence. None if it is not."""
        return self._full_reason

    @property
    def stuck(self) -> bool:
        """Whether not even what is submitted can be committed now."""
        return self._stuck

    def submit(self, record: bytes, publish: Callable[[], None]) -> "asyncio.Future[None]":
        """Commit `record`, then call `publish`, then resolve the future.

        Giving up the wait does not unsay the record.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._submissions.append(_Submission(record, publish, done))
        self._submitted.set()
        return done

    async def run(self) -> None:
        """Commit until cancelled. Raises JournalBroken when the disk refuses: the end."""
        try:
            await self._reserve()
            while True:
                await self._wait_submitted()
                if self._rewrite_task is not None and self._rewrite_task.done():
                    self._finish_rewrite(self._rewrite_task)
                    self._rewrite_task = None
                await self._commit()
                if (
                    self._full_reason is not None
                    and self._now() - self._reserve_tried_at >= self._pause
                ):
                    await self._reserve()
                if (
                    self._appended_bytes > self._max_appended_bytes
                    and self._rewrite_task is None
                    and not self._full_reason
                ):
                    self._start_rewrite()
        finally:
            if self._rewrite_task is not None:
                self._rewrite_task.cancel()
                await asyncio.wait({self._rewrite_task})

    async def _wait_submitted(self) -> None:
        """Wait for records; on a full disk no longer than until it is to be looked at again."""
        if self._full_reason is None:
            await self._submitted.wait()
        else:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._pause):
                    await self._submitted.wait()
        self._submitted.clear()

    async def _commit(self) -> None:
        submissions, self._submissions = self._submissions, []
        if not submissions:
            return
        await self._append([submission.record for submission in submissions])
        for submission in submissions:
            submission.publish()
            if not submission.done.done():
                submission.done.set_result(None)
        self._appended_bytes += sum(len(submission.record) for submission in submissions)

    async def _append(self, records: Sequence[bytes]) -> None:
        """Append records, now or when there is room."""
        while True:
            try:
                await self._journal.append(records)
            except JournalFull as error:
                # At once, and in the room that was set aside, which was given up just now.
                if self._full_reason is not None:
                    self._stuck = True
                    await asyncio.sleep(self._pause)
                self._mark_full(error)
            else:
                self._stuck = False
                return

    async def _reserve(self) -> None:
        try:
            await self._journal.reserve()
        except JournalFull as error:
            self._mark_full(error)
        else:
            if self._full_reason is not None:
                log.info("there is room again", was=self._full_reason)
            self._full_reason = None
        self._reserve_tried_at = self._now()

    def _mark_full(self, error: JournalFull) -> None:
        if self._full_reason is None:
            log.warning("no new work is taken", why=str(error))
            self._reserve_tried_at = self._now()
        self._full_reason = str(error)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()

    def _start_rewrite(self) -> None:
        # Not a task group: what the disk refuses is to be raised as it is.
        self._rewrite_task = asyncio.create_task(self._journal.rewrite(self._snapshot_records()))
        self._rewrite_task.add_done_callback(lambda _: self._submitted.set())

    def _finish_rewrite(self, task: "asyncio.Task[None]") -> None:
        try:
            task.result()
        except JournalFull as error:
            # What takes the place of a journal takes room beside it first. The journal stays as
            # it is, and is rewritten when it has grown by as much again.
            log.warning("the journal is not rewritten", why=str(error))

    def _snapshot_records(self) -> Iterator[bytes]:
        self._appended_bytes = base_bytes = 0
        for record in self._snapshot():
            base_bytes += len(record)
            yield record
        self._max_appended_bytes = self._rewrite_limit(base_bytes)
