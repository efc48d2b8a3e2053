"""Resource graphs (RFC 40)."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rfc.vectors import vector
from warren.rfc import jgf
from warren.rfc.errors import BadFormat
from warren.rfc.jgf import Edge, Vertex

TREE = [
    Vertex(type="cluster", path="/c", metadata={"name": "c"}),
    Vertex(type="chassis", path="/c/chassis0", metadata={"properties": {"rabbit": "r0"}}),
    Vertex(type="ssd", path="/c/chassis0/ssd0", metadata={"size": 4}),
]

FULL = {
    "writer": "fluxion:jgf",
    "graph": {
        "nodes": [
            {
                "id": "n0",
                "metadata": {
                    "type": "ssd",
                    "basename": "nvme",
                    "name": "nvme3",
                    "id": 3,
                    "uniq_id": 7,
                    "rank": 2,
                    "status": 1,
                    "exclusive": True,
                    "unit": "GiB",
                    "size": 894,
                    "properties": {"vendor": "x"},
                    "paths": {"containment": "/c/nvme3"},
                },
            },
            {"id": "n1", "metadata": {"type": "core", "paths": {"containment": "/c/core"}}},
        ],
        "edges": [
            {
                "source": "n0",
                "target": "n1",
                "metadata": {"subsystem": "power", "relationship": "supplies"},
            },
            {
                "source": "n0",
                "target": "n1",
                "metadata": {"name": {"containment": "contains"}},
            },
            {"source": "n1", "target": "n0"},
        ],
    },
}
"""All that a vertex and an edge may tell."""


def test_a_graph_is_written_tersely_with_an_edge_from_each_parent() -> None:
    graph = jgf.encode(map(jgf.encode_vertex, TREE))["graph"]
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
    written = jgf.encode(map(jgf.encode_vertex, TREE))
    assert list(jgf.decode(written)) == TREE
    assert list(jgf.edges(written)) == [Edge(source="0", target="1"), Edge(source="1", target="2")]
    jgf.check(written)


def test_a_vertex_tells_what_it_leaves_out() -> None:
    full, terse = jgf.decode(FULL)
    told = [
        (each.basename, each.id, each.name, each.rank, each.size, each.unit, each.up)
        for each in (full, terse)
    ]
    assert told == [
        ("nvme", 3, "nvme3", 2, 894, "GiB", False),
        ("core", -1, "core", -1, 1, "", True),
    ]
    assert (full.exclusive, full.properties) == (True, {"vendor": "x"})
    assert (terse.exclusive, terse.properties) == (False, {})
    assert Vertex(type="core", path="/c/core4", metadata={"id": 4}).name == "core4"


def test_edges_tell_their_relation_in_each_way_that_there_has_been() -> None:
    assert [(each.subsystem, each.relationship) for each in jgf.edges(FULL)] == [
        ("power", "supplies"),
        ("containment", "contains"),
        ("containment", "contains"),
    ]


@pytest.mark.parametrize("writer", ["fluxion", "fluxion:jgf"])
def test_a_graph_may_tell_its_writer(writer: str) -> None:
    written = jgf.encode(map(jgf.encode_vertex, TREE))
    jgf.check({**written, "writer": writer})
    jgf.check({"graph": written["graph"]})


@pytest.mark.parametrize(
    ("scheduling", "problem"),
    [
        ({}, "graph.nodes is not an array"),
        ({"graph": None}, "graph.nodes is not an array"),
        ({"writer": "sched-simple", "graph": {"nodes": []}}, "writer is 'sched-simple'"),
        ({"graph": {"nodes": [{}]}}, r"graph.nodes\[0\].metadata lacks .*'metadata'"),
        ({"graph": {"nodes": [{"metadata": {"type": "node"}}]}}, "lacks .*'paths'"),
        ({"graph": {"nodes": [{"metadata": {"paths": {"containment": "/c"}}}]}}, "lacks .*'type'"),
        ({"graph": {"nodes": [{"metadata": {"type": "n", "paths": {}}}]}}, "lacks .*'containment'"),
        ({"graph": {"nodes": [{"metadata": {"type": "n", "paths": []}}]}}, "lacks"),
        ({"graph": {"nodes": [{"metadata": "node"}]}}, "lacks"),
        ({"graph": {"nodes": [7]}}, "lacks"),
        (
            {"graph": {"nodes": [{"metadata": {"type": "n", "paths": {"containment": "c"}}}]}},
            "no path from the root",
        ),
        (
            {"graph": {"nodes": [{"metadata": {"type": "n", "paths": {"containment": 1}}}]}},
            "lacks",
        ),
    ],
)
def test_what_is_no_graph_of_fluxion_is_refused(scheduling: dict[str, Any], problem: str) -> None:
    with pytest.raises(BadFormat, match=f"graph is malformed: .*{problem}"):
        list(jgf.decode(scheduling))


def node(number: Any = "0", path: str = "/c", **metadata: Any) -> dict[str, Any]:
    return {
        "id": number,
        "metadata": {"type": "node", "paths": {"containment": path}, **metadata},
    }


@pytest.mark.parametrize(
    ("nodes", "edges", "problem"),
    [
        ([node(0)], [], r"nodes\[0\].id is 0, not a text"),
        ([node(), node(path="/d")], [], r"nodes\[1\].id is '0' again"),
        ([node(), node("1")], [], r"nodes\[1\].metadata.paths.containment is '/c' again"),
        ([node(type=1)], [], "type is 1, not a text"),
        ([node(size=True)], [], "size is True, not a number"),
        ([node(size=-1)], [], "size is -1"),
        ([node(id=-2)], [], "id is -2"),
        ([node(rank=2**32)], [], "rank is 4294967296"),
        ([node(), node("1", "/c/d")], [], "do not have /c/d in /c, where its path is"),
        (
            [node(), node("1", "/c/d")],
            [{"source": "0", "target": "1"}, {"source": "1", "target": "0"}],
            r"edges\[1\] has /c in /c/d, against its path",
        ),
        (
            [node(), node("1", "/c/d")],
            [{"source": "0", "target": "1"}, {"source": "0", "target": "1"}],
            r"edges\[1\] has /c/d in /c, against its path",
        ),
        ([node(rank="0")], [], "rank is '0', not a number"),
        ([node(status=2)], [], "status is 2, neither 0 nor 1"),
        ([node(exclusive=1)], [], "exclusive is 1, not true or false"),
        ([node(properties=[])], [], r"properties is \[\], not an object"),
        ([node(properties={"a": 1})], [], "properties.a is 1, not a text"),
        ([node()], None, "graph.edges is not an array"),
        ([node()], [7], r"edges\[0\] is not an object"),
        ([node()], [{"source": "0"}], r"edges\[0\].target is None, and no vertex"),
        ([node()], [{"source": "9", "target": "0"}], r"edges\[0\].source is '9', and no vertex"),
        ([node()], [{"source": "0", "target": "0", "metadata": 1}], "metadata is not an object"),
        (
            [node()],
            [{"source": "0", "target": "0", "metadata": {"subsystem": 1}}],
            "does not tell subsystem",
        ),
    ],
)
def test_a_graph_that_does_not_hold_together_is_refused(
    nodes: list[Any], edges: Any, problem: str
) -> None:
    with pytest.raises(BadFormat, match=f"graph is malformed: .*{problem}"):
        jgf.check({"graph": {"nodes": nodes, "edges": edges}})


told = st.sampled_from(
    [
        {},
        {"name": "ƒ", "id": 3},
        {"size": 894, "unit": "GiB", "exclusive": True},
        {"rank": 0, "status": 1, "properties": {"a": "", "b": "c"}},
    ]
)


@given(st.lists(st.tuples(st.integers(0, 20), told), max_size=8))
def test_every_tree_reads_back_and_holds_together(plan: list[tuple[int, dict[str, Any]]]) -> None:
    tree = [Vertex(type="cluster", path="/c")]
    for number, (parent, metadata) in enumerate(plan):
        path = f"{tree[parent % len(tree)].path}/v{number}"
        tree.append(Vertex(type="v", path=path, metadata=metadata))

    written = orjson.loads(orjson.dumps(jgf.encode(map(jgf.encode_vertex, tree))))

    jgf.check(written)
    assert list(jgf.decode(written)) == tree
    assert [tree[int(edge.source)].path for edge in jgf.edges(written)] == [
        vertex.parent_path for vertex in tree[1:]
    ]


@pytest.mark.parametrize("name", ["expected-compute-01.jgf", "expected-properties.jgf"])
def test_the_graphs_of_flux_coral2_hold_together(name: str) -> None:
    jgf.check(orjson.loads(vector(f"coral2/dws2jgf/{name}").read_bytes())["scheduling"])


def test_the_graphs_of_flux_coral2_are_read() -> None:
    r = orjson.loads(vector("coral2/dws2jgf/expected-compute-01.jgf").read_bytes())

    found = list(jgf.decode(r["scheduling"]))

    assert [each.path for each in found if each.type == "chassis"] == [
        "/ElCapitan/chassis0",
        "/ElCapitan/chassis1",
    ]
    assert sum(each.type == "ssd" for each in found) == 72
    assert jgf.encode(map(jgf.encode_vertex, found))["graph"]["nodes"] == [
        {"id": node["id"], "metadata": node["metadata"]}
        for node in r["scheduling"]["graph"]["nodes"]
    ]


def test_a_node_without_leaves_of_a_type_is_written_without_them() -> None:
    texts = [
        jgf.vertex_text(Vertex(type="node", path="/c"), 0, None),
        jgf.leaves_text("core", [], 0, "/c", 1, 0),
        jgf.leaves_text("gpu", [0, 1], 0, "/c", 1, 0),
    ]
    graph = orjson.loads(jgf.encode_texts(texts))

    assert [each.path for each in jgf.decode(graph)] == ["/c", "/c/gpu0", "/c/gpu1"]
    jgf.check(graph)
