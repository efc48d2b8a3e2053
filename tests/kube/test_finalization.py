"""Namespaces and definitions take what is in them along."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.harness import virtual
from tests.kube.clusters import alongside
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.daemons.clusterobjects import definitions
from warren.dws.kinds import STORAGE
from warren.journal import MemoryJournal
from warren.kube.admission import AdmitAll, Denied
from warren.kube.client import AlreadyExists, Expired, NotFound
from warren.kube.server.builtin import CRD, NAMESPACE
from warren.kube.server.embedded import EmbeddedApi
from warren.kube.server.store import Store

MAP = Kind("", "v1", "ConfigMap", "configmaps")
BLUE = Key("", "blue")
STORAGES = Key("", "storages.dataworkflowservices.github.io")


def embedded(story: Callable[[Store], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        async def life() -> None:
            made = EmbeddedApi(MemoryJournal(), virtual.VirtualClock())
            async with alongside(made.run()):
                await made.create_defaults()
                await made.store.create(NAMESPACE, {"metadata": {"name": "blue"}})
                for crd in definitions():
                    await made.store.create(CRD, crd)
                await story(made.store)

        virtual.run(life())

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


def named(name: str, **metadata: object) -> Object:
    return {"metadata": {"name": name, "namespace": "blue", **metadata}}


async def let_go(store: Store, name: str) -> None:
    patch = {"metadata": {"finalizers": None}}
    await store.patch(Change(kind=MAP, key=Key("blue", name), patch=patch))


@embedded
async def test_a_namespace_goes_with_all_that_is_in_it(store: Store) -> None:
    await store.create(MAP, named("a"))
    await store.create(STORAGE, {**named("rabbit"), "spec": {"state": "Enabled"}})

    await store.delete(Remove(kind=NAMESPACE, key=BLUE))
    await asyncio.sleep(1)

    with pytest.raises(NotFound):
        store.get(NAMESPACE, BLUE)
    assert store.list(MAP, "blue").items == store.list(STORAGE, "blue").items == []


@embedded
async def test_a_namespace_waits_for_the_last_of_its_objects_and_takes_nothing_new(
    store: Store,
) -> None:
    await store.create(MAP, named("a", finalizers=["x/y"]))
    await store.delete(Remove(kind=NAMESPACE, key=BLUE))
    await asyncio.sleep(100)

    waiting = store.get(NAMESPACE, BLUE)
    assert waiting["status"] == {"phase": "Terminating"}
    assert waiting["metadata"]["deletionTimestamp"]
    with pytest.raises(Denied, match="because it is being terminated"):
        await store.create(MAP, named("b"))

    await let_go(store, "a")
    await asyncio.sleep(1)
    with pytest.raises(NotFound):
        store.get(NAMESPACE, BLUE)


@embedded
async def test_what_was_made_while_its_namespace_went_goes_after_it(store: Store) -> None:
    admission = store._admission
    store._admission = AdmitAll()  # as if a webhook had taken until the namespace was gone
    await store.create(MAP, {"metadata": {"name": "late", "namespace": "gone"}})
    store._admission = admission
    await asyncio.sleep(1)

    assert store.list(MAP, "gone").items == []


@embedded
async def test_there_is_nothing_in_a_namespace_that_is_not_there(store: Store) -> None:
    with pytest.raises(NotFound, match='namespaces "nowhere" not found'):
        await store.create(MAP, {"metadata": {"name": "a", "namespace": "nowhere"}})


@embedded
async def test_the_namespaces_that_every_cluster_has_stay(store: Store) -> None:
    with pytest.raises(Denied, match='"default" is forbidden'):
        await store.delete(Remove(kind=NAMESPACE, key=Key("", "default")))


@embedded
async def test_a_definition_goes_with_its_objects_and_can_come_back_empty(store: Store) -> None:
    await store.create(STORAGE, {**named("rabbit"), "spec": {"state": "Enabled"}})

    await store.delete(Remove(kind=CRD, key=STORAGES))
    await asyncio.sleep(1)

    with pytest.raises(NotFound):
        store.get(CRD, STORAGES)
    with pytest.raises(NotFound):
        store.list(STORAGE)
    for crd in definitions():
        try:
            await store.create(CRD, crd)
        except AlreadyExists:
            continue
    assert store.list(STORAGE).items == []


@embedded
async def test_who_watches_what_is_not_served_any_more_is_told_so(store: Store) -> None:
    events = store.watch(STORAGE, store.resource_version)
    following = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)

    await store.delete(Remove(kind=CRD, key=STORAGES))

    with pytest.raises(Expired):
        await asyncio.wait_for(following, 5)
