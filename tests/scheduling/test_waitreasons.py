"""Why jobs wait: each case has its one reason, and without what that names the job starts."""

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.scheduling.systems import Oracle, matched, parts, system, together, want
from tests.scheduling.test_backfill import FOUR, NOW, have, waiting, whole
from warren.base.placing import AllocationSet
from warren.rfc.fluid import JobId, f58
from warren.scheduling import tags
from warren.scheduling.backfill import PendingJob, RunningJob, Start, decide
from warren.scheduling.graph import Graph
from warren.scheduling.reasons import WITHHELD_KINDS, Reason, ReasonKind
from warren.scheduling.request import Request
from warren.scheduling.waitreasons import earliest_reservation, wait_reasons


def why(
    graph: Graph,
    queue: Sequence[PendingJob],
    running: Sequence[RunningJob] = (),
    job: int | None = None,
    **options: Any,
) -> Reason:
    """Return why a job of a queue, the last unless it is said, does not start."""
    asked = next((each for each in queue if each.job == job), queue[-1])
    options = {"backfilling": True, "depth": 32, **options}
    ((found, reason),) = wait_reasons(graph, [[queue]], running, NOW, jobs=[asked], **options)
    assert found == asked.job
    return reason


@pytest.fixture
def graph() -> Graph:
    return Graph(system((4, 8), (4, 8)))


def alone(graph: Graph, request: Request, running: Sequence[RunningJob] = ()) -> Reason:
    return why(graph, waiting((request, 60.0)), running)


# Cases that users and admins ask about (users-want 1.8), each with what undoes it


def test_nodes_that_running_jobs_have_are_counted(graph: Graph) -> None:
    running = have(graph, (whole(5), NOW + 60))
    graph.set_drained([7])
    reason = alone(graph, whole(4), running)

    assert reason.kinds == (ReasonKind.NODES,)
    assert reason.sentence == (
        "waits for 2 more of 4 nodes; of 8 that would do, 2 free, 5 taken and 1 drained"
    )
    assert reason.t_estimate == NOW + 60
    counts = {"wanted": 4, "would_do": 8, "free": 2, "taken": 5, "drained": 1}
    assert reason.numbers["nodes"].items() >= counts.items()
    graph.give_back(running[0].allocation)
    assert graph.fits(whole(4))


def test_only_rabbits_that_carry_what_is_asked_for_count(graph: Graph) -> None:
    graph.set_rabbit("r0", up=True, labels=("makes=gfs2",))
    graph.set_rabbit("r1", up=True, labels=())
    running = have(graph, (want(1, ssd=8), NOW + 60))
    reason = alone(graph, want(2, ssd=4, labels=("makes=gfs2",)), running)

    assert reason.kinds == (ReasonKind.FLASH,)
    assert reason.sentence == (
        "waits for 4 GiB of flash of rabbits with makes=gfs2 beside each of 2 nodes; "
        "0 nodes can have that now, and r0 lacks 4 GiB"
    )
    assert [each["rabbit"] for each in reason.numbers["flash"]["rabbits"]] == ["r0"]


def test_chassis_that_lack_flash_are_told_with_how_much(graph: Graph) -> None:
    """Full chassis were "Unsatisfiable" for days before anyone did the arithmetic."""
    running = have(graph, (want(1, ssd=4), inf), (want(1, ssd=2, constraint=HIGH), inf))
    reason = alone(graph, want(4, ssd=4), running)

    assert reason.kinds == (ReasonKind.FLASH,)
    assert reason.sentence == (
        "waits for 4 GiB of flash beside each of 4 nodes; 2 nodes can have that now, "
        "and r1 lacks 2 GiB, r0 lacks 4 GiB"
    )
    assert reason.numbers["flash"]["rabbits"] == [
        {"rabbit": "r1", "free_gib": 6, "of_gib": 8, "nodes_free": 4, "nodes_with_flash": 1,
         "lacks_gib": 2},
        {"rabbit": "r0", "free_gib": 4, "of_gib": 8, "nodes_free": 4, "nodes_with_flash": 1,
         "lacks_gib": 4},
    ]  # fmt: skip
    graph.give_back(*(each.allocation for each in running))
    assert graph.fits(want(4, ssd=4))


HIGH = '{"ranks":["4-7"]}'


def test_flash_that_no_node_count_brings_is_never_there(graph: Graph) -> None:
    reason = alone(graph, want(5, ssd=8))

    assert reason.kinds == (ReasonKind.NEVER,)
    assert reason.sentence == (
        "can never start: 5 nodes with 8 GiB of flash each are asked for, "
        "and a rabbit has 8 GiB for the nodes that are wired to it."
    )


def test_one_allocation_waits_for_a_rabbit_with_room(graph: Graph) -> None:
    running = have(graph, (want(1, ssd=2), inf), (want(1, ssd=4, constraint=HIGH), inf))
    reason = alone(graph, want(2, shared_flash=(AllocationSet(1, 8),)), running)

    assert reason.kinds == (ReasonKind.FLASH,)
    assert reason.sentence == (
        "waits for 1 allocation of 8 GiB, on rabbits of 2 nodes; "
        "of that, the rabbits have 6 GiB, 4 GiB free"
    )
    graph.give_back(running[0].allocation)
    assert graph.fits(want(2, shared_flash=(AllocationSet(1, 8),)))


def test_a_rabbit_that_is_down_is_named_with_its_state(graph: Graph) -> None:
    graph.set_rabbit("r1", up=False, state="Disabled")
    reason = alone(graph, want(6, ssd=1))

    assert reason.kinds == (ReasonKind.RABBITS,)
    assert reason.sentence == (
        "waits for 1 GiB of flash beside each of 6 nodes; 4 nodes can have that now; "
        "not ready: r1 (Disabled)"
    )
    assert reason.numbers["flash"]["rabbits"][1]["not_ready"] == "Disabled"
    graph.set_rabbit("r1", up=True)
    assert graph.fits(want(6, ssd=1))


def test_rabbits_that_are_down_for_one_cause_are_named_together() -> None:
    graph = Graph(system(*[(1, 8)] * 4))
    for number, state in enumerate(("Drained", "Offline", "Drained", "Drained")):
        graph.set_rabbit(f"r{number}", up=False, state=state)

    sentence = alone(graph, want(4, ssd=1)).sentence
    assert sentence.endswith("; not ready: r[0,2-3] (Drained), r1 (Offline)")


def test_ssds_that_the_graph_says_are_down_are_counted() -> None:
    r = system((2, 8))
    ssds = [each for each in r["scheduling"]["graph"]["nodes"] if "ssd0" in str(each)]
    for each in ssds:
        each["metadata"]["status"] = 1
    graph = Graph(r)
    reason = alone(graph, want(2, ssd=4))

    assert reason.kinds == (ReasonKind.RABBITS,)
    assert reason.sentence.endswith("; not ready: r0 (2 GiB of 8 GiB down)")
    graph.set_rabbit("r0", up=True)
    assert graph.fits(want(2, ssd=4))


def test_storage_of_no_job_is_blamed_only_where_no_end_of_a_job_helps(graph: Graph) -> None:
    """External allocations are subtracted, and it is told which."""
    graph.set_external_gib("r0", 4)
    reason = alone(graph, want(8, ssd=2))
    assert reason.kinds == (ReasonKind.EXTERNAL,)
    assert reason.sentence.endswith("; storage of no running job has 4 GiB of 1 rabbit")
    graph.set_external_gib("r0", 0)
    assert graph.fits(want(8, ssd=2))


def test_a_map_that_promises_more_than_rabbits_have_is_told(graph: Graph) -> None:
    graph.set_rabbit("r1", up=True, capacity_gib=5)
    reason = alone(graph, want(8, ssd=2))

    assert reason.kinds == (ReasonKind.CAPACITY,)
    assert reason.sentence.endswith("; r1 has 5 GiB of 8 GiB")
    graph.set_rabbit("r1", up=True, capacity_gib=8)
    assert graph.fits(want(8, ssd=2))


def test_nodes_that_are_drained_offline_or_cut_off_are_each_named(graph: Graph) -> None:
    graph.set_drained([0])
    graph.set_offline([1])
    graph.set_tagged("r0", ["n2"])
    everything = want(8, needs_untagged=True)
    reason = alone(graph, everything)

    assert reason.kinds == (ReasonKind.DRAINED, ReasonKind.OFFLINE, ReasonKind.TAGGED)
    assert reason.sentence == (
        f"waits for 3 more of 8 nodes; drained: n0; offline: n1; tagged {tags.TAG}: n2"
    )
    graph.set_drained([])
    graph.set_offline([])
    assert not graph.fits(everything)
    graph.set_tagged("r0", [])
    assert graph.fits(everything)


def test_a_drained_node_that_would_only_help_sooner_is_no_reason(graph: Graph) -> None:
    graph.set_drained([7])
    running = have(graph, (whole(7), NOW + 60))
    reason = alone(graph, whole(1), running)

    assert reason.kinds == (ReasonKind.NODES,)
    assert reason.sentence.endswith("; without this it would start at once: drained: n7")


def test_what_is_excluded_is_told_apart_from_what_no_node_meets() -> None:
    graph = Graph(FOUR, excluded=[3])
    assert alone(graph, want(4)).kinds == (ReasonKind.EXCLUDED,)
    assert Graph(FOUR).fits(want(4))
    stale = want(1, constraint='{"hostlist":["n9"]}')
    assert alone(graph, stale).kinds == (ReasonKind.CONSTRAINT,)
    assert alone(graph, stale).sentence == (
        "can never start: 1 node that meets hostlist:n9 is asked for, and the cluster has none."
    )
    assert graph.fits(replace(stale, constraint=""))


def test_nodes_of_node_local_storage_are_waited_for_though_others_are_free(graph: Graph) -> None:
    """Persistent storage on a chassis ties its jobs to the nodes there."""
    wired = want(2, constraint=HIGH, exclusive=True)
    running = have(graph, (want(3, constraint=HIGH, exclusive=True), NOW + 60))
    reason = alone(graph, wired, running)

    assert reason.kinds == (ReasonKind.NODES,)
    assert reason.sentence == (
        "waits for 1 more of 2 nodes that meet ranks:4-7; of 4 that would do, 1 free and 3 taken"
    )
    graph.give_back(running[0].allocation)
    assert graph.fits(wired)


def test_chassis_are_waited_for_where_their_nodes_are_scattered(graph: Graph) -> None:
    scattered = ('{"ranks":["0"]}', '{"ranks":["4"]}')
    running = have(graph, *((want(1, constraint=each, exclusive=True), inf) for each in scattered))
    reason = alone(graph, whole(4, chassis_count=1), running)

    assert reason.kinds == (ReasonKind.CHASSIS,)
    assert reason.sentence == "waits for 4 nodes on each of 1 chassis"
    graph.give_back(running[0].allocation)
    assert graph.fits(whole(4, chassis_count=1))


def test_cores_are_counted_where_nodes_do_not_matter() -> None:
    graph = Graph(FOUR)
    running = have(graph, (want(slots=10), NOW + 5))
    reason = alone(graph, want(slots=12), running)

    assert reason.kinds == (ReasonKind.CORES,)
    assert reason.sentence == "waits for 12 cores; 6 of 16 are free"
    assert reason.numbers == {"cores": {"wanted": 12, "free": 6}}


# Those who wait


def test_a_job_behind_a_reservation_is_told_whose_it_is(graph: Graph) -> None:
    running = have(graph, (whole(7), NOW + 60))
    queue = waiting((whole(8), 10), (whole(1), 61))
    reason = why(graph, queue, running)

    assert reason.kinds == (ReasonKind.RESERVED,)
    assert reason.sentence == (
        f"waits behind {f58(1)}, which waits before it: there is room, and it is reserved"
    )
    assert reason.numbers == {"behind": [1], "reserved_at": NOW + 60}
    assert why(graph, queue[1:], running).kinds == (ReasonKind.TURN,)


def test_flash_that_is_reserved_is_told_as_nodes_are() -> None:
    graph = Graph(system((4, 64), quantum=None))
    running = have(graph, (want(1, ssd=50), NOW + 60))
    queue = waiting((want(1, shared_flash=(AllocationSet(1, 50),)), 10), (want(1, ssd=14), inf),
                    (want(1, ssd=15), inf))  # fmt: skip

    assert why(graph, queue, running, job=2).kinds == (ReasonKind.TURN,)
    assert why(graph, [queue[0], queue[2]], running).kinds == (ReasonKind.FLASH,)
    queue[1] = replace(queue[1], request=want(1, ssd=14), duration=inf)
    late = waiting((want(1, shared_flash=(AllocationSet(1, 60),)), 10), (want(1, ssd=14), inf))
    assert why(graph, late, running).numbers == {"behind": [1], "reserved_at": NOW + 60}


def test_without_backfilling_the_first_who_waits_holds_up_the_others(graph: Graph) -> None:
    running = have(graph, (whole(7), NOW + 60))
    queue = waiting((whole(8), 10), (whole(1), 1))

    assert why(graph, queue, running).kinds == (ReasonKind.TURN,)
    assert why(graph, queue, running, backfilling=False).numbers["behind"] == [1]


def test_a_job_beyond_the_depth_of_its_queue_is_told_so(graph: Graph) -> None:
    running = have(graph, (whole(7), NOW + 60))
    queue = waiting((whole(8), 10), (whole(7), 10), (whole(1), 1))

    assert why(graph, queue, running).kinds == (ReasonKind.TURN,)
    told = why(graph, queue, running, depth=2)
    assert told.kinds == (ReasonKind.DEPTH,)
    assert "but 2 jobs of its user in its queue that cannot start wait before it" in told.sentence
    told = why(graph, queue, running, depth=2, backfilling=False)
    assert told.kinds == (ReasonKind.RESERVED,)
    assert why(graph, queue[1:], running, depth=2).kinds == (ReasonKind.TURN,)


def test_no_job_is_told_that_it_is_beyond_the_depth_by_jobs_that_wait_for_an_administrator(
    graph: Graph,
) -> None:
    graph.set_rabbit("r0", up=False)
    graph.set_rabbit("r1", up=False)
    queue = waiting(*[(want(1, ssd=2), 10)] * 4, (whole(1), 1))

    assert why(graph, queue, depth=2).kinds == (ReasonKind.TURN,)


ALIKE: list[tuple[Request, float]] = [(want(2, ssd=2), 10)] * 64
DIFFERENT: list[tuple[Request, float]] = [(want(1, ssd=size), 10) for size in range(1, 9)]
"""What waits for an administrator where all flash is down."""


def test_a_job_beyond_those_that_wait_for_an_administrator_is_told_how_many_there_are() -> None:
    graph = Graph(system((4, 8), (4, 8)))
    graph.set_rabbit("r0", up=False)
    graph.set_rabbit("r1", up=False)

    alike = why(graph, waiting(*ALIKE, (whole(1), 1)), depth=1)
    assert alike.kinds == (ReasonKind.DEPTH,)
    assert (
        "but 64 jobs of its user in its queue wait before it for an administrator" in alike.sentence
    )
    different = why(graph, waiting(*DIFFERENT, (whole(1), 1)), depth=1)
    assert "but jobs of its user in its queue with 8 different requests wait" in different.sentence


def test_each_is_told_of_the_limit_of_its_own_queue() -> None:
    graph = Graph(system((4, 8), (4, 8)))
    graph.set_rabbit("r0", up=False)
    graph.set_rabbit("r1", up=False)
    all_jobs = waiting(*ALIKE, (whole(1), 1), *DIFFERENT, (whole(1), 1))
    queues = [[all_jobs[:65]], [all_jobs[65:]]]
    asked = [jobs[-1] for (jobs,) in queues]

    told = dict(wait_reasons(graph, queues, (), NOW, backfilling=True, depth=1, jobs=asked))
    assert "but 64 jobs of its user" in told[asked[0].job].sentence
    assert "with 8 different requests" in told[asked[1].job].sentence


def test_a_job_beyond_those_of_all_users_is_told_how_many_they_have(graph: Graph) -> None:
    running = have(graph, (whole(7), NOW + 60))
    jobs = waiting(*[(whole(8), 10)] * 9, (whole(1), 1), (whole(1), 1))
    queue = [[jobs[0], jobs[8], jobs[10]], *([each] for each in jobs[1:8]), [jobs[9]]]

    told = dict(
        wait_reasons(
            graph, [queue], running, NOW, backfilling=True, depth=1, jobs=[jobs[9], jobs[10]]
        )
    )
    assert "but 8 jobs of its queue that cannot start wait before it" in told[JobId(10)].sentence
    assert "but 1 job of its user in its queue that cannot" in told[JobId(11)].sentence


def test_only_reservations_that_are_in_the_way_are_named(graph: Graph) -> None:
    low = want(4, constraint='{"ranks":["0-3"]}', exclusive=True)
    high = want(4, constraint=HIGH, exclusive=True)
    running = have(graph, (want(1, constraint='{"ranks":["0"]}', exclusive=True), NOW + 60),
                   (want(1, constraint='{"ranks":["4"]}', exclusive=True), NOW + 30))  # fmt: skip
    queue = waiting((low, 9), (high, 9), (want(1, constraint=HIGH), 40))

    assert why(graph, queue, running).numbers == {"behind": [2], "reserved_at": NOW + 30}


def test_when_there_will_be_room_is_told_with_the_job_that_makes_it(graph: Graph) -> None:
    running = have(graph, (whole(3), NOW + 10), (whole(4), NOW + 60))
    found = earliest_reservation(graph, running, NOW, whole(5))

    assert found is not None
    assert (found.t_estimate, found.freed_by) == (NOW + 60, 101)
    endless = have(graph, (whole(1), inf))
    last = earliest_reservation(graph, [*running, *endless], NOW, whole(8))
    assert last is not None
    assert (last.t_estimate, last.freed_by) == (inf, None)


def test_asking_changes_nothing(graph: Graph) -> None:
    queue = waiting((whole(3), 10), (whole(9), 10), (whole(3), 10))
    assert why(graph, queue, job=3).kinds == (ReasonKind.TURN,)
    assert graph.fits(whole(8))


# What always holds

systems = st.sampled_from(
    [
        system((3, 0), cores=2),
        system((2, 4), (2, 4), cores=2, quantum=1),
        system((2, 4), (2, 4), cores=2, quantum=None),
        system((3, 6), (1, 3), cores=2, quantum=2),
    ]
)
requests = st.builds(
    lambda nodes, exclusive, ssd, constraint, untagged: want(
        nodes, exclusive=exclusive, ssd=ssd, constraint=constraint, needs_untagged=untagged
    ),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0, 0, 1, 2, 3]),
    st.sampled_from(["", "", "", '{"ranks":["0-1"]}', '{"ranks":["1-3"]}']),
    st.booleans(),
) | st.builds(lambda slots: want(slots=slots), st.integers(1, 8))
few = st.sets(st.integers(0, 3), max_size=2)
rabbits = st.sampled_from(["r0", "r1"])
obstacles = st.fixed_dictionaries(
    {
        ReasonKind.DRAINED: few,
        ReasonKind.OFFLINE: few,
        ReasonKind.TAGGED: few,
        ReasonKind.RABBITS: st.sets(rabbits, max_size=2),
        ReasonKind.CAPACITY: st.dictionaries(rabbits, st.integers(0, 4), max_size=2),
        ReasonKind.EXTERNAL: st.dictionaries(rabbits, st.integers(0, 4), max_size=2),
    }
)


class Cluster:
    """A system with obstacles, and jobs that run; either can be undone."""

    def __init__(
        self, r: dict[str, Any], before: Iterable[Request], kept: dict[ReasonKind, Any]
    ) -> None:
        self.r, self.kept = r, kept
        self.graph = Graph(r)
        for rabbit in ("r0", "r1"):
            self.graph.set_rabbit(rabbit, up=True)
        self.running: list[RunningJob] = []
        for number, each in enumerate(before, 100):
            if self.graph.fits(each):
                held = matched(self.graph, each)
                self.graph.take(held)
                self.running.append(RunningJob(inf, JobId(number), held))
        for kind in WITHHELD_KINDS:
            self.set(kind, kept[kind])

    def set(self, kind: ReasonKind, kept: Any) -> None:
        self.kept = {**self.kept, kind: kept}
        hosts = [f"n{each}" for each in self.kept[ReasonKind.TAGGED]]
        self.graph.set_drained(self.kept[ReasonKind.DRAINED])
        self.graph.set_offline(self.kept[ReasonKind.OFFLINE])
        self.graph.set_tagged("us", hosts)
        for rabbit in ("r0", "r1"):
            up = rabbit not in self.kept[ReasonKind.RABBITS]
            capacity = self.kept[ReasonKind.CAPACITY].get(rabbit, 1000)
            self.graph.set_rabbit(rabbit, up=up, capacity_gib=capacity)
            self.graph.set_external_gib(rabbit, self.kept[ReasonKind.EXTERNAL].get(rabbit, 0))

    def without(self, kinds: Iterable[ReasonKind]) -> "Cluster":
        """Return the same cluster, if some obstacles are undone."""
        undone: dict[ReasonKind, Any] = {
            kind: type(self.kept[kind])() for kind in kinds if kind in WITHHELD_KINDS
        }
        other = Cluster(self.r, (), {**self.kept, **undone})
        if not {ReasonKind.NODES, ReasonKind.FLASH, ReasonKind.CORES, ReasonKind.CHASSIS} & {
            *kinds
        }:
            for each in self.running:
                other.graph.take(each.allocation)
        return other


@settings(deadline=None, max_examples=400)
@given(systems, st.lists(requests, max_size=3), obstacles, requests)
def test_a_job_starts_without_all_that_is_named_and_not_before(
    r: dict[str, Any], before: list[Request], kept: dict[ReasonKind, Any], request: Request
) -> None:
    cluster = Cluster(r, before, kept)
    if cluster.graph.fits(request) or cluster.graph.infeasibility(request) is not None:
        return
    reason = alone(cluster.graph, request, cluster.running)

    assert cluster.without(reason.kinds).graph.fits(request), reason
    for kind in reason.kinds:
        rest = [each for each in reason.kinds if each is not kind]
        assert not cluster.without(rest).graph.fits(request), (kind, reason)


durations = st.sampled_from([1.0, 3.0, 6.0, inf])
ends = st.sampled_from([NOW + 1, NOW + 2, NOW + 5, inf])


@settings(deadline=None, max_examples=300)
@given(
    systems,
    st.lists(st.tuples(requests, ends), max_size=3),
    st.lists(st.tuples(requests, durations), min_size=1, max_size=7),
    st.booleans(),
    st.integers(1, 4),
    st.data(),
)
def test_whoever_waits_starts_once_all_that_it_is_told_in_turn_is_gone(
    r: dict[str, Any],
    before: list[tuple[Request, float]],
    wanted: list[tuple[Request, float]],
    backfilling: bool,
    depth: int,
    data: st.DataObject,
) -> None:
    graph, oracle = Graph(r), Oracle(r)
    running = []
    for number, (request, end) in enumerate(before, 100):
        if graph.fits(request):
            running += have(graph, (request, end), first=number)
    running.sort()
    queue = waiting(*(each for each in wanted if graph.infeasibility(each[0]) is None))
    if not queue:
        return
    job = data.draw(st.sampled_from(queue)).job
    for _ in range(2 * len(wanted) + 2):
        for each in decide(graph, [[[*queue]]], running, NOW, backfilling=backfilling, depth=depth):
            if isinstance(each, Start):
                queue.remove(each.pending)
                end = NOW + each.pending.duration
                running = sorted([*running, RunningJob(end, each.pending.job, each.allocation)])
        mine = next((each for each in queue if each.job == job), None)
        if mine is None:
            return
        reason = why(graph, queue, running, job, backfilling=backfilling, depth=depth)
        taken = together(parts(graph, each.allocation) for each in running)
        room = oracle.fits(mine.request, taken)
        match reason.kind:
            case ReasonKind.RESERVED:
                assert room
                behind = reason.numbers["behind"]
                assert behind
                assert all(each < job for each in behind)
                queue = [each for each in queue if each.job not in behind]
            case ReasonKind.DEPTH:
                assert room
                queue = queue[depth:]
            case ReasonKind.NODES | ReasonKind.FLASH | ReasonKind.CORES:
                assert not room
                graph.give_back(*(each.allocation for each in running))
                running = []
            case _:
                raise AssertionError(reason)
    raise AssertionError(f"{job} never starts")
