"""The queues of the instance: their state, and what is requested of them over the bus.

Their state outlives a restart (KVS key `checkpoint.queues`), but for what was to last no
longer than this life. What follows of it for a job is decided in `lifecycle`.
"""

import asyncio
import errno
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import orjson

from warren.base import log
from warren.base.errors import UserMistake
from warren.instance import users
from warren.instance.config import Config
from warren.instance.jobs.jobtap import AllowedUpdate, Callbacks, Jobtap, Update
from warren.instance.jobs.manager import ActiveJob, JobManager
from warren.instance.kvs import Kvs, put
from warren.instance.users import UserLookup
from warren.lifecycle import jobqueue, limits, policy, queues
from warren.lifecycle.job import Job
from warren.lifecycle.queues import Change, QueueStates
from warren.lifecycle.states import PENDING, RUNNING
from warren.rfc import canonical
from warren.rfc import jobspec as jobspecs
from warren.rfc.errors import BadFormat
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError

_KEY: Final = "checkpoint.queues"

_POLL_INTERVAL: Final = 0.2
"""Seconds between two looks at the jobs, while a client waits for their end."""

_HOW_TO_MOVE: Final = "update its queue, or cancel it"

_MOVE_TOPICS: Final = (
    "job.update.attributes.system.queue",
    "job.update.attributes.system.constraints",
)


class Queues:
    """Decides which jobs come in, and which go to the scheduler. A plugin of the job manager."""

    name = "queues"

    def __init__(
        self,
        kvs: Kvs,
        manager: JobManager,
        config: Config,
        look_up_user: UserLookup = users.look_up_user,
    ) -> None:
        self._kvs = kvs
        self._manager = manager
        self._look_up_user = look_up_user
        self._limits = policy.queue_limits(config.queues, config.policy)
        self._default_queue = policy.default_queue(config.queues, config.policy)
        self._saved_states = self._states = self._load_states()
        """As the next life will find them, and as they are in this one."""
        manager.set_eligibility(self.is_eligible)
        manager.load(self)

    def configure(self, config: Config) -> None:
        """Apply other limits, and another default queue, to later submissions and updates.

        The set of queues stays.
        """
        self._limits = policy.queue_limits(config.queues, config.policy)
        self._default_queue = policy.default_queue(config.queues, config.policy)

    def _load_states(self) -> QueueStates:
        text = self._kvs.get(_KEY)
        if text is not None:
            try:
                return queues.decode(orjson.loads(text), self._limits)
            except (BadFormat, ValueError) as error:
                # It was changed by hand.
                log.error("checkpoint cannot be read", key=_KEY, reason=str(error))
        return {name: queues.initial_state(name) for name in self._limits}

    # Of jobs

    def with_queue_defaults(self, spec: Any) -> Mapping[str, Any]:
        """Return a jobspec with what its queue makes of it. Raises UserMistake."""
        return jobqueue.apply_queue(spec, self._limits, self._default_queue)

    async def check(self, spec: Mapping[str, Any], userid: int) -> None:
        """Raise RpcError where a checked jobspec's queue does not take it now, from this user."""
        try:
            queue_limits = jobqueue.limits_of(spec, self._limits)
        except UserMistake as mistake:
            raise RpcError(errno.EINVAL, str(mistake)) from mistake
        if queue_limits.restricted:
            try:
                user = await self._look_up_user(userid)
            except TimeoutError:
                message = "your groups could not be looked up in time: try again later"
                raise RpcError(errno.EAGAIN, message) from None
            user_refusal = limits.user_refusal(queue_limits, user.name, user.groups)
            if user_refusal is not None:
                raise RpcError(errno.EPERM, user_refusal)
        refusal = queues.refusal(self._states, queue_limits.name) or limits.refusal(
            spec, queue_limits
        )
        if refusal is not None:
            raise RpcError(errno.EINVAL, refusal)

    async def resolve_updates(
        self, spec: Mapping[str, Any], requested: Mapping[str, Any], userid: int, *, by_owner: bool
    ) -> Mapping[str, Any]:
        """Return what updates of a job come to, the constraints of a new queue included.

        Raises RpcError where they do not make a jobspec, or name a queue that does not exist;
        but for the instance's owner, also where the job would be beyond its queue's limits, or
        where another queue would not take it from its user.
        """
        try:
            updates = jobqueue.expand_updates(spec, requested, self._limits)
            updated_spec = canonical.check(jobspecs.update(spec, updates))
            queue_limits = jobqueue.limits_of(updated_spec, self._limits)
        except UserMistake as mistake:
            raise RpcError(errno.EINVAL, str(mistake)) from mistake
        if by_owner:
            return updates
        if jobqueue.queue_of(updated_spec) != jobqueue.queue_of(spec):
            await self.check(updated_spec, userid)
        # Where it is already, the queue may be closed by now.
        refusal = limits.refusal(updated_spec, queue_limits)
        if refusal is not None:
            raise RpcError(errno.EINVAL, refusal)
        return updates

    def is_eligible(self, spec: Mapping[str, Any]) -> bool:
        """Return whether a job is for the scheduler now."""
        return queues.is_eligible(self._states, self._limits, jobqueue.queue_of(spec))

    def load(self, tap: Jobtap) -> Callbacks:
        """See to jobs after a restart, and let their queues be changed (`resolve_updates`)."""

        def on_restart(job: Job) -> None:
            queue = jobqueue.queue_of(tap.jobspec(job.id))
            if job.state not in PENDING or queue in self._limits:
                return
            note = f"its queue {queue} is not configured any more: {_HOW_TO_MOVE}"
            if queue is None:
                note = f"it has no queue, and there are named ones now: {_HOW_TO_MOVE}"
            # Once: a job that waits for long has many restarts.
            if all(problem.note != note for problem in job.exceptions):
                tap.raise_exception(job.id, "queue", 4, note)

        def on_move(job: Job, update: Update) -> AllowedUpdate:
            # The owner may go beyond the limits that are set for others.
            return AllowedUpdate(validated=update.by_owner, check_feasibility=True)

        return {"job.restart": on_restart, **dict.fromkeys(_MOVE_TOPICS, on_move)}

    # Of users

    def methods(self) -> Methods:
        """Return what is requested of the job manager, and answered here."""
        return {
            "queue-list": Method(self._list, guest=True),
            "queue-status": Method(self._status, guest=True),
            "queue-enable": Method(self._enable),
            "queue-start": Method(self._start),
            "drain": Method(self._drain),
            "idle": Method(self._idle),
        }

    async def _list(self, request: Request) -> Payload:
        return {"queues": [name for name in self._states if name is not None]}

    async def _status(self, request: Request) -> Payload:
        return queues.status(self._states, self._limits, self._queue_name(request))

    async def _enable(self, request: Request) -> Payload:
        enable, reason = _bool(request, "enable"), _text(request, "reason")
        await self._change(request, queues.enable_change(enable, reason), persist=True)
        return {}

    async def _start(self, request: Request) -> Payload:
        start, reason = _bool(request, "start"), _text(request, "reason")
        persist = not _bool(request, "nocheckpoint", False)
        await self._change(request, queues.start_change(start, reason), persist=persist)
        # What is withdrawn from the scheduler is, when this is answered.
        await self._manager.wait_committed()
        return {}

    async def _change(self, request: Request, change: Change, *, persist: bool) -> None:
        """Change queues. It is visible once it is durable, even if the caller is gone."""
        try:
            names = queues.choose(
                self._states, _text(request, "name"), all_=_bool(request, "all", False)
            )
        except UserMistake as mistake:
            raise RpcError(errno.EINVAL, str(mistake)) from mistake

        def apply() -> None:
            self._states = queues.change_states(self._states, names, change)
            self._manager.recheck_eligibility()

        if not persist:
            apply()
            return
        self._saved_states = queues.change_states(self._saved_states, names, change)
        durable = self._kvs.commit([put(_KEY, orjson.dumps(queues.encode(self._saved_states)))])
        durable.add_done_callback(lambda _: apply())
        await asyncio.shield(durable)

    async def _drain(self, request: Request) -> Payload:
        jobs = self._jobs_of(request)
        await self._wait_until(lambda: not any(True for _ in jobs()))
        return {}

    async def _idle(self, request: Request) -> Payload:
        jobs = self._jobs_of(request)
        await self._wait_until(
            lambda: (
                not any(
                    active_job.allocating or active_job.job.state in RUNNING
                    for active_job in jobs()
                )
            )
        )
        return {"pending": sum(1 for _ in jobs())}

    async def _wait_until(self, is_done: Callable[[], bool]) -> None:
        # Not woken by the jobs: a client that waits for a quiet system has time, and no job pays.
        while not is_done():  # noqa: ASYNC110
            await asyncio.sleep(_POLL_INTERVAL)
        await self._manager.wait_committed()

    def _jobs_of(self, request: Request) -> Callable[[], Iterator[ActiveJob]]:
        """Return what gives the active jobs: of the queue that is named, or all."""
        if _text(request, "name") is None:
            return self._active
        queue = self._queue_name(request)
        return lambda: (
            active_job
            for active_job in self._active()
            if jobqueue.queue_of(active_job.jobspec) == queue
        )

    def _active(self) -> Iterator[ActiveJob]:
        return iter(self._manager.active())

    def _queue_name(self, request: Request) -> str | None:
        try:
            return queues.require_queue(self._states, _text(request, "name"))
        except UserMistake as mistake:
            raise RpcError(errno.EINVAL, str(mistake)) from mistake


def _text(request: Request, key: str) -> str | None:
    value = request.payload.get(key)
    if value is None or isinstance(value, str):
        return value
    raise RpcError(errno.EPROTO, f"{request.topic} takes {key} as a string")


def _bool(request: Request, key: str, default: bool | None = None) -> bool:
    value = request.payload.get(key, default)
    if isinstance(value, bool):
        return value
    raise RpcError(errno.EPROTO, f"{request.topic} takes {key} as true or false")
