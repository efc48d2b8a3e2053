"""Informers: a copy that follows the truth, through whatever happens to its watch."""

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from itertools import pairwise
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness.logs import capture_logs
from tests.journal.running import virtually
from tests.kube.clusters import alongside, change, key, remove, stored, workflow
from warren.base.objects import Kind, Object, key_of
from warren.dws.kinds import COMPUTES, WORKFLOW
from warren.kube.client import (
    AlreadyExists,
    Client,
    Expired,
    Listing,
    NotFound,
    Unavailable,
    WatchEvent,
)
from warren.kube.informer import Indexer, Informer, Informers, SyncState
from warren.kube.server.local import LocalClient
from warren.kube.server.store import Store


class ShakyClient(LocalClient):
    """A client whose watches can be ended, cut, or declared too old, and whose lists can fail."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.lists = 0
        self.watches: list[str] = []
        self.down = False
        self._broken: asyncio.Event = asyncio.Event()
        self._how: Exception | None = None
        self.extra: list[WatchEvent] = []

    def shake(self, how: Exception | None = None) -> None:
        """End all watches: with an error, or in peace, as servers do from time to time."""
        self._how = how
        self._broken.set()
        self._broken = asyncio.Event()

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        self.lists += 1
        if self.down:
            raise Unavailable("down")
        return await super().list(kind, namespace, labels)

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        if self.down:
            raise Unavailable("down")
        self.watches.append(since)
        broken = asyncio.ensure_future(self._broken.wait())
        async with aclosing(super().watch(kind, since, namespace)) as events:  # type: ignore[type-var]
            following = asyncio.ensure_future(anext(events))
            try:
                while self.extra:
                    yield self.extra.pop(0)
                while True:
                    await asyncio.wait({following, broken}, return_when=asyncio.FIRST_COMPLETED)
                    if not following.done():
                        break
                    yield following.result()
                    following = asyncio.ensure_future(anext(events))
            finally:
                broken.cancel()
                following.cancel()
                await asyncio.gather(following, broken, return_exceptions=True)
        if self._how is not None:
            raise self._how


class Scene:
    """A store, an informer of its Workflows, and what a listener was told."""

    def __init__(self, store: Store, namespace: str, indexes: Mapping[str, Indexer]) -> None:
        self.store = store
        self.client = ShakyClient(store)
        self.informer = Informer(self.client, WORKFLOW, namespace, indexes)
        self.told: list[Object] = []
        self.informer.listen(self.told.append)

    async def create(self, name: str, namespace: str = "default", **spec: object) -> Object:
        return await self.store.create(WORKFLOW, workflow(name, namespace, spec=spec))

    async def patch(self, name: str, **spec: object) -> Object:
        return await self.store.patch(change(WORKFLOW, workflow(name), {"spec": spec}))

    async def delete(self, name: str) -> None:
        await self.store.delete(remove(WORKFLOW, workflow(name)))

    def names(self) -> list[str]:
        return [obj["metadata"]["name"] for obj in self.told]

    def assert_true(self) -> None:
        found = {key_of(obj): obj for obj in self.informer.all()}
        assert found == {key_of(obj): obj for obj in self.store.list(WORKFLOW).items}
        assert set(self.informer.keys()) == set(found)


def bookmark(version: str) -> WatchEvent:
    return WatchEvent("BOOKMARK", {"kind": "Workflow", "metadata": {"resourceVersion": version}})


@asynccontextmanager
async def scene(namespace: str = "", **indexes: Indexer) -> AsyncIterator[Scene]:
    async with stored() as store:
        played = Scene(store, namespace, indexes)
        async with alongside(played.informer.run()):
            yield played


async def settled() -> None:
    """Let everything happen that is due, delays before a new list included."""
    await asyncio.sleep(60)


@virtually
async def test_it_is_not_synced_before_the_first_list() -> None:
    async with stored() as store:
        client = ShakyClient(store)
        client.down = True
        informer = Informer(client, WORKFLOW)
        async with alongside(informer.run()):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(informer.wait_synced(), 100)
            client.down = False
            await informer.wait_synced()


@virtually
async def test_it_follows_and_tells_every_change_in_its_last_form() -> None:
    async with scene() as play:
        await settled()
        made = await play.create("w")
        changed = await play.patch("w", jobID=1)
        await settled()
        assert play.informer.get(key("w")) == changed
        await play.delete("w")
        await settled()

        assert play.told[:2] == [made, changed]
        assert play.told[2]["spec"] == {"jobID": 1}
        assert play.informer.get(key("w")) is None
        assert play.client.lists == 1


@virtually
async def test_a_listener_that_comes_late_is_told_what_is_known() -> None:
    async with scene() as play:
        await play.create("one")
        await play.create("two")
        await settled()
        late: list[Object] = []
        play.informer.listen(late.append)

        assert [obj["metadata"]["name"] for obj in late] == ["one", "two"]
        await play.create("three")
        await settled()
        assert len(late) == 3


@virtually
async def test_a_comparer_is_told_what_was_there_before_each_change_and_after_it() -> None:
    told: list[tuple[str, ...]] = []

    def compared(before: Object | None, after: Object | None) -> None:
        told.append(tuple("none" if each is None else spec(each) for each in (before, after)))

    def spec(obj: Object) -> str:
        return str(obj["spec"].get("jobID", "new"))

    async with scene() as play:
        await play.create("w")
        await settled()
        play.informer.listen_to_changes(compared)
        for job in (1, 2):
            patch = change(WORKFLOW, workflow(), {"spec": {"jobID": job}})
            await play.store.patch(patch)
        await play.store.delete(remove(WORKFLOW, workflow()))
        await settled()

    assert told == [("none", "new"), ("new", "1"), ("1", "2"), ("2", "none")]


@virtually
async def test_it_looks_at_one_namespace_if_it_is_told_to() -> None:
    async with scene(namespace="aside") as play:
        await play.create("before", "aside")
        await play.create("elsewhere")
        await settled()
        await play.create("after", "aside")
        await play.create("elsewhere-too")
        await settled()

        assert play.names() == ["before", "after"]


@virtually
async def test_a_watch_that_ends_in_peace_goes_on_where_it_was() -> None:
    async with scene() as play:
        await settled()
        made = await play.create("one")
        await settled()
        play.client.shake()
        await settled()
        two = await play.create("two")
        await settled()

        assert play.told == [made, two]
        assert play.client.lists == 1
        assert play.client.watches[-1] == made["metadata"]["resourceVersion"]


@virtually
async def test_a_bookmark_moves_the_watch_on_and_is_not_told() -> None:
    async with stored() as store:
        client = ShakyClient(store)
        informer = Informer(client, WORKFLOW)
        heard: list[Object] = []
        informer.listen(heard.append)
        async with alongside(informer.run()):
            await settled()
            await store.create(COMPUTES, workflow())
            client.extra = [bookmark(store.resource_version), bookmark("1"), bookmark("")]
            for _ in range(2):
                client.shake()
                await settled()

        assert heard == []
        assert client.watches[-1] == store.resource_version


@pytest.mark.parametrize("how", [Expired("too old"), Unavailable("cut off")], ids=repr)
@virtually
async def test_what_happened_in_a_gap_is_noticed_and_told_once(how: Exception) -> None:
    async with scene() as play:
        for name in ("vanishes", "changes", "stays"):
            await play.create(name)
        await settled()
        del play.told[:]
        play.client.down = True
        play.client.shake(how)
        await asyncio.sleep(0)
        await play.delete("vanishes")
        await play.patch("changes", jobID=1)
        await play.patch("changes", jobID=2)
        await play.create("comes")
        await settled()
        assert play.told == []

        play.client.down = False
        await settled()
        assert sorted(play.names()) == ["changes", "comes", "vanishes"]
        play.assert_true()


@virtually
async def test_an_object_that_was_replaced_in_a_gap_is_the_new_one() -> None:
    async with scene() as play:
        await play.create("w")
        await settled()
        play.client.down = True
        play.client.shake(Unavailable("cut off"))
        await settled()
        await play.delete("w")
        again = await play.create("w")
        play.client.down = False
        await settled()

        assert play.informer.get(key("w")) == again
        assert play.told[-1] == again


def _colors(obj: Object) -> list[str]:
    return list(obj["spec"].get("colors", ()))


@virtually
async def test_an_index_files_objects_and_moves_them_as_they_change() -> None:
    async with scene(color=_colors) as play:

        async def filed(color: str) -> list[str]:
            await settled()
            return [obj["metadata"]["name"] for obj in play.informer.by_index("color", color)]

        await play.create("b", colors=["red", "blue"])
        await play.create("a", colors=["red"])
        assert await filed("red") == ["a", "b"]
        assert await filed("blue") == ["b"]

        await play.patch("b", colors=["green"])
        assert await filed("red") == ["a"]
        assert await filed("blue") == []
        assert await filed("green") == ["b"]

        play.client.down = True
        play.client.shake(Expired("too old"))
        await play.delete("b")
        await settled()
        play.client.down = False
        assert await filed("green") == []


steps = st.lists(
    st.tuples(
        st.sampled_from(["create", "patch", "delete", "end", "cut", "expire", "down", "wait"]),
        st.sampled_from("abc"),
    ),
    max_size=40,
)


@given(steps=steps, seed=st.integers(0, 3))
@settings(max_examples=80, deadline=None)
@virtually
async def test_in_the_end_it_knows_the_truth_whatever_happened(
    steps: Sequence[tuple[str, str]], seed: int
) -> None:
    chance = random.Random(seed)
    async with scene(color=_colors) as play:
        for action, name in steps:
            await _do(play, action, name, chance.choice(["red", "blue"]))
            await asyncio.sleep(chance.choice([0, 0, 0, 0.01, 3]))
        play.client.down = False
        await settled()

        play.assert_true()
        # Who only listens knows of every object that there was, and what it is now.
        copy = {key_of(obj): obj for obj in play.told}
        for obj in play.informer.all():
            assert copy[key_of(obj)] == obj
        for color in ("red", "blue"):
            filed = [obj for obj in play.store.list(WORKFLOW).items if color in _colors(obj)]
            assert play.informer.by_index("color", color) == filed


async def _do(play: Scene, action: str, name: str, color: str) -> None:
    try:
        match action:
            case "create":
                await play.create(name, colors=[color])
            case "patch":
                await play.patch(name, colors=[color])
            case "delete":
                await play.delete(name)
            case "end":
                play.client.shake()
            case "cut":
                play.client.shake(Unavailable("cut off"))
            case "expire":
                play.client.shake(Expired("too old"))
            case "down":
                play.client.down = not play.client.down
                play.client.shake()
    except (AlreadyExists, NotFound):
        pass


Told = Sequence[WatchEvent | Exception]
"""What a watch tells before it ends, in peace or by an error."""


class Script:
    """An API that answers as it is told: with lists, and with watches."""

    def __init__(self, *answers: Listing | Told | Exception) -> None:
        self._answers = deque(answers)
        self.asked: list[tuple[str, float]] = []

    def then(self, *answers: Listing | Told | Exception) -> None:
        self._answers.extend(answers)

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        answer = await self._next("list")
        assert isinstance(answer, Listing), answer
        return answer

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        answer = await self._next(since)
        assert isinstance(answer, Sequence), answer
        for event in answer:
            if isinstance(event, Exception):
                raise event
            yield event
        if not self._answers:
            await asyncio.Event().wait()

    async def _next(self, what: str) -> Listing | Told:
        self.asked.append((what, asyncio.get_running_loop().time()))
        answer = self._answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def waits(self) -> Sequence[float]:
        """Return the pauses between what it was asked."""
        return [later - earlier for (_, earlier), (_, later) in pairwise(self.asked)]


def life(name: str, version: int, uid: str = "one") -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "resourceVersion": str(version), "uid": uid}
    return {"metadata": metadata}


def event(type: str, name: str, version: int, uid: str = "one") -> WatchEvent:
    return WatchEvent(type, life(name, version, uid))


async def following(script: Script, **options: Any) -> tuple[Informer, Sequence[Object]]:
    """Let an informer hear a whole script; return it, and what it told."""
    informer = Informer(
        cast(Client, script), WORKFLOW, jitter=options.pop("jitter", lambda: 0.0), **options
    )
    told: list[Object] = []
    informer.listen(told.append)
    async with alongside(informer.run()):
        await asyncio.sleep(1000)
    return informer, told


# Watches that lead nowhere


@virtually
async def test_a_watch_that_ends_over_and_over_with_nothing_to_tell_is_left_alone_longer() -> None:
    script = Script(Listing([], "1"), *[()] * 9)
    await following(script)
    assert script.waits() == [0, 0, 1, 2, 4, 8, 16, 30, 30]
    assert [what for what, _ in script.asked] == ["list", *["1"] * 9]


@virtually
async def test_a_bookmark_that_says_nothing_new_does_not_make_a_watch_a_good_one() -> None:
    script = Script(Listing([], "1"), *[[bookmark("1"), bookmark("0")]] * 4)
    await following(script)
    assert script.waits() == [0, 0, 1, 2]


@virtually
async def test_a_watch_that_told_something_is_begun_again_at_once() -> None:
    news = [[event("MODIFIED", "a", version)] for version in range(2, 6)]
    script = Script(Listing([], "1"), *news, ())
    await following(script)
    assert script.waits() == [0] * 5


@virtually
async def test_after_versions_have_expired_it_lists_at_once_but_not_over_and_over() -> None:
    old = Expired("too old")
    script = Script()
    for version in range(1, 6):
        script.then(Listing([], str(version)), old)
    script.then(Listing([], "6"), [event("ADDED", "a", 7), old], Listing([], "7"), ())
    await following(script)
    assert [what for what, _ in script.asked[::2]] == ["list"] * 7
    assert script.waits()[1::2] == [0, 1, 2, 4, 8, 0]


@virtually
async def test_an_api_that_is_away_is_asked_less_and_less() -> None:
    script = Script(*[Unavailable("down")] * 8, Listing([], "1"), ())
    await following(script)
    assert script.waits() == [1, 2, 4, 8, 16, 30, 30, 30, 0]


@virtually
async def test_a_quiet_watch_that_lasted_was_a_good_one() -> None:
    async with scene() as play:
        for _ in range(5):
            await settled()
            play.client.shake(Unavailable("cut off"))
        await asyncio.sleep(1.5)
        assert play.client.lists == 6


# Events twice, late, or in the wrong order


@pytest.mark.parametrize(
    ("events", "told"),
    [
        (["ADDED 5", "ADDED 5"], [5]),
        (["ADDED 5", "MODIFIED 7", "MODIFIED 6", "MODIFIED 7"], [5, 7]),
        (["ADDED 5", "MODIFIED 7", "ADDED 5"], [5, 7]),
        (["MODIFIED 6", "ADDED 5"], [6]),
        (["ADDED 9", "MODIFIED 10", "MODIFIED 9"], [9, 10]),
    ],
    ids=str,
)
@virtually
async def test_an_older_form_of_an_object_is_not_told(
    events: Sequence[str], told: Sequence[int]
) -> None:
    script = Script(Listing([], "1"), [_short(each) for each in events])
    informer, found = await following(script)
    assert [int(obj["metadata"]["resourceVersion"]) for obj in found] == told
    assert informer.all() == [life("a", told[-1])]


def _short(text: str) -> WatchEvent:
    type, version, *uid = text.split()
    return event(type, "a", int(version), *uid)


@pytest.mark.parametrize(
    "events",
    [
        ["ADDED 5", "DELETED 7", "MODIFIED 6", "ADDED 5", "DELETED 7"],
        ["DELETED 7", "ADDED 5", "MODIFIED 6"],
        # Servers may tell a deletion with the version that the object had before.
        ["ADDED 5", "DELETED 5", "MODIFIED 5", "ADDED 5"],
        ["MODIFIED 6", "DELETED 5", "MODIFIED 6"],
        ["ADDED 5", "DELETED 8 two", "ADDED 7 two"],
    ],
    ids=str,
)
@virtually
async def test_what_is_deleted_does_not_come_back(events: Sequence[str]) -> None:
    script = Script(Listing([], "1"), [_short(each) for each in events])
    informer, _ = await following(script, indexes={"name": lambda obj: [obj["metadata"]["name"]]})
    assert informer.all() == []
    assert informer.by_index("name", "a") == []


@pytest.mark.parametrize(
    "events",
    [
        ["ADDED 5", "DELETED 7", "ADDED 8 two"],
        ["ADDED 5", "ADDED 8 two", "DELETED 7"],
        ["DELETED 7", "ADDED 8 two", "ADDED 5"],
    ],
    ids=str,
)
@virtually
async def test_a_namesake_of_what_was_deleted_is_there(events: Sequence[str]) -> None:
    script = Script(Listing([], "1"), [_short(each) for each in events])
    informer, _ = await following(script)
    assert informer.all() == [life("a", 8, "two")]


@virtually
async def test_what_a_list_did_not_have_is_not_brought_back_by_what_was_before_it() -> None:
    script = Script(Listing([life("a", 5)], "6"), Unavailable("cut off"))
    script.then(Listing([], "9"), [event("MODIFIED", "a", 8)])
    informer, _ = await following(script)
    assert informer.all() == []


@virtually
async def test_a_watch_goes_on_from_the_newest_version_whatever_came_last() -> None:
    script = Script(Listing([], "1"), [event("ADDED", "a", 9), event("ADDED", "b", 8)], ())
    informer, _ = await following(script)
    assert informer.keys() == [key("a"), key("b")]
    assert script.asked[-1][0] == "9"


@virtually
async def test_versions_that_are_no_numbers_are_believed_in_the_order_in_which_they_come() -> None:
    def odd(version: str) -> Object:
        return {"metadata": {**life("a", 0)["metadata"], "resourceVersion": version}}

    events = [
        WatchEvent("ADDED", odd("x9")),
        WatchEvent("MODIFIED", odd("x10")),
        WatchEvent("MODIFIED", odd("x")),
    ]
    script = Script(Listing([], "x1"), [*events, events[-1]], ())
    _, told = await following(script)
    assert told == [odd("x9"), odd("x10"), odd("x")]
    assert script.asked[-1][0] == "x"


histories = st.lists(
    st.tuples(st.sampled_from("abc"), st.sampled_from(["change", "delete"])), max_size=25
)


@given(history=histories, chance=st.randoms(use_true_random=False), gone=st.sampled_from([1, 1024]))
@settings(max_examples=200, deadline=None)
@virtually
async def test_events_in_any_order_and_any_number_lead_to_the_truth(
    history: Sequence[tuple[str, str]], chance: random.Random, gone: int
) -> None:
    truth: dict[str, Object] = {}
    events = []
    for version, (name, action) in enumerate(history, start=2):
        if action == "change":
            type = "MODIFIED" if name in truth else "ADDED"
            uid = truth[name]["metadata"]["uid"] if name in truth else f"since {version}"
            truth[name] = life(name, version, uid)
            events.append(WatchEvent(type, truth[name]))
        elif name in truth:
            events.append(
                WatchEvent("DELETED", life(name, version, truth.pop(name)["metadata"]["uid"]))
            )
    told = [each for each in events for _ in range(chance.choice([1, 1, 2, 3]))]
    chance.shuffle(told)
    informer, _ = await following(Script(Listing([], "1"), told), max_deletions=gone)
    found = {obj["metadata"]["name"]: obj for obj in informer.all()}
    if gone == 1024:
        assert found == truth
    else:
        # What is new may then be taken for old, but what is gone is never taken for there.
        assert found.items() <= truth.items()


@virtually
async def test_it_does_not_remember_every_deletion_that_there_ever_was() -> None:
    names = [f"w-{number}" for number in range(100)]
    events = [event("ADDED", name, 2 + 2 * at) for at, name in enumerate(names)]
    events += [event("DELETED", name, 300 + at) for at, name in enumerate(names)]
    late = [event("MODIFIED", name, 3 + 2 * at) for at, name in enumerate(names)]
    informer, _ = await following(Script(Listing([], "1"), [*events, *late]), max_deletions=10)
    assert informer.all() == []
    assert len(informer._deleted_in) == 10


# Lists from before


@virtually
async def test_a_list_of_a_server_that_lags_is_not_believed() -> None:
    script = Script(Listing([], "1"), [event("ADDED", "a", 5)], Unavailable("cut off"))
    for _ in range(2):
        script.then(*[Listing([], "4")] * 2, Listing([life("a", 5)], "5"), Unavailable("cut off"))
    script.then(Listing([life("a", 5)], "5"), ())
    informer, told = await following(script)
    assert informer.all() == [life("a", 5)]
    assert told == [life("a", 5)]


@virtually
async def test_a_server_that_was_set_back_is_believed_in_the_end() -> None:
    script = Script(Listing([life("a", 500), life("b", 400)], "500"))
    script.then([event("DELETED", "c", 501), Unavailable("cut off")])
    script.then(*[Listing([life("b", 3)], "4")] * 3)
    script.then([event("MODIFIED", "b", 5), event("ADDED", "c", 6)], ())
    informer, _ = await following(script)
    assert informer.all() == [life("b", 5), life("c", 6)]
    assert script.asked[-1][0] == "6"


# Bugs of others


@virtually
async def test_a_listener_that_raises_costs_a_line_of_log_and_the_others_nothing() -> None:
    def broken(obj: Object) -> None:
        if obj["metadata"]["name"] == "bad":
            raise KeyError("a bug")
        good.append(obj["metadata"]["name"])

    good: list[str] = []
    with capture_logs() as logged:
        async with scene() as play:
            await play.create("bad")
            await settled()
            play.informer.listen(broken)
            others = [*play.told]
            play.informer.listen(others.append)
            await play.create("fine")
            await play.patch("bad", jobID=1)
            await settled()
            play.assert_true()
    assert good == ["fine"]
    assert [obj["metadata"]["name"] for obj in others[1:]] == ["bad", "fine", "bad"]
    errors = [(each["event"], each["key"]) for each in logged if each["log_level"] == "error"]
    assert errors == [("listener failed", "default/bad")] * 2


@virtually
async def test_an_object_that_an_index_cannot_read_is_filed_nowhere_else_it_is() -> None:
    def first(obj: Object) -> list[str]:
        return [obj["spec"]["colors"][0]]

    with capture_logs() as logged:
        async with scene(first=first, color=_colors) as play:
            await play.create("plain")
            await play.create("bright", colors=["red"])
            await settled()
            assert [obj["metadata"]["name"] for obj in play.informer.by_index("first", "red")] == [
                "bright"
            ]
            await play.patch("plain", colors=["red"])
            await play.patch("bright", colors=[])
            await settled()
            assert [obj["metadata"]["name"] for obj in play.informer.by_index("first", "red")] == [
                "plain"
            ]
            await play.delete("bright")
            await settled()
            play.assert_true()
    assert {each["event"] for each in logged if each["log_level"] == "error"} == {"indexer failed"}


# What can be seen


@virtually
async def test_it_says_how_far_it_is() -> None:
    async with stored() as store:
        client = ShakyClient(store)
        client.down = True
        informer = Informer(client, WORKFLOW)
        async with alongside(informer.run()):
            await asyncio.sleep(100)
            assert informer.sync_state() == SyncState(
                synced=False, resource_version="", silence=float("inf"), list_count=0, watch_count=0
            )
            client.down = False
            await informer.wait_synced()
            await asyncio.sleep(100)
            made = await store.create(WORKFLOW, workflow())
            await asyncio.sleep(7)
            client.shake()
            await asyncio.sleep(1)
            assert informer.sync_state() == SyncState(
                synced=True,
                resource_version=made["metadata"]["resourceVersion"],
                silence=8,
                list_count=1,
                watch_count=2,
            )
            client.extra = [bookmark(store.resource_version)]
            client.shake()
            await asyncio.sleep(3)
            assert informer.sync_state().silence < 3


# Several kinds


@virtually
async def test_all_who_ask_for_a_kind_share_one_informer() -> None:
    async with stored() as store:
        client = ShakyClient(store)
        informers = Informers(client)
        assert informers.of(WORKFLOW) is informers.of(WORKFLOW)
        assert informers.of(WORKFLOW) is not informers.of(COMPUTES)
        await store.create(COMPUTES, workflow())
        async with alongside(informers.run()):
            await informers.wait_synced()
            assert len(informers.of(COMPUTES).all()) == 1
            assert informers.all() == [informers.of(WORKFLOW), informers.of(COMPUTES)]
            assert client.lists == 2
