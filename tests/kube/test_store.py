"""The store: nothing is seen before it is durable, and everything durable comes back."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import virtual
from tests.journal.journals import HeldJournal
from tests.journal.running import read, virtually
from tests.kube.clusters import (
    alongside,
    change,
    key,
    remove,
    storage,
    stored,
    taken,
    told,
    version,
    watchers,
    workflow,
)
from warren.base.objects import Kind, Object, key_of
from warren.dws.kinds import STORAGE, WORKFLOW
from warren.journal import MemoryJournal
from warren.journal.committer import rewrite_limit
from warren.journal.sqlite import SqliteJournal
from warren.kube.admission import AdmitAll
from warren.kube.client import AlreadyExists, Conflict, Expired, NotFound, Refused
from warren.kube.server.builtin import CRD, NAMESPACE
from warren.kube.server.history import History, estimated_size
from warren.kube.server.local import LocalClient
from warren.kube.server.store import Store


def restarted(journal: MemoryJournal) -> Store:
    """Return the store that a new process has, before it does anything."""
    return Store(journal, virtual.VirtualClock(), AdmitAll())


def contents(store: Store) -> dict[str, list[Object]]:
    """Return everything that can be read."""
    kinds = [resource.kind(resource.versions[0]) for resource in store.resources()]
    return {str(kind): store.list(kind).items for kind in kinds}


# What is not durable


@virtually
async def test_what_is_not_durable_is_not_seen() -> None:
    journal = HeldJournal()
    async with stored(journal) as store:
        before = store.list(WORKFLOW)
        watching = asyncio.ensure_future(taken(store.watch(WORKFLOW, before.resource_version), 1))
        journal.gate.clear()
        writing = asyncio.ensure_future(store.create(WORKFLOW, workflow()))
        await asyncio.sleep(5)

        assert not writing.done()
        assert not watching.done()
        assert store.list(WORKFLOW) == before
        with pytest.raises(NotFound):
            store.get(WORKFLOW, key("w"))

        journal.gate.set()
        made = await writing
        assert store.get(WORKFLOW, key("w")) == made
        assert [event.object for event in await watching] == [made]


@virtually
async def test_a_change_that_is_not_durable_is_not_seen_either() -> None:
    journal = HeldJournal()
    async with stored(journal) as store:
        made = await store.create(WORKFLOW, workflow())
        journal.gate.clear()
        patching = asyncio.ensure_future(
            store.patch(change(WORKFLOW, made, {"spec": {"jobID": 1}}))
        )
        deleting = asyncio.ensure_future(store.delete(remove(WORKFLOW, made)))
        await asyncio.sleep(60)

        assert store.get(WORKFLOW, key("w")) == made
        assert restarted(journal).get(WORKFLOW, key("w")) == made
        journal.gate.set()
        await asyncio.gather(patching, deleting)
        assert restarted(journal).list(WORKFLOW).items == []


@virtually
async def test_a_list_does_not_count_what_it_does_not_show() -> None:
    """Or a watch that goes on from there would miss it."""
    journal = HeldJournal()
    async with stored(journal) as store:
        journal.single = True
        journal.gate.clear()
        first = asyncio.ensure_future(store.create(WORKFLOW, workflow("first")))
        await asyncio.sleep(1)
        second = asyncio.ensure_future(store.create(WORKFLOW, workflow("second")))
        await asyncio.sleep(1)
        journal.gate.set()
        made = await first
        listing = store.list(WORKFLOW)
        assert (listing.items, listing.resource_version) == (
            [made],
            made["metadata"]["resourceVersion"],
        )

        journal.gate.set()
        events = await taken(store.watch(WORKFLOW, listing.resource_version), 1)
        assert [event.object for event in events] == [await second]


@virtually
async def test_two_writers_cannot_both_win_while_the_disk_is_busy() -> None:
    journal = HeldJournal()
    async with stored(journal) as store:
        made = await store.create(WORKFLOW, workflow())
        seen = made["metadata"]["resourceVersion"]
        journal.gate.clear()
        first = asyncio.ensure_future(
            store.patch(change(WORKFLOW, made, {"spec": {"jobID": 1}}, resource_version=seen))
        )
        new = asyncio.ensure_future(store.create(WORKFLOW, workflow("new")))
        await asyncio.sleep(1)

        with pytest.raises(Conflict):
            await store.patch(change(WORKFLOW, made, {"spec": {"jobID": 2}}, resource_version=seen))
        with pytest.raises(AlreadyExists):
            await store.create(WORKFLOW, workflow("new"))
        journal.gate.set()
        await asyncio.gather(first, new)
        assert store.get(WORKFLOW, key("w"))["spec"]["jobID"] == 1


@virtually
async def test_a_write_builds_on_the_one_that_is_under_way() -> None:
    journal = HeldJournal()
    async with stored(journal) as store:
        journal.gate.clear()
        writes = [
            asyncio.ensure_future(action)
            for action in (
                store.create(WORKFLOW, workflow()),
                store.patch(change(WORKFLOW, workflow(), {"spec": {"jobID": 1}})),
                store.patch(change(WORKFLOW, workflow(), {"spec": {"userID": 2}})),
                store.delete(remove(WORKFLOW, workflow())),
                store.create(WORKFLOW, workflow(spec={"jobID": 3})),
            )
        ]
        await asyncio.sleep(1)
        journal.gate.set()
        await asyncio.gather(*writes)

        assert writes[2].result()["spec"].items() >= {"jobID": 1, "userID": 2}.items()
        assert store.get(WORKFLOW, key("w"))["spec"] == {"jobID": 3}
        assert contents(restarted(journal)) == contents(store)


@virtually
async def test_what_is_being_deleted_cannot_be_changed() -> None:
    journal = HeldJournal()
    async with stored(journal) as store:
        made = await store.create(WORKFLOW, workflow())
        journal.gate.clear()
        deleting = asyncio.ensure_future(store.delete(remove(WORKFLOW, made)))
        await asyncio.sleep(1)

        with pytest.raises(NotFound):
            await store.patch(change(WORKFLOW, made, {"spec": {"jobID": 1}}))
        with pytest.raises(NotFound):
            await store.delete(remove(WORKFLOW, made))
        journal.gate.set()
        await deleting


@virtually
async def test_that_there_is_nothing_to_write_is_said_when_it_is_durable() -> None:
    """Or the answer would tell of an object that a crash takes away again."""
    journal = HeldJournal()
    async with stored(journal) as store:
        made = await store.create(WORKFLOW, workflow(metadata={"finalizers": ["a/1"]}))
        journal.gate.clear()
        patch = {"spec": {"jobID": 1}}
        first = asyncio.ensure_future(store.patch(change(WORKFLOW, made, patch)))
        same = asyncio.ensure_future(store.patch(change(WORKFLOW, made, patch)))
        await asyncio.sleep(1)
        deleting = [asyncio.ensure_future(store.delete(remove(WORKFLOW, made))) for _ in range(2)]
        await asyncio.sleep(1)
        assert not any(each.done() for each in (first, same, *deleting))

        first.cancel()  # who gives up the wait does not answer for the others
        await asyncio.sleep(1)
        assert not same.done()
        journal.gate.set()
        assert (await same)["spec"]["jobID"] == 1
        one, two = await asyncio.gather(*deleting)
        assert one == two


# Restarts


class Life:
    """Does actions at random, and remembers with a dict what the answers have said."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.known: dict[tuple[Kind, str], Object] = {}

    async def do(self, action: str, kind: Kind, name: str, value: int) -> None:
        obj = {"metadata": {"name": name, "finalizers": ["a/1"] if value == 3 else []}}
        try:
            match action:
                case "create":
                    new = await self.store.create(kind, {**obj, "spec": {"value": value}})
                case "patch":
                    patch: dict[str, Any] = {"spec": {"value": value}, "status": {"value": value}}
                    status = kind.status and value % 2 == 0
                    new = await self.store.patch(change(kind, _placed(obj), patch, status=status))
                case "finish":
                    patch = {"metadata": {"finalizers": []}}
                    new = await self.store.patch(change(kind, _placed(obj), patch))
                case _:
                    new = await self.store.delete(remove(kind, _placed(obj)))
        except (AlreadyExists, NotFound):
            return
        try:
            self.known[kind, name] = self.store.get(kind, key(name))
            assert self.known[kind, name] == new
        except NotFound:
            del self.known[kind, name]

    def assert_known(self, store: Store) -> None:
        found = {
            (kind, obj["metadata"]["name"]): obj
            for kind in (WORKFLOW, STORAGE)
            for obj in store.list(kind).items
        }
        assert found == self.known


def _placed(obj: dict[str, Any]) -> dict[str, Any]:
    return {**obj, "metadata": {**obj["metadata"], "namespace": "default"}}


actions = st.tuples(
    st.sampled_from(["create", "create", "patch", "patch", "finish", "delete"]),
    st.sampled_from([WORKFLOW, STORAGE]),
    st.sampled_from("abc"),
    st.integers(0, 3),
)


def at_once(held: int) -> int:
    """Rewrite a journal after whatever is appended to it."""
    return 0


@given(
    lives=st.lists(st.lists(actions, max_size=12), min_size=1, max_size=4), rewritten=st.booleans()
)
@settings(max_examples=60, deadline=None)
def test_what_was_answered_is_true_after_every_restart(
    lives: Sequence[Sequence[tuple[str, Kind, str, int]]], rewritten: bool
) -> None:
    """Whatever is done, and whether the journal is rewritten in between or not."""

    async def main() -> None:
        journal = MemoryJournal()
        known: dict[tuple[Kind, str], Object] = {}
        newest = 0
        for steps in lives:
            limit = at_once if rewritten else rewrite_limit
            async with stored(journal, limit=limit) as store:
                life = Life(store)
                life.known = known
                for step in steps:
                    await life.do(*step)
                    life.assert_known(restarted(journal))
                assert int(store.resource_version) >= newest
                newest = int(store.resource_version)
                assert int(restarted(journal).resource_version) == newest
                assert contents(restarted(journal)) == contents(store)

    virtual.run(main())


@virtually
async def test_versions_never_go_back_though_the_newest_object_is_gone() -> None:
    journal = HeldJournal()
    async with stored(journal) as store:
        made = await store.create(WORKFLOW, workflow())
    async with stored(journal, limit=at_once) as store:
        await store.delete(remove(WORKFLOW, made))
        newest = int(store.resource_version)
        journal.gate.clear()
        lost = asyncio.ensure_future(store.create(WORKFLOW, workflow("lost")))
        await asyncio.sleep(1)
        lost.cancel()
    assert journal.rewrites == 1
    journal.gate.set()
    async with stored(journal) as store:
        assert int(store.resource_version) == newest > version(made)
        assert version(await store.create(WORKFLOW, workflow())) > newest


@virtually
async def test_a_rewritten_journal_keeps_everything_and_is_short() -> None:
    journal = HeldJournal()
    async with stored(journal, limit=lambda held: max(100_000, held)) as store:
        made = await store.create(WORKFLOW, workflow())
        for number in range(1000):
            await store.patch(change(WORKFLOW, made, {"spec": {"jobID": number}}))
        assert journal.rewrites > 1
        assert len(journal.records) < 700
        assert contents(restarted(journal)) == contents(store)
        assert restarted(journal).resource_version == store.resource_version


@virtually
async def test_writes_during_a_rewrite_are_neither_lost_nor_seen_early() -> None:
    journal = HeldJournal()
    async with stored(journal):
        pass
    async with stored(journal, limit=at_once) as store:
        journal.rewrite_gate.clear()
        one = await store.create(WORKFLOW, workflow("one"))
        two = asyncio.ensure_future(store.create(WORKFLOW, workflow("two")))
        gone = asyncio.ensure_future(store.delete(remove(WORKFLOW, one)))
        await asyncio.gather(two, gone)
        assert journal.rewrites == 0

        journal.rewrite_gate.set()
        await asyncio.sleep(1)
        assert journal.rewrites == 1
        assert store.list(WORKFLOW).items == [two.result()]
        assert contents(restarted(journal)) == contents(store)


# Watches


@virtually
async def test_a_watcher_that_does_not_keep_up_is_closed_and_others_are_not() -> None:
    async with stored(history=History(max_backlog=5)) as store:
        slow = store.watch(WORKFLOW, store.resource_version)
        quick = asyncio.ensure_future(taken(store.watch(WORKFLOW, store.resource_version), 11))
        async with aclosing(slow):  # type: ignore[type-var]
            first = asyncio.ensure_future(anext(slow))
            await asyncio.sleep(1)
            for number in range(11):
                await store.create(WORKFLOW, workflow(f"w-{number}"))
                await asyncio.sleep(0)
            assert all(len(watcher._waiting) <= 6 for watcher in watchers(store))

            seen = [await first]
            with pytest.raises(Expired, match="keep up"):
                await read(slow, seen)
        # What it has seen has no gap: it may go on from there.
        assert [name for _, name in told(seen)] == [f"w-{number}" for number in range(6)]
        assert len(await quick) == 11
        since = seen[-1].object["metadata"]["resourceVersion"]
        rest = await taken(store.watch(WORKFLOW, since), 5)
        assert [name for _, name in told(rest)] == [f"w-{n}" for n in range(6, 11)]


@virtually
async def test_of_large_objects_fewer_changes_are_kept_and_may_wait() -> None:
    """A user who may write one large object writes it again and again."""
    async with stored(history=History(max_size=13_000)) as store:
        slow = store.watch(WORKFLOW, store.resource_version)
        async with aclosing(slow):  # type: ignore[type-var]
            first = asyncio.ensure_future(anext(slow))
            await asyncio.sleep(1)
            for number in range(11):
                large = workflow(f"w-{number}", labels={"large": "x" * 3000})
                await store.create(WORKFLOW, large)
                await asyncio.sleep(0)
            assert [watcher._waiting for watcher in watchers(store)] == [[]]
            assert (await first).object["metadata"]["name"] == "w-0"
            with pytest.raises(Expired, match="keep up"):
                await anext(slow)

        version = int(store.resource_version)
        with pytest.raises(Expired, match="too old"):
            await taken(store.watch(WORKFLOW, str(version - 4)), 4)
        kept = await taken(store.watch(WORKFLOW, str(version - 2)), 2)
        assert [name for _, name in told(kept)] == ["w-9", "w-10"]


@virtually
async def test_one_change_is_sent_however_large_it_is() -> None:
    async with stored(history=History(max_size=100)) as store:
        watch = store.watch(WORKFLOW, store.resource_version)
        async with aclosing(watch):  # type: ignore[type-var]
            first = asyncio.ensure_future(anext(watch))
            await asyncio.sleep(1)
            await store.create(WORKFLOW, workflow("w", labels={"large": "x" * 3000}))
            assert (await first).object["metadata"]["name"] == "w"


def test_what_takes_more_memory_than_its_record_is_counted_for_that() -> None:
    assert estimated_size(b'{"a": [' + b"{}," * 10_000 + b"{}]}") > 64 * 10_000


@virtually
async def test_a_closed_watch_leaves_nothing_behind() -> None:
    async with stored() as store:
        watch = LocalClient(store).watch(WORKFLOW, store.resource_version)
        watching = asyncio.ensure_future(taken(watch, 1))
        await asyncio.sleep(1)
        assert len(watchers(store)) == 1
        watching.cancel()
        await asyncio.wait({watching})
        assert watchers(store) == []

        since = store.resource_version
        await store.create(WORKFLOW, workflow())
        open_one = LocalClient(store).watch(WORKFLOW, since)
        await anext(open_one)
        assert len(watchers(store)) == 1
        await open_one.aclose()  # type: ignore[attr-defined]
        assert watchers(store) == []


@given(actions=st.lists(actions, max_size=30), since=st.integers(0, 30))
@settings(max_examples=60, deadline=None)
@virtually
async def test_a_watch_from_anywhere_leads_to_the_same_state(
    actions: Sequence[tuple[str, Kind, str, int]], since: int
) -> None:
    """A copy at some version, plus the events after it, is the state of today."""
    async with stored() as store:
        life = Life(store)
        for step in actions[:since]:
            await life.do(*step)
        listing = store.list(WORKFLOW)
        copy = {key_of(obj): obj for obj in listing.items}
        for step in actions[since:]:
            await life.do(*step)
        await store.create(WORKFLOW, workflow("end"))

        async for event in _until(store, listing.resource_version, "end"):
            copy.pop(key_of(event.object), None)
            if event.type != "DELETED":
                copy[key_of(event.object)] = event.object
        assert [copy[each] for each in sorted(copy)] == store.list(WORKFLOW).items


async def _until(store: Store, since: str, last: str) -> Any:
    newest = int(since)
    async with aclosing(store.watch(WORKFLOW, since)) as events:  # type: ignore[type-var]
        async for event in events:
            assert version(event.object) > newest
            newest = version(event.object)
            yield event
            if event.object["metadata"]["name"] == last:
                return


# Definitions


def definition(**rest: Any) -> dict[str, Any]:
    """Return the definition of a kind that is new."""
    spec = {
        "group": "toys.example",
        "names": {"kind": "Toy", "plural": "toys"},
        "scope": "Namespaced",
        "versions": [{"name": "v1", "served": True, "storage": True}],
        **rest,
    }
    return {
        "metadata": {"name": "toys.toys.example"},
        "spec": {name: value for name, value in spec.items() if value is not None},
    }


TOY = Kind("toys.example", "v1", "Toy", "toys")


@virtually
async def test_a_defined_kind_is_served_when_its_definition_is_durable() -> None:
    journal = HeldJournal()
    async with stored(journal) as store:
        journal.gate.clear()
        defining = asyncio.ensure_future(store.create(CRD, definition()))
        await asyncio.sleep(1)
        with pytest.raises(NotFound):
            store.list(TOY)
        with pytest.raises(NotFound):
            await store.create(TOY, workflow())

        journal.gate.set()
        crd = await defining
        conditions = {each["type"]: each["status"] for each in crd["status"]["conditions"]}
        assert conditions == {"NamesAccepted": "True", "Established": "True"}
        toy = await store.create(TOY, workflow())
        assert restarted(journal).get(TOY, key("w")) == toy


@pytest.mark.parametrize(
    "rest",
    [
        {"group": None},
        {"group": 1},
        {"names": {}},
        {"names": {"kind": "Toy", "plural": ["toys"]}},
        {"scope": None},
        {"versions": None},
        {"versions": [{}]},
        {"versions": [{"name": "v1", "served": False, "storage": True}]},
        {"versions": "v1"},
        {
            "versions": [
                {"name": "v1", "served": True, "storage": True, "additionalPrinterColumns": [{}]}
            ]
        },
    ],
    ids=str,
)
@virtually
async def test_a_definition_that_cannot_be_served_is_refused(rest: dict[str, Any]) -> None:
    """Once it is in the journal, no server would ever start again."""
    journal = MemoryJournal()
    async with stored(journal) as store:
        with pytest.raises(Refused, match="definition"):
            await store.create(CRD, definition(**rest))

        good = await store.create(CRD, definition())
        patch = {"spec": {name: value for name, value in definition(**rest)["spec"].items()}}
        patch["spec"].update({name: None for name in rest if name not in patch["spec"]})
        if rest != {"names": {}}:  # a patch to an empty object changes nothing
            with pytest.raises(Refused, match="definition"):
                await store.patch(change(CRD, good, patch))
        await store.create(TOY, workflow())
        assert contents(restarted(journal)) == contents(store)


@virtually
async def test_what_is_no_json_is_refused_and_blocks_no_other() -> None:
    deep: dict[str, Any] = {}
    for _ in range(300):
        deep = {"deeper": deep}
    async with stored() as store:
        made = await store.create(STORAGE, storage())
        for spec in (deep, {"value": object()}):
            with pytest.raises(Refused):
                await store.create(WORKFLOW, workflow(spec=spec))
            with pytest.raises(Refused):
                await store.patch(change(STORAGE, made, {"spec": spec}))
        seen = made["metadata"]["resourceVersion"]
        await store.patch(change(STORAGE, made, {"spec": {"state": "X"}}, resource_version=seen))
        await store.create(WORKFLOW, workflow())


def test_objects_come_back_from_a_file(tmp_path: Path) -> None:
    """The same with a real disk: group commits, a rewrite, a restart."""

    async def life(store: Store) -> dict[str, list[Object]]:
        async with alongside(store.run()):
            for number in range(3):
                names = [f"{number}-{each}" for each in range(20)]
                made = [store.create(NAMESPACE, {"metadata": {"name": name}}) for name in names]
                await asyncio.gather(*made)
        return contents(store)

    with SqliteJournal(tmp_path / "objects") as journal:
        before = asyncio.run(life(Store(journal, virtual.VirtualClock(), AdmitAll())))
    with SqliteJournal(tmp_path / "objects") as journal:
        after = Store(journal, virtual.VirtualClock(), AdmitAll())
        assert contents(after) == before
        assert len(before["namespaces"]) == 60
        records = [orjson.loads(record) for record in journal.replay()]
        assert [record[0] for record in records] == list(range(1, 61))
