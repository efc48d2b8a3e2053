"""Who passes whom: stories, and what holds for every queue."""

from bisect import insort
from collections.abc import Iterable, Sequence
from itertools import chain, islice
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.scheduling.systems import Oracle, matched, parts, system, together, want
from warren.base.placing import AllocationSet
from warren.rfc.fluid import JobId
from warren.scheduling.backfill import Blocked, PendingJob, RunningJob, Start, decide
from warren.scheduling.graph import Graph, Refusal
from warren.scheduling.request import Request

FOUR = system((4, 8))
"""Four nodes of four cores on a chassis with four ssds of 2 GiB."""
NOW = 1000.0


def waiting(*wanted: tuple[Request, float]) -> list[PendingJob]:
    """A queue: who wants what, for how long. Jobs are numbered from 1."""
    return [
        PendingJob(position=(0, job), job=JobId(job), request=request, duration=duration)
        for job, (request, duration) in enumerate(wanted, 1)
    ]


def have(graph: Graph, *given_: tuple[Request, float], first: int = 100) -> list[RunningJob]:
    """Let jobs run: what they have, and until when."""
    running = []
    for number, (request, end) in enumerate(given_, first):
        held = matched(graph, request)
        graph.take(held)
        running.append(RunningJob(end, JobId(number), held))
    return sorted(running)


def decided(
    graph: Graph, queue: Iterable[PendingJob], running: Sequence[RunningJob] = (), **options: Any
) -> tuple[list[JobId], dict[JobId, float]]:
    """Return who starts, and who is blocked, until when."""
    found = list(
        decide(graph, [[queue]], running, NOW, **{"backfilling": True, "depth": 32, **options})
    )
    starts = [each.pending.job for each in found if isinstance(each, Start)]
    return starts, {
        each.pending.job: each.t_estimate for each in found if isinstance(each, Blocked)
    }


WHOLE = want(1, exclusive=True)
"""One node, whole."""


def whole(nodes: int, **options: Any) -> Request:
    return want(nodes, exclusive=True, **options)


@pytest.fixture
def graph() -> Graph:
    return Graph(FOUR)


# Stories


def test_all_that_fits_starts_in_order(graph: Graph) -> None:
    assert decided(graph, waiting((whole(2), 9), (whole(1), inf), (whole(1), 9))) == ([1, 2, 3], {})


def test_who_ends_before_the_first_can_start_passes_him(graph: Graph) -> None:
    running = have(graph, (whole(3), NOW + 60))
    queue = waiting((whole(4), 10), (whole(1), 61), (whole(1), 60), (whole(1), 1))

    assert decided(graph, queue, running) == ([3], {1: NOW + 60})


def test_who_leaves_alone_what_is_promised_passes_though_he_stays_long(graph: Graph) -> None:
    running = have(graph, (whole(2), NOW + 60))
    queue = waiting((whole(3), 10), (whole(1), 1000), (whole(1), 1000))

    assert decided(graph, queue, running) == ([2], {1: NOW + 60})


def test_who_has_no_limit_passes_only_beside_what_is_promised(graph: Graph) -> None:
    running = have(graph, (whole(3), NOW + 60))

    assert decided(graph.copy(), waiting((whole(4), 1), (whole(1), inf)), running)[0] == []
    assert decided(graph, waiting((whole(3), 1), (whole(1), inf)), running)[0] == [2]


def test_no_job_passes_one_that_waits_for_jobs_without_an_end(graph: Graph) -> None:
    running = have(graph, (whole(3), inf))
    queue = waiting((whole(2), 1), (whole(1), 1), (whole(1), inf))

    assert decided(graph, queue, running) == ([], {1: inf})


def test_a_job_for_other_nodes_passes_one_whose_moment_is_not_known(
    graph: Graph,
) -> None:
    running = have(graph, (whole(3), inf))
    first = want(2, constraint='{"ranks":["0-2"]}', exclusive=True)

    assert decided(graph, waiting((first, 1), (whole(1), inf)), running) == ([2], {1: inf})


def test_flash_that_is_promised_on_one_rabbit_is_left_alone() -> None:
    graph = Graph(system((4, 64), quantum=None))
    running = have(graph, (want(1, ssd=50), NOW + 60))
    large = want(1, shared_flash=(AllocationSet(1, 50),))
    queue = waiting((large, 10), (want(1, ssd=14), 1000), (want(1, ssd=10), 1000), (large, 10))

    assert decided(graph, queue, running) == ([2], {1: NOW + 60})


def test_nor_may_he_have_flash_that_the_other_could_have() -> None:
    graph = Graph(FOUR)
    running = have(graph, (whole(3), inf))
    first = want(2, constraint='{"ranks":["0-2"]}', exclusive=True, ssd=1)
    queue = waiting((first, 1), (whole(1, ssd=1), inf), (whole(1), inf))

    assert decided(graph, queue, running) == ([3], {1: inf})


def test_of_a_pool_it_does_not_matter_which_flash_is_promised() -> None:
    graph = Graph(system((6, 10), quantum=None))
    running = have(graph, (want(1, ssd=4), NOW + 10))
    queue = waiting(
        (want(1, ssd=9), 60.0),
        (want(1, ssd=2), inf),  # would leave 8 of the 9 that are promised
        (want(1, ssd=1), inf),
        (want(1, ssd=5), 10.0),  # is over by then
        (want(1, ssd=1), inf),
    )
    assert decided(graph, queue, running) == ([3, 4], {1: NOW + 10})


def test_who_waits_for_drained_nodes_is_passed_until_they_are_back(graph: Graph) -> None:
    graph.set_drained([3])
    queue = waiting((whole(4), 1), (whole(2), inf))
    assert decided(graph.copy(), queue) == ([2], {1: inf})

    graph.set_drained([])
    assert decided(graph, queue) == ([1], {2: NOW + 1})


def test_who_waits_for_flash_that_is_not_ready_is_passed_until_it_is(graph: Graph) -> None:
    graph.set_rabbit("r0", up=False)
    running = have(graph, (whole(1), NOW + 9))
    queue = waiting((whole(1, ssd=1), 1), (whole(3), inf))

    assert decided(graph, queue, running) == ([2], {1: inf})


def test_the_first_to_wait_for_other_nodes_has_a_promise_of_his_own(graph: Graph) -> None:
    low, high = '{"ranks":["0-1"]}', '{"ranks":["2-3"]}'
    running = have(
        graph,
        (want(1, constraint=low, exclusive=True), NOW + 60),
        (want(1, constraint=high, exclusive=True), NOW + 30),
    )
    queue = waiting(
        (want(2, constraint=low, exclusive=True), 1),
        (want(2, constraint=high, exclusive=True), 1),
        (want(1, constraint=high, exclusive=True), 31),
        (want(1, constraint=low, exclusive=True), 31),
        (want(1, constraint=low, exclusive=True), 30),
    )

    assert decided(graph, queue, running) == ([5], {1: NOW + 60, 2: NOW + 30})


def test_no_job_is_told_a_moment_behind_one_that_may_have_its_nodes(
    graph: Graph,
) -> None:
    running = have(graph, (whole(4), NOW + 60))
    here = want(2, constraint='{"ranks":["0-1"]}', exclusive=True)
    there = want(1, constraint='{"ranks":["3"]}', exclusive=True)

    # The second waits for what the first has been promised, or for the nodes of the third.
    assert decided(graph.copy(), waiting((here, 9), (there, 9)), running) == (
        [],
        {1: NOW + 60, 2: NOW + 60},
    )
    queue = waiting((here, 9), (whole(3), 9), (there, 9))
    assert decided(graph, queue, running) == ([], {1: NOW + 60})


def test_who_starts_now_is_counted_among_those_who_will_end(graph: Graph) -> None:
    running = have(graph, (whole(1), NOW + 60))
    queue = waiting((whole(2), 90), (whole(2), 5), (whole(1), 61))

    assert decided(graph, queue, running) == ([1], {2: NOW + 60})


def test_who_should_have_ended_may_end_at_any_moment(graph: Graph) -> None:
    running = have(graph, (whole(1), NOW - 5))

    assert decided(graph, waiting((whole(4), 1), (whole(1), 1)), running) == ([], {1: NOW})


def test_without_backfilling_no_job_gets_what_one_before_it_could_have(graph: Graph) -> None:
    running = have(graph, (whole(3), NOW + 60))
    queue = waiting((whole(2), 1), (whole(1), 1))
    assert decided(graph.copy(), queue, running, backfilling=False) == ([], {1: NOW + 60})

    first = want(2, constraint='{"ranks":["0-2"]}', exclusive=True)
    queue = waiting((first, 1), (want(1, constraint='{"ranks":["0-1"]}'), 1), (whole(1), 1))
    assert decided(graph, queue, running, backfilling=False) == ([3], {1: NOW + 60})


def test_so_many_of_a_queue_are_looked_at_as_may_be(graph: Graph) -> None:
    running = have(graph, (whole(3), NOW + 60))
    long = [(whole(1), 100.0)] * 5
    looked: list[int] = []

    def seen(queue: Iterable[PendingJob]) -> Iterable[PendingJob]:
        for each in queue:
            looked.append(each.job)
            yield each

    queue = waiting((whole(4), 1), *long, (whole(1), 1))
    assert decided(graph.copy(), seen(queue), running, depth=6)[0] == []
    assert looked == [1, 2, 3, 4, 5, 6]
    assert decided(graph, queue, running, depth=7)[0] == [7]


def test_who_waits_in_one_queue_does_not_use_up_the_depth_of_another(graph: Graph) -> None:
    running = have(graph, (whole(3), NOW + 60))
    mine = waiting(*[(whole(4), 1.0)] * 9)
    others = [PendingJob(position=(0, 50), job=JobId(50), request=WHOLE, duration=1)]

    found = decide(graph, [[mine], [others]], running, NOW, backfilling=True, depth=3)
    assert [each.pending.job for each in found] == [1, 50]


def users_of(*queues: Sequence[tuple[Request, float]]) -> list[list[PendingJob]]:
    """Return what users have waiting in a queue, one after the other."""
    jobs = iter(waiting(*chain(*queues)))
    return [[*islice(jobs, len(each))] for each in queues]


def started(found: Iterable[Start | Blocked]) -> list[JobId]:
    return [each.pending.job for each in found if isinstance(each, Start)]


@pytest.mark.parametrize(
    ("backfilling", "depth", "starts"), [(True, 4, [5]), (False, 4, []), (False, 5, [5])]
)
def test_a_user_does_not_use_up_the_depth_of_another_where_jobs_may_pass(
    graph: Graph, backfilling: bool, depth: int, starts: list[int]
) -> None:
    first_node = want(1, exclusive=True, constraint='{"ranks":["0"]}')
    running = have(graph, (first_node, NOW + 60))
    users = users_of([(first_node, 1.0)] * 4, [(WHOLE, 1.0)])

    found = decide(graph, [users], running, NOW, backfilling=backfilling, depth=depth)
    assert started(found) == starts


@pytest.mark.parametrize(("depth", "starts"), [(1, [3]), (2, [2])])
def test_a_job_passes_those_of_another_user_that_are_beyond_the_depth(
    graph: Graph, depth: int, starts: list[int]
) -> None:
    running = have(graph, (whole(3), NOW + 60))
    users = users_of([(whole(4), 1.0), (WHOLE, 1.0)], [(WHOLE, 1.0)])

    found = decide(graph, [users], running, NOW, backfilling=True, depth=depth)
    assert started(found) == starts


@pytest.mark.parametrize(("others", "starts"), [(7, [8]), (8, [])])
def test_all_users_of_a_queue_together_use_up_the_depth_of_eight(
    graph: Graph, others: int, starts: list[int]
) -> None:
    running = have(graph, (whole(3), NOW + 60))
    users = users_of(*[[(whole(4), 1.0)]] * others, [(WHOLE, 1.0)])

    assert started(decide(graph, [users], running, NOW, backfilling=True, depth=1)) == starts


@pytest.mark.parametrize("sizes", [[2], range(1, 9)], ids=["alike", "different"])
def test_a_users_jobs_that_wait_for_an_administrator_hold_up_no_other_user(
    graph: Graph, sizes: Sequence[int]
) -> None:
    graph.set_rabbit("r0", up=False)
    many = [(want(1, ssd=size), inf) for size in sizes] * 64
    users = users_of([*many, (WHOLE, 1)], [(WHOLE, 1)])

    found = decide(graph, [users], [], NOW, backfilling=True, depth=1)
    assert started(found) == [len(many) + 2]


def test_jobs_that_wait_for_an_administrator_do_not_use_up_the_depth(graph: Graph) -> None:
    graph.set_rabbit("r0", up=False)
    same = [(want(1, ssd=2), inf)] * 40
    assert decided(graph.copy(), waiting(*same, (WHOLE, 1))) == ([41], {1: inf})

    others = [(want(1, ssd=gib), inf) for gib in range(1, 8)]
    running = have(graph, (WHOLE, NOW + 60))
    queue = waiting((whole(4), 9), *others, (WHOLE, 9))
    moments = {1: NOW + 60, **dict.fromkeys(range(2, 9), inf)}
    assert decided(graph, queue, running, depth=2) == ([9], moments)


def test_of_different_requests_for_an_administrator_not_all_are_looked_at(graph: Graph) -> None:
    graph.set_rabbit("r0", up=False)
    others = [(want(1, ssd=gib), inf) for gib in range(1, 9)]
    looked: list[int] = []

    def seen(queue: Iterable[PendingJob]) -> Iterable[PendingJob]:
        for each in queue:
            looked.append(each.job)
            yield each

    assert decided(graph, seen(waiting(*others, (WHOLE, 1))), depth=1)[0] == []
    assert looked == [*range(1, 9)]


def test_of_jobs_for_an_administrator_so_many_are_passed_and_no_more(graph: Graph) -> None:
    graph.set_rabbit("r0", up=False)
    same = [(want(1, ssd=2), inf)]
    assert decided(graph.copy(), waiting(*same * 63, (WHOLE, 1)), depth=1) == ([64], {1: inf})
    assert decided(graph, waiting(*same * 64, (WHOLE, 1)), depth=1) == ([], {1: inf})


def test_without_backfilling_a_job_that_waits_for_an_administrator_uses_up_the_depth(
    graph: Graph,
) -> None:
    graph.set_rabbit("r0", up=False)
    queue = waiting(*[(want(1, ssd=2, constraint='{"ranks":["0"]}'), inf)] * 2, (WHOLE, 1))

    assert decided(graph.copy(), queue, backfilling=False, depth=2)[0] == []
    assert decided(graph, queue, backfilling=False, depth=3)[0] == [3]


def test_queues_are_served_in_the_order_of_all_their_jobs(graph: Graph) -> None:
    queue = waiting(*[(WHOLE, inf)] * 6)

    found = decide(graph, [[queue[1::2]], [queue[::2]]], [], NOW, backfilling=True, depth=3)
    assert [each.pending.job for each in found if isinstance(each, Start)] == [1, 2, 3, 4]


def test_who_listens_no_longer_has_let_nothing_else_be_taken(graph: Graph) -> None:
    for _ in decide(graph, [[waiting(*[(WHOLE, inf)] * 4)]], [], NOW, backfilling=True, depth=4):
        break
    assert matched(graph, whole(3))
    assert isinstance(graph.match(whole(4)), Refusal)


# What always holds

# Few nodes, so that there is always a job that waits and one that might pass it.
systems = st.sampled_from(
    [
        system((3, 0), cores=2),
        system((2, 4), (2, 4), cores=2, quantum=1),
        system((2, 4), (2, 4), cores=2, quantum=None),
        system((4, 5), cores=2, quantum=None),
    ]
)
requests = st.builds(
    lambda nodes, exclusive, ssd, constraint: want(
        nodes, exclusive=exclusive, ssd=ssd, constraint=constraint
    ),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1, 3]),
    st.sampled_from(["", "", "", '{"ranks":["0-1"]}', '{"ranks":["1-3"]}', '{"ranks":["2-3"]}']),
) | st.builds(lambda slots: want(slots=slots), st.integers(1, 6))
ends = st.sampled_from([NOW - 1, NOW + 1, NOW + 2, NOW + 3, NOW + 5, NOW + 8, inf])
durations = st.sampled_from([1.0, 2.0, 3.0, 4.0, 6.0, inf])


def moment(oracle: Oracle, graph: Graph, running: Sequence[RunningJob], request: Request) -> float:
    """When a request will fit if all last as long as they may and no other comes."""

    def fits(at: float) -> bool:
        left = together(parts(graph, each.allocation) for each in running if each.end > at)
        return oracle.fits(request, left)

    moments = sorted({NOW, *(max(each.end, NOW) for each in running)})
    return next((at for at in moments if fits(at)), inf)


def begun(graph: Graph, wanted: Iterable[tuple[Request, float]]) -> list[RunningJob]:
    """Let run what fits of some jobs."""
    return sorted(
        running
        for number, (request, end) in enumerate(wanted, 100)
        if graph.fits(request)
        for running in have(graph, (request, end), first=number)
    )


jobs = st.lists(st.tuples(requests, durations), min_size=2, max_size=8)


@settings(deadline=None, max_examples=300)
@given(systems, st.lists(st.tuples(requests, ends), max_size=4), jobs, st.booleans())
def test_what_is_promised_is_true_and_those_who_pass_do_not_put_it_off(
    r: dict[str, Any],
    before: list[tuple[Request, float]],
    wanted: list[tuple[Request, float]],
    backfilling: bool,
) -> None:
    graph, oracle = Graph(r), Oracle(r)
    running = begun(graph, before)
    queue = waiting(*(each for each in wanted if graph.infeasibility(each[0]) is None))
    blocked: list[Blocked] = []
    for each in decide(graph, [[queue]], list(running), NOW, backfilling=backfilling, depth=32):
        if isinstance(each, Blocked):
            assert each.t_estimate == moment(oracle, graph, running, each.pending.request)
            blocked.append(each)
            continue
        running.append(RunningJob(NOW + each.pending.duration, each.pending.job, each.allocation))
        for other in blocked:
            if other.t_estimate == inf or not backfilling:
                possible = graph.possible_nodes(other.pending.request)
                places = [
                    graph._inventory.node_index_by_rank[p.rank] for p in each.allocation.pieces
                ]
                assert not any(possible >> place & 1 for place in places)
    for other in blocked:
        assert moment(oracle, graph, running, other.pending.request) <= other.t_estimate


@settings(deadline=None, max_examples=200)
@given(systems, jobs, st.booleans())
def test_every_job_begins_by_the_moment_that_it_was_first_told(
    r: dict[str, Any], wanted: list[tuple[Request, float]], backfilling: bool
) -> None:
    all_begin_in_time(r, wanted, backfilling)


@settings(deadline=None, max_examples=200)
@given(systems, jobs, st.lists(st.integers(0, 6), min_size=8, max_size=8), st.booleans())
def test_so_does_every_job_that_wants_flash_on_any_of_its_nodes_rabbits(
    r: dict[str, Any], wanted: list[tuple[Request, float]], gib: list[int], backfilling: bool
) -> None:
    shared = [
        (
            replace(one, shared_flash=(AllocationSet(1, more),)) if more and one.nodes else one,
            duration,
        )
        for (one, duration), more in zip(wanted, gib, strict=False)
    ]
    all_begin_in_time(r, shared, backfilling)


def all_begin_in_time(
    r: dict[str, Any], wanted: list[tuple[Request, float]], backfilling: bool
) -> None:
    graph = Graph(r)
    queue = waiting(*((one, each) for one, each in wanted if graph.infeasibility(one) is None))
    told: dict[JobId, float] = {}
    running: list[RunningJob] = []
    now = NOW
    while True:
        for each in decide(graph, [[list(queue)]], running, now, backfilling=backfilling, depth=32):
            job = each.pending.job
            if isinstance(each, Blocked):
                assert each.t_estimate <= told.get(job, inf)
                told[job] = each.t_estimate
            else:
                assert now <= told.get(job, inf)
                queue.remove(each.pending)
                insort(running, RunningJob(now + each.pending.duration, job, each.allocation))
        if not running or running[0].end == inf:
            break
        graph.give_back(running[0].allocation)
        now = running.pop(0).end
    assert not queue or running  # no job waits for nothing
