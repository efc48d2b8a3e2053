"""What a jobspec asks of the graph, and how a system is described."""

from typing import Any

import pytest

from tests.scheduling.systems import system, want
from warren.base.bytesize import GIB
from warren.rfc import jgf, jobspec, resource_set
from warren.rfc.errors import BadFormat
from warren.scheduling.request import Request, from_jobspec
from warren.scheduling.system import Chassis, describe


@pytest.mark.parametrize(
    ("options", "request_"),
    [
        ({}, want(slots=1)),
        ({"tasks": 3, "cores": 2}, want(slots=3, cores=2)),
        ({"nodes": 2}, want(2, exclusive=True)),
        ({"nodes": 2, "tasks": 4}, want(2, 4)),
        ({"nodes": 2, "tasks": 4, "exclusive": True}, want(2, 4, exclusive=True)),
    ],
)
def test_a_jobspec_asks_for_what_its_author_asked(
    options: dict[str, Any], request_: Request
) -> None:
    assert from_jobspec(jobspec.make(["true"], **options)) == request_


def test_a_jobspec_with_flash_asks_for_it_beside_each_node() -> None:
    plain = jobspec.make(["true"], nodes=2, tasks=4)
    (node,) = plain["resources"]
    flash = [{"type": "ssd", "count": 3, "exclusive": True}, {"type": "ssd", "count": 4}]
    slot = {"type": "slot", "count": 2, "label": "rabbit", "with": [{**node, "count": 1}, *flash]}

    assert from_jobspec({**plain, "resources": [slot]}) == want(2, 4, ssd=7)


def test_two_entries_at_the_top_are_not_understood() -> None:
    plain = jobspec.make(["true"])
    two = [*plain["resources"], {"type": "ssd", "count": 1}]
    with pytest.raises(BadFormat, match="resources holds 2 entries, not 1"):
        from_jobspec({**plain, "resources": two})


def test_an_unknown_shape_is_refused_by_the_name_of_its_top() -> None:
    plain = jobspec.make(["true"])
    rack = {"type": "rack", "count": 1, "with": plain["resources"]}
    with pytest.raises(BadFormat, match="resources of type 'rack' cannot be scheduled"):
        from_jobspec({**plain, "resources": [rack]})


@pytest.mark.parametrize(
    ("request_", "each"), [(want(2, 4), 2), (want(2, 3), 2), (want(3), 1), (want(slots=5), 5)]
)
def test_slots_are_spread_evenly_over_nodes(request_: Request, each: int) -> None:
    assert request_.slots_per_node == each


# The system


def ssds(r: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (vertex.path, vertex.metadata["size"])
        for vertex in jgf.decode(r["scheduling"])
        if vertex.type == "ssd"
    ]


def test_nodes_get_ranks_in_the_order_of_their_chassis() -> None:
    ranks = resource_set.decode(system((2, 4), (0, 4), (1, 4), cores=2))
    assert [(each.rank, each.host, each.cores) for each in ranks] == [
        (0, "n0", (0, 1)),
        (1, "n1", (0, 1)),
        (2, "n2", (0, 1)),
    ]


def test_flash_is_cut_into_equal_pieces_and_small_flash_into_fewer() -> None:
    assert ssds(system((1, 9), (1, 3), (1, 0))) == [
        *((f"/c/chassis0/ssd{n}", 2) for n in range(4)),
        *((f"/c/chassis1/ssd{n}", 1) for n in range(3)),
    ]


def test_the_rabbits_of_flux_coral2_are_described_as_it_does() -> None:
    worker = Chassis(rabbit="kind-worker2", capacity=39582418599936, hosts=("compute-01",))

    vertices = list(jgf.decode(describe("ElCapitan", [worker], cores=1)["scheduling"]))

    assert [vertex.path for vertex in vertices if vertex.type != "ssd"] == [
        "/ElCapitan",
        "/ElCapitan/chassis0",
        "/ElCapitan/chassis0/compute-01",
        "/ElCapitan/chassis0/compute-01/core0",
    ]
    assert vertices[1].metadata == {
        "id": 0,
        "properties": {"rabbit": "kind-worker2", "ssdcount": "36"},
    }
    assert [vertex.metadata["size"] for vertex in vertices if vertex.type == "ssd"] == [1024] * 36


def test_less_than_a_gib_is_no_flash() -> None:
    assert ssds(describe("c", [Chassis(rabbit="r", capacity=GIB - 1, hosts=())], cores=1)) == []
