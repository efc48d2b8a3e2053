"""Nodes are drained and undrained, and stay so; and what is told of them."""

import asyncio
import errno
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import aclosing, asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.harness.virtual import EPOCH, VirtualClock
from tests.instance.lives import spec
from tests.instance.parts import GUEST, OWNER, SlowDisk, living, refused, settle, virtually
from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.instance.config import Config
from warren.instance.kvs import Kvs, append, unlink
from warren.instance.protocols import SUCCESS, Message
from warren.instance.resource import Resources, configured_graph
from warren.instance.scheduler import JobScheduler
from warren.instance.servicetables import ResourceTable
from warren.journal import Journal, MemoryJournal
from warren.lifecycle import policy
from warren.lifecycle.policy import Queue
from warren.rfc import eventlog, resource_set
from warren.rfc.eventlog import Event
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus
from warren.rpc.message import Payload, RpcError
from warren.scheduling.topology import ChassisTopology, resource_set_with_graph

HOSTS = ("node0", "node1", "node2", "node3")
LOG = "resource.eventlog"


INHERIT_NOTHING = Config()


class Desk:
    """The service on four nodes with two cores each, and the scheduler that it tells."""

    def __init__(
        self, journal: Journal, hosts: tuple[str, ...] = HOSTS, config: Config = INHERIT_NOTHING
    ) -> None:
        self.r = resource_set_with_graph(
            "test",
            [ChassisTopology(rabbit="rabbit0", capacity_bytes=GIB, hosts=hosts)],
            cores_per_node=2,
        )
        self.answers: list[Message] = []
        self.kvs = Kvs(journal, OWNER)
        self.bus = Bus(OWNER)
        self.kept_back: list[int] = []
        """The ranks that the scheduler must not give out."""
        graph, clock = configured_graph(self.r, config), VirtualClock()
        self.scheduler = JobScheduler(self.kvs, clock, graph, self.answers.append)
        queue_limits = policy.queue_limits(config.queues, config.policy)
        self.resources = Resources(self.kvs, clock, self.r, graph, self, queue_limits)
        self.bus.register("resource", self.resources.methods())
        self.bus.register("groups", self.resources.groups())

    def set_drained(self, ranks: Iterable[int]) -> None:
        self.kept_back = sorted(ranks)
        self.scheduler.set_drained(self.kept_back)

    def set_offline(self, ranks: Iterable[int]) -> None:
        self.scheduler.set_offline(ranks)

    async def drain(self, targets: str, **options: Any) -> Payload:
        return await self.bus.handle().rpc("resource.drain", {"targets": targets, **options})

    async def undrain(self, targets: str, **options: Any) -> Payload:
        return await self.bus.handle().rpc("resource.undrain", {"targets": targets, **options})

    async def nodes(self) -> list[Mapping[str, Any]]:
        found: list[Mapping[str, Any]] = (await self.bus.handle().rpc("resource.status"))["nodes"]
        return found

    async def states(self) -> list[str]:
        return [node["state"] for node in await self.nodes()]

    def events(self) -> list[Event]:
        return eventlog.decode((self.kvs.get(LOG) or b"").decode())

    async def ask(self, job: int, nodes: int) -> None:
        jobspec = spec(tasks=None, nodes=nodes)
        self.scheduler.alloc({"id": job, "userid": OWNER, "priority": 16, "jobspec": jobspec})
        await settle()

    def hosts(self, job: int) -> list[str]:
        """The nodes that a job has got; none if it waits."""
        return resource_set.nodelist(self.r_of(job)) if job in self.served else []

    @property
    def served(self) -> list[int]:
        return [each["id"] for each in self.answers if each["type"] == SUCCESS]

    def r_of(self, job: int) -> Message:
        (found,) = (each for each in self.answers if each["type"] == SUCCESS and each["id"] == job)
        r: Message = found["R"]
        return r


@asynccontextmanager
async def opened(
    journal: Journal | None = None, hosts: tuple[str, ...] = HOSTS, config: Config = INHERIT_NOTHING
) -> AsyncIterator[Desk]:
    desk = Desk(journal or MemoryJournal(), hosts, config)
    async with living(desk.kvs.run, desk.scheduler.run, desk.resources.run):
        await settle()
        yield desk


@virtually
async def test_a_drained_node_is_given_to_no_job_until_it_is_undrained() -> None:
    async with opened() as desk:
        assert await desk.drain("node1") == {"idset": "1", "nodelist": "node1"}
        await desk.ask(1, nodes=3)
        assert desk.hosts(1) == ["node0", "node2", "node3"]
        await desk.ask(2, nodes=1)
        assert desk.hosts(2) == []

        assert await desk.undrain("1") == {"idset": "1", "nodelist": "node1"}
        await settle()
        assert desk.hosts(2) == ["node1"]


@virtually
async def test_a_job_keeps_a_node_that_is_drained_which_then_is_draining() -> None:
    async with opened() as desk:
        await desk.ask(1, nodes=2)
        await desk.drain("0-2")
        assert await desk.states() == ["draining", "draining", "drained", "free"]

        desk.scheduler.free(JobId(1), desk.r_of(1), True)
        assert await desk.states() == ["drained", "drained", "drained", "free"]
        await desk.undrain("0-2")
        assert await desk.states() == ["free"] * 4


@virtually
async def test_of_each_node_it_is_told_what_it_does_and_of_a_drained_one_why() -> None:
    async with opened() as desk:
        await desk.ask(1, nodes=1)
        await asyncio.sleep(5)
        await desk.drain("node1", reason="bad disk")
        await desk.drain("node2")
        status = await desk.nodes()

    one = {"cores": 2, "allocated": 0, "gpus": 0, "gpus_allocated": 0}
    assert status == [
        {"rank": 0, "name": "node0", "state": "allocated", **one, "allocated": 2},
        {"rank": 1, "name": "node1", "state": "drained", **one,
         "since": EPOCH + 5, "reason": "bad disk"},
        {"rank": 2, "name": "node2", "state": "drained", **one,
         "since": EPOCH + 5, "reason": ""},
        {"rank": 3, "name": "node3", "state": "free", **one},
    ]  # fmt: skip


# The log


@virtually
async def test_the_log_has_the_events_of_rfc_44() -> None:
    async with opened() as desk:
        await desk.drain("1-2", reason="bad disk")
        await desk.drain("1-3", reason="flood", mode="overwrite")
        await desk.undrain("node[1-3]", reason="dry")

        assert [(event.name, event.context) for event in desk.events()] == [
            ("restart", {"ranks": "0-3", "online": "0-3", "nodelist": "node[0-3]"}),
            ("resource-define", {"method": "configuration"}),
            ("drain", {"idset": "1-2", "nodelist": "node[1-2]", "reason": "bad disk",
                       "overwrite": 0}),
            ("drain", {"idset": "1-3", "nodelist": "node[1-3]", "reason": "flood",
                       "overwrite": 1}),
            ("undrain", {"idset": "1-3", "nodelist": "node[1-3]", "reason": "dry"}),
        ]  # fmt: skip
        assert orjson.loads(desk.kvs.lookup("resource.R")) == desk.r


@virtually
async def test_a_drain_is_answered_when_it_is_durable() -> None:
    disk = SlowDisk()
    async with opened(disk) as desk:
        asked = asyncio.ensure_future(desk.drain("node1"))
        await settle()
        assert not asked.done()
        assert await desk.states() == ["free"] * 4

        disk.free.set()
        await asked
        assert await desk.states() == ["free", "drained", "free", "free"]


@virtually
async def test_the_scheduler_knows_before_who_asked_does() -> None:
    desk = Desk(MemoryJournal(), HOSTS)
    async with living(desk.kvs.run):  # so that no other may have told it
        await desk.drain("1-2")
        assert desk.kept_back == [1, 2]
        await desk.undrain("1")
        assert desk.kept_back == [2]


@virtually
async def test_a_drain_whose_caller_has_gone_is_done_nevertheless() -> None:
    disk = SlowDisk()
    async with opened(disk) as desk:
        asked = asyncio.ensure_future(desk.drain("0-2"))
        await settle()
        asked.cancel()
        disk.free.set()
        await settle()

        await desk.ask(1, nodes=1)
        assert desk.hosts(1) == ["node3"]


@virtually
async def test_of_two_who_drain_a_node_at_once_the_second_is_told_of_the_first() -> None:
    disk = SlowDisk()
    async with opened(disk) as desk:
        first = asyncio.ensure_future(desk.drain("node1", reason="first"))
        second = asyncio.ensure_future(desk.drain("node1", reason="second"))
        await settle()
        disk.free.set()
        await first
        with pytest.raises(RpcError, match="node1 is drained already"):
            await second
        assert (await desk.nodes())[1]["reason"] == "first"


# Restarts


@virtually
async def test_a_drain_survives_a_restart_with_its_moment_and_its_reason() -> None:
    journal = MemoryJournal()
    async with opened(journal) as desk:
        await desk.drain("0-1", reason="bad disk")
        await desk.undrain("0")
        before = await desk.nodes()
    await asyncio.sleep(60)

    async with opened(journal) as desk:
        assert await desk.nodes() == before
        assert before[1]["reason"] == "bad disk"


@virtually
async def test_no_job_gets_a_drained_node_in_the_first_moment_of_a_life() -> None:
    journal = MemoryJournal()
    async with opened(journal) as desk:
        await desk.drain("0-2")

    desk = Desk(journal, HOSTS)
    async with living(desk.kvs.run, desk.scheduler.run):
        await desk.ask(1, nodes=1)
        assert desk.hosts(1) == ["node3"]


@virtually
async def test_a_job_that_has_a_drained_node_still_has_it_after_a_restart() -> None:
    journal = MemoryJournal()
    async with opened(journal) as desk:
        await desk.ask(1, nodes=1)
        r = desk.r_of(1)
        await desk.drain("node0")

    async with opened(journal) as desk:
        desk.scheduler.hello(JobId(1), r, ())
        assert (await desk.states())[0] == "draining"
        desk.scheduler.free(JobId(1), r, True)
        assert (await desk.states())[0] == "drained"


@virtually
async def test_a_drain_stays_with_its_node_where_the_system_has_changed() -> None:
    journal = MemoryJournal()
    async with opened(journal) as desk:
        await desk.drain("node0,node2", reason="bad disk")

    async with opened(journal, hosts=("node1", "node2")) as desk:
        assert await desk.states() == ["free", "drained"]
        assert orjson.loads(desk.kvs.lookup("resource.R")) == desk.r


@virtually
async def test_a_line_that_is_no_event_hides_none_of_the_others() -> None:
    journal = MemoryJournal()
    async with opened(journal) as desk:
        await desk.drain("node0")
        await desk.kvs.commit([append(LOG, b'scribble\n{"timestamp":1,"name":"drain"}\n')])
        await desk.drain("node1")

    async with opened(journal) as desk:
        assert await desk.states() == ["drained", "drained", "free", "free"]


# Refusals


@virtually
async def test_what_is_refused_is_said_in_a_sentence_and_changes_nothing() -> None:
    async with opened() as desk:
        await desk.drain("node1")
        before = desk.events()
        for asked, why, words in (
            (desk.drain("0-1"), errno.EEXIST, "node1 is drained already: --update"),
            (desk.drain("node9"), errno.EINVAL, "There is no node node9 here: name some of node"),
            (desk.drain("node2", mode="gently"), errno.EINVAL, "There is no mode 'gently'"),
            (desk.undrain("1-2"), errno.EEXIST, "node2 is not drained"),
        ):
            with pytest.raises(RpcError, match=words) as caught:
                await asked
            assert caught.value.errnum == why
        assert desk.events() == before


@virtually
async def test_undraining_by_force_passes_over_what_is_not_drained() -> None:
    async with opened() as desk:
        await desk.drain("node1")
        await desk.undrain("0-3", mode="force")
        assert await desk.states() == ["free"] * 4


@virtually
async def test_only_the_owner_drains_and_all_users_may_look() -> None:
    async with opened() as desk:
        guest = desk.bus.handle(GUEST)
        assert await refused(guest.rpc("resource.drain", {"targets": "0"})) == errno.EPERM
        assert await refused(guest.rpc("resource.undrain", {"targets": "0"})) == errno.EPERM
        assert len((await guest.rpc("resource.status"))["nodes"]) == 4


@pytest.mark.parametrize(
    "payload", [{}, {"targets": 1}, {"targets": "1", "reason": 2}, {"targets": "1", "mode": 3}]
)
@virtually
async def test_a_request_of_another_shape_is_refused(payload: Payload) -> None:
    async with opened() as desk:
        assert await refused(desk.bus.handle().rpc("resource.drain", payload)) == errno.EPROTO


# What a site says of its nodes


SITE = Config(
    resource=ResourceTable(exclude="node3", properties={"fast": "node[0-1]"}),
    queues={
        "batch": Queue(hosts="node[0-2]"),
        "quick": Queue(requires=("fast",)),
        "all": Queue(),
        "night": Queue(parent="batch"),
    },
)


@virtually
async def test_an_excluded_node_is_given_to_no_job_and_cannot_be_drained() -> None:
    async with opened(config=SITE) as desk:
        await desk.ask(1, nodes=3)
        await desk.ask(2, nodes=4)
        assert desk.hosts(1) == ["node0", "node1", "node2"]
        assert desk.answers[-1]["note"] == (
            "4 nodes are asked for, and the cluster has 3. Some are excluded: node3."
        )
        assert await desk.states() == ["allocated"] * 3 + ["exclude"]
        with pytest.raises(RpcError, match=r"^node3 is excluded by the configuration"):
            await desk.drain("2-3")
        assert await desk.states() == ["allocated"] * 3 + ["exclude"]


@virtually
async def test_jobs_find_the_nodes_of_their_queue_and_with_the_properties_of_the_site() -> None:
    async with opened(config=SITE) as desk:
        for job, wanted, excluded in ((1, "fast", "+quick"), (2, "+batch", "fast")):
            constraints = {"properties": [wanted, f"^{excluded}"]}
            jobspec = spec(tasks=None, nodes=1, attributes={"constraints": constraints})
            desk.scheduler.alloc({"id": job, "userid": OWNER, "priority": 16, "jobspec": jobspec})
        await settle()
        assert (desk.hosts(1), desk.hosts(2)) == (["node0"], ["node2"])
        assert desk.r_of(1)["execution"]["properties"] == {"fast": "0"}
        assert "properties" not in desk.r_of(2)["execution"]


def test_who_excludes_nodes_that_are_not_there_is_told_where() -> None:
    with pytest.raises(UserMistake, match=r"^resource\.exclude: There is no node node9 here"):
        Desk(MemoryJournal(), config=Config(resource=ResourceTable(exclude="node9")))


@virtually
async def test_the_status_tells_all_that_is_known_of_the_nodes() -> None:
    async with opened(config=SITE) as desk:
        await desk.drain("0", reason="bad disk")
        await desk.drain("2")
        await desk.resources.set_down(["node1"])
        status = await desk.bus.handle(GUEST).rpc("resource.status")

    assert resource_set.decode_nodes(status["R"]) == resource_set.decode_nodes(desk.r)
    assert "scheduling" not in status["R"]
    assert status["drain"] == {
        "0": {"timestamp": EPOCH, "reason": "bad disk"},
        "2": {"timestamp": EPOCH, "reason": ""},
    }
    assert (status["online"], status["offline"], status["exclude"]) == ("0,2-3", "1", "3")
    assert status["queues"] == {"batch": "0-2", "quick": "0-1", "all": "0-3", "night": "0-2"}
    assert [node["state"] for node in status["nodes"]] == [
        "drained", "offline", "drained", "exclude",
    ]  # fmt: skip


# Nodes that come and go


@virtually
async def test_a_node_that_is_gone_is_given_to_no_job_until_it_is_back() -> None:
    async with opened() as desk:
        await desk.resources.set_down(["node0", "node9"])
        await desk.resources.set_down(["node0"])
        await desk.ask(1, nodes=4)
        assert desk.answers[-1]["annotations"]["sched"]["reason_pending"] == (
            "waits for 1 more of 4 nodes; offline: node0"
        )

        await desk.resources.set_up(HOSTS)
        await settle()
        assert desk.hosts(1) == list(HOSTS)
        assert [event.name for event in desk.events()][2:] == ["offline", "online"]


@virtually
async def test_a_new_life_begins_with_all_nodes() -> None:
    journal = MemoryJournal()
    async with opened(journal) as desk:
        await desk.resources.set_down(["node0"])
        await desk.drain("node1")
    async with opened(journal) as desk:
        assert await desk.states() == ["free", "drained", "free", "free"]


# Streams


async def following(
    desk: Desk, topic: str, **payload: Any
) -> tuple[list[Payload], asyncio.Task[None]]:
    """Follow a stream, and return what it has said, and what ends it."""
    heard: list[Payload] = []

    async def follow() -> None:
        async with aclosing(desk.bus.handle().stream(topic, payload)) as answers:  # type: ignore[type-var]
            async for answer in answers:
                heard.append(answer)

    task = asyncio.ensure_future(follow())
    await settle()
    return heard, task


async def left(task: asyncio.Task[None]) -> None:
    task.cancel()
    await settle()


@virtually
async def test_who_acquires_the_resources_hears_which_nodes_it_may_use() -> None:
    async with opened(config=SITE) as desk:
        await desk.drain("0")
        heard, task = await following(desk, "resource.acquire")
        await desk.drain("1-2")
        await desk.undrain("0")
        await desk.resources.set_down(["node0", "node2"])
        await desk.undrain("1")
        await settle()
        await left(task)

    first, *rest = heard
    assert first["up"] == "1-2"
    assert [each.host for each in resource_set.decode_nodes(first["resources"])] == list(HOSTS[:3])
    assert first["resources"]["scheduling"] == desk.r["scheduling"]
    assert rest == [{"down": "1-2"}, {"up": "0"}, {"down": "0"}, {"up": "1"}]


@virtually
async def test_one_at_a_time_acquires_the_resources() -> None:
    async with opened() as desk:
        _, task = await following(desk, "resource.acquire")
        with pytest.raises(RpcError, match="there is one acquirer") as caught:
            await anext(desk.bus.handle().stream("resource.acquire"))
        assert caught.value.errnum == errno.EBUSY

        await left(task)
        heard, task = await following(desk, "resource.acquire")
        assert heard == [{"resources": desk.r, "up": "0-3"}]
        await left(task)


@virtually
async def test_the_journal_tells_the_past_then_an_entry_without_events_then_each_one() -> None:
    journal = MemoryJournal()
    async with opened(journal) as desk:
        await desk.drain("0")
    async with opened(journal) as desk:
        heard, task = await following(desk, "resource.journal")
        await desk.undrain("0")
        await settle()
        await left(task)

    past, sentinel, undrained = heard
    assert [event["name"] for event in past["events"]] == [
        "restart", "resource-define", "drain", "restart", "resource-define",
    ]  # fmt: skip
    assert past["R"] == desk.r
    assert sentinel == {"events": []}
    assert undrained == {
        "events": [{"timestamp": EPOCH, "name": "undrain",
                    "context": {"idset": "0", "nodelist": "node0"}}],
    }  # fmt: skip


@virtually
async def test_the_group_of_the_nodes_that_are_there_is_told_whenever_it_changes() -> None:
    async with opened() as desk:
        heard, task = await following(desk, "groups.get", name="broker.online")
        await desk.drain("3")
        await desk.resources.set_down(["node1"])
        await desk.resources.set_up(["node1"])
        await settle()
        await left(task)
        empty, waiting = await following(desk, "groups.get", name="nobodys")
        await left(waiting)
        with pytest.raises(RpcError, match="takes the name of a group"):
            await anext(desk.bus.handle().stream("groups.get", {}))
    assert empty == [{"members": ""}]

    assert heard == [{"members": "0-3"}, {"members": "0,2-3"}, {"members": "0-3"}]


@virtually
async def test_only_the_owner_follows_what_is_the_schedulers() -> None:
    async with opened() as desk:
        guest = desk.bus.handle(GUEST)
        for topic in ("resource.acquire", "resource.journal"):
            with pytest.raises(RpcError) as caught:
                await anext(guest.stream(topic))
            assert caught.value.errnum == errno.EPERM


@virtually
async def test_a_log_that_was_removed_says_nothing_any_more() -> None:
    async with opened() as desk:
        await desk.drain("0-3", reason="many words")
        await desk.kvs.commit([unlink(LOG)])
        assert await desk.states() == ["free"] * 4
        await desk.drain("1")
        assert await desk.states() == ["free", "drained", "free", "free"]


# Nodes that are drained for one reason


@virtually
async def test_what_was_drained_for_a_reason_is_undrained_and_what_an_admin_drained_is_not() -> (
    None
):
    async with opened() as desk:
        await desk.drain("0", reason="bad disk")
        await desk.resources.keep_drained(["node0", "node1", "elsewhere"], "lost")
        reasons = [node.get("reason") for node in await desk.nodes()]
        assert reasons == ["bad disk", "lost", None, None]
        before = desk.events()
        await desk.resources.keep_drained(["node0", "node1"], "lost")
        assert desk.events() == before

        await desk.drain("2", reason="other")
        await desk.resources.keep_drained([], "lost", among=["node2", "node3"])
        assert desk.kept_back == [0, 1, 2]
        await desk.resources.keep_drained([], "lost", among=["node0", "node1"])
        assert desk.kept_back == [0, 2]

        await desk.resources.keep_drained(["node3"], "lost")
        await desk.drain("3", reason="mine now", mode="overwrite")
        await desk.resources.keep_drained([], "lost")
        assert desk.kept_back == [0, 2, 3]


@virtually
async def test_an_excluded_node_is_not_drained_for_what_it_has_lost() -> None:
    async with opened(config=Config(resource=ResourceTable(exclude="node3"))) as desk:
        await desk.resources.keep_drained(["node2", "node3"], "lost")
        assert desk.kept_back == [2]
