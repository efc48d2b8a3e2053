"""The `job-ingest` service: signed requests are unwrapped, checked, numbered and handed on.

A job that is refused leaves no trace; one that is accepted is durable before its
author hears its id. Signatures are not verified here: the job's shell does that, with
the same request in its hands.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import orjson

from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance import keys
from warren.instance.config import Config
from warren.instance.jobids import JobIdAllocator
from warren.instance.jobs.manager import JobManager
from warren.instance.kvs import Kvs, put
from warren.instance.kvs.quota import BYTES_PER_JOB
from warren.instance.queues import Queues
from warren.rfc import canonical, signed_request
from warren.rfc import jobspec as jobspecs
from warren.rfc.jobflags import DEBUG, NOVALIDATE, WAITABLE
from warren.rpc.bus import Method, Methods
from warren.rpc.message import (
    MOST_VALUES,
    Cred,
    Payload,
    Request,
    RpcError,
    quota_size,
    too_many_values,
)

Frobnicator = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Returns the jobspec with its defaults filled in; it is checked afterwards. Idempotent.

Raises UserMistake.
"""

Validator = Callable[[Mapping[str, Any], int], Mapping[str, Any] | None]
"""Looks at a jobspec, and raises UserMistake where it must not be accepted.

May return the jobspec as the job will have it by the time it is scheduled.
"""

_FLAGS: Final = DEBUG | WAITABLE | NOVALIDATE
_DEFAULT_URGENCY: Final = 16
_LARGEST_URGENCY: Final = 31


class _Submission(msgspec.Struct, frozen=True):
    """What a user says of a submission."""

    urgency: int = _DEFAULT_URGENCY
    flags: int = 0


class _SubmitRequest(_Submission, frozen=True, kw_only=True):
    """A submission: the signed request."""

    token: str = msgspec.field(name="J")


class _CheckRequest(_Submission, frozen=True, kw_only=True):
    """A jobspec of which the user asks whether it would be accepted."""

    jobspec: Any


S = TypeVar("S", bound=_Submission)


class Ingest:
    """The `job-ingest` service."""

    def __init__(
        self,
        kvs: Kvs,
        manager: JobManager,
        clock: Clock,
        config: Config,
        queues: Queues,
        validators: Sequence[Validator] = (),
        frobnicators: Sequence[Frobnicator] = (),
        guest_refusal: Callable[[int, str | None], str | None] = lambda userid, munge_socket: None,
    ) -> None:
        """Frobnicators are called after the site's defaults and the queue's constraints.

        `guest_refusal` says why jobs of a user other than the owner cannot run here, if so, by
        where munged listens if not at its usual place.
        """
        self._kvs = kvs
        self._manager = manager
        self._config = config
        self._queues = queues
        self._guest_refusal = guest_refusal
        self._validators = validators
        self._frobnicators = (queues.with_queue_defaults, *frobnicators)
        self._ids = JobIdAllocator(kvs, clock, manager.max_jobid)

    def configure(self, config: Config) -> None:
        """Hold submissions to another configuration from now on."""
        # Which users may submit at all is settled when the instance begins.
        self._config = config

    def methods(self) -> Methods:
        return {
            "submit": Method(self._submit, guest=True),
            "check": Method(self._check, guest=True),
            "getinfo": Method(self._getinfo),
        }

    async def _submit(self, request: Request) -> Payload:
        submission, cred = self._decode(request, _SubmitRequest), request.cred
        if self._kvs.full_reason is not None:
            raise RpcError(errno.ENOSPC, self._kvs.full_reason)
        spec, _ = await self._check_jobspec(self._unwrap(submission.token, cred), submission, cred)
        stored_spec = jobspecs.without_environment(spec)
        text = _encode(stored_spec)
        job, checkpoint = self._ids.next()
        submit_context = {
            "userid": cred.userid,
            "urgency": submission.urgency,
            "flags": submission.flags,
            "version": 1,
        }
        if not cred.is_owner:
            quota_bytes = len(submission.token) + quota_size(text) + BYTES_PER_JOB
            self._kvs.quota.charge(keys.guest_namespace(job), cred.userid, quota_bytes)
        operations = [
            *checkpoint,
            put(keys.job_key(job, "J"), submission.token.encode()),
            put(keys.job_key(job, "jobspec"), text),
        ]
        try:
            await self._manager.submit(job, submit_context, stored_spec, operations)
        except RpcError:
            self._kvs.quota.release(keys.guest_namespace(job))
            raise
        self._ids.set_durable(job)
        return {"id": job}

    async def _check(self, request: Request) -> Payload:
        """Refuse what `submit` would; return the jobspec as it would be scheduled."""
        submission, cred = self._decode(request, _CheckRequest), request.cred
        if not cred.is_owner:
            self._check_guest("munge", cred.userid)
        max_payload = self._config.ingest.max_payload
        if len(msgspec.json.encode(submission.jobspec)) > max_payload:
            raise RpcError(
                errno.EFBIG, f"the jobspec has over ingest.max-payload {max_payload} bytes"
            )
        _, scheduled_spec = await self._check_jobspec(submission.jobspec, submission, cred)
        return {"jobspec": scheduled_spec}

    async def _getinfo(self, request: Request) -> Payload:
        return {"timestamp": self._ids.timestamp}

    def _decode(self, request: Request, kind: type[S]) -> S:
        """Read a submission, in the order in which Flux does, so that errors are the same."""
        by_owner = request.cred.is_owner
        try:
            submission = msgspec.convert(request.payload, kind)
        except msgspec.ValidationError as error:
            payload_key = "jobspec" if kind is _CheckRequest else "J"
            message = f"{request.topic} takes {payload_key}, urgency and flags: {error}"
            raise RpcError(errno.EPROTO, message) from error
        if submission.flags & ~_FLAGS:
            unknown = f"unknown submission flags {submission.flags & ~_FLAGS:#x}"
            raise RpcError(errno.EPROTO, unknown)
        if submission.flags & NOVALIDATE and not by_owner:
            raise RpcError(errno.EPERM, "only the instance owner submits without validation")
        if not 0 <= submission.urgency <= _LARGEST_URGENCY:
            raise RpcError(errno.EINVAL, f"urgency is a number from 0 to {_LARGEST_URGENCY}")
        if submission.urgency > _DEFAULT_URGENCY and not by_owner:
            over = f"only the instance owner submits with urgency over {_DEFAULT_URGENCY}"
            raise RpcError(errno.EINVAL, over)
        if submission.flags & WAITABLE and not by_owner:
            raise RpcError(errno.EINVAL, "only the instance owner submits waitable jobs")
        return submission

    def _unwrap(self, token: str, cred: Cred) -> Any:
        """Return the payload of a request, if it is this user's to make."""
        max_payload = self._config.ingest.max_payload
        if len(token) > max_payload:
            message = (
                f"the signed request has {len(token)} bytes, over ingest.max-payload {max_payload}"
            )
            raise RpcError(errno.EFBIG, message)
        try:
            signed = signed_request.unwrap(token, mechanisms=signed_request.MECHANISMS)
        except UserMistake as mistake:
            raise RpcError(errno.EINVAL, str(mistake)) from mistake
        if signed.userid != cred.userid:
            raise RpcError(errno.EPERM, f"signer={signed.userid} != requestor={cred.userid}")
        if not cred.is_owner:
            self._check_guest(signed.mechanism, cred.userid)
            if too_many_values(signed.payload):
                raise RpcError(errno.EFBIG, f"the jobspec has more than {MOST_VALUES} values")
        try:
            return orjson.loads(signed.payload)
        except orjson.JSONDecodeError as error:
            raise RpcError(errno.EINVAL, f"jobspec: invalid JSON: {error}") from error

    def _check_guest(self, mechanism: str, userid: int) -> None:
        """Refuse others than the owner, unless the site has let them in."""
        access = self._config.access
        if mechanism == "none":
            # It proves nothing when the tasks are to run as another user.
            raise RpcError(errno.EPERM, "only instance owner can use sign-type=none")
        if userid == 0 and not access.allow_root_owner:
            raise RpcError(errno.EPERM, "jobs of root run only where root owns the instance")
        if userid != 0 and not access.allow_guest_user:
            message = (
                "other users may not submit here: ask the owner to set access.allow-guest-user"
            )
            raise RpcError(errno.EPERM, message)
        why = self._guest_refusal(userid, self._config.sign.munge.socket_path)
        if why is not None:
            raise RpcError(errno.EPERM, why)

    async def _check_jobspec(
        self, spec: Any, submission: _Submission, cred: Cred
    ) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return a jobspec as it will be kept, and as it will be scheduled; or refuse it."""
        validated = not submission.flags & NOVALIDATE
        scheduled_spec: Mapping[str, Any] | None = None
        try:
            for frobnicate in self._frobnicators:
                spec = frobnicate(spec)
            if validated:
                canonical.check(spec)
            # With NOVALIDATE, too: every reader of a jobspec relies on this form.
            jobspecs.check(spec)
            await self._queues.check(spec, cred.userid)
            for validate in self._validators if validated else ():
                scheduled_spec = validate(spec, cred.userid) or scheduled_spec
        except UserMistake as mistake:
            text = getattr(mistake, "text_with_carets", str(mistake))
            raise RpcError(errno.EINVAL, text) from mistake
        return spec, scheduled_spec or spec


def _encode(spec: Mapping[str, Any]) -> bytes:
    """Write a jobspec. Raises RpcError for one of more levels than are written."""
    try:
        return orjson.dumps(spec)
    except orjson.JSONEncodeError as error:
        raise RpcError(errno.EINVAL, f"jobspec: {error}") from error
