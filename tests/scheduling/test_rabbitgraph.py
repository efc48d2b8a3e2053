"""The graph of R and of a rabbit mapping, as Fluxion reads it."""

from collections import Counter
from typing import Any

import orjson
import pytest

from tests.rfc.vectors import vector
from warren.base.bytesize import GIB
from warren.base.errors import UserMistake
from warren.dws.rabbits import rabbitmapping
from warren.rfc import jgf, resource_set
from warren.rfc.resource_set import NodeResources
from warren.scheduling import rabbitgraph
from warren.scheduling.topology import ChassisTopology

CHASSIS = (
    ChassisTopology(rabbit="r1", capacity_bytes=101 * GIB, hosts=("n2", "n1")),
    ChassisTopology(rabbit="r2", capacity_bytes=5, hosts=()),
)


def r(*ranks: tuple[int, str], **properties: list[int]) -> resource_set.ResourceSet:
    """Make R of nodes with two cores each."""
    made = [NodeResources(rank, host, (0, 3)) for rank, host in ranks]
    return resource_set.decode_all(resource_set.encode_nodes(made, properties=properties))


def drawn(resources: resource_set.ResourceSet, **options: Any) -> Any:
    return orjson.loads(
        rabbitgraph.encode_graph("c", CHASSIS, resources, **{"ssd_count": 2, **options})
    )


def paths(scheduling: Any, *kinds: str) -> dict[str, int]:
    """Return the vertices of some types, by path, with their ranks."""
    return {each.path: each.rank for each in jgf.decode(scheduling) if each.type in kinds}


@pytest.mark.parametrize(
    ("name", "cluster", "r_file"),
    [("compute-01", "ElCapitan", None), ("properties", "compute", "R-properties")],
)
def test_the_graph_is_that_of_flux_coral2(name: str, cluster: str, r_file: str | None) -> None:
    """Statement 000.49: R is extended by rabbits."""
    folder = vector("coral2/dws2jgf")
    wanted = orjson.loads((folder / f"expected-{name}.jgf").read_bytes())
    given = wanted if r_file is None else orjson.loads((folder / r_file).read_bytes())
    mapping = rabbitmapping.parse((folder / "rabbits.json").read_bytes(), "rabbits.json")
    chassis = [
        ChassisTopology(
            rabbit=each, capacity_bytes=mapping.rabbits[each].capacity, hosts=tuple(hosts)
        )
        for each, hosts in mapping.computes_by_rabbit().items()
    ]
    resources = resource_set.decode_all(resource_set.without_scheduling(given))

    made = rabbitgraph.encode_graph(cluster, chassis, resources, ssd_count=36)
    assert orjson.loads(made) == wanted["scheduling"]


def test_a_chassis_has_ssds_nodes_and_the_rabbit_where_it_is_in_r() -> None:
    """Statement 000.49: and nodes without one are the cluster's own."""
    found = drawn(r((0, "n1"), (1, "n2"), (2, "r1"), (3, "login")))
    jgf.check(found)
    vertices = {each.path: each for each in jgf.decode(found)}

    chassis = vertices["/c/chassis0"]
    assert (chassis.id, chassis.properties) == (0, {"rabbit": "r1", "ssdcount": "2"})
    ssd = vertices["/c/chassis0/ssd1"]
    assert (ssd.size, ssd.unit, ssd.up) == (50, "GiB", False)
    assert vertices["/c/chassis1/ssd0"].size == 0
    assert paths(found, "node") == {"/c/chassis0/n2": 1, "/c/chassis0/n1": 0, "/c/login": 3}
    assert paths(found, "storage_node") == {"/c/chassis0/r1": 2}
    assert vertices["/c/chassis0/r1"].exclusive
    ids = {str(index): path for index, path in enumerate(vertices)}
    assert {(ids[e.source], ids[e.target]) for e in jgf.edges(found)} == {
        (each.parent_path, each.path) for each in vertices.values() if each.parent_path
    }


def test_ranks_are_those_of_r_in_idsets_of_any_form() -> None:
    """What flux-coral2 takes for ranks is the place in the nodelist, and it reads no commas."""
    resources = resource_set.decode_all(
        {
            "version": 1,
            "execution": {
                "R_lite": [
                    {"rank": "3,8", "children": {"core": "0,3", "gpu": "7"}},
                    {"rank": "5", "children": {"core": "1"}},
                ],
                "nodelist": ["n[1-2],login"],
                "properties": {"p": "5,8"},
            },
        }
    )
    found = drawn(resources)

    assert paths(found, "node") == {"/c/chassis0/n2": 5, "/c/chassis0/n1": 3, "/c/login": 8}
    assert paths(found, "core", "gpu") == {
        "/c/chassis0/n2/core1": 5,
        "/c/chassis0/n1/gpu7": 3,
        "/c/chassis0/n1/core0": 3,
        "/c/chassis0/n1/core3": 3,
        "/c/login/gpu7": 8,
        "/c/login/core0": 8,
        "/c/login/core3": 8,
    }
    tagged = [each.name for each in jgf.decode(found) if each.properties == {"p": ""}]
    assert tagged == ["n2", "login"]


@pytest.mark.parametrize(
    ("exclude", "kept"),
    [("0,4", {"/c/chassis0/n2": 2}), ("n[1,2]", {"/c/login": 4}), ("zz", 3), ("", 3)],
)
def test_excluded_nodes_are_named_by_rank_or_by_host(exclude: str, kept: Any) -> None:
    resources = r((0, "n1"), (2, "n2"), (4, "login"))
    found = paths(drawn(resources, excluded=rabbitgraph.excluded_hosts(exclude, resources)), "node")

    assert kept in (found, len(found))


def test_mapped_nodes_that_are_not_in_r_are_found_and_left_out() -> None:
    resources = r((0, "n2"))

    assert rabbitgraph.missing_nodes(CHASSIS, resources) == ["n1"]
    assert paths(drawn(resources), "node") == {"/c/chassis0/n2": 0}


def test_two_nodes_of_one_name_are_refused() -> None:
    with pytest.raises(UserMistake, match=r"^R has n1 as rank 0 and as rank 1: a graph has one"):
        drawn(r((0, "n1"), (1, "n1")))


def test_names_with_letters_that_json_escapes_are_escaped() -> None:
    found = drawn(r((0, 'n"\\')))

    assert paths(found, "core") == {'/c/n"\\/core0': 0, '/c/n"\\/core3': 0}


def test_the_graph_of_720_rabbits_has_each_vertex_once_and_in_its_place() -> None:
    hosts = [f"node{number}" for number in range(720 * 16)]
    chassis = [
        ChassisTopology(
            rabbit=f"rabbit{n}", capacity_bytes=36 * GIB, hosts=tuple(hosts[16 * n : 16 * n + 16])
        )
        for n in range(720)
    ]
    made = rabbitgraph.encode_graph("c", chassis, r(*enumerate(hosts)), ssd_count=36)
    found = list(jgf.decode(orjson.loads(made)))
    counts = Counter(each.type for each in found)

    assert (counts["chassis"], counts["ssd"], counts["node"]) == (720, 720 * 36, len(hosts))
    assert len({each.path for each in found}) == len(found)
    ranks = {each.path.rpartition("/")[2]: each.rank for each in found if each.type == "node"}
    assert ranks == {host: rank for rank, host in enumerate(hosts)}
    assert all(
        each.path.startswith(f"/c/chassis{each.rank // 16}/")
        for each in found
        if each.type == "node"
    )
