"""Performing writes: what was done once before is as good as done."""

import pytest

from tests.journal.running import virtually
from tests.kube.clusters import change, key, remove, stored, workflow
from warren.base.objects import Create
from warren.dws.kinds import COMPUTES, WORKFLOW
from warren.kube.client import Conflict, NotFound
from warren.kube.perform import perform
from warren.kube.server.local import LocalClient

MAKE = Create(kind=WORKFLOW, object=workflow())
NEXT = Create(kind=COMPUTES, object=workflow("next"))


@virtually
async def test_writes_are_done_in_order() -> None:
    async with stored() as store:
        patch = change(WORKFLOW, workflow(), {"spec": {"jobID": 1}})
        await perform(LocalClient(store), [MAKE, patch, NEXT])
        assert store.get(WORKFLOW, key("w"))["spec"]["jobID"] == 1
        await perform(LocalClient(store), [remove(WORKFLOW, workflow()), MAKE])
        assert "jobID" not in store.get(WORKFLOW, key("w"))["spec"]


@pytest.mark.parametrize("done", [MAKE, remove(WORKFLOW, workflow("gone"))], ids=["made", "gone"])
@virtually
async def test_what_is_done_already_does_not_stop_the_rest(done: object) -> None:
    async with stored() as store:
        await store.create(WORKFLOW, workflow())
        await perform(LocalClient(store), [done, NEXT])  # type: ignore[list-item]
        assert store.get(COMPUTES, key("next"))


@virtually
async def test_a_change_of_what_is_gone_ends_it_in_silence() -> None:
    async with stored() as store:
        await perform(LocalClient(store), [change(WORKFLOW, workflow(), {"spec": {}}), NEXT])
        with pytest.raises(NotFound):
            store.get(COMPUTES, key("next"))


@virtually
async def test_a_conflict_ends_it_aloud() -> None:
    async with stored() as store:
        await store.create(WORKFLOW, workflow())
        stale = change(WORKFLOW, workflow(), {"spec": {"jobID": 1}}, resource_version="1")
        with pytest.raises(Conflict):
            await perform(LocalClient(store), [stale, NEXT])
        with pytest.raises(NotFound):
            store.get(COMPUTES, key("next"))


@virtually
async def test_what_was_made_and_what_was_changed_as_it_had_been_seen_is_returned() -> None:
    async with stored() as store:
        client = LocalClient(store)
        (made,) = await perform(client, [MAKE, MAKE])
        seen = {"resource_version": made["metadata"]["resourceVersion"]}
        blind = change(WORKFLOW, workflow(), {"spec": {"jobID": 2}})
        (changed,) = await perform(
            client, [change(WORKFLOW, workflow(), {"spec": {"jobID": 1}}, **seen), blind]
        )

        assert made["metadata"]["name"] == "w"
        assert changed["spec"]["jobID"] == 1
        assert await perform(client, [remove(WORKFLOW, workflow()), blind, MAKE]) == []
