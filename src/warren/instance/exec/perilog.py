"""The plugin that runs a site's commands around jobs: prolog and epilog.

A job's tasks wait for its prolog, and its resources for its epilog. What is due
`lifecycle.perilog` decides; this module runs its commands, once for the job or once for each
node, and tells what came of them. A node on which a command of its own has failed gets no jobs
any more.
"""

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

from warren.base import log
from warren.base.errors import WarrenError
from warren.instance import jobtables
from warren.instance.exec.draining import DrainNodes
from warren.instance.exec.turns import TurnLimits, Turns, default_turn_limits
from warren.instance.jobs.jobtap import Jobtap
from warren.lifecycle import tables
from warren.lifecycle.job import Job
from warren.lifecycle.perilog import (
    EPILOG,
    PROLOG,
    Cancel,
    PostFinish,
    PostStart,
    Progress,
    Run,
    Settings,
    decide,
)
from warren.lifecycle.states import State
from warren.rfc import fluid, idset, resource_set
from warren.rfc.fluid import JobId
from warren.rfc.resource_set import NodeResources

_TOPICS: Final = (
    "job.state.run",
    "job.state.cleanup",
    "job.event.prolog-start",
    "job.event.prolog-finish",
    "job.event.epilog-start",
    "job.event.finish",
    "job.event.release",
    "job.event.exception",
)

_PROLOG_SECONDS, _EPILOG_SECONDS = 1800.0, 0.0
"""How long a command may take where the site says nothing; 0 is for ever."""

_MOST_STARTING: Final = 32
"""Commands that are being started at a time: each takes the event loop a moment."""

_FAILED_STATUS: Final = 1 << 8


class CommandNotStarted(WarrenError):
    """A command cannot be started; the sentence says why."""


class Command(Protocol):
    """A running command."""

    async def wait(self) -> int:
        """Wait for its end, and return its wait status."""
        ...

    def signal(self, signum: int) -> None:
        """Send a signal to it and its process group."""
        ...


class Commands(Protocol):
    """Runs commands of the site, as the owner of the instance."""

    async def start(
        self, argv: Sequence[str], environment: Mapping[str, str], keep_for_job: str | None = None
    ) -> Command:
        """Start a command, with these variables besides its own. Raises CommandNotStarted.

        With `keep_for_job`, a job, it runs on the node `WARREN_NODE`, among its mounts, and what it
        leaves running stays until `kill_leftovers` is called with the job.
        """
        ...

    async def kill_leftovers(self, job: str | None = None) -> None:
        """End what an earlier life of the instance has left running; or what lasts of a job."""
        ...


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A command of a prolog or an epilog, and how it is to be run."""

    subject: str
    """What failures are told of, such as `prolog`."""
    argv: tuple[str, ...]
    per_rank: bool
    timeout_seconds: float | None
    kill_seconds: float
    exit_on_first_error: bool = False
    drains_on_failure: bool = True
    """Whether a node on which it fails is drained."""
    environment: Mapping[str, str] = msgspec.field(default_factory=dict)


class PerilogSteps(Protocol):
    """Which commands are a job's prolog and epilog."""

    @property
    def name(self) -> str:
        """The plugin's name."""
        ...

    @property
    def keeps_background(self) -> bool:
        """Whether what a prolog leaves running is to stay until the epilog is over."""
        ...

    def settings(self, spec: Mapping[str, Any]) -> Settings:
        """Return what is wanted for a job, by its jobspec."""
        ...

    def steps(self, job: JobId, spec: Mapping[str, Any], description: str) -> Sequence[Step]:
        """Return the commands of a job's prolog or epilog, in order. Raises CommandNotStarted."""
        ...


class SitePerilogSteps:
    """The `PerilogSteps` of a site: the commands that a site has around every job."""

    name: Final = "perilog"
    keeps_background: Final = False

    def __init__(self, table: jobtables.JobManagerTable) -> None:
        self._settings = Settings(
            has_prolog=bool(table.prolog.command),
            has_epilog=bool(table.epilog.command),
            cancel_prolog=table.prolog.cancel_on_exception is not False,
            cancel_epilog=table.epilog.cancel_on_exception is True,
        )
        self._steps = {
            PROLOG: [_step("prolog", table.prolog, _PROLOG_SECONDS)],
            EPILOG: [_step("epilog", table.epilog, _EPILOG_SECONDS)],
        }

    def settings(self, spec: Mapping[str, Any]) -> Settings:
        return self._settings

    def steps(self, job: JobId, spec: Mapping[str, Any], description: str) -> Sequence[Step]:
        return self._steps[description]


class _Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came of a command."""

    step: Step
    node: NodeResources | None
    status: int
    problem: str | None
    """What went wrong with it, if it is to blame."""


class _RunningPerilog(msgspec.Struct, kw_only=True):
    """A prolog or an epilog under way, on one node or on all of a job's."""

    job: JobId
    userid: int
    description: str
    settings: Settings
    cancelled: asyncio.Event = msgspec.field(default_factory=asyncio.Event)


class Perilog:
    """The plugin. `run` must be running for commands to run."""

    def __init__(
        self,
        steps: PerilogSteps,
        commands: Commands,
        drain: DrainNodes,
        wait_committed: Callable[[], Awaitable[None]],
        limits: TurnLimits | None = None,
    ) -> None:
        """`wait_committed` returns when everything that has been posted is durable."""
        self.name = steps.name
        self._steps = steps
        self._commands = commands
        self._drain = drain
        self._wait_committed = wait_committed
        self._running: dict[tuple[JobId, str], _RunningPerilog] = {}
        self._prolog_statuses: dict[JobId, int] = {}
        """Prologs that have ended, until that is written down."""
        self._interrupted: set[JobId] = set()
        """Jobs of which an earlier life may have left a command of a prolog or an epilog."""
        self._due: asyncio.Queue[_RunningPerilog] = asyncio.Queue()
        self._prolog_turns = Turns(limits or default_turn_limits())
        self._epilog_turns = Turns(limits or default_turn_limits())
        """Of their own: a prolog may wait for what another job gives back in its epilog."""
        self._starting = asyncio.Semaphore(_MOST_STARTING)
        self._tap: Jobtap

    def load(self, tap: Jobtap) -> Mapping[str, Callable[[Job], None]]:
        self._tap = tap
        return {**dict.fromkeys(_TOPICS, self._advance), "job.restart": self._on_restart}

    async def run(self) -> None:
        """Run commands until cancelled."""
        if not self._steps.keeps_background:
            await self._commands.kill_leftovers()
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._run_perilog(await self._due.get()))

    def _on_restart(self, job: Job) -> None:
        settings = self._steps.settings(self._tap.jobspec(job.id))
        if settings.prolog_name in job.prologs or settings.epilog_name in job.epilogs:
            self._interrupted.add(job.id)
        self._advance(job)

    def _advance(self, job: Job) -> None:
        settings = self._steps.settings(self._tap.jobspec(job.id))
        unfinished = {settings.prolog_name, settings.epilog_name} & (job.prologs | job.epilogs)
        if not (unfinished or settings.has_prolog or settings.has_epilog):
            return
        # As it will be: of two callbacks for one event, the second must see what the first did.
        pending = self._tap.with_pending_events(job.id) or job
        descriptions = (settings.prolog_name, settings.epilog_name)
        progress = Progress(
            executing=self._tap.executing(job.id),
            running=frozenset(each for each in descriptions if (job.id, each) in self._running),
            prolog_status=self._prolog_statuses.get(job.id),
        )
        for action in decide(pending, settings, progress):
            match action:
                case PostStart(description) if description == settings.prolog_name:
                    self._tap.prolog_start(job.id, description)
                case PostStart(description):
                    self._tap.epilog_start(job.id, description)
                case Run(description):
                    perilog = _RunningPerilog(
                        job=job.id, userid=job.userid, description=description, settings=settings
                    )
                    self._running[job.id, description] = perilog
                    self._due.put_nowait(perilog)
                case Cancel(description):
                    self._running[job.id, description].cancelled.set()
                case PostFinish(description, status) if description == settings.prolog_name:
                    self._prolog_statuses.pop(job.id, None)
                    self._tap.prolog_finish(job.id, description, status)
                case PostFinish(description, status):
                    self._tap.epilog_finish(job.id, description, status)

    # Commands

    async def _run_perilog(self, perilog: _RunningPerilog) -> None:
        # What the command does must not be seen before it is written down that the job is here.
        await self._wait_committed()
        is_epilog = perilog.description == perilog.settings.epilog_name
        if self._steps.keeps_background and perilog.job in self._interrupted:
            await self._commands.kill_leftovers(fluid.f58(perilog.job))
        self._interrupted.discard(perilog.job)
        outcomes = await self._run_all(perilog)
        if self._steps.keeps_background and is_epilog:
            await self._commands.kill_leftovers(fluid.f58(perilog.job))
        failures = [each for each in outcomes if each.problem is not None]
        # First the drain, then the events: should we die in between, all is done once more.
        for outcome in failures:
            if outcome.node is not None and outcome.step.drains_on_failure:
                f58 = fluid.f58(perilog.job)
                reason = f"{outcome.step.subject} {outcome.problem} for job {f58}"
                await self._drain([outcome.node.rank], reason)
        status = max((each.status for each in outcomes), default=0)
        job = self._tap.with_pending_events(perilog.job)
        if is_epilog and job is not None:
            # Under way until its end is posted: the exception has the job looked at.
            if failures:
                self._tap.raise_exception(job.id, "epilog", 2, _note(failures))
            self._tap.epilog_finish(job.id, perilog.description, status)
        del self._running[perilog.job, perilog.description]
        if is_epilog or job is None:
            return
        self._prolog_statuses[job.id] = status
        if job.state is State.RUN and status != 0:
            self._tap.raise_exception(job.id, "prolog", 0, _note(failures))
        else:
            self._advance(job)

    async def _run_all(self, perilog: _RunningPerilog) -> list[_Outcome]:
        """Run the commands in order; those of a prolog up to the first that fails."""
        nodes = resource_set.decode_nodes(self._tap.resources(perilog.job) or _NO_NODES)
        spec = self._tap.jobspec(perilog.job)
        environment = {
            "FLUX_JOB_ID": fluid.f58(perilog.job),
            "FLUX_JOB_USERID": str(perilog.userid),
            "FLUX_JOB_RANKS": idset.encode(node.rank for node in nodes),
        }
        try:
            steps = self._steps.steps(perilog.job, spec, perilog.description)
        except CommandNotStarted as error:
            return [_Outcome(step=_NO_STEP, node=None, status=127 << 8, problem=str(error))]
        outcomes: list[_Outcome] = []
        for step in steps:
            outcomes += await self._run_on_all(
                perilog, step, {**environment, **step.environment}, nodes
            )
            is_prolog = perilog.description == perilog.settings.prolog_name
            if is_prolog and any(each.status for each in outcomes):
                break
        return outcomes

    async def _run_on_all(
        self,
        perilog: _RunningPerilog,
        step: Step,
        environment: Mapping[str, str],
        nodes: Sequence[NodeResources],
    ) -> list[_Outcome]:
        targets: Sequence[NodeResources | None] = nodes if step.per_rank else [None]
        is_prolog = perilog.description == perilog.settings.prolog_name
        turns = self._prolog_turns if is_prolog else self._epilog_turns
        async with turns.take(perilog.userid, len(targets), perilog.cancelled) as most_at_once:
            slots = asyncio.Semaphore(most_at_once)
            async with asyncio.TaskGroup() as tasks:
                running = [
                    tasks.create_task(self._run_one(perilog, step, environment, node, slots))
                    for node in targets
                ]
        return [each.result() for each in running]

    async def _run_one(
        self,
        perilog: _RunningPerilog,
        step: Step,
        environment: Mapping[str, str],
        node: NodeResources | None,
        slots: asyncio.Semaphore,
    ) -> _Outcome:
        keep_for_job = fluid.f58(perilog.job) if self._steps.keeps_background else None
        if node is not None:
            environment = {**environment, "WARREN_NODE": node.host}
        async with slots:
            if perilog.cancelled.is_set():
                return _Outcome(step=step, node=node, status=int(signal.SIGTERM), problem=None)
            try:
                async with self._starting:
                    command = await self._commands.start(step.argv, environment, keep_for_job)
            except CommandNotStarted as error:
                log.error("command cannot be run", command=step.argv[0], reason=str(error))
                outcome = _Outcome(
                    step=step, node=node, status=127 << 8, problem="could not be run"
                )
            else:
                outcome = await self._wait_or_kill(command, perilog, step, node)
        if outcome.problem is not None and step.exit_on_first_error:
            perilog.cancelled.set()
        return outcome

    async def _wait_or_kill(
        self, command: Command, perilog: _RunningPerilog, step: Step, node: NodeResources | None
    ) -> _Outcome:
        """Wait for a command, and end it when it takes too long or is wanted no more."""
        async with asyncio.TaskGroup() as tasks:
            end_task = tasks.create_task(command.wait())
            cancellation_task = tasks.create_task(perilog.cancelled.wait())
            try:
                await asyncio.wait(
                    {end_task, cancellation_task},
                    timeout=step.timeout_seconds,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if end_task.done():
                    status = end_task.result()
                    return _Outcome(step=step, node=node, status=status, problem=_problem(status))
                problem = None if cancellation_task.done() else "timed out"
                command.signal(signal.SIGTERM)
                await asyncio.wait({end_task}, timeout=step.kill_seconds)
                if not end_task.done():
                    problem = problem or "canceled then timed out"
                    command.signal(signal.SIGKILL)
                    # What does not even heed this is left behind: no job waits for it for ever.
                    await asyncio.wait({end_task}, timeout=step.kill_seconds)
                status = end_task.result() if end_task.done() else int(signal.SIGKILL)
                # It has not done its work, whatever it says.
                return _Outcome(
                    step=step, node=node, status=status or _FAILED_STATUS, problem=problem
                )
            finally:
                if not end_task.done():
                    command.signal(signal.SIGKILL)
                end_task.cancel()
                cancellation_task.cancel()


_NO_NODES: Final[Mapping[str, Any]] = {"execution": {"R_lite": [], "nodelist": []}}


def _step(subject: str, table: jobtables.PerilogTable, default_seconds: float) -> Step:
    timeout_seconds = default_seconds if table.timeout is None else tables.seconds(table.timeout)
    return Step(
        subject=subject,
        argv=table.command,
        per_rank=table.per_rank,
        timeout_seconds=timeout_seconds or None,
        kill_seconds=tables.seconds(table.kill_timeout),
        exit_on_first_error=table.exit_on_first_error,
    )


_NO_STEP: Final = Step(subject="", argv=(), per_rank=False, timeout_seconds=None, kill_seconds=0.0)
"""Stands for commands that cannot be found."""


def _problem(status: int) -> str | None:
    if status == 0:
        return None
    code = os.waitstatus_to_exitcode(status)
    return f"was killed by signal {-code}" if code < 0 else f"failed with exit status {code}"


def _note(failures: Sequence[_Outcome]) -> str:
    """Return in one sentence what went wrong, and where."""
    problems = sorted({f"{each.step.subject} {each.problem}".strip() for each in failures})
    hosts = list(dict.fromkeys(each.node.host for each in failures if each.node is not None))
    where = f" on {','.join(hosts)}" if hosts else ""
    return f"{' and '.join(problems)}{where}"
