"""What is done about commands around a job: the site's own, or those of the daemons that it needs.

Like everything that holds a job it is decided from the job alone, so that the commands of
a process that died are taken up by the next one. They are run again then: what a site
writes has to bear that.
"""

from typing import Final

import msgspec

from warren.lifecycle.job import Job
from warren.lifecycle.states import State

PROLOG: Final = "job-manager.prolog"
EPILOG: Final = "job-manager.epilog"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What is wanted of the commands around a job."""

    prolog_name: str = PROLOG
    """What holds the job for its prolog, as its eventlog names it."""
    epilog_name: str = EPILOG
    """What holds it for its epilog."""
    earlier_prolog: str | None = None
    """The prolog that is to be over before this one is run; the job is held at once."""
    has_prolog: bool = False
    has_epilog: bool = False
    cancel_prolog: bool = True
    """Whether a fatal exception ends a prolog that is running."""
    cancel_epilog: bool = False


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """What this process knows besides. None of it survives a restart."""

    executing: bool = False
    """Whether execution has been asked to run the job, and has not let go of it."""
    running: frozenset[str] = frozenset()
    """Which of the commands are running."""
    prolog_status: int | None = None
    """The wait status of a prolog that has ended."""


class PostStart(msgspec.Struct, frozen=True):
    """Append the event that the job is held for a command: `prolog-start`, `epilog-start`."""

    description: str


class Run(msgspec.Struct, frozen=True):
    """Run the command."""

    description: str


class Cancel(msgspec.Struct, frozen=True):
    """End the command."""

    description: str


class PostFinish(msgspec.Struct, frozen=True):
    """Append the event that the job is held no longer: `prolog-finish`, `epilog-finish`."""

    description: str
    status: int


Action = PostStart | Run | Cancel | PostFinish

_UNKNOWN_STATUS: Final = 1
"""The status of a command that was cut short together with the process that ran it."""


def decide(job: Job, settings: Settings, progress: Progress) -> list[Action]:
    """Return what is to be done for a job, in whatever state it is found."""
    match job.state:
        case State.RUN:
            return _decide_in_run(job, settings, progress)
        case State.CLEANUP:
            return _decide_in_cleanup(job, settings, progress)
        case _:
            return []


def _decide_in_run(job: Job, settings: Settings, progress: Progress) -> list[Action]:
    prolog = settings.prolog_name
    if prolog in job.prologs:
        if prolog in progress.running:
            return []
        if not settings.has_prolog or progress.prolog_status is not None:
            return [PostFinish(prolog, progress.prolog_status or 0)]
        return [Run(prolog)] if _is_over(settings.earlier_prolog, job) else []
    # Not for a job that is on its nodes already: the site had no prolog when it came there.
    is_new = prolog not in job.ever_prologs and not (job.started or progress.executing)
    return [PostStart(prolog)] if settings.has_prolog and is_new else []


def _is_over(prolog: str | None, job: Job) -> bool:
    return prolog is None or (prolog in job.ever_prologs and prolog not in job.prologs)


def _decide_in_cleanup(job: Job, settings: Settings, progress: Progress) -> list[Action]:
    prolog, epilog = settings.prolog_name, settings.epilog_name
    if prolog in job.prologs:
        if prolog in progress.running:
            return [Cancel(prolog)] if settings.cancel_prolog else []
        # What the prolog has begun the epilog undoes. It is announced before the prolog is
        # over, or the job would be free to end in between.
        if settings.has_epilog and epilog not in job.ever_epilogs:
            return [PostStart(epilog)]
        return [
            PostFinish(
                prolog,
                _UNKNOWN_STATUS if progress.prolog_status is None else progress.prolog_status,
            )
        ]
    if epilog in job.epilogs:
        is_unwanted = settings.cancel_epilog and any(
            problem.severity == 0 and problem.during_epilog for problem in job.exceptions
        )
        if epilog in progress.running:
            return [Cancel(epilog)] if is_unwanted else []
        if is_unwanted or not settings.has_epilog:
            return [PostFinish(epilog, _UNKNOWN_STATUS if is_unwanted else 0)]
        return [Run(epilog)]
    if job.started:
        tasks_gone = job.wait_status is not None
    else:
        # It was to be started, and has failed before: execution lets go of it first.
        tasks_gone = prolog in job.ever_prologs and not progress.executing
    is_new = settings.has_epilog and epilog not in job.ever_epilogs
    return [PostStart(epilog)] if is_new and tasks_gone else []
