"""When a job with directives is held: while its storage is made ready, and given back.

What is to be done next follows from the job alone, so that a restart loses nothing.
"""

import msgspec

from warren.lifecycle.job import Job
from warren.lifecycle.states import State


class HoldNames(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is held by, as its eventlog names it."""

    dependency: str
    prolog: str
    epilog: str


class AddDependency(msgspec.Struct, frozen=True):
    """Keep the job from the scheduler, and ask for a Workflow."""


class StartProlog(msgspec.Struct, frozen=True):
    """Keep the job's tasks from starting, and ask for its storage."""


class FinishProlog(msgspec.Struct, frozen=True):
    """Stop keeping the tasks from starting: the job has failed."""


class StartEpilog(msgspec.Struct, frozen=True):
    """Keep the job from ending, and ask for its storage to be taken down."""

    job_started: bool
    """Whether its tasks were started before."""


Action = AddDependency | StartProlog | FinishProlog | StartEpilog


def decide(job: Job, holds: HoldNames, *, executing: bool) -> list[Action]:
    """Return what is to be done for a job with directives, in whatever state it is found."""
    match job.state:
        case State.DEPEND if holds.dependency not in job.ever_dependencies:
            return [AddDependency()]
        case State.RUN if holds.prolog not in job.ever_prologs:
            return [StartProlog()]
        case State.CLEANUP:
            actions: list[Action] = [FinishProlog()] if holds.prolog in job.prologs else []
            # Not before the tasks are gone: they have the storage mounted. A job that was
            # being started when it failed is let go of by execution first.
            tasks_gone = job.wait_status is not None if job.started else not executing
            if holds.epilog not in job.ever_epilogs and tasks_gone:
                actions.append(StartEpilog(job_started=job.started))
            return actions
        case _:
            return []
