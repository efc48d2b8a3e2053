"""The Kubernetes REST protocol over a store: paths and verbs."""

import socket
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from types import MappingProxyType
from typing import Any, Final

import orjson
from aiohttp import web
from msgspec.structs import replace
from multidict import CIMultiDict

from warren.base import log
from warren.base.clock import Clock
from warren.base.objects import Key, Kind, Object, Remove, key_of, merge_patch
from warren.kube.admission import User
from warren.kube.client import NotFound
from warren.kube.server import logs
from warren.kube.server.access import reviews
from warren.kube.server.access.authentication import Authenticator
from warren.kube.server.access.authorization import Attributes, Authorizer, forbidden_message
from warren.kube.server.access.impersonation import acting_user
from warren.kube.server.builtin import BUILT_IN, CRD, REVIEWS
from warren.kube.server.resources import LOG_SUBRESOURCE, Resource
from warren.kube.server.rest import (
    discovery,
    listoptions,
    openapi,
    podlogs,
    tables,
    warningheaders,
)
from warren.kube.server.rest.bodies import BodyReader
from warren.kube.server.rest.requests import (
    RequestError,
    WriteRequest,
    check_type,
    flag,
    number_text,
)
from warren.kube.server.rest.selection import Selection
from warren.kube.server.rest.statuses import Failure, deletion_status, failure
from warren.kube.server.rest.views import META_VERSION, View, accepted_view, metadata_of
from warren.kube.server.rest.watches import BOOKMARK_INTERVAL, Watch
from warren.kube.server.schemas import celrules
from warren.kube.server.schemas.patches import json_patch
from warren.kube.server.schemas.strategic import strategic_merge
from warren.kube.server.store import Store
from warren.kube.server.storeerrors import DiskFull
from warren.kube.server.writing import WriteOptions, check_address
from warren.kube.serving import serve


def _merge(old: Object, patch: Any) -> Object:
    if isinstance(patch, list):
        # The official Python client sends operations for custom objects under this name. They
        # can be nothing else: a merge with a list would leave a list.
        return json_patch(old, patch)
    if not isinstance(patch, dict):
        raise RequestError(400, "BadRequest", "the body is not an object")
    new: Object = merge_patch(old, patch)
    return new


_APPLY_TYPE: Final = "application/apply-patch+yaml"
_STRATEGIC_TYPE: Final = "application/strategic-merge-patch+json"
_PATCH_FUNCTIONS: Final[Mapping[str, Callable[[Object, Any], Object]]] = {
    "application/merge-patch+json": _merge,
    "application/json-patch+json": json_patch,
    _STRATEGIC_TYPE: strategic_merge,
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


_VERBS: Final = {
    ("GET", True): "get",
    ("GET", False): "list",
    ("HEAD", True): "get",
    ("HEAD", False): "list",
    ("POST", False): "create",
    ("PUT", True): "update",
    ("PATCH", True): "patch",
    ("DELETE", True): "delete",
    ("DELETE", False): "deletecollection",
}
"""What a method asks to do, with and without the name of an object."""

_VERBS_NEEDING_ROOM: Final = frozenset({"create", "update", "patch"})
"""What takes room on the disk; to delete gives some back."""


class ApiServer:
    """Serves one store to the users whom its roles allow it."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        authenticator: Authenticator,
        authorizer: Authorizer,
        component_users: Collection[str] = (),
        body_reader: BodyReader | None = None,
        bookmark_interval: float = BOOKMARK_INTERVAL,
        pod_logs: logs.PodLogSource | None = None,
    ) -> None:
        """`component_users` are users whose work is under way, and for which room is set aside.

        A watch without changes gets a bookmark after `bookmark_interval` seconds. What pods print
        is in `pod_logs`.
        """
        self._pod_logs = pod_logs
        self._followers = podlogs.Followers()
        self._component_users = component_users
        self._store = store
        self._clock = clock
        self._authenticator = authenticator
        self._authorizer = authorizer
        self._body_reader = body_reader or BodyReader()
        self._bookmark_interval = bookmark_interval
        self._documented_resources: list[Resource] = []
        self._openapi_documents: Mapping[str, bytes] = {}

    async def run(self, listener: socket.socket, tls: ssl.SSLContext) -> None:
        """Serve on a bound socket until cancelled."""
        app = web.Application(
            client_max_size=self._body_reader.max_bytes, middlewares=[self._guard]
        )
        app.router.add_route("*", "/{path:.*}", self._dispatch)
        await serve(app, listener, tls)

    @web.middleware
    async def _guard(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        """Authenticate the client; answer every failure with a Status."""
        try:
            request[_USER_KEY] = acting_user(self._user(request), request.headers, self._authorizer)
            return await handler(request)
        except ConnectionError:
            raise
        except Exception as error:
            refusal = failure(error)
            if refusal is None:  # a bug costs one request, not the server
                log.exception("request failed", path=request.path)
                message = "internal error; see the server's log"
                refusal = Failure(500, "InternalError", message)
            return _json_response(refusal.status(), refusal.code, headers=refusal.headers)

    def _user(self, request: web.Request) -> User:
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        user = self._authenticator.user(request.headers.get("Authorization", ""), certificate)
        if user is None:
            raise RequestError(401, "Unauthorized", "Unauthorized")
        return user

    def _authorize(self, request: web.Request, attributes: Attributes) -> None:
        if not self._authorizer.allows(request[_USER_KEY], attributes):
            raise RequestError(403, "Forbidden", forbidden_message(request[_USER_KEY], attributes))

    def _check_room(self, user: User) -> None:
        full_reason = self._store.full_reason
        # Components come again, by themselves: what they write is not to be piled up here.
        if full_reason is not None and (
            self._store.stuck or user.name not in self._component_users
        ):
            raise DiskFull(full_reason)

    def _authorize_target(self, request: web.Request, target: _Target, verb: str) -> None:
        name, namespace = target.name, target.namespace
        if "fieldSelector" in request.query and verb in ("list", "watch"):
            # A user who may get one object by name may list and watch that one.
            name = Selection(request, target.resource).name
        if (target.kind.group, target.kind.plural) == ("", "namespaces"):
            namespace = name
        attributes = Attributes(
            verb=verb,
            group=target.kind.group,
            resource=target.kind.plural,
            subresource=target.subresource,
            namespace=namespace,
            name=name,
        )
        self._authorize(request, attributes)

    async def _dispatch(self, request: web.Request) -> web.StreamResponse:
        path = [part for part in request.path.split("/") if part]
        match path:
            case ["apis", group, "v1", plural] if (group, plural) in _REVIEW_RESOURCES:
                return await self._review(request, group, plural, "")
            case ["apis", group, "v1", "namespaces", namespace, plural] if (
                group,
                plural,
            ) in _REVIEW_RESOURCES:
                return await self._review(request, group, plural, namespace)
            case ["api", "v1", *rest] if rest:
                return await self._serve(request, self._target("", "v1", rest))
            case ["apis", group, version, *rest] if rest:
                return await self._serve(request, self._target(group, version, rest))
        self._authorize(request, Attributes(verb=request.method.lower(), path=request.path))
        match path:
            case ["healthz" | "livez" | "readyz"]:
                return web.Response(text="ok")
            case ["version"]:
                return _json_response(discovery.version())
            case ["openapi", "v2"]:
                return web.Response(
                    body=openapi.empty_document(),
                    headers={"Content-Type": openapi.VERSION_2_CONTENT_TYPE},
                )
            case ["openapi", "v3"]:
                return _json_response(openapi.index(self._documents()))
            case ["openapi", "v3", *group_version] if "/".join(group_version) in self._documents():
                document = self._documents()["/".join(group_version)]
                return web.Response(body=document, content_type="application/json")
            case ["api"]:
                return _json_response(discovery.versions())
            case ["apis"]:
                return _json_response(discovery.groups(self._discoverable_resources()))
            case ["apis", group]:
                return _json_response(self._group(group))
            case ["apis", group, version]:
                return _json_response(self._resources(group, version))
            case ["api", "v1"]:
                return _json_response(discovery.resources_of(self._store.resources(), "", "v1"))
            case _:
                raise RequestError(
                    404, "NotFound", "the server could not find the requested resource"
                )

    def _discoverable_resources(self) -> list[Resource]:
        return [*self._store.resources(), *REVIEWS]

    def _documents(self) -> Mapping[str, bytes]:
        """Return the OpenAPI documents by path, written anew when what is served has changed."""
        resources = self._store.resources()
        if self._documented_resources != resources:
            self._documented_resources = resources
            self._openapi_documents = discovery.documents(resources)
        return self._openapi_documents

    def _group(self, name: str) -> dict[str, Any]:
        for group in discovery.groups(self._discoverable_resources())["groups"]:
            if group["name"] == name:
                return dict(group)
        raise RequestError(404, "NotFound", "the server could not find the requested resource")

    def _resources(self, group: str, version: str) -> dict[str, Any]:
        found = discovery.resources_of(self._discoverable_resources(), group, version)
        if not found["resources"]:
            raise RequestError(404, "NotFound", "the server could not find the requested resource")
        return found

    def _target(self, group: str, version: str, rest: list[str]) -> _Target:
        namespace = ""
        if len(rest) > 2 and rest[0] == "namespaces" and rest[2] != "status":
            namespace, rest = rest[1], rest[2:]
        plural, name, subresource = (*rest, "", "")[:3]
        resource = self._store.resource(group, plural)
        is_unknown = resource is None or version not in resource.versions
        if resource is None or is_unknown or len(rest) > 3:
            raise RequestError(404, "NotFound", "the server could not find the requested resource")
        if subresource and subresource not in resource.subresources:
            raise RequestError(404, "NotFound", "the server could not find the requested resource")
        return _Target(resource, resource.kind(version), namespace, name, subresource)

    async def _serve(self, request: web.Request, target: _Target) -> web.StreamResponse:
        verb = _VERBS.get((request.method, bool(target.name)), request.method.lower())
        is_watch = verb == "list" and flag(request, "watch")
        self._authorize_target(request, target, "watch" if is_watch else verb)
        if target.subresource == LOG_SUBRESOURCE and request.method != "GET":
            raise RequestError(405, "MethodNotAllowed", f"{request.method} is not served here")
        if verb in _VERBS_NEEDING_ROOM:
            self._check_room(request[_USER_KEY])
        match request.method, bool(target.name):
            case "GET", True if target.subresource == LOG_SUBRESOURCE:
                return await self._log(request, target)
            case "GET", True:
                self._store.check_reached(int(number_text(request, "resourceVersion") or 0))
                found = self._store.get(target.kind, target.key)
                return _json_response(self._view(request, target)(found))
            case "GET", False:
                if is_watch:
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
                raise RequestError(405, "MethodNotAllowed", f"{method} is not served here")

    def _view(self, request: web.Request, target: _Target) -> Callable[[Object], Object]:
        """Return the function that gives an object the form in which the client wants it."""
        match accepted_view(request.headers.get("Accept", "")):
            case View.TABLE:
                return lambda obj: self._table(
                    target, [obj], obj["metadata"].get("resourceVersion", "")
                )
            case View.METADATA:
                return metadata_of
            case View.WHOLE:
                return lambda obj: obj

    def _table(self, target: _Target, items: list[Object], version: str) -> dict[str, Any]:
        now = self._clock.now()
        return tables.table(target.resource, target.kind.version, items, version, now)

    def _list(self, request: web.Request, target: _Target) -> web.Response:
        selection = Selection(request, target.resource)
        list_version = listoptions.list_version(request)
        self._store.check_reached(list_version.min_version)
        exact_version = (
            list_version.min_version if list_version.is_exact else selection.resource_version
        )
        if exact_version is None:
            listing = self._store.list(target.kind, target.namespace, selection.equalities())
        else:
            listing = self._store.list_at(exact_version, target.kind, target.namespace)
        items, page_metadata = selection.page(listing.items, exact_version)
        metadata = {"resourceVersion": listing.resource_version, **page_metadata}
        match accepted_view(request.headers.get("Accept", "")):
            case View.TABLE:
                table = self._table(target, items, listing.resource_version)
                return _json_response({**table, "metadata": metadata})
            case View.METADATA:
                kind, version = f"{View.METADATA}List", META_VERSION
                items = [metadata_of(obj) for obj in items]
            case View.WHOLE:
                kind, version = f"{target.kind.name}List", target.kind.api_version
        return _json_response(
            {"kind": kind, "apiVersion": version, "metadata": metadata, "items": items}
        )

    def _write_response(
        self,
        request: web.Request,
        target: _Target,
        obj: Object,
        write_request: WriteRequest,
        code: int = 200,
    ) -> web.Response:
        """Answer with what has been written, and with what its writer is to be warned of."""
        rule_warnings = (
            celrules.warnings(obj) if target.kind == CRD and not target.subresource else []
        )
        shown = self._view(request, target)(obj)
        return _json_response(shown, code, [*write_request.warnings, *rule_warnings])

    async def _create(self, request: web.Request, target: _Target) -> web.Response:
        write_request = WriteRequest(request, request[_USER_KEY])
        obj = await self._body_reader.read_object(request)
        metadata = obj.setdefault("metadata", {})
        if target.namespace and isinstance(metadata, dict):
            metadata["namespace"] = target.namespace
        check_type(obj, target.kind.name, target.kind.api_version)
        created = await self._store.create(target.kind, obj, write_request.options)
        return self._write_response(request, target, created, write_request, 201)

    async def _replace(self, request: web.Request, target: _Target) -> web.Response:
        write_request = WriteRequest(
            request, request[_USER_KEY], through_status=target.subresource == "status"
        )
        obj = await self._body_reader.read_object(request)
        check_type(obj, target.kind.name, target.kind.api_version)
        metadata = obj.get("metadata") or {}
        if isinstance(metadata, dict):
            check_address({"name": target.name}, metadata)
            # A replacement is of this very object; a patch that names another one is a mistake.
            write_request.options = replace(write_request.options, uid=metadata.get("uid"))
        written = await self._store.modify(
            target.kind, target.key, lambda _: obj, write_request.options
        )
        return self._write_response(request, target, written, write_request)

    async def _patch(self, request: web.Request, target: _Target) -> web.Response:
        write_request = WriteRequest(
            request, request[_USER_KEY], through_status=target.subresource == "status"
        )
        if request.content_type == _APPLY_TYPE:
            return await self._apply(request, target, write_request)
        apply_patch = self._patch_types(target).get(request.content_type)
        if apply_patch is None:
            known_types = ", ".join([*self._patch_types(target), _APPLY_TYPE])
            raise RequestError(
                415,
                "UnsupportedMediaType",
                "the body of the request was in an unknown format - "
                f"accepted media types include: {known_types}",
            )
        patch = await self._body_reader.read_value(request)
        written = await self._store.modify(
            target.kind, target.key, lambda old: apply_patch(old, patch), write_request.options
        )
        return self._write_response(request, target, written, write_request)

    def _patch_types(self, target: _Target) -> Mapping[str, Callable[[Object, Any], Object]]:
        """Return the types of patches that a kind takes: its API must know which lists merge."""
        if (target.kind.group, target.kind.plural) in _BUILT_IN_RESOURCES:
            return _PATCH_FUNCTIONS
        return {
            name: apply_patch
            for name, apply_patch in _PATCH_FUNCTIONS.items()
            if name != _STRATEGIC_TYPE
        }

    async def _apply(
        self, request: web.Request, target: _Target, write_request: WriteRequest
    ) -> web.Response:
        if not write_request.options.manager:
            raise RequestError(400, "BadRequest", "fieldManager: it is required for an apply patch")
        configuration = await self._body_reader.read_object(request)
        check_type(configuration, target.kind.name, target.kind.api_version)
        given_metadata = configuration.get("metadata") or {}
        if not isinstance(given_metadata, dict):
            raise RequestError(400, "BadRequest", "the metadata of the body is not an object")
        metadata = {**given_metadata, "name": target.name}
        if target.key.namespace:
            metadata["namespace"] = target.key.namespace
        whole = {
            "apiVersion": target.kind.api_version,
            "kind": target.kind.name,
            **configuration,
            "metadata": metadata,
        }
        if self._store.is_absent(target.kind, target.key):
            self._authorize_target(request, target, "create")
        applied, is_new = await self._store.apply(
            target.kind, target.key, whole, write_request.options, force=flag(request, "force")
        )
        return self._write_response(request, target, applied, write_request, 201 if is_new else 200)

    async def _delete(self, request: web.Request, target: _Target) -> web.Response:
        options = await self._delete_options(request)
        deleted = await self._store.delete(Remove(kind=target.kind, key=target.key), options)
        if deleted["metadata"].get("deletionTimestamp"):
            return _json_response(deleted)  # finalizers keep it
        return _json_response(deletion_status(target.kind, deleted))

    async def _delete_all(self, request: web.Request, target: _Target) -> web.Response:
        options = await self._delete_options(request)
        selection = Selection(request, target.resource)
        listing = self._store.list(target.kind, target.namespace, selection.equalities())
        items, _ = selection.page(listing.items)
        for obj in items:
            with suppress(NotFound):
                await self._store.delete(Remove(kind=target.kind, key=key_of(obj)), options)
        return _json_response(
            {
                "kind": f"{target.kind.name}List",
                "apiVersion": target.kind.api_version,
                "metadata": {"resourceVersion": self._store.resource_version},
                "items": items,
            }
        )

    async def _delete_options(self, request: web.Request) -> WriteOptions:
        options = await self._body_reader.read_object(request) if request.can_read_body else {}
        return WriteRequest(request, request[_USER_KEY]).delete_options(request, options)

    async def _watch(self, request: web.Request, target: _Target) -> web.StreamResponse:
        selection = Selection(request, target.resource)
        start = listoptions.watch_start(request)
        timeout_seconds = int(number_text(request, "timeoutSeconds") or 0) or None
        bookmarks = flag(request, "allowWatchBookmarks")
        initial_objects: list[Object] = []
        since = start.since
        if start.send_initial:
            listing = self._store.list(target.kind, target.namespace, selection.equalities())
            initial_objects = [obj for obj in listing.items if selection.matches(obj)]
            # What there has not been yet cannot be waited for: to begin there is refused.
            since = max(listing.resource_version, since or "0", key=int)
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        view = self._view(request, target)
        watch = Watch(
            request,
            response,
            target.kind,
            lambda: self._store.resource_version,
            view,
            self._bookmark_interval,
        )
        await watch.run(
            initial_objects,
            lambda: self._store.subscribe(target.kind, since, target.namespace),
            selection.matches,
            initial_version=since
            if start.initial_bookmark and start.send_initial and bookmarks
            else None,
            timeout_seconds=timeout_seconds,
            sends_bookmarks=bookmarks,
        )
        return response

    async def _log(self, request: web.Request, target: _Target) -> web.StreamResponse:
        pod = self._store.get(target.kind, target.key)
        log_request = podlogs.read_request(request, pod)
        logs.check_started(pod, log_request.container)
        if self._pod_logs is None:
            raise NotFound("what pods print is not kept by this cluster")

        def has_ended() -> bool:
            try:
                current = self._store.get(target.kind, target.key)
            except NotFound:
                return True
            # One that has taken its name prints elsewhere.
            is_same_pod = current["metadata"]["uid"] == pod["metadata"]["uid"]
            return not (is_same_pod and log_request.follow) or logs.has_ended(
                current, log_request.container
            )

        with self._followers.admit(log_request):
            pod_log = self._pod_logs.open(pod, log_request.container, log_request.lines)
            return await podlogs.answer(request, pod_log, log_request.max_bytes, has_ended)

    async def _review(
        self, request: web.Request, group: str, plural: str, namespace: str
    ) -> web.Response:
        """Answer a question about rights; what is posted is not kept."""
        if request.method != "POST":
            raise RequestError(405, "MethodNotAllowed", f"{request.method} is not served here")
        attributes = Attributes(verb="create", group=group, resource=plural, namespace=namespace)
        self._authorize(request, attributes)
        review = await self._body_reader.read_object(request)
        if namespace:
            review["metadata"] = {**(review.get("metadata") or {}), "namespace": namespace}
        answered_review = reviews.answer(plural, review, request[_USER_KEY], self._authorizer)
        return _json_response(answered_review, 201)


_BUILT_IN_RESOURCES: Final = {(each.group, each.plural) for each in BUILT_IN}
_REVIEW_RESOURCES: Final = {(kind.group, kind.plural) for kind in reviews.REVIEW_KINDS}

_USER_KEY: Final = web.RequestKey("user", User)
"""The key of a request's user."""


def _json_response(
    body: Any,
    status: int = 200,
    warnings: Sequence[str] = (),
    headers: Mapping[str, str] = MappingProxyType({}),
) -> web.Response:
    all_headers = CIMultiDict(headers)
    for each in warningheaders.values(warnings):
        all_headers.add("Warning", each)
    return web.Response(
        body=orjson.dumps(body), status=status, content_type="application/json", headers=all_headers
    )
