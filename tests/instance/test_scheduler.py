"""First come, first served: who gets what, when, and what the others are told."""

import asyncio
import errno
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from tests.harness.virtual import EPOCH, VirtualClock
from tests.instance.lives import spec
from tests.instance.parts import OWNER, SlowDisk, living, refused, settle, virtually
from warren.base.bytesize import GIB
from warren.instance import keys
from warren.instance.kvs import Kvs
from warren.instance.protocols import ANNOTATE, CANCEL, DENY, SUCCESS, Message
from warren.instance.scheduler import JobScheduler
from warren.instance.servicetables import SchedTable
from warren.journal import Journal, MemoryJournal
from warren.rfc import resource_set
from warren.rfc.fluid import JobId
from warren.rpc.bus import Bus
from warren.rpc.message import RpcError
from warren.scheduling.graph import Graph
from warren.scheduling.matchpolicy import MatchPolicy
from warren.scheduling.topology import ChassisTopology, resource_set_with_graph

HOSTS = ("node0", "node1", "node2", "node3")
SYSTEM = resource_set_with_graph(
    "test",
    [ChassisTopology(rabbit="rabbit0", capacity_bytes=4 * GIB, hosts=HOSTS)],
    cores_per_node=2,
)


class Desk:
    """A scheduler on four nodes with two cores each, and all of its answers."""

    def __init__(self, journal: Journal | None = None) -> None:
        self.kvs = Kvs(journal or MemoryJournal(), OWNER)
        self.answers: list[Message] = []
        clock, graph = VirtualClock(), Graph(SYSTEM)
        self.scheduler = JobScheduler(self.kvs, clock, graph, self.answers.append)

    def ask(
        self, job: int, nodes: int = 4, priority: int = 16, userid: int = OWNER, **options: Any
    ) -> None:
        self.scheduler.alloc(
            {
                "id": job,
                "priority": priority,
                "userid": userid,
                "t_submit": EPOCH,
                "jobspec": spec(tasks=None, nodes=nodes, **options),
            }
        )

    def of_type(self, type_: int) -> list[int]:
        return [each["id"] for each in self.answers if each["type"] == type_]

    @property
    def served(self) -> list[int]:
        return self.of_type(SUCCESS)

    @property
    def told(self) -> list[tuple[int, str]]:
        return [
            (each["id"], each["annotations"]["sched"]["reason_pending"])
            for each in self.answers
            if each["type"] == ANNOTATE
        ]

    def r(self, job: int) -> Message:
        (found,) = (each for each in self.answers if each["type"] == SUCCESS and each["id"] == job)
        r: Message = found["R"]
        return r

    def hosts(self, job: int) -> list[str]:
        return resource_set.nodelist(self.r(job))

    async def give_back(self, job: int) -> None:
        self.scheduler.free(JobId(job), self.r(job), True)
        await settle()


@asynccontextmanager
async def opened(journal: Journal | None = None) -> AsyncIterator[Desk]:
    desk = Desk(journal)
    async with living(desk.kvs.run, desk.scheduler.run):
        yield desk


@virtually
async def test_who_fits_is_served_at_once() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=2)
        desk.ask(2, nodes=2)
        await settle()

        assert desk.served == [1, 2]
        assert desk.hosts(1) == ["node0", "node1"]
        assert desk.hosts(2) == ["node2", "node3"]


@virtually
async def test_resources_are_written_down_before_they_are_given() -> None:
    """Statement 003.31: R is written, and then the allocation request answered."""
    disk = SlowDisk()
    async with opened(disk) as desk:
        desk.ask(1)
        await settle()
        assert desk.answers == []

        disk.free.set()
        await settle()
        assert desk.served == [1]
        stored = orjson.loads(desk.kvs.lookup(keys.job_key(1, "R")))
        assert resource_set.without_scheduling(stored) == desk.r(1)
        assert "graph" in stored["scheduling"]


@virtually
async def test_an_allocation_says_until_when_it_lasts() -> None:
    async with opened() as desk:
        await asyncio.sleep(5)
        desk.ask(1, nodes=1, duration=60.0)
        desk.ask(2, nodes=1)
        await settle()

        limited, unlimited = desk.r(1)["execution"], desk.r(2)["execution"]
        assert limited["starttime"] == unlimited["starttime"] == EPOCH + 5
        assert limited["expiration"] == EPOCH + 65
        assert unlimited["expiration"] == 0.0


@virtually
async def test_no_job_overtakes_the_first_that_waits() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=3)
        desk.ask(2, nodes=2)
        desk.ask(3, nodes=1)
        await settle()
        assert desk.served == [1]

        await desk.give_back(1)
        assert desk.served == [1, 2, 3]


@virtually
async def test_who_has_more_priority_comes_first_and_among_equals_the_older() -> None:
    async with opened() as desk:
        desk.ask(1)
        await settle()
        for job, priority in ((2, 16), (3, 31), (4, 16), (5, 31), (6, 0)):
            desk.ask(job, priority=priority)
        for job in (1, 3, 5, 2, 4):
            await settle()
            await desk.give_back(job)

        assert desk.served == [1, 3, 5, 2, 4, 6]


@virtually
async def test_the_first_who_waits_is_told_what_for_once() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=3)
        desk.ask(2, nodes=2)
        desk.ask(3, nodes=1)
        await settle()
        desk.ask(4, nodes=1)
        await settle()

        assert desk.told == [(2, "waits for 1 more of 2 nodes")]


@virtually
async def test_who_waits_is_told_when_the_reason_changes() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=1)
        desk.ask(2, nodes=3)
        desk.ask(3, nodes=4)
        await settle()
        await desk.give_back(1)

        assert desk.told == [
            (3, "waits for 4 more of 4 nodes"),
            (3, "waits for 3 more of 4 nodes"),
        ]


@virtually
async def test_the_reason_is_taken_back_with_the_resources() -> None:
    async with opened() as desk:
        desk.ask(1)
        desk.ask(2)
        await settle()
        await desk.give_back(1)

        sched = desk.answers[-1]["annotations"]["sched"]
        assert sched == {
            "resource_summary": "node[0-3]", "reason_pending": None, "t_estimate": None,
        }  # fmt: skip


@virtually
async def test_the_next_one_is_told_when_it_comes_to_the_front() -> None:
    async with opened() as desk:
        for job in (1, 2, 3):
            desk.ask(job)
        await settle()
        desk.scheduler.cancel(JobId(2))
        await settle()

        assert [job for job, _ in desk.told] == [2, 3]


@virtually
async def test_who_wants_no_more_is_answered_and_makes_way() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=3)
        desk.ask(2, nodes=2)
        desk.ask(3, nodes=1)
        await settle()
        desk.scheduler.cancel(JobId(2))
        await settle()

        assert desk.of_type(CANCEL) == [2]
        assert desk.served == [1, 3]


@virtually
async def test_cancelling_what_has_been_given_or_never_was_is_not_answered() -> None:
    async with opened() as desk:
        desk.ask(1)
        await settle()
        desk.scheduler.cancel(JobId(1))
        desk.scheduler.cancel(JobId(7))
        await settle()

        assert desk.of_type(CANCEL) == []


@virtually
async def test_what_fits_together_is_written_down_together() -> None:
    disk = SlowDisk()
    async with opened(disk) as desk:
        for job in (1, 2, 3):
            desk.ask(job, nodes=1)
        await settle()
        disk.free.set()
        await settle()

        assert desk.served == [1, 2, 3]
        assert len(disk.records) == 1


@virtually
async def test_who_leaves_when_the_answer_is_being_written_down_gets_it_and_gives_it_back() -> None:
    disk = SlowDisk()
    async with opened(disk) as desk:
        desk.ask(1, nodes=1)
        desk.ask(2, nodes=1)
        await settle()
        desk.scheduler.cancel(JobId(2))
        disk.free.set()
        await settle()
        assert desk.of_type(CANCEL) == []
        assert desk.served == [1, 2]

        await desk.give_back(2)
        desk.ask(3, nodes=3)
        await settle()
        assert desk.hosts(3) == ["node1", "node2", "node3"]


@virtually
async def test_who_changes_its_mind_while_others_are_being_served_gets_what_it_wants_now() -> None:
    disk = SlowDisk()
    async with opened(disk) as desk:
        desk.ask(1, nodes=4)
        desk.ask(2, nodes=4)
        await settle()
        desk.scheduler.cancel(JobId(2))
        desk.ask(2, nodes=3)
        disk.free.set()
        await settle()
        await desk.give_back(1)

        assert desk.of_type(CANCEL) == [2]
        assert desk.served == [1, 2]
        assert desk.hosts(2) == ["node0", "node1", "node2"]


@virtually
async def test_what_can_never_be_is_denied_and_does_not_hold_up_the_others() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=5)
        desk.ask(2, nodes=1, cores=3)
        desk.ask(3, nodes=1)
        await settle()

        assert desk.of_type(DENY) == [1, 2]
        assert desk.served == [3]
        notes = {each["id"]: each["note"] for each in desk.answers if each["type"] == DENY}
        assert notes[1] == "5 nodes are asked for, and the cluster has 4."


@virtually
async def test_a_jobspec_that_cannot_be_understood_is_denied() -> None:
    async with opened() as desk:
        jobspec = spec()
        jobspec["resources"] = [{"type": "switch", "count": 1, "with": jobspec["resources"]}]
        desk.scheduler.alloc({"id": 1, "userid": OWNER, "priority": 16, "jobspec": jobspec})
        await settle()

        assert desk.of_type(DENY) == [1]
        assert "switch" in desk.answers[0]["note"]


@virtually
async def test_what_jobs_had_before_a_restart_they_still_have() -> None:
    journal = MemoryJournal()
    async with opened(journal) as desk:
        desk.ask(1, nodes=3)
        await settle()
        r = orjson.loads(desk.kvs.lookup(keys.job_key(1, "R")))

    async with opened(journal) as desk:
        assert desk.scheduler.hello(JobId(1), r, ()) is None
        desk.ask(2, nodes=2)
        await settle()
        assert desk.told == [(2, "waits for 1 more of 2 nodes")]

        desk.scheduler.free(JobId(1), r, True)
        await settle()
        assert desk.served == [2]


@virtually
async def test_a_drained_node_is_waited_for_and_given_as_soon_as_it_is_undrained() -> None:
    async with opened() as desk:
        desk.scheduler.set_drained([1])
        desk.ask(1, nodes=3)
        desk.ask(2, nodes=4)
        await settle()
        assert desk.hosts(1) == ["node0", "node2", "node3"]
        await desk.give_back(1)
        assert desk.told[-1] == (2, "waits for 1 more of 4 nodes; drained: node1")

        desk.scheduler.set_drained([])
        await settle()
        assert desk.served == [1, 2]


@virtually
async def test_who_waits_is_told_when_the_node_it_waits_for_is_drained() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=1)
        desk.ask(2, nodes=4)
        await settle()
        desk.scheduler.set_drained([0])
        await settle()

        assert desk.told == [
            (2, "waits for 1 more of 4 nodes"),
            (2, "waits for 1 more of 4 nodes; drained: node0"),
        ]


@virtually
async def test_those_behind_the_first_learn_what_they_wait_for_when_they_ask() -> None:
    async with opened() as desk:
        desk.scheduler.set_drained([0])
        for job in (1, 2):
            desk.ask(job, nodes=4)
        desk.ask(3, nodes=1)
        desk.ask(4, nodes=1)
        await settle()
        assert desk.told == [(1, "waits for 1 more of 4 nodes; drained: node0")]
        bus = Bus(OWNER)
        bus.register("sched", desk.scheduler.methods())
        answer = await bus.handle(OWNER + 1).rpc("sched.waits", {"ids": [1, 2, 3, 99]})

    assert answer == {
        "waits": {
            job: "waits for 3 more of 4 nodes; of 4 that would do, 1 free, 2 taken and 1 drained"
            "; drained: node0"
            for job in ("1", "2")
        }
    }
    assert desk.served == [3, 4]


@virtually
async def test_why_a_job_waits_is_told_with_what_it_waits_for_and_who_is_before_it() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=3, duration=60.0)
        desk.ask(2, nodes=4, duration=60.0)
        desk.ask(3, nodes=1, duration=600.0)
        await settle()
        bus = Bus(OWNER)
        bus.register("sched", desk.scheduler.methods())
        handle = bus.handle(OWNER + 1)
        first = await handle.rpc("sched.why", {"id": 2})
        second = await handle.rpc("sched.why", {"id": 3})
        foreseen = await handle.rpc("sched.why", {"jobspec": spec(tasks=None, nodes=1)})
        soon = spec(tasks=None, nodes=1, duration=30.0)
        fits = await handle.rpc("sched.why", {"jobspec": soon, "priority": 3})
        for payload, number in (
            ({"id": 1}, errno.ENOENT),
            ({"id": "2"}, errno.EPROTO),
            ({}, errno.EPROTO),
            ({"jobspec": {}}, errno.EINVAL),
            ({"jobspec": soon, "priority": "much"}, errno.EPROTO),
        ):
            assert await refused(handle.rpc("sched.why", payload)) == number

    assert first.items() >= {
        "kind": "nodes", "kinds": ["nodes"], "before": 0, "ends": 1, "earliest": EPOCH + 60,
        "t_estimate": EPOCH + 60, "map": {"read": EPOCH, "heard": None},
    }.items()  # fmt: skip
    assert second.items() >= {"kind": "reserved", "behind": [2], "before": 1}.items()
    assert (foreseen["kind"], foreseen["before"]) == ("reserved", 2)
    assert (fits["kind"], fits["before"]) == ("turn", 2)
    assert desk.served == [1]


@virtually
async def test_an_expiration_is_a_number_of_seconds() -> None:
    """Python takes true for 1: a job would have ended long ago."""
    async with opened() as desk:
        bus = Bus(OWNER)
        bus.register("sched", desk.scheduler.methods())
        for expiration in (True, -1, "1", None):
            request = {"id": 1, "expiration": expiration}
            assert await refused(bus.handle().rpc("sched.expiration", request)) == errno.EPROTO


@virtually
async def test_what_can_be_no_job_is_not_asked_about() -> None:
    async with opened() as desk:
        bus = Bus(OWNER)
        bus.register("sched", desk.scheduler.methods())
        endless = {"jobspec": spec(tasks=None, nodes=1, duration=10**400)}
        with pytest.raises(
            RpcError, match=r"attributes\.system\.duration is more seconds"
        ) as caught:
            await bus.handle(OWNER + 1).rpc("sched.why", endless)

    assert caught.value.errnum == errno.EINVAL


@virtually
async def test_a_job_that_is_over_keeps_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    async with opened() as desk:
        desk.ask(1)
        desk.ask(2)
        await settle()
        assert desk.served == [1]
        desk.scheduler.retire(JobId(2))
        desk.scheduler.retire(JobId(1))
        await settle()
        assert desk.served == [1, 2]
        desk.scheduler.retire(JobId(1))
        await settle()

    assert capsys.readouterr().err.count("a job that is over was not freed") == 1


@virtually
async def test_the_depth_is_that_of_each_user_and_what_was_foreseen_is_so() -> None:
    async with opened() as desk:
        desk.scheduler.configure(SchedTable(queue_depth=2))
        desk.ask(1, nodes=3, duration=60.0)
        for job in (2, 3):
            desk.ask(job, nodes=4, duration=60.0)
        await settle()
        bus = Bus(OWNER)
        bus.register("sched", desk.scheduler.methods())
        soon = {"jobspec": spec(tasks=None, nodes=1, duration=30.0)}
        own = await bus.handle(OWNER).rpc("sched.why", soon)
        other = await bus.handle(OWNER + 1).rpc("sched.why", soon)
        desk.ask(4, nodes=1, duration=30.0)
        desk.ask(5, nodes=1, duration=30.0, userid=OWNER + 1)
        await settle()

    assert (own["kind"], other["kind"]) == ("depth", "turn")
    assert (own["before"], other["before"]) == (2, 2)
    assert desk.served == [1, 5]


@virtually
async def test_what_is_wrong_inside_costs_one_job_and_not_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(jobspec: Mapping[str, Any]) -> None:
        raise TypeError("unhashable type: 'list'")

    async with opened() as desk:
        with monkeypatch.context() as wrong:
            wrong.setattr("warren.instance.scheduler.from_jobspec", read)
            desk.ask(1)
        desk.ask(2)
        await settle()

    (answer,) = [each for each in desk.answers if each["id"] == 1]
    assert (answer["type"], answer["note"][:14]) == (DENY, "internal error")
    assert desk.served == [2]


@virtually
async def test_another_policy_holds_for_jobs_that_start_from_now_on() -> None:
    two = [
        ChassisTopology(
            rabbit=f"r{each}", capacity_bytes=4 * GIB, hosts=HOSTS[2 * each : 2 * each + 2]
        )
        for each in range(2)
    ]
    answers: list[Message] = []
    kvs = Kvs(MemoryJournal(), OWNER)
    graph = Graph(resource_set_with_graph("test", two, cores_per_node=2))
    scheduler = JobScheduler(kvs, VirtualClock(), graph, answers.append)
    async with living(kvs.run, scheduler.run):
        for job, policy in ((1, MatchPolicy.FIRST), (2, MatchPolicy.SPREAD)):
            scheduler.configure(SchedTable(match_policy=policy))
            wanted = spec(tasks=None, nodes=2)
            scheduler.alloc({"id": job, "priority": 16, "userid": OWNER, "t_submit": EPOCH,
                             "jobspec": wanted})  # fmt: skip
            await settle()
            scheduler.free(JobId(job), answers[-1]["R"], True)

    assert [resource_set.nodelist(each["R"]) for each in answers] == [
        ["node0", "node1"],
        ["node0", "node2"],
    ]


def flash(gib: int) -> Any:
    """The resources of a job that wants flash beside each of its nodes."""
    node = {"type": "node", "count": 1, "exclusive": True, "with": [{"type": "slot", "count": 1,
            "label": "task", "with": [{"type": "core", "count": 1}]}]}  # fmt: skip
    ssd = {"type": "ssd", "count": gib, "exclusive": True}
    return [{"type": "slot", "count": 1, "label": "rabbit", "with": [node, ssd]}]


@virtually
async def test_flash_that_is_not_ready_is_waited_for() -> None:
    async with opened() as desk:
        desk.scheduler.set_rabbit("rabbit0", up=False)
        jobspec = {**spec(tasks=1), "resources": flash(1)}
        desk.scheduler.alloc({"id": 1, "userid": OWNER, "priority": 16, "jobspec": jobspec})
        await settle()
        ((job, reason),) = desk.told
        assert job == 1
        assert reason.endswith("not ready: rabbit0")

        desk.scheduler.set_rabbit("rabbit0", up=True)
        await settle()
        assert desk.served == [1]


@virtually
async def test_those_who_have_left_do_not_fill_the_queue() -> None:
    async with opened() as desk:
        desk.ask(1, nodes=4)
        await settle()
        desk.ask(2, nodes=4)  # stands at the head, and waits
        for job in range(3, 1000):
            desk.ask(job, nodes=1)
            desk.scheduler.cancel(JobId(job))
            await settle()

        assert [len(line) for line in desk.scheduler._queues.values()] == [1]
        await desk.give_back(1)
        await settle()
        assert desk.served == [1, 2]


@virtually
async def test_what_a_job_leaves_on_rabbits_is_never_free_in_between() -> None:
    async with opened() as desk:
        desk.scheduler.alloc(
            {
                "id": 1,
                "userid": OWNER,
                "priority": 16,
                "jobspec": {**spec(tasks=1), "resources": flash(3)},
            }
        )
        await settle()
        assert desk.served == [1]
        # The job has it in its R: there is room for another one.
        desk.scheduler.set_storage("default/kept", {"rabbit0": 3 * GIB}, JobId(1))
        for job, gib in ((2, 1), (3, 2)):
            jobspec = {**spec(tasks=1), "resources": flash(gib)}
            desk.scheduler.alloc({"id": job, "userid": OWNER, "priority": 16, "jobspec": jobspec})
        await settle()
        assert desk.served == [1, 2]

        await desk.give_back(1)
        await desk.give_back(2)
        assert desk.served == [1, 2]
        desk.scheduler.set_storage("default/kept", None)
        await settle()
        assert desk.served == [1, 2, 3]


@virtually
async def test_after_a_restart_a_job_holds_again_what_it_has_made() -> None:
    async with opened() as desk:
        jobspec = {**spec(tasks=1), "resources": flash(3)}
        desk.scheduler.alloc({"id": 1, "userid": OWNER, "priority": 16, "jobspec": jobspec})
        await settle()
        r = orjson.loads(desk.kvs.lookup(keys.job_key(1, "R")))
        async with opened() as other:
            # What there is may be known before the jobs are, or after them.
            other.scheduler.set_storage("default/kept", {"rabbit0": 3 * GIB}, JobId(1))
            assert other.scheduler.hello(JobId(1), r, ()) is None
            jobspec = {**spec(tasks=1), "resources": flash(1)}
            other.scheduler.alloc({"id": 2, "userid": OWNER, "priority": 16, "jobspec": jobspec})
            await settle()
            assert other.served == [2]
