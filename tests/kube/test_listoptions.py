"""Which state of a collection lists and watches show: the newest, one not older, or that one."""

from contextlib import AsyncExitStack
from typing import Any

import pytest

from tests.journal.running import virtually
from tests.kube.clusters import change, remove, stored, workflow
from tests.kube.test_api import DWS, TABLE, WORKFLOWS, Caller, cells, told_to_one, told_to_server
from warren.dws.kinds import WORKFLOW
from warren.kube.client import Unavailable
from warren.kube.server.local import LocalClient

FIRST = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
MARKED = f"{FIRST}&allowWatchBookmarks=true"
ENDED = {"k8s.io/initial-events-end": "true"}
METADATA = {
    "Accept": "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,"
    "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
}


def names(items: list[Any]) -> list[str]:
    return [item["metadata"]["name"] for item in items]


# Watches that begin with what is there


@pytest.mark.parametrize("since", ["", "&resourceVersion=0", "&resourceVersion=1"])
@told_to_server
async def test_a_watch_says_when_it_has_told_all_that_was_there(caller: Caller, since: str) -> None:
    first = await caller.store.create(WORKFLOW, workflow("first"))
    second = await caller.store.create(WORKFLOW, workflow("second"))
    newest = caller.store.resource_version
    async with caller.watch(WORKFLOWS, MARKED + since) as told:
        assert await told() == {"type": "ADDED", "object": first}
        assert await told() == {"type": "ADDED", "object": second}
        bookmark = await told()
        assert bookmark["type"] == "BOOKMARK"
        assert bookmark["object"]["kind"] == "Workflow"
        assert bookmark["object"]["apiVersion"] == WORKFLOW.api_version
        metadata = bookmark["object"]["metadata"]
        assert (metadata["resourceVersion"], metadata["annotations"]) == (newest, ENDED)
        await caller.store.delete(remove(WORKFLOW, first))
        assert (await told())["type"] == "DELETED"


@told_to_server
async def test_where_nothing_is_there_a_watch_says_so_at_once(caller: Caller) -> None:
    labels: dict[str, Any] = {"metadata": {"labels": {"color": "blue"}}}
    await caller.store.create(WORKFLOW, workflow(**labels))
    async with caller.watch(WORKFLOWS, f"{MARKED}&labelSelector=color=red") as told:
        assert (await told())["object"]["metadata"]["annotations"] == ENDED


@told_to_one(quiet=0.02)
async def test_only_the_first_bookmark_says_that_all_is_told(caller: Caller) -> None:
    async with caller.watch(WORKFLOWS, MARKED) as told:
        bookmarks = [await told() for _ in range(3)]
    marked = ["annotations" in each["object"]["metadata"] for each in bookmarks]
    assert marked == [True, False, False]


@told_to_server
async def test_who_wants_no_bookmarks_gets_none_after_what_was_there(caller: Caller) -> None:
    await caller.store.create(WORKFLOW, workflow("first"))
    async with caller.watch(WORKFLOWS, FIRST) as told:
        assert (await told())["type"] == "ADDED"
        await caller.store.create(WORKFLOW, workflow("second"))
        assert (await told())["object"]["metadata"]["name"] == "second"


@told_to_server
async def test_a_watch_can_leave_out_what_is_there(caller: Caller) -> None:
    await caller.store.create(WORKFLOW, workflow("first"))
    for since in ("", "&resourceVersion=0"):
        query = f"sendInitialEvents=false&resourceVersionMatch=NotOlderThan{since}"
        async with caller.watch(WORKFLOWS, query) as told:
            made = await caller.store.create(WORKFLOW, workflow(f"after{since[-1:]}"))
            assert await told() == {"type": "ADDED", "object": made}


@told_to_server
async def test_a_watch_of_tables_says_when_it_has_told_all(caller: Caller) -> None:
    await caller.store.create(WORKFLOW, workflow())
    async with caller.watch(WORKFLOWS, MARKED, headers=TABLE) as told:
        event = await told()
        assert (event["type"], cells(event["object"])["Name"]) == ("ADDED", "w")
        bookmark = await told()
        assert (bookmark["type"], bookmark["object"]["kind"]) == ("BOOKMARK", "Table")
        assert bookmark["object"]["metadata"]["resourceVersion"] == caller.store.resource_version
        [row] = bookmark["object"]["rows"]
        assert row["object"]["metadata"]["annotations"] == ENDED


@told_to_server
async def test_who_asks_for_metadata_alone_gets_no_more(caller: Caller) -> None:
    made = await caller.store.create(WORKFLOW, workflow())
    described = {
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": made["metadata"],
    }
    assert await caller.get(f"{WORKFLOWS}/w", headers=METADATA) == described
    listed = await caller.get(WORKFLOWS, headers=METADATA)
    assert (listed["kind"], listed["items"]) == ("PartialObjectMetadataList", [described])
    assert listed["apiVersion"] == "meta.k8s.io/v1"
    assert listed["metadata"]["resourceVersion"] == caller.store.resource_version
    async with caller.watch(WORKFLOWS, MARKED, headers=METADATA) as told:
        assert await told() == {"type": "ADDED", "object": described}
        bookmark = (await told())["object"]
        assert bookmark["kind"] == "PartialObjectMetadata"
        assert bookmark["metadata"]["annotations"] == ENDED
    protobuf_alone = {"Accept": METADATA["Accept"].partition(",")[0] + ",application/json"}
    assert await caller.get(f"{WORKFLOWS}/w", headers=protobuf_alone) == made


# What cannot be asked for together


@pytest.mark.parametrize(
    ("query", "field", "message"),
    [
        (
            "watch=1&sendInitialEvents=true&allowWatchBookmarks=true",
            "resourceVersionMatch",
            "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ),
        (
            "watch=1&resourceVersionMatch=NotOlderThan",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is "
            "provided",
        ),
        (
            "sendInitialEvents=false",
            "sendInitialEvents",
            "Forbidden: sendInitialEvents is forbidden for list",
        ),
        (
            "resourceVersionMatch=Exact",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided",
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=0",
            "resourceVersionMatch",
            'Forbidden: resourceVersionMatch "exact" is forbidden for resourceVersion "0"',
        ),
        (
            "resourceVersionMatch=Newest&resourceVersion=1",
            "resourceVersionMatch",
            'Unsupported value: "Newest": supported values: "Exact", "NotOlderThan", ""',
        ),
        (
            "resourceVersionMatch=Exact&resourceVersion=1&continue=WyJhIiwiYiJd",
            "resourceVersionMatch",
            "Forbidden: resourceVersionMatch is forbidden when continue is provided",
        ),
    ],
)
@told_to_server
async def test_what_cannot_be_asked_for_together_is_invalid(
    caller: Caller, query: str, field: str, message: str
) -> None:
    code, status = await caller.ask("GET", f"{WORKFLOWS}?{query}")
    assert (code, status["reason"]) == (422, "Invalid")
    assert status["message"] == f'ListOptions.meta.k8s.io "" is invalid: {field}: {message}'
    [cause] = status["details"]["causes"]
    assert (cause["field"], cause["message"]) == (field, message)


@told_to_server
async def test_all_that_is_wrong_with_a_watch_is_told(caller: Caller) -> None:
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=Exact"
    code, status = await caller.ask("GET", f"{WORKFLOWS}?{query}")
    assert code == 422
    assert [each["reason"] for each in status["details"]["causes"]] == [
        "FieldValueForbidden",
        "FieldValueNotSupported",
    ]


@told_to_server
async def test_a_page_is_not_asked_for_with_a_version(caller: Caller) -> None:
    query = "continue=WyJhIiwiYiJd&resourceVersion=1"
    assert await caller.fails("GET", f"{WORKFLOWS}?{query}") == (400, "BadRequest")


# Lists as of a version


@told_to_server
async def test_a_list_shows_what_was_there_in_a_version(caller: Caller) -> None:
    store = caller.store
    red = workflow("a", metadata={"labels": {"color": "red"}})
    await store.create(WORKFLOW, red)
    gone = await store.create(WORKFLOW, workflow("b"))
    then = store.resource_version
    blue = {"metadata": {"labels": {"color": "blue"}}}
    await store.patch(change(WORKFLOW, red, blue))
    await store.delete(remove(WORKFLOW, gone))
    await store.create(WORKFLOW, workflow("c"))
    await store.create(WORKFLOW, workflow("a", "elsewhere"))

    exactly = f"{WORKFLOWS}?resourceVersionMatch=Exact&resourceVersion={then}"
    were = await caller.get(exactly)
    assert names(were["items"]) == ["a", "b"]
    assert were["items"][0]["metadata"]["labels"] == {"color": "red"}
    assert were["metadata"]["resourceVersion"] == then
    assert names((await caller.get(f"{exactly}&labelSelector=color=red"))["items"]) == ["a"]
    assert (await caller.get(f"{exactly}&labelSelector=color=blue"))["items"] == []
    for query in ("", f"?resourceVersion={then}", "?resourceVersion=0"):
        assert names((await caller.get(WORKFLOWS + query))["items"]) == ["a", "c"]
    not_older = f"resourceVersionMatch=NotOlderThan&resourceVersion={then}"
    assert names((await caller.get(f"{WORKFLOWS}?{not_older}"))["items"]) == ["a", "c"]


@pytest.mark.parametrize("match", ["&resourceVersionMatch=Exact", ""])
@told_to_server
async def test_the_pages_of_a_version_are_all_of_that_version(caller: Caller, match: str) -> None:
    for name in ("a", "b", "c"):
        await caller.store.create(WORKFLOW, workflow(name))
    then = caller.store.resource_version
    page = await caller.get(f"{WORKFLOWS}?limit=2&resourceVersion={then}{match}")
    await caller.store.delete(remove(WORKFLOW, workflow("c")))
    rest = await caller.get(f"{WORKFLOWS}?limit=2&continue={page['metadata']['continue']}")
    assert names(page["items"] + rest["items"]) == ["a", "b", "c"]
    assert rest["metadata"]["resourceVersion"] == then


@told_to_one(history={"max_changes": 4})
async def test_a_version_that_is_not_known_any_more_is_gone(caller: Caller) -> None:
    query = "resourceVersionMatch=Exact&resourceVersion=1"
    assert await caller.fails("GET", f"{WORKFLOWS}?{query}") == (410, "Expired")


# What is yet to come


@told_to_server
async def test_a_version_that_is_yet_to_come_is_not_waited_for(caller: Caller) -> None:
    await caller.store.create(WORKFLOW, workflow())
    newest = int(caller.store.resource_version)
    for path in (
        f"{WORKFLOWS}?resourceVersion={newest + 1}",
        f"{WORKFLOWS}?resourceVersion={newest + 1}&resourceVersionMatch=Exact",
        f"{WORKFLOWS}?resourceVersion={newest + 1}&resourceVersionMatch=NotOlderThan&limit=1",
        f"{WORKFLOWS}/w?resourceVersion={newest + 1}",
    ):
        async with caller.session.get(caller.server + path) as response:
            status = await response.json()
            assert (response.status, status["reason"]) == (504, "Timeout")
            assert response.headers["Retry-After"] == "1"
        words = f"Too large resource version: {newest + 1}, current: {newest}"
        assert status["message"] == f"Timeout: {words}"
        assert status["details"]["retryAfterSeconds"] == 1
        [cause] = status["details"]["causes"]
        assert cause["reason"] == "ResourceVersionTooLarge"


@told_to_server
async def test_a_watch_from_what_is_yet_to_come_ends_with_that_word(caller: Caller) -> None:
    future = f"resourceVersion={int(caller.store.resource_version) + 1}"
    async with AsyncExitStack() as watches:
        for query in (future, f"{MARKED}&{future}"):
            told = await watches.enter_async_context(caller.watch(f"{DWS}/workflows", query))
            event = await told()
            assert (event["type"], event["object"]["code"]) == ("ERROR", 504)
            [cause] = event["object"]["details"]["causes"]
            assert cause["reason"] == "ResourceVersionTooLarge"
            assert await told() is None


@virtually
async def test_clients_of_this_process_are_told_the_same() -> None:
    async with stored() as store:
        watch = LocalClient(store).watch(WORKFLOW, str(int(store.resource_version) + 1))
        with pytest.raises(Unavailable, match="Too large resource version"):
            await anext(watch)
