"""Where Fluxion's graph has flash."""

from typing import Any

import pytest

from warren.rfc.errors import BadFormat
from warren.wlm.flux import graph
from warren.wlm.flux.graph import FlashGraph, Ssds


def vertex(type_: str, path: str, **more: Any) -> dict[str, Any]:
    return {"id": path, "metadata": {"type": type_, "paths": {"containment": path}, **more}}


def scheduling(*vertices: dict[str, Any]) -> dict[str, Any]:
    return {"graph": {"nodes": list(vertices), "edges": []}}


RABBIT = {"properties": {"rabbit": "rabbit-0", "ssdcount": "2"}}


def test_rabbits_are_found_with_their_ssds_and_nodes_by_their_hosts() -> None:
    found = graph.read(
        scheduling(
            vertex("cluster", "/c"),
            vertex("chassis", "/c/chassis0", **RABBIT),
            vertex("ssd", "/c/chassis0/ssd10", id=10, size=4),
            vertex("ssd", "/c/chassis0/ssd9", id=9, size=4),
            vertex("node", "/c/chassis0/n0", name="n0", rank=0),
            vertex("core", "/c/chassis0/n0/core0", id=0),
            vertex("node", "/c/n1", name="n1", rank=1),
        )
    )
    assert found == FlashGraph(
        ssds_by_rabbit={"rabbit-0": Ssds(paths=("/c/chassis0/ssd9", "/c/chassis0/ssd10"), gib=4)},
        path_by_host={"n0": "/c/chassis0/n0", "n1": "/c/n1"},
    )


def test_what_holds_a_rabbit_need_be_no_chassis() -> None:
    rack = (vertex("rack", "/c/rack0", **RABBIT), vertex("ssd", "/c/rack0/ssd0", id=0))
    assert graph.read(scheduling(*rack)).ssds_by_rabbit["rabbit-0"].gib == 1


def test_a_graph_without_paths_is_refused() -> None:
    with pytest.raises(BadFormat, match="lacks what it needs"):
        graph.read({"graph": {"nodes": [{"metadata": {"type": "ssd"}}]}})


@pytest.mark.parametrize(
    ("capacity", "taken", "count"),
    [(None, 0, 3), (12, 0, 3), (11, 0, 2), (100, 0, 3), (12, 1, 2), (12, 4, 2), (12, 13, 0)],
)
def test_as_many_ssds_are_usable_as_are_whole_in_what_is_left(
    capacity: int | None, taken: int, count: int
) -> None:
    assert Ssds(paths=("a", "b", "c"), gib=4).usable_count(capacity, taken) == count
