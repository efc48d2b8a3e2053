"""The graph in a job's R, to the id, and what is told of a system of many nodes."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.scheduling.systems import matched, system, taken, want, written
from warren.base.bytesize import GIB
from warren.base.placing import AllocationSet, HeldFlash
from warren.rfc.errors import BadFormat
from warren.rfc.jgf import Vertex
from warren.scheduling import flash
from warren.scheduling.allocatedflash import allocated_flash
from warren.scheduling.flash import Pool, Quanta
from warren.scheduling.graph import Graph, Refusal
from warren.scheduling.request import Request
from warren.scheduling.topology import ChassisTopology, resource_set_with_graph


def vertices(r: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {each["id"]: each["metadata"] for each in r["scheduling"]["graph"]["nodes"]}


def edges(r: dict[str, Any]) -> set[tuple[str, str]]:
    return {(each["source"], each["target"]) for each in r["scheduling"]["graph"]["edges"]}


@pytest.mark.parametrize("quantum", [2, None])
def test_ids_are_each_vertexs_own_in_all_jobs_and_edges_follow_the_paths(
    quantum: int | None,
) -> None:
    graph = Graph(system((3, 12), (2, 8), quantum=quantum, gpus=2))
    known: dict[str, str] = {}
    for request in (want(2, ssd=2, gpus=1), want(1, ssd=4, cores=2), want(1), want(1, ssd=2)):
        found = matched(graph, request)
        graph.take(found)
        r = written(graph, found)
        here = vertices(r)
        names = {number: each["paths"]["containment"] for number, each in here.items()}
        assert len(set(names.values())) == len(names)
        for number, name in names.items():
            if quantum is not None or "ssd" not in name:
                assert known.setdefault(number, name) == name
        for source, target in edges(r):
            assert names[target].rpartition("/")[0] == names[source]
        assert len(edges(r)) == len(here) - 1
        assert {each["type"] for each in here.values()} >= {"cluster", "chassis", "node", "core"}


@pytest.mark.parametrize("gpus", [0, 2])
def test_a_node_is_written_with_what_was_allocated_of_it_and_no_more(gpus: int) -> None:
    graph = Graph(system((2, 8), cores=4, gpus=gpus))
    for request, cores in ((want(1, cores=4, gpus=gpus), 4), (want(1, cores=3), 3)):
        found = matched(graph, request)
        graph.take(found)
        kinds = [each["type"] for each in vertices(written(graph, found)).values()]
        assert kinds.count("core") == cores
        assert kinds.count("gpu") == (request.gpus)


def test_all_cores_of_a_node_but_not_its_gpus_are_no_whole_node() -> None:
    graph = Graph(system((2, 8), cores=4, gpus=2))
    found = matched(graph, want(1, cores=4, gpus=1))
    kinds = [each["type"] for each in vertices(written(graph, found)).values()]
    assert (kinds.count("core"), kinds.count("gpu")) == (4, 1)


@pytest.mark.parametrize("quantum", [2, None])
def test_what_a_job_has_cannot_be_given_again_and_what_is_lacking_is_named(
    quantum: int | None,
) -> None:
    graph = Graph(system((2, 8), quantum=quantum))
    first, second = matched(graph, want(1, ssd=6)), matched(graph, want(1, ssd=2))
    assert graph.conflict(first) is None
    graph.take(first)
    assert graph.conflict(first) is not None
    # Other cores, and flash of the same.
    flash_alone = first.pieces[0]._replace(cores=0, gpus=0)
    alone = type(first)((flash_alone,))
    assert graph.conflict(alone) is not None
    graph.give_back(first)
    assert graph.conflict(second) is None
    assert taken(graph) == {}


def test_flash_of_two_pieces_is_counted_together() -> None:
    graph = Graph(system((2, 8), quantum=None))
    one = matched(graph, want(1, ssd=5)).pieces[0]
    other = one._replace(rank=1, portion=5)
    assert graph.conflict(type(matched(graph, want(1)))((one, other))) is not None


@pytest.mark.parametrize("nodes", [1, 7, 8, 9, 15, 16, 17, 40])
def test_any_number_of_nodes_is_taken_in_order_and_given_back(nodes: int) -> None:
    graph = Graph(system((nodes, 8), cores=2))
    for wanted in range(1, nodes + 1):
        found = matched(graph, want(wanted, exclusive=True))
        assert [piece.rank for piece in found.pieces] == list(range(wanted))
        graph.take(found)
        assert sum(each.cores_taken for each in graph.node_use()) == 2 * wanted
        rest = graph.match(want(nodes - wanted, exclusive=True)) if wanted < nodes else None
        if rest is not None:
            assert [p.rank for p in rest.pieces] == list(range(wanted, nodes))  # type: ignore[union-attr]
        assert isinstance(graph.match(want(nodes - wanted + 1)), Refusal)
        graph.give_back(found)
        assert taken(graph) == {}


def test_the_status_counts_whole_nodes_and_no_tasks() -> None:
    graph = Graph(system((4, 8)))
    graph.take(matched(graph, want(2, cores=2)))
    graph.set_drained([3])
    told = graph.status()

    def ranks(name: str) -> Any:
        return [each["rank"] for each in told[name]["execution"]["R_lite"]]

    assert ranks("all") == ["0-3"]
    assert ranks("allocated") == ["0-1"]
    assert ranks("down") == ["3"]
    for each in told.values():
        assert "nslots" not in each["execution"]
        assert each["execution"]["starttime"] == each["execution"]["expiration"] == 0.0


# Flash


@pytest.mark.parametrize(
    ("quanta", "gib", "units"), [(2, 0, 0), (2, 1, 1), (2, 2, 1), (2, 3, 2), (0, 3, 0)]
)
def test_quanta_are_rounded_up(quanta: int, gib: int, units: int) -> None:
    assert Quanta(quantum_gib=quanta, whole_portion=15, up_portion=15).units_for(gib) == units


def test_a_pool_of_nothing_has_no_units() -> None:
    assert (Pool().units_for(3), Pool(gib=8).units_for(3), Pool(gib=8).units_for(0)) == (0, 3, 0)
    assert (
        Pool().gib,
        Pool().up_portion,
        Quanta().gib,
        Quanta().whole_portion,
        Quanta().up_portion,
    ) == (0, 0, 0, 0, 0)
    assert Quanta().units_for(5) == 0


@given(st.integers(0, 255), st.integers(0, 255))
def test_a_share_of_quanta_is_free_if_all_of_it_is(free: int, share: int) -> None:
    quanta = Quanta(quantum_gib=2, whole_portion=255, up_portion=255)
    assert quanta.contains(free, share) is (share & free == share)
    assert dict(quanta.ssds(share)) == {n: 2 for n in range(8) if share >> n & 1}


def ssd(number: int, size: int = 2, up: bool = True) -> Any:

    metadata = {"id": number, "size": size, "unit": "GiB"}
    if not up:
        metadata["status"] = 1
    return Vertex(type="ssd", path=f"/c/chassis0/ssd{number}", metadata=metadata)


def test_shares_are_read_back_and_those_of_another_system_refused() -> None:
    quanta, pool = Quanta(quantum_gib=2, whole_portion=7, up_portion=7), Pool(gib=6, up_portion=6)
    assert quanta.read_portion([]) == 0
    assert quanta.read_portion([ssd(0), ssd(2)]) == 0b101
    with pytest.raises(BadFormat, match="ssd3, which the system does not have"):
        quanta.read_portion([ssd(3)])
    with pytest.raises(BadFormat, match="of 4 GiB, which has 2 here"):
        quanta.read_portion([ssd(0, size=4)])
    assert pool.read_portion([]) == 0
    assert pool.read_portion([ssd(0, size=4), ssd(1, size=2)]) == 6
    with pytest.raises(BadFormat, match="7 GiB of flash of /c/chassis0, which has 6"):
        pool.read_portion([ssd(0, size=4), ssd(1, size=3)])
    assert list(pool.ssds(5)) == [(0, 5)]
    assert list(pool.ssds(0)) == []


@given(st.integers(0, 2**20), st.integers(0, 20))
def test_the_lowest_bits_are_kept(bits: int, count: int) -> None:
    count = min(count, bits.bit_count())
    kept = flash.lowest_bits(bits, count)
    assert kept.bit_count() == count
    assert kept & ~bits == 0
    assert all(bit > kept.bit_length() - 1 for bit in range(21) if (bits & ~kept) >> bit & 1)


@pytest.mark.parametrize(
    ("properties", "up"), [({flash.KIND_PROPERTY: flash.POOL}, 4), ({}, 0b101)]
)
def test_ssds_that_are_down_are_there_and_not_ready(properties: dict[str, str], up: int) -> None:
    found = flash.from_vertices("/c/chassis0", properties, [ssd(0), ssd(1, up=False), ssd(2)])
    assert (found.gib, found.up_portion, found.whole_portion) == (6, up, 6 if properties else 0b111)
    assert flash.from_vertices("/c/chassis0", properties, []).gib == 0
    assert flash.from_vertices("/c/chassis0", {}, []).units_for(5) == 0


# What R says of flash


@pytest.mark.parametrize(
    ("quantum", "found"),
    [
        (
            2,
            [
                HeldFlash("r0", node_count=2, unit_gib=2, units=2),
                HeldFlash("r1", node_count=1, unit_gib=2, units=1),
            ],
        ),
        (
            None,
            [
                HeldFlash("r0", node_count=2, unit_gib=1, units=4),
                HeldFlash("r1", node_count=1, unit_gib=1, units=2),
            ],
        ),
    ],
)
def test_what_is_held_is_told_in_the_order_of_the_nodes(
    quantum: int | None, found: list[HeldFlash]
) -> None:
    graph = Graph(system((2, 4), (2, 8), quantum=quantum))

    assert allocated_flash(orjson.dumps(written(graph, matched(graph, want(3, ssd=2))))) == found
    # Also where the graph names the second rabbit first.
    r = written(graph, matched(graph, want(3, ssd=2)))
    r["scheduling"]["graph"]["nodes"].sort(key=lambda each: -_depth(each), reverse=True)
    chassis = [each for each in r["scheduling"]["graph"]["nodes"] if _depth(each) == 2]
    others = [each for each in r["scheduling"]["graph"]["nodes"] if _depth(each) != 2]
    r["scheduling"]["graph"]["nodes"] = [*reversed(chassis), *others]
    assert allocated_flash(orjson.dumps(r)) == found


def _depth(vertex: dict[str, Any]) -> int:
    return int(vertex["metadata"]["paths"]["containment"].count("/"))


def test_a_job_without_flash_holds_none_and_an_r_without_a_graph_tells_nothing() -> None:

    graph = Graph(system((2, 4)))
    r = written(graph, matched(graph, want(1)))
    assert allocated_flash(orjson.dumps(r)) == [HeldFlash("r0", node_count=1, unit_gib=1, units=0)]
    del r["scheduling"]
    assert allocated_flash(orjson.dumps(r)) == []


# Words


def refused(graph: Graph, request: Request) -> str:
    found = graph.match(request)
    assert isinstance(found, Refusal)
    return found.reason


def of_sizes(*sizes: int) -> Graph:
    chassis = [
        ChassisTopology(
            rabbit=f"r{n}", capacity_bytes=gib * GIB, hosts=(f"n{2 * n}", f"n{2 * n + 1}")
        )
        for n, gib in enumerate(sizes)
    ]
    return Graph(resource_set_with_graph("c", chassis, 4, None))


def test_an_allocation_that_no_rabbit_has_room_for_is_told_with_the_largest_rabbit() -> None:
    graph = of_sizes(8, 16)

    assert graph.fits(want(1, shared_flash=(AllocationSet(1, 16),)))
    reason = refused(graph, want(2, shared_flash=(AllocationSet(1, 4), AllocationSet(1, 17))))
    assert "an allocation of 17 GiB is on one rabbit, and the largest has 16 GiB." in reason
    reason = refused(graph, want(2, ssd=2, shared_flash=(AllocationSet(1, 15),)))
    assert "the largest has 16 GiB, 2 GiB of it beside a node." in reason


def test_allocations_that_have_no_room_together_are_told_with_all_rabbits() -> None:
    reason = refused(of_sizes(8, 16), want(2, shared_flash=(AllocationSet(3, 9),)))

    assert "3 allocations of 9 GiB, 27 GiB together" in reason
    assert "2 nodes can have no more than 2 rabbits with 24 GiB together" in reason
    reason = refused(of_sizes(8, 16), want(1, shared_flash=(AllocationSet(2, 9),)))
    assert "1 node can have no more than 1 rabbit with 16 GiB together" in reason


def test_only_rabbits_of_nodes_that_would_do_are_counted() -> None:
    where = '{"hostlist":["n[0-1]"]}'
    reason = refused(
        of_sizes(8, 16), want(1, constraint=where, shared_flash=(AllocationSet(1, 9),))
    )
    assert "the largest has 8 GiB." in reason


def test_a_cluster_without_rabbits_has_none() -> None:
    graph = Graph(system((2, 0)))
    assert "0" in refused(graph, want(1, ssd=1)) or "none" in refused(graph, want(1, ssd=1))


@pytest.mark.parametrize("cores", [5, 9])
def test_a_node_that_is_too_narrow_is_told_with_the_widest(cores: int) -> None:
    graph = Graph(system((2, 8), cores=4, gpus=2))
    assert "the widest node has 4" in refused(graph, want(1, cores=cores))
    assert "no node has more than 2" in refused(graph, want(1, gpus=3))
    few = want(1, gpus=1, constraint='{"ranks":["1"]}')
    assert refused(graph, few).endswith("has one.")
