"""Nodes that a job loses to failing storage."""

from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import computes, servers, share_of, workflow
from warren.dws import tolerance

WIRING = {"n0": "r0", "n1": "r0", "n2": "r1"}


def made(ready: bool, size: int = 5) -> dict[str, object]:
    return {"allocationSize": size, "ready": ready}


def test_the_nodes_of_a_rabbit_that_is_late_are_without_storage() -> None:
    listed = share_of(r0=2, r1=1)
    late = [{"label": "xfs", "storage": {"r0": made(True), "r1": made(False)}}]
    half = [{"label": "xfs", "storage": {"r0": made(True)}}]

    def without(*sets: object) -> frozenset[str]:
        found = servers(listed, allocationSets=list(sets))
        return tolerance.nodes_without_storage(WIRING, [found], WIRING)

    assert without(*late) == without(*half) == {"n2"}
    assert without() == {"n0", "n1", "n2"}


def test_a_rabbit_that_has_made_one_of_two_sets_is_late() -> None:
    sets = [{"label": "mdt", "storage": {"r0": made(True)}}]
    found = servers(share_of("mdt", r0=1), share_of("ost", r0=1), allocationSets=sets)

    assert tolerance.nodes_without_storage(["n0", "n2"], [found], WIRING) == {"n0"}


def test_what_is_noted_is_read_again() -> None:
    noted = {"annotations": tolerance.annotation({"n1", "n0"})}

    assert tolerance.lost_nodes(workflow(metadata=noted).metadata) == {"n0", "n1"}
    assert tolerance.lost_nodes(workflow().metadata) == frozenset()
    assert tolerance.node_names("n[0-") == frozenset()


nodes = st.lists(st.sampled_from([f"n{number}" for number in range(8)]), unique=True)


@given(nodes, st.sets(st.sampled_from([f"n{number}" for number in range(8)])))
def test_each_node_that_is_left_keeps_the_allocation_that_it_had(
    names: list[str], lost: set[str]
) -> None:
    wiring = {f"n{number}": f"r{number // 4}" for number in range(8)}
    before = tolerance.remaining_allocations(computes(*names), wiring, ())
    after = tolerance.remaining_allocations(computes(*names), wiring, lost)
    own = {
        (rabbit, number): node
        for rabbit in before
        for number, node in enumerate(each for each in names if wiring[each] == rabbit)
    }

    kept = {own[rabbit, number] for rabbit, numbers in after.items() for number in numbers}
    assert kept == set(names) - lost
    assert [] not in after.values()
