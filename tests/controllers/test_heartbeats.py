"""The Leases of rabbits: how their agents renew them, and what is read in them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from tests.controllers.alone import Api, alone, informed
from tests.kube.clusters import alongside
from warren.controllers import heartbeats
from warren.controllers.heartbeats import Heartbeats
from warren.dws import kinds
from warren.kube.client import Forbidden
from warren.kube.leader import LEASE

KEY = heartbeats.lease_key("r0")
Story = Callable[[Api, Heartbeats, list[str]], Awaitable[None]]


def with_lease(story: Story, **spec: Any) -> None:
    """Tell a story of the Lease of r0, and of what is told of it."""

    async def main(api: Api) -> None:
        await api.add(kinds.NAMESPACE, {"metadata": {"name": KEY.namespace}})
        await made(api, **spec)
        told: list[str] = []
        found = Heartbeats(api.informers, told.append)
        async with informed(api):
            told.clear()
            await story(api, found, told)

    alone(main)


async def made(api: Api, **spec: Any) -> None:
    metadata = {"name": KEY.name, "namespace": KEY.namespace}
    await api.add(LEASE, {"metadata": metadata, "spec": spec})


async def renewed(api: Api, moment: str) -> None:
    await api.change(LEASE, KEY, {"spec": {"holderIdentity": "r0", "renewTime": moment}})


def test_a_lease_lasts_as_long_as_it_says_and_40_s_where_it_does_not() -> None:
    async def story(api: Api, found: Heartbeats, told: list[str]) -> None:
        await renewed(api, "1")
        assert 35 < (found.seconds_until_offline("r0") or 0) <= 40
        await api.change(LEASE, KEY, {"spec": {"leaseDurationSeconds": 100}})
        assert 95 < (found.seconds_until_offline("r0") or 0) <= 100
        await asyncio.sleep(200)
        assert found.seconds_until_offline("r0") == 0.0

    with_lease(story)


def test_a_lease_is_renewed_by_what_it_says_and_by_nothing_around_it() -> None:
    async def story(api: Api, found: Heartbeats, told: list[str]) -> None:
        await renewed(api, "1")
        await asyncio.sleep(30)
        await api.change(LEASE, KEY, {"metadata": {"labels": {"another": "word"}}})
        assert 0 < (found.seconds_until_offline("r0") or 0) < 10

    with_lease(story)


def test_it_is_told_when_an_agent_comes_and_goes_and_not_that_it_lives() -> None:
    async def story(api: Api, found: Heartbeats, told: list[str]) -> None:
        await renewed(api, "1")
        assert told == ["r0"]
        for moment in range(2, 6):
            await asyncio.sleep(10)
            await renewed(api, str(moment))
        assert told == ["r0"]
        await api.change(LEASE, KEY, {"spec": {"holderIdentity": ""}})
        assert told == ["r0"] * 2
        await renewed(api, "9")
        assert told == ["r0"] * 3

    with_lease(story)


def test_a_lease_is_renewed_since_the_first_renewal_that_was_seen_after_it_was_over() -> None:
    async def story(api: Api, found: Heartbeats, told: list[str]) -> None:
        assert found.seconds_renewed("r0") is None, "it may be that of a rabbit without power"
        assert found.seconds_until_offline("r0")
        for moment in range(2, 6):
            await renewed(api, str(moment))
            await asyncio.sleep(10)
        assert 40 < (found.seconds_renewed("r0") or 0) < 50
        await asyncio.sleep(40)
        assert found.seconds_renewed("r0") is None
        await renewed(api, "6")
        assert 0 < (found.seconds_renewed("r0") or 0) < 5
        await api.change(LEASE, KEY, {"spec": {"holderIdentity": ""}})
        assert found.seconds_renewed("r0") is None
        await renewed(api, "7")
        assert 0 < (found.seconds_renewed("r0") or 0) < 5
        await api.remove(LEASE, KEY)
        assert found.seconds_renewed("r0") is None

    with_lease(story, holderIdentity="r0", renewTime="1")


def test_of_a_rabbit_whose_lease_is_gone_nothing_is_known() -> None:
    async def story(api: Api, found: Heartbeats, told: list[str]) -> None:
        assert found.seconds_until_offline("r0") == 0.0
        await api.remove(LEASE, KEY)
        assert found.seconds_until_offline("r0") is None
        assert told == ["r0"]

    with_lease(story, holderIdentity="", renewTime="1")


def test_an_agent_renews_its_lease_every_10_s() -> None:
    async def story(api: Api, found: Heartbeats, told: list[str]) -> None:
        async with alongside(heartbeats.renew(api, api.clock, "r0")):
            await asyncio.sleep(999)
        assert len(api.written) == 100

    with_lease(story)


def test_an_agent_whose_renewal_is_refused_says_so_once_and_when_it_is_over(
    heard: Sequence[Mapping[str, Any]],
) -> None:
    async def story(api: Api, found: Heartbeats, told: list[str]) -> None:
        async with alongside(heartbeats.renew(api, api.clock, "r0")):
            for _ in range(10):
                api.refusals["patch", LEASE] = Forbidden("no role")
                await asyncio.sleep(1)
            await asyncio.sleep(100)
        words = [each["event"] for each in heard]
        assert words == ["the API refuses, and is asked again", "the API refuses no more"]

    with_lease(story)
