"""Allocates job ids: FLUIDs that never come twice, whatever the clock says and whatever is purged.

Which ids may have been given is written down ahead, in the commit of a job that needs it
(KVS key `checkpoint.job-ingest`); a restart counts on from there.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from warren.base import log
from warren.base.clock import Clock
from warren.instance.kvs import Kvs, Operation, put
from warren.rfc import fluid
from warren.rfc.fluid import JobId

_KEY: Final = "checkpoint.job-ingest"

_RESERVED_MILLISECONDS: Final = 1024
"""Milliseconds of ids that are written down at once. A restart passes over what is left."""


class _Checkpoint(msgspec.Struct, frozen=True):
    max_jobid: int


class JobIdAllocator:
    """Allocates job ids. The job manager must have replayed its jobs before."""

    def __init__(self, kvs: Kvs, clock: Clock, max_jobid: Callable[[], JobId]) -> None:
        self._kvs = kvs
        self._clock = clock
        self._max_jobid = max_jobid
        self._generator: fluid.JobIdGenerator | None = None
        self._durable_until = 0

    def next(self) -> tuple[JobId, list[Operation]]:
        """Return the next id, and what must be committed before it is told."""
        now_ms = int(self._clock.now() * 1000)
        if self._generator is None:
            latest_id = max(self._max_jobid(), self._checkpointed_jobid())
            self._generator = fluid.JobIdGenerator(now_ms, latest_id)
        job = self._generator.next(now_ms)
        if job <= self._durable_until:
            return job, []
        return job, [put(_KEY, msgspec.json.encode(_Checkpoint(_reserved_until(job))))]

    def set_durable(self, job: JobId) -> None:
        """Note that what came with an id is durable."""
        if job > self._durable_until:
            self._durable_until = _reserved_until(job)

    @property
    def timestamp(self) -> int:
        """The timestamp of a new id, given to no job: a generator elsewhere may start from it."""
        return self.next()[0] >> 24

    def _checkpointed_jobid(self) -> int:
        text = self._kvs.get(_KEY)
        if text is None:
            return 0
        try:
            return msgspec.json.decode(text, type=_Checkpoint).max_jobid
        except (msgspec.MsgspecError, RecursionError) as error:
            # It was changed by hand. The jobs that are left tell the most of it.
            log.error("checkpoint cannot be read", key=_KEY, reason=str(error))
            return 0


def _reserved_until(job: JobId) -> int:
    return job + (_RESERVED_MILLISECONDS << 24)
