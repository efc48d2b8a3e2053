"""What Fluxion is told of flash and nodes."""

import asyncio
import errno
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from tests.harness import virtual
from tests.harness.logs import capture_logs
from warren.base.bytesize import GIB
from warren.rfc.fluid import JobId
from warren.rpc.message import Payload, RpcError
from warren.wlm.flux.fluxion import Fluxion
from warren.wlm.flux.graph import FlashGraph, Ssds

GRAPH = FlashGraph(
    ssds_by_rabbit={
        "r0": Ssds(paths=("/c/0/ssd0", "/c/0/ssd1", "/c/0/ssd2"), gib=4),
        "r1": Ssds(paths=("/c/1/ssd0",), gib=4),
    },
    path_by_host={"n0": "/c/0/n0", "n1": "/c/1/n1"},
)


class Broker:
    """A handle of which it is known what it was asked; it fails as often as it is told to."""

    def __init__(self) -> None:
        self.status: dict[str, str] = {}
        self.tags: dict[str, str] = {}
        self.asked = 0
        self.failing = 0
        self.errnum = errno.EAGAIN
        self.refusals: dict[str, int] = {}
        """What it refuses for good, by path."""
        self.reloaded = asyncio.Event()

    async def rpc(self, topic: str, payload: Payload | None = None) -> Payload:
        assert payload is not None
        self.asked += 1
        if self.failing:
            self.failing -= 1
            raise RpcError(self.errnum)
        named = payload.get("sp_resource_path") or payload["resource_path"]
        for path in [named] if isinstance(named, str) else named:
            if path in self.refusals:
                raise RpcError(self.refusals[path])
        match topic.removeprefix("sched-fluxion-resource."):
            case "set_status":
                self.status[payload["resource_path"]] = payload["status"]
            case "set_property":
                for path in payload["sp_resource_path"]:
                    self.tags[path] = payload["sp_keyval"]
            case "remove_property":
                for path in payload["resource_path"]:
                    self.tags.pop(path, None)
            case _:
                raise AssertionError(topic)
        return {}

    async def stream(self, topic: str, payload: Payload | None = None) -> AsyncIterator[Payload]:
        assert topic == "sched-fluxion-resource.notify"
        if self.errnum == errno.ENOSYS:
            raise RpcError(errno.ENOSYS)
        yield {"resources": {}}
        yield {"up": "0-1"}
        await self.reloaded.wait()
        self.reloaded.clear()
        raise RpcError(errno.ECANCELED)

    @property
    def up(self) -> set[str]:
        return {path for path, status in self.status.items() if status == "up"}


Story = Callable[[Broker, Fluxion, set[int]], Awaitable[None]]


def live(story: Story, graph: FlashGraph = GRAPH) -> None:
    async def main() -> None:
        broker, holding = Broker(), set[int]()
        fluxion = Fluxion(broker, graph, holding.__contains__)
        running = asyncio.create_task(fluxion.run())
        await story(broker, fluxion, holding)
        running.cancel()
        await asyncio.wait({running})

    virtual.run(main())


async def told(seconds: float = 1.0) -> None:
    await asyncio.sleep(seconds)


def test_flash_of_which_nothing_is_known_is_left_as_the_graph_has_it() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        await told()
        assert broker.status == {}

    live(story)


def test_a_fluxion_that_was_loaded_anew_is_told_everything_again() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        fluxion.set_badrabbit_nodes("r0", ["n0"])
        await told()
        broker.status.clear()
        broker.tags.clear()
        broker.reloaded.set()
        await told(60)
        assert len(broker.up) == 3
        assert broker.tags == {"/c/0/n0": "badrabbit=bad"}

    live(story)


def test_flash_of_a_rabbit_goes_up_and_down_with_it() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        await told()
        assert broker.up == {"/c/0/ssd0", "/c/0/ssd1", "/c/0/ssd2"}
        fluxion.set_rabbit("r0", up=False)
        await told()
        assert broker.up == set()
        fluxion.set_rabbit("unknown", up=True)
        await told()
        assert broker.up == set()

    live(story)


def test_only_what_has_changed_is_told() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        await told()
        before = broker.asked
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        await told()
        assert broker.asked == before
        fluxion.set_rabbit("r0", up=True, capacity_gib=8)
        await told()
        assert (broker.asked, len(broker.up)) == (before + 1, 2)

    live(story)


def test_storage_of_no_job_takes_flash_from_jobs() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        fluxion.set_storage("default/p", {"r0": 5 * GIB})
        await told()
        assert broker.up == {"/c/0/ssd2"}  # Fluxion gives jobs the last ones
        fluxion.set_storage("default/p", None)
        await told()
        assert len(broker.up) == 3

    live(story)


def test_storage_of_a_job_counts_from_when_the_job_gives_its_resources_back() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        holding.add(7)
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        fluxion.set_storage("default/p", {"r0": 4 * GIB}, JobId(7))
        await told()
        assert len(broker.up) == 3
        holding.clear()
        fluxion.job_changed(7)
        await told()
        assert len(broker.up) == 2

    live(story)


def test_nodes_are_tagged_as_long_as_some_rabbit_says_so() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        fluxion.set_badrabbit_nodes("r0", ["n0", "of another system"])
        fluxion.set_badrabbit_nodes("r1", ["n0", "n1"])
        await told()
        assert broker.tags == {"/c/0/n0": "badrabbit=bad", "/c/1/n1": "badrabbit=bad"}
        fluxion.set_badrabbit_nodes("r0", [])
        await told()
        assert len(broker.tags) == 2
        fluxion.set_badrabbit_nodes("r1", [])
        await told()
        assert broker.tags == {}

    live(story)


def test_what_fluxion_did_not_take_is_told_again() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        broker.failing = 2
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        fluxion.set_badrabbit_nodes("r0", ["n0"])
        await told(60)
        assert len(broker.up) == 3
        assert broker.tags == {"/c/0/n0": "badrabbit=bad"}

    live(story)


@pytest.mark.parametrize("errnum", [errno.EINVAL, errno.ENOENT])
def test_what_fluxion_refuses_of_one_ssd_costs_neither_the_others_nor_the_tags(errnum: int) -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        broker.refusals = {"/c/0/ssd0": errnum, "/c/0/n0": errnum}
        with capture_logs() as logs:
            fluxion.set_rabbit("r0", up=True, capacity_gib=12)
            fluxion.set_rabbit("r1", up=True, capacity_gib=4)
            fluxion.set_badrabbit_nodes("r0", ["n0", "n1"])
            await told(60)
            assert broker.up == {"/c/0/ssd1", "/c/0/ssd2", "/c/1/ssd0"}
            assert broker.tags == {"/c/1/n1": "badrabbit=bad"}
            assert broker.asked == 6  # and not again, before there is news
            fluxion.set_rabbit("r0", up=True, capacity_gib=12)
            await told(60)
            assert broker.asked == 7
        assert [each["path"] for each in logs if each["event"] == "Fluxion has refused"] == [
            "/c/0/ssd0",
            "/c/0/n0",
        ]

        broker.refusals = {}
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        fluxion.set_badrabbit_nodes("r0", ["n1"])
        fluxion.set_badrabbit_nodes("r0", ["n0"])
        await told(60)
        assert "/c/0/ssd0" in broker.up
        assert broker.tags == {"/c/0/n0": "badrabbit=bad"}

    live(story)


def test_fluxion_is_looked_for_seldom_where_there_is_none() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        broker.failing, broker.errnum = 10, errno.ENOSYS
        fluxion.set_rabbit("r0", up=True, capacity_gib=12)
        await told(300)
        assert broker.asked <= 7

    live(story)


def test_no_node_is_asked_for_where_no_rabbit_is() -> None:
    async def story(broker: Broker, fluxion: Fluxion, holding: set[int]) -> None:
        fluxion.set_badrabbit_nodes("r0", ["n0"])
        fluxion.set_rabbit("r0", up=True)
        await told(60)
        assert broker.asked == 0

    live(story, FlashGraph(ssds_by_rabbit={}, path_by_host={}))
