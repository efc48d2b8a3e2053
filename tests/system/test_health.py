"""Rabbits that are not Ready get no jobs, and keep those that they have."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from typing import Any

import pytest

from tests.harness import virtual
from tests.harness.world import DIRECTIVES, World, opened
from warren.base.bytesize import GIB
from warren.base.objects import Change, Key, Kind, Object, Remove
from warren.daemons.compose import Control
from warren.dws import kinds
from warren.dws.rabbits import rabbitstorages
from warren.instance.simulated import TaskBehavior
from warren.kube.client import Client, Listing, WatchEvent
from warren.kube.informer import Informer
from warren.kube.server.local import LocalClient
from warren.lifecycle.states import Result, State
from warren.rfc import hostlist, resource_set
from warren.rfc.fluid import JobId
from warren.wlm import health
from warren.wlm.codec import BINDING

R0, R1 = "rabbit-0", "rabbit-1"
OF_R0 = {"hostlist": ["compute-[00-03]"]}
DW = {"dw": DIRECTIVES[0]}


class Passing:
    """A client that passes everything on, for tests to stand in the way of something."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def get(self, kind: Kind, key: Key) -> Object:
        return await self._client.get(kind, key)

    async def list(
        self, kind: Kind, namespace: str = "", labels: Mapping[str, str] | None = None
    ) -> Listing:
        return await self._client.list(kind, namespace, labels)

    def watch(self, kind: Kind, since: str, namespace: str = "") -> AsyncIterator[WatchEvent]:
        return self._client.watch(kind, since, namespace)

    async def create(self, kind: Kind, obj: Object) -> Object:
        return await self._client.create(kind, obj)

    async def patch(self, change: Change) -> Object:
        return await self._client.patch(change)

    async def delete(self, remove: Remove) -> None:
        await self._client.delete(remove)


async def patch(control: Control, rabbit: str, patch: Mapping[str, Any]) -> None:
    """Change a Storage, as an administrator or its driver does."""
    change = Change(
        kind=kinds.STORAGE,
        key=Key(kinds.DEFAULT_NAMESPACE, rabbit),
        patch=patch,
        status="status" in patch,
    )
    await LocalClient(control.api.store).patch(change)


async def make(control: Control, rabbit: str, status: str) -> None:
    """Make a rabbit something else than Ready."""
    if status == "Disabled":
        await patch(control, rabbit, {"spec": {"state": "Disabled"}})
        return
    await patch(control, rabbit, {"spec": {"mode": "Testing"}})
    await patch(control, rabbit, {"status": {"status": status}})


def storage(control: Control, rabbit: str) -> Mapping[str, Any]:
    """Return a Storage."""
    found: Mapping[str, Any] = control.api.store.get(
        kinds.STORAGE, Key(kinds.DEFAULT_NAMESPACE, rabbit)
    )
    return found


async def opening(world: World, control: Control) -> None:
    """Wait until both rabbits have spoken."""

    def spoken() -> bool:
        told = [each.get("status", {}) for each in control.api.store.objects_of(kinds.STORAGE)]
        return [each.get("status") for each in told] == ["Ready"] * 2

    await world.until(spoken)


def lived(*lives: Callable[[World, Control], Awaitable[None]], seconds: float = 1.0) -> None:
    """Live once or more often on the same cluster, on which tasks take so long."""

    async def main() -> None:
        async with opened(play=lambda command, environment: TaskBehavior(seconds=seconds)) as world:
            for life in lives:
                await world.live(lambda control, life=life: life(world, control))  # type: ignore[misc]

    virtual.run(main())


def state(control: Control, job: JobId) -> State:
    found = control.instance.manager.find(job)
    assert found is not None
    return found.job.state


async def waits(control: Control, job: JobId) -> str:
    """Return what a job waits for, as `warren jobs` shows it, once it has been looked at."""
    await asyncio.sleep(2.0)
    assert state(control, job) is State.SCHED
    entry = control.instance.manager.find(job)
    assert entry is not None
    return str(entry.job.annotations["sched"]["reason_pending"])


async def ends(world: World, control: Control, job: JobId) -> str:
    """Wait for a job's good end; return its nodes."""
    ended = await world.ended(control, job)
    assert ended.job.result is Result.COMPLETED, world.eventlog(control, job)
    assert ended.r is not None
    return hostlist.encode(resource_set.nodelist(ended.r))


@pytest.mark.parametrize("status", ["Disabled", "Drained", "Failed", "Offline", "Degraded"])
def test_a_rabbit_that_is_not_ready_gets_no_job_until_it_is_again(status: str) -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await make(control, R0, status)
        held = await world.submit(control, attributes={**DW, "constraints": OF_R0})

        assert await waits(control, held) == (
            "waits for 2 GiB of flash beside each of 4 nodes that meet hostlist:compute-[00-03]; "
            f"not ready: rabbit-0 ({status})"
        )
        others = await world.submit(control, attributes=DW)
        assert await ends_beside(world, control, others, held) == "compute-[04-07]"
        plain = await world.submit(control, attributes={"constraints": OF_R0})
        assert await ends_beside(world, control, plain, held) == "compute-[00-03]"

        await patch(control, R0, {"spec": {"state": "Enabled", "mode": "Live"}})
        assert await ends(world, control, held) == "compute-[00-03]"

    lived(life)


def test_a_rabbit_without_the_label_that_every_set_asks_for_gets_no_job() -> None:
    """Statement 002.15: labels that a rabbit loses."""
    label = "dataworkflowservices.github.io/storage"

    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await patch(control, R0, {"metadata": {"labels": {label: None}}})
        held = await world.submit(control, attributes={**DW, "constraints": OF_R0})
        assert (await waits(control, held)).endswith(
            f"not ready: rabbit-0 (without the label {label}=Rabbit)"
        )
        await patch(control, R0, {"metadata": {"labels": {label: "Rabbit"}}})
        assert await ends(world, control, held) == "compute-[00-03]"

    lived(life)


def test_what_a_rabbit_says_that_it_has_counts_while_jobs_come_and_go() -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await patch(control, R0, {"spec": {"mode": "Testing"}})
        await patch(control, R0, {"status": {"capacity": 5 * GIB}})
        held = await world.submit(control, attributes={**DW, "constraints": OF_R0})
        assert " has 5 GiB of " in await waits(control, held)
        await patch(control, R0, {"status": {"capacity": 8 * GIB}})
        assert await ends(world, control, held) == "compute-[00-03]"

    lived(life)


async def ends_beside(world: World, control: Control, job: JobId, held: JobId) -> str:
    """Wait for a job's good end while another one still waits; return its nodes."""
    await asyncio.sleep(60.0)
    assert state(control, held) is State.SCHED
    found = control.instance.manager.find(job)
    assert found is not None
    assert found.job.result is Result.COMPLETED
    assert found.r is not None
    return hostlist.encode(resource_set.nodelist(found.r))


def test_a_rabbit_that_is_not_ready_gets_no_job_after_a_restart_either() -> None:
    jobs = []

    async def before(world: World, control: Control) -> None:
        await opening(world, control)
        await make(control, R0, "Disabled")

    async def after(world: World, control: Control) -> None:
        # At once, before anything has been told.
        jobs.append(await world.submit(control, attributes={**DW, "constraints": OF_R0}))
        assert (await waits(control, jobs[0])).endswith("not ready: rabbit-0 (Disabled)")

    async def again(world: World, control: Control) -> None:
        assert (await waits(control, jobs[0])).endswith("not ready: rabbit-0 (Disabled)")
        await patch(control, R0, {"spec": {"state": "Enabled"}})
        await ends(world, control, jobs[0])

    lived(before, after, again)


def test_flash_of_which_no_storage_tells_is_not_given_out() -> None:
    told: list[tuple[str, bool]] = []

    class Scheduler:
        def set_rabbit(
            self,
            rabbit: str,
            *,
            up: bool,
            state: str = "",
            capacity_gib: int | None = None,
            labels: Iterable[str] | None = None,
        ) -> None:
            told.append((rabbit, up))

        def set_storage(self, *storage: object) -> None: ...

        def set_badrabbit_nodes(self, source: str, hosts: Iterable[str]) -> None: ...

        async def keep_drained(self, *nodes: object) -> None: ...

    async def life(world: World, control: Control) -> None:
        client = LocalClient(control.api.store)
        rabbits, taken = Informer(client, kinds.STORAGE), Informer(client, kinds.NNF_STORAGE)
        health.mark_all_down([R0, "elsewhere"], Scheduler())
        assert told == [(R0, False), ("elsewhere", False)]
        scheduler = Scheduler()
        following = health.follow_health(rabbits, taken, BINDING, scheduler, scheduler)
        parts = [rabbits.run(), following]
        working = asyncio.gather(*parts)
        await opening(world, control)
        # Until it is known what is taken, nothing is free.
        assert told == [(R0, False), ("elsewhere", False)]
        watching = asyncio.ensure_future(taken.run())
        await asyncio.sleep(1.0)
        assert dict(told) == {R0: True, R1: True, "elsewhere": False}

        key = Key(kinds.DEFAULT_NAMESPACE, R0)
        told.clear()
        await LocalClient(control.api.store).delete(Remove(kind=kinds.STORAGE, key=key))
        await asyncio.sleep(5.0)
        assert (R0, False) in told
        assert told[-1] == (R0, True)  # it is made again
        working.cancel()
        watching.cancel()

    lived(life)


def test_a_job_keeps_the_flash_that_it_has() -> None:
    jobs = []

    async def before(world: World, control: Control) -> None:
        await opening(world, control)
        jobs.append(await world.submit(control, attributes={**DW, "constraints": OF_R0}))
        await asyncio.sleep(5.0)
        assert state(control, jobs[0]) is State.RUN
        await make(control, R0, "Disabled")
        await asyncio.sleep(5.0)

    async def after(world: World, control: Control) -> None:
        await ends(world, control, jobs[0])
        await world.assert_nothing_left(control)

    lived(before, after, seconds=60.0)


def test_setup_refuses_a_rabbit_that_stopped_being_ready_after_a_job_got_it() -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        early.append(control)
        job = await world.submit(control, attributes=DW)
        ended = await world.ended(control, job)

        assert ended.job.result is Result.FAILED
        (note,) = {
            event.context["note"]
            for event in world.eventlog(control, job)
            if event.name == "exception"
        }
        assert (
            "rabbit-0 is Disabled, and only rabbits that are Ready take new storage: "
            "submit the job again"
        ) in note
        await world.assert_nothing_left(control)

    early: list[Control] = []

    class Early(Passing):
        """Has rabbit-0 disabled in the moment in which Setup is asked for."""

        async def patch(self, change: Change) -> Object:
            if early and change.patch.get("spec", {}).get("desiredState") == "Setup":
                await make(early[0], R0, "Disabled")
            return await super().patch(change)

    async def main() -> None:
        async with opened() as world:
            world.client = Early  # type: ignore[method-assign]
            await world.live(lambda control: life(world, control))

    virtual.run(main())


def test_disabling_a_rabbit_leaves_the_links_to_its_nodes_alone() -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await make(control, R0, "Disabled")
        await world.until(lambda: storage(control, R0)["status"]["status"] == "Disabled")

        assert {each["status"] for each in linked(control)} == {"Ready"}

    lived(life)


def linked(control: Control) -> list[Mapping[str, Any]]:
    links: list[Mapping[str, Any]] = storage(control, R0)["status"]["access"]["computes"]
    return links


def test_news_of_one_rabbit_costs_no_look_at_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at = []
    decide = rabbitstorages.decide

    def counted(configuration: Any, rabbit: Any, *others: Any, **known: Any) -> Any:
        looked_at.append(rabbit.name)
        return decide(configuration, rabbit, *others, **known)

    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await asyncio.sleep(5.0)
        looked_at.clear()
        await make(control, R0, "Disabled")
        await asyncio.sleep(5.0)
        assert set(looked_at) == {R0}

    monkeypatch.setattr(rabbitstorages, "decide", counted)
    lived(life)


def test_a_link_that_is_written_wrongly_is_repaired() -> None:
    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        right = storage(control, R0)["status"]
        wrong = [{**each, "status": "Offline"} for each in right["access"]["computes"]]
        await patch(control, R0, {"status": {"access": {"computes": wrong}}})
        await asyncio.sleep(5.0)

        assert storage(control, R0)["status"] == right

    lived(life)


@pytest.mark.parametrize("missing", [kinds.NNF_STORAGE, kinds.NNF_NODE_STORAGE])
def test_servers_name_each_assigned_rabbit_before_anything_is_made_on_it(missing: Kind) -> None:
    class Late(Passing):
        """Never gets as far as to make an object of one kind."""

        async def create(self, kind: Kind, obj: Object) -> Object:
            if kind == missing:
                await asyncio.Event().wait()
            return await super().create(kind, obj)

    async def life(world: World, control: Control) -> None:
        await opening(world, control)
        await world.submit(control, nodes=8, attributes=DW)
        await asyncio.sleep(5.0)

        (servers,) = control.api.store.objects_of(kinds.SERVERS)
        (told,) = servers["status"]["allocationSets"]
        late = {"allocationSize": 0, "ready": False}
        assert servers["status"]["ready"] is False
        assert told["storage"] == {R0: late, R1: late}

    async def main() -> None:
        async with opened() as world:
            world.client = Late  # type: ignore[method-assign]
            await world.live(lambda control: life(world, control))

    virtual.run(main())
