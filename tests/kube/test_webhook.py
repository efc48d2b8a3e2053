"""A webhook of ours answers as its rules do in process."""

import asyncio
import base64
import dataclasses
import io
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import EllipsisType
from typing import Any

import aiohttp
import orjson
import pytest
from msgspec.structs import replace

from tests.harness.logs import capture_logs
from tests.journal.running import really
from tests.kube.clusters import alongside
from tests.kube.test_webhooks import ANNA, answer, signed
from warren.base.clock import SystemClock
from warren.base.errors import Retryable
from warren.base.objects import Change, Key, Kind, Object
from warren.daemons.clusterobjects import definitions, manifests
from warren.daemons.workflowadmission import WEBHOOK, WorkflowAdmission
from warren.dws import kinds
from warren.journal import MemoryJournal
from warren.kube import connections, webhook
from warren.kube.admission import Admission, AdmitAll, Denied, Operation, Review, User
from warren.kube.client import Refused
from warren.kube.server.builtin import CRD, NAMESPACE
from warren.kube.server.rest import statuses
from warren.kube.server.store import Store
from warren.kube.server.webhooks.configurations import MUTATING, VALIDATING, ServiceReference
from warren.kube.server.webhooks.dispatch import WebhookAdmission

SERVICE = "warren-controllers.warren-system.svc"
MUTATE = webhook.path("mutate", kinds.WORKFLOW)
VALIDATE = webhook.path("validate", kinds.WORKFLOW)


@asynccontextmanager
async def answering(
    admission: Admission, certificate: Path, key: Path, **bounds: Any
) -> AsyncIterator[int]:
    """A webhook for the length of a block, on the port that is given."""
    listener = socket.create_server(("127.0.0.1", 0))
    context = webhook.rotating_context(certificate, key)
    async with alongside(webhook.serve(listener, context, admission, **bounds)):
        yield listener.getsockname()[1]


# Workflows


@asynccontextmanager
async def admitting(store: Store) -> AsyncIterator[Store]:
    """A store that has Workflows and their rules, for the length of a block."""
    async with alongside(store.run()):
        for crd in definitions():
            if crd["spec"]["names"]["plural"] in ("workflows", "dwdirectiverules"):
                await store.create(CRD, crd)
        for name in ("default", kinds.RULES_NAMESPACE):
            await store.create(NAMESPACE, {"metadata": {"name": name}})
        for obj in manifests("rules.yaml"):
            if obj["kind"] == kinds.DIRECTIVE_RULE.name:
                await store.create(kinds.DIRECTIVE_RULE, obj)
        yield store


@asynccontextmanager
async def in_process() -> AsyncIterator[Store]:
    """A store that has the rules of Workflows itself."""
    admission = WorkflowAdmission()
    store = Store(MemoryJournal(), SystemClock(), admission)
    admission.read_rules_from(lambda kind: list(store.objects_of(kind)))
    async with admitting(store):
        yield store


@asynccontextmanager
async def by_webhook(certificate: Path, key: Path) -> AsyncIterator[Store]:
    """A store that asks for them as `deploy/webhooks` says."""
    bundle = base64.b64encode(await asyncio.to_thread(certificate.read_bytes)).decode()
    admission = WorkflowAdmission()

    def resolve(service: ServiceReference) -> str:
        assert (str(service), service.port) == ("warren-system/warren-controllers", 443)
        return f"localhost:{port}"

    webhooks = WebhookAdmission(resolve=resolve)
    store = Store(MemoryJournal(), SystemClock(), webhooks)
    webhooks.connect(store)
    admission.read_rules_from(lambda kind: list(store.objects_of(kind)))
    async with (
        answering(admission, certificate, key) as port,
        alongside(webhooks.run()),
        admitting(store),
    ):
        for obj in manifests("webhooks"):
            trusting = [
                {**its, "clientConfig": {**its["clientConfig"], "caBundle": bundle}}
                for its in obj["webhooks"]
            ]
            (kind,) = (each for each in (MUTATING, VALIDATING) if each.name == obj["kind"])
            await store.create(kind, {**obj, "webhooks": trusting})
        yield store


def workflow(**spec: Any) -> Object:
    return {
        "metadata": {"name": "w", "namespace": "default"},
        "spec": {
            "desiredState": "Proposal",
            "forceReady": False,
            "wlmID": "flux",
            "jobID": "f1",
            "userID": 1001,
            "groupID": 1001,
            **spec,
        },
    }


GOOD = "#DW jobdw type=xfs capacity=1GiB name=scratch"


async def told(store: Store, *changes: Object, **given: Any) -> list[Any]:
    """Return what becomes of a Workflow, and of changes of it: status or refusal, each as told."""
    found: list[Any] = []
    new = workflow(**{"dwDirectives": [GOOD], **given})
    try:
        made = await store.create(kinds.WORKFLOW, new)
        # What a webhook has made gets the defaults of the schema once more.
        found.append({"ready": False, **made["status"]})
        for patch in changes:
            change = Change(kind=kinds.WORKFLOW, key=Key("default", "w"), patch=patch)
            found.append((await store.patch(change))["spec"])
    except Refused as error:
        found.append(statuses.failure(error))
    return found


@pytest.mark.parametrize(
    ("given", "changes", "words"),
    [
        ({}, [], None),
        ({"dwDirectives": []}, [], None),
        ({}, [{"spec": {"desiredState": "Teardown", "hurry": True}}], None),
        ({"dwDirectives": ["#DW nosuch name=foo"]}, [], "Unknown command 'nosuch'"),
        ({"dwDirectives": ["#DW"]}, [], "A command is missing"),
        ({"desiredState": "Setup"}, [], "spec.desiredState: a Workflow starts in Proposal."),
        ({}, [{"spec": {"userID": 0}}], "spec.userID: the field is immutable."),
        ({}, [{"spec": {"desiredState": "Setup"}}], "Proposal is not ready yet."),
    ],
)
@really
async def test_workflows_are_admitted_with_the_words_and_the_work_of_the_rules_in_process(
    tmp_path: Path, given: dict[str, Any], changes: list[Object], words: str | None
) -> None:
    async with in_process() as here, by_webhook(*signed(tmp_path, SERVICE)) as there:
        expected = await told(here, *changes, **given)
        found = await told(there, *changes, **given)

    assert found == expected
    if words is not None:
        assert found[-1].code == 403
        assert found[-1].reason == "Forbidden"
        denied = f'admission webhook "{WEBHOOK}" denied the request: '
        assert found[-1].message.startswith(denied + words)


@really
async def test_workflows_of_another_version_are_admitted_as_well(tmp_path: Path) -> None:
    older = replace(kinds.WORKFLOW, version="v1alpha6")
    async with by_webhook(*signed(tmp_path, SERVICE)) as store:
        made = await store.create(older, workflow(dwDirectives=[GOOD]))
        with pytest.raises(Denied, match="Unknown command 'nosuch'"):
            await store.create(older, workflow(dwDirectives=["#DW nosuch"]))

    assert made["apiVersion"] == older.api_version
    assert {driver["driverID"] for driver in made["status"]["drivers"]} == {"nnf"}


def test_paths_are_spelled_as_those_of_dws() -> None:
    assert MUTATE == "/mutate-dataworkflowservices-github-io-v1alpha7-workflow"
    assert VALIDATE == "/validate-dataworkflowservices-github-io-v1alpha7-workflow"


# Questions


class Rules:
    """Rules for all that can happen to a review."""

    def __init__(self) -> None:
        self.seen: list[Review] = []

    async def admit(self, review: Review) -> Object | None:
        self.seen.append(review)
        match review.key.name:
            case "denied":
                raise Denied("not that one.", "somebody")
            case "invalid":
                raise Refused("spec: this is not an object")
            case "early":
                raise Retryable("the rules are not known yet.")
            case "bug":
                raise KeyError("spec")
            case "doubtful":
                review.warn("spec: this has no effect")
                review.warn("spec: nor has that")
                return review.new
            case "changed":
                assert review.new is not None
                return {**review.new, "signed": True}
            case _:
                return review.new


def question(name: str | EllipsisType = "w", **changes: Any) -> dict[str, Any]:
    request = {
        "uid": "u",
        "kind": {"group": "example.com", "version": "v2", "kind": "Thing"},
        "resource": {"group": "example.com", "version": "v2", "resource": "things"},
        "operation": "CREATE",
        "name": name,
        "namespace": "default",
        "userInfo": {"username": "anna", "uid": "7", "groups": ["admins", "staff"]},
        "object": {"metadata": {"name": name, "namespace": "default"}},
        "oldObject": None,
        "dryRun": False,
        **changes,
    }
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {key: value for key, value in request.items() if value is not ...},
    }


@asynccontextmanager
async def asked(
    admission: Admission, directory: Path
) -> AsyncIterator[Callable[[str, bytes], Awaitable[tuple[int, str]]]]:
    """A webhook for the length of a block; its function posts to it."""
    certificate, key = signed(directory, "localhost")
    async with (
        answering(admission, certificate, key) as port,
        aiohttp.ClientSession(f"https://localhost:{port}") as session,
    ):
        context = ssl.create_default_context(cafile=certificate)

        async def post(path: str, body: bytes) -> tuple[int, str]:
            async with session.post(path, data=io.BytesIO(body), ssl=context) as response:
                return response.status, await response.text()

        yield post


@really
async def test_rules_see_what_the_question_tells(tmp_path: Path) -> None:
    rules = Rules()
    obj = {"metadata": {"name": "w", "namespace": "default"}, "spec": 1}
    old = {"metadata": {"name": "w", "namespace": "default"}, "spec": 0}
    things = Kind("example.com", "v2", "Thing", "things")
    async with asked(rules, tmp_path) as post:
        for changes in (
            {"object": obj, "oldObject": old, "operation": "UPDATE", "dryRun": True},
            {"object": obj, "oldObject": old, "operation": "UPDATE", "subResource": "status"},
            {"object": ..., "oldObject": old, "operation": "DELETE", "userInfo": {}},
        ):
            code, told = await post(VALIDATE, orjson.dumps(question(**changes)))
            assert (code, orjson.loads(told)) == (200, answer({"uid": "u", "allowed": True}))

    update = Review(
        operation=Operation.UPDATE,
        kind=things,
        key=Key("default", "w"),
        old=old,
        new=obj,
        user=ANNA,
        dry_run=True,
    )
    through_status = dataclasses.replace(
        update, kind=replace(things, status=True), through_status=True, dry_run=False
    )
    assert rules.seen[:2] == [update, through_status]
    assert rules.seen[2].operation is Operation.DELETE
    assert rules.seen[2].new is None
    assert rules.seen[2].old == old
    assert rules.seen[2].user == User("")


@really
async def test_rules_may_count_on_names_that_are_still_to_be_given(tmp_path: Path) -> None:
    rules = Rules()
    unnamed = question(name=..., object={"metadata": {"generateName": "w-"}})
    namespaces = {"group": "", "version": "v1", "resource": "namespaces"}
    namespace = question(name="n", namespace="n", resource=namespaces,
                         object={"metadata": {"name": "n"}})  # fmt: skip
    async with asked(rules, tmp_path) as post:
        for each in (unnamed, namespace):
            assert (await post(VALIDATE, orjson.dumps(each)))[0] == 200

    first, second = (review.new or {} for review in rules.seen)
    assert first["metadata"] == {"generateName": "w-", "name": "", "namespace": "default"}
    assert (rules.seen[1].key, second["metadata"]) == (Key("", "n"), {"name": "n"})


@really
async def test_changes_are_patches_and_refusals_are_for_the_one_who_validates(
    tmp_path: Path,
) -> None:
    patch = base64.b64encode(b'[{"op":"add","path":"/signed","value":true}]').decode()
    denied = {"status": "Failure", "code": 403, "reason": "Forbidden", "message": "not that one."}
    invalid = {"code": 422, "reason": "Invalid", "message": "spec: this is not an object"}
    async with asked(Rules(), tmp_path) as post:
        for path, name, response in (
            (MUTATE, "w", {}),
            (MUTATE, "changed", {"patchType": "JSONPatch", "patch": patch}),
            (MUTATE, "denied", {}),
            (VALIDATE, "changed", {}),
            (MUTATE, "doubtful", {}),
            (
                VALIDATE,
                "doubtful",
                {"warnings": ["spec: this has no effect", "spec: nor has that"]},
            ),
            (VALIDATE, "denied", {"allowed": False, "status": denied}),
            (VALIDATE, "invalid", {"allowed": False, "status": {**denied, **invalid}}),
        ):
            code, told = await post(path, orjson.dumps(question(name)))
            expected = answer({"uid": "u", "allowed": True, **response})
            assert (code, orjson.loads(told)) == (200, expected), (path, name)


@really
async def test_what_cannot_be_decided_is_no_answer(tmp_path: Path) -> None:
    async with asked(Rules(), tmp_path) as post:
        for path in (MUTATE, VALIDATE):
            early = await post(path, orjson.dumps(question("early")))
            with capture_logs() as logged:
                bug = await post(path, orjson.dumps(question("bug")))
            assert early == (503, "the rules are not known yet.")
            assert bug == (500, "internal error; see the webhook's log")
            assert [each["event"] for each in logged] == ["review failed"]


DEEP = orjson.dumps(question(object="deep")).replace(b'"deep"', b'{"a":' + b"[" * 100_000)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "truncated"),
        (DEEP, "recursion"),
        (b"{}", "missing required field `apiVersion`"),
        (orjson.dumps({**question(), "apiVersion": "admission.k8s.io/v1beta1"}), "apiVersion"),
        (orjson.dumps({**question(), "request": None}), r"$.request"),
        (orjson.dumps(question(uid=...)), "missing required field `uid`"),
        (orjson.dumps(question(operation="CONNECT")), "Invalid enum value 'CONNECT'"),
        (orjson.dumps(question(subResource="scale")), "Invalid enum value 'scale'"),
        (orjson.dumps(question(object=None)), "request.object: CREATE has one"),
        (orjson.dumps(question(oldObject={"metadata": {}})), "request.oldObject: CREATE has none"),
        (orjson.dumps(question(operation="UPDATE")), "request.oldObject: UPDATE has one"),
        (orjson.dumps(question(object={})), "Expected `object`, got `null`"),
        (orjson.dumps(question(object={"metadata": {"name": 7}})), "Expected `str"),
    ],
)
@really
async def test_what_is_no_question_gets_a_sentence(tmp_path: Path, body: bytes, why: str) -> None:
    rules = Rules()
    async with asked(rules, tmp_path) as post:
        code, words = await post(VALIDATE, body)

    assert code == 400
    assert words.startswith("this is no AdmissionReview: ")
    assert why in words
    assert rules.seen == []


@really
async def test_only_reviews_of_a_size_are_taken_and_only_where_they_belong(tmp_path: Path) -> None:
    rules = Rules()
    async with asked(rules, tmp_path) as post:
        large = question(object={"metadata": {"name": "w"}, "data": "x" * 9 * 2**20})
        assert (await post(VALIDATE, orjson.dumps(large)))[0] == 413
        assert (await post("/elsewhere", orjson.dumps(question())))[0] == 404

    assert rules.seen == []


# Clients of other machines


async def connect(
    port: int, certificate: Path, address: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect from an address of this machine. Raises OSError where that is refused."""
    return await asyncio.open_connection(
        "127.0.0.1",
        port,
        ssl=ssl.create_default_context(cafile=certificate),
        server_hostname="localhost",
        local_addr=(address, 0),
    )


@really
async def test_a_machine_with_all_the_connections_it_can_have_leaves_some_to_the_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "user_of", lambda _: None)
    certificate, key = signed(tmp_path, "localhost")
    async with answering(AdmitAll(), certificate, key, max_per_address=2) as port:
        opened = [await connect(port, certificate, "127.0.0.2") for _ in range(2)]
        with pytest.raises(OSError):  # noqa: PT011 - the end of the connection, or its reset
            await connect(port, certificate, "127.0.0.2")
        opened.append(await connect(port, certificate, "127.0.0.3"))
        for _, writer in opened:
            writer.close()


@pytest.mark.parametrize("begun", [b"", b"POST /validate-x HTTP/1.1\r\nHost:"])
@really
async def test_a_connection_by_which_nothing_is_asked_ends(tmp_path: Path, begun: bytes) -> None:
    certificate, key = signed(tmp_path, "localhost")
    async with answering(AdmitAll(), certificate, key, idle_timeout=0.05) as port:
        reader, writer = await connect(port, certificate, "127.0.0.1")
        writer.write(begun)
        assert await reader.read() == b""
        writer.close()


@really
async def test_a_connection_whose_review_does_not_come_ends(tmp_path: Path) -> None:
    certificate, key = signed(tmp_path, "localhost")
    async with answering(AdmitAll(), certificate, key, body_timeout=0.05) as port:
        reader, writer = await connect(port, certificate, "127.0.0.1")
        writer.write(b"POST /validate-x HTTP/1.1\r\nHost: here\r\nContent-Length: 9\r\n\r\n{")
        assert (await reader.read()).startswith(b"HTTP/1.1 408 ")  # and its end
        writer.close()


def test_connections_are_kept_for_longer_than_an_api_server_keeps_them() -> None:
    """A review that is sent while its connection is closed is lost."""
    go_idle_conn_timeout = 90.0

    assert go_idle_conn_timeout < webhook.IDLE_TIMEOUT


# Keys


async def shown(port: int, certificate: Path) -> bool:
    """Return whether the webhook shows this certificate."""
    context = ssl.create_default_context(cafile=certificate)
    try:
        _, writer = await asyncio.open_connection("localhost", port, ssl=context)
    except ssl.SSLCertVerificationError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


@really
async def test_new_keys_are_shown_once_both_are_there(tmp_path: Path) -> None:
    first = signed(tmp_path / "first", "localhost")
    second = signed(tmp_path / "second", "localhost")
    certificate, key = signed(tmp_path / "keys", "localhost")

    def copied(source: Path, target: Path) -> None:
        fresh = target.with_suffix(".new")
        fresh.write_bytes(source.read_bytes())
        fresh.replace(target)

    copied(first[0], certificate)
    copied(first[1], key)
    async with answering(AdmitAll(), certificate, key) as port:
        assert await shown(port, first[0])

        copied(second[0], certificate)
        assert await shown(port, first[0])
        certificate.unlink()
        assert await shown(port, first[0])

        copied(second[0], certificate)
        copied(second[1], key)
        assert await shown(port, second[0])
        assert not await shown(port, first[0])
