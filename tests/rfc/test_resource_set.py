"""Resource sets (RFC 20) and their graphs (RFC 40)."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rfc.vectors import vector
from warren.rfc import jgf, resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.jgf import Vertex
from warren.rfc.resource_set import Rank

SMALL = {
    "version": 1,
    "execution": {
        "R_lite": [
            {"rank": "0-1", "children": {"core": "0-3"}},
            {"rank": "3", "children": {"core": "1"}},
        ],
        "starttime": 0.0,
        "expiration": 0.0,
        "nodelist": ["n[0-1,3]"],
    },
}


def changed(**execution: Any) -> dict[str, Any]:
    return {"version": 1, "execution": {**SMALL["execution"], **execution}}  # type: ignore[dict-item]


def test_nodes_with_the_same_cores_share_an_entry() -> None:
    ranks = [Rank(3, "n3", (1,)), Rank(0, "n0", (0, 1, 2, 3)), Rank(1, "n1", (0, 1, 2, 3))]
    assert resource_set.encode(ranks) == SMALL


def test_hosts_are_in_the_order_of_their_ranks() -> None:
    r = changed(
        R_lite=[
            {"rank": "3", "children": {"core": "1"}},
            {"rank": "0-1", "children": {"core": "0"}},
        ]
    )
    assert [(each.rank, each.host) for each in resource_set.decode(r)] == [
        (0, "n0"),
        (1, "n1"),
        (3, "n3"),
    ]


def test_the_example_of_the_rfc_is_read() -> None:
    r = orjson.loads(vector("rfc/spec_20/example1.json").read_bytes())

    ranks = resource_set.decode(r)

    assert ranks == [Rank(n, f"node{n + 167}", tuple(range(48))) for n in range(19, 23)]
    assert resource_set.ranks_text(ranks) == "19-22"


@pytest.mark.parametrize(
    ("r", "problem"),
    [
        ({}, "malformed"),
        ({"version": 1}, "malformed"),
        ({**SMALL, "version": 2}, "version 2"),
        (changed(R_lite=None), "malformed"),
        (changed(R_lite=[{"rank": "0"}]), "malformed"),
        (changed(R_lite=[{"rank": 0, "children": {"core": "0"}}]), "malformed"),
        (changed(R_lite=[{"rank": "0-", "children": {"core": "0"}}]), "idset"),
        (changed(nodelist=None), "malformed"),
        (changed(nodelist=["n["]), "hostlist"),
        (changed(nodelist=["n[0-1]"]), "2 hosts for 3 ranks"),
    ],
)
def test_what_is_no_r_is_refused(r: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadFormat, match=problem):
        resource_set.decode(r)


cores = st.sets(st.integers(0, 12), min_size=1).map(lambda ids: tuple(sorted(ids)))
hosts = st.from_regex(r"[a-z]{1,2}[0-9]{0,2}", fullmatch=True)


@given(st.dictionaries(st.integers(0, 30), st.tuples(hosts, cores), max_size=8))
def test_r_reads_back(nodes: dict[int, tuple[str, tuple[int, ...]]]) -> None:
    ranks = [Rank(rank, *nodes[rank]) for rank in sorted(nodes)]
    assert resource_set.decode(resource_set.encode(ranks)) == ranks


def test_slots_times_and_the_graph_are_written_where_they_are_given() -> None:
    r = resource_set.encode(
        [Rank(0, "n0", (0,))], slots=1, starttime=5.0, expiration=9.0, scheduling={"graph": {}}
    )
    assert r["execution"]["nslots"] == 1
    assert (r["execution"]["starttime"], r["execution"]["expiration"]) == (5.0, 9.0)
    assert "scheduling" not in resource_set.without_scheduling(r)
    assert "scheduling" in r


# The graph


TREE = [
    Vertex(type="cluster", path="/c", metadata={"name": "c"}),
    Vertex(type="chassis", path="/c/chassis0", metadata={"properties": {"rabbit": "r0"}}),
    Vertex(type="ssd", path="/c/chassis0/ssd0", metadata={"size": 4}),
]


def test_a_graph_is_written_tersely_with_an_edge_from_each_parent() -> None:
    graph = jgf.encode(map(jgf.line, TREE))["graph"]
    assert graph["directed"] is False
    assert graph["nodes"][1] == {
        "id": "1",
        "metadata": {
            "type": "chassis",
            "properties": {"rabbit": "r0"},
            "paths": {"containment": "/c/chassis0"},
        },
    }
    assert graph["edges"] == [{"source": "0", "target": "1"}, {"source": "1", "target": "2"}]


def test_a_graph_reads_back() -> None:
    assert list(jgf.decode(jgf.encode(map(jgf.line, TREE)))) == TREE


@pytest.mark.parametrize(
    "scheduling",
    [
        {},
        {"graph": None},
        {"graph": {"nodes": [{}]}},
        {"graph": {"nodes": [{"metadata": {"type": "node"}}]}},
        {"graph": {"nodes": [{"metadata": {"paths": {"containment": "/c"}}}]}},
        {"graph": {"nodes": [{"metadata": {"type": "node", "paths": {}}}]}},
        {"graph": {"nodes": [{"metadata": "node"}]}},
    ],
)
def test_what_is_no_graph_of_fluxion_is_refused(scheduling: dict[str, Any]) -> None:
    with pytest.raises(BadFormat, match="graph is malformed"):
        list(jgf.decode(scheduling))


def test_the_graphs_of_flux_coral2_are_read() -> None:
    r = orjson.loads(vector("coral2/dws2jgf/expected-compute-01.jgf").read_bytes())

    found = list(jgf.decode(r["scheduling"]))

    assert [each.path for each in found if each.type == "chassis"] == [
        "/ElCapitan/chassis0",
        "/ElCapitan/chassis1",
    ]
    assert sum(each.type == "ssd" for each in found) == 72
    assert jgf.encode(map(jgf.line, found))["graph"]["nodes"] == [
        {"id": node["id"], "metadata": node["metadata"]}
        for node in r["scheduling"]["graph"]["nodes"]
    ]
