"""Jobs begin and end on this node: registered, prepared for, cleaned up after, forgotten.

```
 POST: STARTING ── start commands ──> ACTIVE
           │ one fails, or DELETE       │ DELETE
           └────────────> ENDING <──────┘
                            └── end commands ──> forgotten; one fails: again, later
```

A request that repeats what is under way waits for its end, and one that repeats what is done
does nothing. What a dead process has left as STARTING or ENDING is cleaned up after: no client was
told that it began.
"""

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Final

from warren.atom.register import Register
from warren.atom.registration import RegisteredJob, Registration, Stage
from warren.atom.sitecommands import SiteCommandRunner
from warren.base import log
from warren.base.clock import Clock
from warren.base.errors import Retryable, UserMistake
from warren.dws.node import NodeTrouble

_FIRST_RETRY_DELAY: Final = 5.0
_MAX_RETRY_DELAY: Final = 300.0
"""Seconds between attempts to clean up, at first and at most."""


class AlreadyRegistered(UserMistake):
    """A job of this id is here, and is another, or is not cleaned up. It must be deleted first."""


class NoRoom(Retryable):
    """No more jobs can be registered."""


class Failed(Retryable):
    """A command has failed, or was not waited for."""


class Service:
    """What is done when jobs begin and end. `run` must be running."""

    def __init__(
        self, register: Register, commands: SiteCommandRunner, clock: Clock, max_jobs: int
    ) -> None:
        self._register = register
        self._commands = commands
        self._clock = clock
        self._max_jobs = max_jobs
        self._starting: dict[str, tuple[Registration, asyncio.Task[str | None]]] = {}
        self._ending: dict[str, asyncio.Task[str | None]] = {}
        self._retry_timers: dict[str, asyncio.TimerHandle] = {}
        self._retry_delays: dict[str, float] = {}
        self._task_group = asyncio.TaskGroup()

    async def run(self) -> None:
        """Do what is asked until cancelled. Raises JournalBroken."""
        try:
            async with self._task_group:
                self._task_group.create_task(self._register.run(), name="register")
                # All of them at once: requests from now on find that they are under way.
                for job in self._register:
                    if job.stage is not Stage.ACTIVE:
                        self._end(job, after_restart=True)
        finally:
            for timer in self._retry_timers.values():
                timer.cancel()

    @property
    def unclean_count(self) -> int:
        """How many jobs' ends have failed and wait for another attempt."""
        return len(self._retry_delays)

    async def wait_idle(self, seconds: float) -> None:
        """Wait until nothing is under way, but no longer than so many seconds."""
        start_tasks = {task for _, task in self._starting.values()}
        under_way = start_tasks | set(self._ending.values())
        if under_way:
            await asyncio.wait(under_way, timeout=seconds)

    async def begin(self, job: Registration) -> RegisteredJob:
        """Register a job and have the node prepared for it. It is durable when this returns.

        Raises AlreadyRegistered, NoRoom, and Failed; after the latter two the job is not
        registered, or not for long.
        """
        end_task = self._ending.get(job.jobid)
        if end_task is not None:
            # The same job may be run again before what cleans up after it has come to its end.
            await asyncio.wait({end_task})
        under_way = self._starting.get(job.jobid)
        if under_way is not None:
            known_registration, task = under_way
            _check_same(job, known_registration)
        else:
            registered = self._register.get(job.jobid)
            if registered is None:
                self._check_room()
                registered = RegisteredJob(job, Stage.STARTING, self._clock.now())
            _check_same(job, registered.registration)
            if registered.stage is Stage.ACTIVE:
                return registered
            if registered.stage is Stage.ENDING:
                raise AlreadyRegistered(f"job {job.jobid} is not cleaned up after: delete it first")
            task = self._start(registered)
        await _wait_done(
            task, f"job {job.jobid} was not started: it was ended, or the service is stopping"
        )
        active = self._register.get(job.jobid)
        if active is None:
            raise Failed(f"job {job.jobid} was ended when it had just started")
        return active

    async def end(self, jobid: str) -> bool:
        """Clean up after a job and forget it. Tell whether it was registered.

        Raises Failed; the job stays registered then, and is cleaned up after later.
        """
        under_way = self._starting.get(jobid)
        if under_way is not None:
            _, start_task = under_way
            if not start_task.cancelling():
                start_task.cancel()
            await asyncio.wait({start_task})
        task = self._ending.get(jobid)
        if task is None:
            registered = self._register.get(jobid)
            if registered is None and under_way is not None:
                # Cut short on its way to the disk, where it will be nonetheless.
                registered = RegisteredJob(under_way[0], Stage.STARTING, self._clock.now())
            if registered is None:
                return False
            task = self._end(registered)
        await _wait_done(
            task, f"the service is stopping, and goes on with job {jobid} when it is back"
        )
        return True

    def _check_room(self) -> None:
        new_count = sum(1 for jobid in self._starting if self._register.get(jobid) is None)
        if len(self._register) + new_count >= self._max_jobs:
            raise NoRoom(f"{self._max_jobs} jobs are registered here, and max-jobs allows no more")
        if self._register.full_reason is not None:
            raise NoRoom(self._register.full_reason)

    def _start(self, job: RegisteredJob) -> "asyncio.Task[str | None]":
        jobid = job.registration.jobid
        task = self._spawn(self._run_start(job), f"start {jobid}")
        self._starting[jobid] = job.registration, task
        task.add_done_callback(lambda _: self._starting.pop(jobid))
        return task

    async def _run_start(self, job: RegisteredJob) -> str | None:
        if self._commands.has_commands("start"):
            await self._register.put(job)
            try:
                await self._commands.perform("start", job.registration)
            except NodeTrouble as trouble:
                log.warning("start failed", jobid=job.registration.jobid, why=str(trouble))
                self._end_in_background(job)
                return str(trouble)
        await self._register.put(RegisteredJob(job.registration, Stage.ACTIVE, job.since))
        return None

    def _end_in_background(self, job: RegisteredJob) -> None:
        """End a job that is not waited for. A service that is stopping does so when it is back."""
        with suppress(Failed):
            self._end(job)

    def _end(
        self, job: RegisteredJob, *, after_restart: bool = False
    ) -> "asyncio.Task[str | None]":
        """Begin to end a job, which, `after_restart`, a dead service has perhaps left half done."""
        jobid = job.registration.jobid
        timer = self._retry_timers.pop(jobid, None)
        if timer is not None:
            timer.cancel()
        task = self._spawn(self._run_end(job, after_restart), f"end {jobid}")
        self._ending[jobid] = task
        task.add_done_callback(lambda _: self._ending.pop(jobid))
        return task

    async def _run_end(self, job: RegisteredJob, after_restart: bool) -> str | None:
        jobid = job.registration.jobid
        if after_restart:
            await self._commands.kill_leftovers(job.registration)
        if self._commands.has_commands("end"):
            if job.stage is not Stage.ENDING:
                job = RegisteredJob(job.registration, Stage.ENDING, job.since)
                await self._register.put(job)
            try:
                await self._commands.perform("end", job.registration)
            except NodeTrouble as trouble:
                delay = self._retry_delays.get(jobid, _FIRST_RETRY_DELAY)
                self._retry_delays[jobid] = min(2 * delay, _MAX_RETRY_DELAY)
                log.warning("end failed", jobid=jobid, why=str(trouble), again_in=delay)
                loop = asyncio.get_running_loop()
                self._retry_timers[jobid] = loop.call_later(delay, self._end_in_background, job)
                return str(trouble)
        self._retry_delays.pop(jobid, None)
        await self._register.drop(jobid)
        return None

    def _spawn(
        self, coroutine: Coroutine[None, None, str | None], name: str
    ) -> "asyncio.Task[str | None]":
        try:
            return self._task_group.create_task(coroutine, name=name)
        except RuntimeError:
            coroutine.close()
            raise Failed("the service is stopping") from None


def _check_same(job: Registration, registered: Registration) -> None:
    if job != registered:
        raise AlreadyRegistered(
            f"job {job.jobid} is registered with uid {registered.uid} and exclusive "
            f"{str(registered.exclusive).lower()}: delete it first"
        )


async def _wait_done(task: "asyncio.Task[str | None]", reason_if_cancelled: str) -> None:
    """Wait for a task, which goes on even if it is not waited for any more. Raises Failed."""
    await asyncio.wait({task})
    if task.cancelled():
        raise Failed(reason_if_cancelled)
    why = task.result()
    if why is not None:
        raise Failed(why)
