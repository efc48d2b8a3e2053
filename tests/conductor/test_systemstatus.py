"""The SystemStatus says which nodes the workload manager has, and which are out of reach."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.controllers.alone import Api, alone, caught_up
from tests.kube.clusters import alongside
from warren.base.errors import Retryable
from warren.conductor.systemstatus import KEY, SystemStatusReporter
from warren.dws import kinds
from warren.dws.rabbits.systemstatus import changes
from warren.kube.client import Unavailable

ALL = {"n0": True, "n1": True, "n2": True}


class Nodes:
    """Nodes of which a test tells; None is that the workload manager has gone away."""

    def __init__(self) -> None:
        self.now: Mapping[str, bool] = ALL
        self.news: asyncio.Queue[Mapping[str, bool] | None] = asyncio.Queue()

    async def follow(self) -> AsyncIterator[Mapping[str, bool]]:
        yield self.now
        while (now := await self.news.get()) is not None:
            self.now = now
            yield now
        raise Retryable("it has gone away")

    async def become(self, now: Mapping[str, bool] | None) -> None:
        self.news.put_nowait(now)
        await caught_up()


def told(api: Api) -> Any:
    return api.find(kinds.SYSTEM_STATUS, KEY)["data"]["nodes"]


def patched(api: Api) -> int:
    return sum((verb, kind) == ("patch", kinds.SYSTEM_STATUS) for verb, kind, _ in api.written)


def lived(story: Callable[[Api, Nodes], Awaitable[None]]) -> None:
    async def main(api: Api) -> None:
        await story(api, Nodes())

    alone(main)


def test_it_is_made_and_follows_the_nodes_by_what_has_changed() -> None:
    async def story(api: Api, nodes: Nodes) -> None:
        async with alongside(SystemStatusReporter(api, nodes).run()):
            await caught_up()
            assert told(api) == {"n0": "Enabled", "n1": "Enabled", "n2": "Enabled"}
            await nodes.become({**ALL, "n1": False})
            assert told(api) == {"n0": "Enabled", "n1": "Disabled", "n2": "Enabled"}
            before = patched(api)
            await nodes.become({**ALL, "n1": False})
            assert patched(api) == before
            await nodes.become(ALL)
            assert told(api)["n1"] == "Enabled"

    lived(story)


def test_what_changed_while_either_side_was_away_is_said_afterwards() -> None:
    async def story(api: Api, nodes: Nodes) -> None:
        data = {"nodes": {"n0": "Disabled", "gone": "Enabled"}}
        await api.add(
            kinds.SYSTEM_STATUS,
            {"metadata": {"name": KEY.name, "namespace": KEY.namespace}, "data": data},
        )
        async with alongside(SystemStatusReporter(api, nodes).run()):
            await caught_up()
            assert told(api) == {"n0": "Enabled", "n1": "Enabled", "n2": "Enabled"}
            await nodes.become(None)
            nodes.now = {"n0": False, "n1": True}
            await asyncio.sleep(10.0)
            assert told(api) == {"n0": "Disabled", "n1": "Enabled"}

            api.refusals[("patch", kinds.SYSTEM_STATUS)] = Unavailable("away")
            await nodes.become({"n0": True, "n1": True})
            await asyncio.sleep(10.0)
            assert told(api) == {"n0": "Enabled", "n1": "Enabled"}

            await api.remove(kinds.SYSTEM_STATUS, KEY)
            await nodes.become({"n0": True, "n1": False})
            await asyncio.sleep(10.0)
            assert told(api) == {"n0": "Enabled", "n1": "Disabled"}

    lived(story)


names = st.sampled_from(["n0", "n1", "n2", "n3"])


@given(
    st.dictionaries(names, st.sampled_from(["Enabled", "Disabled", "other"])),
    st.dictionaries(names, st.booleans()),
)
def test_what_is_changed_is_enough_and_no_more(
    known: dict[str, str], online: dict[str, bool]
) -> None:
    patch = changes(known, online)
    merged = {name: word for name, word in {**known, **patch}.items() if word is not None}

    assert merged == {name: "Enabled" if there else "Disabled" for name, there in online.items()}
    assert all(known.get(name) != word for name, word in patch.items())


def test_a_node_that_is_gone_is_taken_away_once() -> None:
    async def story(api: Api, nodes: Nodes) -> None:
        async with alongside(SystemStatusReporter(api, nodes).run()):
            await caught_up()
            await nodes.become({"n0": True, "n1": True})
            assert told(api) == {"n0": "Enabled", "n1": "Enabled"}
            before = patched(api)
            await nodes.become({"n1": True, "n0": True})
            assert patched(api) == before

    lived(story)
