"""Plugins of the job manager, and what they may do: the jobtap interface.

Topics and calls are those of Flux (flux-jobtap-plugins(7)). One topic is added:
`job.restart`, for each active job after a restart, because nothing that a
plugin remembers survives one; a plugin that decides from the job alone needs
no more than that.
"""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from warren.lifecycle.job import Job
from warren.rfc.fluid import JobId
from warren.rpc.bus import Methods
from warren.rpc.message import Payload, RpcError

Answered = Callable[[Payload | RpcError], None]


class Jobtap(Protocol):
    """What a plugin may do. Everything that others can see happens after the commit."""

    def jobspec(self, job: JobId) -> Mapping[str, Any]:
        """Give a job's jobspec as it is now, without its environment."""
        ...

    def resources(self, job: JobId) -> Mapping[str, Any] | None:
        """Give a job's R without `scheduling`, if it has resources."""
        ...

    def foreseen(self, job: JobId) -> Job | None:
        """Give an active job as it will be when everything that is posted has been applied."""
        ...

    def executing(self, job: JobId) -> bool:
        """Tell whether execution has been asked to run the job, and has not let go of it."""
        ...

    def dependency_add(self, job: JobId, description: str) -> None: ...

    def dependency_remove(self, job: JobId, description: str) -> None: ...

    def prolog_start(self, job: JobId, description: str) -> None: ...

    def prolog_finish(self, job: JobId, description: str, status: int) -> None: ...

    def epilog_start(self, job: JobId, description: str) -> None: ...

    def epilog_finish(self, job: JobId, description: str, status: int) -> None: ...

    def raise_exception(self, job: JobId, type: str, severity: int, note: str) -> None: ...

    def post(self, job: JobId, name: str, context: Mapping[str, Any]) -> None:
        """Append an event of any name to a job's log."""
        ...

    def update_jobspec(self, job: JobId, updates: Mapping[str, Any]) -> None:
        """Change a jobspec: dotted paths and new values."""
        ...

    def register(self, methods: Methods) -> None:
        """Serve `job-manager.<plugin name>.<method>`."""
        ...

    def rpc(self, topic: str, payload: Payload, then: Answered) -> None:
        """Ask another service, and hear its answer."""
        ...


class Rejected(Exception):
    """Raised from `job.validate`: the job is not accepted, and its author reads why."""


class Plugin(Protocol):
    """A plugin: its name, and what it does on which topic."""

    @property
    def name(self) -> str: ...

    def load(self, tap: Jobtap) -> Mapping[str, Callable[[Job], None]]:
        """Take the interface, and give the callbacks by topic."""
        ...
