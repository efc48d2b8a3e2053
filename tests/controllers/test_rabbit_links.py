"""What the controllers make of what nodes say of their links, and whom they ask for that.

What a node's word counts for is decided in `dws.rabbits.links`.
"""

import asyncio
import json
from typing import Any

import pytest

from tests.controllers.alone import Api, Counting, caught_up, running
from tests.controllers.test_rabbits import (
    CONFIGURATION,
    configuration,
    homes,
    lease,
    node,
    spaces,
    told,
    two_ready,
    with_controller,
)
from tests.dws.builders import meta
from warren.base.objects import Key, Kind, Object
from warren.controllers.rabbits import SystemController
from warren.dws import kinds, labels
from warren.dws.rabbits import links
from warren.dws.rabbits.rabbitstorages import NNF_NODE_NAME
from warren.kube.client import NotFound, Unavailable
from warren.kube.runtime import Outcome

SILENT = "r0 port 4420: no answer within 5 s"


def asked(rabbit: str = "r0", **annotations: str) -> dict[str, Any]:
    said = {labels.RABBIT: rabbit, **annotations}
    return {
        "metadata": meta(links.NNF_NODE_NAME, "n0", annotations=said),
        "spec": {"state": "Enable"},
    }


def over_network(rabbit: str) -> dict[str, Any]:
    found = node(rabbit)
    found["metadata"]["annotations"] = {labels.NETWORK: "true"}
    return found


async def two_reached(api: Api) -> None:
    await spaces(api)
    await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
    await api.add(kinds.NNF_NODE, over_network("r0"))
    await api.add(kinds.NNF_NODE, node("r1"))


async def settle(api: Api, moment: int = 0) -> None:
    """Renew the Lease of r0 until what its nodes say counts."""
    for second in range(0, 60, 10):
        await lease(api, "r0", "r0", moment + second)
        await asyncio.sleep(9.0)
    await lease(api, "r0", "r0", moment + 60)


async def say(api: Api, compute: str, why: str | None, rabbit: str = "r0") -> None:
    """Say of a node's link what its agent would."""
    text = None if why is None else json.dumps({"rabbit": rabbit, "since": "then", "why": why})
    patch: Any = {"metadata": {"annotations": {labels.LOST_LINK: text}}}
    await api.change(kinds.NNF_NODE, Key(compute, links.NNF_NODE_NAME), patch)


def statuses(api: Api, rabbit: str) -> list[str]:
    return [each["status"] for each in told(api, rabbit)["access"]["computes"]]


def why_lost(api: Api, rabbit: str) -> Any:
    found = api.find(kinds.STORAGE, Key("default", rabbit))["metadata"].get("annotations", {})
    return json.loads(found.get(labels.LOST_LINKS, "{}"))


def test_the_nodes_of_a_rabbit_on_a_network_are_asked_to_test_their_links_and_no_others() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_reached(api)
            own = [f"{each}/{links.NNF_NODE_NAME}" for each in ("n0", "n1")]
            rabbits = [f"{each}/{NNF_NODE_NAME}" for each in ("r0", "r1")]
            assert api.keys(kinds.NNF_NODE) == [*own, *rabbits]
            # One that is deleted is made again.
            await api.remove(kinds.NNF_NODE, Key("n1", links.NNF_NODE_NAME))
            assert api.keys(kinds.NNF_NODE) == [*own, *rabbits]

            before = len(api.written)
            moved = {"spec": configuration({"r0": ("n0",), "r1": ("n1", "n2")})["spec"]}
            await api.change(kinds.SYSTEM_CONFIGURATION, CONFIGURATION, moved)
            said = {"metadata": {"annotations": {labels.NETWORK: "true"}}}
            await api.change(kinds.NNF_NODE, Key("r1", NNF_NODE_NAME), said)
            found = api.find(kinds.NNF_NODE, Key("n1", links.NNF_NODE_NAME))
            assert found["metadata"]["annotations"] == {labels.RABBIT: "r1"}
            written = [key for _, kind, key in api.written[before:] if kind == kinds.NNF_NODE]
            assert sorted(written) == [
                Key("n1", links.NNF_NODE_NAME),
                Key("n2", links.NNF_NODE_NAME),
            ]

    with_controller(story)


def test_a_lost_link_shows_in_the_storage_of_its_rabbit_with_its_reason_until_it_is_back() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        async with running(api, controller.reconciler.run()):
            await two_reached(api)
            await settle(api)
            before, written = len(passes), len(api.written)
            await say(api, "n1", SILENT)
            assert (statuses(api, "r0"), statuses(api, "r1")) == (["Ready", "Offline"], ["Ready"])
            assert why_lost(api, "r0") == {"n1": {"since": "then", "why": SILENT}}
            assert told(api, "r0")["status"] == "Ready"
            # News of the node, of the reason, and of the status: no look at any other rabbit.
            assert len(passes) == before + 3
            assert {key for _, _, key in api.written[written:]} == {Key("default", "r0")}

            await say(api, "n1", None)
            assert statuses(api, "r0") == ["Ready", "Ready"]
            assert why_lost(api, "r0") == {}

    with_controller(story)


def test_what_was_said_while_no_controller_ran_shows_when_one_does() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        await two_reached(api)
        await api.add(kinds.NNF_NODE, asked())
        await say(api, "n0", SILENT)
        async with running(api, controller.reconciler.run()):
            await settle(api)
            assert statuses(api, "r0") == ["Offline", "Ready"]

    with_controller(story)


def test_a_node_says_nothing_of_another_nodes_link_nor_of_another_rabbits() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_reached(api)
            await settle(api)
            lies = {"metadata": {"annotations": {labels.RABBIT: "r1"}}}
            await say(api, "n0", "all is lost", rabbit="r1")
            await api.change(kinds.NNF_NODE, Key("n0", links.NNF_NODE_NAME), lies)
            foreign = asked("r1", **{labels.LOST_LINK: '{"rabbit": "r1"}'})
            await api.add(kinds.NNF_NODE, {**foreign, "metadata": {**meta(NNF_NODE_NAME, "n0")}})
            assert (statuses(api, "r0"), statuses(api, "r1")) == (["Ready"] * 2, ["Ready"])
            found = api.find(kinds.NNF_NODE, Key("n0", links.NNF_NODE_NAME))
            assert found["metadata"]["annotations"][labels.RABBIT] == "r0"

    with_controller(story)


def test_a_rabbit_that_is_offline_loses_no_link_and_keeps_those_that_were_lost() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_reached(api)
            await settle(api)
            await say(api, "n0", SILENT)
            await lease(api, "r0", "", 100)
            await caught_up()
            await say(api, "n1", SILENT)
            assert told(api, "r0")["status"] == "Offline"
            assert statuses(api, "r0") == ["Offline", "Ready"]
            await say(api, "n0", None)
            assert statuses(api, "r0") == ["Ready", "Ready"]
            await settle(api, 200)
            assert statuses(api, "r0") == ["Ready", "Offline"]

    with_controller(story)


def test_a_rabbit_that_is_back_gives_its_nodes_the_time_to_say_so_before_links_are_lost() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_reached(api)
            await settle(api)
            await asyncio.sleep(60.0)
            for compute in ("n0", "n1"):
                await say(api, compute, SILENT)
            assert told(api, "r0")["status"] == "Offline"
            await lease(api, "r0", "r0", 200)
            await caught_up()
            assert told(api, "r0")["status"] == "Ready"
            assert (statuses(api, "r0"), why_lost(api, "r0")) == (["Ready", "Ready"], {})
            await say(api, "n0", None)
            await settle(api, 210)
            assert statuses(api, "r0") == ["Ready", "Offline"]

    with_controller(story)


def test_controllers_that_start_while_a_rabbit_has_no_power_lose_none_of_its_links() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_reached(api)
            await settle(api)
        await asyncio.sleep(60.0)
        for compute in ("n0", "n1"):
            await say(api, compute, SILENT)
        again = SystemController(api, api.informers)
        async with running(api, again.reconciler.run()):
            await caught_up()
            for seconds, status in ((30.0, "Ready"), (30.0, "Offline"), (3600.0, "Offline")):
                assert statuses(api, "r0") == ["Ready", "Ready"]
                await asyncio.sleep(seconds)
                assert told(api, "r0")["status"] == status
            assert (statuses(api, "r0"), why_lost(api, "r0")) == (["Ready", "Ready"], {})

    with_controller(story)


def test_a_rabbit_with_links_of_its_own_asks_its_nodes_nothing() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await two_ready(api)
            await api.add(kinds.NNF_NODE, asked(**{labels.LOST_LINK: '{"rabbit": "r0"}'}))
            assert statuses(api, "r0") == ["Ready", "Ready"]
            assert not [key for _, kind, key in api.written if kind == kinds.NNF_NODE]

    with_controller(story)


def test_a_node_that_cannot_be_asked_yet_keeps_no_storage_from_being_ready() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            before = len(api.written)
            api.refusals["create", kinds.NNF_NODE] = Unavailable("the namespace n0 is not there")
            await api.add(kinds.NNF_NODE, over_network("r0"))
            assert told(api, "r0")["status"] == "Ready"
            await asyncio.sleep(10.0)
            assert f"n0/{links.NNF_NODE_NAME}" in api.keys(kinds.NNF_NODE)
            order = [(verb, kind) for verb, kind, _ in api.written[before:]]
            assert order.index(("status", kinds.STORAGE)) < order.index(("create", kinds.NNF_NODE))

    with_controller(story)


@pytest.mark.parametrize("there", [False, True], ids=["missing", "on its way out"])
def test_a_node_without_a_namespace_is_asked_once_it_has_one_and_nothing_waits_for_it(
    monkeypatch: pytest.MonkeyPatch, there: bool
) -> None:
    async def story(api: Api, controller: SystemController) -> None:
        passes: list[Any] = []
        controller.reconciler.observe(Counting(passes))
        refused = not there
        create = api.create

        async def as_kubernetes(kind: Kind, obj: Object) -> Object:
            if kind == kinds.NAMESPACE and refused and obj["metadata"]["name"] == "n0":
                raise Unavailable("later")
            if kind == kinds.NNF_NODE and obj["metadata"]["namespace"] not in homes(api):
                raise NotFound("there is no such namespace")
            return await create(kind, obj)

        monkeypatch.setattr(api, "create", as_kubernetes)
        if there:
            leaving = {"name": "n0", "deletionTimestamp": "now"}
            await api.add(kinds.NAMESPACE, {"metadata": leaving})
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration())
            await api.add(kinds.NNF_NODE, over_network("r0"))
            await lease(api, "r0", "r0")
            assert f"n1/{links.NNF_NODE_NAME}" in api.keys(kinds.NNF_NODE)
            assert told(api, "r0")["status"] == "Ready"
            await asyncio.sleep(40.0)
            assert told(api, "r0")["status"] == "Offline"
            assert f"n0/{links.NNF_NODE_NAME}" not in api.keys(kinds.NNF_NODE)
            assert Outcome.ERROR not in passes

            refused = False
            if there:
                gone: Any = {"spec": {"finalizers": None}}
                await api.change(kinds.NAMESPACE, Key("", "n0"), gone)
            await asyncio.sleep(120.0)
            assert f"n0/{links.NNF_NODE_NAME}" in api.keys(kinds.NNF_NODE)

    with_controller(story)


def test_a_node_that_two_rabbits_list_by_mistake_tests_its_link_to_the_last_of_them() -> None:
    async def story(api: Api, controller: SystemController) -> None:
        async with running(api, controller.reconciler.run()):
            await api.add(kinds.SYSTEM_CONFIGURATION, configuration({"r0": ("n0",), "r1": ("n0",)}))
            for rabbit in ("r0", "r1"):
                await api.add(kinds.NNF_NODE, over_network(rabbit))
            await asyncio.sleep(60.0)
            found = api.find(kinds.NNF_NODE, Key("n0", links.NNF_NODE_NAME))
            assert found["metadata"]["annotations"] == {labels.RABBIT: "r1"}
            assert [verb for verb, kind, _ in api.written if kind == kinds.NNF_NODE] == ["create"]

    with_controller(story)
