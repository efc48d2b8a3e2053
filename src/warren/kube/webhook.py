"""An admission webhook: answers AdmissionReviews by the rules of an `Admission`.

One `Admission` answers for all kinds. Paths are spelled as kubebuilder does, and only what
they begin with counts: `/mutate-...` for what may change an object, `/validate-...` for what
may say no. The objects themselves say of what kind they are.
"""

import asyncio
import base64
import resource
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

import jsonpatch
import msgspec
import orjson
from aiohttp import web

from warren.base import log
from warren.base.errors import Retryable
from warren.base.objects import Key, Kind, Object
from warren.kube import serving
from warren.kube.admission import Admission, Denied, Operation, Review, User
from warren.kube.client import Refused
from warren.kube.connections import ConnectionLimits

_MAX_BODY_BYTES: Final = 8 * 2**20
"""Bytes of an AdmissionReview: it holds an object twice, before and after."""

_GRACE_SECONDS: Final = 3.0
"""Seconds that requests in flight may take at shutdown."""

IDLE_TIMEOUT: Final = 120.0
"""Seconds for which a connection is kept without a request.

An API server closes one that was idle for 90 (IdleConnTimeout of Go's http.DefaultTransport, which
client-go takes over). It is to be the first: a review that it sends while we close is lost.
"""

_BODY_TIMEOUT: Final = 10.0
"""Seconds in which the body of a request is to come."""

_MAX_PER_ADDRESS: Final = 512
"""Connections of one user of this machine, or of one other machine, as an API server is."""
_MAX_CONNECTIONS: Final = 4096
"""Connections of all of them together, where this process may have so many twice."""


def path(action: Literal["mutate", "validate"], kind: Kind) -> str:
    """Return the path that a webhook configuration names for a kind."""
    return f"/{action}-{kind.group.replace('.', '-')}-{kind.version}-{kind.name.lower()}"


async def serve(
    listener: socket.socket,
    tls: ssl.SSLContext,
    admission: Admission,
    *,
    idle_timeout: float = IDLE_TIMEOUT,
    body_timeout: float = _BODY_TIMEOUT,
    max_per_address: int = _MAX_PER_ADDRESS,
) -> None:
    """Answer on a bound socket until cancelled.

    Each user of this machine, and each other machine, has `max_per_address` connections. One ends
    that is idle for `idle_timeout` seconds, or whose request takes `body_timeout` to come.
    """
    app = web.Application(client_max_size=_MAX_BODY_BYTES)
    handlers = _Handlers(admission, body_timeout)
    app.router.add_post("/mutate-{what}", handlers.mutate)
    app.router.add_post("/validate-{what}", handlers.validate)
    # Reviews come in bursts, which an interval between connections would hold up.
    total = min(_MAX_CONNECTIONS, max(1, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
    per_user = min(max_per_address, max(1, total // 4))
    limits = ConnectionLimits(per_user=per_user, total=total, interval=0.0, by_address=True)
    await serving.serve(
        app, listener, tls, grace=_GRACE_SECONDS, limits=limits, idle_timeout=idle_timeout
    )


class _Handlers:
    """The HTTP handlers for one `Admission`.

    A body that is no AdmissionReview is answered with 400. What cannot be decided is
    no answer either, but 503 or, for a bug, 500: whether the write may go on without us is
    what the webhook's failurePolicy says.
    """

    def __init__(self, admission: Admission, body_timeout: float) -> None:
        self._admission = admission
        self._body_timeout = body_timeout

    async def mutate(self, request: web.Request) -> web.Response:
        return await self._respond(request, self._mutation)

    async def validate(self, request: web.Request) -> web.Response:
        return await self._respond(request, self._verdict)

    async def _respond(
        self, request: web.Request, answer: Callable[[Review], Awaitable[Mapping[str, Any]]]
    ) -> web.Response:
        try:
            async with asyncio.timeout(self._body_timeout):
                body = await request.read()
        except TimeoutError:
            return web.Response(status=408, text="the body of the request has not come")
        try:
            admission_request = _decode(body)
        except (msgspec.DecodeError, RecursionError) as error:
            return web.Response(status=400, text=f"this is no AdmissionReview: {error}")
        try:
            response = await answer(_review(admission_request))
        except Retryable as error:
            return web.Response(status=503, text=str(error))
        except Exception:  # a bug costs one answer, not the webhook
            log.exception("review failed", path=request.path, uid=admission_request.uid)
            return web.Response(status=500, text="internal error; see the webhook's log")
        answered = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": admission_request.uid, **response},
        }
        return web.Response(body=orjson.dumps(answered), content_type="application/json")

    async def _mutation(self, review: Review) -> Mapping[str, Any]:
        try:
            admitted = await self._admission.admit(review)
        except Refused:
            # Left as it is: the validating webhook says why not, under its own name.
            return {"allowed": True}
        operations = jsonpatch.make_patch(review.new, admitted).patch
        if not operations:
            return {"allowed": True}
        patch = base64.b64encode(orjson.dumps(operations)).decode()
        return {"allowed": True, "patchType": "JSONPatch", "patch": patch}

    async def _verdict(self, review: Review) -> Mapping[str, Any]:
        warnings: list[str] = []
        try:
            await self._admission.admit(replace(review, warn=warnings.append))
        except Refused as error:
            code, reason = (403, "Forbidden") if isinstance(error, Denied) else (422, "Invalid")
            status = {"status": "Failure", "code": code, "reason": reason, "message": str(error)}
            return {"allowed": False, "status": status}
        return {"allowed": True, **({"warnings": warnings} if warnings else {})}


# The format


class _Kind(msgspec.Struct, frozen=True):
    version: str
    kind: str
    group: str = ""


class _Resource(msgspec.Struct, frozen=True):
    version: str
    resource: str
    group: str = ""


class _User(msgspec.Struct, frozen=True):
    username: str = ""
    groups: frozenset[str] | None = None


class _Metadata(msgspec.Struct, frozen=True):
    """What an object must have for rules to read it."""

    name: str | None = None
    namespace: str | None = None


class _Request(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    kind: _Kind
    resource: _Resource
    operation: Operation
    sub_resource: Literal["", "status"] = ""
    name: str = ""
    namespace: str = ""
    user_info: _User
    new: dict[str, Any] | None = msgspec.field(name="object", default=None)
    old: dict[str, Any] | None = msgspec.field(name="oldObject", default=None)
    dry_run: bool | None = None


class _AdmissionReview(msgspec.Struct, frozen=True, rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    request: _Request


def _decode(body: bytes) -> _Request:
    """Decode an AdmissionReview. Raises msgspec.DecodeError."""
    request = msgspec.json.decode(body, type=_AdmissionReview).request
    for name, obj, expected in (
        ("object", request.new, request.operation is not Operation.DELETE),
        ("oldObject", request.old, request.operation is not Operation.CREATE),
    ):
        if (obj is not None) is not expected:
            complaint = "has one" if expected else "has none"
            raise msgspec.ValidationError(f"request.{name}: {request.operation} {complaint}")
        if obj is not None:
            msgspec.convert(obj.get("metadata"), _Metadata)
    return request


def _review(request: _Request) -> Review:
    is_namespace = not request.resource.group and request.resource.resource == "namespaces"
    key = Key("" if is_namespace else request.namespace, request.name)
    kind = Kind(
        group=request.resource.group,
        version=request.resource.version,
        name=request.kind.kind,
        plural=request.resource.resource,
        namespaced=bool(key.namespace),
        # Of the kind, a review has no more than whether this write is of the subresource.
        status=request.sub_resource == "status",
    )
    return Review(
        operation=request.operation,
        kind=kind,
        key=key,
        old=_with_key(request.old, key),
        new=_with_key(request.new, key),
        user=User(request.user_info.username, request.user_info.groups or frozenset()),
        through_status=request.sub_resource == "status",
        dry_run=bool(request.dry_run),
    )


def _with_key(obj: dict[str, Any] | None, key: Key) -> Object | None:
    """Return an object with a name and a namespace, where it waits for the API to give them."""
    if obj is None:
        return None
    namespace = {"namespace": key.namespace} if key.namespace else {}
    return {**obj, "metadata": {"name": key.name, **namespace, **obj["metadata"]}}


# The certificate


def rotating_context(certificate: Path, key: Path) -> ssl.SSLContext:
    """Return a TLS context that presents the certificate as it is in the files at each handshake.

    They may be replaced at any time, as cert-manager does; while they cannot be read or do
    not belong together, what they held before is presented. Raises OSError where
    they cannot be used now.
    """
    files = _Certificate(certificate, key)
    files.context.sni_callback = files.on_client_hello
    return files.context


class _Certificate:
    """A certificate and its key in files, and a TLS context with their last valid content."""

    def __init__(self, certificate: Path, key: Path) -> None:
        self._files = (certificate, key)
        # Before the files are read: what is written meanwhile is seen as a change.
        self._stamps = self._stat()
        self.context = self._read()

    def on_client_hello(
        self, session: ssl.SSLObject, name: str | None, context: ssl.SSLContext
    ) -> None:
        try:
            stamps = self._stat()
            if stamps != self._stamps:
                self.context, self._stamps = self._read(), stamps
        except OSError as error:  # what TLS refuses is one as well
            log.warning("new certificate cannot be used", reason=str(error))
        session.context = self.context

    def _stat(self) -> list[tuple[int, int]]:
        stats = [file.stat() for file in self._files]
        # A file that is put in another's place may well be as old.
        return [(each.st_mtime_ns, each.st_ino) for each in stats]

    def _read(self) -> ssl.SSLContext:
        return serving.tls_server(*self._files)
