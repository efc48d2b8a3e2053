"""The messages between the `dws` plugin of a job manager and the conductor.

Their topics and payloads are those of flux-coral2, to the letter, so that the C
plugin of a real Flux and the plugin of the embedded instance are interchangeable
(coral2-spec section 3).
"""

import errno
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from warren.dws import reservednames
from warren.dws.binding import Binding, Phase
from warren.rpc.message import Payload, RpcError

T = TypeVar("T")

DEPENDENCY: Final = "dws-create"
PROLOG: Final = "dws-setup"
EPILOG: Final = "dws-epilog"
DAEMONS_PROLOG: Final = "dws-daemons-start"
DAEMONS_EPILOG: Final = "dws-daemons-stop"

BINDING: Final = Binding(
    wlm_id="flux",
    prefix=reservednames.FLUX_JOB_PREFIX,
    finalizer="flux-framework.readthedocs.io/workflow",
    exceptions={Phase.HELD: DEPENDENCY, Phase.STARTING: PROLOG},
)

ENVIRONMENT: Final = "dws_environment"
EPILOG_TIMEOUT: Final = "dws-epilog-timeout"

VERSION_HINT: Final = "Plugin and conductor may be of different versions: update the older one."
"""What to do about messages that are not understood."""


class _Struct(msgspec.Struct, frozen=True, kw_only=True):
    pass


class Create(_Struct, frozen=True):
    """`dws.create`: a job with directives waits for what it needs."""

    jobid: int
    userid: int
    dw_directives: str | list[str]
    resources: Sequence[Mapping[str, Any]]
    failure_tolerance: int = 0


class Setup(_Struct, frozen=True):
    """`dws.setup`: the job has its nodes."""

    jobid: int
    R: Mapping[str, Any]


class PostRun(_Struct, frozen=True):
    """`dws.post_run`: the job's tasks are gone, or were never started."""

    jobid: int
    run_started: bool


class JobRequest(_Struct, frozen=True):
    """`dws.teardown`, `dws.abort`."""

    jobid: int


class ResourceUpdate(_Struct, frozen=True):
    """`job-manager.dws.resource-update`: the job may be scheduled, with these resources."""

    id: int
    resources: Sequence[Mapping[str, Any]]
    exclude: Mapping[str, Any] | None
    errmsg: str | msgspec.UnsetType = msgspec.UNSET
    """Why the job fails. flux-coral2's plugin takes a text, or nothing, and no null."""
    dw_constraints: Mapping[str, Any] | msgspec.UnsetType = msgspec.UNSET
    """What their flash demands of rabbits. It is ours, and only there where they do."""
    requires: Sequence[str] | msgspec.UnsetType = msgspec.UNSET
    """The daemons that the job needs. It is ours, and only there where it needs some."""


class PrologRemove(_Struct, frozen=True):
    """`job-manager.dws.prolog-remove`: the tasks may start, with these variables."""

    id: int
    variables: Mapping[str, str]


class Release(_Struct, frozen=True):
    """`job-manager.dws.release`, which is ours: nodes of a job that is ending, as a hostlist."""

    id: int
    nodelist: str


class EpilogRemove(_Struct, frozen=True):
    """`job-manager.dws.epilog-remove`: the job may go."""

    id: int


class Reply(_Struct, frozen=True, omit_defaults=True):
    """The answer to every `dws.*` request; a failure is an answer, too."""

    success: bool
    errstr: str | None = None


def read(payload: Payload, message_type: type[T]) -> T:
    """Read a payload. Raises RpcError(EPROTO) with the path of what is wrong."""
    try:
        return msgspec.convert(payload, type=message_type)
    except msgspec.ValidationError as error:
        raise RpcError(
            errno.EPROTO, f"received malformed request: {error}. {VERSION_HINT}"
        ) from None


def write(message: msgspec.Struct) -> Payload:
    """Write a message."""
    return msgspec.to_builtins(message)  # type: ignore[no-any-return]
