"""Admission by webhooks: asks those that are configured, and does as they answer.

Which webhook wants to see which write is `configurations`; how one is asked is `calls`.
"""

import asyncio
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

import orjson

from warren.base import log
from warren.base.errors import WarrenError
from warren.base.objects import Key, Kind, Object, key_of
from warren.kube.admission import AdmissionChain, Review
from warren.kube.client import NotFound, Refused
from warren.kube.server import writing
from warren.kube.server.builtin import NAMESPACE
from warren.kube.server.history import ObjectChange, in_version
from warren.kube.server.resources import Resource
from warren.kube.server.schemas.patches import json_patch
from warren.kube.server.store import Store
from warren.kube.server.webhooks import configurations
from warren.kube.server.webhooks.calls import (
    AdmissionResponse,
    CallFailed,
    HttpsSender,
    Resolver,
    Sender,
    WebhookClient,
)
from warren.kube.server.webhooks.configurations import (
    MUTATING,
    VALIDATING,
    ServiceReference,
    Webhook,
)

_CONFIGURATION_RESOURCES: Final = {(kind.group, kind.plural) for kind in (MUTATING, VALIDATING)}
_SERVICE: Final = Kind("", "v1", "Service", "services", status=True)


class WebhookAdmission:
    """An `Admission`: the mutating webhooks one after the other, then the validating ones.

    A server that has rules of its own asks them between the two, as `mutating` and
    `validating`: its rules judge the object that the mutating webhooks have made, and the
    validating webhooks are asked about what the rules have made of it.
    Raises Rejected, CallFailed, and Refused for a configuration that cannot be read.
    """

    def __init__(
        self,
        sender: Sender | None = None,
        resolve: Resolver | None = None,
        new_uid: Callable[[], str] = lambda: str(uuid.uuid4()),
    ) -> None:
        """`resolve` finds services; without one, what is written in the Service counts."""
        self._sender = sender or HttpsSender()
        self._stored = _StoredWebhooks()
        self._client = WebhookClient(self._sender, resolve or self._stored.host_and_port, new_uid)
        self.mutating = _Mutating(self._stored, self._client)
        self.validating = _Validating(self._stored, self._client)

    def connect(self, store: Store) -> None:
        """Set the store that asks for admission; it has configurations, namespaces and services."""
        self._stored.connect(store)

    async def run(self) -> None:
        """Keep connections to webhooks until cancelled."""
        try:
            await asyncio.Event().wait()
        finally:
            await self._sender.close()

    async def admit(self, review: Review) -> Object | None:
        return await AdmissionChain([self.mutating, self.validating]).admit(review)


class _StoredWebhooks:
    """What the store has of webhooks: configurations, namespaces and services."""

    def __init__(self) -> None:
        self._store: Store
        self._hooks_by_kind: dict[str, Sequence[Webhook]] = {}

    def connect(self, store: Store) -> None:
        self._store = store
        store.listen(self._changed)

    def _changed(self, change: ObjectChange) -> None:
        if change.group_resource in _CONFIGURATION_RESOURCES:
            self._hooks_by_kind.clear()

    def hooks(self, kind: Kind) -> Sequence[Webhook]:
        """Return the webhooks of all configurations of a kind, in the order of their names."""
        hooks = self._hooks_by_kind.get(kind.plural)
        if hooks is None:
            objects = sorted(self._store.objects_of(kind), key=key_of)
            hooks = self._hooks_by_kind[kind.plural] = [
                hook for obj in objects for hook in _hooks_of(obj)
            ]
        return hooks

    def kind_for(self, hook: Webhook, review: Review) -> Kind | None:
        """Return the kind, in the version, in which a webhook wants to see a write, if it does."""
        return hook.wanted_kind(
            review, self.resource(review.kind).versions, self._namespace_labels(review)
        )

    def resource(self, kind: Kind) -> Resource:
        """Return how a kind is served. Raises NotFound."""
        resource = self._store.resource(kind.group, kind.plural)
        if resource is None:
            raise NotFound(f"the server has no {kind} any more")
        return resource

    def _namespace_labels(self, review: Review) -> Mapping[str, str] | None:
        """Return the labels of the namespace that a write is in; None where it is in none."""
        name = configurations.namespace_of(review)
        if not name:
            return None
        namespace: Object | None = review.new or review.old
        if review.key.namespace:
            try:
                namespace = self._store.get(NAMESPACE, Key("", name))
            except NotFound:
                namespace = None  # the object is older than the rule that there is one
        labels = namespace["metadata"].get("labels") if namespace is not None else None
        # Every namespace of a real cluster has its name as this label, and nobody can change it.
        return {**(labels or {}), "kubernetes.io/metadata.name": name}

    def host_and_port(self, service: ServiceReference) -> str | None:
        """Return the `host:port` that a Service says: nothing here routes to what is behind it."""
        try:
            obj = self._store.get(_SERVICE, Key(service.namespace, service.name))
        except NotFound:
            return None
        spec = obj.get("spec") or {}
        host = spec.get("externalName") or spec.get("clusterIP")
        if not host or host == "None":
            return None
        return f"[{host}]:{service.port}" if ":" in host else f"{host}:{service.port}"


class _Mutating:
    """The webhooks that may change an object, one after the other."""

    def __init__(self, stored: _StoredWebhooks, client: WebhookClient) -> None:
        self._stored = stored
        self._client = client

    async def admit(self, review: Review) -> Object | None:
        if configurations.is_configuration(review.kind):
            _check_configuration(review)
            return review.new
        for hook in self._stored.hooks(MUTATING):
            # What those before it have made of the object decides whether it wants to see it.
            kind = self._stored.kind_for(hook, review)
            if kind is None:
                continue
            response = await self._client.ask(hook, review, kind)
            if response is not None and response.patch and review.new is not None:
                resource = self._stored.resource(review.kind)
                patched = _apply_patch(hook, in_version(kind, review.new), response)
                review = replace(review, new=_storable(hook, review, resource, patched))
        return review.new


class _Validating:
    """The webhooks that may say no, all at the same time."""

    def __init__(self, stored: _StoredWebhooks, client: WebhookClient) -> None:
        self._stored = stored
        self._client = client

    async def admit(self, review: Review) -> Object | None:
        hooks = self._stored.hooks(VALIDATING)
        if not hooks or configurations.is_configuration(review.kind):
            return review.new
        hooks_and_kinds = [(hook, self._stored.kind_for(hook, review)) for hook in hooks]
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(self._objection(hook, review, kind))
                for hook, kind in hooks_and_kinds
                if kind is not None
            ]
        for task in tasks:
            # Of several, the first by name is told, whichever came first.
            if (objection := task.result()) is not None:
                raise objection
        return review.new

    async def _objection(self, hook: Webhook, review: Review, kind: Kind) -> WarrenError | None:
        try:
            await self._client.ask(hook, review, kind)
        except WarrenError as error:
            return error
        return None


# What becomes of an answer


def _apply_patch(hook: Webhook, obj: Object, response: AdmissionResponse) -> Object:
    """Return an object with a webhook's patch. Raises CallFailed where it is none."""
    # Whether the webhook must answer does not matter: it has, and means to change something.
    if response.patch_type != "JSONPatch":
        raise CallFailed(hook.name, f"its patch is not a JSONPatch, but {response.patch_type!r}")
    try:
        return json_patch(obj, orjson.loads(response.patch or b""))
    except (orjson.JSONDecodeError, Refused) as error:
        raise CallFailed(hook.name, f"its patch cannot be applied: {error}") from error


def _storable(hook: Webhook, review: Review, resource: Resource, patched: Object) -> Object:
    """Return what a webhook has made of an object, as far as its writer could have written it.

    Raises CallFailed where it is no object to be stored there, and ObjectInvalid where it does
    not fit its schema.
    """
    try:
        writing.check_metadata(patched.get("metadata"))
    except Refused as error:
        raise CallFailed(hook.name, f"its patch leaves no object: {error}") from error
    new = {**patched, "apiVersion": review.kind.api_version, "kind": review.kind.name}
    if review.old is not None:
        new = writing.writable_part(review.old, new, review.through_status, resource.has_status)
        new["metadata"] = writing.preserve_server_fields(review.old["metadata"], new["metadata"])
    else:
        if resource.has_status:
            new.pop("status", None)
        metadata = new["metadata"]
        if Key(metadata.get("namespace") or "", metadata.get("name") or "") != review.key:
            raise CallFailed(hook.name, f"its patch makes another object of {review.key}")
    return resource.prune_and_default(review.kind.version, new, lambda unknown: None)


def _check_configuration(review: Review) -> None:
    """Raise Refused for a configuration that is about to be written, and cannot be read."""
    new, old = review.new, review.old
    # What has been written before there was this rule may still be labeled, and let go.
    if new is not None and (old is None or new.get("webhooks") != old.get("webhooks")):
        configurations.read_webhooks(new)


def _hooks_of(configuration: Object) -> Sequence[Webhook]:
    try:
        return configurations.read_webhooks(configuration)
    except Refused as error:
        name = configuration["metadata"]["name"]
        log.error("webhooks are not asked", configuration=name, reason=str(error))
        return ()
