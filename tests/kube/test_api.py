"""The REST protocol, as a client on the other side of the wire sees it."""

import asyncio
import io
import ssl
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from tests.harness.logs import capture_logs
from tests.journal.running import really
from tests.kube.clusters import (
    TOKEN,
    change,
    eventually,
    key,
    remove,
    served,
    storage,
    stored,
    wanting,
    watchers,
    workflow,
)
from warren.base.clock import SystemClock
from warren.base.times import rfc3339
from warren.dws.kinds import STORAGE, WORKFLOW
from warren.kube.kubeconfig import ClusterAccess
from warren.kube.server.history import History
from warren.kube.server.rest.watches import BOOKMARK_INTERVAL
from warren.kube.server.store import Store

DWS = f"/apis/{WORKFLOW.group}/{WORKFLOW.version}"
WORKFLOWS = f"{DWS}/namespaces/default/workflows"
STORAGES = f"{DWS}/namespaces/default/storages"
MERGE = {"Content-Type": "application/merge-patch+json"}
TABLE = {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"}


class Caller:
    """Asks over HTTPS, and tells the status and the body of each answer."""

    def __init__(self, session: aiohttp.ClientSession, access: ClusterAccess, store: Store) -> None:
        self.session = session
        self.server = access.server
        self.tls = access.tls
        self.store = store

    async def ask(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        async with self.session.request(method, self.server + path, **options) as response:
            return response.status, orjson.loads(await response.read() or b"null")

    async def fails(self, method: str, path: str, **options: Any) -> tuple[int, str]:
        """Return the code and the reason of a failure, which is a whole Status."""
        code, status = await self.ask(method, path, **options)
        assert status["kind"] == "Status"
        assert status["apiVersion"] == "v1"
        assert status["status"] == "Failure"
        assert status["code"] == code
        assert status["message"]
        return code, status["reason"]

    async def get(self, path: str, **options: Any) -> Any:
        code, body = await self.ask("GET", path, **options)
        assert code == 200, body
        return body

    @asynccontextmanager
    async def watch(
        self, path: str, query: str = "", **options: Any
    ) -> AsyncIterator[Callable[[], Coroutine[Any, Any, Any]]]:
        """Open a watch; the block's function waits for the next event, None for the end."""
        url = f"{self.server}{path}?watch=true&{query}"
        async with self.session.get(url, **options) as response:
            assert response.status == 200

            async def told() -> Any:
                async with asyncio.timeout(60):
                    line = await response.content.readline()
                return orjson.loads(line) if line else None

            yield told


Story = Callable[..., Coroutine[Any, Any, None]]


def told_to_server(story: Story) -> Callable[..., None]:
    """Tell a story to a server."""
    return told_to_one()(story)


def told_to_one(**options: Any) -> Callable[[Story], Callable[..., None]]:
    """Tell a story to a server with another history, or that takes a watch for quiet sooner."""
    return lambda story: _told(story, options)


def _told(story: Story, options: Mapping[str, Any]) -> Callable[..., None]:
    async def served_story(pki: Path, **others: Any) -> None:
        history = History(**options.get("history", {}))
        quiet = options.get("quiet", BOOKMARK_INTERVAL)
        async with (
            stored(
                clock=SystemClock(), history=history, admission=options.get("admission")
            ) as store,
            served(store, pki, quiet=quiet) as access,
        ):
            headers = {"Authorization": f"Bearer {TOKEN}"}
            connector = aiohttp.TCPConnector(ssl=access.tls())
            async with aiohttp.ClientSession(
                headers=headers, connector=connector, read_bufsize=2**22
            ) as session:
                await story(Caller(session, access, store), **others)

    return wanting(story, "pki")(really(served_story))


# Who is let in


@pytest.mark.parametrize("given", ["Bearer ", "Bearer wrong", f"Bearer {TOKEN}x", "Basic x"])
@told_to_server
async def test_with_a_wrong_token_no_client_is_let_in(caller: Caller, given: str) -> None:
    headers = {"Authorization": given}
    for path in (WORKFLOWS, "/apis", "/version", "/nowhere"):
        assert await caller.fails("GET", path, headers=headers) == (401, "Unauthorized")
    body = orjson.dumps(workflow())
    assert (await caller.fails("POST", WORKFLOWS, data=body, headers=headers))[0] == 401
    assert caller.store.list(WORKFLOW).items == []


@told_to_server
async def test_who_does_not_say_who_it_is_may_do_next_to_nothing(caller: Caller) -> None:
    headers = {"Authorization": ""}
    assert (await caller.fails("GET", WORKFLOWS, headers=headers)) == (403, "Forbidden")
    assert (await caller.fails("GET", "/apis", headers=headers)) == (403, "Forbidden")
    assert (await caller.ask("GET", "/version", headers=headers))[0] == 200
    body = orjson.dumps(workflow())
    assert (await caller.fails("POST", WORKFLOWS, data=body, headers=headers))[0] == 403
    assert caller.store.list(WORKFLOW).items == []


@told_to_server
async def test_health_is_told_to_all(caller: Caller) -> None:
    for path in ("/healthz", "/livez", "/readyz"):
        url = caller.server + path
        async with caller.session.get(url, headers={"Authorization": ""}) as response:
            assert (response.status, await response.text()) == (200, "ok")


@told_to_server
async def test_the_server_is_known_by_its_authority_and_by_nothing_else(caller: Caller) -> None:
    with pytest.raises(aiohttp.ClientConnectorCertificateError):
        await caller.ask("GET", "/version", ssl=ssl.create_default_context())


# Objects


@told_to_server
async def test_a_list_is_a_list_of_its_kind(caller: Caller) -> None:
    made = await caller.store.create(WORKFLOW, workflow())
    for path in (WORKFLOWS, f"{DWS}/workflows"):
        assert await caller.get(f"{path}?limit=500") == {
            "kind": "WorkflowList",
            "apiVersion": WORKFLOW.api_version,
            "metadata": {"resourceVersion": made["metadata"]["resourceVersion"]},
            "items": [made],
        }
    elsewhere = await caller.get(f"{DWS}/namespaces/elsewhere/workflows")
    assert elsewhere["items"] == []


@told_to_server
async def test_the_status_is_shown_and_changed_where_it_is_apart(caller: Caller) -> None:
    made = await caller.store.create(STORAGE, storage())
    assert await caller.get(f"{STORAGES}/rabbit-0/status") == made
    patch = orjson.dumps({"status": {"status": "Ready"}})
    for path, expected in (("", {}), ("/status", {"status": "Ready"})):
        where = f"{STORAGES}/rabbit-0{path}"
        code, patched = await caller.ask("PATCH", where, data=patch, headers=MERGE)
        assert (code, patched.get("status", {})) == (200, expected)

    await caller.store.create(WORKFLOW, workflow())
    assert (await caller.fails("GET", f"{WORKFLOWS}/w/status"))[0] == 404


@told_to_server
async def test_a_status_cannot_be_deleted_nor_the_object_through_it(caller: Caller) -> None:
    made = await caller.store.create(STORAGE, storage())
    where = f"{STORAGES}/rabbit-0/status"
    assert await caller.fails("DELETE", where) == (405, "MethodNotAllowed")
    assert caller.store.get(STORAGE, key("rabbit-0")) == made


# Failures


@told_to_server
async def test_each_failure_has_its_code_and_its_reason(caller: Caller) -> None:
    made = await caller.store.create(WORKFLOW, workflow())
    twice = orjson.dumps(workflow())
    nameless = orjson.dumps({"metadata": {}, "spec": {}})
    evil = orjson.dumps(workflow("x", spec={"evil": True}))
    stale = orjson.dumps({"metadata": {"resourceVersion": "1"}})
    fails, one = caller.fails, f"{WORKFLOWS}/w"

    assert await fails("GET", f"{WORKFLOWS}/x") == (404, "NotFound")
    assert await fails("DELETE", f"{WORKFLOWS}/x") == (404, "NotFound")
    assert await fails("PATCH", f"{WORKFLOWS}/x", data=b"{}", headers=MERGE) == (
        404,
        "NotFound",
    )
    assert await fails("POST", WORKFLOWS, data=twice) == (409, "AlreadyExists")
    assert await fails("PATCH", one, data=stale, headers=MERGE) == (409, "Conflict")
    assert await fails("POST", WORKFLOWS, data=nameless) == (422, "Invalid")
    assert await fails("POST", WORKFLOWS, data=evil) == (403, "Forbidden")
    assert await fails("PUT", f"{WORKFLOWS}/x", data=twice) == (400, "BadRequest")
    assert await fails("POST", one, data=twice) == (405, "MethodNotAllowed")
    assert await fails("PUT", WORKFLOWS, data=twice) == (405, "MethodNotAllowed")
    assert caller.store.list(WORKFLOW).items == [made]


@told_to_server
async def test_a_denial_reads_as_one_from_a_webhook(caller: Caller) -> None:
    evil = orjson.dumps(workflow(spec={"evil": True}))
    _, status = await caller.ask("POST", WORKFLOWS, data=evil)
    assert status["message"].startswith("admission webhook ")
    assert status["message"].endswith("denied the request: evil is not let in.")


@pytest.mark.parametrize(
    "content",
    [
        "application/json",
        "application/strategic-merge-patch+json",
        "application/yaml",
    ],
)
@told_to_server
async def test_patches_of_other_types_are_not_supported(caller: Caller, content: str) -> None:
    await caller.store.create(WORKFLOW, workflow())
    where, headers = f"{WORKFLOWS}/w", {"Content-Type": content}
    answer = await caller.fails("PATCH", where, data=b"{}", headers=headers)
    assert answer == (415, "UnsupportedMediaType")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'"x"',
        b"\xff\xfe",
        b'{"metadata": {"name": "\\ud800"}}',
        b'{"a":' * 2000 + b"1" + b"}" * 2000,
        b'{"kind": "Computes", "metadata": {"name": "x"}}',
        b'{"apiVersion": "v1", "metadata": {"name": "x"}}',
    ],
    ids=lambda body: repr(body[:20]),
)
@told_to_server
async def test_a_body_that_is_none_is_a_bad_request(caller: Caller, body: bytes) -> None:
    assert await caller.fails("POST", WORKFLOWS, data=body) == (400, "BadRequest")
    assert caller.store.list(WORKFLOW).items == []


@pytest.mark.parametrize(
    "body",
    [
        b'{"metadata": null}',
        b'{"metadata": []}',
        b'{"metadata": "x"}',
        b'{"metadata": {"labels": 5}}',
    ],
    ids=lambda body: repr(body[:30]),
)
@told_to_server
async def test_a_body_that_no_object_has_is_invalid(caller: Caller, body: bytes) -> None:
    made = await caller.store.create(WORKFLOW, workflow())
    where = f"{WORKFLOWS}/w"
    assert await caller.fails("PATCH", where, data=body, headers=MERGE) == (422, "Invalid")
    assert await caller.fails("POST", WORKFLOWS, data=body) == (422, "Invalid")
    assert caller.store.list(WORKFLOW).items == [made]


@told_to_server
async def test_a_body_that_is_too_large_is_refused(caller: Caller) -> None:
    def body(size: int) -> io.BytesIO:
        return io.BytesIO(orjson.dumps(workflow(spec={"a": "x" * size})))

    large, below = body(4 * 2**20), body(2 * 2**20)
    assert await caller.fails("POST", WORKFLOWS, data=large) == (413, "RequestEntityTooLarge")
    code, _ = await caller.ask("POST", WORKFLOWS, data=below)
    assert code == 201


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/nowhere",
        "/api/v2",
        "/apis/nowhere.example",
        "/apis/nowhere.example/v1/things",
        f"/apis/{WORKFLOW.group}/v1alpha5/workflows",
        f"{DWS}/things",
        f"{WORKFLOWS}/w/scale",
        f"{WORKFLOWS}/w/status/more",
        "/openapi/v3/apis/nowhere.example/v1",
    ],
)
@told_to_server
async def test_a_path_that_leads_nowhere_is_not_found(caller: Caller, path: str) -> None:
    assert (await caller.fails("GET", path))[0] == 404


@told_to_server
async def test_a_bug_costs_one_request_and_tells_nothing(
    caller: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Store, "get", lambda *_: dict[str, Any]()["secret"])
    with capture_logs() as logged:
        code, status = await caller.ask("GET", f"{WORKFLOWS}/w")
    assert (code, status["reason"]) == (500, "InternalError")
    assert "secret" not in status["message"]
    assert [each["event"] for each in logged] == ["request failed"]
    assert (await caller.get(WORKFLOWS))["items"] == []


# Selectors


@told_to_server
async def test_selectors_choose(caller: Caller) -> None:
    for name, labels in (("a", {"color": "red", "x": "1"}), ("b", {"color": "red"}), ("c", {})):
        await caller.store.create(WORKFLOW, workflow(name, metadata={"labels": labels}))

    async def names(query: str) -> list[str]:
        found = await caller.get(f"{DWS}/workflows?{query}")
        return [obj["metadata"]["name"] for obj in found["items"]]

    assert await names("labelSelector=color=red") == ["a", "b"]
    assert await names("labelSelector=color==red,x=1") == ["a"]
    assert await names("fieldSelector=metadata.name=b") == ["b"]
    assert await names("fieldSelector=metadata.name=b,metadata.namespace=default") == ["b"]
    assert await names("fieldSelector=metadata.namespace=elsewhere") == []
    assert await names("fieldSelector=metadata.name=a&labelSelector=x=2") == []
    assert await names("labelSelector=&fieldSelector=") == ["a", "b", "c"]
    assert await names("labelSelector=color") == ["a", "b"]
    assert await names("labelSelector=!color") == ["c"]
    assert await names("labelSelector=x!=1") == ["b", "c"]
    assert await names("labelSelector=x in (1,2),color notin (blue)") == ["a"]
    assert await names("fieldSelector=metadata.name!=a") == ["b", "c"]


@pytest.mark.parametrize(
    "query",
    [
        "labelSelector=!",
        "labelSelector=color in red",
        "labelSelector=color in (red",
        "labelSelector==red",
        "fieldSelector=metadata.name",
        "limit=many",
        "continue=nonsense",
        "fieldSelector=spec.desiredState=Setup",
    ],
)
@told_to_server
async def test_a_selector_that_is_not_understood_is_refused(caller: Caller, query: str) -> None:
    """Rather than to choose something else than what was asked for."""
    for more in ("", "&watch=true"):
        path = f"{WORKFLOWS}?{query}{more}"
        assert await caller.fails("GET", path) == (400, "BadRequest")


# Watches


@told_to_server
async def test_a_watch_tells_what_is_there_and_what_happens(caller: Caller) -> None:
    before = await caller.store.create(WORKFLOW, workflow("before"))
    async with caller.watch(WORKFLOWS) as told:
        assert await told() == {"type": "ADDED", "object": before}
        after = await caller.store.create(WORKFLOW, workflow("after"))
        assert await told() == {"type": "ADDED", "object": after}
        await caller.store.delete(remove(WORKFLOW, before))
        assert (await told())["type"] == "DELETED"


@told_to_server
async def test_a_watch_chooses_as_a_list_does(caller: Caller) -> None:
    query = "labelSelector=color=red&fieldSelector=metadata.name=b"
    async with caller.watch(f"{DWS}/workflows", query) as told:
        for name, color in (("a", "red"), ("b", "blue"), ("c", "red")):
            labels = {"color": color}
            await caller.store.create(WORKFLOW, workflow(name, metadata={"labels": labels}))
        red = await caller.store.patch(
            change(WORKFLOW, workflow("b"), {"metadata": {"labels": {"color": "red"}}})
        )
        assert await told() == {"type": "ADDED", "object": red}
        blue = await caller.store.patch(
            change(WORKFLOW, workflow("b"), {"metadata": {"labels": {"color": "blue"}}})
        )
        assert await told() == {"type": "DELETED", "object": blue}


@told_to_server
async def test_a_watch_ends_when_its_time_is_over(caller: Caller) -> None:
    async with caller.watch(WORKFLOWS, "timeoutSeconds=1") as told:
        assert await told() is None


@pytest.mark.parametrize("query", ["resourceVersion=x", "resourceVersion=-1", "timeoutSeconds=x"])
@told_to_server
async def test_a_watch_that_makes_no_sense_is_a_bad_request(caller: Caller, query: str) -> None:
    answer = await caller.fails("GET", f"{WORKFLOWS}?watch=1&{query}")
    assert answer == (400, "BadRequest")


@told_to_one(history={"max_changes": 4})
async def test_a_watch_from_too_far_back_is_told_to_list_again(caller: Caller) -> None:
    async with caller.watch(WORKFLOWS, "resourceVersion=1") as told:
        error = await told()
        assert error["type"] == "ERROR"
        assert error["object"]["kind"] == "Status"
        assert (error["object"]["code"], error["object"]["reason"]) == (410, "Expired")
        assert await told() is None


@told_to_one(history={"max_backlog": 5})
async def test_a_watch_whose_reader_does_not_keep_up_is_told_so(caller: Caller) -> None:
    # It is not read: what is sent fills the buffers on the way, then waits in the backlog.
    async with caller.watch(WORKFLOWS, f"resourceVersion={caller.store.resource_version}") as told:
        large = "x" * 2**20
        for number in range(60):
            await caller.store.create(WORKFLOW, workflow(f"w-{number}", spec={"a": large}))
            [watcher] = watchers(caller.store) or [None]
            assert watcher is None or len(watcher._waiting) <= 6
        names = []
        while (event := await told())["type"] == "ADDED":
            names.append(event["object"]["metadata"]["name"])
        assert event["object"]["code"] == 410
        assert names == [f"w-{number}" for number in range(len(names))]
        assert 5 <= len(names) < 60


@told_to_one(quiet=0.02)
async def test_a_watch_whose_reader_is_gone_is_closed(caller: Caller) -> None:
    for query in ("", "allowWatchBookmarks=true", "fieldSelector=metadata.name=never"):
        async with caller.watch(WORKFLOWS, query):
            await eventually(lambda: len(watchers(caller.store)) == 1)
        await eventually(lambda: watchers(caller.store) == [])


@told_to_server
async def test_a_reader_that_hangs_up_in_the_middle_of_an_event_is_no_error(
    caller: Caller, caplog: pytest.LogCaptureFixture
) -> None:
    async with caller.watch(WORKFLOWS):
        for number in range(30):
            large = workflow(f"w-{number}", spec={"a": "x" * 2**20})
            await caller.store.create(WORKFLOW, large)
    await eventually(lambda: watchers(caller.store) == [])
    assert caplog.records == []


@told_to_one(quiet=0.05)
async def test_a_silent_watch_is_kept_alive_with_bookmarks_for_who_wants_them(
    caller: Caller,
) -> None:
    async with (
        caller.watch(WORKFLOWS, "allowWatchBookmarks=true") as told,
        caller.watch(WORKFLOWS, "allowWatchBookmarks=false") as told_without,
    ):
        await caller.store.create(STORAGE, storage())
        newest = caller.store.resource_version
        bookmark = await told()
        while bookmark["object"]["metadata"]["resourceVersion"] != newest:
            assert bookmark["type"] == "BOOKMARK"
            bookmark = await told()
        assert bookmark["object"]["kind"] == "Workflow"
        assert bookmark["object"]["apiVersion"] == WORKFLOW.api_version

        # From a bookmark on, nothing is missed.
        made = await caller.store.create(WORKFLOW, workflow())
        async with caller.watch(WORKFLOWS, f"resourceVersion={newest}") as again:
            assert await again() == {"type": "ADDED", "object": made}
        assert await told_without() == {"type": "ADDED", "object": made}


# Tables


def cells(table: Any) -> dict[str, Any]:
    names = [column["name"] for column in table["columnDefinitions"]]
    [row] = table["rows"]
    return dict(zip(names, row["cells"], strict=True))


@told_to_server
async def test_a_list_is_a_table_for_who_asks(caller: Caller) -> None:
    empty = await caller.get(WORKFLOWS, headers=TABLE)
    assert (empty["kind"], empty["rows"]) == ("Table", [])
    assert empty["metadata"]["resourceVersion"] == caller.store.resource_version
    names = [column["name"] for column in empty["columnDefinitions"]]
    assert names[:6] == ["Name", "STATE", "READY", "STATUS", "JOBID", "AGE"]
    priorities = {each["name"]: each["priority"] for each in empty["columnDefinitions"]}
    assert (priorities["STATE"], priorities["UID"]) == (0, 1)

    status = {"state": "Setup", "ready": False, "desiredStateChange": rfc3339(time.time() - 65)}
    obj = workflow(spec={"desiredState": "Setup", "jobID": 42}, status=status)
    made = await caller.store.create(WORKFLOW, obj)
    for path in (WORKFLOWS, f"{DWS}/workflows", f"{WORKFLOWS}/w"):
        table = await caller.get(path, headers=TABLE)
        shown = cells(table)
        assert (shown["Name"], shown["STATE"], shown["READY"]) == ("w", "Setup", "false")
        assert (shown["JOBID"], shown["STATUS"]) == ("42", "")
        assert shown["AGE"] in ("0s", "1s", "2s")
        assert shown["DESIREDSTATECHANGE"] in ("65s", "66s", "67s")
        assert table["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        assert table["rows"][0]["object"]["metadata"] == made["metadata"]


@told_to_one(quiet=0.05)
async def test_a_watch_tells_tables_to_who_asks(caller: Caller) -> None:
    made = await caller.store.create(WORKFLOW, workflow())
    async with caller.watch(WORKFLOWS, "allowWatchBookmarks=1", headers=TABLE) as told:
        event = await told()
        assert (event["type"], event["object"]["kind"]) == ("ADDED", "Table")
        assert cells(event["object"])["Name"] == "w"
        while (event := await told())["type"] == "BOOKMARK":
            patch = {"status": {"state": "Proposal"}}
            await caller.store.patch(change(WORKFLOW, made, patch))
        assert event["type"] == "MODIFIED"
        assert cells(event["object"])["STATE"] == "Proposal"


@told_to_server
async def test_an_object_that_makes_no_sense_does_not_spoil_the_table(caller: Caller) -> None:
    status = {"desiredStateChange": "yesterday", "state": ["Setup"], "ready": "perhaps"}
    await caller.store.create(WORKFLOW, workflow(status=status))
    await caller.store.create(STORAGE, storage())
    bad = {"status": {"capacity": "much"}}
    await caller.store.patch(change(STORAGE, storage(), bad, status=True))

    shown = cells(await caller.get(WORKFLOWS, headers=TABLE))
    assert shown["DESIREDSTATECHANGE"] == "<invalid>"
    assert len((await caller.get(STORAGES, headers=TABLE))["rows"]) == 1


# Discovery


@told_to_server
async def test_clients_can_find_out_what_is_served(caller: Caller) -> None:
    assert (await caller.get("/version"))["major"] == "1"
    assert (await caller.get("/version/"))["major"] == "1"
    assert (await caller.get("/api"))["versions"] == ["v1"]

    groups = await caller.get("/apis")
    found = {group["name"]: group for group in groups["groups"]}
    dws = found[WORKFLOW.group]
    assert groups["kind"] == "APIGroupList"
    assert [each["version"] for each in dws["versions"]] == ["v1alpha7", "v1alpha6"]
    assert dws["preferredVersion"]["groupVersion"] == WORKFLOW.api_version
    assert await caller.get(f"/apis/{WORKFLOW.group}") == dws

    core = await caller.get("/api/v1")
    assert (core["kind"], core["groupVersion"]) == ("APIResourceList", "v1")
    known = {each["name"]: each["namespaced"] for each in core["resources"]}
    assert not known["namespaces"]
    assert known["configmaps"]


@told_to_server
async def test_a_namespace_has_a_status_of_its_own(caller: Caller) -> None:
    blue = orjson.dumps({"metadata": {"name": "blue"}})
    await caller.ask("POST", "/api/v1/namespaces", data=blue)
    path = "/api/v1/namespaces/blue/status"
    told = orjson.dumps({"status": {"phase": "Active", "conditions": []}})
    answer, changed = await caller.ask("PATCH", path, data=told, headers=MERGE)

    assert (answer, changed["status"]["conditions"]) == (200, [])
    assert (await caller.get(path))["status"] == changed["status"]


@told_to_server
async def test_every_served_version_tells_its_resources(caller: Caller) -> None:
    for version in ("v1alpha7", "v1alpha6"):
        listed = await caller.get(f"/apis/{WORKFLOW.group}/{version}")
        assert listed["groupVersion"] == f"{WORKFLOW.group}/{version}"
        known = {each["name"]: each for each in listed["resources"]}
        assert known["workflows"]["kind"] == "Workflow"
        assert known["workflows"]["singularName"] == "workflow"
        assert known["workflows"]["namespaced"]
        assert {"get", "list", "watch", "patch", "delete"} <= set(known["workflows"]["verbs"])
        assert "workflows/status" not in known
        assert known["storages/status"]["verbs"] == ["get", "patch", "update"]


@told_to_server
async def test_a_kind_that_was_just_defined_is_told_at_once(caller: Caller) -> None:
    version = {"name": "v1", "served": True, "storage": True}
    spec = {
        "group": "toys.example",
        "names": {"kind": "Toy", "plural": "toys"},
        "scope": "Cluster",
        "versions": [version, {**version, "name": "v0", "served": False, "storage": False}],
    }
    crd = orjson.dumps({"metadata": {"name": "toys.toys.example"}, "spec": spec})
    crds = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    code, _ = await caller.ask("POST", crds, data=crd)
    assert code == 201

    [listed] = (await caller.get("/apis/toys.example/v1"))["resources"]
    assert (listed["name"], listed["namespaced"]) == ("toys", False)
    code, toy = await caller.ask(
        "POST", "/apis/toys.example/v1/toys", data=b'{"metadata": {"name": "t"}}'
    )
    assert (code, toy["kind"]) == (201, "Toy")
    assert (await caller.fails("GET", "/apis/toys.example/v0/toys"))[0] == 404


@told_to_one(quiet=0.05)
async def test_a_watch_ends_where_its_client_asks_for_something_else(caller: Caller) -> None:
    """Nothing more is read of it until then, and so not that it has gone."""
    host, _, port = caller.server.removeprefix("https://").partition(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=caller.tls())
    asked = f"Host: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    writer.write(f"GET {WORKFLOWS}?watch=true HTTP/1.1\r\n{asked}".encode())
    writer.write(f"GET /version HTTP/1.1\r\n{asked}".encode())
    async with asyncio.timeout(60):
        await reader.readuntil(b"HTTP/1.1 200")
        await reader.readuntil(b"HTTP/1.1 200")
    writer.close()
