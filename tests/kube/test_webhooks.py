"""Webhooks: asked about writes as they are configured, and answering as rules in process do."""

import asyncio
import base64
import dataclasses
import datetime
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from msgspec.structs import replace

from tests.harness import virtual
from tests.harness.logs import capture_logs
from tests.journal.running import really, virtually
from tests.kube.clusters import alongside, wanting
from warren.base.clock import Clock, SystemClock
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.daemons.clusterobjects import definitions
from warren.dws import kinds
from warren.journal import Journal, MemoryJournal
from warren.kube import webhook
from warren.kube.admission import AdmitAll, Denied, Operation, Review, User
from warren.kube.client import Refused, Unavailable
from warren.kube.server.access import tls
from warren.kube.server.builtin import BUILT_IN, CRD, NAMESPACE
from warren.kube.server.resources import ObjectInvalid
from warren.kube.server.store import Store
from warren.kube.server.webhooks import configurations
from warren.kube.server.webhooks.calls import CallFailed, Endpoint, Rejected
from warren.kube.server.webhooks.configurations import MUTATING, VALIDATING, Webhook
from warren.kube.server.webhooks.dispatch import WebhookAdmission
from warren.kube.server.writing import WriteOptions

MAP = Kind("", "v1", "ConfigMap", "configmaps")
SERVICE = Kind("", "v1", "Service", "services", status=True)
ANNA = User("anna", frozenset({"staff", "admins"}))

Request = Mapping[str, Any]
Answering = Callable[[Request], Awaitable[Mapping[str, Any]]]

MAPS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"], "operations": ["*"]}
EVERYTHING = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"], "operations": ["*"]}


# Webhooks without a network


class Network:
    """Webhooks that are functions. Where there is none, none answers."""

    def __init__(self) -> None:
        self.there: dict[str, Answering] = {}
        self.asked: list[tuple[str, Request]] = []

    async def send(self, hook: Webhook, place: Endpoint, question: bytes) -> bytes:
        request = orjson.loads(question)["request"]
        self.asked.append((hook.name.split(".")[0], request))
        if place.url not in self.there:
            raise Unavailable(f"{place.url} does not answer")
        told = await self.there[place.url](request)
        return orjson.dumps(answer({"uid": request["uid"], **told}))

    async def close(self) -> None:
        pass

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.asked]


def answer(response: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response}


def patching(*operations: Mapping[str, Any]) -> dict[str, Any]:
    patch = base64.b64encode(orjson.dumps(operations)).decode()
    return {"allowed": True, "patchType": "JSONPatch", "patch": patch}


def put(place: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": place, "value": value}


def saying(told: Mapping[str, Any], seconds: float = 0.0) -> Answering:
    async def answers(request: Request) -> Mapping[str, Any]:
        await asyncio.sleep(seconds)
        return told

    return answers


ALLOWED = saying({"allowed": True})
DENIED = saying({"allowed": False, "status": {"code": 403, "message": "no."}})


def hook(name: str = "one", /, *rules: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    made = {
        "name": f"{name}.example.com",
        "clientConfig": {"url": f"https://{name}"},
        "rules": list(rules or [MAPS]),
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **changes,
    }
    return {key: value for key, value in made.items() if value is not ...}


def configuration(name: str, *its: Mapping[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "webhooks": list(its)}


@asynccontextmanager
async def asking(
    webhooks: WebhookAdmission, journal: Journal | None = None, clock: Clock | None = None
) -> AsyncIterator[Store]:
    """A store that asks webhooks, for the length of a block."""
    store = Store(journal or MemoryJournal(), clock or virtual.VirtualClock(), webhooks)
    webhooks.connect(store)
    async with alongside(store.run()), alongside(webhooks.run()):
        await store.create(NAMESPACE, {"metadata": {"name": "default"}})
        yield store


class World:
    """A store that asks webhooks, and the network that they are in."""

    def __init__(self, store: Store, network: Network, webhooks: WebhookAdmission) -> None:
        self.store = store
        self.network = network
        self.webhooks = webhooks

    async def asks(
        self, kind: Kind, name: str, answers: Answering | None = None, **changes: Any
    ) -> None:
        """Configure a webhook, which answers unless it is not there."""
        if answers is not None:
            self.network.there[f"https://{name}"] = answers
        rules = changes.pop("rules", [MAPS])
        await self.store.create(kind, configuration(name, hook(name, *rules, **changes)))

    async def serve(self, *names: str) -> None:
        for crd in definitions():
            if crd["spec"]["names"]["plural"] in names:
                await self.store.create(CRD, crd)

    async def write(self, name: str = "m", how: WriteOptions | None = None, **rest: Any) -> Object:
        metadata = {"name": name, "namespace": "default", **rest.pop("metadata", {})}
        return await self.store.create(MAP, {"metadata": metadata, **rest}, how or WriteOptions())

    async def change(self, patch: Object, name: str = "m") -> Object:
        return await self.store.patch(Change(kind=MAP, key=Key("default", name), patch=patch))


def world(story: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Tell a story in virtual time."""

    async def told(**others: Any) -> None:
        network = Network()
        webhooks = WebhookAdmission(network)
        async with asking(webhooks) as store:
            await story(World(store, network, webhooks), **others)

    return wanting(story)(virtually(told))


# What is asked, and of whom


@world
async def test_a_webhook_sees_the_whole_request(world: World) -> None:
    old = await world.write(data={"a": "1"})
    await world.asks(VALIDATING, "one", ALLOWED)
    key = Key("default", "m")

    await world.store.modify(
        MAP, key, lambda old: {**old, "data": {"a": "2"}}, WriteOptions(user=ANNA, dry_run=True)
    )

    ((_, request),) = world.network.asked
    request = dict(request)
    assert request.pop("uid")
    assert request.pop("object") == {**old, "data": {"a": "2"}}
    assert request == {
        "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "resource": {"group": "", "version": "v1", "resource": "configmaps"},
        "requestKind": {"group": "", "version": "v1", "kind": "ConfigMap"},
        "requestResource": {"group": "", "version": "v1", "resource": "configmaps"},
        "name": "m",
        "namespace": "default",
        "operation": "UPDATE",
        "userInfo": {"username": "anna", "groups": ["admins", "staff"]},
        "oldObject": old,
        "dryRun": True,
        "options": {"apiVersion": "meta.k8s.io/v1", "kind": "UpdateOptions", "dryRun": ["All"]},
    }
    assert world.store.get(MAP, key) == old


@world
async def test_what_a_webhook_warns_of_is_told_to_the_writer(world: World) -> None:
    said = {"allowed": True, "warnings": ["data: this has no effect", "data: nor has that"]}
    await world.asks(VALIDATING, "one", saying(said))
    told: list[str] = []
    await world.write(how=WriteOptions(warn=told.append))
    assert told == said["warnings"]


@world
async def test_creations_have_no_old_object_and_deletions_no_new_one(world: World) -> None:
    await world.asks(MUTATING, "one", ALLOWED)

    await world.write()
    await world.store.delete(Remove(kind=MAP, key=Key("default", "m")))

    seen = [
        (request["operation"], request["oldObject"] is None, request["object"] is None)
        for _, request in world.network.asked
    ]
    assert seen == [("CREATE", True, False), ("DELETE", False, True)]


def review(kind: Kind, operation: Operation = Operation.CREATE, **rest: Any) -> Review:
    key = Key("default" if kind.namespaced else "", "x")
    obj = {"metadata": {"name": "x"}}
    old = None if operation is Operation.CREATE else obj
    new = None if operation is Operation.DELETE else obj
    return Review(operation=operation, kind=kind, key=key, **{"old": old, "new": new, **rest})


def wants(asked: Review, served: Sequence[str] = (), **changes: Any) -> Kind | None:
    (made,) = configurations.read_webhooks(configuration("c", hook(**changes)))
    return made.wanted_kind(asked, served, {"team": "a"} if asked.key.namespace else None)


SERVERS = {"apiGroups": [kinds.SERVERS.group], "apiVersions": ["v1alpha7"],
           "resources": ["servers"], "operations": ["UPDATE"]}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "status", "wanted"),
    [
        ({}, False, True),
        ({}, True, False),
        ({"resources": ["servers/status"]}, False, False),
        ({"resources": ["servers/status"]}, True, True),
        ({"resources": ["servers/*"]}, True, True),
        ({"resources": ["*/status"]}, True, True),
        ({"resources": ["*"]}, False, True),
        ({"resources": ["*"]}, True, False),
        ({"resources": ["*/*"]}, True, True),
        ({"resources": ["computes", "servers"]}, False, True),
        ({"resources": ["computes"]}, False, False),
        ({"operations": ["CREATE", "DELETE"]}, False, False),
        ({"operations": ["*"]}, False, True),
        ({"apiGroups": [""]}, False, False),
        ({"apiGroups": ["*"]}, False, True),
        ({"apiVersions": ["v1alpha6"]}, False, False),
        ({"apiVersions": ["*"]}, False, True),
        ({"scope": "Namespaced"}, False, True),
        ({"scope": "Cluster"}, False, False),
        ({"scope": "*"}, False, True),
    ],
)
def test_rules_choose_writes(changes: dict[str, Any], status: bool, wanted: bool) -> None:
    asked = review(kinds.SERVERS, Operation.UPDATE, through_status=status)

    found = wants(asked, rules=[{**SERVERS, **changes}])

    assert found == (kinds.SERVERS if wanted else None)


def test_cluster_wide_objects_are_of_scope_cluster() -> None:
    assert wants(review(NAMESPACE), rules=[{**EVERYTHING, "scope": "Cluster"}]) == NAMESPACE
    assert wants(review(NAMESPACE), rules=[{**EVERYTHING, "scope": "Namespaced"}]) is None


def test_a_write_in_another_version_is_shown_in_the_one_that_a_rule_names() -> None:
    asked = review(replace(kinds.SERVERS, version="v1alpha6"), Operation.UPDATE)
    served = ("v1alpha7", "v1alpha6")

    assert wants(asked, served, rules=[SERVERS]) == kinds.SERVERS
    assert wants(asked, served, rules=[SERVERS], matchPolicy="Exact") is None


@pytest.mark.parametrize(
    ("selector", "chosen"),
    [
        ({}, True),
        ({"matchLabels": {"team": "a"}}, True),
        ({"matchLabels": {"team": "b"}}, False),
        ({"matchExpressions": [{"key": "team", "operator": "In", "values": ["b", "a"]}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]}, False),
        ({"matchExpressions": [{"key": "team", "operator": "Exists"}]}, True),
        ({"matchExpressions": [{"key": "team", "operator": "DoesNotExist"}]}, False),
        ({"matchExpressions": [{"key": "name", "operator": "DoesNotExist"}]}, True),
    ],
)
def test_selectors_choose_by_labels(selector: Object, chosen: bool) -> None:
    labeled = {"metadata": {"name": "x", "labels": {"team": "a"}}}

    by_namespace = wants(review(MAP), namespaceSelector=selector)
    by_object = wants(review(MAP, new=labeled), objectSelector=selector)

    assert (by_namespace is not None, by_object is not None) == (chosen, chosen)


def test_an_object_is_chosen_by_what_it_was_or_by_what_it_is_to_be() -> None:
    labeled = {"metadata": {"name": "x", "labels": {"team": "a"}}}
    selector = {"matchLabels": {"team": "a"}}

    for sides in ({"old": labeled}, {"new": labeled}):
        asked = review(MAP, Operation.UPDATE, **sides)
        assert wants(asked, objectSelector=selector) == MAP
    assert wants(review(MAP, Operation.UPDATE), objectSelector=selector) is None


@world
async def test_namespaces_are_chosen_by_their_own_labels_and_their_name(world: World) -> None:
    await world.store.create(NAMESPACE, {"metadata": {"name": "b", "labels": {"team": "b"}}})
    selector = {"matchLabels": {"team": "b"}}
    await world.asks(VALIDATING, "labeled", ALLOWED, rules=[EVERYTHING], namespaceSelector=selector)
    named = {"matchLabels": {"kubernetes.io/metadata.name": "b"}}
    await world.asks(VALIDATING, "named", ALLOWED, rules=[EVERYTHING], namespaceSelector=named)

    await world.write(metadata={"namespace": "default"})
    assert world.network.names == []

    await world.write(metadata={"namespace": "b"})
    assert world.network.names == ["labeled", "named"]

    labels = {"team": "b", "kubernetes.io/metadata.name": "b"}
    await world.store.create(NAMESPACE, {"metadata": {"name": "c", "labels": labels}})
    name, request = world.network.asked[-1]
    assert (name, request["namespace"]) == ("labeled", "c")

    # What is in no namespace, no namespace excludes.
    (node,) = (each for each in BUILT_IN if each.plural == "nodes")
    await world.store.create(node.kind("v1"), {"metadata": {"name": "n"}})
    assert world.network.names[-2:] == ["labeled", "named"]


@world
async def test_configurations_are_told_to_no_other(world: World) -> None:
    await world.asks(VALIDATING, "no", DENIED, rules=[EVERYTHING])
    await world.asks(MUTATING, "neither", DENIED, rules=[EVERYTHING])

    for kind, name in ((MUTATING, "neither"), (VALIDATING, "no")):
        patch = {"metadata": {"labels": {"a": "b"}}}
        await world.store.patch(Change(kind=kind, key=Key("", name), patch=patch))
        await world.store.delete(Remove(kind=kind, key=Key("", name)))

    assert world.network.asked == []
    await world.write()
    assert world.network.asked == []


@world
async def test_a_changed_configuration_counts_from_the_next_write_on(world: World) -> None:
    await world.write("before")
    await world.asks(VALIDATING, "one", ALLOWED)
    await world.write("asked")
    patch = {"webhooks": [hook("one", {**MAPS, "operations": ["DELETE"]})]}
    await world.store.patch(Change(kind=VALIDATING, key=Key("", "one"), patch=patch))
    await world.write("not-asked")

    assert [request["name"] for _, request in world.network.asked] == ["asked"]


# Changing


@world
async def test_mutating_webhooks_see_what_those_before_them_by_name_have_made(
    world: World,
) -> None:
    selector = {"matchLabels": {"by": "b"}}
    await world.asks(MUTATING, "c", ALLOWED, objectSelector=selector)
    await world.asks(
        MUTATING, "b", saying(patching(put("/metadata/labels/by", "b"), put("/data/b", "2")))
    )
    await world.asks(
        MUTATING,
        "a",
        saying(patching(put("/metadata/labels", {"by": "a"}), put("/data", {"a": "1"})), 3.0),
    )
    await world.asks(VALIDATING, "d", ALLOWED)

    made = await world.write()

    assert world.network.names == ["a", "b", "c", "d"]
    assert made["data"] == {"a": "1", "b": "2"}
    assert world.network.asked[1][1]["object"]["data"] == {"a": "1"}
    for _, request in world.network.asked[2:]:
        assert request["object"]["data"] == made["data"]


@world
async def test_rules_of_the_server_stand_between_the_two_kinds_of_webhooks(world: World) -> None:
    class Signing:
        async def admit(self, review: Review) -> Object | None:
            assert review.new is not None
            return {**review.new, "signed": review.new["data"]["a"]}

    await world.asks(MUTATING, "first", saying(patching(put("/data", {"a": "1"}))))
    await world.asks(VALIDATING, "last", ALLOWED)

    asked = review(MAP, new={"metadata": {"name": "x", "namespace": "default"}})
    for rule in (world.webhooks.mutating, Signing(), world.webhooks.validating):
        asked = dataclasses.replace(asked, new=await rule.admit(asked))

    assert asked.new is not None
    assert asked.new["signed"] == "1"
    assert world.network.asked[1][1]["object"]["signed"] == "1"


@world
async def test_a_patch_is_made_and_applied_in_the_version_that_was_shown(world: World) -> None:
    await world.serve("computes")
    old_kind = replace(kinds.COMPUTES, version="v1alpha6")

    async def names(request: Request) -> Mapping[str, Any]:
        assert request["kind"]["version"] == "v1alpha7"
        assert request["requestKind"]["version"] == "v1alpha6"
        assert request["object"]["apiVersion"] == kinds.COMPUTES.api_version
        shown = {"op": "test", "path": "/apiVersion", "value": kinds.COMPUTES.api_version}
        return patching(shown, put("/data", [{"name": "node-7"}]))

    rule = {**SERVERS, "resources": ["computes"], "operations": ["CREATE"]}
    await world.asks(MUTATING, "one", names, rules=[rule])

    made = await world.store.create(old_kind, {"metadata": {"name": "c"}, "data": []})

    assert made["data"] == [{"name": "node-7"}]
    (stored,) = world.store.objects_of(kinds.COMPUTES)
    assert stored["apiVersion"] == made["apiVersion"] == old_kind.api_version


@world
async def test_what_a_webhook_makes_must_fit_the_schema(world: World) -> None:
    await world.serve("computes")
    rule = {**SERVERS, "resources": ["computes"], "operations": ["*"]}
    there = world.network.there
    await world.asks(MUTATING, "one", rules=[rule])

    there["https://one"] = saying(patching(put("/data", [{"name": 7}])))
    with pytest.raises(ObjectInvalid, match=r"data\[0\]\.name"):
        await world.store.create(kinds.COMPUTES, {"metadata": {"name": "c"}, "data": []})

    there["https://one"] = saying(patching(put("/unknown", 1)))
    made = await world.store.create(kinds.COMPUTES, {"metadata": {"name": "c"}, "data": []})
    assert "unknown" not in made


@world
async def test_a_webhook_writes_no_more_than_the_writer_it_helps(world: World) -> None:
    await world.serve("servers")
    rule = {**SERVERS, "resources": ["servers", "servers/status"], "operations": ["*"]}
    patch = [put("/status", {"ready": True}), put("/metadata/labels", {"seen": "yes"})]
    mine = put("/metadata/uid", "mine")
    await world.asks(MUTATING, "one", saying(patching(*patch, mine)), rules=[rule])
    key = Key("default", "s")

    made = await world.store.create(kinds.SERVERS, {"metadata": {"name": "s"}, "spec": {}})
    assert "status" not in made
    assert made["metadata"]["labels"] == {"seen": "yes"}
    assert made["metadata"]["uid"] != "mine"

    world.network.there["https://one"] = saying(
        patching(*patch, put("/metadata/labels/new", "yes"), mine)
    )
    change = Change(kind=kinds.SERVERS, key=key, patch={"spec": {"allocationSets": []}})
    changed = await world.store.patch(change)
    assert "status" not in changed
    assert changed["metadata"]["uid"] == made["metadata"]["uid"]

    # And through the status, nothing but the status.
    world.network.there["https://one"] = saying(
        patching(put("/status/lastUpdate", "2026-01-31T12:00:00.000000Z"), put("/spec", {}))
    )
    status = Change(kind=kinds.SERVERS, key=key, patch={"status": {"ready": False}}, status=True)
    found = await world.store.patch(status)
    assert found["status"]["lastUpdate"].startswith("2026")
    assert found["spec"] == {"allocationSets": []}


@pytest.mark.parametrize(
    ("told", "why"),
    [
        ({"patchType": None}, "not a JSONPatch, but None"),
        ({"patchType": "MergePatch"}, "not a JSONPatch, but 'MergePatch'"),
        ({"patch": base64.b64encode(b"{").decode()}, "its patch cannot be applied"),
        ({"patch": base64.b64encode(b"{}").decode()}, "is a list of operations"),
        (patching({"op": "remove", "path": "/nothing"}), "operation 1"),
        (patching({"op": "remove", "path": "/metadata"}), "leaves no object: metadata"),
        (patching(put("/metadata/labels", {"a": 1})), "leaves no object: metadata.labels"),
        (patching(put("/metadata/name", "other")), "makes another object of default/m"),
        (patching(put("/metadata/namespace", "b")), "makes another object of default/m"),
    ],
)
def test_a_patch_that_cannot_be_is_refused_whatever_the_failure_policy(
    told: dict[str, Any], why: str
) -> None:
    @world
    async def story(world: World) -> None:
        whole = {**patching(put("/data", {})), **told}
        await world.asks(MUTATING, "one", saying(whole), failurePolicy="Ignore")

        with pytest.raises(CallFailed, match=why):
            await world.write()
        assert world.store.list(MAP).items == []

    story()


@world
async def test_a_write_is_made_anew_when_its_object_changes_under_a_webhook(world: World) -> None:
    await world.write(data={"a": "1", "b": "1"})
    looking, look_on = asyncio.Event(), asyncio.Event()

    async def slow(request: Request) -> Mapping[str, Any]:
        if request["userInfo"]["username"] == "anna" and not looking.is_set():
            looking.set()
            await look_on.wait()
        return patching(put("/data/seen", request["object"]["data"]["b"]))

    await world.asks(MUTATING, "one", slow)
    key = Key("default", "m")

    def a(old: Object) -> Object:
        return {**old, "data": {**old["data"], "a": "2"}}

    async with asyncio.TaskGroup() as tasks:
        annas = tasks.create_task(world.store.modify(MAP, key, a, WriteOptions(user=ANNA)))
        await looking.wait()
        await world.change({"data": {"b": "2"}})
        look_on.set()

    assert annas.result()["data"] == {"a": "2", "b": "2", "seen": "2"}
    assert world.store.get(MAP, key)["data"] == annas.result()["data"]


# Saying no


@world
async def test_validating_webhooks_are_asked_all_at_the_same_time(world: World) -> None:
    for name in ("a", "b", "c"):
        await world.asks(VALIDATING, name, saying({"allowed": True}, 3.0))
    began = asyncio.get_running_loop().time()

    await world.write()

    assert sorted(world.network.names) == ["a", "b", "c"]
    assert asyncio.get_running_loop().time() - began == pytest.approx(3.0)


@world
async def test_of_several_denials_the_first_by_name_is_told(world: World) -> None:
    await world.asks(VALIDATING, "b", DENIED)
    await world.asks(VALIDATING, "a", saying({"allowed": False, "status": {"message": "slow"}}, 3))

    with pytest.raises(Denied, match="slow") as denied:
        await world.write()

    assert denied.value.webhook == "a.example.com"
    assert world.store.list(MAP).items == []


@pytest.mark.parametrize(
    ("status", "words", "code"),
    [
        ({"code": 422, "reason": "Invalid", "message": "too big"}, "too big", 422),
        ({"message": "too big"}, "too big", 400),
        ({"code": 200, "message": "too big"}, "too big", 400),
        ({"code": 403, "reason": "Forbidden"}, "Forbidden", 403),
        ({}, "without explanation", 400),
        (None, "without explanation", 400),
    ],
)
def test_a_denial_has_the_words_and_the_code_of_the_webhook(
    status: Mapping[str, Any] | None, words: str, code: int
) -> None:
    @world
    async def story(world: World) -> None:
        await world.asks(MUTATING, "one", saying({"allowed": False, "status": status}))

        with pytest.raises(Rejected) as denied:
            await world.write()

        assert (str(denied.value), denied.value.code) == (words, code)
        assert denied.value.reason == (status or {}).get("reason", "")

    story()


# Webhooks that fail


@pytest.mark.parametrize("kind", [MUTATING, VALIDATING], ids=["mutating", "validating"])
@world
async def test_a_webhook_has_its_time_and_no_more(world: World, kind: Kind) -> None:
    hung = saying({"allowed": True}, 10_000.0)
    loop = asyncio.get_running_loop()

    await world.asks(kind, "brief", hung, timeoutSeconds=2)
    began = loop.time()
    said = r'failed calling webhook "brief.example.com": .* https://brief gives no answer in 2 s'
    with pytest.raises(CallFailed, match=said):
        await world.write()
    assert loop.time() - began == pytest.approx(2.0)

    await world.store.delete(Remove(kind=kind, key=Key("", "brief")))
    await world.asks(kind, "usual", hung, failurePolicy="Ignore")
    began = loop.time()
    await world.write()
    assert loop.time() - began == pytest.approx(10.0)


@pytest.mark.parametrize("kind", [MUTATING, VALIDATING], ids=["mutating", "validating"])
@world
async def test_without_an_answer_the_failure_policy_decides(world: World, kind: Kind) -> None:
    await world.asks(kind, "optional", failurePolicy="Ignore")
    await world.write("a")
    assert world.network.names == ["optional"]

    await world.asks(kind, "required")
    with pytest.raises(CallFailed, match="failed to call webhook: https://required does not"):
        await world.write("b")
    assert [obj["metadata"]["name"] for obj in world.store.list(MAP).items] == ["a"]


@pytest.mark.parametrize(
    ("told", "why"),
    [
        (b"hello", "is no AdmissionReview: "),
        (b"{}", "missing required field `apiVersion`"),
        (orjson.dumps({**answer({"allowed": True}), "apiVersion": "v1"}), "apiVersion"),
        (orjson.dumps(answer({"uid": "u"})), "missing required field `allowed`"),
        (orjson.dumps(answer({"uid": "u", "allowed": "yes"})), "Expected `bool`"),
        (orjson.dumps(answer({"uid": "v", "allowed": True})), "answers 'v', and was asked 'u'"),
        (b'{"a":' * 100_000, "is no AdmissionReview: "),
    ],
)
def test_what_is_no_answer_is_as_good_as_none(told: bytes, why: str) -> None:
    class Babbling(Network):
        async def send(self, hook: Webhook, place: Endpoint, question: bytes) -> bytes:
            return told

    async def story() -> None:
        async with asking(WebhookAdmission(Babbling(), new_uid=lambda: "u")) as store:
            await store.create(VALIDATING, configuration("a", hook(failurePolicy="Ignore")))
            await store.create(MAP, {"metadata": {"name": "ignored"}})
            await store.create(VALIDATING, configuration("b", hook()))
            with pytest.raises(CallFailed, match=why):
                await store.create(MAP, {"metadata": {"name": "m"}})

    virtual.run(story())


# Configurations


def url(text: str) -> dict[str, Any]:
    return {"clientConfig": {"url": text}}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"matchConditions": [{"name": "a", "expression": "true"}]}, "does not evaluate CEL"),
        ({"sideEffects": "Some"}, r"Invalid enum value 'Some' - at `\$.webhooks\[0\].sideEffects`"),
        ({"sideEffects": ...}, "missing required field `sideEffects`"),
        ({"admissionReviewVersions": ["v1beta1"]}, "this server speaks v1 alone"),
        ({"failurePolicy": "Maybe"}, "failurePolicy"),
        ({"timeoutSeconds": 0}, "timeoutSeconds"),
        ({"timeoutSeconds": 31}, "timeoutSeconds"),
        ({"name": "short.name"}, "is not a domain name of three parts"),
        ({"clientConfig": {}}, "a url or a service, one of the two"),
        ({"clientConfig": {"url": "https://a", "service": {"namespace": "a", "name": "b"}}},
         "a url or a service, one of the two"),
        (url("http://a/b"), "not of the form https://host:port/path"),
        (url("https://"), "not of the form"),
        (url("https://a:b/"), "not of the form"),
        (url("https://me:secret@a/"), "not of the form"),
        (url("https://a/?q=1"), "not of the form"),
        ({"clientConfig": {"service": {"namespace": "a", "name": "b", "path": "c"}}},
         "service.path: 'c' is not a path"),
        ({"clientConfig": {"service": {"namespace": "a", "name": "b", "port": 0}}}, "port"),
        ({"clientConfig": {"url": "https://a", "caBundle": "aGVsbG8="}}, "caBundle: these are no"),
        ({"clientConfig": {"url": "https://a", "caBundle": "?"}}, "Invalid base64"),
        ({"rules": [{**MAPS, "operations": ["GET"]}]}, "operations"),
        ({"rules": [{**MAPS, "scope": "All"}]}, "scope"),
        ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}, "have values"),
        ({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}, "operator"),
    ],
)  # fmt: skip
def test_a_configuration_that_could_not_be_followed_is_refused(
    changes: dict[str, Any], why: str
) -> None:
    @world
    async def story(world: World) -> None:
        for kind in (MUTATING, VALIDATING):
            with pytest.raises(Refused, match=why):
                await world.store.create(kind, configuration("c", hook(**changes)))
            assert world.store.list(kind).items == []

    story()


def test_two_webhooks_of_a_configuration_have_two_names() -> None:
    with pytest.raises(Refused, match=r"webhooks\[1\].name: one.example.com is the name of"):
        configurations.read_webhooks(configuration("c", hook(), hook()))


@pytest.mark.parametrize("bundle", ["", "Cg=="])
def test_a_bundle_that_is_still_to_be_filled_in_does_not_stand_in_the_way(bundle: str) -> None:
    client = {"url": "https://a", "caBundle": bundle}

    (made,) = configurations.read_webhooks(configuration("c", hook(clientConfig=client)))

    assert made.tls is True


@virtually
async def test_a_configuration_from_before_it_was_checked_is_told_of_and_left_out() -> None:
    journal = MemoryJournal()
    before = Store(journal, virtual.VirtualClock(), AdmitAll())
    async with alongside(before.run()):
        await before.create(VALIDATING, configuration("old", {"name": "incomplete"}))
        await before.create(VALIDATING, configuration("young", hook()))
    network = Network()
    webhooks = WebhookAdmission(network)
    network.there["https://one"] = ALLOWED
    with capture_logs() as logs:
        async with asking(webhooks, journal) as store:
            world = World(store, network, webhooks)
            await world.write("a")
            await world.write("b")
            assert world.network.names == ["one", "one"]
            assert [each["configuration"] for each in logs] == ["old"]

            patch: Object = {"metadata": {"labels": {"a": "b"}}}
            await world.store.patch(Change(kind=VALIDATING, key=Key("", "old"), patch=patch))
            patch = {"webhooks": [{"name": "still"}]}
            with pytest.raises(Refused, match="clientConfig"):
                await world.store.patch(Change(kind=VALIDATING, key=Key("", "old"), patch=patch))


@pytest.mark.parametrize(
    ("spec", "reached"),
    [
        ({"externalName": "hooks.example.com"}, "https://hooks.example.com:8443/ask"),
        ({"clusterIP": "10.0.0.7"}, "https://10.0.0.7:8443/ask"),
        ({"clusterIP": "fd00::7"}, "https://[fd00::7]:8443/ask"),
        ({"clusterIP": "None"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_a_service_is_where_it_says(spec: Object | None, reached: str | None) -> None:
    @world
    async def story(world: World) -> None:
        service = {"namespace": "default", "name": "s", "port": 8443, "path": "/ask"}
        await world.asks(VALIDATING, "one", clientConfig={"service": service})
        if spec is not None:
            made = {"metadata": {"name": "s", "namespace": "default"}, "spec": spec}
            await world.store.create(SERVICE, made)
        if reached is None:
            with pytest.raises(CallFailed, match="service default/s is not to be reached"):
                await world.write()
        else:
            world.network.there[reached] = ALLOWED
            await world.write()

    story()


@world
async def test_a_service_is_asked_at_443_where_it_says_no_port(world: World) -> None:
    client = {"service": {"namespace": "default", "name": "s"}}
    await world.asks(VALIDATING, "one", clientConfig=client)
    made = {"metadata": {"name": "s"}, "spec": {"clusterIP": "10.0.0.7"}}
    await world.store.create(SERVICE, made)

    with pytest.raises(CallFailed, match=r"https://10\.0\.0\.7:443 does not answer"):
        await world.write()


# Over HTTPS


@asynccontextmanager
async def listening(
    handler: Callable[[web.Request], Awaitable[web.StreamResponse]], context: ssl.SSLContext
) -> AsyncIterator[int]:
    """Serve with a handler for the length of a block, on a port that is given."""
    app = web.Application(client_max_size=8 * 2**20)
    app.router.add_post("/{path:.*}", handler)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


def signed(directory: Path, name: str) -> tuple[Path, Path]:
    """Return a certificate that has signed itself, and its key."""
    directory.mkdir(exist_ok=True)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    files = directory / "tls.crt", directory / "tls.key"
    files[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return files


def reached(port: int, authority: bytes, path: str = "/") -> dict[str, Any]:
    bundle = base64.b64encode(authority).decode()
    return {"url": f"https://127.0.0.1:{port}{path}", "caBundle": bundle}


@really
async def test_webhooks_are_asked_over_https(pki: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        assert request.path == "/ask"
        assert request.query["timeout"] == "7s"
        assert request.content_type == "application/json"
        asked = (await request.json())["request"]
        told = patching(put("/data", {"by": asked["userInfo"]["username"]}))
        return web.json_response(answer({"uid": asked["uid"], **told}))

    context = tls.server_context(pki)
    async with (
        listening(handler, context) as port,
        asking(WebhookAdmission(), clock=SystemClock()) as store,
    ):
        client = reached(port, tls.authority(pki), "/ask")
        await store.create(
            MUTATING, configuration("c", hook(clientConfig=client, timeoutSeconds=7))
        )
        for name, filling in (("a", ""), ("b", "x" * 2 * 2**20)):
            new = {"metadata": {"name": name}, "filling": filling}
            made = await store.create(MAP, new, WriteOptions(user=ANNA))
            assert made["data"] == {"by": "anna"}


@really
async def test_a_server_that_answers_otherwise_gives_no_answer(pki: Path) -> None:
    async def handler(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        good = web.json_response(answer({"uid": asked["uid"], "allowed": True}))
        match asked["name"]:
            case "broken":
                return web.Response(status=500, text="out\nof order")
            case "elsewhere":
                return web.Response(status=307, headers={"Location": "/good"})
            case "endless":
                return web.Response(body=bytes(9 * 2**20))
            case _:
                return good

    context = tls.server_context(pki)
    async with (
        listening(handler, context) as port,
        asking(WebhookAdmission(), clock=SystemClock()) as store,
    ):
        client = reached(port, tls.authority(pki))
        await store.create(VALIDATING, configuration("c", hook(clientConfig=client)))
        for name, why in (
            ("broken", "answers 500: out of order"),
            ("elsewhere", "answers 307"),
            ("endless", "more than 8388608 bytes"),
        ):
            with pytest.raises(CallFailed, match=why):
                await store.create(MAP, {"metadata": {"name": name}})
        await store.create(MAP, {"metadata": {"name": "good"}})


@really
async def test_only_who_shows_a_certificate_of_the_bundle_is_asked(
    pki: Path, tmp_path: Path
) -> None:
    asked = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=500)

    other, _ = signed(tmp_path, "127.0.0.1")
    context = tls.server_context(pki)
    async with (
        listening(handler, context) as port,
        asking(WebhookAdmission(), clock=SystemClock()) as store,
    ):
        client = reached(port, other.read_bytes())
        await store.create(VALIDATING, configuration("c", hook(clientConfig=client)))
        with pytest.raises(CallFailed, match="certificate verify failed"):
            await store.create(MAP, {"metadata": {"name": "m"}})
    assert asked == []


@really
async def test_a_service_shows_a_certificate_for_its_own_name(tmp_path: Path) -> None:
    good, bad = (signed(tmp_path / name, name) for name in ("s.default.svc", "t.default.svc"))
    for (certificate, key), said in ((good, "503"), (bad, "certificate verify failed")):

        async def handler(request: web.Request) -> web.Response:
            return web.Response(status=503)

        context = webhook.rotating_context(certificate, key)
        async with (
            listening(handler, context) as port,
            asking(
                WebhookAdmission(resolve=lambda _: f"localhost:{port}"), clock=SystemClock()
            ) as store,
        ):
            bundle = base64.b64encode(certificate.read_bytes()).decode()
            client = {"service": {"namespace": "default", "name": "s"}, "caBundle": bundle}
            await store.create(VALIDATING, configuration("c", hook(clientConfig=client)))
            with pytest.raises(CallFailed, match=said):
                await store.create(MAP, {"metadata": {"name": "m"}})


@really
async def test_where_no_server_listens_no_answer_comes() -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    async with asking(WebhookAdmission(), clock=SystemClock()) as store:
        client = {"url": f"https://127.0.0.1:{port}/"}
        await store.create(VALIDATING, configuration("c", hook(clientConfig=client)))
        with pytest.raises(CallFailed, match=f"https://127.0.0.1:{port}/ does not answer: "):
            await store.create(MAP, {"metadata": {"name": "m"}})
