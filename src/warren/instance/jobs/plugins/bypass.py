"""The plugin `alloc-bypass`: jobs of the owner with an R of their own, `alloc-bypass.R`.

The scheduler does not know them: they run beside the jobs that it has placed there.
"""

from typing import Any, Final

from warren.instance.jobs.jobtap import Callbacks, Jobtap, Rejected
from warren.lifecycle.job import Job
from warren.rfc import jobspec as jobspecs
from warren.rfc import resource_set
from warren.rfc.errors import BadFormat

_ATTRIBUTE: Final = "alloc-bypass"


class AllocBypass:
    """The plugin."""

    name: Final = "alloc-bypass"

    def __init__(self, owner: int) -> None:
        self._owner = owner

    def load(self, tap: Jobtap) -> Callbacks:
        self._tap = tap
        return {
            "job.validate": self._validate,
            "job.new": self._flag,
            "job.state.sched": self._allocate,
        }

    def _requested_r(self, job: Job) -> Any:
        attribute = jobspecs.system(self._tap.jobspec(job.id)).get(_ATTRIBUTE)
        return None if attribute is None else attribute.get("R")

    def _validate(self, job: Job) -> None:
        attribute = jobspecs.system(self._tap.jobspec(job.id)).get(_ATTRIBUTE)
        if attribute is None:
            return
        if job.userid != self._owner:
            raise Rejected("only the instance owner can bring its own resources")
        try:
            resource_set.decode_all(attribute["R"])
        except (BadFormat, KeyError, TypeError) as error:
            raise Rejected(f"attributes.system.{_ATTRIBUTE}.R cannot be read: {error}") from None

    def _flag(self, job: Job) -> None:
        if self._requested_r(job) is not None and not job.alloc_bypass:
            self._tap.set_flag(job.id, _ATTRIBUTE)

    def _allocate(self, job: Job) -> None:
        if job.alloc_bypass:
            self._tap.allocate(job.id, self._requested_r(job))
