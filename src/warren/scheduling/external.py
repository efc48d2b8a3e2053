"""Flash that is taken and is in no job's R: persistent storage, and what jobs left behind.

Storage that a job makes is in the job's R while the job has its resources, and counts for
itself from the moment at which it gives them back: at no time twice, and at no time not at all.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from warren.base.bytesize import whole_gib
from warren.rfc.fluid import JobId


class ExistingStorage(msgspec.Struct, frozen=True, kw_only=True):
    """Storage that exists: its bytes by rabbit, and the job in whose R it is, if in one's."""

    bytes_by_rabbit: Mapping[str, int] = msgspec.field(default_factory=dict)
    job: JobId | None = None


class StorageAccounts:
    """All storage that is there, and how much of each rabbit it takes from jobs."""

    def __init__(self) -> None:
        self._storages: dict[str, ExistingStorage] = {}
        self._names_by_job: dict[JobId, set[str]] = {}
        self._allocated_jobs: set[JobId] = set()
        """The jobs that have resources, and have made storage."""
        self._external_bytes: dict[str, int] = {}
        """Bytes by rabbit."""

    def set(
        self, name: str, storage: ExistingStorage | None, *, allocated: bool
    ) -> Mapping[str, int]:
        """Set what storage of a name there is, in place of what was set before.

        `allocated` is whether the job of the storage has its resources. Returns the rabbits on
        which that makes a difference, with how many GiB of each are taken now.
        """
        changed: list[str] = []
        previous = self._storages.pop(name, None)
        if previous is not None:
            changed += self._count(previous, -1)
            self._forget(name, previous)
        if storage is not None:
            self._storages[name] = storage
            if storage.job is not None:
                self._names_by_job.setdefault(storage.job, set()).add(name)
                if allocated:
                    self._allocated_jobs.add(storage.job)
            changed += self._count(storage, 1)
        return self._in_gib(changed)

    def set_allocated(self, job: JobId, *, allocated: bool) -> Mapping[str, int]:
        """Set whether a job has its resources. Returns what `set` does."""
        names = self._names_by_job.get(job)
        if names is None or (job in self._allocated_jobs) == allocated:
            return {}
        changed: list[str] = []
        if allocated:
            for name in names:
                changed += self._count(self._storages[name], -1)
            self._allocated_jobs.add(job)
        else:
            self._allocated_jobs.discard(job)
            for name in names:
                changed += self._count(self._storages[name], 1)
        return self._in_gib(changed)

    def _forget(self, name: str, storage: ExistingStorage) -> None:
        if storage.job is None:
            return
        names = self._names_by_job[storage.job]
        names.discard(name)
        if not names:
            del self._names_by_job[storage.job]
            self._allocated_jobs.discard(storage.job)

    def _count(self, storage: ExistingStorage, sign: int) -> Iterator[str]:
        """Count storage that is in no job's R."""
        if storage.job is not None and storage.job in self._allocated_jobs:
            return
        for rabbit, size in storage.bytes_by_rabbit.items():
            self._external_bytes[rabbit] = self._external_bytes.get(rabbit, 0) + sign * size
            if not self._external_bytes[rabbit]:
                del self._external_bytes[rabbit]
            yield rabbit

    def _in_gib(self, rabbits: Iterable[str]) -> Mapping[str, int]:
        return {rabbit: whole_gib(self._external_bytes.get(rabbit, 0)) for rabbit in rabbits}
