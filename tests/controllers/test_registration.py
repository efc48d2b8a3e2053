"""Rabbits as nodes of their cluster: made, made again, and Unknown when their agent has gone."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from tests.controllers.alone import Api, alone, caught_up
from tests.kube.clusters import alongside
from warren.base.objects import Key
from warren.controllers import heartbeats
from warren.controllers.nodelifecycle import NodeLifecycleController
from warren.controllers.registration import NodeRegistration
from warren.dws import kinds
from warren.dws.pods.pod import why_not_ready
from warren.kube.client import Unavailable
from warren.kube.informer import Informers
from warren.kube.leader import LEASE
from warren.kube.server.local import LocalClient

NODE = Key("", "r0")
LEASE_KEY = heartbeats.lease_key("r0")


class Rabbit:
    """What hinders a rabbit from running pods, and whether its agent has seen that it can."""

    def __init__(self, reason: str | None = None) -> None:
        self.reason = reason
        self.can_run_pods = False

    async def why_unavailable(self) -> str | None:
        return self.reason

    @asynccontextmanager
    async def agent(self, api: Api) -> AsyncIterator[None]:
        informers = Informers(LocalClient(api.store))
        made = NodeRegistration(api, informers, api.clock, "r0", "127.9.0.1", self.why_unavailable)
        async with alongside(informers.run()):
            await informers.wait_synced()
            async with alongside(made.reconciler.run()):
                yield
        self.can_run_pods = made.can_run_pods.is_set()


@asynccontextmanager
async def lifecycle(api: Api) -> AsyncIterator[None]:
    informers = Informers(LocalClient(api.store))
    controller = NodeLifecycleController(api, informers, api.clock)
    async with alongside(informers.run()):
        await informers.wait_synced()
        async with alongside(controller.reconciler.run()):
            yield


def ready(api: Api) -> Any:
    (found,) = api.find(kinds.NODE, NODE)["status"]["conditions"]
    return found


async def lease(api: Api) -> None:
    await api.add(kinds.NAMESPACE, {"metadata": {"name": heartbeats.NAMESPACE}})
    metadata = {"name": "r0", "namespace": heartbeats.NAMESPACE}
    await api.add(LEASE, {"metadata": metadata, "spec": {}})


def test_a_rabbit_registers_as_a_node_and_says_why_it_runs_no_pods() -> None:
    async def main(api: Api) -> None:
        api.refusals["create", kinds.NODE] = Unavailable("not yet")
        rabbit = Rabbit("bubblewrap is not installed")
        async with rabbit.agent(api):
            await asyncio.sleep(10)
            assert api.find(kinds.NODE, NODE)["metadata"]["labels"] == {
                "kubernetes.io/hostname": "r0"
            }
            assert (ready(api)["status"], why_not_ready(api.find(kinds.NODE, NODE))) == (
                "False",
                "bubblewrap is not installed",
            )
            # What hinders may pass, and is not for ever.
            rabbit.reason = None
            await asyncio.sleep(20)
        assert ready(api)["status"] == "True"
        assert api.find(kinds.NODE, NODE)["status"]["addresses"][0]["address"] == "127.9.0.1"
        assert rabbit.can_run_pods

    alone(main)


def test_no_pods_are_run_before_they_can_be() -> None:
    async def main(api: Api) -> None:
        rabbit = Rabbit("bubblewrap is not installed")
        async with rabbit.agent(api):
            await asyncio.sleep(60)
        assert not rabbit.can_run_pods

    alone(main)


def test_a_node_that_is_removed_by_hand_is_made_again() -> None:
    async def main(api: Api) -> None:
        async with Rabbit().agent(api):
            await caught_up()
            await api.remove(kinds.NODE, NODE)
            assert ready(api)["status"] == "True"

    alone(main)


def test_what_a_node_says_already_is_not_written_again() -> None:
    async def main(api: Api) -> None:
        async with Rabbit().agent(api):
            await caught_up()
        api.written.clear()
        async with Rabbit().agent(api):
            await caught_up()
        assert api.written == []

    alone(main)


def test_a_node_whose_agent_has_ended_is_not_ready_until_it_is_back() -> None:
    async def main(api: Api) -> None:
        await lease(api)
        async with lifecycle(api):
            async with Rabbit().agent(api), alongside(heartbeats.renew(api, api.clock, "r0")):
                await asyncio.sleep(120)
                assert ready(api)["status"] == "True"
            await asyncio.sleep(60)
            assert (ready(api)["status"], ready(api)["reason"]) == ("Unknown", "NodeStatusUnknown")
            assert "Lease" in ready(api)["message"]
            # It may be back before a job starts.
            assert why_not_ready(api.find(kinds.NODE, NODE)) is None
            async with Rabbit().agent(api), alongside(heartbeats.renew(api, api.clock, "r0")):
                await asyncio.sleep(120)
                assert ready(api)["status"] == "True"

    alone(main)


def test_the_end_of_an_agent_that_was_seen_shows_at_once() -> None:
    async def main(api: Api) -> None:
        await lease(api)
        async with lifecycle(api):
            async with Rabbit().agent(api), alongside(heartbeats.renew(api, api.clock, "r0")):
                await asyncio.sleep(30)
            await heartbeats.release(api, api.clock, "r0")
            await caught_up()
            assert ready(api)["status"] == "Unknown"

    alone(main)


def test_why_a_rabbit_runs_no_pods_is_said_of_it_also_when_its_agent_has_ended() -> None:
    async def main(api: Api) -> None:
        await lease(api)
        async with lifecycle(api):
            rabbit = Rabbit("umoci is not installed")
            async with rabbit.agent(api), alongside(heartbeats.renew(api, api.clock, "r0")):
                await asyncio.sleep(30)
            await asyncio.sleep(60)
            assert ready(api)["message"] == "umoci is not installed"

    alone(main)


def test_an_agent_that_lives_and_cannot_renew_its_lease_does_not_quarrel() -> None:
    async def main(api: Api) -> None:
        await lease(api)
        async with lifecycle(api), Rabbit().agent(api):
            async with alongside(heartbeats.renew(api, api.clock, "r0")):
                await asyncio.sleep(30)
            await asyncio.sleep(60)
            api.written.clear()
            await asyncio.sleep(600)
            assert api.written == []

    alone(main)


def test_a_node_whose_lease_counts_is_left_as_it_is_and_a_lease_alone_is_no_node(
    heard: Sequence[Mapping[str, Any]],
) -> None:
    async def main(api: Api) -> None:
        await lease(api)
        renewed = {"spec": {"holderIdentity": "r0", "renewTime": "1"}}
        async with lifecycle(api):
            await api.change(LEASE, LEASE_KEY, {"spec": {"holderIdentity": "", "renewTime": "0"}})
            assert api.find(kinds.NODE, NODE) is None
            async with Rabbit().agent(api):
                await asyncio.sleep(1)
            await api.change(LEASE, LEASE_KEY, renewed)
            await asyncio.sleep(30)
            assert ready(api)["status"] == "True"
            await asyncio.sleep(30)
            assert ready(api)["status"] == "Unknown"
        assert [each for each in heard if each["log_level"] == "error"] == []

    alone(main)
