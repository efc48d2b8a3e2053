"""Jobs as the KVS has them: what may be read of each, and where those go that cannot be read."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

import orjson

from warren.base import log
from warren.instance import keys
from warren.instance.jobs import subset
from warren.instance.kvs import PRIMARY, Kvs, Operation, Quota, graft, put, unlink
from warren.instance.kvs.quota import BYTES_PER_JOB
from warren.lifecycle.job import Job, replay
from warren.lifecycle.states import State
from warren.rfc import eventlog, fluid, resource_set
from warren.rfc import jobspec as jobspecs
from warren.rfc.errors import BadFormat
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.message import quota_size

_LOST_KEY: Final = "job-lost+found.job"
"""Where jobs are kept that cannot be read."""

_MAX_JOBID_KEY: Final = "job-manager.max_jobid"
"""The greatest id of a job that was purged."""

_NOT_ARCHIVED: Final = frozenset({"J", "guest", "summary"})
"""What the archive leaves out: credentials and environments, output, what the log says too."""


class StoredJobs:
    """Reads jobs. Raises BadFormat, with what is wrong, for what cannot be read."""

    def __init__(self, kvs: Kvs) -> None:
        self._kvs = kvs

    @property
    def quota(self) -> Quota:
        """What users' jobs hold."""
        return self._kvs.quota

    def count_quota(self, job: JobId, userid: int, quota_bytes: int | None = None) -> None:
        """Count in its user's quota what a job holds: `quota_bytes`, or what is found of it."""
        if userid == self._kvs.owner(PRIMARY):
            return
        if quota_bytes is None:
            stored_bytes = self._kvs.size(fluid.kvs(job)) + self._kvs.size(
                ".", keys.guest_namespace(job)
            )
            texts = [
                self._kvs.get(keys.job_key(job, name)) or b"" for name in ("jobspec", "eventlog")
            ]
            # The bytes of both texts are among the stored ones: added is what `quota_size` counts
            # beyond them, for their values.
            quota_bytes = (
                BYTES_PER_JOB + stored_bytes + sum(quota_size(text) - len(text) for text in texts)
            )
        self.quota.add(keys.guest_namespace(job), userid, quota_bytes)

    def count_record(self, job: JobId, userid: int) -> int:
        """Count all of the record of a job that ends; return what the job is counted for.

        Others write to it, too, as of its storage, and it may stay for years.
        """
        namespace = keys.guest_namespace(job)
        counted_bytes = self.quota.bytes_of(namespace)
        if userid == self._kvs.owner(PRIMARY):
            return counted_bytes
        # What it has printed counts as it was written, and besides: else it would hide the rest.
        printed_bytes = max(
            self.quota.written_while_running(namespace), self._kvs.size(keys.job_key(job, "guest"))
        )
        names = set(self._kvs.names(fluid.kvs(job))) - {"guest"}
        record_bytes = BYTES_PER_JOB + sum(
            self._kvs.size(keys.job_key(job, each)) for each in names
        )
        if record_bytes + printed_bytes > counted_bytes:
            self.quota.add(namespace, userid, record_bytes + printed_bytes - counted_bytes)
        return self.quota.bytes_of(namespace)

    def ids(self) -> Iterator[JobId]:
        """Return the ids of all jobs, in order."""
        directories = ["job"]
        for _ in range(4):
            directories = [
                f"{each}.{name}" for each in directories for name in self._kvs.names(each)
            ]
        for key in directories:
            try:
                yield fluid.parse(key)
            except BadFormat:
                log.error("no job has such a key", key=key)

    def max_removed_jobid(self) -> JobId:
        """Return the greatest id among the jobs that were removed; 0 if none was."""
        purged = self._kvs.get(_MAX_JOBID_KEY)
        lost = map(fluid.parse, self._kvs.names(_LOST_KEY))
        return max((JobId(int(purged)) if purged else JobId(0), *lost))

    def summary(self, job: JobId) -> bytes | None:
        """Return what is kept in short of a job that is over."""
        return self._kvs.get(keys.summary_key(job))

    def events(self, job: JobId) -> list[Event]:
        """Read a job's log."""
        text = self._kvs.get(keys.job_key(job, "eventlog"))
        if text is None:
            raise BadFormat("there is no eventlog")
        try:
            return eventlog.decode(text.decode())
        except UnicodeDecodeError as error:
            raise BadFormat(f"the eventlog is not UTF-8: {error}") from None

    def jobspec(self, job: Job) -> Mapping[str, Any]:
        """Read a job's jobspec, and apply what was changed in it since."""
        try:
            spec = orjson.loads(self._kvs.get(keys.job_key(job.id, "jobspec")) or b"")
            jobspecs.system(spec).keys()
            return jobspecs.update(spec, job.updates)
        except (LookupError, TypeError, ValueError, AttributeError) as error:
            raise BadFormat(f"the jobspec cannot be read: {error}") from None

    def r(self, job: Job) -> Mapping[str, Any] | None:
        """Read a job's R, with the expiration that it has now. None if it was never given one."""
        if State.RUN not in job.times:
            # One that is there before the job was given it is an answer that was not heard.
            return None
        text = self._kvs.get(keys.job_key(job.id, "R"))
        if text is None:
            raise BadFormat("there is no R")
        try:
            r = orjson.loads(text)
            resource_set.nodelist(r)
        except (TypeError, ValueError) as error:
            raise BadFormat(f"R cannot be read: {error}") from None
        return r if job.expiration is None else subset.with_expiration(r, job.expiration)

    def archived_values(self, job: JobId) -> Iterator[tuple[str, bytes]]:
        """Return what the archive keeps of a job, by key; not the request, nor its output."""
        for name in self._kvs.names(fluid.kvs(job)):
            if name not in _NOT_ARCHIVED:
                yield from self._values_below(name, keys.job_key(job, name))

    def _values_below(self, name: str, key: str) -> Iterator[tuple[str, bytes]]:
        value = self._kvs.get(key)
        if value is not None:
            yield name, value
        for child in self._kvs.names(key):
            yield from self._values_below(f"{name}.{child}", f"{key}.{child}")

    def replay(self, job: JobId) -> tuple[Job, list[Event]]:
        """Return a job as its log tells it."""
        events = self.events(job)
        replayed = replay(job, events)
        if replayed.state is State.NEW:
            raise BadFormat("it was never validated")
        return replayed, events

    def lost_found_operations(self, job: JobId) -> Iterator[Operation]:
        """Return what moves a job that cannot be read to lost+found, with what it has printed."""
        target = f"{_LOST_KEY}.{fluid.f58plain(job)}"
        yield from self._copies(fluid.kvs(job), target)
        yield graft(f"{target}.guest", keys.guest_namespace(job))
        yield unlink(fluid.kvs(job))

    def purge_operations(self, jobs: list[JobId]) -> Iterator[Operation]:
        """Return what removes jobs, and keeps in mind that their ids are taken."""
        yield put(_MAX_JOBID_KEY, str(max(*jobs, self.max_removed_jobid())).encode())
        for job in jobs:
            yield unlink(fluid.kvs(job))

    def _copies(self, key: str, target: str) -> Iterator[Operation]:
        for name, value in self._values_below(target, key):
            yield put(name, value)
