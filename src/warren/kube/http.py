"""The client port onto a Kubernetes API server over HTTPS."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson

from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.kube.client import (
    AlreadyExists,
    Conflict,
    Event,
    Expired,
    Listing,
    NotFound,
    Refused,
    Unavailable,
)
from warren.kube.kubeconfig import Access

_SECONDS: Final = 30.0
_SILENCE: Final = 60.0
"""How long a watch may say nothing, bookmarks included, before it is taken for dead."""

_LONGEST: Final = 4 * 2**20


class HttpClient:
    """A `Client`. Made by `connect`."""

    def __init__(self, session: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._server = server

    async def get(self, kind: Kind, key: Key) -> Object:
        found: Object = await self._ask("GET", _path(kind, key.namespace, key.name))
        return found

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        selector = ",".join(f"{name}={value}" for name, value in (labels or {}).items())
        query = {"labelSelector": selector} if selector else {}
        found = await self._ask("GET", _path(kind, namespace), query=query)
        items = found["items"]
        for item in items:
            # A list leaves out what it says once for all.
            item.setdefault("apiVersion", kind.api_version)
            item.setdefault("kind", kind.name)
        return Listing(items, found["metadata"]["resourceVersion"])

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[Event]:
        query = {"watch": "true", "resourceVersion": since, "allowWatchBookmarks": "true"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_SECONDS, sock_read=_SILENCE)
        url = self._server + _path(kind, namespace)
        try:
            async with self._session.get(url, params=query, timeout=timeout) as response:
                if response.status != 200:
                    raise _failure(response.status, await response.read())
                async for line in response.content:
                    told = orjson.loads(line)
                    if told["type"] == "ERROR":
                        status = told["object"]
                        raise _failure(status.get("code", 500), orjson.dumps(status))
                    yield Event(told["type"], told["object"])
        except (aiohttp.ClientError, TimeoutError, ConnectionError, ValueError) as error:
            raise Unavailable(f"the watch of {kind.plural} was cut off: {error!r}") from error

    async def create(self, kind: Kind, obj: Object) -> Object:
        namespace = obj["metadata"].get("namespace", "") if kind.namespaced else ""
        body = {**obj, "apiVersion": kind.api_version, "kind": kind.name}
        made: Object = await self._ask("POST", _path(kind, namespace), body=body)
        return made

    async def patch(self, change: Change) -> Object:
        body: Any = change.patch
        if change.seen is not None:
            metadata = {**body.get("metadata", {}), "resourceVersion": change.seen}
            body = {**body, "metadata": metadata}
        path = _path(change.kind, change.key.namespace, change.key.name)
        if change.status and change.kind.status:
            path += "/status"
        content = "application/merge-patch+json"
        changed: Object = await self._ask("PATCH", path, body=body, content=content)
        return changed

    async def delete(self, remove: Remove) -> None:
        path = _path(remove.kind, remove.key.namespace, remove.key.name)
        await self._ask("DELETE", path, body={"propagationPolicy": "Background"})

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Any = None,
        content: str = "application/json",
    ) -> Any:
        data = None if body is None else orjson.dumps(body)
        headers = {"Content-Type": content} if body is not None else {}
        try:
            async with (
                asyncio.timeout(_SECONDS),
                self._session.request(
                    method, self._server + path, params=query, data=data, headers=headers
                ) as response,
            ):
                answer = await response.read()
                status = response.status
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise Unavailable(f"{self._server} does not answer: {error!r}") from error
        if status >= 300:
            raise _failure(status, answer)
        return orjson.loads(answer)


@asynccontextmanager
async def connect(access: Access) -> AsyncIterator[HttpClient]:
    """Give a client for the length of a block."""
    headers = {"Authorization": f"Bearer {access.token}", "Accept": "application/json"}
    async with aiohttp.ClientSession(
        headers=headers,
        connector=aiohttp.TCPConnector(ssl=access.tls(), limit=64),
        read_bufsize=_LONGEST,
    ) as session:
        yield HttpClient(session, access.server.rstrip("/"))


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    place = f"/namespaces/{namespace}" if kind.namespaced and namespace else ""
    return f"{root}{place}/{kind.plural}" + (f"/{name}" if name else "")


def _failure(status: int, answer: bytes) -> Exception:
    """Translate a Status into the port's errors."""
    try:
        told = orjson.loads(answer)
        message, reason = told.get("message", ""), told.get("reason", "")
    except (orjson.JSONDecodeError, AttributeError):
        message, reason = answer.decode(errors="replace")[:200], ""
    if status == 404:
        return NotFound(message)
    if status == 409:
        return AlreadyExists(message) if reason == "AlreadyExists" else Conflict(message)
    if status == 410:
        return Expired(message)
    if status == 429 or status >= 500:
        return Unavailable(message)
    return Refused(message)
