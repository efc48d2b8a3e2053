"""A job's events, seen as the conductor sees a job."""

import json
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from warren.base.errors import UserMistake
from warren.dws import tolerance
from warren.dws.binding import Phase
from warren.dws.jobs.jobsnapshot import Job
from warren.dws.jobs.unsavedresults import CANCEL, UnsavedPolicy
from warren.dws.persistent import expiry, instances
from warren.dws.rabbits import alerts
from warren.lifecycle import job as lifecycle
from warren.lifecycle.states import State
from warren.lifecycle.urgency import HOLD
from warren.rfc import dependency, fluid, hostlist, resource_set
from warren.rfc import jobspec as jobspecs
from warren.rfc.errors import BadFormat
from warren.wlm import jobdirectives
from warren.wlm.codec import BINDING, DAEMONS_EPILOG, DEPENDENCY, EPILOG, PROLOG

_EXISTING_STORAGE_COMMANDS: Final = ("persistentdw", "destroy_persistent")
"""Directives about storage that the job does not make: jobs before it may still make or use it."""


def failure_tolerance(spec: Mapping[str, Any]) -> int:
    """Return how many of its nodes a job may lose to failing storage. Raises UserMistake."""
    value = jobspecs.system(spec).get("dw_failure_tolerance", 0)
    if type(value) is not int or value < 0:
        raise UserMistake(
            f"dw_failure_tolerance={json.dumps(value)} is not a number of nodes: it is how many "
            "the job may lose to failing storage, from 0 on."
        )
    return value


def storage_expiry(spec: Mapping[str, Any]) -> float | None:
    """Return when the storage expires that a job creates, in seconds since the epoch.

    None where its attributes do not say. Raises UserMistake.
    """
    value = jobspecs.system(spec).get("dw_expires")
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= expiry.LAST_TIMESTAMP:
        raise UserMistake(
            f"dw_expires={json.dumps(value)} is not a time: it is when the storage expires that "
            "the job creates, in seconds since 1970."
        )
    return float(value)


def unsaved_results(
    spec: Mapping[str, Any], allowed: Collection[str] = tuple(UnsavedPolicy)
) -> UnsavedPolicy | None:
    """Return what becomes of the results of a job that is cancelled; None where it does not say.

    Raises UserMistake for what a site does not allow.
    """
    value = jobspecs.system(spec).get("dw_unsaved_results")
    if value is None:
        return None
    if value not in tuple(allowed):
        raise UserMistake(
            f"dw_unsaved_results={json.dumps(value)} is not offered: it is {' or '.join(allowed)}."
        )
    return UnsavedPolicy(value)


def awaited_jobs(spec: Mapping[str, Any]) -> list[int]:
    """Return the jobs after which a job may begin (RFC 26)."""
    job_ids: list[int] = []
    for each in jobspecs.system(spec).get("dependencies") or ():
        scheme = dependency.SCHEMES.get(each["scheme"])
        if scheme is not None and scheme.value_kind is dependency.ValueKind.JOB:
            with suppress(BadFormat):
                job_ids.append(fluid.parse(each["value"]))
    return job_ids


def constrain_to_nodes(spec: Mapping[str, Any], nodes: Sequence[str]) -> Mapping[str, Any]:
    """Return a jobspec for some nodes alone, of those that it may have anyhow."""
    system = jobspecs.system(spec)
    allowed = {"hostlist": [hostlist.encode(nodes)]}
    own_constraints = system.get("constraints")
    new_system = {
        **system,
        "constraints": {"and": [own_constraints, allowed]} if own_constraints else allowed,
    }
    return {**spec, "attributes": {**spec["attributes"], "system": new_system}}


def exception_notes(job: lifecycle.Job, type: str, owner: int) -> tuple[str, ...]:
    """Return the notes of a job's exceptions of a type, but for those that guests have raised."""
    return tuple(
        each.note for each in job.exceptions if each.type == type and each.raised_by_owner(owner)
    )


def conductor_view(
    job: lifecycle.Job,
    spec: Mapping[str, Any],
    r: Mapping[str, Any] | None,
    groupid: int | None,
    owner: int,
) -> Job:
    """Return the conductor's view of a job of an owner's instance."""
    texts = jobdirectives.directives(spec) or ()
    current_phase = phase(job)
    has_other_dependencies = not job.dependencies <= {DEPENDENCY}
    if (
        current_phase is Phase.HELD
        and has_other_dependencies
        and instances.instance_names(texts, _EXISTING_STORAGE_COMMANDS)
    ):
        # Until its other dependencies are met: those jobs may still make that storage, or use it.
        current_phase = Phase.NEW
    expires, max_lost_nodes, unsaved_policy = None, 0, None
    # It may have been submitted without being looked at: what can be read of it holds.
    with suppress(UserMistake):
        expires = storage_expiry(spec)
    with suppress(UserMistake):
        max_lost_nodes = failure_tolerance(spec)
    with suppress(UserMistake):
        unsaved_policy = unsaved_results(spec)
    queue = jobspecs.system(spec).get("queue")
    nodes, unreadable_reason = list[str](), None
    try:
        nodes = resource_set.nodelist(r) if r is not None else []
    except BadFormat as error:
        unreadable_reason = str(error)
    return Job(
        id=job.id,
        phase=current_phase,
        binding=BINDING,
        userid=job.userid,
        groupid=groupid,
        formatted_id=fluid.f58plain(job.id),
        directives=texts,
        queue=queue if isinstance(queue, str) else "",
        urgency=HOLD if has_other_dependencies else job.urgency,
        submitted=job.times.get(State.NEW),
        expires=expires,
        max_lost_nodes=max_lost_nodes,
        lost_nodes=frozenset[str]().union(
            *map(tolerance.node_names, exception_notes(job, tolerance.EXCEPTION, owner))
        ),
        alerts=exception_notes(job, alerts.EXCEPTION, owner),
        resources=spec["resources"],
        nodes=tuple(nodes),
        unreadable_reason=unreadable_reason,
        ran=job.started,
        failed=job.fatal_exception is not None,
        cancelled=job.fatal_exception is not None and job.fatal_exception.type == CANCEL,
        unsaved_policy=unsaved_policy,
        has_exception_while_ending=any(each.during_epilog for each in job.exceptions),
        has_failed_while_ending=any(
            each.severity == 0 and each.during_epilog for each in job.exceptions
        ),
    )


def phase(job: lifecycle.Job) -> Phase:
    """Return where a job is, as far as its storage is concerned."""
    if EPILOG in job.epilogs:
        # Daemons let go of the job's storage first.
        return Phase.RUNNING if DAEMONS_EPILOG in job.epilogs else Phase.ENDING
    if job.state is State.INACTIVE or EPILOG in job.ever_epilogs:
        return Phase.OVER
    if job.state in (State.NEW, State.DEPEND):
        # dws-jobtap adds its dependency after the job's first events, and we may see it much later.
        return Phase.HELD if DEPENDENCY in job.dependencies else Phase.NEW
    if PROLOG in job.prologs and job.state is State.RUN:
        return Phase.STARTING
    if job.started:
        return Phase.RUNNING
    return Phase.QUEUED
