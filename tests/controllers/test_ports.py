"""The controller of NnfPortManagers: what wakes it."""

import asyncio
from collections.abc import Awaitable, Callable

from tests.controllers.alone import Api, alone, informed, running
from tests.dws.builders import meta
from warren.base.objects import Key
from warren.controllers.ports import PortController
from warren.dws import kinds
from warren.dws.containers.ports import MANAGER_KEY

WORKFLOW = {
    "metadata": meta("wf"),
    "spec": {"desiredState": "Setup", "dwDirectives": [], "jobID": 1},
}
SYSTEM = {
    "metadata": meta("default"),
    "spec": {"ports": ["5000-5001"], "portsCooldownInSeconds": 30},
}


def with_controller(story: Callable[[Api], Awaitable[None]]) -> None:
    async def main(api: Api) -> None:
        controller = PortController(api, api.informers, api.clock)
        async with running(api, controller.reconciler.run()):
            await story(api)

    alone(main)


def manager(api: Api, count: int) -> dict[str, object]:
    uid = api.find(kinds.WORKFLOW, Key("default", "wf"))["metadata"]["uid"]
    requester = {"kind": "Workflow", "name": "wf", "namespace": "default", "uid": uid}
    where = {"kind": "SystemConfiguration", "name": "default", "namespace": "default"}
    return {
        "metadata": {"name": MANAGER_KEY.name, "namespace": MANAGER_KEY.namespace},
        "spec": {
            "systemConfiguration": where,
            "allocations": [{"requester": requester, "count": count}],
        },
    }


def answers(api: Api) -> list[tuple[str, list[int]]]:
    status = api.find(kinds.PORT_MANAGER, MANAGER_KEY)["status"]
    return [(each["status"], each.get("ports", [])) for each in status["allocations"]]


def test_who_asks_is_answered_when_the_system_has_ports() -> None:
    async def story(api: Api) -> None:
        await api.add(kinds.WORKFLOW, WORKFLOW)
        await api.add(kinds.PORT_MANAGER, manager(api, 2))
        status = api.find(kinds.PORT_MANAGER, MANAGER_KEY)["status"]
        assert status["status"] == "SystemConfigurationNotFound"
        await api.add(kinds.SYSTEM_CONFIGURATION, SYSTEM)
        assert answers(api) == [("InUse", [5000, 5001])]

    with_controller(story)


def test_ports_of_a_workflow_that_was_removed_are_free_after_the_cooldown() -> None:
    async def story(api: Api) -> None:
        await api.add(kinds.SYSTEM_CONFIGURATION, SYSTEM)
        await api.add(kinds.WORKFLOW, WORKFLOW)
        await api.add(kinds.PORT_MANAGER, manager(api, 2))
        await api.remove(kinds.WORKFLOW, Key("default", "wf"))
        assert api.find(kinds.PORT_MANAGER, MANAGER_KEY)["spec"]["allocations"] == []
        assert answers(api) == [("Cooldown", [5000, 5001])]
        await asyncio.sleep(31)
        assert answers(api) == []

    with_controller(story)


def test_news_of_workflows_that_ask_for_no_ports_wake_no_manager() -> None:
    async def main(api: Api) -> None:
        controller = PortController(api, api.informers, api.clock)
        for name in ("wf", "other"):
            await api.add(kinds.WORKFLOW, {**WORKFLOW, "metadata": meta(name)})
        await api.add(kinds.PORT_MANAGER, manager(api, 2))
        async with informed(api):
            woken: list[Key] = []
            controller.reconciler.add = woken.append  # type: ignore[method-assign, assignment]
            await api.change(
                kinds.WORKFLOW, Key("default", "wf"), {"metadata": {"labels": {"a": "b"}}}
            )
            await api.remove(kinds.WORKFLOW, Key("default", "other"))
            assert woken == []
            await api.remove(kinds.WORKFLOW, Key("default", "wf"))
            assert woken == [MANAGER_KEY]

    alone(main)


def test_a_manager_that_is_gone_is_nothing_to_do() -> None:
    async def main(api: Api) -> None:
        controller = PortController(api, api.informers, api.clock)
        async with informed(api):
            assert await controller.reconcile(MANAGER_KEY) is None

    alone(main)
