"""What a request would get of a system, and why it gets nothing."""

from typing import Any

import orjson
import pytest

from tests.rfc.vectors import vector
from tests.scheduling.systems import matched, paths, system, want
from warren.rfc import jgf, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.resource_set import Rank
from warren.scheduling.graph import Allocation, Graph, Piece, Refusal, Use
from warren.scheduling.request import Request

SYSTEM = system((2, 8), (2, 8), (1, 0))
"""Two chassis of two nodes and four ssds of 2 GiB, and one node without flash."""


@pytest.fixture
def graph() -> Graph:
    return Graph(SYSTEM)


@pytest.mark.parametrize(
    ("request_", "pieces"),
    [
        (want(slots=1), [Piece(0, 0b1)]),
        (want(slots=5), [Piece(0, 0b1111), Piece(1, 0b1)]),
        (want(slots=2, cores=3), [Piece(0, 0b111), Piece(1, 0b111)]),
        (want(2), [Piece(0, 0b1), Piece(1, 0b1)]),
        (want(2, 3), [Piece(0, 0b11), Piece(1, 0b11)]),
        (want(1, exclusive=True), [Piece(0, 0b1111)]),
        (want(1, ssd=1), [Piece(0, 0b1, 0b1)]),
        (want(1, ssd=3), [Piece(0, 0b1, 0b11)]),
        (want(2, ssd=4), [Piece(0, 0b1, 0b11), Piece(1, 0b1, 0b1100)]),
        (want(2, ssd=6), [Piece(0, 0b1, 0b111), Piece(2, 0b1, 0b111)]),
    ],
)
def test_the_first_that_fits_is_matched(
    graph: Graph, request_: Request, pieces: list[Piece]
) -> None:
    assert matched(graph, request_).pieces == tuple(pieces)


def test_matching_takes_nothing(graph: Graph) -> None:
    assert graph.match(want(2, ssd=4)) == graph.match(want(2, ssd=4))


def test_what_is_taken_is_not_given_again_until_it_is_given_back(graph: Graph) -> None:
    first = matched(graph, want(1, exclusive=True, ssd=8))
    graph.take(first)

    assert matched(graph, want(1, ssd=8)).pieces == (Piece(2, 0b1, 0b1111),)
    graph.give_back(first)
    assert matched(graph, want(1, exclusive=True, ssd=8)) == first


def test_giving_back_twice_frees_nothing_more(graph: Graph) -> None:
    held = matched(graph, want(slots=3))
    graph.take(held)
    graph.give_back(held)
    graph.give_back(held)
    assert matched(graph, want(slots=20)).pieces[-1] == Piece(4, 0b1111)
    assert isinstance(graph.match(want(slots=21)), Refusal)


# Refusals


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (want(6), "6 nodes are asked for, and the cluster has 5."),
        (want(1, cores=5), "5 cores on a node are asked for, and the widest node has 4."),
        (want(1, 3, cores=2), "6 cores on a node are asked for, and the widest node has 4."),
        (want(slots=21), "21 cores are asked for, and the cluster has 20."),
        (
            want(1, cores=4, ssd=9),
            "1 nodes with 9 GiB of flash each are asked for, and a rabbit has 8 GiB for the nodes "
            "that are wired to it.",
        ),
        (
            want(1, ssd=9),
            "1 nodes with 9 GiB of flash each are asked for, and a rabbit has 8 GiB for the nodes "
            "that are wired to it.",
        ),
        (
            want(5, ssd=1),
            "5 nodes with 1 GiB of flash each are asked for, and a rabbit has 8 GiB for the nodes "
            "that are wired to it.",
        ),
    ],
)
def test_what_can_never_be_is_refused_for_good(
    graph: Graph, request_: Request, reason: str
) -> None:
    assert graph.match(request_) == Refusal(reason, never=True)
    assert graph.feasible(request_) == Refusal(reason, never=True)


@pytest.mark.parametrize(
    ("held", "request_", "reason"),
    [
        (want(4), want(5, cores=4), "waits for 4 more of 5 nodes"),
        (want(4), want(2, exclusive=True), "waits for 1 more of 2 nodes"),
        (want(slots=10), want(slots=12), "waits for 12 cores"),
        (want(slots=1), want(slots=20), "waits for 20 cores"),
        (want(1, ssd=8), want(2, ssd=8), "waits for 8 GiB of flash beside each of 2 nodes"),
    ],
)
def test_what_must_wait_is_told_what_it_waits_for(
    graph: Graph, held: Request, request_: Request, reason: str
) -> None:
    graph.take(matched(graph, held))
    assert graph.match(request_) == Refusal(reason)
    assert graph.feasible(request_) is None


def test_flash_that_is_not_ready_is_waited_for(graph: Graph) -> None:
    graph.set_ssds("r0", up=False)

    assert matched(graph, want(2, ssd=2)).pieces == (Piece(2, 0b1, 0b1), Piece(3, 0b1, 0b10))
    assert graph.match(want(3, ssd=2)) == Refusal(
        "waits for 2 GiB of flash beside each of 3 nodes; not ready: r0"
    )
    graph.set_ssds("r0", up=True)
    graph.set_ssds("nobody", up=False)
    assert matched(graph, want(4, ssd=2))


def test_a_job_without_flash_does_not_mind_a_rabbit_that_is_down(graph: Graph) -> None:
    graph.set_ssds("r0", up=False)
    assert matched(graph, want(1)).pieces == (Piece(0, 0b1),)


# Drained nodes


def test_a_drained_node_is_not_given_out_until_it_is_undrained(graph: Graph) -> None:
    graph.set_drained([0, 2])
    assert matched(graph, want(2)).pieces == (Piece(1, 0b1), Piece(3, 0b1))
    assert matched(graph, want(slots=5)).pieces == (Piece(1, 0b1111), Piece(3, 0b1))

    graph.set_drained([2])
    assert matched(graph, want(2)).pieces == (Piece(0, 0b1), Piece(1, 0b1))


def test_the_flash_of_a_drained_node_is_there_for_its_neighbours(graph: Graph) -> None:
    graph.set_drained([0])
    assert matched(graph, want(1, ssd=8)).pieces == (Piece(1, 0b1, 0b1111),)


def test_what_is_given_back_of_a_drained_node_is_given_out_when_it_is_undrained(
    graph: Graph,
) -> None:
    held = matched(graph, want(5, exclusive=True))
    graph.take(held)
    graph.set_drained([0])
    graph.give_back(held)
    assert isinstance(graph.match(want(5)), Refusal)

    graph.set_drained([])
    assert matched(graph, want(5, exclusive=True)) == held


def test_a_job_on_a_drained_node_is_known_again_after_a_restart(graph: Graph) -> None:
    held = matched(graph, want(1, exclusive=True, ssd=2))
    r = graph.encode(held, slots=1, starttime=0.0, expiration=0.0)
    again = Graph(SYSTEM)
    again.set_drained([0])
    again.take(again.decode(r))

    assert again.use()[0] == Use(0, "n0", cores=4, taken=4)


def test_what_only_drained_nodes_could_do_is_feasible(graph: Graph) -> None:
    graph.set_drained(range(5))
    assert graph.feasible(want(5)) is None
    assert graph.feasible(want(slots=20)) is None
    assert graph.feasible(want(2, ssd=4)) is None


def test_a_rank_that_is_not_here_can_be_drained_without_effect(graph: Graph) -> None:
    graph.set_drained([9])
    held = matched(graph, want(5, exclusive=True))
    graph.take(held)
    assert graph.match(want(1)) == Refusal("waits for 1 more of 1 nodes")

    graph.set_drained([0, 9])
    graph.give_back(held)
    assert graph.match(want(5)) == Refusal("waits for 1 more of 5 nodes; drained: n0")


@pytest.mark.parametrize(
    ("drained", "held", "request_", "reason"),
    [
        ([1], want(slots=1), want(5), "waits for 1 more of 5 nodes; drained: n1"),
        ([0, 1, 3], want(slots=1), want(4), "waits for 2 more of 4 nodes; drained: n[0-1,3]"),
        ([1], want(slots=1), want(slots=17), "waits for 17 cores; drained: n1"),
        # It would not fit at once with them, but without them it never fits.
        ([3], want(5, exclusive=True), want(5), "waits for 5 more of 5 nodes; drained: n3"),
        # They would help at once, though without them others only need to end.
        (
            [4],
            want(4, exclusive=True),
            want(1, exclusive=True),
            "waits for 1 more of 1 nodes; drained: n4",
        ),
    ],
)
def test_drained_nodes_are_named_where_they_keep_a_job_waiting(
    graph: Graph, drained: list[int], held: Request, request_: Request, reason: str
) -> None:
    graph.take(matched(graph, held))
    graph.set_drained(drained)
    assert graph.match(request_) == Refusal(reason)


def test_drained_nodes_are_named_where_the_free_flash_is_beside_them(graph: Graph) -> None:
    graph.set_drained([0, 1])
    graph.take(matched(graph, want(1, ssd=8)))
    assert graph.match(want(1, ssd=2)) == Refusal(
        "waits for 2 GiB of flash beside each of 1 nodes; drained: n[0-1]"
    )


def test_drained_nodes_are_not_named_where_a_job_only_waits_for_others(graph: Graph) -> None:
    graph.take(matched(graph, want(5, exclusive=True)))
    graph.set_drained([0])
    assert graph.match(want(1)) == Refusal("waits for 1 more of 1 nodes")


def test_flash_that_is_not_ready_and_drained_nodes_are_both_named(graph: Graph) -> None:
    graph.set_ssds("r1", up=False)
    graph.set_drained([0])
    assert graph.match(want(2, ssd=2)) == Refusal(
        "waits for 2 GiB of flash beside each of 2 nodes; not ready: r1; drained: n0"
    )


def test_the_use_of_each_node_is_told_in_cores(graph: Graph) -> None:
    graph.take(matched(graph, want(slots=5)))
    assert [(each.rank, each.host, each.taken) for each in graph.use()] == [
        (0, "n0", 4),
        (1, "n1", 1),
        (2, "n2", 0),
        (3, "n3", 0),
        (4, "n4", 0),
    ]
    assert {each.cores for each in graph.use()} == {4}


# R


def test_an_allocation_is_written_as_r_with_its_part_of_the_graph(graph: Graph) -> None:
    r = graph.encode(matched(graph, want(2, ssd=6)), slots=2, starttime=5.0, expiration=9.0)

    assert resource_set.decode(r) == [Rank(0, "n0", (0,)), Rank(2, "n2", (0,))]
    assert r["execution"]["nslots"] == 2
    assert (r["execution"]["starttime"], r["execution"]["expiration"]) == (5.0, 9.0)
    assert [vertex.path for vertex in jgf.decode(r["scheduling"])] == [
        "/c",
        "/c/chassis0",
        "/c/chassis0/ssd0",
        "/c/chassis0/ssd1",
        "/c/chassis0/ssd2",
        "/c/chassis0/n0",
        "/c/chassis0/n0/core0",
        "/c/chassis1",
        "/c/chassis1/ssd0",
        "/c/chassis1/ssd1",
        "/c/chassis1/ssd2",
        "/c/chassis1/n2",
        "/c/chassis1/n2/core0",
    ]


def test_each_vertex_of_a_jobs_graph_is_told_once_with_what_fluxion_reads(graph: Graph) -> None:
    r = graph.encode(matched(graph, want(2, ssd=2)), slots=2, starttime=0.0, expiration=0.0)

    told = {vertex.path: vertex.metadata for vertex in jgf.decode(r["scheduling"])}

    assert len(told) == len(list(jgf.decode(r["scheduling"]))) == 8
    assert told["/c/chassis0"] == {"properties": {"rabbit": "r0"}}
    assert told["/c/chassis0/ssd1"] == {"id": 1, "unit": "GiB", "size": 2, "exclusive": True}
    assert told["/c/chassis0/n1"] == {"name": "n1", "rank": 1}
    assert told["/c/chassis0/n1/core0"] == {"id": 0, "rank": 1}


def test_a_later_allocation_is_read_back_as_it_was(graph: Graph) -> None:
    graph.take(matched(graph, want(2, ssd=2)))
    later = matched(graph, want(1, ssd=4))
    assert graph.decode(graph.encode(later, slots=1, starttime=0.0, expiration=0.0)) == later


def test_the_graph_of_a_job_is_itself_a_system(graph: Graph) -> None:
    r = graph.encode(matched(graph, want(2, ssd=6)), slots=2, starttime=0.0, expiration=0.0)

    inner = Graph(r)

    assert inner.nodes == 2
    assert [each.cores for each in matched(inner, want(2, ssd=6)).pieces] == [1, 1]
    assert isinstance(inner.match(want(2, ssd=7)), Refusal)


def test_an_r_that_names_what_is_not_here_is_refused(graph: Graph) -> None:
    with pytest.raises(BadFormat, match="R names rank 9, which the system does not have"):
        graph.decode(resource_set.encode([Rank(9, "n9", (0,))]))


def test_a_system_without_a_graph_has_nodes_and_no_flash() -> None:
    plain = Graph(resource_set.encode([Rank(0, "n0", (0, 1)), Rank(1, "n1", (0,))]))

    held = matched(plain, want(slots=3))
    plain.take(held)

    assert plain.decode(plain.encode(held, slots=3, starttime=0.0, expiration=0.0)) == held
    refused = plain.match(want(1, ssd=1))
    assert isinstance(refused, Refusal)
    assert refused.never


def test_ssds_of_two_sizes_in_one_chassis_are_refused() -> None:
    r: dict[str, Any] = orjson.loads(orjson.dumps(SYSTEM))
    first = next(
        node["metadata"]
        for node in r["scheduling"]["graph"]["nodes"]
        if node["metadata"]["type"] == "ssd"
    )
    first["size"] = 3
    with pytest.raises(BadFormat, match="the ssds of /c/chassis0 are not of one size"):
        Graph(r)


def test_the_graph_of_flux_coral2_is_understood() -> None:
    graph = Graph(orjson.loads(vector("coral2/dws2jgf/expected-compute-01.jgf").read_bytes()))

    assert graph.nodes == 1
    assert graph.match(want(1, ssd=2000)) == Refusal(
        "waits for 2000 GiB of flash beside each of 1 nodes; not ready: kind-worker2, kind-worker3"
    )
    graph.set_ssds("kind-worker2", up=True)
    held = matched(graph, want(1, ssd=2000))
    assert held == Allocation((Piece(0, 0b1, 0b11),))
    assert paths(graph, held, "ssd") == ["/ElCapitan/chassis0/ssd0", "/ElCapitan/chassis0/ssd1"]
