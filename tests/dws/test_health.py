"""What becomes of a rabbit's nodes: a table of states and links, and what holds of all of them."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import (
    NodeLink,
    Storage,
    StorageAccess,
    StorageSpec,
    StorageStatus,
)
from warren.dws.rabbits.nodedrains import DrainDecision, DrainPolicy, decide_drains

STATES = ("Starting", "Ready", "Disabled", "Offline", "Failed", "Degraded", "Drained", "Fenced")
DRAIN = DrainPolicy()
SOFT = DrainPolicy(drain_compute_nodes=False)
NOTHING = DrainPolicy(drain_compute_nodes=False, soft_drain=False)
SOME = DrainPolicy(drainable=("n0",))
NOBODY: frozenset[str] = frozenset()


def rabbit(status: str, links: Mapping[str, str]) -> Storage:
    told = tuple(NodeLink(name=name, status=link) for name, link in links.items())
    return Storage(
        metadata=Meta(name="r0"),
        spec=StorageSpec(),
        status=StorageStatus(status=status, access=StorageAccess(computes=told)),
    )


@pytest.mark.parametrize(
    ("status", "policy", "drained", "tagged"),
    [
        ("Ready", DRAIN, {"n0", "n1"}, set()),
        ("Ready", SOFT, set(), {"n0", "n1"}),
        ("Ready", NOTHING, set(), set()),
        ("Ready", SOME, {"n0"}, {"n1"}),
        *((state, DRAIN, {"n0", "n1"}, set()) for state in STATES if state != "Ready"),
        *((state, SOFT, set(), set()) for state in STATES if state != "Ready"),
        *((state, NOTHING, set(), set()) for state in STATES if state != "Ready"),
        *((state, SOME, {"n0"}, set()) for state in STATES if state != "Ready"),
    ],
)
def test_nodes_that_have_lost_their_link_are_drained_or_tagged_by_policy(
    status: str, policy: DrainPolicy, drained: set[str], tagged: set[str]
) -> None:
    links = {"n0": "Offline", "n1": "Failed", "n2": "Ready"}
    assert decide_drains(rabbit(status, links), policy) == DrainDecision(
        nodes=frozenset(links), nodes_to_drain=frozenset(drained), nodes_to_tag=frozenset(tagged)
    )


policies = st.builds(
    DrainPolicy,
    drain_compute_nodes=st.booleans(),
    soft_drain=st.booleans(),
    drainable=st.none() | st.frozensets(st.sampled_from(["n0", "n1", "n2", "other"])),
)
rabbits = st.builds(
    rabbit,
    st.sampled_from(STATES),
    st.dictionaries(st.sampled_from(["n0", "n1", "n2"]), st.sampled_from(STATES)),
)


@given(rabbits, policies)
def test_no_node_with_a_good_link_and_none_of_another_rabbit_is_touched(
    storage: Storage, policy: DrainPolicy
) -> None:
    found = decide_drains(storage, policy)
    lost = {each.name for each in storage.status.access.computes if each.status != "Ready"}

    assert found.nodes == {each.name for each in storage.status.access.computes}
    assert found.nodes_to_drain | found.nodes_to_tag <= lost
    assert not found.nodes_to_drain & found.nodes_to_tag
    assert found.nodes_to_drain <= set(policy.drainable if policy.drainable is not None else lost)
    assert policy.drain_compute_nodes or not found.nodes_to_drain
    assert policy.soft_drain or not found.nodes_to_tag


@given(rabbits, policies)
def test_of_a_rabbit_whose_links_are_back_or_that_is_gone_nothing_is_left(
    storage: Storage, policy: DrainPolicy
) -> None:
    links = {each.name: "Ready" for each in storage.status.access.computes}
    back = decide_drains(rabbit("Ready", links), policy)

    assert (back.nodes_to_drain, back.nodes_to_tag) == (NOBODY, NOBODY)
    assert decide_drains(None, policy) == DrainDecision()
