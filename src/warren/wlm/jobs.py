"""An instance of Flux as the conductor's workload manager, be it embedded or a broker's.

Jobs are observed through the job manager's journal, which tells everything
again to each new client. The `dws.*` requests of the plugin only have it reconciled,
and are answered with what came of it.
"""

import asyncio
import errno
import pwd
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol
from uuid import uuid4

import msgspec
import orjson

from warren.base import log
from warren.base.errors import Retryable, UserMistake
from warren.base.placing import HeldFlash
from warren.dws.binding import Phase
from warren.dws.jobs.jobsnapshot import Job
from warren.lifecycle import job as lifecycle
from warren.lifecycle.states import State
from warren.rfc import eventlog, fluid, hostlist, treeobj
from warren.rfc import jobspec as jobspecs
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Handle, Payload, Request, RpcError
from warren.scheduling.allocatedflash import allocated_flash
from warren.scheduling.tags import UNTAGGED_CONSTRAINT
from warren.wlm import codec, identity, view
from warren.wlm.codec import EPILOG_TIMEOUT
from warren.wlm.nodes import drain_reasons

_SENTINEL_ID: Final = -1
_RETRY_DELAY: Final = 0.5
_JOURNAL_TIMEOUT: Final = 5.0
"""How far the journal may be behind the plugin."""

_RAISE_TIMEOUT: Final = 5.0
"""Seconds within which the journal tells of an exception that the plugin raises."""

IGNORED_EVENTS: Final = frozenset(
    {"validate", "priority", "memo", codec.ENVIRONMENT, "free", "release"}
)
"""Events that change nothing of a job as the conductor sees it (`view.conductor_view`)."""

DENIED_EVENTS: Final = ("memo", "annotations")
"""Events that the journal leaves out: a job's own user writes them, and of any length."""

_PHASES: Final = list(Phase)
_COMMIT_TIMEOUT: Final = 10.0
"""Seconds for which jobs wait until the instance's id is kept."""

_SERVICE: Final = "dws"
"""The name that is unique to the service whose records these are."""


class Disconnected(Retryable):
    """The instance is not there, or has no room: it is told again what it may not have heard."""

    delay = 1.0


class UnknownUser(Retryable):
    """The machine does not know a job's user now, as when its directory of users is away."""

    delay = 30.0


_UNKNOWN_USER_TIMEOUT: Final = 300.0
"""Seconds after which an unknown user counts as one that does not exist."""


class _TrackedJob(msgspec.Struct):
    """A job with directives, as the journal has told of it so far."""

    job: lifecycle.Job
    jobspec: Mapping[str, Any]
    r: Mapping[str, Any] | None = None
    view: Job | None = None
    """The job as the conductor sees it, once it was asked for; None again after an event."""
    raised_exceptions: set[tuple[str, str]] = msgspec.field(default_factory=set)
    """The exceptions that were raised on it, which the journal may not have told yet."""
    refused_at: float | None = None
    """When a request of the plugin about it was refused last, by the event loop's clock."""
    user_unknown_since: float | None = None
    """When its user was first seen to be unknown, by the event loop's clock."""
    has_bad_event: bool = False
    """Whether it had an event that was not understood."""


class _PluginRequest(NamedTuple):
    """A request of the plugin that waits until the job was reconciled."""

    topic: str
    first_phase: int
    """The first phase, by its number, in which the job is what the request is about."""
    answer: asyncio.Future[str | None]


class Rules(Protocol):
    """What a site wants of jobs with storage, where ingest asks for nothing."""

    def expand_presets(self, jobspec: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return a jobspec with the directives of its presets."""
        ...

    def check_allowed(self, jobspec: Mapping[str, Any], userid: int) -> None:
        """Raise UserMistake for a jobspec that a site does not let this user have."""
        ...


class FluxJobs:
    """A `WorkloadManager`."""

    binding = codec.BINDING

    def __init__(self, handle: Handle, owner: int, rules: Rules | None = None) -> None:
        """`owner` is the instance's: what guests say of their jobs is theirs alone.

        `rules` are asked where jobs have not been looked at when they were submitted.
        """
        self._rules = rules
        self._instance = ""
        self._handle = handle
        self._owner = owner
        self._tracked: dict[int, _TrackedJob] = {}
        self._incoming = self._tracked
        """What the journal has told since it began: the same, once it has told everything."""
        self._synced = asyncio.Event()
        self._changed = asyncio.Event()
        self._listeners: list[Callable[[int], None]] = []
        self._requests: dict[int, list[_PluginRequest]] = {}

    # Observing

    @property
    def instance(self) -> str:
        return self._instance

    def listen(self, listener: Callable[[int], None]) -> None:
        """Call `listener` with each job that changes. What it raises is logged."""
        self._listeners.append(listener)

    async def wait_synced(self) -> None:
        await self._synced.wait()

    def job(self, job_id: int) -> Job | None:
        tracked = self._tracked.get(job_id)
        if tracked is None:
            return None
        if tracked.view is None:
            try:
                group = _primary_group(tracked.job.userid)
            except KeyError:
                group = None  # which matters where the job is to have a Workflow
            tracked.view = view.conductor_view(
                tracked.job, tracked.jobspec, tracked.r, group, self._owner
            )
        return tracked.view

    def userid(self, job_id: int) -> int | None:
        tracked = self._tracked.get(job_id)
        return tracked.job.userid if tracked is not None else None

    def job_ids(self) -> Iterable[int]:
        return list(self._tracked)

    def check_allowed(self, job: Job) -> None:
        tracked = self._tracked.get(job.id)
        if job.groupid is None:
            self._check_user_entry(job, tracked)
        if self._rules is not None and tracked is not None:
            self._rules.check_allowed(tracked.jobspec, job.userid)

    def _check_user_entry(self, job: Job, tracked: _TrackedJob | None) -> None:
        """Have a job wait whose user is not known; refuse it where that lasts."""
        message = f"User {job.userid} has no entry in the password file"
        now = asyncio.get_running_loop().time()
        if tracked is not None:
            tracked.view = None  # the user is looked up again then
            if tracked.user_unknown_since is None:
                tracked.user_unknown_since = now
            if now - tracked.user_unknown_since < _UNKNOWN_USER_TIMEOUT:
                raise UnknownUser(message)
        raise UserMistake(f"{message}, and storage belongs to a user and a group: ask an admin.")

    async def run(self) -> None:
        """Follow the journal until cancelled."""
        while True:
            try:
                # Before what has no job is known: then it is known whose it is, too.
                self._instance = self._instance or await self._find_or_make_id()
                request = {"deny": dict.fromkeys(DENIED_EVENTS, 1)}
                journal = self._handle.stream("job-manager.events-journal", request)
                async with aclosing(journal) as entries:  # type: ignore[type-var]
                    self._incoming = {}
                    async for entry in entries:
                        self._receive(entry)
            except (RpcError, Disconnected) as error:
                log.warning("the journal has ended", reason=str(error))
            # What is known stays: a job that is not known counts as over.
            self._synced.clear()
            await asyncio.sleep(_RETRY_DELAY)

    async def _find_or_make_id(self) -> str:
        """Return the id that marks the instance's Workflows; an empty one while none can be kept.

        With an empty one, Workflows are made without a label, and those with one are another's.
        """
        kept_id = await identity.find_instance_id(self._handle)
        if kept_id:
            return kept_id
        new_id = uuid4().hex
        operation = {"key": identity.KEY, "flags": 0, "dirent": treeobj.val(orjson.dumps(new_id))}
        try:
            # What finds the disk full waits for room; what comes after it is refused.
            async with asyncio.timeout(_COMMIT_TIMEOUT):
                await self._handle.rpc("kvs.commit", _transaction([operation]))
        except (RpcError, TimeoutError) as error:
            if isinstance(error, RpcError) and error.unserved:
                raise
            # No job waits for that: those that are over are to leave room.
            log.warning(
                "Workflows have no mark of this instance until one can be kept in its KVS: make "
                "room there, and start the conductor again",
                reason=str(error) or f"no answer in {_COMMIT_TIMEOUT:g} s",
            )
            return ""
        return new_id

    def _receive(self, entry: Payload) -> None:
        job_id = entry["id"]
        if job_id == _SENTINEL_ID:
            vanished = self._tracked.keys() - self._incoming.keys()
            self._tracked = self._incoming
            self._synced.set()
            for each in vanished:  # their ends were not told
                self._notify_listeners(each)
            return
        for each in entry["events"]:
            event = Event(each["timestamp"], each["name"], each.get("context", {}))
            try:
                self._apply(job_id, event, entry)
            except Exception as error:  # one job's event may cost neither others nor other jobs
                self._log_bad_event(job_id, event, error)
        tracked = self._incoming.get(job_id)
        if tracked is None:
            return
        if IGNORED_EVENTS.issuperset(each["name"] for each in entry["events"]) and "R" not in entry:
            self._wake_waiters()
            return
        tracked.r = entry.get("R", tracked.r)
        tracked.view = None
        if tracked.job.state is State.INACTIVE:
            del self._incoming[job_id]
        self._notify_listeners(job_id)

    def _apply(self, job_id: int, event: Event, entry: Payload) -> None:
        if event.name == "submit":
            if "dw" in jobspecs.system(entry["jobspec"]):
                lifecycle_job = lifecycle.from_submit(JobId(job_id), event)
                spec = entry["jobspec"]
                expanded = spec if self._rules is None else self._rules.expand_presets(spec)
                self._incoming[job_id] = _TrackedJob(lifecycle_job, expanded)
            return
        tracked = self._incoming.get(job_id)
        if tracked is None:
            return
        updated = lifecycle.update(tracked.job, event)
        if event.name == "jobspec-update":
            tracked.jobspec = jobspecs.update(tracked.jobspec, event.context)
        tracked.job = updated

    def _log_bad_event(self, job_id: int, event: Event, error: Exception) -> None:
        """Log the first event of a job that is not understood: the job is as it was before it."""
        tracked = self._incoming.get(job_id)
        if tracked is None or not tracked.has_bad_event:
            reason = str(error)
            log.exception("an event was not understood", job=job_id, name=event.name, reason=reason)
        if tracked is not None:
            tracked.has_bad_event = True

    def _wake_waiters(self) -> None:
        """Wake the tasks that wait for the journal to tell more."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _notify_listeners(self, job_id: int) -> None:
        self._wake_waiters()
        for listener in self._listeners:
            try:
                listener(job_id)
            except Exception:  # a bug of one listener may cost neither the others nor other jobs
                log.exception("listener failed", job=job_id)

    async def flash(self, job: Job) -> Sequence[HeldFlash]:
        # The journal tells R without the graph that says which flash it is.
        try:
            return allocated_flash(await self._lookup(job, "R"))
        except RpcError as error:
            if error.errnum != errno.ENOENT:
                raise
            return ()  # the job has ended meanwhile, and gave everything back

    # Acting

    async def release_to_scheduler(
        self,
        job: Job,
        resources: Sequence[Mapping[str, Any]],
        constraints: Mapping[str, Any],
        nodes: Sequence[str] | None = None,
        daemons: Sequence[str] = (),
    ) -> None:
        # What flux-coral2 calls `exclude` is a constraint, which the plugin adds to the job's own.
        exclude: Mapping[str, Any] = UNTAGGED_CONSTRAINT
        if nodes is not None:
            exclude = {"and": [UNTAGGED_CONSTRAINT, {"hostlist": [hostlist.encode(nodes)]}]}
        message = codec.ResourceUpdate(
            id=job.id,
            resources=resources,
            exclude=exclude,
            dw_constraints=constraints or msgspec.UNSET,
            requires=daemons or msgspec.UNSET,
        )
        await self._call_plugin("resource-update", message)

    async def start(self, job: Job, variables: Mapping[str, str]) -> None:
        message = codec.PrologRemove(id=job.id, variables=variables)
        await self._call_plugin("prolog-remove", message)

    async def finish(self, job: Job) -> None:
        message = codec.EpilogRemove(id=job.id)
        await self._call_plugin("epilog-remove", message)

    async def ended_by_epilog_timeout(self, job: Job) -> bool:
        try:
            text = await self._lookup(job, "eventlog")
        except RpcError as error:
            if error.errnum != errno.ENOENT:
                log.warning("the record of a job cannot be read", job=job.id, reason=str(error))
            return False
        exceptions = (
            event.context
            for event in eventlog.decode(text)
            if event.name == "exception" and event.context.get("type") == EPILOG_TIMEOUT
        )
        # A guest's word takes no rabbit from the others.
        return any(
            each.get("severity") == 0 and each.get("userid") in (None, self._owner)
            for each in exceptions
        )

    async def drain(self, nodes: Sequence[str], reason: str) -> None:
        # One by one, so that what is refused for one is done for the others.
        for node in nodes:
            request = {"targets": node, "reason": reason, "mode": "update"}
            try:
                await self._call("resource.drain", request)
            except RpcError as error:
                log.warning("node is not drained", node=node, reason=str(error))

    async def undrain(self, nodes: Sequence[str], reason: str) -> None:
        reason_by_host = drain_reasons(await self._call("resource.status", {}))
        to_undrain = sorted(each for each in nodes if reason_by_host.get(each) == reason)
        if to_undrain:
            await self._call("resource.undrain", {"targets": hostlist.encode(to_undrain)})

    async def free_nodes(self, job: Job, nodes: Sequence[str]) -> None:
        message = codec.Release(id=job.id, nodelist=hostlist.encode(nodes))
        await self._call_plugin("release", message)

    async def raise_exception(
        self, job: Job, type: str, note: str, severity: int = 0
    ) -> float | None:
        tracked = self._tracked.get(job.id)
        raised = set[tuple[str, str]]() if tracked is None else tracked.raised_exceptions
        if severity == 0 and job.phase is not Phase.ENDING:
            if tracked is not None and tracked.job.fatal_exception is not None:
                return None  # since it was looked at
            seconds_to_wait = self._refuse_requests(job, tracked, note)
            if seconds_to_wait is not None:
                return seconds_to_wait
        if (type, note) in raised:
            return None
        request = {"id": job.id, "type": type, "severity": severity, "note": note}
        await self._call_if_active("job-manager.raise", request)
        raised.add((type, note))
        return None

    def _refuse_requests(self, job: Job, tracked: _TrackedJob | None, note: str) -> float | None:
        """Answer what the plugin has asked with a refusal, and leave the exception to it.

        Return the seconds until that must have come, for the plugin may have to drop a refusal;
        None where nothing was asked, or has come by then.
        """
        now = asyncio.get_running_loop().time()
        # The plugin waits for an answer, and raises the exception that fits its question. Not about
        # a job's end: that it asks again when it was loaded anew, and heeds no refusal then, for
        # that may come of the first time.
        if self._requests_answered_by(job):
            self.answer_requests(job, note)
            if tracked is not None:
                tracked.refused_at = now
            return _RAISE_TIMEOUT
        if (
            tracked is None
            or tracked.refused_at is None
            or tracked.refused_at + _RAISE_TIMEOUT <= now
        ):
            return None
        return tracked.refused_at + _RAISE_TIMEOUT - now

    async def record(self, job: Job, values: Mapping[str, Any]) -> None:
        operations = []
        for key, value in values.items():
            record_key = f"{fluid.kvs(job.id)}.{key}"
            # Services store their data under data.<service> (RFC 16). Drivers and users of Flux
            # look for the records beside the eventlog, where they stay.
            link_key = f"{fluid.kvs(job.id)}.data.{_SERVICE}.{key}"
            operations += [
                {"key": record_key, "flags": 0, "dirent": treeobj.val(orjson.dumps(value))},
                {"key": link_key, "flags": 0, "dirent": treeobj.symlink(record_key)},
            ]
        await self._commit(operations)

    async def _commit(self, operations: Sequence[Payload]) -> None:
        await self._call("kvs.commit", _transaction(operations))

    async def memo(self, job: Job, values: Mapping[str, str]) -> None:
        await self._call_if_active("job-manager.memo", {"id": job.id, "memo": dict(values)})

    async def _lookup(self, job: Job, key: str) -> str:
        request = {"id": job.id, "keys": [key], "flags": 0}
        text: str = (await self._call("job-info.lookup", request))[key]
        return text

    async def _call_plugin(
        self,
        method: str,
        message: codec.ResourceUpdate | codec.PrologRemove | codec.EpilogRemove | codec.Release,
    ) -> None:
        try:
            await self._call(f"job-manager.dws.{method}", codec.write(message))
        except RpcError as error:
            # flux-coral2's plugin refuses what it has done already, and raises what is wrong.
            log.info("the plugin refused", method=method, job=message.id, reason=str(error))

    async def _call_if_active(self, topic: str, payload: Payload) -> None:
        try:
            await self._call(topic, payload)
        except RpcError as error:
            if error.errnum != errno.ENOENT:
                raise
            # The job is over: it takes no message any more.

    async def _call(self, topic: str, payload: Payload) -> Payload:
        """Ask the instance. Raises Disconnected where it is not there, or takes nothing now."""
        try:
            return await self._handle.rpc(topic, payload)
        except RpcError as error:
            if error.unserved:
                raise Disconnected(f"the instance does not answer {topic}: {error}") from error
            if error.errnum == errno.ENOSPC:
                raise Disconnected(f"{topic}: {error}") from error
            raise

    # Answering the plugin

    def methods(self) -> Methods:
        """Return the `dws` service."""
        return {
            "create": Method(self._create),
            "setup": Method(self._setup),
            "post_run": Method(self._post_run),
            "teardown": Method(self._teardown),
            "abort": Method(self._teardown),
            "status": Method(self._status),
            "watch_test": Method(self._watch_test),
        }

    async def _create(self, request: Request) -> Payload:
        message = codec.read(request.payload, codec.Create)
        return await self._reconcile(request, message.jobid, {Phase.HELD})

    async def _setup(self, request: Request) -> Payload:
        message = codec.read(request.payload, codec.Setup)
        return await self._reconcile(request, message.jobid, {Phase.STARTING})

    async def _post_run(self, request: Request) -> Payload:
        message = codec.read(request.payload, codec.PostRun)
        return await self._reconcile(request, message.jobid, {Phase.ENDING, Phase.OVER})

    async def _teardown(self, request: Request) -> Payload:
        message = codec.read(request.payload, codec.JobRequest)
        return await self._reconcile(request, message.jobid, set(Phase))

    async def _status(self, request: Request) -> Payload:
        return {"success": True, "workflows": sorted(self._tracked)}

    async def _watch_test(self, request: Request) -> Payload:
        # Clients ask for a poll, and go on once it is made: what is watched needs none.
        return {}

    async def _reconcile(self, request: Request, job_id: int, phases: set[Phase]) -> Payload:
        """Have a job reconciled that has come to one of the phases; say how it went."""
        last_phase = max(_PHASES.index(each) for each in phases)
        first_phase = min(_PHASES.index(each) for each in phases)
        try:
            async with asyncio.timeout(_JOURNAL_TIMEOUT):
                while (seen := self.job(job_id)) is None or _PHASES.index(seen.phase) <= last_phase:
                    if seen is not None and seen.phase in phases:
                        break
                    await self._changed.wait()
        except TimeoutError:
            first_phase = 0
            if not self._stops_daemons(job_id):
                log.warning("the journal does not tell of a job", job=job_id)
        answer: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
        pending = self._requests.setdefault(job_id, [])
        for each in pending:
            # As when the API is away: the plugin has given that one up, and they must not add up.
            if each.topic == request.topic and not each.answer.done():
                each.answer.set_exception(RpcError(errno.EAGAIN, "it was asked again since"))
        pending[:] = [each for each in pending if not each.answer.done()]
        pending.append(_PluginRequest(request.topic, first_phase, answer))
        self._notify_listeners(job_id)
        mistake = await answer
        return codec.write(codec.Reply(success=mistake is None, errstr=mistake))

    def _stops_daemons(self, job_id: int) -> bool:
        tracked = self._tracked.get(job_id)
        return tracked is not None and codec.DAEMONS_EPILOG in tracked.job.epilogs

    def answer_requests(self, job: Job, mistake: str | None) -> None:
        tracked = self._tracked.get(job.id)
        if tracked is not None and any(note == mistake for _, note in tracked.raised_exceptions):
            mistake = None  # the plugin would raise it once more
        answered = self._requests_answered_by(job)
        later = [each for each in self._requests.pop(job.id, ()) if each not in answered]
        if later:
            self._requests[job.id] = later
        for request in answered:
            if not request.answer.done():
                request.answer.set_result(mistake)

    def _requests_answered_by(self, job: Job) -> list[_PluginRequest]:
        """Return the requests that a look at this job answers: a later phase has its own."""
        phase = _PHASES.index(job.phase)
        return [each for each in self._requests.get(job.id, ()) if each.first_phase <= phase]


def _transaction(operations: Sequence[Payload]) -> Payload:
    return {"namespace": "primary", "flags": 0, "ops": operations, "rootref": False}


@lru_cache(maxsize=1024)
def _primary_group(userid: int) -> int:
    """Return a user's primary group, for the storage to belong to. Raises KeyError.

    Asked at every look at a job, and slow where a directory service answers.
    """
    return pwd.getpwuid(userid).pw_gid
