"""Informers: a copy that follows the truth, through whatever happens to its watch."""

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.journal.running import virtually
from tests.kube.clusters import alongside, change, key, remove, stored, workflow
from warren.base.objects import Kind, Object, key_of
from warren.dws.kinds import COMPUTES, WORKFLOW
from warren.kube.client import AlreadyExists, Event, Expired, Listing, NotFound, Unavailable
from warren.kube.informer import Indexer, Informer, Informers
from warren.kube.local import LocalClient
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
        self.extra: list[Event] = []

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

    async def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[Event]:
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
async def test_a_bookmark_moves_the_watch_on_and_is_told_to_nobody() -> None:
    async with stored() as store:
        client = ShakyClient(store)
        bookmark = {"metadata": {"resourceVersion": store.version}}
        await store.create(COMPUTES, workflow())
        client.extra = [Event("BOOKMARK", {**bookmark, "kind": "Workflow"})]
        informer = Informer(client, WORKFLOW)
        heard: list[Object] = []
        informer.listen(heard.append)
        async with alongside(informer.run()):
            await settled()
            client.shake()
            await settled()

        assert heard == []
        assert client.watches[-1] == bookmark["metadata"]["resourceVersion"]


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
            return [obj["metadata"]["name"] for obj in play.informer.by("color", color)]

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
        for deed, name in steps:
            await _do(play, deed, name, chance.choice(["red", "blue"]))
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
            assert play.informer.by("color", color) == filed


async def _do(play: Scene, deed: str, name: str, color: str) -> None:
    try:
        match deed:
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
            assert client.lists == 2
