"""Dependents go with their owners, before them, or not at all, as the deleting client asks."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import virtual
from tests.kube.clusters import alongside
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.journal import Journal, MemoryJournal
from warren.kube.client import NotFound
from warren.kube.server.builtin import NAMESPACE
from warren.kube.server.embedded import EmbeddedApi
from warren.kube.server.writing import Propagation, WriteOptions

MAP = Kind("", "v1", "ConfigMap", "configmaps")


class Family:
    """A store with objects that own each other; told by their names."""

    def __init__(self, embedded: EmbeddedApi) -> None:
        self.store = embedded.store

    async def born(
        self, name: str, *owners: Object, blocks: bool = False, **metadata: Any
    ) -> Object:
        references = [
            {
                "apiVersion": "v1",
                "kind": each["kind"],
                "name": each["metadata"]["name"],
                "uid": each["metadata"]["uid"],
                **({"blockOwnerDeletion": True} if blocks else {}),
            }
            for each in owners
        ]
        about = {"name": name, **metadata}
        if references:
            about["ownerReferences"] = references
        return await self.store.create(MAP, {"metadata": about})

    async def delete(self, name: str, propagation: Propagation | None = None) -> None:
        remove = Remove(kind=MAP, key=Key("default", name))
        await self.store.delete(remove, WriteOptions(propagation=propagation))

    async def settle(self) -> set[str]:
        """Wait until nothing more happens; return the names of those that are there."""
        await asyncio.sleep(120)
        return {obj["metadata"]["name"] for obj in self.store.list(MAP, "default").items}

    def get(self, name: str) -> Object:
        return self.store.get(MAP, Key("default", name))

    async def let_go(self, name: str) -> None:
        patch = {"metadata": {"finalizers": None}}
        await self.store.patch(Change(kind=MAP, key=Key("default", name), patch=patch))


def lived(story: Callable[[Family], Awaitable[None]], journal: Journal | None = None) -> None:
    async def life() -> None:
        embedded = EmbeddedApi(journal or MemoryJournal(), virtual.VirtualClock())
        async with alongside(embedded.run()):
            await embedded.create_defaults()
            await story(Family(embedded))

    virtual.run(life())


def family(story: Callable[[Family], Awaitable[None]]) -> Callable[[], None]:
    def test() -> None:
        lived(story)

    test.__name__, test.__doc__ = story.__name__, story.__doc__
    return test


@family
async def test_dependents_go_after_their_owner_and_theirs_after_them(all: Family) -> None:
    grandmother = await all.born("grandmother")
    mother = await all.born("mother", grandmother)
    await all.born("daughter", mother)
    await all.born("stranger")

    await all.delete("grandmother")

    assert await all.settle() == {"stranger"}


@family
async def test_who_has_another_owner_lives_on_and_forgets_the_one_that_is_gone(
    all: Family,
) -> None:
    one, other = await all.born("one"), await all.born("other")
    await all.born("child", one, other)

    await all.delete("one")

    assert await all.settle() == {"other", "child"}
    owners = all.get("child")["metadata"]["ownerReferences"]
    assert [each["uid"] for each in owners] == [other["metadata"]["uid"]]


@family
async def test_who_names_an_owner_that_never_was_is_collected(all: Family) -> None:
    ghost: Object = {"kind": "ConfigMap", "metadata": {"name": "ghost", "uid": "no-such-uid"}}
    await all.born("orphan", ghost)

    assert await all.settle() == set()


@family
async def test_a_new_object_of_the_owners_name_is_not_the_owner(all: Family) -> None:
    first = await all.born("owner")
    await all.born("child", first)
    await all.delete("owner")
    await all.born("owner")

    assert await all.settle() == {"owner"}


@family
async def test_an_owner_in_the_foreground_goes_after_those_that_block_it(all: Family) -> None:
    owner = await all.born("owner")
    await all.born("child", owner, blocks=True, finalizers=["x/y"])

    await all.delete("owner", "Foreground")

    assert await all.settle() == {"owner", "child"}
    assert all.get("owner")["metadata"]["finalizers"] == ["foregroundDeletion"]
    assert all.get("child")["metadata"]["deletionTimestamp"]
    await all.let_go("child")
    assert await all.settle() == set()


@family
async def test_an_owner_in_the_foreground_does_not_wait_for_those_that_do_not_block(
    all: Family,
) -> None:
    owner = await all.born("owner")
    await all.born("child", owner, finalizers=["x/y"])

    await all.delete("owner", "Foreground")

    assert await all.settle() == {"child"}
    assert all.get("child")["metadata"]["deletionTimestamp"]


@family
async def test_dependents_of_dependents_go_first_in_the_foreground(all: Family) -> None:
    owner = await all.born("owner")
    child = await all.born("child", owner, blocks=True)
    await all.born("grandchild", child, blocks=True, finalizers=["x/y"])

    await all.delete("owner", "Foreground")

    assert await all.settle() == {"owner", "child", "grandchild"}
    await all.let_go("grandchild")
    assert await all.settle() == set()


@family
async def test_orphans_stay_and_forget_their_owner(all: Family) -> None:
    owner = await all.born("owner")
    await all.born("child", owner)

    await all.delete("owner", "Orphan")

    assert await all.settle() == {"child"}
    assert "ownerReferences" not in all.get("child")["metadata"]


@family
async def test_nothing_is_owned_across_namespaces(all: Family) -> None:
    await all.store.create(NAMESPACE, {"metadata": {"name": "far"}})
    owner = await all.born("owner", namespace="far")
    await all.born("child", owner)

    assert await all.settle() == set()


def test_what_lost_its_owner_during_an_outage_is_collected_at_the_next_start() -> None:
    journal = MemoryJournal()

    async def first() -> None:
        """Stops at the moment at which the owner is gone, and its dependent not yet."""
        embedded = EmbeddedApi(journal, virtual.VirtualClock())
        async with alongside(embedded.store.run()):
            await embedded.create_defaults()
            family = Family(embedded)
            await family.born("child", await family.born("owner"))
            await family.delete("owner")

    async def second(family: Family) -> None:
        assert await family.settle() == set()

    virtual.run(first())
    lived(second, journal)


POLICIES: Sequence[Propagation | None] = (None, "Background", "Foreground", "Orphan")


@settings(max_examples=60, deadline=None)
@given(
    parents=st.lists(st.lists(st.integers(0, 30), max_size=3), min_size=1, max_size=8),
    blocking=st.lists(st.booleans(), min_size=8, max_size=8),
    deletions=st.lists(
        st.tuples(st.integers(0, 7), st.sampled_from(POLICIES)), min_size=1, max_size=4
    ),
)
def test_in_the_end_no_object_names_an_owner_that_is_gone_nor_waits_for_ever(
    parents: list[list[int]],
    blocking: list[bool],
    deletions: list[tuple[int, Propagation | None]],
) -> None:
    async def story(family: Family) -> None:
        born: list[Object] = []
        for number, choices in enumerate(parents):
            owners = {choice % number: born[choice % number] for choice in choices if number}
            made = await family.born(f"m{number}", *owners.values(), blocks=blocking[number])
            born.append(made)
        for number, policy in deletions:
            with suppress(NotFound):
                await family.delete(f"m{number % len(parents)}", policy)
        await family.settle()
        left = family.store.list(MAP, "default").items
        uids = {obj["metadata"]["uid"] for obj in left}
        for obj in left:
            assert "deletionTimestamp" not in obj["metadata"]
            owners_left = obj["metadata"].get("ownerReferences", ())
            assert {each["uid"] for each in owners_left} <= uids

    lived(story)


@pytest.mark.parametrize("policy", POLICIES)
def test_an_owner_without_dependents_goes_at_once(policy: Propagation | None) -> None:
    async def story(family: Family) -> None:
        await family.born("owner")
        await family.delete("owner", policy)
        assert await family.settle() == set()

    lived(story)
