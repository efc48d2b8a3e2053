"""The `Client` over HTTPS: requests to a Kubernetes API server."""

import random
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final

import aiohttp
import orjson
from msgspec.structs import replace

from warren import __version__
from warren.base.clock import Clock, SystemClock
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.kube.client import Expired, Listing, Unavailable, WatchEvent
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.transport import REQUEST_TIMEOUT, Transport, error_of_answer

_PAGE_SIZE: Final = 500
"""How many objects of a list to ask for at a time."""

_WATCH_SECONDS: Final = 300.0
"""For at least how long a watch is asked for, and at most for twice as long."""

_EVENT_TYPES: Final = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


class HttpClient:
    """A `Client`. Made by `connect`.

    `versions` gives for a group the version that the server is spoken to in: what is
    asked for and written in another is spelled in that one on the way, and back.
    """

    def __init__(
        self,
        transport: Transport,
        versions: Mapping[str, str] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self._versions = dict(versions or {})
        self._rng = rng or random.Random()

    def with_versions(self, versions: Mapping[str, str]) -> "HttpClient":
        """Return a client over the same connections that speaks these versions."""
        return HttpClient(self._transport, versions, self._rng)

    async def read(self, path: str) -> dict[str, Any]:
        """Return a document of the API. Raises NotFound."""
        return await self._transport.request("GET", path)

    async def get(self, kind: Kind, key: Key) -> Object:
        path = _path(self._in_served_version(kind), key.namespace, key.name)
        return _in_requested_version(kind, await self._transport.request("GET", path))

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        selector = ",".join(f"{name}={value}" for name, value in (labels or {}).items())
        query = {"labelSelector": selector} if selector else {}
        try:
            return await self._pages(kind, namespace, {**query, "limit": str(_PAGE_SIZE)})
        except Expired:
            # The pages took longer than the API remembers what they are pages of.
            return await self._pages(kind, namespace, query)

    async def _pages(self, kind: Kind, namespace: str, query: Mapping[str, str]) -> Listing:
        path = _path(self._in_served_version(kind), namespace)
        items: list[Object] = []
        version, continue_token = "", ""
        while True:
            page_query = {**query, "continue": continue_token} if continue_token else query
            page = await self._transport.request("GET", path, query=page_query)
            for item in page.get("items") or ():
                # In a list the items leave out their kind, which the list says for all of them.
                item.setdefault("kind", kind.name)
                items.append(_in_requested_version(kind, item))
            metadata = page.get("metadata") or {}
            # A watch from the first page's version misses nothing, whatever the
            # pages after it were made of.
            version = version or str(metadata.get("resourceVersion", ""))
            continue_token = metadata.get("continue") or ""
            if not continue_token:
                return Listing(items, version)

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        # Without an end of its own, all watches of all of us would end when a server does.
        seconds = self._rng.uniform(_WATCH_SECONDS, 2 * _WATCH_SECONDS)
        query = {
            "watch": "true",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(seconds)),
        }
        lines = self._transport.lines(_path(self._in_served_version(kind), namespace), query)
        async with aclosing(lines) as events:  # type: ignore[type-var]
            async for line in events:
                yield _event(kind, line)

    async def log(self, pod: Key, container: str, lines: int) -> AsyncIterator[bytes]:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
        query = {"container": container, "tailLines": str(lines)}
        pieces = self._transport.pieces(path, query)
        async with aclosing(pieces) as printed:  # type: ignore[type-var]
            async for piece in printed:
                yield piece

    async def create(self, kind: Kind, obj: Object) -> Object:
        served_kind = self._in_served_version(kind)
        namespace = obj["metadata"].get("namespace") or "default"
        body = {
            **self._with_owner_versions(obj),
            "apiVersion": served_kind.api_version,
            "kind": kind.name,
        }
        created = await self._transport.request("POST", _path(served_kind, namespace), body=body)
        return _in_requested_version(kind, created)

    async def patch(self, change: Change) -> Object:
        served_kind = self._in_served_version(change.kind)
        body = self._with_owner_versions(change.patch)
        if change.resource_version is not None:
            metadata = {**body.get("metadata", {}), "resourceVersion": change.resource_version}
            body = {**body, "metadata": metadata}
        if "apiVersion" in body:
            body = {**body, "apiVersion": served_kind.api_version}
        path = _path(served_kind, change.key.namespace, change.key.name)
        if change.status and change.kind.status:
            path += "/status"
        content_type = "application/merge-patch+json"
        changed = await self._transport.request("PATCH", path, body=body, content_type=content_type)
        return _in_requested_version(change.kind, changed)

    async def delete(self, remove: Remove) -> None:
        path = _path(self._in_served_version(remove.kind), remove.key.namespace, remove.key.name)
        body: Object = {"propagationPolicy": "Background"}
        if remove.uid is not None:
            body = {**body, "preconditions": {"uid": remove.uid}}
        await self._transport.request("DELETE", path, body=body)

    def _in_served_version(self, kind: Kind) -> Kind:
        version = self._versions.get(kind.group, kind.version)
        return kind if version == kind.version else replace(kind, version=version)

    def _with_owner_versions(self, body: Object) -> Object:
        """Spell the owners of what is written: the garbage collector asks for them by that."""
        owners = (body.get("metadata") or {}).get("ownerReferences")
        if not owners or not self._versions:
            return body
        respelled = []
        for owner in owners:
            group, _, version = owner.get("apiVersion", "").rpartition("/")
            version = self._versions.get(group, version)
            respelled.append({**owner, "apiVersion": f"{group}/{version}" if group else version})
        return {**body, "metadata": {**body["metadata"], "ownerReferences": respelled}}


_LEAKS_TLS: Final = sys.version_info < (3, 12, 8)
"""Whether asyncio loses the socket of a TLS connection that is closed under way (gh-118960)."""


@asynccontextmanager
async def connect(
    access: ClusterAccess,
    *,
    component: str = "client",
    versions: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    request_timeout: float = REQUEST_TIMEOUT,
) -> AsyncIterator[HttpClient]:
    """Return a client for the length of a block.

    The API's log knows us by the name of `component`. No request takes longer than
    `request_timeout` seconds, with all its tries.
    """
    async with aiohttp.ClientSession(
        headers={
            "Accept": "application/json",
            "User-Agent": f"warren/{__version__} ({component})",
        },
        # Each watch has a connection of its own for as long as it lives, and requests are
        # counted where they are made.
        connector=aiohttp.TCPConnector(limit=0, enable_cleanup_closed=_LEAKS_TLS),
        cookie_jar=aiohttp.DummyCookieJar(),
    ) as session:
        transport = Transport(
            session, access, clock or SystemClock(), request_timeout=request_timeout
        )
        yield HttpClient(transport, versions)


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
    namespace_path = f"/namespaces/{namespace}" if kind.namespaced and namespace else ""
    return f"{root}{namespace_path}/{kind.plural}" + (f"/{name}" if name else "")


def _in_requested_version(kind: Kind, obj: dict[str, Any]) -> Object:
    """Spell an object that came in another version in the one that was asked for."""
    obj["apiVersion"] = kind.api_version
    return obj


def _event(kind: Kind, line: bytes) -> WatchEvent:
    """Read one line of a watch. Raises what it tells of, and Unavailable where it is none."""
    try:
        event = orjson.loads(line)
        type_, obj = event["type"], event["object"]
        if type_ == "ERROR":
            raise error_of_answer(int(obj.get("code", 500)), orjson.dumps(obj))
        if type_ not in _EVENT_TYPES or "metadata" not in obj:
            raise ValueError(f"no event is of the type {type_!r}")
        return WatchEvent(type_, _in_requested_version(kind, obj))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise Unavailable(f"the watch of {kind} tells what is no event: {error!r}.") from error
