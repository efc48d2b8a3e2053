"""What a request would get of a system, and why it gets nothing."""

from collections.abc import Mapping
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from tests.rfc.vectors import vector
from tests.scheduling.systems import matched, paths, system, want, written
from warren.rfc import jgf, resource_set
from warren.rfc.counts import parse
from warren.rfc.errors import BadFormat
from warren.rfc.resource_set import NodeResources
from warren.scheduling.graph import Allocation, Graph, NodeUse, Piece, Refusal
from warren.scheduling.inventory import Inventory
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


# Gpus, whole slots of nodes, choices, constraints


def test_gpus_are_given_beside_cores_and_not_twice() -> None:
    graph = Graph(system((4, 0), gpus=2))
    first = matched(graph, want(slots=3, gpus=1))
    assert first.pieces == (Piece(0, 0b11, 0, 0b11), Piece(1, 0b1, 0, 0b1))

    graph.take(first)
    assert matched(graph, want(1, gpus=1)).pieces == (Piece(1, 0b10, 0, 0b10),)
    assert graph.match(want(slots=2, gpus=1)) == Refusal("waits for 2 cores and 2 gpus")


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (
            want(3, gpus=1),
            "3 nodes with 1 core and 1 gpu each are asked for, and the cluster has 2.",
        ),
        (want(1, gpus=3), "3 gpus on a node are asked for, and no node has more than 2."),
        (want(slots=5, gpus=1), "5 gpus are asked for, and the cluster has 4."),
        (
            want(slots=3, cores=3, gpus=1),
            "3 slots with 3 cores and 1 gpu each are asked for, and there is room for 2.",
        ),
    ],
)
def test_what_lacks_gpus_is_told_so(request_: Request, reason: str) -> None:
    assert Graph(system((4, 0), gpus=2)).infeasibility(request_) == Refusal(reason, never=True)


def test_a_job_that_has_a_node_whole_has_its_gpus() -> None:
    graph = Graph(system((2, 0), gpus=2))
    held = matched(graph, want(1, exclusive=True))
    assert held.pieces == (Piece(0, 0b1111, 0, 0b11),)

    r = written(graph, held)
    assert resource_set.decode_nodes(r) == [NodeResources(0, "n0", (0, 1, 2, 3), (0, 1))]
    assert paths(graph, held, "gpu") == ["/c/chassis0/n0/gpu0", "/c/chassis0/n0/gpu1"]
    assert graph.decode(r) == held


def test_a_slot_may_hold_several_nodes(graph: Graph) -> None:
    held = matched(graph, want(2, cores=2, exclusive=True, nodes_per_slot=2))

    assert [piece.rank for piece in held.pieces] == [0, 1, 2, 3]
    assert held.slots == 2
    assert graph.match(want(3, nodes_per_slot=2)) == Refusal(
        "6 nodes are asked for, and the cluster has 5.", never=True
    )


@pytest.mark.parametrize(
    ("request_", "counts", "ranks", "slots"),
    [
        (want(2), {"nodes": "2-4"}, [0, 1, 2, 3], 4),
        (want(2), {"nodes": "2+"}, [0, 1, 2, 3, 4], 5),
        (want(1), {"nodes": "1,3,9"}, [0, 1, 2], 3),
        (want(2, exclusive=True, nodes_per_slot=2), {"nodes": "1-9"}, [0, 1, 2, 3], 2),
        (want(1, ssd=4), {"nodes": "1-9"}, [0, 1, 2, 3], 4),
        (want(slots=2), {"slots": "2-7"}, [0, 1], 7),
        (want(slots=2, cores=3), {"slots": "2+:2:*"}, [0, 1, 2, 3], 4),
        (want(2), {"slots": "1-9"}, [0, 1], 8),
        # Rather more nodes than more on each.
        (want(2), {"nodes": "2-3", "slots": "1-2"}, [0, 1, 2], 6),
    ],
)
def test_of_what_may_be_given_the_most_that_fits_is(
    graph: Graph, request_: Request, counts: dict[Any, str], ranks: list[int], slots: int
) -> None:
    more = tuple((part, parse(count)) for part, count in counts.items())
    held = matched(graph, replace(request_, open_counts=more))

    assert [piece.rank for piece in held.pieces] == ranks
    assert held.slots == slots
    assert written(graph, held)["execution"]["nslots"] == slots


def test_cores_and_gpus_of_a_slot_may_be_left_open() -> None:
    graph = Graph(system((2, 0), gpus=2))
    open_ = want(1, gpus=1, open_counts=(("cores", parse("1+")), ("gpus", parse("1-8"))))

    assert matched(graph, open_).pieces == (Piece(0, 0b1111, 0, 0b11),)


def test_what_leaves_a_choice_makes_do_with_what_there_is(graph: Graph) -> None:
    graph.take(matched(graph, want(3, exclusive=True)))
    held = matched(graph, want(1, open_counts=(("nodes", parse("1-4")),)))

    assert [piece.rank for piece in held.pieces] == [3, 4]


PROPERTIES = {"fast": {"n1", "n3"}, "+batch": {"n3", "n4"}, "arch@gpu": {"n0"}}


@pytest.mark.parametrize(
    ("constraint", "rank"),
    [
        ('{"properties":["fast"]}', 1),
        ('{"properties":["fast","+batch"]}', 3),
        ('{"properties":["^fast"]}', 0),
        ('{"properties":["arch"]}', 0),
        ('{"hostlist":["n[2-3]"]}', 2),
        ('{"ranks":["4"]}', 4),
        ('{"not":[{"ranks":["0-1"]}]}', 2),
        ('{"or":[{"ranks":["4"]},{"properties":["fast"]}]}', 1),
        ('{"and":[{"ranks":["2-4"]},{"properties":["fast"]}]}', 3),
    ],
)
def test_only_nodes_that_meet_the_constraint_are_given(constraint: str, rank: int) -> None:
    graph = Graph(SYSTEM, PROPERTIES)
    assert matched(graph, want(1, constraint=constraint)).pieces == (Piece(rank, 0b1),)


def test_properties_come_from_r_and_those_of_this_instance_alone_are_not_given_away() -> None:
    r = resource_set.encode_nodes(
        [NodeResources(0, "n0", (0,)), NodeResources(1, "n1", (0,))],
        properties={"slow": [1], "+mine": [0]},
    )
    graph = Graph(r, {"fast": {"n1"}, "+batch": {"n1"}})
    held = matched(graph, want(1, constraint='{"properties":["slow","fast","+batch"]}'))
    assert written(graph, held)["execution"]["properties"] == {"slow": "1", "fast": "1"}

    local = matched(graph, want(1, constraint='{"properties":["+mine"]}'))
    assert "properties" not in written(graph, local)["execution"]
    assert graph.status()["all"]["execution"]["properties"] == {
        "+batch": "1", "+mine": "0", "fast": "1", "slow": "1",
    }  # fmt: skip


def test_many_constraints_are_not_all_kept(graph: Graph) -> None:
    for number in range(6000):
        constraint = orjson.dumps({"ranks": [f"0,{number + 1}"]}).decode()
        assert matched(graph, want(1, constraint=constraint)).pieces == (Piece(0, 0b1),)
    assert len(graph._matching_nodes._by_constraint) < 5000
    for number in range(100):
        constraint = orjson.dumps({"properties": [f"^{number:01000000}"]}).decode()
        assert graph.fits(want(1, constraint=constraint))
    assert sum(map(len, graph._matching_nodes._by_constraint)) < 70_000_000


def test_the_constraints_of_all_jobs_that_are_looked_at_are_read_once(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each queue 32 jobs that wait for others are looked at, and 256 for an administrator."""
    read: list[object] = []
    matching = Inventory.matching_nodes

    def noting(inventory: Inventory, wanted: Mapping[str, Any]) -> int:
        read.append(wanted)
        return matching(inventory, wanted)

    monkeypatch.setattr(Inventory, "matching_nodes", noting)
    for _ in range(2):
        for number in range(8 * (32 + 256)):
            assert graph.fits(want(1, constraint=f'{{"ranks":["0,{number + 1}"]}}'))
    assert len(read) == 8 * (32 + 256)


# Nodes that are excluded, or gone


def test_an_excluded_node_is_never_given_and_does_not_count() -> None:
    graph = Graph(SYSTEM, excluded=[0, 4])

    assert matched(graph, want(3)).pieces == (Piece(1, 0b1), Piece(2, 0b1), Piece(3, 0b1))
    assert graph.match(want(4)) == Refusal(
        "4 nodes are asked for, and the cluster has 3. Some are excluded: n[0,4].", never=True
    )
    assert graph.match(want(6)) == Refusal(
        "6 nodes are asked for, and the cluster has 3.", never=True
    )


def test_a_node_that_is_gone_is_waited_for(graph: Graph) -> None:
    graph.set_offline([1])
    graph.set_drained([0, 1])
    assert graph.match(want(4)) == Refusal("waits for 1 more of 4 nodes; drained: n[0-1]")

    graph.set_drained([0])
    assert graph.match(want(4)) == Refusal("waits for 1 more of 4 nodes; drained: n0; offline: n1")
    graph.set_offline([])
    assert matched(graph, want(4))


def test_the_status_says_what_there_is_what_is_taken_and_what_is_kept_back() -> None:
    graph = Graph(SYSTEM, excluded=[4])
    graph.take(matched(graph, want(slots=5)))
    graph.set_drained([1])
    graph.set_offline([3])
    told = {name: resource_set.decode_nodes(r) for name, r in graph.status().items()}

    whole = (0, 1, 2, 3)
    assert told["all"] == [NodeResources(n, f"n{n}", whole) for n in range(4)]
    assert told["allocated"] == [NodeResources(0, "n0", whole), NodeResources(1, "n1", (0,))]
    assert told["down"] == [NodeResources(1, "n1", whole), NodeResources(3, "n3", whole)]


def test_what_several_have_of_one_node_is_given_back_at_once(graph: Graph) -> None:
    held = [matched(graph, want(slots=1))]
    graph.take(held[0])
    held.append(matched(graph, want(slots=2)))
    graph.take(held[1])
    graph.give_back(*held)
    assert matched(graph, want(5, exclusive=True))


# Refusals


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (want(6), "6 nodes are asked for, and the cluster has 5."),
        (want(1, cores=5), "5 cores on a node are asked for, and the widest node has 4."),
        (want(1, 3, cores=2), "6 cores on a node are asked for, and the widest node has 4."),
        (want(slots=21), "21 cores are asked for, and the cluster has 20."),
        (want(slots=1, cores=5), "5 cores in a slot are asked for, and the widest node has 4."),
        (
            want(slots=6, cores=3),
            "6 slots with 3 cores each are asked for, and there is room for 5.",
        ),
        (want(1, gpus=1), "1 gpu on a node is asked for, and no node has one."),
        (want(slots=2, gpus=2), "4 gpus are asked for, and the cluster has none."),
        (
            want(3, constraint='{"properties":["fast"]}'),
            "3 nodes that meet fast are asked for, and the cluster has none.",
        ),
        (
            want(3, constraint='{"not":[{"ranks":["0-2"]}]}'),
            "3 nodes that meet not ranks:0-2 are asked for, and the cluster has 2.",
        ),
        (
            want(1, cores=5, constraint='{"hostlist":["n1"]}'),
            "5 cores on a node are asked for, and the widest node that meets hostlist:n1 has 4.",
        ),
        (
            want(slots=9, constraint='{"hostlist":["n1","n2"]}'),
            '9 cores on nodes that meet {"hostlist":["n1","n2"]} are asked for, and they have 8.',
        ),
        (
            want(slots=1, constraint='{"properties":["foo"]}'),
            "1 core on nodes that meet foo is asked for, and the cluster has none.",
        ),
        (
            want(1, constraint='{"properties":["foo"]}'),
            "1 node that meets foo is asked for, and the cluster has none.",
        ),
        (
            want(1, constraint='{"ranks":["4"]}', ssd=1),
            "1 node that meets ranks:4 with 1 GiB of flash is asked for, and a rabbit has 8 GiB "
            "for the nodes that are wired to it.",
        ),
        (
            want(1, cores=4, ssd=9),
            "1 node with 9 GiB of flash is asked for, and a rabbit has 8 GiB for the nodes "
            "that are wired to it.",
        ),
        (
            want(1, ssd=9),
            "1 node with 9 GiB of flash is asked for, and a rabbit has 8 GiB for the nodes "
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
    assert graph.infeasibility(request_) == Refusal(reason, never=True)


@pytest.mark.parametrize(
    ("held", "request_", "reason"),
    [
        (want(4), want(5, cores=4), "waits for 4 more of 5 nodes"),
        (want(4), want(2, exclusive=True), "waits for 1 more of 2 nodes"),
        (want(slots=10), want(slots=12), "waits for 12 cores"),
        (want(slots=1), want(slots=20), "waits for 20 cores"),
        (want(1, ssd=8), want(2, ssd=8), "waits for 8 GiB of flash beside each of 2 nodes"),
        (
            want(2, exclusive=True),
            want(1, constraint='{"ranks":["0-1"]}'),
            "waits for 1 node that meets ranks:0-1",
        ),
        (
            want(2, exclusive=True),
            want(slots=1, constraint='{"ranks":["0-1"]}'),
            "waits for 1 core on nodes that meet ranks:0-1",
        ),
    ],
)
def test_what_must_wait_is_told_what_it_waits_for(
    graph: Graph, held: Request, request_: Request, reason: str
) -> None:
    graph.take(matched(graph, held))
    assert graph.match(request_) == Refusal(reason)
    assert graph.infeasibility(request_) is None


def test_flash_that_is_not_ready_is_waited_for(graph: Graph) -> None:
    graph.set_rabbit("r0", up=False)

    assert matched(graph, want(2, ssd=2)).pieces == (Piece(2, 0b1, 0b1), Piece(3, 0b1, 0b10))
    assert graph.match(want(3, ssd=2)) == Refusal(
        "waits for 2 GiB of flash beside each of 3 nodes; not ready: r0"
    )
    graph.set_rabbit("r0", up=False, state="Drained")
    assert graph.match(want(3, ssd=2)) == Refusal(
        "waits for 2 GiB of flash beside each of 3 nodes; not ready: r0 (Drained)"
    )
    graph.set_rabbit("r0", up=True)
    graph.set_rabbit("nobody", up=False)
    assert matched(graph, want(4, ssd=2))


def test_a_rabbit_whose_nodes_would_not_do_anyway_is_not_blamed(graph: Graph) -> None:
    graph.set_rabbit("r0", up=False)
    graph.set_rabbit("r1", up=False)
    assert graph.match(want(1, ssd=2, constraint='{"ranks":["2"]}')) == Refusal(
        "waits for 2 GiB of flash beside 1 node that meets ranks:2; not ready: r1"
    )


def test_a_job_without_flash_does_not_mind_a_rabbit_that_is_down(graph: Graph) -> None:
    graph.set_rabbit("r0", up=False)
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
    r = written(graph, held)
    again = Graph(SYSTEM)
    again.set_drained([0])
    again.take(again.decode(r))

    assert again.node_use()[0] == NodeUse(0, "n0", cores=4, cores_taken=4)


def test_what_only_drained_nodes_could_do_is_feasible(graph: Graph) -> None:
    graph.set_drained(range(5))
    assert graph.infeasibility(want(5)) is None
    assert graph.infeasibility(want(slots=20)) is None
    assert graph.infeasibility(want(2, ssd=4)) is None


def test_a_rank_that_is_not_here_can_be_drained_without_effect(graph: Graph) -> None:
    graph.set_drained([9])
    held = matched(graph, want(5, exclusive=True))
    graph.take(held)
    assert graph.match(want(1)) == Refusal("waits for 1 node")

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
            "waits for 1 node; drained: n4",
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
        "waits for 2 GiB of flash beside 1 node; drained: n[0-1]"
    )


def test_drained_nodes_are_not_named_where_a_job_only_waits_for_others(graph: Graph) -> None:
    graph.take(matched(graph, want(5, exclusive=True)))
    graph.set_drained([0])
    assert graph.match(want(1)) == Refusal("waits for 1 node")


def test_flash_that_is_not_ready_and_drained_nodes_are_both_named(graph: Graph) -> None:
    graph.set_rabbit("r1", up=False)
    graph.set_drained([0])
    assert graph.match(want(2, ssd=2)) == Refusal(
        "waits for 2 GiB of flash beside each of 2 nodes; not ready: r1; drained: n0"
    )


def test_the_use_of_each_node_is_told_in_cores(graph: Graph) -> None:
    graph.take(matched(graph, want(slots=5)))
    assert [(each.rank, each.host, each.cores_taken) for each in graph.node_use()] == [
        (0, "n0", 4),
        (1, "n1", 1),
        (2, "n2", 0),
        (3, "n3", 0),
        (4, "n4", 0),
    ]
    assert {each.cores for each in graph.node_use()} == {4}


# R


def test_an_allocation_is_written_as_r_with_its_part_of_the_graph(graph: Graph) -> None:
    """Statement 000.50: R keeps its scheduling part."""
    held = matched(graph, want(2, ssd=6))
    seen = graph.encode(held, starttime=5.0, expiration=9.0)
    r = orjson.loads(graph.encode_text(held, seen))

    assert {**seen, "scheduling": r["scheduling"]} == r
    assert "scheduling" not in seen
    assert resource_set.decode_nodes(r) == [
        NodeResources(0, "n0", (0,)),
        NodeResources(2, "n2", (0,)),
    ]
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
    r = written(graph, matched(graph, want(2, ssd=2)))

    told = {vertex.path: vertex.metadata for vertex in jgf.decode(r["scheduling"])}

    assert len(told) == len(list(jgf.decode(r["scheduling"]))) == 8
    assert told["/c/chassis0"] == {"properties": {"rabbit": "r0"}}
    assert told["/c/chassis0/ssd1"] == {"id": 1, "unit": "GiB", "size": 2, "exclusive": True}
    assert told["/c/chassis0/n1"] == {"name": "n1", "rank": 1}
    assert told["/c/chassis0/n1/core0"] == {"id": 0, "rank": 1}


def test_a_later_allocation_is_read_back_as_it_was(graph: Graph) -> None:
    graph.take(matched(graph, want(2, ssd=2)))
    later = matched(graph, want(1, ssd=4))
    assert graph.decode(written(graph, later)) == later


def test_the_graph_of_a_job_is_itself_a_system(graph: Graph) -> None:
    r = written(graph, matched(graph, want(2, ssd=6)))

    inner = Graph(r)

    assert inner.node_count == 2
    assert [each.cores for each in matched(inner, want(2, ssd=6)).pieces] == [1, 1]
    assert isinstance(inner.match(want(2, ssd=7)), Refusal)


def test_an_r_that_names_what_is_not_here_is_refused(graph: Graph) -> None:
    r = written(graph, matched(graph, want(1, ssd=2)))
    flash = orjson.loads(orjson.dumps(r).replace(b"chassis0/ssd0", b"chassis7/ssd0"))
    for other, words in (
        (
            resource_set.encode_nodes([NodeResources(9, "n9", (0,))]),
            "rank 9, which the system does not have",
        ),
        (
            resource_set.encode_nodes([NodeResources(1, "n0", (0,))]),
            "R names n0 as rank 1, which is n1",
        ),
        (
            resource_set.encode_nodes([NodeResources(1, "n1", (4,))]),
            "cores or gpus of n1 that it does not have",
        ),
        (
            resource_set.encode_nodes([NodeResources(1, "n1", (0,), (0,))]),
            "cores or gpus of n1 that it does not",
        ),
        (flash, "R names /c/chassis7/ssd0, which the system does not have"),
    ):
        with pytest.raises(BadFormat, match=words):
            graph.decode(other)


def test_a_system_without_a_graph_has_nodes_and_no_flash() -> None:
    plain = Graph(
        resource_set.encode_nodes([NodeResources(0, "n0", (0, 1)), NodeResources(1, "n1", (0,))])
    )

    held = matched(plain, want(slots=3))
    plain.take(held)

    assert plain.decode(written(plain, held)) == held
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


def test_of_a_pool_no_more_is_taken_than_there_is_altogether() -> None:
    graph = Graph(system((2, 5), quantum=None))
    assert graph.conflict(Allocation((Piece(0, 0b1, 2), Piece(1, 0b1, 3)))) is None
    assert graph.conflict(Allocation((Piece(0, 0b1, 3), Piece(1, 0b1, 3)))) == (
        "some of n1 is another job's"
    )


def test_flash_that_was_cut_otherwise_is_part_of_a_pool_and_no_quantum() -> None:
    before = Graph(system((2, 8), quantum=2))
    r = written(before, matched(before, want(2, ssd=3)))

    held = Graph(system((2, 9), quantum=None)).decode(r)
    assert sum(piece.portion for piece in held.pieces) == 8
    with pytest.raises(BadFormat, match="R names 8 GiB of flash of /c/chassis0, which has 7"):
        Graph(system((2, 7), quantum=None)).decode(r)
    with pytest.raises(BadFormat, match="R names /c/chassis0/ssd0 of 2 GiB, which has 1 here"):
        Graph(system((2, 8), quantum=1)).decode(r)


def test_the_graph_of_flux_coral2_is_understood() -> None:
    graph = Graph(orjson.loads(vector("coral2/dws2jgf/expected-compute-01.jgf").read_bytes()))

    assert graph.node_count == 1
    assert graph.match(want(1, ssd=2000)) == Refusal(
        "waits for 2000 GiB of flash beside 1 node; not ready: kind-worker2"
    )
    graph.set_rabbit("kind-worker2", up=True)
    held = matched(graph, want(1, ssd=2000))
    assert held == Allocation((Piece(0, 0b1, 0b11),))
    assert paths(graph, held, "ssd") == ["/ElCapitan/chassis0/ssd0", "/ElCapitan/chassis0/ssd1"]
