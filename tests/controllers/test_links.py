"""A node that tests its link to its rabbit over a network, and says when it is lost."""

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

from tests.controllers.alone import Api, alone, running
from tests.dws.builders import meta
from warren.base.objects import Key
from warren.controllers.links import LinkReconciler
from warren.dws import kinds, labels
from warren.dws.rabbits import links
from warren.dws.rabbits.links import LinkTestPolicy
from warren.kube.client import Forbidden, Unavailable

KEY = Key("n0", links.NNF_NODE_NAME)
SILENT = "r0 port 4420: no answer within 5 s"


class Network:
    """What a node's rabbit answers, and how often it was asked."""

    def __init__(self) -> None:
        self.why: str | None = None
        self.asked: list[str] = []

    async def probe(self, rabbit: str) -> str | None:
        self.asked.append(rabbit)
        return self.why


Story = Callable[[Api, Network, LinkReconciler], Awaitable[None]]


def with_node(story: Story, policy: LinkTestPolicy | None = None) -> None:
    async def main(api: Api) -> None:
        network = Network()
        one = LinkReconciler(
            api,
            api.informers,
            api.clock,
            "n0",
            network.probe,
            policy or LinkTestPolicy(),
            jitter=lambda: 0.0,
        )
        await story(api, network, one)

    alone(main)


def asked(rabbit: str = "r0", **annotations: str) -> dict[str, Any]:
    said = {labels.RABBIT: rabbit, **annotations}
    return {
        "metadata": meta(links.NNF_NODE_NAME, "n0", annotations=said),
        "spec": {"state": "Enable"},
    }


def word(api: Api) -> Any:
    """Return what the node says of its link; None while it says nothing."""
    carried = api.find(kinds.NNF_NODE, KEY)["metadata"]["annotations"]
    return json.loads(carried[labels.LOST_LINK]) if labels.LOST_LINK in carried else None


def test_a_node_that_reaches_its_rabbit_tests_that_again_and_again_and_writes_nothing() -> None:
    async def story(api: Api, network: Network, one: LinkReconciler) -> None:
        await api.add(kinds.NNF_NODE, asked())
        async with running(api, one.reconciler.run()):
            assert network.asked == ["r0"]
            await asyncio.sleep(300.0)
            assert network.asked == ["r0"] * 11
        assert api.written == []

    with_node(story)


def test_a_link_is_lost_after_three_failures_and_back_after_one_success() -> None:
    async def story(api: Api, network: Network, one: LinkReconciler) -> None:
        await api.add(kinds.NNF_NODE, asked())
        network.why = SILENT
        async with running(api, one.reconciler.run()):
            await asyncio.sleep(58.0)
            assert word(api) is None
            await asyncio.sleep(3.0)
            found = word(api)
            assert (found["rabbit"], found["why"]) == ("r0", SILENT)
            network.why = "another"
            await asyncio.sleep(600.0)
            assert word(api) == found
            assert len(api.written) == 1
            network.why = None
            await asyncio.sleep(10.0)
            assert word(api) is None
            assert len(api.written) == 2

    with_node(story)


def test_failures_that_are_not_in_a_row_are_none() -> None:
    async def story(api: Api, network: Network, one: LinkReconciler) -> None:
        await api.add(kinds.NNF_NODE, asked())
        async with running(api, one.reconciler.run()):
            for _ in range(5):
                network.why = SILENT
                await asyncio.sleep(60.0)
                network.why = None
                await asyncio.sleep(30.0)
        assert api.written == []

    with_node(story)


def test_an_agent_takes_up_the_last_word_of_the_one_before_it() -> None:
    async def story(api: Api, network: Network, one: LinkReconciler) -> None:
        old = {"rabbit": "r0", "since": "2026-11-26T12:00:00Z", "why": SILENT}
        await api.add(kinds.NNF_NODE, asked(**{labels.LOST_LINK: json.dumps(old)}))
        network.why = SILENT
        async with running(api, one.reconciler.run()):
            assert word(api) == old
            network.why = None
            await asyncio.sleep(10.0)
            assert word(api) is None

    with_node(story)


def test_a_mount_that_fails_has_the_link_tested_at_once() -> None:
    async def story(api: Api, network: Network, one: LinkReconciler) -> None:
        await api.add(kinds.NNF_NODE, asked())
        async with running(api, one.reconciler.run()):
            one.test_now()
            await asyncio.sleep(1.0)
            assert len(network.asked) == 2
            network.why = SILENT
            for _ in range(10):
                one.test_now()
                await asyncio.sleep(1.0)
            # The first one that fails begins the row, and the others do not make it shorter.
            assert len(network.asked) == 3
            await asyncio.sleep(45.0)
            assert word(api) is None
            await asyncio.sleep(10.0)
            assert word(api)["why"] == SILENT

    with_node(story)


def test_a_node_tests_nothing_before_it_is_asked_and_the_other_rabbit_when_it_has_moved() -> None:
    async def story(api: Api, network: Network, one: LinkReconciler) -> None:
        async with running(api, one.reconciler.run()):
            await api.add(kinds.NNF_NODE, {**asked(), "metadata": meta("other", "n0")})
            one.test_now()
            await asyncio.sleep(100.0)
            assert network.asked == []
            network.why = SILENT
            await api.add(kinds.NNF_NODE, asked())
            await asyncio.sleep(100.0)
            assert word(api)["rabbit"] == "r0"
            network.why = None
            moved = {"metadata": {"annotations": {labels.RABBIT: "r1"}}}
            await api.change(kinds.NNF_NODE, KEY, moved)
            assert network.asked[-1] == "r1"
            assert word(api) is None

    with_node(story)


def test_a_site_may_want_no_tests_and_then_an_old_word_goes() -> None:
    async def story(api: Api, network: Network, one: LinkReconciler) -> None:
        old = {"rabbit": "r0", "since": "then", "why": SILENT}
        await api.add(kinds.NNF_NODE, asked(**{labels.LOST_LINK: json.dumps(old)}))
        async with running(api, one.reconciler.run()):
            await asyncio.sleep(100.0)
        assert word(api) is None
        assert network.asked == []
        assert len(api.written) == 1

    with_node(story, LinkTestPolicy(interval=math.inf))


def test_what_the_api_does_not_take_is_told_when_it_does() -> None:
    async def story(api: Api, network: Network, one: LinkReconciler) -> None:
        await api.add(kinds.NNF_NODE, asked())
        network.why = SILENT
        async with running(api, one.reconciler.run()):
            for error in (Unavailable("away"), Forbidden("not yours")):
                api.refusals["patch", kinds.NNF_NODE] = error
                await asyncio.sleep(65.0)
            await asyncio.sleep(60.0)
            assert word(api)["why"] == SILENT

    with_node(story)
