"""Nodes that are given back before the rest of a job's resources."""

import errno
from collections.abc import Collection
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.harness import virtual
from tests.instance.lives import Life, Perilog, alive
from tests.instance.parts import settle, virtually
from warren.instance import keys
from warren.instance.jobs import subset
from warren.instance.kvs import Kvs, put
from warren.instance.scheduler import JobScheduler
from warren.journal import MemoryJournal
from warren.lifecycle.states import State
from warren.rfc import resource_set
from warren.rfc.fluid import JobId
from warren.rpc.message import RpcError
from warren.scheduling.graph import Graph

NODES = [resource_set.NodeResources(rank, f"node{rank}", (0, 1)) for rank in range(4)]
R = resource_set.encode_nodes(NODES, slots=4, scheduling={"graph": {}})


async def running(life: Life) -> JobId:
    """Return a job four nodes."""
    job = await life.submit()
    await life.until(job, "priority")
    await life.kvs.commit([put(keys.job_key(job, "R"), orjson.dumps(R))])
    life.scheduler.waiting.pop(job)
    life.scheduler.given[job] = R
    life.manager.alloc_response({"id": job, "type": 0, "R": R})
    await life.until(job, "alloc")
    return job


def released(life: Life, job: JobId, ranks: str, *, final: bool = False) -> None:
    data = {"ranks": ranks, "final": final}
    life.manager.start_response({"id": job, "type": "release", "data": data})


def finished(life: Life, job: JobId) -> None:
    life.manager.start_response({"id": job, "type": "finish", "data": {"status": 0}})


def test_a_part_and_what_is_left_are_the_whole() -> None:
    one, rest = subset.only_ranks(R, {1, 2, 9}), subset.without_freed(R, {1, 2, 9})

    assert "scheduling" not in one
    assert subset.ranks(one) == {1, 2}
    assert subset.ranks(rest) == {0, 3}
    assert subset.without_freed(R, ()) is R
    whole = subset.union([one, rest])
    assert resource_set.decode_nodes(whole) == NODES


def test_cores_of_one_node_are_put_together() -> None:
    halves = [
        resource_set.encode_nodes([resource_set.NodeResources(0, "node0", (core,), (core,))])
        for core in (1, 0)
    ]
    (both,) = resource_set.decode_nodes(subset.union(halves))
    assert (both.cores, both.gpus) == ((0, 1), (0, 1))
    assert resource_set.decode_nodes(subset.union([])) == []


@virtually
async def test_nodes_that_execution_is_done_with_go_back_early() -> None:
    async with alive(generous=False, seconds=1000) as life:
        job = await running(life)
        await life.until(job, "start")
        released(life, job, "1")
        await settle()
        assert life.scheduler.back == {}

        finished(life, job)
        released(life, job, "2-3")
        await settle()
        assert life.scheduler.back == {job: {1, 2, 3}}
        status = await life.bus.handle().rpc("job-manager.resource-status")
        assert subset.ranks(status["allocated"]) == {0}
        released(life, job, "0", final=True)
        await life.until(job)
        assert life.scheduler.given == {}
        assert life.names(job).count("partial-free") == 2


@virtually
async def test_nodes_are_kept_while_an_epilog_needs_them() -> None:
    perilog = Perilog("epilog")
    async with alive(generous=False, seconds=1000, plugins=[perilog]) as life:
        job = await running(life)
        await life.until(job, "start")
        finished(life, job)
        released(life, job, "0-1")
        await settle()
        assert life.scheduler.back == {}

        released(life, job, "all", final=True)
        perilog.let_go(job)
        await life.until(job)
        assert life.scheduler.given == {}
        assert "partial-free" not in life.names(job)


@virtually
async def test_a_plugin_gives_nodes_back_that_its_epilog_is_done_with() -> None:
    journal, perilog = MemoryJournal(), Perilog("epilog")
    async with alive(journal, generous=False, plugins=[perilog]) as life:
        job = await running(life)
        with pytest.raises(RpcError, match="only nodes of a job in CLEANUP"):
            perilog.tap.release(job, {0})
        await life.until(job, "release")
        perilog.tap.release(job, {0, 1})
        perilog.tap.release(job, {1, 2})
        with pytest.raises(RpcError) as caught:
            perilog.tap.release(job, {7})
        assert caught.value.errnum == errno.EINVAL
        await settle()
        assert life.scheduler.back == {job: {0, 1, 2}}
    perilog = Perilog("epilog")
    async with alive(journal, generous=False, plugins=[perilog]) as life:
        # What was freed stays so, and the scheduler hears of the rest.
        assert life.scheduler.given == {job: R}
        assert life.scheduler.back == {job: {0, 1, 2}}
        perilog.tap.release(job, {0, 1, 2, 3})
        await settle()
        assert life.scheduler.back == {job: {0, 1, 2, 3}}
        perilog.let_go(job)
        await life.until(job)
        assert life.scheduler.given == {}


@virtually
async def test_nodes_that_another_job_holds_too_go_with_the_rest() -> None:
    class Other(Perilog):
        name = "other"

        def load(self, tap: Any) -> Any:
            self.tap = tap
            return {"job.event.finish": lambda job: tap.epilog_start(job.id, "other")}

    perilog, other = Perilog("epilog"), Other()
    async with alive(generous=False, plugins=[perilog, other]) as life:
        job = await running(life)
        await life.until(job, "release")
        perilog.tap.release(job, {0})
        await settle()
        assert life.scheduler.back == {}

        other.tap.epilog_finish(job, "other", 0)
        perilog.tap.release(job, {0})
        await settle()
        assert life.scheduler.back == {job: {0}}
        perilog.let_go(job)
        await life.until(job)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.frozensets(st.integers(0, 3)), max_size=5), st.integers(0, 5))
def test_no_node_is_given_back_twice_whatever_is_said_and_whenever_it_ends(
    parts: list[Collection[int]], cut: int
) -> None:
    async def story() -> None:
        journal, perilog = MemoryJournal(), Perilog("epilog")
        async with alive(journal, generous=False, plugins=[perilog]) as life:
            job = await running(life)
            await life.until(job, "release")
            for ranks in parts[:cut]:
                perilog.tap.release(job, ranks)
            await settle()
            before = set(life.scheduler.back.get(job, ()))
            assert before == {rank for ranks in parts[:cut] for rank in ranks}
        perilog = Perilog("epilog")
        async with alive(journal, generous=False, plugins=[perilog]) as life:
            assert life.scheduler.back[job] == before
            for ranks in parts:
                perilog.tap.release(job, ranks)
            perilog.let_go(job)
            await life.until(job)
            assert life.job(job).state is State.INACTIVE
            assert life.scheduler.given == {}

    virtual.run(story())


# The scheduler's side


@pytest.mark.parametrize("restarted", [False, True])
def test_cores_that_come_back_early_are_free_and_the_rest_is_not(restarted: bool) -> None:
    whole = resource_set.encode_nodes(NODES)
    graph = Graph(whole)
    scheduler = JobScheduler(Kvs(MemoryJournal(), 1), virtual.VirtualClock(), graph, lambda _: None)
    if restarted:
        scheduler.hello(JobId(1), whole, [1])
    else:
        scheduler.hello(JobId(1), whole, ())
        scheduler.free(JobId(1), subset.only_ranks(whole, {1}), final=False)
    assert [use.cores_taken for use in graph.node_use()] == [2, 0, 2, 2]

    scheduler.free(JobId(1), subset.without_freed(whole, {1}), final=True)
    assert [use.cores_taken for use in graph.node_use()] == [0, 0, 0, 0]
