"""The way back of one rabbit, alone: when it is tested, and when it is not."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.controllers.alone import WORKFLOW as OF_A_WORKFLOW
from tests.controllers.alone import Api, Hidden, alone, caught_up, running
from tests.dws.builders import JOBDW, meta, raw_workflow
from warren.base.objects import Change, Key, Kind, Remove
from warren.conductor.returntoservice import ReturnToService
from warren.dws import kinds, labels
from warren.dws.jobs import abort
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import Storage
from warren.dws.objects.workflows import Workflow
from warren.dws.rabbits import outofservice, selftest
from warren.dws.rabbits.outofservice import ServiceAction

RABBIT = Key("default", "r0")
WORKFLOW = Key("default", "fluxjob-7")
TEST = selftest.test_key("r0")

Story = Callable[[Api, ReturnToService], Awaitable[None]]


def returned(story: Story, *, enabled: bool = True, hidden: Hidden = ()) -> None:
    async def main(api: Api) -> None:
        returning = ReturnToService(api, api.informers, api.clock, enabled=enabled)
        raw = raw_workflow(
            JOBDW, state="PostRun", metadata={"name": WORKFLOW.name, "finalizers": []}
        )
        await api.add(kinds.WORKFLOW, raw)
        await api.add(kinds.STORAGE, {"metadata": meta("r0", "default"), "spec": {}})
        async with running(api, returning.reconciler.run()):
            await story(api, returning)

    alone(main, hidden=hidden)


async def disabled(api: Api, *, by: str = abort.DISABLED_BY, workflow: Key = WORKFLOW) -> None:
    """Disable it as `dws.abort` does: its Workflow is marked afterwards."""
    storage = read(api.find(kinds.STORAGE, RABBIT), Storage)
    change = outofservice.change(storage, ServiceAction.DISABLE, by=by, now=0.0, reason="bad")
    await api.patch(outofservice.annotate(change, {labels.DISABLED_FOR: str(workflow)}))
    await caught_up()


def made(api: Api) -> list[Any]:
    return list(api.store.objects_of(kinds.NNF_STORAGE))


def test_it_is_not_tested_before_the_storage_is_gone_and_enabled_after_the_test() -> None:
    async def story(api: Api, returning: ReturnToService) -> None:
        await disabled(api)
        assert made(api) == []
        workflow = read(api.find(kinds.WORKFLOW, WORKFLOW), Workflow)
        await api.patch(abort.mark_aborted(workflow, None, 0.0))
        await caught_up()
        assert made(api) == []

        await api.delete(Remove(kind=kinds.WORKFLOW, key=WORKFLOW))
        await caught_up()
        assert [each["metadata"]["name"] for each in made(api)] == [TEST.name]
        await api.change(kinds.NNF_STORAGE, TEST, {"status": {"ready": True}}, status=True)
        await caught_up()
        assert api.find(kinds.STORAGE, RABBIT)["spec"]["state"] == "Disabled"
        done: Any = {"metadata": {"finalizers": []}}
        await api.patch(Change(kind=kinds.NNF_STORAGE, key=TEST, patch=done))
        await caught_up()
        found = api.find(kinds.STORAGE, RABBIT)
        assert found["spec"]["state"] == "Enabled"
        assert not found["metadata"].get("annotations")

    returned(story)


@pytest.mark.parametrize(("enabled", "by"), [(False, abort.DISABLED_BY), (True, "ann")])
def test_where_a_site_does_not_want_it_or_an_admin_has_disabled_it_nothing_is_done(
    enabled: bool, by: str
) -> None:
    async def story(api: Api, returning: ReturnToService) -> None:
        await api.delete(Remove(kind=kinds.WORKFLOW, key=WORKFLOW))
        await disabled(api, by=by)
        assert made(api) == []

    returned(story, enabled=enabled)


def test_a_test_that_is_not_wanted_any_more_is_taken_away() -> None:
    async def story(api: Api, returning: ReturnToService) -> None:
        await api.delete(Remove(kind=kinds.WORKFLOW, key=WORKFLOW))
        await disabled(api)
        assert len(made(api)) == 1
        returning.configure(enabled=False)
        await caught_up()
        assert "deletionTimestamp" in made(api)[0]["metadata"]

    returned(story)


def test_a_test_is_made_when_what_has_its_name_and_is_going_is_gone() -> None:
    async def story(api: Api, returning: ReturnToService) -> None:
        theirs = {**meta(TEST.name, TEST.namespace), "finalizers": ["theirs"]}
        await api.add(kinds.NNF_STORAGE, {"metadata": theirs, "spec": {}})
        await api.delete(Remove(kind=kinds.NNF_STORAGE, key=TEST))
        await api.delete(Remove(kind=kinds.WORKFLOW, key=WORKFLOW))
        await disabled(api)
        (going,) = made(api)
        assert going["metadata"].get("labels") is None
        assert (
            "self-test"
            not in api.find(kinds.STORAGE, RABBIT)["metadata"]["annotations"][labels.DISABLED]
        )
        done: Any = {"metadata": {"finalizers": []}}
        await api.patch(Change(kind=kinds.NNF_STORAGE, key=TEST, patch=done))
        await caught_up()
        (test,) = made(api)
        assert test["metadata"]["labels"][labels.SELF_TEST] == RABBIT.name

    returned(story)


def test_servers_that_went_while_their_watch_was_down_hold_a_rabbit_no_longer() -> None:
    unseen: set[Kind | tuple[Kind, Key]] = set()

    async def story(api: Api, returning: ReturnToService) -> None:
        workflow = read(api.find(kinds.WORKFLOW, WORKFLOW), Workflow)
        await api.patch(abort.mark_aborted(workflow, None, 0.0))
        of_it = {**OF_A_WORKFLOW, labels.WORKFLOW_NAME: WORKFLOW.name}
        share = {"allocationSize": 1, "label": "xfs", "storage": [{"name": RABBIT.name}]}
        await api.add(
            kinds.SERVERS,
            {
                "metadata": {**meta("fluxjob-7-0", "default"), "labels": of_it},
                "spec": {"allocationSets": [share]},
            },
        )
        await disabled(api, workflow=Key("default", "fluxjob-6"))
        assert made(api) == []

        unseen.add(kinds.SERVERS)
        await api.remove(kinds.SERVERS, Key("default", "fluxjob-7-0"))
        unseen.clear()
        assert api.find(kinds.SERVERS, Key("default", "fluxjob-7-0")) is None
        assert made(api) == []
        await api.informers.of(kinds.SERVERS)._list()
        await caught_up()
        assert [each["metadata"]["name"] for each in made(api)] == [TEST.name]

    returned(story, hidden=unseen)
