"""The `dws` jobtap plugin: holds jobs while their storage is made ready, and given back.

What it does next is decided from the job alone, so that it may be restarted at
any moment. What it sends is what the C plugin of flux-coral2 sends; an answer
that never comes changes nothing, for the conductor sees the job itself.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec

from warren.base import log
from warren.base.clock import Clock
from warren.instance.jobs.jobtap import Jobtap
from warren.lifecycle.job import Job
from warren.lifecycle.states import State
from warren.lifecycle.storageholds import (
    Action,
    AddDependency,
    FinishProlog,
    HoldNames,
    StartEpilog,
    StartProlog,
    decide,
)
from warren.rfc import hostlist, resource_set
from warren.rfc import jobspec as jobspecs
from warren.rfc.fluid import JobId
from warren.rpc.bus import Method
from warren.rpc.message import Payload, Request, RpcError
from warren.wlm import codec
from warren.wlm.codec import DEPENDENCY, ENVIRONMENT, EPILOG, EPILOG_TIMEOUT, PROLOG

HOLDS: Final = HoldNames(dependency=DEPENDENCY, prolog=PROLOG, epilog=EPILOG)


class DwsPlugin:
    """The plugin."""

    name: Final = "dws"

    def __init__(self, clock: Clock, owner: int, epilog_timeout: float | None = None) -> None:
        """`epilog_timeout` is the seconds after which a job ends without waiting for its storage.

        Users may raise its exception by hand; only that of the instance's `owner` counts.
        """
        self._clock = clock
        self._owner = owner
        self._epilog_timeout = epilog_timeout

    def configure(self, epilog_timeout: float | None) -> None:
        """Set the time limit of epilogs that begin from now on."""
        self._epilog_timeout = epilog_timeout

    def load(self, tap: Jobtap) -> Mapping[str, Callable[[Job], None]]:
        self._tap = tap
        tap.register(
            {
                "resource-update": Method(self._resource_update),
                "prolog-remove": Method(self._prolog_remove),
                "epilog-remove": Method(self._epilog_remove),
                "release": Method(self._release),
            }
        )
        advance = self._advance
        return {
            "job.state.depend": advance,
            "job.state.run": advance,
            "job.state.cleanup": advance,
            "job.event.finish": advance,
            "job.event.release": advance,
            "job.event.exception": self._exception_raised,
            "job.restart": self._job_manager_restarted,
        }

    def _advance(self, job: Job) -> None:
        if "dw" not in jobspecs.system(self._tap.jobspec(job.id)):
            return
        # As it will be: of two callbacks for one event, the second must see what the first did.
        pending = self._tap.with_pending_events(job.id) or job
        for action in decide(pending, HOLDS, executing=self._tap.executing(job.id)):
            self._perform(job, action)

    def _perform(self, job: Job, action: Action) -> None:
        match action:
            case AddDependency():
                self._tap.dependency_add(job.id, DEPENDENCY)
                self._send("create", self._create_message(job), DEPENDENCY)
            case StartProlog():
                self._tap.prolog_start(job.id, PROLOG)
                setup = codec.Setup(jobid=job.id, R=self._tap.resources(job.id) or {})
                self._send("setup", setup, PROLOG)
            case FinishProlog():
                self._tap.prolog_finish(job.id, PROLOG, 1)
            case StartEpilog(started):
                self._tap.epilog_start(job.id, EPILOG)
                post_run = codec.PostRun(jobid=job.id, run_started=started)
                self._send("post_run", post_run, EPILOG)
                self._start_epilog_timer(job.id, self._clock.now())

    def _job_manager_restarted(self, job: Job) -> None:
        self._advance(job)
        if EPILOG in job.epilogs:
            # Anew: tasks that took long to end are no reason to let the job go at once.
            self._start_epilog_timer(job.id, self._clock.now())

    def _start_epilog_timer(self, job: JobId, since: float) -> None:
        """Have an epilog end that takes too long."""
        if self._epilog_timeout is not None:
            self._tap.call_at(since + self._epilog_timeout, partial(self._epilog_timed_out, job))

    def _epilog_timed_out(self, job: JobId) -> None:
        pending = self._tap.with_pending_events(job)
        if pending is not None and EPILOG in pending.epilogs:
            self._tap.raise_exception(job, EPILOG_TIMEOUT, 0, "DWS epilog timed out")

    def _create_message(self, job: Job) -> codec.Create:
        spec = self._tap.jobspec(job.id)
        system = jobspecs.system(spec)
        return codec.Create(
            jobid=job.id,
            userid=job.userid,
            dw_directives=system["dw"],
            resources=spec["resources"],
            failure_tolerance=system.get("dw_failure_tolerance", 0),
        )

    def _send(self, method: str, message: Any, exception: str | None = None) -> None:
        """Ask something of the conductor; a refusal raises the exception, if there is one."""
        job = JobId(message.jobid)

        def on_answer(answer: Payload | RpcError) -> None:
            if isinstance(answer, RpcError):
                # The conductor is away. It will see the job when it is back.
                log.warning("the conductor did not answer", method=method, reason=str(answer))
                return
            try:
                reply = codec.read(answer, codec.Reply)
            except RpcError as error:
                log.error(
                    "the conductor's answer is not understood", method=method, reason=str(error)
                )
                return
            if reply.success:
                return
            if exception is None:
                log.warning("the conductor has refused", method=method, reason=reply.errstr)
            elif self._tap.with_pending_events(job) is not None:
                note = f"DWS workflow interactions failed: {reply.errstr}"
                self._tap.raise_exception(job, exception, 0, note)

        self._tap.rpc(f"dws.{method}", codec.write(message), on_answer)

    def _exception_raised(self, job: Job) -> None:
        """Advance a job; in its epilog, ask for Teardown, or end an epilog that took too long."""
        self._advance(job)
        latest = job.exceptions[-1]
        if latest.severity != 0 or EPILOG not in job.epilogs:
            return
        if latest.type == EPILOG_TIMEOUT and latest.raised_by_owner(self._owner):
            self._send("abort", codec.JobRequest(jobid=job.id))
            self._tap.epilog_finish(job.id, EPILOG, 1)
        else:
            # Its refusal is no exception, which would be the next reason to ask for it.
            self._send("teardown", codec.JobRequest(jobid=job.id))

    # What the conductor asks. All may be repeated: a job that is past it is left alone.

    async def _resource_update(self, request: Request) -> Payload:
        message = codec.read(request.payload, codec.ResourceUpdate)
        job = self._tap.with_pending_events(JobId(message.id))
        if job is not None and DEPENDENCY in job.dependencies:
            if message.errmsg is not msgspec.UNSET:
                note = f"DWS workflow interactions failed: {message.errmsg}"
                self._tap.raise_exception(job.id, DEPENDENCY, 0, note)
                return {}
            updates: dict[str, Any] = {"resources": message.resources}
            if message.exclude is not None:
                updates["attributes.system.constraints"] = self._constraints(job.id, message)
            # Set in any case: what a job's author has written there is not asked for.
            system = jobspecs.system(self._tap.jobspec(job.id))
            if message.dw_constraints or system.get("dw_constraints"):
                updates["attributes.system.dw_constraints"] = message.dw_constraints or {}
            if message.requires or system.get("dw_requires"):
                updates["attributes.system.dw_requires"] = list(message.requires or ())
            self._tap.update_jobspec(job.id, updates)
            self._tap.dependency_remove(job.id, DEPENDENCY)
        return {}

    def _constraints(self, job: JobId, message: codec.ResourceUpdate) -> Any:
        """Add what excludes nodes to the constraints that the job has."""
        own_constraints = jobspecs.system(self._tap.jobspec(job)).get("constraints")
        return {"and": [own_constraints, message.exclude]} if own_constraints else message.exclude

    async def _prolog_remove(self, request: Request) -> Payload:
        message = codec.read(request.payload, codec.PrologRemove)
        job = self._tap.with_pending_events(JobId(message.id))
        if job is not None and PROLOG in job.prologs and job.state is State.RUN:
            self._tap.post(job.id, ENVIRONMENT, {"variables": message.variables})
            self._tap.prolog_finish(job.id, PROLOG, 0)
        return {}

    async def _release(self, request: Request) -> Payload:
        message = codec.read(request.payload, codec.Release)
        job = self._tap.with_pending_events(JobId(message.id))
        r = self._tap.resources(JobId(message.id))
        if job is not None and EPILOG in job.epilogs and r is not None:
            hosts = set(hostlist.decode(message.nodelist))
            self._tap.release(
                job.id, [each.rank for each in resource_set.decode_nodes(r) if each.host in hosts]
            )
        return {}

    async def _epilog_remove(self, request: Request) -> Payload:
        message = codec.read(request.payload, codec.EpilogRemove)
        job = self._tap.with_pending_events(JobId(message.id))
        if job is not None and EPILOG in job.epilogs:
            self._tap.epilog_finish(job.id, EPILOG, 0)
        return {}
