"""The recorder of Kubernetes Events, alone: what is told of, when, and how often."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, informed, running
from tests.dws.builders import JOBDW, meta, raw_workflow
from warren.base.objects import Key
from warren.controllers.events import EventRecorder
from warren.dws import kinds, labels
from warren.kube.client import Forbidden

KEY = Key("default", "wf")
RABBIT = Key("default", "r0")
ABOUT = (kinds.WORKFLOW.plural, KEY)


def recorded(story: Callable[[Api], Awaitable[None]]) -> None:
    async def main(api: Api) -> None:
        recorder = EventRecorder(api, api.informers, api.clock)
        async with running(api, recorder.reconciler.run()):
            await story(api)

    alone(main)


async def trouble(api: Api, status: str, message: str = "no flash") -> None:
    told = {"status": {"status": status, "message": message}}
    await api.change(kinds.WORKFLOW, KEY, told, status=True)


async def rabbit(api: Api, status: str) -> None:
    if api.find(kinds.STORAGE, RABBIT) is None:
        await api.add(kinds.STORAGE, {"metadata": meta("r0", "default"), "spec": {}})
    await api.change(kinds.STORAGE, RABBIT, {"status": {"status": status}}, status=True)


def told(api: Api) -> list[tuple[str, str, int]]:
    """Return the kind of each Event, its words, and how often it came."""
    every: Any = api.store.objects_of(kinds.EVENT)
    return sorted((each["type"], each["message"], each["count"]) for each in every)


def asked(api: Api) -> int:
    return len(api.written) + len(api.asked)


def test_the_trouble_of_a_workflow_is_told_once_for_as_long_as_it_lasts() -> None:
    async def story(api: Api) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup"))
        assert asked(api) == 0
        await trouble(api, "TransientCondition")
        assert told(api) == [("Warning", "Setup: no flash", 1)]
        before = asked(api)
        await api.change(kinds.WORKFLOW, KEY, {"metadata": {"labels": {"a": "b"}}})
        assert asked(api) == before

    recorded(story)


def test_trouble_that_comes_back_is_counted_with_its_time() -> None:
    async def story(api: Api) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup"))
        await trouble(api, "DriverWait")
        await trouble(api, "TransientCondition")
        await trouble(api, "DriverWait")
        await asyncio.sleep(60)
        await trouble(api, "TransientCondition")
        assert told(api) == [("Warning", "Setup: no flash", 2)]
        (event,) = api.store.objects_of(kinds.EVENT)
        assert event["lastTimestamp"] > event["firstTimestamp"]

    recorded(story)


def test_trouble_that_was_told_before_a_restart_is_not_counted_again() -> None:
    async def main(api: Api) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup"))
        await trouble(api, "Error")
        for _ in range(2):
            recorder = EventRecorder(api, api.informers, api.clock)
            async with running(api, recorder.reconciler.run()):
                pass
        assert told(api) == [("Warning", "Setup: no flash", 1)]

    alone(main)


def test_a_namesake_is_told_of_as_what_is_new() -> None:
    async def main(api: Api) -> None:
        recorder = EventRecorder(api, api.informers, api.clock)
        async with informed(api):
            for _ in range(2):
                bad = {"status": "Error", "message": "no flash"}
                await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup", status=bad))
                await recorder.reconcile(ABOUT)
                await api.change(kinds.WORKFLOW, KEY, {"metadata": {"finalizers": []}})
                await api.remove(kinds.WORKFLOW, KEY)
                await recorder.reconcile(ABOUT)
        # Each has an Event of its own: its UID is another one.
        assert told(api) == [("Warning", "Setup: no flash", 1)] * 2

    alone(main)


def test_a_workflow_that_lives_well_is_not_looked_at() -> None:
    async def main(api: Api) -> None:
        recorder = EventRecorder(api, api.informers, api.clock)
        async with informed(api):
            woken: list[tuple[str, Key]] = []
            recorder.reconciler.add = woken.append  # type: ignore[method-assign, assignment]
            await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup"))
            assert woken == []
            marked = {"metadata": {"annotations": {labels.ABORTED: "then"}}}
            await api.change(kinds.WORKFLOW, KEY, marked)
        assert woken == [ABOUT]

    alone(main)


@pytest.mark.parametrize("label", [labels.ABORTED, labels.LOST_NODES])
def test_what_annotations_say_is_told_of_a_workflow_that_lives_well(label: str) -> None:
    async def story(api: Api) -> None:
        await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup"))
        await api.change(kinds.WORKFLOW, KEY, {"metadata": {"annotations": {label: "n1"}}})
        ((kind, _, count),) = told(api)
        assert (kind, count) == ("Warning", 1)

    recorded(story)


def test_a_rabbit_that_is_well_is_told_of_only_when_it_was_not() -> None:
    async def story(api: Api) -> None:
        await rabbit(api, "Ready")
        assert told(api) == [("Normal", "flash is given to jobs", 1)]

    async def known(api: Api) -> None:
        status = {"status": "Ready"}
        await api.add(
            kinds.STORAGE, {"metadata": meta("r0", "default"), "spec": {}, "status": status}
        )
        recorder = EventRecorder(api, api.informers, api.clock)
        async with running(api, recorder.reconciler.run()):
            assert told(api) == []
            await rabbit(api, "Failed")
            await rabbit(api, "Ready")
        assert told(api) == [
            ("Normal", "flash is given to jobs", 1),
            ("Warning", "is Failed", 1),
        ]

    recorded(story)
    alone(known)


def test_an_event_that_may_not_be_written_keeps_nothing_up() -> None:
    async def story(api: Api) -> None:
        api.refusals["create", kinds.EVENT] = Forbidden("no role")
        await api.add(kinds.WORKFLOW, raw_workflow(JOBDW, state="Setup"))
        await trouble(api, "Error")
        assert told(api) == []
        await trouble(api, "Error", "another")
        assert told(api) == [("Warning", "Setup: another", 1)]

    recorded(story)
