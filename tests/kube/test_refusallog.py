"""Clients that are refused ask again, and the log tells it once: a new server refuses all."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from typing import Any

import pytest

from tests.journal.running import virtually
from tests.kube.clusters import alongside, key, stored, workflow
from tests.kube.test_runtime import reconciling
from warren.base.objects import Kind
from warren.dws.kinds import WORKFLOW
from warren.kube import versions
from warren.kube.client import Forbidden, Listing, NotFound, Refused, WatchEvent
from warren.kube.informer import Informer
from warren.kube.refusallog import RefusalLog
from warren.kube.server.local import LocalClient
from warren.kube.server.store import Store
from warren.kube.transport import error_of_answer

Logged = list[MutableMapping[str, Any]]

WHO = 'User "w" cannot list resource "workflows" in API group "dws" at the cluster scope'
SENTENCE = f"workflows.dws is forbidden: {WHO}"
TOLD = "the API refuses, and is asked again"
OVER = "the API refuses no more"


def told(heard: Logged) -> list[tuple[str, str, str]]:
    """Return what an admin reads: how loud, what, and why."""
    return [(each["log_level"], each["event"], each.get("reason", "")) for each in heard]


class Starting(LocalClient):
    """A client of a server that refuses lists, or watches, for a while."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.lists: Exception | None = None
        self.watches: Exception | None = None
        self.asked = 0

    async def list(self, *what: Any) -> Listing:
        self.asked += 1
        if self.lists is not None:
            raise self.lists
        return await super().list(*what)

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        if self.watches is not None:
            raise self.watches
        async for event in super().watch(kind, since, namespace):
            yield event


@pytest.mark.parametrize(
    "why", [Forbidden(SENTENCE), Refused(SENTENCE), NotFound("no such resource")], ids=repr
)
@virtually
async def test_a_list_that_is_refused_is_asked_for_again(why: Exception, heard: Logged) -> None:
    async with stored() as store:
        client = Starting(store)
        client.lists = why
        informer = Informer(client, WORKFLOW, jitter=lambda: 0.0)
        async with alongside(informer.run()):
            await asyncio.sleep(600)
            assert not informer.sync_state().synced
            # After 1, 2, 4, 8, and then every 30 seconds.
            assert 20 < client.asked < 30
            assert told(heard) == [("warning", TOLD, str(why))]
            client.lists = None
            await asyncio.wait_for(informer.wait_synced(), 31)
            assert told(heard)[1:] == [("info", OVER, "")]
            await store.create(WORKFLOW, workflow())
            await asyncio.sleep(1)
            assert informer.get(key("w")) is not None


@virtually
async def test_a_watch_that_is_refused_is_told_once_though_lists_are_not(heard: Logged) -> None:
    async with stored() as store:
        client = Starting(store)
        client.watches = Forbidden(SENTENCE)
        informer = Informer(client, WORKFLOW, jitter=lambda: 0.0)
        async with alongside(informer.run()):
            await asyncio.sleep(600)
            assert told(heard) == [("warning", TOLD, SENTENCE)]
            client.watches = None
            await asyncio.sleep(31)
            await store.create(WORKFLOW, workflow())
            await asyncio.sleep(1)
            assert informer.get(key("w")) is not None
            assert told(heard)[1:] == [("info", OVER, "")]


@virtually
async def test_a_pass_that_is_refused_comes_again_without_a_traceback(heard: Logged) -> None:
    async def act(number: int) -> float | None:
        if number < 5:
            raise Forbidden(SENTENCE)
        return None

    async with reconciling(act) as (reconciler, passes):
        reconciler.add("a")
        await asyncio.sleep(300)
        assert len(passes.times["a"]) == 5
    assert told(heard) == [("warning", TOLD, SENTENCE), ("info", OVER, "")]


def test_what_is_refused_for_the_same_reason_is_told_once(heard: Logged) -> None:
    refusals = RefusalLog()
    for name in ("a", "b", "a"):
        refusals.note_refusal(name, f'workflows.dws "{name}" is forbidden: {WHO}')
    refusals.note_success("a")
    refusals.note_success("a")
    assert len(told(heard)) == 1
    refusals.note_refusal("b", "another reason")
    refusals.note_success("b")
    assert [event for _, event, _ in told(heard)] == [TOLD, TOLD, OVER]
    assert not refusals.is_refused


class Api:
    """Does not tell what is served, for a while."""

    def __init__(self, refuses: int) -> None:
        self.refuses = refuses

    async def read(self, path: str) -> Any:
        self.refuses -= 1
        if self.refuses >= 0:
            raise Forbidden(f'forbidden: User "w" cannot get path "{path}"')
        return {"versions": [{"version": "v1"}]}


@virtually
async def test_who_starts_asks_for_a_minute_what_is_served(heard: Logged) -> None:
    spoken = {"g": ("v1",)}
    chosen = await versions.choose_when_allowed(Api(4), spoken, seconds=60, jitter=lambda: 0.0)
    assert chosen == {"g": "v1"}
    assert [event for _, event, _ in told(heard)] == [TOLD]
    with pytest.raises(Forbidden, match='cannot get path "/apis/g"'):
        await versions.choose_when_allowed(Api(1000), spoken, seconds=60)
    assert asyncio.get_running_loop().time() < 120


@pytest.mark.parametrize(
    ("sentence", "may_not"),
    [
        (SENTENCE, True),
        ('workflows.dws "w" is forbidden: User "a b" cannot patch resource "workflows"', True),
        ('forbidden: User "w" cannot get path "/apis"', True),
        ('admission webhook "x" denied the request: no', False),
        ('configmaps "c" is forbidden: exceeded quota: q', False),
    ],
)
def test_what_no_role_allows_is_not_what_admission_denies(sentence: str, may_not: bool) -> None:
    status = b'{"reason": "Forbidden", "message": %s}' % _json(sentence)
    found = error_of_answer(403, status)
    assert isinstance(found, Refused)
    assert isinstance(found, Forbidden) == may_not
    assert str(found) == sentence


def _json(text: str) -> bytes:
    return b'"' + text.replace('"', '\\"').encode() + b'"'
