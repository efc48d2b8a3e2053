"""Requests to one API server: with credentials, in time, and again where that is safe.

Knows HTTP and how Kubernetes words its failures; what is asked, and of which objects, is
its caller's business.
"""

import asyncio
import itertools
import random
import re
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import Any, Final

import aiohttp
import msgspec
import orjson

from warren.base.clock import Clock
from warren.base.errors import WarrenError
from warren.kube.client import (
    AlreadyExists,
    Conflict,
    Expired,
    Forbidden,
    Invalid,
    NotFound,
    Refused,
    Unavailable,
)
from warren.kube.credentials import Identity
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.retries import Failure, retry_after, retry_delay

REQUEST_TIMEOUT: Final = 30.0
"""The longest that a request may take, with all its tries and waits."""

_CONNECT_SECONDS: Final = 10.0
_MAX_CONCURRENT_REQUESTS: Final = 64
"""How many requests may be under way; watches are not counted."""

_MAX_SILENCE: Final = 150.0
"""How long a watch may say nothing before it is taken for dead: two bookmarks, and then some.

Kubernetes sends one a minute.
"""

_NO_ROLE_PATTERN: Final = re.compile(r'forbidden: User ".*" cannot ')
"""How an API says that no role lets us; with the same status admission says what is not let in."""

_TLS_ADDRESS_PATTERN: Final = re.compile(r" ssl:(<[^>]*>|\S+)")
"""What aiohttp says of how it was to be connected: an object's address, of no use to a reader."""

_MAX_LINE_BYTES: Final = 8 * 2**20
_MAX_REASON_LENGTH: Final = 300


class _FailedTry(msgspec.Struct, frozen=True):
    """A try that came to nothing, and what to raise if there is no other."""

    failure: Failure
    error: WarrenError


class Transport:
    """Asks one API server."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        access: ClusterAccess,
        clock: Clock,
        *,
        request_timeout: float = REQUEST_TIMEOUT,
        max_silence: float = _MAX_SILENCE,
        rng: random.Random | None = None,
    ) -> None:
        """A request has `request_timeout` seconds; a watch may be silent for `max_silence`."""
        self._max_silence = max_silence
        self._session = session
        self._access = access
        self._server = access.server.rstrip("/")
        self._clock = clock
        self._request_timeout = request_timeout
        self._rng = rng or random.Random()
        self._credentials = access.credentials(clock)
        self._request_slots = asyncio.Semaphore(_MAX_CONCURRENT_REQUESTS)
        self._tls_identity: Identity | None = None
        self._tls: ssl.SSLContext | None = None

    async def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Ask, and return the answer. Raises every error of the port."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._request_timeout
        options: dict[str, Any] = {"params": query}
        if body is not None:
            options["data"] = orjson.dumps(body)
            options["headers"] = {"Content-Type": content_type}
        try:
            async with asyncio.timeout_at(deadline):
                for tries in itertools.count(1):
                    outcome = await self._try_once(method, path, options)
                    if not isinstance(outcome, _FailedTry):
                        return outcome
                    seconds = retry_delay(method, outcome.failure, tries, self._rng)
                    if seconds is None or loop.time() + seconds >= deadline:
                        raise outcome.error
                    await asyncio.sleep(seconds)
        except TimeoutError as error:
            raise Unavailable(
                f"{self._server} gives no answer in {self._request_timeout:g} s."
            ) from error
        raise AssertionError("it is tried until there is an end")

    async def lines(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Return an answer line by line, as `pieces` does."""
        async with (
            aclosing(self.pieces(path, query)) as pieces,  # type: ignore[type-var]
            aclosing(_split_lines(pieces)) as lines,  # type: ignore[type-var]
        ):
            async for line in lines:
                yield line

    async def pieces(self, path: str, query: Mapping[str, str]) -> AsyncIterator[bytes]:
        """Return an answer as it comes, until the API ends it. Raises every error of the port.

        It may take for ever, but not be silent for ever.
        """
        timeout = aiohttp.ClientTimeout(
            total=None, sock_connect=_CONNECT_SECONDS, sock_read=self._max_silence
        )
        try:
            response = await self._send("GET", path, {"params": query, "timeout": timeout})
            async with response:
                if response.status != 200:
                    raise self._failed_try(response, await response.read()).error
                async for piece in response.content.iter_any():
                    yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unavailable(f"the answer of {path} was cut off: {_one_line(error)}") from error

    async def _try_once(
        self, method: str, path: str, options: dict[str, Any]
    ) -> dict[str, Any] | _FailedTry:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
        try:
            async with self._request_slots:
                response = await self._send(method, path, {**options, "timeout": timeout})
                async with response:
                    answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            is_unsent = isinstance(
                error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError
            )
            # A server that is not the one we trust will not be it in a moment.
            is_final = isinstance(error, aiohttp.ClientSSLError)
            unavailable = Unavailable(f"{self._server} does not answer: {_one_line(error)}")
            unavailable.__cause__ = error
            return _FailedTry(Failure(sent=not is_unsent, final=is_final), unavailable)
        if response.status >= 300:
            return self._failed_try(response, answer)
        try:
            decoded = orjson.loads(answer)
        except orjson.JSONDecodeError as error:
            raise Unavailable(f"{self._server}{path} answers what is not JSON: {error}") from error
        if not isinstance(decoded, dict):
            raise Unavailable(f"{self._server}{path} answers what is not an object.")
        return decoded

    async def _send(
        self, method: str, path: str, options: Mapping[str, Any]
    ) -> aiohttp.ClientResponse:
        """Send a request, and send it again if only our credentials were too old."""
        identity = await self._credentials.current()
        response = await self._request(method, path, identity, options)
        if response.status != 401:
            return response
        try:
            fresh = await self._credentials.renew(identity)
        except BaseException:
            response.close()
            raise
        if fresh == identity:
            return response
        response.close()
        return await self._request(method, path, fresh, options)

    async def _request(
        self, method: str, path: str, identity: Identity, options: Mapping[str, Any]
    ) -> aiohttp.ClientResponse:
        headers = dict(options.get("headers", {}))
        if identity.authorization:
            headers["Authorization"] = identity.authorization
        return await self._session.request(
            method,
            self._server + path,
            **{**options, "headers": headers},
            ssl=self._tls_context(identity),
            server_hostname=self._access.server_name or None,
            # No API points elsewhere: what does is a portal that wants a person's password.
            allow_redirects=False,
        )

    def _tls_context(self, identity: Identity) -> ssl.SSLContext | bool:
        if not self._server.startswith("https://"):
            return True
        presented = self._tls_identity
        if (
            self._tls is None
            or presented is None
            or (presented.certificate, presented.key) != (identity.certificate, identity.key)
        ):
            self._tls = self._access.tls(identity)
            self._tls_identity = identity
        return self._tls

    def _failed_try(self, response: aiohttp.ClientResponse, answer: bytes) -> _FailedTry:
        status = response.status
        delay = retry_after(response.headers.get("Retry-After"), self._clock.now())
        error = error_of_answer(status, answer)
        if status == 401:
            error = Forbidden(f"{self._access.origin or self._server}: {error}")
        elif 300 <= status < 400:
            location = response.headers.get("Location", "elsewhere")
            error = Refused(f"{self._server} points to {location}: it is not an API server.")
        if delay is not None and isinstance(error, Unavailable):
            error.delay = max(delay, error.delay)
        return _FailedTry(Failure(status=status, retry_after=delay), error)


async def _split_lines(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Return the lines of a stream, and what stands after the last."""
    line_parts: list[bytes] = []
    size = 0
    async for chunk in pieces:
        *ends, unfinished = chunk.split(b"\n")
        for end in ends:
            line_parts.append(end)
            yield b"".join(line_parts)
            line_parts, size = [], 0
        line_parts.append(unfinished)
        size += len(unfinished)
        if size > _MAX_LINE_BYTES:
            raise Unavailable(f"the watch tells a line of more than {_MAX_LINE_BYTES} bytes.")
    if size:
        yield b"".join(line_parts)


def error_of_answer(code: int, answer: bytes) -> WarrenError:
    """Translate a Status, or whatever else an answer says, into the port's errors."""
    try:
        status = orjson.loads(answer)
        reason, sentence = status.get("reason") or "", _sentence(status)
    except (orjson.JSONDecodeError, AttributeError, TypeError):
        reason, sentence = "", _one_line(answer.decode(errors="replace"))
    sentence = sentence or f"HTTP status {code}"
    match code:
        case 404:
            return NotFound(sentence)
        case 409:
            return AlreadyExists(sentence) if reason == "AlreadyExists" else Conflict(sentence)
        case 410:
            return Expired(sentence)
        case 408 | 429:
            return Unavailable(sentence)
        case 403 if _NO_ROLE_PATTERN.search(sentence):
            return Forbidden(sentence)
        case 422:
            return Invalid(sentence)
        case _ if code >= 500:
            return Unavailable(sentence)
        case _:
            return Refused(sentence)


def _sentence(status: Mapping[str, Any]) -> str:
    """Return the message of a Status, with the causes that it leaves out."""
    message = str(status.get("message") or "")
    causes = (status.get("details") or {}).get("causes") or ()
    unmentioned_causes = [
        f"{cause['field']}: {cause['message']}" if cause.get("field") else cause["message"]
        for cause in causes
        if cause.get("message") and cause["message"] not in message
    ]
    return (
        f"{message.rstrip('.')}: {'; '.join(unmentioned_causes)}" if unmentioned_causes else message
    )


def _one_line(error: object) -> str:
    """Return what an error says, on one line."""
    text = _TLS_ADDRESS_PATTERN.sub("", " ".join(str(error).split())) or type(error).__name__
    return text[:_MAX_REASON_LENGTH]
