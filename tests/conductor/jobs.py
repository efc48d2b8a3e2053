"""A workload manager in memory: keeps what the port promises, and notes what it is asked."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tests.dws.builders import BINDING
from warren.base.errors import UserMistake
from warren.base.placing import HeldFlash
from warren.dws.binding import Phase
from warren.dws.jobs.jobsnapshot import Job


class Jobs:
    """A `WorkloadManager` of jobs that tests make, which are known once `synced` is set."""

    binding = BINDING
    instance = "here"

    def __init__(self, *jobs: Job) -> None:
        self.known = {job.id: job for job in jobs}
        self.asked: list[tuple[Any, ...]] = []
        """What was done for jobs, with what; by the name of the method."""
        self.passes: list[tuple[int, str | None]] = []
        self.held: Sequence[HeldFlash] = ()
        self.allowed: dict[int, Sequence[str] | None] = {}
        """The nodes that jobs were released for."""
        self.enabled: dict[int, tuple[str, ...]] = {}
        """The daemons that are to be enabled for them."""
        self.aborted: set[int] = set()
        """The jobs that were let go before their storage."""
        self.heard_after: float | None = None
        """After how many seconds it can be told whether a job has an exception."""
        self.refused: str | None = None
        """Why the site allows no job."""
        self.synced = asyncio.Event()
        self.synced.set()
        self._listeners: list[Callable[[int], None]] = []

    def put(self, job: Job) -> None:
        """Let a job be what it is given as, and tell of it."""
        self.known[job.id] = job
        for listener in self._listeners:
            listener(job.id)

    def forget(self, job_id: int) -> None:
        """Know a job no more, as the port does with one that is inactive, and tell of it."""
        del self.known[job_id]
        for listener in self._listeners:
            listener(job_id)

    def _now(self, job: Job, phase: Phase, *before: Phase, **changes: Any) -> None:
        known = self.known.get(job.id)
        if known is not None and known.phase in before:
            self.put(replace(known, phase=phase, **changes))

    # The port

    def listen(self, listener: Callable[[int], None]) -> None:
        self._listeners.append(listener)

    async def wait_synced(self) -> None:
        await self.synced.wait()

    def job(self, job_id: int) -> Job | None:
        return self.known.get(job_id)

    def userid(self, job_id: int) -> int | None:
        known = self.known.get(job_id)
        return known.userid if known is not None else None

    def job_ids(self) -> Iterable[int]:
        return list(self.known) if self.synced.is_set() else []

    def check_allowed(self, job: Job) -> None:
        if self.refused is not None:
            raise UserMistake(self.refused)

    async def flash(self, job: Job) -> Sequence[HeldFlash]:
        self.asked.append(("flash", job.id))
        return self.held

    async def release_to_scheduler(
        self,
        job: Job,
        resources: Sequence[Mapping[str, Any]],
        constraints: Mapping[str, Any],
        nodes: Sequence[str] | None = None,
        daemons: Sequence[str] = (),
    ) -> None:
        self.asked.append(("release_to_scheduler", job.id, resources))
        self.allowed[job.id] = nodes
        self.enabled[job.id] = tuple(daemons)
        self._now(job, Phase.QUEUED, Phase.HELD)

    async def start(self, job: Job, variables: Mapping[str, str]) -> None:
        self.asked.append(("start", job.id, dict(variables)))
        self._now(job, Phase.RUNNING, Phase.STARTING, ran=True)

    async def finish(self, job: Job) -> None:
        self.asked.append(("finish", job.id))
        self._now(job, Phase.OVER, Phase.ENDING)

    async def ended_by_epilog_timeout(self, job: Job) -> bool:
        return job.id in self.aborted

    async def drain(self, nodes: Sequence[str], reason: str) -> None:
        self.asked.append(("drain", tuple(nodes), reason))

    async def undrain(self, nodes: Sequence[str], reason: str) -> None:
        self.asked.append(("undrain", tuple(nodes), reason))

    async def free_nodes(self, job: Job, nodes: Sequence[str]) -> None:
        self.asked.append(("free", job.id, tuple(nodes)))

    async def raise_exception(
        self, job: Job, type: str, note: str, severity: int = 0
    ) -> float | None:
        self.asked.append(("raise_exception", job.id, type, note, severity))
        known = self.known.get(job.id)
        if known is None or known.phase is Phase.OVER:
            return None
        if known.phase is Phase.ENDING:
            self.put(
                replace(
                    known,
                    has_exception_while_ending=True,
                    has_failed_while_ending=known.has_failed_while_ending or severity == 0,
                )
            )
        elif severity == 0:
            self.put(replace(known, failed=True, phase=Phase.ENDING))
        return self.heard_after

    async def record(self, job: Job, values: Mapping[str, Any]) -> None:
        self.asked.append(("record", job.id, dict(values)))

    async def memo(self, job: Job, values: Mapping[str, str]) -> None:
        self.asked.append(("memo", job.id, dict(values)))

    def answer_requests(self, job: Job, mistake: str | None) -> None:
        self.passes.append((job.id, mistake))
