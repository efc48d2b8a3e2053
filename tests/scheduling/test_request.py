"""What a jobspec asks of the graph, and how a system is described."""

from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from tests.dws.builders import need
from tests.rfc.vectors import vector
from tests.scheduling.systems import system, want
from warren.base.bytesize import GIB
from warren.base.placing import AllocationSet, Locality
from warren.dws.jobs import resources
from warren.rfc import jgf, jobspec, resource_set
from warren.rfc.errors import BadFormat
from warren.scheduling.request import Request, from_jobspec
from warren.scheduling.topology import ChassisTopology, resource_set_with_graph


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
    (inner,) = plain["resources"]
    flash = [{"type": "ssd", "count": 3, "exclusive": True}, {"type": "ssd", "count": 4}]
    outer = slot(2, {**inner, "count": 1}, *flash, label="rabbit")

    assert from_jobspec({**plain, "resources": [outer]}) == want(2, 4, ssd=7)


def test_flash_next_to_the_nodes_is_asked_for_as_allocations() -> None:
    asked = asking(node(2, slot(1, core())), chassis(1, ssd(5)), chassis(2, ssd(40)))
    wanted = want(2, shared_flash=(AllocationSet(1, 5), AllocationSet(2, 40)))
    assert from_jobspec(asked) == wanted


def test_what_the_storage_side_has_rewritten_is_what_the_scheduler_reads() -> None:
    plain = jobspec.make(["true"], nodes=2, tasks=4)
    needs = [need("xfs", 3 * GIB), need("mgt", 5 * GIB, "AllocateSingleServer")]
    changed = resources.rewrite(plain["resources"], needs, 4 * GIB)
    found = from_jobspec({**plain, "resources": changed.resources})
    assert found == want(2, 4, ssd=4, shared_flash=(AllocationSet(1, 5),))


def chassis(count: Any, *inside: dict[str, Any]) -> dict[str, Any]:
    return {"type": "chassis", "count": count, "with": list(inside)}


def core(count: Any = 1) -> dict[str, Any]:
    return {"type": "core", "count": count}


def slot(count: Any, *inside: dict[str, Any], label: str = "task") -> dict[str, Any]:
    return {"type": "slot", "count": count, "label": label, "with": list(inside)}


def node(count: Any, *inside: dict[str, Any], **options: Any) -> dict[str, Any]:
    return {"type": "node", "count": count, "with": list(inside), **options}


def gpu(count: Any = 1) -> dict[str, Any]:
    return {"type": "gpu", "count": count}


def ssd(count: Any) -> dict[str, Any]:
    return {"type": "ssd", "count": count, "exclusive": True}


def asking(*resources: dict[str, Any], **system: Any) -> dict[str, Any]:
    spec = jobspec.make(["true"], attributes=system)
    return {**spec, "resources": list(resources)}


@pytest.mark.parametrize(
    ("resources", "request_"),
    [
        (slot(3, core(2), gpu(1)), want(slots=3, cores=2, gpus=1)),
        (node(2, slot(2, core(2), gpu(4))), want(2, 4, cores=2, gpus=4)),
        (slot(2, node(1, core(3))), want(2, cores=3, exclusive=True)),
        (slot(2, node(1, core(3), exclusive=False)), want(2, cores=3)),
        (
            slot(2, node(3, core(4), gpu(1))),
            want(2, cores=4, gpus=1, exclusive=True, nodes_per_slot=3),
        ),
        (slot(2, node(1)), want(2, exclusive=True)),
        (slot(2, node(1), ssd(5)), want(2, exclusive=True, ssd=5)),
        (slot("2", core("3")), want(slots=2, cores=3)),
    ],
)
def test_slots_hold_cores_and_gpus_or_nodes_and_nodes_hold_slots(
    resources: dict[str, Any], request_: Request
) -> None:
    assert from_jobspec(asking(resources)) == request_


@pytest.mark.parametrize(
    ("resources", "least", "open_"),
    [
        (slot("2-5", core(1)), want(slots=2), ["slots"]),
        (slot("4,9,16", node(1)), want(4, exclusive=True), ["nodes"]),
        (node({"min": 2}, slot(1, core({"min": 3}))), want(2, cores=3), ["nodes", "cores"]),
        (node(2, slot("1+", core(1), gpu("1-2"))), want(2, gpus=1), ["slots", "gpus"]),
        (slot("1-4", node(1, slot(1, core(1))), ssd(2), label="rabbit"), want(1, ssd=2), ["nodes"]),
    ],
)
def test_a_count_that_leaves_a_choice_is_its_least_and_what_else_it_may_be(
    resources: dict[str, Any], least: Request, open_: list[str]
) -> None:
    request = from_jobspec(asking(resources))

    assert replace(request, open_counts=()) == least
    assert [part for part, _ in request.open_counts] == open_


def test_a_constraint_is_part_of_what_is_asked_for_and_two_of_the_same_are_equal() -> None:
    one = from_jobspec(asking(slot(1, core()), constraints={"properties": ["fast"]}))

    assert one == want(slots=1, constraint='{"properties":["fast"]}')
    assert from_jobspec(asking(slot(1, core()), constraints={})) == want(slots=1)


@pytest.mark.parametrize(
    ("resources", "words"),
    [
        ([slot(1, core()), ssd(1)], "resources holds 2 entries, not 1"),
        ([slot(1, core()), chassis(1, ssd(1))],
         r"resources\[1\] is on chassis of the job's nodes, and it names none"),
        ([node(1, slot(1, core())), chassis(1)], r"resources\[1\].with holds no ssd"),
        ([node(1, slot(1, core())), chassis(16384, ssd(1)), chassis(1, ssd(1))],
         "resources asks for more than 16384 allocations"),
        ([node(1, slot(1, core())), chassis(1, ssd("1-2"))],
         r"resources\[1\].with\[0\].count leaves a choice"),
        ([node(1, slot(1, core())), chassis(1, node(1, slot(1, core())))],
         r"resources\[1\].with\[0\]: resources of type 'node' cannot be scheduled in a chassis"),
        ([{"type": "rack", "count": 1, "with": [slot(1, core())]}],
         r"resources\[0\]: resources of type 'rack' cannot be scheduled; node, slot,"),
        ([slot(1, core(), {"type": "memory", "count": 4, "unit": "GB"})],
         r"resources\[0\].with\[1\]: resources of type 'memory' cannot be scheduled in a slot; "
         "core and gpu can"),
        ([node(1, {"type": "socket", "count": 2, "with": [slot(1, core())]})],
         r"resources\[0\].with\[0\]: resources of type 'socket' cannot be scheduled in a node"),
        ([slot(1, gpu())], r"resources\[0\].with holds no core"),
        ([slot(1, core(), core())], r"resources\[0\].with\[1\] is a second core in resources"),
        ([node(1, slot(1, core()), slot(1, core(), label="other"))],
         r"resources\[0\].with\[1\] is a second slot"),
        ([node(1, slot(1, core(), label="other"))],
         r"resources\[0\].with\[0\].label is 'other', and the job's tasks are for the slot 'task'"),
        ([node(2)], r"resources\[0\].with holds no slot for the job's tasks"),
        ([slot(2, node(2, slot(1, core())), label="rabbit")],
         r"resources\[0\].with\[0\].count is not 1, inside of resources\[0\]"),
        ([slot(2, node(2, slot(1, core())), ssd(1), label="rabbit")],
         r"resources\[0\].with\[0\].count is not 1, where flash is beside the node"),
        ([slot(1, node(1), ssd("1-2"))], r"resources\[0\].with\[1\].count leaves a choice"),
        ([slot(1, {**core(), "with": [gpu()]})],
         r"resources\[0\].with\[0\].with: a core holds nothing"),
        ([slot("0-2", core())], r"resources\[0\].count is no range '0-2'"),
    ],
)  # fmt: skip
def test_another_shape_is_refused_with_its_place(resources: list[Any], words: str) -> None:
    with pytest.raises(BadFormat, match=f"^jobspec: {words}"):
        from_jobspec(asking(*resources))


def test_a_constraint_that_is_none_is_refused_with_its_place() -> None:
    with pytest.raises(BadFormat, match=r"^jobspec: attributes.system.constraints.or\[0\]"):
        from_jobspec(asking(slot(1, core()), constraints={"or": [1]}))


def test_what_is_demanded_of_nodes_may_name_all_of_them_and_is_bounded() -> None:
    fits, longer = ({"properties": ["x" * count]} for count in (1_048_000, 1_049_000))
    assert from_jobspec(asking(slot(1, core()), constraints=fits)).constraint
    with pytest.raises(BadFormat, match="has 1049019 characters, and 1048576 at most: name"):
        from_jobspec(asking(slot(1, core()), constraints=longer))


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("spec_14/use_case_1.1", want(4, exclusive=True)),
        ("spec_14/use_case_1.2", want(3, exclusive=True)),
        ("spec_14/use_case_1.8", want(4, exclusive=True)),
        ("spec_14/use_case_1.3", "type 'socket'"),
        ("spec_14/use_case_1.5", "holds 2 entries"),
        ("spec_14/use_case_1.6", "type 'cluster'"),
        ("spec_14/use_case_2.3", want(slots=10, cores=2)),
        ("spec_14/use_case_2.4", "second slot"),
        ("spec_14/use_case_2.5", "type 'memory'"),
        ("spec_25/use_case_2.3", want(slots=10, cores=2, gpus=1)),
    ],
)
def test_of_the_use_cases_of_the_rfcs_what_can_be_is_scheduled(
    name: str, outcome: Request | str
) -> None:
    spec = yaml.safe_load(vector(f"rfc/{name}.yaml").read_text())
    if isinstance(outcome, Request):
        assert replace(from_jobspec(spec), open_counts=()) == outcome
    else:
        with pytest.raises(BadFormat, match=outcome):
            from_jobspec(spec)


# The system


def ssds(r: dict[str, Any]) -> list[tuple[str, int]]:
    return [
        (vertex.path, vertex.metadata["size"])
        for vertex in jgf.decode(r["scheduling"])
        if vertex.type == "ssd"
    ]


def test_nodes_get_ranks_in_the_order_of_their_chassis() -> None:
    ranks = resource_set.decode_nodes(system((2, 4), (0, 4), (1, 4), cores=2))
    assert [(each.rank, each.host, each.cores) for each in ranks] == [
        (0, "n0", (0, 1)),
        (1, "n1", (0, 1)),
        (2, "n2", (0, 1)),
    ]


def test_flash_is_one_pool_or_as_many_quanta_as_there_is_room_for() -> None:
    """Statement 000.15: an ssd vertex is a part of the capacity; as many as needed are taken."""
    assert ssds(system((1, 64), (1, 0), quantum=None)) == [("/c/chassis0/ssd0", 64)]
    assert ssds(system((1, 9), (1, 3), (1, 1), quantum=2)) == [
        *((f"/c/chassis0/ssd{n}", 2) for n in range(4)),
        ("/c/chassis1/ssd0", 2),
    ]


def test_the_rabbits_of_flux_coral2_are_described_as_it_does() -> None:
    worker = ChassisTopology(
        rabbit="kind-worker2", capacity_bytes=39582418599936, hosts=("compute-01",)
    )

    vertices = list(
        jgf.decode(
            resource_set_with_graph("ElCapitan", [worker], 1, quantum_gib=1024)["scheduling"]
        )
    )

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
    assert (
        ssds(
            resource_set_with_graph(
                "c",
                [ChassisTopology(rabbit="r", capacity_bytes=GIB - 1, hosts=())],
                cores_per_node=1,
            )
        )
        == []
    )


def test_what_flash_demands_of_rabbits_is_read_by_the_labels_of_the_resources() -> None:
    outer = slot(2, {**node(1, slot(1, core()))}, ssd(3), label="rabbit")
    named = {**chassis(1, ssd(5)), "label": "rabbit-0"}
    demands = {
        "rabbit": {"labels": ["tier=fast"]},
        "rabbit-0": {"labels": ["a=1"], "colocation": [{"type": "exclusive", "key": "k"}]},
    }
    found = from_jobspec(demanding(demands, outer, named, chassis(1, ssd(7))))
    assert found.labels == ("tier=fast",)
    assert found.shared_flash == (AllocationSet(1, 5, ("a=1",), ("k",)), AllocationSet(1, 7))


@pytest.mark.parametrize(
    ("access", "locality"),
    [
        ([], Locality.JOB),
        ([("network", "mandatory")], Locality.ANY),
        ([("network", "bestEffort")], Locality.JOB),
        ([("network", "mandatory"), ("physical", "mandatory")], Locality.EVERY_RABBIT_OF_JOB),
    ],
)
def test_in_which_ways_flash_is_reached_says_which_rabbits_may_hold_it(
    access: list[tuple[str, str]], locality: Locality
) -> None:
    told = [{"type": kind, "priority": priority} for kind, priority in access]
    named = {**chassis(1, ssd(5)), "label": "a"}
    spec = demanding({"a": {"access": told}}, node(1, slot(1, core())), named)
    assert from_jobspec(spec).shared_flash == (AllocationSet(1, 5, locality=locality),)


@pytest.mark.parametrize(
    ("demands", "problem"),
    [
        ([1], "dw_constraints is not an object"),
        ({"rabbit": {"labels": "a=1"}}, r"dw_constraints.rabbit: Expected `array`"),
        (
            {"rabbit": {"colocation": [{"type": "near"}]}},
            "dw_constraints.rabbit.colocation is not 'exclusive'",
        ),
    ],
)
def test_demands_that_are_not_understood_are_refused_with_the_place(
    demands: Any, problem: str
) -> None:
    with pytest.raises(BadFormat, match=problem):
        from_jobspec(demanding(demands, node(1, slot(1, core()))))


def demanding(demands: Any, *resources: Any) -> dict[str, Any]:
    asked = asking(*resources)
    system = {**asked["attributes"]["system"], "dw_constraints": demands}
    return {**asked, "attributes": {"system": system}}
