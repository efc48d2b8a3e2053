"""Where jobs come in: signed requests are unwrapped, checked, numbered and handed on.

A job that is refused leaves no trace; one that is accepted is durable before its
author hears its id.
"""

import errno
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import orjson

from warren.base.clock import Clock
from warren.base.errors import UserMistake
from warren.instance import keys
from warren.instance.kvs import put
from warren.instance.manager import JobManager
from warren.rfc import fluid, signed_request
from warren.rfc import jobspec as jobspecs
from warren.rpc.bus import Method, Methods
from warren.rpc.message import Payload, Request, RpcError

Validator = Callable[[Mapping[str, Any]], None]
"""Looks at a jobspec, and raises UserMistake where it must not be accepted."""

_DEFAULT_URGENCY: Final = 16
_FLAGS: Final = 2 | 4
"""debug and waitable."""


class Ingest:
    """The `job-ingest` service."""

    def __init__(self, manager: JobManager, clock: Clock, validators: Sequence[Validator]) -> None:
        self._manager = manager
        self._clock = clock
        self._validators = validators
        self._generator: fluid.Generator | None = None

    def methods(self) -> Methods:
        return {"submit": Method(self._submit, guest=True)}

    async def _submit(self, request: Request) -> Payload:
        token = request.payload.get("J")
        urgency = request.payload.get("urgency", _DEFAULT_URGENCY)
        flags = request.payload.get("flags", 0)
        if not isinstance(token, str) or not isinstance(urgency, int) or not isinstance(flags, int):
            raise RpcError(errno.EPROTO, "job-ingest.submit takes J, urgency and flags")
        if flags & ~_FLAGS:
            raise RpcError(errno.EPROTO, f"unknown submission flags {flags & ~_FLAGS:#x}")
        if not 0 <= urgency <= 31:
            raise RpcError(errno.EINVAL, "urgency is a number from 0 to 31")
        if urgency > _DEFAULT_URGENCY and not request.cred.owner:
            raise RpcError(errno.EINVAL, "only the instance owner submits with urgency over 16")
        spec = self._unwrapped(token, request)
        for validator in self._validators:
            try:
                validator(spec)
            except UserMistake as mistake:
                shown = getattr(mistake, "shown", str(mistake))
                raise RpcError(errno.EINVAL, shown) from mistake
        job = self._next()
        kept = jobspecs.without_environment(spec)
        submitted = {
            "userid": request.cred.userid,
            "urgency": urgency,
            "flags": flags,
            "version": 1,
        }
        stored = [
            put(keys.of(job, "J"), token.encode()),
            put(keys.of(job, "jobspec"), orjson.dumps(kept)),
        ]
        await self._manager.submit(job, submitted, kept, stored)
        return {"id": job}

    def _unwrapped(self, token: str, request: Request) -> Mapping[str, Any]:
        try:
            signed = signed_request.unwrap(token)
            if signed.userid != request.cred.userid:
                raise RpcError(
                    errno.EPERM,
                    f"signer={signed.userid} != requestor={request.cred.userid}",
                )
            if not request.cred.owner:
                # Mechanism none proves nothing when the tasks are to run as somebody else.
                raise RpcError(errno.EPERM, "only instance owner can use sign-type=none")
            return jobspecs.check(orjson.loads(signed.payload))
        except orjson.JSONDecodeError as error:
            raise RpcError(errno.EINVAL, f"jobspec: invalid JSON: {error}") from error
        except UserMistake as mistake:
            raise RpcError(errno.EINVAL, str(mistake)) from mistake

    def _next(self) -> fluid.JobId:
        now = int(self._clock.now() * 1000)
        if self._generator is None:
            # Not before the job manager has replayed: ids go on where they had ended.
            self._generator = fluid.Generator(now, latest=self._manager.latest())
        return self._generator.next(now)
