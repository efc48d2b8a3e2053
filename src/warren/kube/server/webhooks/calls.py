"""One call of a webhook: the question, how it is sent, and what the answer says.

The format of both is AdmissionReview of `admission.k8s.io/v1`.
"""

import asyncio
import io
from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple, Protocol

import aiohttp
import msgspec
import orjson

from warren import __version__
from warren.base import log
from warren.base.objects import Kind
from warren.kube.admission import Denied, Operation, Review
from warren.kube.client import Refused, Unavailable
from warren.kube.server.history import in_version
from warren.kube.server.webhooks import configurations
from warren.kube.server.webhooks.configurations import ServiceReference, Webhook

_MAX_ANSWER_BYTES: Final = 8 * 2**20
_MAX_REASON_LENGTH: Final = 300


class Rejected(Denied):
    """A webhook has denied the request, with the code and the reason of its own."""

    def __init__(self, why: str, webhook: str, code: int, reason: str) -> None:
        super().__init__(why, webhook)
        self.code = code
        self.reason = reason


class CallFailed(Unavailable):
    """A webhook that must be asked could not be, or answers what is no answer."""

    def __init__(self, webhook: str, why: str) -> None:
        super().__init__(f'failed calling webhook "{webhook}": {why}')


class Endpoint(NamedTuple):
    """Where a webhook is reached."""

    url: str
    server_name: str | None
    """The name that its certificate is for, where that is not the one in the URL."""


class Sender(Protocol):
    """The port to webhooks."""

    async def send(self, hook: Webhook, endpoint: Endpoint, question: bytes) -> bytes:
        """Return the answer to a question. Raises Unavailable where there is none."""
        ...

    async def close(self) -> None:
        """End all connections."""
        ...


Resolver = Callable[[ServiceReference], str | None]
"""Returns the `host:port` where a service is reached; None where it is not."""


class WebhookClient:
    """Asks webhooks, and reads what they answer."""

    def __init__(self, sender: Sender, resolve: Resolver, new_uid: Callable[[], str]) -> None:
        self._sender = sender
        self._resolve = resolve
        self._new_uid = new_uid

    async def ask(self, hook: Webhook, review: Review, kind: Kind) -> "AdmissionResponse | None":
        """Ask one webhook; None where it gives no answer, and need not.

        Raises Rejected, and CallFailed where it must answer.
        """
        try:
            response = await self._call(hook, review, kind)
        except CallFailed as error:
            if hook.required:
                raise
            log.warning("webhook left out", webhook=hook.name, reason=str(error))
            return None
        for warning in response.warnings or ():
            log.info("webhook warns", webhook=hook.name, warning=warning)
            review.warn(warning)
        if not response.allowed:
            status = response.status or _Status()
            reason = status.message or status.reason or "without explanation"
            # What a denial says of its code may not look like success.
            raise Rejected(reason, hook.name, max(status.code or 0, 400), status.reason or "")
        return response

    async def _call(self, hook: Webhook, review: Review, kind: Kind) -> "AdmissionResponse":
        uid, endpoint = self._new_uid(), self._endpoint(hook)
        try:
            async with asyncio.timeout(hook.timeout_seconds):
                answer = await self._sender.send(hook, endpoint, question(uid, review, kind))
        except TimeoutError as error:
            why = f"{endpoint.url} gives no answer in {hook.timeout_seconds} s"
            raise CallFailed(hook.name, f"failed to call webhook: {why}") from error
        except Unavailable as error:
            raise CallFailed(hook.name, f"failed to call webhook: {error}") from error
        try:
            response = msgspec.json.decode(answer, type=_Answer).response
        except (msgspec.DecodeError, RecursionError) as error:
            raise CallFailed(hook.name, f"its answer is no AdmissionReview: {error}") from error
        if response.uid != uid:
            raise CallFailed(hook.name, f"it answers {response.uid!r}, and was asked {uid!r}")
        return response

    def _endpoint(self, hook: Webhook) -> Endpoint:
        if hook.service is None:
            return Endpoint(hook.url_or_path, None)
        host_and_port = self._resolve(hook.service)
        if host_and_port is None:
            why = f"service {hook.service} is not to be reached"
            raise CallFailed(hook.name, f"failed to call webhook: {why}")
        return Endpoint(f"https://{host_and_port}{hook.url_or_path}", hook.service.server_name)


class HttpsSender:
    """The webhooks of the network."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def send(self, hook: Webhook, endpoint: Endpoint, question: bytes) -> bytes:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                headers={
                    "Accept": "application/json",
                    "Content-Type": "application/json",
                    "User-Agent": f"warren/{__version__} (apiserver)",
                },
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                # How long a webhook may take is a matter of its configuration.
                timeout=aiohttp.ClientTimeout(total=None),
            )
        try:
            async with self._session.post(
                endpoint.url,
                params={"timeout": f"{hook.timeout_seconds}s"},
                data=io.BytesIO(question),
                ssl=hook.tls,
                server_hostname=endpoint.server_name,
                allow_redirects=False,
            ) as response:
                answer = await _read(response.content)
                if response.status != 200:
                    text = _one_line(answer.decode(errors="replace"))
                    raise Unavailable(f"{endpoint.url} answers {response.status}: {text}")
                return answer
        except (aiohttp.ClientError, OSError) as error:
            raise Unavailable(f"{endpoint.url} does not answer: {_one_line(error)}") from error

    async def close(self) -> None:
        if self._session is not None:
            session, self._session = self._session, None
            await session.close()


async def _read(content: aiohttp.StreamReader) -> bytes:
    answer = bytearray()
    async for chunk in content.iter_any():
        answer += chunk
        if len(answer) > _MAX_ANSWER_BYTES:
            raise Unavailable(f"the answer has more than {_MAX_ANSWER_BYTES} bytes")
    return bytes(answer)


# The format


class _Status(msgspec.Struct, frozen=True):
    code: int | None = None
    message: str | None = None
    reason: str | None = None


class AdmissionResponse(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What a webhook answers."""

    uid: str
    allowed: bool
    status: _Status | None = None
    patch: bytes | None = None
    patch_type: str | None = None
    warnings: tuple[str, ...] | None = None


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    api_version: Literal["admission.k8s.io/v1"]
    kind: Literal["AdmissionReview"]
    response: AdmissionResponse


_OPTIONS_KINDS: Final = {
    Operation.CREATE: "CreateOptions",
    Operation.UPDATE: "UpdateOptions",
    Operation.DELETE: "DeleteOptions",
}


def question(uid: str, review: Review, kind: Kind) -> bytes:
    """Write the question whether a write is to be admitted, its object spelled as `kind`.

    Raises Refused for an object that cannot be written.
    """
    options: dict[str, Any] = {
        "apiVersion": "meta.k8s.io/v1",
        "kind": _OPTIONS_KINDS[review.operation],
    }
    if review.dry_run:
        options["dryRun"] = ["All"]
    subresource = "status" if review.through_status else ""
    object_address = {
        "name": review.key.name,
        "namespace": configurations.namespace_of(review),
        "subResource": subresource,
        "requestSubResource": subresource,
    }
    admission_review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": uid,
            "kind": _kind(kind),
            "resource": _resource(kind),
            "requestKind": _kind(review.kind),
            "requestResource": _resource(review.kind),
            **{name: value for name, value in object_address.items() if value},
            "operation": review.operation,
            "userInfo": {
                "username": review.user.name,
                "groups": sorted(review.user.groups),
            },
            "object": None if review.new is None else in_version(kind, review.new),
            "oldObject": None if review.old is None else in_version(kind, review.old),
            "dryRun": review.dry_run,
            "options": options,
        },
    }
    try:
        return orjson.dumps(admission_review)
    except orjson.JSONEncodeError as error:
        raise Refused(f"{review.kind} {review.key} cannot be written: {error}") from error


def _kind(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "kind": kind.name}


def _resource(kind: Kind) -> dict[str, str]:
    return {"group": kind.group, "version": kind.version, "resource": kind.plural}


def _one_line(error: object) -> str:
    """Return what an error says, on one line."""
    text = " ".join(str(error).split()) or type(error).__name__
    return text[:_MAX_REASON_LENGTH]
