"""What is reserved for those who wait, told by who passes them and who does not."""

from collections.abc import Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scheduling.systems import matched, system, taken, want, written
from tests.scheduling.test_backfill import (
    FOUR,
    NOW,
    begun,
    decided,
    durations,
    ends,
    have,
    requests,
    systems,
    waiting,
    whole,
)
from warren.base.placing import AllocationSet, Locality
from warren.scheduling.backfill import RunningJob, Start, decide
from warren.scheduling.graph import Graph, Refusal
from warren.scheduling.request import Request

ANYWHERE = AllocationSet(1, 1, locality=Locality.ANY)

LOW, HIGH = '{"ranks":["0-1"]}', '{"ranks":["2-3"]}'


def on(ranks: str, nodes: int = 1) -> Request:
    return want(nodes, constraint=f'{{"ranks":["{ranks}"]}}', exclusive=True)


@pytest.fixture
def graph() -> Graph:
    return Graph(FOUR)


def test_of_several_moments_the_first_counts(graph: Graph) -> None:
    running = have(graph, (on("0"), NOW + 10), (on("2"), NOW + 60))
    queue = waiting((on("0-1", 2), 100), (on("2-3", 2), 100), (on("1"), 50), (on("1"), 10))

    # The nodes that are promised in 10 s are not for 50 s, whatever comes later elsewhere.
    assert decided(graph, queue, running) == ([4], {1: NOW + 10, 2: NOW + 60})


def test_a_job_in_the_way_waits_too_and_none_passes_it_with_a_moment_of_its_own(
    graph: Graph,
) -> None:
    running = have(graph, (on("0"), NOW + 60), (on("3"), NOW + 60))
    # The second would fit, but on a node that is promised; the third wants the second's.
    queue = waiting((on("0-1", 2), 9), (on("1-2", 2), inf), (on("2-3", 2), 9))

    assert decided(graph, queue, running) == ([], {1: NOW + 60})


def test_what_did_not_fit_is_told_once(graph: Graph) -> None:
    graph.set_drained([3])
    queue = waiting((whole(4), 1), (whole(4), 1), (whole(4), 2))

    assert decided(graph, queue) == ([], {1: inf})


def test_who_starts_leaves_the_depth_to_those_who_wait(graph: Graph) -> None:
    queue = waiting((whole(1), 9), (whole(1), 9), (whole(3), 9), (whole(2), 9))

    assert decided(graph, queue, depth=1) == ([1, 2], {3: NOW + 9})


def test_nodes_of_a_job_that_passes_for_a_moment_are_no_other_jobs(graph: Graph) -> None:
    running = have(graph, (whole(2), NOW + 60))
    queue = waiting((whole(3), 10), (on("3"), 60), (whole(1), inf), (whole(1), 61))

    assert decided(graph, queue, running) == ([2], {1: NOW + 60})


def test_flash_beside_what_is_promised_is_given_once() -> None:
    graph = Graph(system((6, 10), quantum=None))
    running = have(graph, (want(1, ssd=4), NOW + 10))
    queue = waiting((want(1, ssd=9), 60.0), (want(1, ssd=1), inf), (want(1, ssd=1), inf))

    assert decided(graph, queue, running) == ([2], {1: NOW + 10})


def test_flash_that_is_back_in_time_does_not_lessen_what_is_beside_the_promise() -> None:
    graph = Graph(system((6, 10), quantum=None))
    running = have(graph, (want(1, ssd=4), NOW + 10))
    queue = waiting((want(1, ssd=9), 60.0), (want(1, ssd=5), 10.0), (want(1, ssd=1), inf))

    assert decided(graph, queue, running) == ([2, 3], {1: NOW + 10})


@pytest.mark.parametrize("jobs", range(1, 9))
def test_the_moment_is_the_end_of_the_job_that_makes_room(jobs: int) -> None:
    for needed in range(1, jobs + 1):
        graph = Graph(system((jobs, 8)))
        ends = [(whole(1), NOW + 10 * number) for number in range(1, jobs + 1)]
        running = have(graph, *ends)
        assert decided(graph, waiting((whole(needed), 1)), running)[1] == {1: NOW + 10 * needed}


def test_those_without_an_end_are_thought_to_be_there_until_the_last(graph: Graph) -> None:
    running = have(graph, (whole(1), NOW + 10), (whole(1), NOW + 20), (whole(2), inf))

    assert decided(graph.copy(), waiting((whole(2), 1)), running)[1] == {1: NOW + 20}
    assert decided(graph, waiting((whole(3), 1)), running)[1] == {1: inf}


# What always holds

some_jobs = st.tuples(st.integers(1, 2), st.integers(0, 6))
"""Nodes, whole, and GiB of flash beside each."""


@settings(deadline=None, max_examples=400)
@given(
    st.integers(2, 9),
    st.integers(6, 14),
    st.lists(st.tuples(some_jobs, st.sampled_from([5.0, 9.0, 20.0])), min_size=1, max_size=4),
    some_jobs,
    some_jobs,
    st.sampled_from([4.0, 5.0, 9.0, 15.0, 30.0, inf]),
)
def test_a_job_passes_wherever_it_does_not_put_off_the_first_and_nowhere_else(
    nodes: int,
    gib: int,
    before: list[tuple[tuple[int, int], float]],
    first: tuple[int, int],
    second: tuple[int, int],
    duration: float,
) -> None:
    """On one rabbit all that matters is how many nodes and how much flash: this is a sum."""
    graph = Graph(system((nodes, gib), quantum=None))
    wanted = [whole(count, ssd=each) for count, each in (first, second)]
    if any(graph.infeasibility(each) is not None for each in wanted):
        return
    running, held = [], []
    for number, ((count, each), end) in enumerate(before, 100):
        if graph.fits(whole(count, ssd=each)):
            running += have(graph, (whole(count, ssd=each), NOW + end), first=number)
            held.append((count, count * each, end))

    def fits(at: float, *jobs: tuple[int, int]) -> bool:
        there = [(count, flash) for count, flash, end in held if end > at]
        there += [(count, count * each) for count, each in jobs]
        return sum(count for count, _ in there) <= nodes and sum(each for _, each in there) <= gib

    if fits(0.0, first):
        return
    due = min(end for _, _, end in held if fits(end, first))
    passes = fits(0.0, second) and (duration <= due or fits(due, first, second))
    queue = waiting((wanted[0], 10.0), (wanted[1], duration))
    started, blocked = decided(graph, queue, sorted(running))

    assert started == ([2] if passes else [])
    assert blocked[1] == NOW + due  # type: ignore[index]


@settings(deadline=None, max_examples=150)
@given(
    systems,
    st.lists(st.tuples(requests, ends), max_size=4),
    st.lists(st.tuples(requests, durations), min_size=1, max_size=6),
)
def test_after_a_restart_the_same_is_decided(
    r: dict[str, Any],
    before: list[tuple[Request, float]],
    wanted: list[tuple[Request, float]],
) -> None:
    graph, again = Graph(r), Graph(r)
    running = begun(graph, before)
    known = []
    for each in running:
        held = again.decode(written(graph, each.allocation))
        again.take(held)
        known.append(each._replace(allocation=held))
    queue = waiting(*(each for each in wanted if graph.infeasibility(each[0]) is None))

    def said(one: Graph, jobs: Sequence[RunningJob]) -> list[Any]:
        found = decide(one, [[queue]], jobs, NOW, backfilling=True, depth=32)
        return [
            (each.pending.job, each.allocation if isinstance(each, Start) else each.t_estimate)
            for each in found
        ]

    assert said(again, sorted(known)) == said(graph, running)
    assert taken(again) == taken(graph)


# Graphs


def test_which_nodes_meet_a_constraint_is_told_by_rank(graph: Graph) -> None:
    assert graph.matching_ranks({"ranks": ["1-2"]}) == [1, 2]
    assert graph.matching_ranks({"hostlist": ["n3"]}) == [3]
    assert graph.matching_ranks({}) == [0, 1, 2, 3]


def test_what_is_kept_for_a_request_is_excluded_with_its_flash() -> None:
    graph = Graph(system((2, 8), (2, 8)))
    graph.reserve(want(1, constraint=LOW, ssd=1))

    assert graph.excluded == {0, 1}
    assert isinstance(graph.match(want(1, ssd=1, constraint=LOW)), Refusal)
    assert matched(graph, want(2, ssd=2)).pieces
    assert not graph.fits(want(3))


def test_flash_of_all_rabbits_is_kept_for_what_may_be_on_any() -> None:
    graph = Graph(system((2, 8), (2, 8)))
    graph.reserve(want(1, constraint=LOW, shared_flash=(ANYWHERE,)))

    assert graph.fits(want(2))
    assert not graph.fits(want(1, ssd=1))


def test_what_is_kept_without_flash_leaves_the_flash() -> None:
    graph = Graph(FOUR)
    graph.reserve(want(1, constraint=LOW))

    assert graph.excluded == {0, 1}
    assert graph.fits(want(1, ssd=8))


def at(ranks: str, **options: Any) -> Request:
    return want(1, constraint=f'{{"ranks":["{ranks}"]}}', **options)


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        (at("0-1"), at("1-2"), True),
        (at("0-1"), at("2-3"), False),
        (at("0-1", ssd=1), at("2-3"), False),
        (at("0-1", ssd=1), at("2-3", ssd=1), False),
        (at("0-1", ssd=1), at("4", ssd=1), False),
        (at("0", ssd=1), at("1", ssd=1), True),
        (at("0", ssd=1), at("1"), False),
        (at("0"), at("1", ssd=1), False),
        (at("0", shared_flash=(AllocationSet(1, 1),)), at("1", ssd=1), True),
        (at("0", shared_flash=(AllocationSet(1, 1),)), at("2", ssd=1), False),
        (at("0", shared_flash=(ANYWHERE,)), at("2", ssd=1), True),
        (at("0", shared_flash=(ANYWHERE,)), at("2"), False),
    ],
)
def test_two_requests_overlap_by_nodes_or_by_flash_of_one_chassis(
    one: Request, other: Request, overlap: bool
) -> None:
    graph = Graph(system((2, 8), (2, 8), (1, 8)))

    assert bool(graph.overlap(one, other)) is overlap
    assert bool(graph.overlap(other, one)) is overlap


def test_what_no_end_of_a_job_would_help_never_fits_as_it_is() -> None:
    graph = Graph(FOUR)
    held = matched(graph, whole(4))
    graph.take(held)
    assert graph.cannot_fit_when_idle(whole(4)) is False
    graph.set_drained([0])
    assert graph.cannot_fit_when_idle(whole(4)) is True
    assert graph.cannot_fit_when_idle(whole(3)) is False
    assert graph.cannot_fit_when_idle(want(1, ssd=2)) is False
    graph.set_rabbit("r0", up=False)
    assert graph.cannot_fit_when_idle(want(1, ssd=2)) is True
