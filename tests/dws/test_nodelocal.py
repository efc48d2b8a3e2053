"""Which nodes node-local persistent storage is for."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.objects import Key
from warren.dws import nodelocal
from warren.dws.faults import Fault
from warren.dws.objects.assignments import Servers
from warren.dws.objects.breakdowns import DirectiveBreakdown
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration

PHYSICAL = {"type": "physical", "priority": "mandatory"}
NETWORK = {"type": "network", "priority": "mandatory"}


def system(*computes: int) -> SystemConfiguration:
    nodes = [
        {
            "name": f"r{rabbit}",
            "type": "Rabbit",
            "computesAccess": [{"name": f"n{rabbit}-{number}"} for number in range(count)],
        }
        for rabbit, count in enumerate(computes)
    ]
    meta = {"name": "default", "namespace": "default"}
    return read({"metadata": meta, "spec": {"storageNodes": nodes}}, SystemConfiguration)


def servers(name: str, *counts: int) -> Servers:
    storage = [
        {"name": f"r{rabbit}", "allocationCount": count} for rabbit, count in enumerate(counts)
    ]
    one = {"label": "xfs", "allocationSize": 1, "storage": storage}
    meta = {"name": name, "namespace": "default"}
    return read({"metadata": meta, "spec": {"allocationSets": [one]}}, Servers)


def use(name: str, *access: Any, place: int = 0) -> DirectiveBreakdown:
    reference = {
        "kind": "Servers",
        "name": name,
        "namespace": "default",
        "fieldPath": f"servers.spec.allocationSets[{place}]",
    }
    location = [{"access": list(access), "reference": reference}]
    obj = {
        "metadata": {"name": "wf-0", "namespace": "default"},
        "spec": {"directive": f"#DW persistentdw name={name}"},
        "status": {"ready": True, "compute": {"constraints": {"location": location}}},
    }
    return read(obj, DirectiveBreakdown)


def allowed(*uses: DirectiveBreakdown, **known: Servers) -> tuple[str, ...] | None:
    used = {Key("default", name): each for name, each in known.items()}
    return nodelocal.allowed_nodes(uses, used, system(2, 2))


def test_a_job_is_for_the_nodes_that_have_all_of_its_persistent_storage() -> None:
    one, two = use("one", PHYSICAL), use("two", PHYSICAL)
    assert allowed(one, one=servers("one", 1, 2)) == ("n0-0", "n1-0", "n1-1")
    assert allowed(one, two, one=servers("one", 1, 2), two=servers("two", 2, 1)) == ("n0-0", "n1-0")


def test_what_is_reached_over_the_network_is_for_all_nodes() -> None:
    """Statements 002.5, 002.23: by the type of access, never by the type of a file system."""
    assert allowed(use("one", NETWORK), one=servers("one", 1)) is None


def test_what_must_be_wired_to_as_well_is_for_the_nodes_that_have_a_part() -> None:
    """Statement 002.20: all constraints of a gfs2, which is reached both ways, must be met."""
    assert allowed(use("one", NETWORK, PHYSICAL), one=servers("one", 1)) == ("n0-0",)


def test_what_is_merely_better_near_is_for_all_nodes() -> None:
    """Statement 002.24: bestEffort binds no node."""
    wished = {"type": "physical", "priority": "bestEffort"}
    assert allowed(use("one", wished), one=servers("one", 1)) is None
    assert allowed(use("one", PHYSICAL, wished), one=servers("one", 1)) == ("n0-0",)


def test_more_nodes_than_have_a_part_are_refused_with_the_number_that_can_be() -> None:
    nodelocal.check_enough_nodes(("n0", "n1"), 2)
    with pytest.raises(Fault, match=r"asks for 3 nodes, .* allocations for 2: say -N2, or less"):
        nodelocal.check_enough_nodes(("n0", "n1"), 3)


def test_what_no_node_has_all_of_is_refused() -> None:
    with pytest.raises(Fault, match="use them in jobs of their own"):
        allowed(
            use("one", PHYSICAL),
            use("two", PHYSICAL),
            one=servers("one", 1, 0),
            two=servers("two", 0, 1),
        )


def test_what_is_gone_is_refused_rather_than_placed_anywhere() -> None:
    with pytest.raises(Fault, match="'one' is gone"):
        allowed(use("one", PHYSICAL))
    with pytest.raises(Fault, match="none of its allocation sets"):
        allowed(use("one", PHYSICAL, place=1), one=servers("one", 1))


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 7)), max_size=5))
def test_no_more_nodes_than_allocations_and_each_within_those_of_its_rabbit(
    shape: list[tuple[int, int]],
) -> None:
    configuration = system(*(computes for computes, _ in shape))
    (found,) = servers("one", *(count for _, count in shape)).spec.allocation_sets
    nodes = nodelocal.nodes_of(found, configuration)
    places = nodelocal.positions(configuration)

    assert len(set(nodes)) == len(nodes)
    by_rabbit = Counter(node.split("-")[0] for node in nodes)
    for rabbit, (computes, count) in enumerate(shape):
        assert by_rabbit[f"n{rabbit}"] == min(computes, count)
        assert all(places[node] < count for node in nodes if node.startswith(f"n{rabbit}-"))


@given(shape=st.lists(st.integers(0, 5), min_size=1, max_size=4), data=st.data())
def test_each_node_has_a_part_of_its_own_whichever_nodes_are_asked_for(
    shape: list[int], data: st.DataObject
) -> None:
    configuration = system(*shape)
    wiring, places = configuration.rabbits_of_all_computes(), nodelocal.positions(configuration)
    nodes = data.draw(st.permutations([*wiring]))
    cut = data.draw(st.integers(0, len(nodes)))

    def parts(some: list[str]) -> set[tuple[str, int]]:
        found = nodelocal.allocation_numbers_by_rabbit([*some, *some[:1]], wiring, places)
        assert all(numbers == sorted(numbers) for numbers in found.values())
        return {(rabbit, number) for rabbit, numbers in found.items() for number in numbers}

    one, rest = parts(nodes[:cut]), parts(nodes[cut:])
    assert (len(one), len(rest)) == (cut, len(nodes) - cut)
    assert one.isdisjoint(rest)
    assert one | rest == {
        (f"r{rabbit}", number) for rabbit, count in enumerate(shape) for number in range(count)
    }


@pytest.mark.parametrize("wiring", [{}, {"n0": ""}])
def test_a_node_that_is_wired_to_no_rabbit_has_no_part(wiring: dict[str, str]) -> None:
    with pytest.raises(Fault, match="compute node n0 is wired to no rabbit"):
        nodelocal.allocation_numbers_by_rabbit(["n0"], wiring, {})


def test_a_rabbits_allocations_are_those_of_its_nodes_in_the_order_of_the_job() -> None:
    wiring = {"n0": "r0", "n1": "r0", "n2": "r1", "external": ""}
    nodes = ["n1", "n2", "external", "unknown", "n0"]
    assert nodelocal.allocation_numbers(nodes, wiring) == {"n1": 0, "n2": 0, "n0": 1}
