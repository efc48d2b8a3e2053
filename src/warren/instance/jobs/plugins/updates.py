"""What users may change in a jobspec: how long a job may take, and its name."""

from math import isfinite
from typing import Final

from warren.base.clock import Clock
from warren.instance.jobs.eventprocessor import DURATION_KEY, expiration
from warren.instance.jobs.jobtap import AllowedUpdate, Callbacks, Jobtap, Rejected, Update
from warren.lifecycle.job import Job
from warren.lifecycle.states import State

_NAME_KEY: Final = "attributes.system.job.name"


class Updates:
    """The plugin."""

    name: Final = "update"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def load(self, tap: Jobtap) -> Callbacks:
        self._tap = tap
        return {
            f"job.update.{DURATION_KEY}": self._duration,
            f"job.update.{_NAME_KEY}": self._job_name,
        }

    def _duration(self, job: Job, update: Update) -> AllowedUpdate:
        value = update.value
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Rejected(f"{DURATION_KEY} is not a number of seconds")
        if not isfinite(value) or value < 0:
            raise Rejected(f"{DURATION_KEY} is not a number of seconds from 0 on")
        if job.state is State.RUN:
            if not update.by_owner:
                raise Rejected("only the instance owner can change the duration of a running job")
            end = expiration(self._tap.resources(job.id) or {}, value)
            if end and end <= self._clock.now():
                raise Rejected(f"with {DURATION_KEY} {value} the job's time would be over already")
        # The owner may go beyond the limits that are set for others.
        return AllowedUpdate(validated=update.by_owner)

    def _job_name(self, job: Job, update: Update) -> AllowedUpdate:
        if not isinstance(update.value, str) or not update.value:
            raise Rejected(f"{_NAME_KEY} is not a name")
        return AllowedUpdate(validated=True)
