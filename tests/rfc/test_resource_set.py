"""Resource sets (RFC 20)."""

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.rfc.vectors import vector
from warren.rfc import resource_set
from warren.rfc.errors import BadFormat
from warren.rfc.resource_set import NodeResources, ResourceSet

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
    ranks = [
        NodeResources(3, "n3", (1,)),
        NodeResources(0, "n0", (0, 1, 2, 3)),
        NodeResources(1, "n1", (0, 1, 2, 3)),
    ]
    assert resource_set.encode_nodes(ranks) == SMALL


def test_nodes_with_different_gpus_do_not_share_an_entry() -> None:
    ranks = [
        NodeResources(0, "n0", (0,)),
        NodeResources(1, "n1", (0,), (0, 1)),
        NodeResources(2, "n2", (0,), (0, 1)),
    ]
    assert resource_set.encode_nodes(ranks)["execution"]["R_lite"] == [
        {"rank": "0", "children": {"core": "0"}},
        {"rank": "1-2", "children": {"core": "0", "gpu": "0-1"}},
    ]


def test_hosts_are_in_the_order_of_their_ranks() -> None:
    r = changed(
        R_lite=[
            {"rank": "3", "children": {"core": "1"}},
            {"rank": "0-1", "children": {"core": "0"}},
        ],
        nodelist=["n[0-1]", "n3"],
    )
    assert [(each.rank, each.host) for each in resource_set.decode_nodes(r)] == [
        (0, "n0"),
        (1, "n1"),
        (3, "n3"),
    ]


def test_the_example_of_the_rfc_is_read() -> None:
    r = orjson.loads(vector("rfc/spec_20/example1.json").read_bytes())

    found = resource_set.decode_all(r)

    cores, gpus = tuple(range(48)), tuple(range(8))
    assert list(found.nodes) == [
        NodeResources(n, f"node{n + 167}", cores, gpus) for n in range(19, 23)
    ]
    assert resource_set.decode_nodes(r) == list(found.nodes)
    assert resource_set.ranks_text(found.nodes) == "19-22"
    assert resource_set.decode_all(resource_set.encode_all(found)) == found


@pytest.mark.parametrize("name", ["expected-compute-01.jgf", "expected-properties.jgf"])
def test_the_sets_of_flux_coral2_are_read(name: str) -> None:
    r = orjson.loads(vector(f"coral2/dws2jgf/{name}").read_bytes())
    found = resource_set.decode_all(r)
    assert resource_set.decode_all(resource_set.encode_all(found)) == found


@pytest.mark.parametrize(
    ("r", "problem"),
    [
        (None, "R is not an object"),
        ({}, "version is missing"),
        ({"version": 1}, "execution is missing"),
        ({"version": 1, "execution": []}, "execution is not an object"),
        ({**SMALL, "version": 2}, "version is 2, not 1"),
        ({**SMALL, "version": True}, "version is True, not 1"),
        (changed(R_lite=None), "execution.R_lite is not an array"),
        (changed(R_lite=[7]), r"execution.R_lite\[0\] is not an object"),
        (changed(R_lite=[{"rank": "0"}]), r"R_lite\[0\].children is missing"),
        (changed(R_lite=[{"rank": "0", "children": {}}]), "children.core is missing"),
        (changed(R_lite=[{"rank": "0", "children": {"core": ""}}]), "core names no core"),
        (changed(R_lite=[{"rank": 0, "children": {"core": "0"}}]), "rank is not an idset"),
        (changed(R_lite=[{"rank": "0-", "children": {"core": "0"}}]), r"\[0\].rank: idset '0-'"),
        (
            changed(R_lite=[{"rank": "0", "children": {"core": "0", "gpu": None}}]),
            "children.gpu is not an idset",
        ),
        (
            changed(R_lite=[{"rank": each, "children": {"core": "0"}} for each in ("0-1", "1")]),
            r"R_lite\[1\].rank names 1 again",
        ),
        (changed(nodelist=None), "execution.nodelist is not an array"),
        (changed(nodelist=["n0", 7]), r"execution.nodelist\[1\] is 7"),
        (changed(nodelist=["n["]), r"execution.nodelist\[0\]: hostlist"),
        (changed(nodelist=["n[0-1]"]), "2 hosts for 3 ranks"),
    ],
)
def test_what_is_no_r_is_refused_with_its_path(r: Any, problem: str) -> None:
    with pytest.raises(BadFormat, match=problem):
        resource_set.decode_nodes(r)


@pytest.mark.parametrize(
    ("r", "problem"),
    [
        (changed(nslots=0), "execution.nslots is 0"),
        (changed(nslots=None), "execution.nslots is None"),
        (changed(nslots=True), "execution.nslots is True"),
        (changed(starttime="now"), "execution.starttime is 'now'"),
        (changed(starttime=-1), "execution.starttime is -1"),
        (changed(expiration=float("inf")), "execution.expiration is inf"),
        (changed(expiration=float("nan")), "execution.expiration is nan"),
        (changed(starttime=5, expiration=5.0), "expiration is 5.0, not after the starttime 5.0"),
        (changed(properties=[]), "execution.properties is not an object"),
        (changed(properties={"a|b": "0"}), r"the name 'a\|b' holds '\|' at 1"),
        (changed(properties={"": "0"}), "a property without a name"),
        (changed(properties={"a": 0}), "properties.a is not an idset"),
        (changed(properties={"a": "x"}), "properties.a: idset 'x'"),
        (changed(properties={"a": "0-2"}), "properties.a names rank 2, which R_lite does not"),
        ({**SMALL, "scheduling": None}, "scheduling is not an object"),
        ({**SMALL, "scheduling": {"writer": 1}}, "scheduling.writer is 1, not a URI"),
        ({**SMALL, "scheduling": {"writer": "://"}}, "no scheme of a URI"),
    ],
)
def test_what_only_reading_all_of_r_finds_is_refused_with_its_path(
    r: dict[str, Any], problem: str
) -> None:
    resource_set.decode_nodes(r)
    with pytest.raises(BadFormat, match=problem):
        resource_set.decode_all(r)


def test_slots_times_and_the_graph_are_written_where_they_are_given() -> None:
    r = resource_set.encode_nodes(
        [NodeResources(0, "n0", (0,))],
        slots=1,
        starttime=5.0,
        expiration=9.0,
        scheduling={"graph": {}},
    )
    assert r["execution"]["nslots"] == 1
    assert (r["execution"]["starttime"], r["execution"]["expiration"]) == (5.0, 9.0)
    assert "scheduling" not in resource_set.without_scheduling(r)
    assert "scheduling" in r


def test_all_of_r_is_read() -> None:
    r = changed(
        nslots=2, starttime=5, expiration=9.5, properties={"+queue": "0", "amd-mi50@gpu": "0-1,3"}
    )
    found = resource_set.decode_all({**r, "scheduling": {"graph": {}}})
    assert (found.slots, found.starttime, found.expiration) == (2, 5.0, 9.5)
    assert found.properties == {"+queue": (0,), "amd-mi50@gpu": (0, 1, 3)}
    assert found.scheduling == {"graph": {}}
    assert resource_set.without_local_properties(found).properties == {"amd-mi50@gpu": (0, 1, 3)}


def test_the_writer_of_the_graph_is_fluxion_if_no_other_is_told() -> None:
    assert resource_set.writer({}) == ("fluxion", "")
    assert resource_set.writer({"writer": "fluxion:jgf"}) == ("fluxion", "jgf")


def test_no_nodes_are_a_set_too() -> None:
    empty = resource_set.from_nodes([])
    r = resource_set.encode_all(empty)
    assert r["execution"]["nodelist"] == r["execution"]["R_lite"] == []
    assert resource_set.decode_all(r) == empty


def bits(number: int) -> tuple[int, ...]:
    return tuple(bit for bit in range(number.bit_length()) if number >> bit & 1)


nodes = st.lists(st.tuples(st.sampled_from(["n1", "n", "x07"]), st.integers(1, 31),
                           st.integers(0, 3)), max_size=6)  # fmt: skip


@st.composite
def resource_sets(draw: st.DrawFn) -> ResourceSet:
    known = draw(nodes)
    return ResourceSet(
        nodes=tuple(
            NodeResources(2 * rank, host, bits(cores), bits(gpus))
            for rank, (host, cores, gpus) in enumerate(known)
        ),
        properties={name: tuple(range(0, 2 * len(known), 4)) for name in draw(properties)},
        slots=draw(st.none() | st.integers(1, 9)),
        expiration=draw(st.sampled_from([0.0, 9.5])),
        scheduling=draw(st.sampled_from([None, {"graph": {}}])),
    )


properties = st.sampled_from([(), ("a",), ("b@gpu", "+c")])


@given(resource_sets())
def test_r_reads_back(resources: ResourceSet) -> None:
    r = orjson.loads(orjson.dumps(resource_set.encode_all(resources)))
    assert resource_set.decode_all(r) == resources
    assert tuple(resource_set.decode_nodes(r)) == resources.nodes


# Sets of them

A = ResourceSet(
    nodes=(NodeResources(0, "n0", (0, 1), (0,)), NodeResources(1, "n1", (0, 1))),
    properties={"big": (0, 1), "odd": (1,)},
    slots=2,
    expiration=9.0,
    scheduling={"graph": {}},
)
B = ResourceSet(
    nodes=(NodeResources(1, "n1", (1, 2)), NodeResources(4, "n4", (0,))), properties={"big": (4,)}
)


def test_a_union_has_what_is_in_either() -> None:
    assert resource_set.union(A, B) == ResourceSet(
        nodes=(
            NodeResources(0, "n0", (0, 1), (0,)),
            NodeResources(1, "n1", (0, 1, 2)),
            NodeResources(4, "n4", (0,)),
        ),
        properties={"big": (0, 1, 4), "odd": (1,)},
        expiration=9.0,
    )


def test_a_difference_leaves_nodes_out_of_which_nothing_is_left() -> None:
    assert resource_set.difference(A, B).nodes == (
        NodeResources(0, "n0", (0, 1), (0,)),
        NodeResources(1, "n1", (0,)),
    )
    all_of_1 = resource_set.from_nodes([NodeResources(1, "n1", (0, 1, 2))])
    assert resource_set.difference(A, all_of_1) == ResourceSet(
        nodes=(NodeResources(0, "n0", (0, 1), (0,)),), properties={"big": (0,)}, expiration=9.0
    )


def test_an_intersection_has_what_is_in_both() -> None:
    assert resource_set.intersection(A, B) == ResourceSet(
        nodes=(NodeResources(1, "n1", (1,)),), properties={"big": (1,), "odd": (1,)}, expiration=9.0
    )


@pytest.mark.parametrize(
    "operation", [resource_set.union, resource_set.difference, resource_set.intersection]
)
def test_sets_that_know_a_rank_by_different_hosts_have_nothing_to_do_with_each_other(
    operation: Any,
) -> None:
    other = resource_set.from_nodes([NodeResources(1, "other", (0,))])
    with pytest.raises(BadFormat, match="rank 1 is n1 in one set and other in the other"):
        operation(A, other)


def test_a_node_of_gpus_alone_may_be_left_over_but_not_be_written() -> None:
    left = resource_set.difference(A, resource_set.from_nodes([NodeResources(0, "n0", (0, 1))]))
    assert left.nodes[0] == NodeResources(0, "n0", (), (0,))
    with pytest.raises(BadFormat, match="rank 0 has no core"):
        resource_set.encode_all(left)


def test_ranks_are_removed_with_their_properties() -> None:
    assert resource_set.without_ranks(A, [1, 7]) == ResourceSet(
        nodes=(NodeResources(0, "n0", (0, 1), (0,)),), properties={"big": (0,)}, expiration=9.0
    )


def test_an_instance_in_a_job_counts_its_nodes_from_0() -> None:
    moved = resource_set.remap(resource_set.without_ranks(A, [0]))
    assert moved.nodes == (NodeResources(0, "n1", (0, 1)),)
    assert moved.properties == {"big": (0,), "odd": (0,)}


def test_ranks_are_changed_as_told_and_the_graph_goes_by_hosts() -> None:
    moved = resource_set.remap(A, {0: 8, 1: 3})
    assert [(node.rank, node.host) for node in moved.nodes] == [(3, "n1"), (8, "n0")]
    assert moved == replace(A, nodes=moved.nodes, properties={"big": (3, 8), "odd": (3,)})
    with pytest.raises(BadFormat, match="rank 1 gets no new rank"):
        resource_set.remap(A, {0: 8})
    with pytest.raises(BadFormat, match="rank 5 is n0 and n1"):
        resource_set.remap(A, {0: 5, 1: 5})


def test_nodes_are_appended_after_the_greatest_rank() -> None:
    both = resource_set.append(B, A)
    assert [(node.rank, node.host) for node in both.nodes] == [
        (1, "n1"),
        (4, "n4"),
        (5, "n0"),
        (6, "n1"),
    ]
    assert both.properties == {"big": (4, 5, 6), "odd": (6,)}
    assert resource_set.append(resource_set.from_nodes([]), B) == replace(
        resource_set.remap(B), scheduling=None
    )


Pieces = set[tuple[int, str, int]]


def pieces(resources: ResourceSet) -> Pieces:
    """The dumb oracle: every core and gpu by itself."""
    return {
        (node.rank, kind, number)
        for node in resources.nodes
        for kind, numbers in (("core", node.cores), ("gpu", node.gpus))
        for number in numbers
    }


@st.composite
def alike(draw: st.DrawFn) -> ResourceSet:
    """Sets whose ranks are the same nodes, any of which may be missing."""
    found = draw(st.lists(st.integers(0, 127), min_size=5, max_size=5))
    nodes = [
        NodeResources(rank, f"n{rank}", bits(number & 31), bits(number >> 5))
        for rank, number in enumerate(found)
        if number & 31
    ]
    known = tuple(node.rank for node in nodes)
    return replace(resource_set.from_nodes(nodes), properties={"a": known[:2], "b": known[1:]})


@given(alike(), alike())
def test_set_operations_do_what_they_do_to_single_cores_and_gpus(
    one: ResourceSet, other: ResourceSet
) -> None:
    a, b = pieces(one), pieces(other)
    assert pieces(resource_set.union(one, other)) == a | b
    assert pieces(resource_set.difference(one, other)) == a - b
    assert pieces(resource_set.intersection(one, other)) == a & b
    for result in (
        resource_set.union(one, other),
        resource_set.difference(one, other),
        resource_set.intersection(one, other),
        resource_set.append(one, other),
    ):
        ranks = [node.rank for node in result.nodes]
        assert ranks == sorted(set(ranks))
        assert all(node.cores or node.gpus for node in result.nodes)
        assert all(set(named) <= set(ranks) for named in result.properties.values())
