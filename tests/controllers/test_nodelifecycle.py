"""Nodes whose agents are not heard of: of which of them it is said."""

import asyncio
from typing import Any

from tests.controllers.alone import Api, alone, informed
from warren.base.objects import Key
from warren.controllers import heartbeats
from warren.controllers.nodelifecycle import NodeLifecycleController
from warren.dws import kinds
from warren.kube.leader import LEASE

READY = {"type": "Ready", "status": "True"}
NODE: Any = {"metadata": {"name": "r0"}, "status": {"conditions": [READY]}}


async def lease(api: Api) -> None:
    await api.add(kinds.NAMESPACE, {"metadata": {"name": heartbeats.NAMESPACE}})
    spec = {"holderIdentity": "r0", "leaseDurationSeconds": 40, "renewTime": "0"}
    metadata = {"name": "r0", "namespace": heartbeats.NAMESPACE}
    await api.add(LEASE, {"metadata": metadata, "spec": spec})


def conditions(api: Api) -> list[Any]:
    found: list[Any] = api.find(kinds.NODE, Key("", "r0"))["status"]["conditions"]
    return found


def test_nothing_is_said_of_a_node_while_its_lease_holds() -> None:
    async def story(api: Api) -> None:
        controller = NodeLifecycleController(api, api.informers, api.clock)
        await api.add(kinds.NODE, NODE)
        async with informed(api):
            await lease(api)
            left = await controller.reconcile("r0")
            assert left is not None
            assert 30 < left <= 40
            assert conditions(api) == [READY]
            await asyncio.sleep(left)
            assert await controller.reconcile("r0") is None
            assert [each["status"] for each in conditions(api)] == ["Unknown"]

    alone(story)


def test_a_lease_that_is_over_of_a_rabbit_without_a_node_is_nothing_to_do() -> None:
    async def story(api: Api) -> None:
        controller = NodeLifecycleController(api, api.informers, api.clock)
        async with informed(api):
            await lease(api)
            await asyncio.sleep(60)
            assert await controller.reconcile("r0") is None
        assert api.written == []

    alone(story)
