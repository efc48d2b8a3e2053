"""The Kubernetes REST protocol over a store: paths, verbs, watches, Status errors."""

import asyncio
import hmac
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, Final

import orjson
import structlog
from aiohttp import web

from warren.base.clock import Clock
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.kube.admission import Denied
from warren.kube.client import AlreadyExists, Conflict, Event, Expired, NotFound, Refused
from warren.kube.server import discovery, tables
from warren.kube.server.resources import Resource
from warren.kube.server.store import Store

log = structlog.get_logger()

_BOOKMARK_SECONDS: Final = 15.0
_LARGEST: Final = 3 * 2**20
_MERGE_PATCH: Final = "application/merge-patch+json"


class _Bad(Exception):
    """A request that cannot be served: an HTTP status, a reason, and a sentence."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason


class _Target:
    """What a path names."""

    def __init__(
        self, resource: Resource, kind: Kind, namespace: str, name: str, subresource: str
    ) -> None:
        self.resource = resource
        self.kind = kind
        self.namespace = namespace
        self.name = name
        self.subresource = subresource

    @property
    def key(self) -> Key:
        return Key(self.namespace if self.resource.namespaced else "", self.name)


class ApiServer:
    """Serves one store to whoever has a token."""

    def __init__(self, store: Store, clock: Clock, tokens: Mapping[str, str]) -> None:
        """`tokens` gives the name of the user behind each bearer token."""
        self._store = store
        self._clock = clock
        self._tokens = dict(tokens)

    async def run(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        """Serve on a bound socket until cancelled."""
        app = web.Application(client_max_size=_LARGEST, middlewares=[self._guard])
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.5)
        await runner.setup()
        try:
            await web.SockSite(runner, listener, ssl_context=tls).start()
            await asyncio.Event().wait()
        finally:
            await runner.cleanup()

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Let in who has a token; answer every failure with a Status."""
        try:
            self._authenticate(request)
            return await handler(request)
        except web.HTTPException as error:
            reason = "RequestEntityTooLarge" if error.status == 413 else "BadRequest"
            return _status(error.status, reason, error.reason)
        except _Bad as error:
            return _status(error.code, error.reason, str(error))
        except NotFound as error:
            return _status(404, "NotFound", str(error))
        except AlreadyExists as error:
            return _status(409, "AlreadyExists", str(error))
        except Conflict as error:
            return _status(409, "Conflict", str(error))
        except Expired as error:
            return _status(410, "Expired", str(error))
        except Denied as error:
            message = f'admission webhook "vworkflow.kb.io" denied the request: {error}'
            return _status(403, "Forbidden", message)
        except Refused as error:
            return _status(422, "Invalid", str(error))
        except ConnectionError:
            raise
        except Exception:  # a bug costs one request, not the server
            log.exception("request failed", path=request.path)
            return _status(500, "InternalError", "internal error; see the server's log")

    def _authenticate(self, request: web.Request) -> None:
        if request.path in ("/healthz", "/livez", "/readyz"):
            return
        given = request.headers.get("Authorization", "").removeprefix("Bearer ").encode()
        known = [hmac.compare_digest(given, token.encode()) for token in self._tokens]
        if not any(known):
            raise _Bad(401, "Unauthorized", "Unauthorized")

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = [part for part in request.path.split("/") if part]
        match path:
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["version"]:
                return _json(discovery.version())
            case ["api"]:
                return _json({"kind": "APIVersions", "versions": ["v1"]})
            case ["apis"]:
                return _json(discovery.groups(self._store.resources()))
            case ["apis", group]:
                return _json(self._group(group))
            case ["apis", group, version]:
                return _json(discovery.resources_of(self._store.resources(), group, version))
            case ["api", "v1"]:
                return _json(discovery.resources_of(self._store.resources(), "", "v1"))
            case ["api", "v1", *rest]:
                return await self._serve(request, self._target("", "v1", rest))
            case ["apis", group, version, *rest]:
                return await self._serve(request, self._target(group, version, rest))
            case _:
                raise _Bad(404, "NotFound", "the server could not find the requested resource")

    def _group(self, name: str) -> dict[str, Any]:
        for group in discovery.groups(self._store.resources())["groups"]:
            if group["name"] == name:
                return dict(group)
        raise _Bad(404, "NotFound", "the server could not find the requested resource")

    def _target(self, group: str, version: str, rest: list[str]) -> _Target:
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        resource = self._store.resource(group, plural)
        unknown = resource is None or version not in resource.versions
        if resource is None or unknown or subresource not in ("", "status") or len(rest) > 3:
            raise _Bad(404, "NotFound", "the server could not find the requested resource")
        if subresource == "status" and not resource.status:
            raise _Bad(404, "NotFound", "the server could not find the requested resource")
        return _Target(resource, resource.kind(version), namespace, name, subresource)

    async def _serve(self, request: web.Request, target: _Target) -> web.StreamResponse:
        match request.method, bool(target.name):
            case "GET", True:
                return self._shown(request, target, self._store.get(target.kind, target.key))
            case "GET", False:
                if request.query.get("watch") in ("true", "True", "1"):
                    return await self._watch(request, target)
                return self._list(request, target)
            case "POST", False:
                return await self._create(request, target)
            case "PATCH", True:
                return await self._patch(request, target)
            case "DELETE", True if not target.subresource:
                obj = await self._store.delete(Remove(kind=target.kind, key=target.key))
                return _json(obj)
            case method, _:
                raise _Bad(405, "MethodNotAllowed", f"{method} is not served here")

    def _shown(self, request: web.Request, target: _Target, obj: Object) -> web.Response:
        if tables.wanted(request.headers.get("Accept", "")):
            return _json(self._table(target, [obj], obj["metadata"]["resourceVersion"]))
        return _json(obj)

    def _table(self, target: _Target, items: list[Object], version: str) -> dict[str, Any]:
        now = self._clock.now()
        return tables.table(target.resource, target.kind.version, items, version, now)

    def _list(self, request: web.Request, target: _Target) -> web.Response:
        chosen = _Selection(request)
        listing = self._store.list(target.kind, target.namespace, chosen.labels)
        items = [obj for obj in listing.items if chosen.fields(obj)]
        if tables.wanted(request.headers.get("Accept", "")):
            return _json(self._table(target, items, listing.version))
        return _json(
            {
                "kind": f"{target.kind.name}List",
                "apiVersion": target.kind.api_version,
                "metadata": {"resourceVersion": listing.version},
                "items": items,
            }
        )

    async def _create(self, request: web.Request, target: _Target) -> web.Response:
        obj = await _body(request)
        metadata = obj.setdefault("metadata", {})
        if target.namespace and isinstance(metadata, dict):
            metadata["namespace"] = target.namespace
        for name, expected in (("apiVersion", target.kind.api_version), ("kind", target.kind.name)):
            if obj.get(name, expected) != expected:
                raise _Bad(400, "BadRequest", f"{name}: {obj[name]!r} is not {expected!r}")
        return _json(await self._store.create(target.kind, obj), status=201)

    async def _patch(self, request: web.Request, target: _Target) -> web.Response:
        if request.content_type != _MERGE_PATCH:
            raise _Bad(415, "UnsupportedMediaType", f"patches are {_MERGE_PATCH}, not other types")
        change = Change(
            kind=target.kind,
            key=target.key,
            patch=await _body(request),
            status=target.subresource == "status",
        )
        return _json(await self._store.patch(change))

    async def _watch(self, request: web.Request, target: _Target) -> web.StreamResponse:
        chosen = _Selection(request)
        as_table = tables.wanted(request.headers.get("Accept", ""))
        since = _number(request, "resourceVersion")
        limit = int(_number(request, "timeoutSeconds") or 0) or None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if since in ("", "0"):
            listing = self._store.list(target.kind, target.namespace, chosen.labels)
            first = [Event("ADDED", obj) for obj in listing.items if chosen.fields(obj)]
            since = listing.version
        else:
            first = []
        watch = self._store.watch(target.kind, since, target.namespace)
        await response.prepare(request)

        async def send(event: Event) -> None:
            obj: Any = event.object
            if as_table and event.type != "BOOKMARK":
                obj = self._table(target, [obj], obj["metadata"]["resourceVersion"])
            line = orjson.dumps({"type": event.type, "object": obj})
            await response.write(line + b"\n")

        try:
            async with asyncio.timeout(limit), aclosing(watch) as events:  # type: ignore[type-var]
                for event in first:
                    await send(event)
                await self._follow(request, target, chosen, events, send)
        except (TimeoutError, ConnectionError):
            pass  # as the client has asked, or it has hung up
        except Expired as error:
            status = {"type": "ERROR", "object": _status_body(410, "Expired", str(error))}
            await response.write(orjson.dumps(status) + b"\n")
        return response

    async def _follow(
        self,
        request: web.Request,
        target: _Target,
        chosen: "_Selection",
        events: Any,
        send: Callable[[Event], Awaitable[None]],
    ) -> None:
        """Send events as they come, and a bookmark when none has come for a while."""
        bookmarks = request.query.get("allowWatchBookmarks") in ("true", "True", "1")
        following = asyncio.ensure_future(anext(events))
        try:
            while True:
                # Every change up to this version is sent before the wait runs out; one that
                # comes at that very moment is not.
                version = self._store.version
                done, _ = await asyncio.wait({following}, timeout=_BOOKMARK_SECONDS)
                if done:
                    event = following.result()
                    if chosen.all(event.object):
                        await send(event)
                    following = asyncio.ensure_future(anext(events))
                elif request.transport is None:
                    return  # nobody listens any more
                elif bookmarks:
                    await send(Event("BOOKMARK", _bookmark(target.kind, version)))
        finally:
            following.cancel()
            await asyncio.gather(following, return_exceptions=True)


class _Selection:
    """The selectors of a request: labels by equality, and the name and namespace fields."""

    def __init__(self, request: web.Request) -> None:
        self.labels = _equalities("labelSelector", request.query.get("labelSelector", ""))
        self._fields = _equalities("fieldSelector", request.query.get("fieldSelector", ""))
        for name in self._fields:
            if name not in ("metadata.name", "metadata.namespace"):
                raise _Bad(400, "BadRequest", f"field selector {name!r} is not supported")

    def fields(self, obj: Object) -> bool:
        metadata = obj["metadata"]
        return all(
            metadata.get(name.removeprefix("metadata.")) == value
            for name, value in self._fields.items()
        )

    def all(self, obj: Object) -> bool:
        own = obj["metadata"].get("labels") or {}
        return self.fields(obj) and all(own.get(name) == v for name, v in self.labels.items())


def _equalities(parameter: str, text: str) -> dict[str, str]:
    found = {}
    for term in filter(None, text.split(",")):
        name, equals, value = term.replace("==", "=").partition("=")
        if not equals or name.endswith("!"):
            raise _Bad(400, "BadRequest", f"{parameter}: {term!r} is not of the form name=value")
        found[name] = value
    return found


def _number(request: web.Request, parameter: str) -> str:
    text = request.query.get(parameter, "")
    if text and not text.isdecimal():
        raise _Bad(400, "BadRequest", f"{parameter}: {text!r} is not a number")
    return text


async def _body(request: web.Request) -> dict[str, Any]:
    try:
        found = orjson.loads(await request.read())
    except orjson.JSONDecodeError as error:
        raise _Bad(400, "BadRequest", f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise _Bad(400, "BadRequest", "the body is not an object")
    return found


def _bookmark(kind: Kind, version: str) -> Object:
    return {
        "kind": kind.name,
        "apiVersion": kind.api_version,
        "metadata": {"resourceVersion": version, "creationTimestamp": None},
    }


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")


def _status_body(code: int, reason: str, message: str) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        "code": code,
    }


def _status(code: int, reason: str, message: str) -> web.Response:
    return _json(_status_body(code, reason, message), code)
