"""Changes of a jobspec that users ask for: plugins allow them, and look at what comes of them."""

import errno
from collections.abc import Mapping
from typing import Any

from warren.base.errors import UserMistake
from warren.instance.jobs.eventprocessor import DURATION_KEY, updated_jobspec
from warren.instance.jobs.jobtap import Rejected, Update
from warren.instance.jobs.known import ActiveJob
from warren.instance.jobs.manager import JobManager
from warren.lifecycle.states import State
from warren.rfc import jobspec as jobspecs
from warren.rpc.message import Cred, RpcError


async def update_jobspec(
    manager: JobManager, active_job: ActiveJob, updates: Mapping[str, Any], cred: Cred
) -> None:
    """Change an active job's jobspec. Returns when that is durable.

    Raises RpcError, and changes nothing, where a plugin objects.
    """
    _check_state(active_job, updates, cred)
    all_updates, validated, check_feasibility = _ask_plugins(manager, active_job, updates, cred)
    previous_jobspec = active_job.jobspec
    spec = _checked_jobspec(manager, active_job, all_updates, validated=validated)
    if check_feasibility:
        try:
            await manager.rpc("feasibility.check", {"jobspec": spec})
        except RpcError as error:
            if error.errnum != errno.ENOSYS:
                raise RpcError(errno.EINVAL, str(error)) from None
        if (
            active_job.jobspec is not previous_jobspec
            or manager.find(active_job.job.id) is not active_job
        ):
            raise RpcError(errno.EAGAIN, "the job has changed in the meantime")
        _check_state(active_job, updates, cred)
    if cred.is_owner and active_job.job.userid != cred.userid and not active_job.job.immutable:
        # What the owner has set, the job's user must not set back.
        manager.processor.post(active_job, "set-flags", {"flags": ["immutable"]})
    manager.processor.post(active_job, "jobspec-update", all_updates)
    await manager.wait_committed()


def _check_state(active_job: ActiveJob, updates: Mapping[str, Any], cred: Cred) -> None:
    job = active_job.with_pending_events()
    if job.immutable and not cred.is_owner:
        raise RpcError(
            errno.EPERM,
            "the instance's owner has changed the job: only the owner may change it again",
        )
    if job.state in (State.CLEANUP, State.INACTIVE):
        raise RpcError(errno.EINVAL, f"a job in state {job.state} cannot be changed")
    if job.state is State.RUN and updates.keys() - {DURATION_KEY}:
        raise RpcError(errno.EINVAL, f"of a job that runs only {DURATION_KEY} can be changed")


def _ask_plugins(
    manager: JobManager, active_job: ActiveJob, updates: Mapping[str, Any], cred: Cred
) -> tuple[dict[str, Any], bool, bool]:
    """Ask about each key.

    Return all changes, whether they are validated, and whether their feasibility is to be checked.
    """
    stack = manager.processor.stack
    all_updates = dict(updates)
    validated, check_feasibility = True, False
    for key, value in updates.items():
        update = Update(key=key, value=value, userid=cred.userid, by_owner=cred.is_owner)
        try:
            allowed_updates = [
                each for each in stack.collect(f"job.update.{key}", active_job, update) if each
            ]
        except Rejected as error:
            raise RpcError(errno.EINVAL, str(error)) from None
        if not allowed_updates:
            raise RpcError(errno.EINVAL, f"update of {key} not supported")
        validated = validated and any(each.validated for each in allowed_updates)
        check_feasibility = check_feasibility or any(
            each.check_feasibility for each in allowed_updates
        )
        for each in allowed_updates:
            all_updates.update(each.updates)
    return all_updates, validated, check_feasibility


def _checked_jobspec(
    manager: JobManager, active_job: ActiveJob, updates: Mapping[str, Any], *, validated: bool
) -> Mapping[str, Any]:
    """Return the jobspec as it would be. Raises RpcError(EINVAL) where it must not be so."""
    before = active_job.jobspec
    try:
        spec = jobspecs.check(updated_jobspec(before, updates))
        if not validated:
            active_job.jobspec = spec  # which is what plugins look at
            manager.processor.stack.check("job.validate", active_job)
    except (UserMistake, Rejected) as error:
        raise RpcError(errno.EINVAL, str(error)) from None
    finally:
        active_job.jobspec = before
    return spec
