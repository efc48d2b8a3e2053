"""The Kubernetes REST protocol over a store: paths, verbs, watches, Status errors."""

import asyncio
import base64
import hmac
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any, Final

import orjson
import structlog
from aiohttp import web
from multidict import CIMultiDict

from warren.base.clock import Clock
from warren.base.objects import Key, Kind, Object, Remove, key_of, merged
from warren.kube.admission import Denied
from warren.kube.client import AlreadyExists, Conflict, Event, Expired, NotFound, Refused
from warren.kube.server import discovery, openapi, selectors, tables
from warren.kube.server.apply import ApplyConflict
from warren.kube.server.patches import json_patch
from warren.kube.server.requests import Bad, Writing, body, flag, number, object_body, spelled_as
from warren.kube.server.resources import Invalid, Resource
from warren.kube.server.selectors import Operator
from warren.kube.server.store import Store

log = structlog.get_logger()

_BOOKMARK_SECONDS: Final = 15.0
_LARGEST: Final = 3 * 2**20


def _merged(old: Object, patch: Any) -> Object:
    if not isinstance(patch, dict):
        raise Bad(400, "BadRequest", "the body is not an object")
    new: Object = merged(old, patch)
    return new


_APPLY: Final = "application/apply-patch+yaml"
_PATCHES: Final[Mapping[str, Callable[[Object, Any], Object]]] = {
    "application/merge-patch+json": _merged,
    "application/json-patch+json": json_patch,
}
"""How each type of patch changes an object."""


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
        self._described: list[Resource] = []
        self._encoded: Mapping[str, bytes] = {}

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
        except Bad as error:
            return _status(error.code, error.reason, str(error))
        except NotFound as error:
            return _status(404, "NotFound", str(error))
        except AlreadyExists as error:
            return _status(409, "AlreadyExists", str(error))
        except ApplyConflict as error:
            return _status(409, "Conflict", str(error), _owners(error))
        except Conflict as error:
            return _status(409, "Conflict", str(error))
        except Expired as error:
            return _status(410, "Expired", str(error))
        except Denied as error:
            message = f'admission webhook "vworkflow.kb.io" denied the request: {error}'
            return _status(403, "Forbidden", message)
        except Invalid as error:
            return _status(422, "Invalid", str(error), _causes(error))
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
            raise Bad(401, "Unauthorized", "Unauthorized")

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = [part for part in request.path.split("/") if part]
        match path:
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["version"]:
                return _json(discovery.version())
            case ["openapi", "v3"]:
                return _json(openapi.index(self._documents()))
            case ["openapi", "v3", *where] if "/".join(where) in self._documents():
                document = self._documents()["/".join(where)]
                return web.Response(body=document, content_type="application/json")
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
                raise Bad(404, "NotFound", "the server could not find the requested resource")

    def _documents(self) -> Mapping[str, bytes]:
        """Give the OpenAPI documents by place, written anew when what is served has changed."""
        resources = self._store.resources()
        if self._described != resources:
            self._described = resources
            self._encoded = discovery.documents(resources)
        return self._encoded

    def _group(self, name: str) -> dict[str, Any]:
        for group in discovery.groups(self._store.resources())["groups"]:
            if group["name"] == name:
                return dict(group)
        raise Bad(404, "NotFound", "the server could not find the requested resource")

    def _target(self, group: str, version: str, rest: list[str]) -> _Target:
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces":
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        resource = self._store.resource(group, plural)
        unknown = resource is None or version not in resource.versions
        if resource is None or unknown or subresource not in ("", "status") or len(rest) > 3:
            raise Bad(404, "NotFound", "the server could not find the requested resource")
        if subresource == "status" and not resource.status:
            raise Bad(404, "NotFound", "the server could not find the requested resource")
        return _Target(resource, resource.kind(version), namespace, name, subresource)

    async def _serve(self, request: web.Request, target: _Target) -> web.StreamResponse:
        match request.method, bool(target.name):
            case "GET", True:
                return self._shown(request, target, self._store.get(target.kind, target.key))
            case "GET", False:
                if flag(request, "watch"):
                    return await self._watch(request, target)
                return self._list(request, target)
            case "POST", False:
                return await self._create(request, target)
            case "PUT", True:
                return await self._replace(request, target)
            case "PATCH", True:
                return await self._patch(request, target)
            case "DELETE", True if not target.subresource:
                return await self._delete(request, target)
            case "DELETE", False:
                return await self._delete_all(request, target)
            case method, _:
                raise Bad(405, "MethodNotAllowed", f"{method} is not served here")

    def _shown(self, request: web.Request, target: _Target, obj: Object) -> web.Response:
        if tables.wanted(request.headers.get("Accept", "")):
            return _json(self._table(target, [obj], obj["metadata"]["resourceVersion"]))
        return _json(obj)

    def _table(self, target: _Target, items: list[Object], version: str) -> dict[str, Any]:
        now = self._clock.now()
        return tables.table(target.resource, target.kind.version, items, version, now)

    def _list(self, request: web.Request, target: _Target) -> web.Response:
        chosen = _Selection(request)
        listing = self._store.list(target.kind, target.namespace, chosen.equalities())
        items, more = chosen.page(listing.items)
        if tables.wanted(request.headers.get("Accept", "")):
            table = self._table(target, items, listing.version)
            table["metadata"].update(more)
            return _json(table)
        return _json(
            {
                "kind": f"{target.kind.name}List",
                "apiVersion": target.kind.api_version,
                "metadata": {"resourceVersion": listing.version, **more},
                "items": items,
            }
        )

    async def _create(self, request: web.Request, target: _Target) -> web.Response:
        writing = Writing(request)
        obj = await object_body(request)
        metadata = obj.setdefault("metadata", {})
        if target.namespace and isinstance(metadata, dict):
            metadata["namespace"] = target.namespace
        spelled_as(obj, target.kind.name, target.kind.api_version)
        made = await self._store.create(target.kind, obj, writing.how)
        return _json(made, 201, writing.warnings)

    async def _replace(self, request: web.Request, target: _Target) -> web.Response:
        writing = Writing(request, status=target.subresource == "status")
        obj = await object_body(request)
        spelled_as(obj, target.kind.name, target.kind.api_version)
        if (obj.get("metadata") or {}).get("name", target.name) != target.name:
            raise Bad(400, "BadRequest", "metadata.name is not the name in the address")
        done = await self._store.modify(target.kind, target.key, lambda _: obj, writing.how)
        return _json(done, 200, writing.warnings)

    async def _patch(self, request: web.Request, target: _Target) -> web.Response:
        writing = Writing(request, status=target.subresource == "status")
        if request.content_type == _APPLY:
            return await self._apply(request, target, writing)
        make = _PATCHES.get(request.content_type)
        if make is None:
            known = ", ".join([*_PATCHES, _APPLY])
            raise Bad(415, "UnsupportedMediaType", f"patches are {known}, not other types")
        patch = await body(request)
        done = await self._store.modify(
            target.kind, target.key, lambda old: make(old, patch), writing.how
        )
        return _json(done, 200, writing.warnings)

    async def _apply(self, request: web.Request, target: _Target, writing: Writing) -> web.Response:
        if not writing.how.manager:
            raise Bad(400, "BadRequest", "fieldManager: who applies says its name")
        configuration = await object_body(request)
        spelled_as(configuration, target.kind.name, target.kind.api_version)
        metadata = {**(configuration.get("metadata") or {}), "name": target.name}
        if target.key.namespace:
            metadata["namespace"] = target.key.namespace
        whole = {
            "apiVersion": target.kind.api_version,
            "kind": target.kind.name,
            **configuration,
            "metadata": metadata,
        }
        done, new = await self._store.apply(
            target.kind, target.key, whole, writing.how, force=flag(request, "force")
        )
        return _json(done, 201 if new else 200, writing.warnings)

    async def _delete(self, request: web.Request, target: _Target) -> web.Response:
        how = Writing(request).how
        return _json(await self._store.delete(Remove(kind=target.kind, key=target.key), how))

    async def _delete_all(self, request: web.Request, target: _Target) -> web.Response:
        how, chosen = Writing(request).how, _Selection(request)
        listing = self._store.list(target.kind, target.namespace, chosen.equalities())
        items, _ = chosen.page(listing.items)
        for obj in items:
            with suppress(NotFound):
                await self._store.delete(Remove(kind=target.kind, key=key_of(obj)), how)
        return _json(
            {
                "kind": f"{target.kind.name}List",
                "apiVersion": target.kind.api_version,
                "metadata": {"resourceVersion": self._store.version},
                "items": items,
            }
        )

    async def _watch(self, request: web.Request, target: _Target) -> web.StreamResponse:
        chosen = _Selection(request)
        as_table = tables.wanted(request.headers.get("Accept", ""))
        since = number(request, "resourceVersion")
        limit = int(number(request, "timeoutSeconds") or 0) or None
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        if since in ("", "0"):
            listing = self._store.list(target.kind, target.namespace, chosen.equalities())
            first = [Event("ADDED", obj) for obj in listing.items if chosen.matches(obj)]
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
        bookmarks = flag(request, "allowWatchBookmarks")
        following = asyncio.ensure_future(anext(events))
        try:
            while True:
                # Every change up to this version is sent before the wait runs out; one that
                # comes at that very moment is not.
                version = self._store.version
                done, _ = await asyncio.wait({following}, timeout=_BOOKMARK_SECONDS)
                if done:
                    event = following.result()
                    if chosen.matches(event.object):
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
    """The selectors of a request, and the page of the list that it asks for."""

    def __init__(self, request: web.Request) -> None:
        try:
            self.labels = selectors.parse_labels(request.query.get("labelSelector", ""))
            self._fields = selectors.parse_fields(request.query.get("fieldSelector", ""))
        except Refused as error:
            raise Bad(400, "BadRequest", str(error)) from None
        self.limit = int(number(request, "limit") or 0)
        self._from = _continued(request.query.get("continue", ""))

    def equalities(self) -> dict[str, str]:
        """Give the labels that are asked for by equality: the store finds those at once."""
        return {
            each.key: each.values[0]
            for each in self.labels.requirements
            if each.operator is Operator.EQUALS
        }

    def matches(self, obj: Object) -> bool:
        return self._fields.matches(obj) and self.labels.matches(obj["metadata"].get("labels"))

    def page(self, items: list[Object]) -> tuple[list[Object], dict[str, Any]]:
        """Give the objects of this page, and what the list's metadata says of those after it."""
        chosen = [obj for obj in items if self.matches(obj) and key_of(obj) > self._from]
        rest = chosen[self.limit :] if self.limit else []
        if not rest:
            return chosen, {}
        page = chosen[: self.limit]
        token = base64.urlsafe_b64encode(orjson.dumps([*key_of(page[-1])])).decode()
        return page, {"continue": token, "remainingItemCount": len(rest)}


def _continued(token: str) -> Key:
    """Read after which key a list goes on. It shows what is there now, not what was there."""
    try:
        return Key(*orjson.loads(base64.urlsafe_b64decode(token))) if token else Key("", "")
    except (ValueError, TypeError):
        raise Bad(400, "BadRequest", "continue: this is not what an earlier answer gave") from None


def _bookmark(kind: Kind, version: str) -> Object:
    return {
        "kind": kind.name,
        "apiVersion": kind.api_version,
        "metadata": {"resourceVersion": version, "creationTimestamp": None},
    }


def _json(body: Any, status: int = 200, warnings: Sequence[str] = ()) -> web.Response:
    headers = CIMultiDict(("Warning", f"299 - {orjson.dumps(each).decode()}") for each in warnings)
    return web.Response(
        body=orjson.dumps(body), status=status, content_type="application/json", headers=headers
    )


def _causes(error: Invalid) -> dict[str, Any]:
    """Give the details of a Status: what does not fit, and why."""
    causes = [
        {"reason": each.reason, "message": each.message, "field": each.field}
        for each in error.causes
    ]
    return {"name": error.name, "group": error.group, "kind": error.kind, "causes": causes}


def _owners(error: ApplyConflict) -> dict[str, Any]:
    """Give the details of a Status: which fields others own."""
    causes = [
        {"reason": "FieldManagerConflict", "message": each.message, "field": each.field}
        for each in error.causes
    ]
    return {"causes": causes}


def _status_body(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": reason,
        **({"details": details} if details else {}),
        "code": code,
    }


def _status(
    code: int, reason: str, message: str, details: Mapping[str, Any] | None = None
) -> web.Response:
    return _json(_status_body(code, reason, message, details), code)
