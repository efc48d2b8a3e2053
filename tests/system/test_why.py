"""Why a job does not run, asked of the whole system: each state has its one reason."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from tests.harness import virtual
from tests.harness.world import World, opened
from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.base.objects import Change, Key
from warren.cli.job import pendingreasons
from warren.cli.job.dryrun import _outcome
from warren.cli.job.why import print_numbers, why
from warren.daemons.clustershape import ClusterShape
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.instance.config import Config
from warren.instance.simulated import TaskBehavior
from warren.kube.server.local import LocalClient
from warren.lifecycle.policy import Queue
from warren.lifecycle.states import State
from warren.rfc import fluid, jobspec
from warren.rfc.fluid import JobId
from warren.rpc.message import Handle

SITE = ClusterShape(rabbits=2, computes_per_rabbit=2, capacity=64 * GIB)
FLASH = "#DW jobdw type=xfs capacity={gib}GiB name=scratch"


def lived(life: Callable[[World, Control], Awaitable[None]], config: Config | None = None) -> None:
    async def main() -> None:
        async with opened(SITE, lambda command, environment: TaskBehavior(seconds=600.0)) as world:
            world.config = config or Config()
            await world.live(lambda control: to_the_end(world, control))

    async def to_the_end(world: World, control: Control) -> None:
        try:
            await life(world, control)
        finally:
            for each in [*control.instance.manager.jobs()]:
                if each.job.state is not State.INACTIVE:
                    await world.cancel(control, each.job.id)
                    await world.ended(control, each.job.id)

    virtual.run(main())


async def asked(control: Control, job: JobId) -> Mapping[str, Any]:
    return await why(control.instance.handle, job, fluid.f58(job))


async def states(control: Control, job: JobId) -> State | None:
    found = control.instance.manager.find(job)
    return None if found is None else found.job.state


def test_a_job_that_waits_for_others_is_told_which_and_until_when() -> None:
    async def life(world: World, control: Control) -> None:
        runs = await world.submit(control, nodes=3, duration=1000.0)
        first = await world.submit(control, nodes=4, duration=1000.0)
        behind = await world.submit(control, nodes=1, duration=5000.0)
        await asyncio.sleep(10.0)

        running = await asked(control, runs)
        assert (running["kind"], running["state"]) == ("running", "RUN")
        assert running["reason"] == "does not wait: it has its resources on compute-[00-02]"
        found = await asked(control, first)
        assert found["reason"] == (
            "waits for 3 more of 4 nodes; of 4 that would do, 1 free and 3 taken"
        )
        assert found["ends"] == runs
        assert found["t_estimate"] == found["earliest"] > world.clock.now()
        assert found["before"] == 0
        second = await asked(control, behind)
        assert (second["kind"], second["behind"], second["before"]) == ("reserved", [first], 1)

        # The line of `warren jobs` says the same.
        jobs = [
            {"id": job, "state": State.SCHED.bit, "priority": 16, "annotations": {}}
            for job in (first, behind)
        ]
        lines = await pendingreasons.reasons(control.instance.handle, jobs)
        assert lines == {first: found["reason"], behind: second["reason"]}

        await world.cancel(control, first)
        await asyncio.sleep(10.0)
        assert await states(control, behind) is State.RUN

    lived(life)


def test_flash_and_rabbits_are_told_as_they_are_now() -> None:
    async def life(world: World, control: Control) -> None:
        holds = await world.submit(
            control, nodes=2, duration=1000.0, attributes={"dw": FLASH.format(gib=20)}
        )
        await asyncio.sleep(20.0)
        job = await world.submit(control, nodes=2, attributes={"dw": FLASH.format(gib=40)})
        await asyncio.sleep(20.0)
        found = await asked(control, job)
        assert found["kind"] == "flash"
        assert found["reason"] == (
            "waits for 41 GiB of flash beside each of 2 nodes; 1 node can have that now, "
            "and rabbit-1 lacks 18 GiB"
        )
        assert 0 <= world.clock.now() - found["map"]["heard"] < 60.0

        await world.cancel(control, holds)
        key = Key(kinds.DEFAULT_NAMESPACE, "rabbit-1")
        drain = Change(kind=kinds.STORAGE, key=key, patch={"spec": {"state": "Disabled"}})
        await LocalClient(control.api.store).patch(drain)
        await asyncio.sleep(20.0)
        found = await asked(control, job)
        assert found["kinds"] == ["rabbits"]
        assert found["reason"].endswith("; not ready: rabbit-1 (Disabled)")

        back = Change(kind=kinds.STORAGE, key=key, patch={"spec": {"state": "Enabled"}})
        await LocalClient(control.api.store).patch(back)
        await asyncio.sleep(20.0)
        assert await states(control, job) is State.RUN
        assert (await asked(control, job))["kind"] in ("running", "storage")

    lived(life)


def test_what_keeps_a_job_from_the_scheduler_comes_first() -> None:
    async def life(world: World, control: Control) -> None:
        handle = control.instance.handle
        held = await world.submit(control, nodes=1)
        await asyncio.sleep(10.0)
        await world.cancel(control, held)
        await asyncio.sleep(30.0)
        over = await asked(control, held)
        assert (over["kind"], over["reason"]) == ("over", "does not wait: it is over (CANCELED)")

        await handle.rpc("job-manager.queue-start", {"name": "batch", "start": False,
                                                     "reason": "noon"})  # fmt: skip
        job = await world.submit(control, nodes=1)
        await asyncio.sleep(1.0)
        found = await asked(control, job)
        assert (found["kind"], found["reason"]) == ("queue", "waits: queue batch is stopped: noon")

        await handle.rpc("job-manager.urgency", {"id": job, "urgency": 0})
        assert (await asked(control, job))["reason"] == (
            f"is held, by an urgency of 0: `warren job urgency {fluid.f58(job)} default` lets it go"
        )
        await handle.rpc("job-manager.urgency", {"id": job, "urgency": 16})
        await handle.rpc("job-manager.queue-start", {"name": "batch", "start": True})
        await asyncio.sleep(1.0)
        assert (await asked(control, job))["kind"] == "running"

        after = [{"scheme": "afterany", "value": fluid.f58(job)}]
        later = await world.submit(control, nodes=1, attributes={"dependencies": after})
        await asyncio.sleep(1.0)
        found = await asked(control, later)
        assert found["kind"] == "dependency"
        assert found["reason"] == f"waits for its dependency after-finish={fluid.f58(job)}"
        with pytest.raises(UserMistake, match="ƒ2: "):
            await why(handle, 99 << 24, "ƒ2")

    lived(life, Config(queues={"batch": Queue()}))


def test_a_dry_run_tells_before_submit_what_the_job_would_wait_for() -> None:
    """Judged on what the job will ask for when its storage has been worked out."""

    async def life(world: World, control: Control) -> None:
        async def foreseen(nodes: int, gib: int = 0, urgency: int = 16, **system: Any) -> str:
            given = {**system, **({"dw": FLASH.format(gib=gib)} if gib else {})}
            spec = jobspec.make(command=["app"], nodes=nodes, attributes=given)
            return await _outcome(control.instance.handle, spec, urgency, 0)

        start = {"name": "batch", "start": True}
        await control.instance.handle.rpc("job-manager.queue-start", start)
        await asyncio.sleep(20.0)
        assert await foreseen(4, 20) == "the job would start at once."
        for nodes, gib, words in (
            (5, 0, "the job is refused: 5 nodes are asked for, and the cluster has 4."),
            (4, 40, "the job is refused: 4 nodes with 41 GiB of flash each are asked for, "
                    "and a rabbit has 64 GiB for the nodes that are wired to it."),
        ):  # fmt: skip
            with pytest.raises(UserMistake) as mistake:
                await foreseen(nodes, gib)
            assert str(mistake.value) == words

        await world.submit(control, nodes=1, attributes={"dw": FLASH.format(gib=40)})
        await asyncio.sleep(20.0)
        assert await foreseen(2, 40, queue="batch") == (
            "the job would wait for 41 GiB of flash beside each of 2 nodes; "
            "1 node can have that now, and rabbit-0 lacks 18 GiB, rabbit-1 lacks 18 GiB."
        )
        assert await foreseen(1, urgency=0) == "the job would be held, by its urgency of 0."
        after = [{"scheme": "afterany", "value": fluid.f58(1)}]
        assert (await foreseen(1, dependencies=after)).endswith("wait for its dependencies first.")
        stop = {"name": "batch", "start": False, "reason": "noon"}
        await control.instance.handle.rpc("job-manager.queue-start", stop)
        assert await foreseen(1) == "the job would wait: queue batch is stopped: noon."
        assert len([*control.instance.manager.jobs()]) == 1

    lived(life, Config(queues={"batch": Queue()}))


@dataclass
class Broker:
    """An instance whose scheduler is another one."""

    job: Mapping[str, Any]
    asked: list[str] = field(default_factory=list)

    async def rpc(self, topic: str, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        from warren.rpc.message import RpcError

        self.asked.append(topic)
        match topic:
            case "job-list.list-id":
                return {"job": self.job}
            case "job-manager.queue-status":
                return {"start": True}
            case "dws.waits":
                return {"waits": {"5": "waits for Setup on rabbit-0"}}
        raise RpcError(38, "ENOSYS")


def told(**job: Any) -> Mapping[str, Any]:
    broker = Broker({"id": 5, **job})
    return asyncio.run(why(cast(Handle, broker), 5, "ƒ6"))


def test_where_fluxion_schedules_it_is_said_to_be_the_one_who_knows() -> None:
    found = told(state=State.SCHED.bit, priority=16)
    assert found["kind"] == "scheduler"
    assert "scheduler is not Warren's" in found["reason"]
    annotated = {"sched": {"reason_pending": "no cores"}}
    assert told(state=State.SCHED.bit, priority=16, annotations=annotated)["reason"].endswith(
        "(no cores)"
    )


def test_at_a_broker_the_conductor_tells_what_it_knows() -> None:
    held = told(state=State.DEPEND.bit, dependencies=["dws-create"])
    assert (held["kind"], held["reason"]) == ("storage", "waits for Setup on rabbit-0")
    runs = told(state=State.RUN.bit, annotations={"user": {"rabbit_workflow": "fluxjob-5"}})
    assert (runs["kind"], runs["state"]) == ("storage", "RUN")
    assert told(state=State.RUN.bit)["kind"] == "running"
    assert told(state=State.CLEANUP.bit)["kind"] == "cleanup"
    assert told(state=State.PRIORITY.bit)["kind"] == "priority"
    assert told(state=State.SCHED.bit, priority=0, urgency=16)["kind"] == "priority"


def test_the_numbers_are_printed_with_when_there_will_be_room(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rabbit = {"rabbit": "r0", "free_gib": 3, "of_gib": 8, "nodes_free": 2, "nodes_with_flash": 0,
              "lacks_gib": 1, "not_ready": "Disabled"}  # fmt: skip
    print_numbers(
        {
            "kinds": ["nodes", "rabbits"],
            "nodes": {"wanted": 2, "would_do": 8, "free": 0, "taken": 7, "drained": 1, "tagged": 0},
            "flash": {"rabbits": [rabbit], "rabbits_more": 2},
            "earliest": 3600.0, "ends": 5, "before": 3,
            "map": {"read": -86400.0, "heard": -60.0},
        },
        0.0,
    )  # fmt: skip
    assert capsys.readouterr().out.splitlines() == [
        "  nodes          2 wanted, 8 would do, 0 free, 7 taken, 1 drained",
        "  room by        1970-01-01T01:00:00Z (in 1h), when ƒ6 reaches its time limit, "
        "if no other takes it",
        "  before it      3 jobs",
        "  map            read 1d ago; rabbits were last heard of 1m ago",
        "RABBIT  FREE GiB  NODES WITH IT  LACKS GiB  NOT READY",
        "r0      3 of 8    0 of 2         1          Disabled",
        "and 2 rabbits more",
    ]
    print_numbers({"kinds": ["nodes"], "flash": {"rabbits": [rabbit]}}, 0.0)
    assert capsys.readouterr().out == ""
    print_numbers({"t_estimate": -5.0}, 0.0)
    assert capsys.readouterr().out == "  starts by      1969-12-31T23:59:55Z (now)\n"
    print_numbers({"reserved_at": 60.0}, 0.0)
    assert capsys.readouterr().out == "  reserved from  1970-01-01T00:01:00Z (in 1m)\n"
