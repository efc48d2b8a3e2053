"""Plugins of the job manager, and what they may do: the jobtap interface.

Topics and calls are those of Flux (flux-jobtap-plugins(7)). One topic is added:
`job.restart`, for each active job after a restart, because nothing that a
plugin remembers survives one; a plugin that decides from the job alone needs
no more than that.

| topic | called with | when |
|---|---|---|
| `job.create` | job | submitted, or found after a restart; may raise Rejected |
| `job.validate` | job | submitted, or its jobspec is to change; may raise Rejected |
| `job.dependency.SCHEME` | job, dependency | submitted; after a restart while it may wait |
| `job.new` | job | accepted, or found after a restart |
| `job.restart` | job | found after a restart, after `job.new` |
| `job.event.NAME` | job | after each event of the name |
| `job.event.*` | job, event | after each event of a job that the plugin has subscribed to |
| `job.update` | job | the jobspec has changed |
| `job.state.NAME` | job | the state was entered, before there is done what it asks for |
| `job.priority.get` | job | gives a priority, None for no opinion, or UNAVAILABLE |
| `job.update.KEY` | job, Update | a user changes KEY: gives an AllowedUpdate, or raises Rejected |
| `job.inactive-add`, `-remove` | job | it is over; it is purged |
| `job.destroy` | job | it is over, or was rejected: what is kept for it may go |
| `conf.update` | the configuration | the plugin is loaded |
| `plugin.query` | nothing | gives what the plugin wants to tell of itself |

A callback is called once for what it is about. One that raises costs the job an exception, where
a job can still have one, and leaves all others alone.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Any, Final, Protocol

import msgspec

from warren.lifecycle.job import Job
from warren.lifecycle.states import Result, State
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Methods
from warren.rpc.message import Payload, RpcError

ResponseHandler = Callable[[Payload | RpcError], None]
Callbacks = Mapping[str, Callable[..., Any]]


class Rejected(Exception):
    """Raised from a callback that may refuse: it stays as it was, and the user reads why."""


class _Unavailable(Enum):
    UNAVAILABLE = "unavailable"


UNAVAILABLE: Final = _Unavailable.UNAVAILABLE
"""Answer to `job.priority.get`: the job waits in PRIORITY until it is asked about again."""

Priority = int | None | _Unavailable


class Update(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a jobspec that a user asks for: one dotted path, and its new value."""

    key: str
    value: Any
    userid: int
    by_owner: bool
    """Whether the user is the instance's owner."""


class AllowedUpdate(msgspec.Struct, frozen=True, kw_only=True):
    """That a change is allowed, and what else is to happen."""

    validated: bool = False
    """The new jobspec need not be validated."""
    check_feasibility: bool = False
    """Ask the scheduler whether the new jobspec could ever be met."""
    updates: Mapping[str, Any] = msgspec.field(default_factory=dict)
    """What changes besides."""


class Arguments(msgspec.Struct, frozen=True, kw_only=True):
    """All that a callback may want to know of a job."""

    id: JobId
    userid: int
    urgency: int
    priority: int | None
    t_submit: float
    state: State
    prev_state: State | None
    """None where the state was entered before a restart."""
    jobspec: Mapping[str, Any]
    """As it is now, without its environment."""
    r: Mapping[str, Any] | None
    """R without `scheduling`."""
    entry: Event
    """The latest event that was applied: in a callback, the one that it is about."""
    end_event: Event | None
    """What has brought the job to CLEANUP."""


class Jobtap(Protocol):
    """What a plugin may do. Everything that others can see happens after the commit.

    What is asked of a job that is not active raises RpcError(ENOENT), and what its state does
    not allow RpcError(EINVAL); both change nothing. The state that counts is the one that the
    job is in when everything has been applied that is posted already.
    """

    def lookup(self, job: JobId) -> Arguments:
        """Return what is known of an active job."""
        ...

    def job(self, job: JobId) -> Job | None:
        """Return a job, active or over; None if there is none, or none any more."""
        ...

    def jobspec(self, job: JobId) -> Mapping[str, Any]:
        """Return a job's jobspec as it is now, without its environment."""
        ...

    def resources(self, job: JobId) -> Mapping[str, Any] | None:
        """Return a job's R without `scheduling`, if it has resources."""
        ...

    def with_pending_events(self, job: JobId) -> Job | None:
        """Return an active job with all events that are posted for it applied."""
        ...

    def executing(self, job: JobId) -> bool:
        """Return whether execution has been asked to run the job, and has not let go of it.

        It may have been asked in an earlier life of the instance.
        """
        ...

    def event_posted(self, job: JobId, name: str) -> bool:
        """Return whether an active job has met an event of this name, in this life or before."""
        ...

    def result(self, job: JobId) -> Result:
        """Return how a job ends or has ended. Raises RpcError(EINVAL) before CLEANUP."""
        ...

    def dependency_add(self, job: JobId, description: str) -> None:
        """Hold a job in DEPEND.

        Nothing happens while the same description holds it already. One that has held it before
        never does again: RpcError(EEXIST), or silence in callbacks of a restart.
        """
        ...

    def dependency_remove(self, job: JobId, description: str) -> None:
        """Remove a dependency from a job. Raises RpcError(ENOENT) for one that it does not have."""
        ...

    def prolog_start(self, job: JobId, description: str) -> None:
        """Keep the tasks from starting. Not in CLEANUP, and not once they are being started."""
        ...

    def prolog_finish(self, job: JobId, description: str, status: int) -> None:
        """Finish a prolog: the tasks may start. The status is written down, and nothing else."""
        ...

    def epilog_start(self, job: JobId, description: str) -> None:
        """Keep the resources from being given back. Only in CLEANUP."""
        ...

    def epilog_finish(self, job: JobId, description: str, status: int) -> None:
        """Finish an epilog: resources may be released. The status is only written down."""
        ...

    def release(self, job: JobId, ranks: Collection[int]) -> None:
        """Release nodes early, which the plugin's own epilog is done with.

        While another plugin's prolog or epilog holds the job, too, or execution has not finished
        it, nothing happens: they are released with the rest, as they are without this call.
        """
        ...

    def raise_exception(self, job: JobId, type: str, severity: int, note: str) -> None:
        """Raise an exception; severity 0 ends the job."""
        ...

    def post(self, job: JobId, name: str, context: Mapping[str, Any]) -> None:
        """Append an event of any name to a job's log."""
        ...

    def set_flag(self, job: JobId, flag: str) -> None:
        """Set `debug`, `alloc-bypass` or `immutable`."""
        ...

    def update_jobspec(self, job: JobId, updates: Mapping[str, Any]) -> None:
        """Change a jobspec: dotted paths and new values. It is not validated again.

        Once a job has resources, only callbacks about this job may.
        """
        ...

    def allocate(self, job: JobId, r: Mapping[str, Any]) -> None:
        """Allocate resources to a job in SCHED that has the flag `alloc-bypass`."""
        ...

    def subscribe(self, job: JobId) -> None:
        """Have `job.event.*` called for an active job, once for each event however often asked.

        After a restart `job.new` is the place to ask again: no event comes before it.
        """
        ...

    def unsubscribe(self, job: JobId) -> None:
        """Have it called no more."""
        ...

    def aux_set(self, job: JobId, name: str, value: Any) -> None:
        """Keep something with an active job, for this plugin, until the job is over."""
        ...

    def aux_get(self, job: JobId, name: str) -> Any:
        """Return what was kept; None if nothing was."""
        ...

    def reprioritize_job(self, job: JobId, priority: int) -> None:
        """Set the priority of a job in PRIORITY or SCHED."""
        ...

    def reprioritize_all(self) -> None:
        """Ask `job.priority.get` again about all jobs in PRIORITY and SCHED."""
        ...

    def call(self, job: JobId, topic: str, *arguments: Any) -> list[Any]:
        """Call the callbacks of all plugins on a topic for an active job; return their answers."""
        ...

    def register(self, methods: Methods) -> None:
        """Serve `job-manager.<plugin name>.<method>`, to the instance's owner alone."""
        ...

    def register_ex(self, methods: Methods) -> None:
        """Serve the same, to guests, too, where a method says so."""
        ...

    def rpc(self, topic: str, payload: Payload, then: ResponseHandler) -> None:
        """Ask another service, and hear its answer."""
        ...

    def call_at(self, moment: float, action: Callable[[], None]) -> Callable[[], None]:
        """Do something when the clock says so: seconds since the epoch. No restart survives it.

        Return what cancels that.
        """
        ...


class Plugin(Protocol):
    """A plugin: its name, and what it does on which topic."""

    @property
    def name(self) -> str: ...

    def load(self, tap: Jobtap) -> Callbacks:
        """Take the interface, and return the callbacks by topic.

        A callback on `job.event.NAME` hears of all jobs, and after a restart, too.
        """
        ...
