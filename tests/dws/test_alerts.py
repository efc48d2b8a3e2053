"""What running jobs are told of their rabbits."""

import pytest

from tests.dws.builders import share_of
from warren.dws import labels
from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import (
    NodeLink,
    Storage,
    StorageAccess,
    StorageSpec,
    StorageStatus,
)
from warren.dws.rabbits import alerts

NOTE = '{"by": "ann", "since": "2026-11-23T12:00:00Z", "reason": "bad disk"}'
BY = " by ann since 2026-11-23T12:00:00Z: bad disk"


def rabbit(
    status: str = "Ready", links: str = "Ready", state: str = "Enabled", **annotations: str
) -> Storage:
    access = StorageAccess(
        computes=(NodeLink(name="n0", status="Ready"), NodeLink(name="n1", status=links))
    )
    return Storage(
        metadata=Meta(name="r0", namespace="default", annotations=annotations),
        spec=StorageSpec(state=state),
        status=StorageStatus(status=status, access=access),
    )


def untold(storage: Storage, *told: str, nodes: tuple[str, ...] = ("n0", "n1")) -> list[str]:
    return list(alerts.new_alerts(told, {"r0": storage}, nodes))


@pytest.mark.parametrize(
    ("storage", "words"),
    [
        (rabbit("Offline"), "r0 is Offline"),
        (rabbit("Offline", "Offline"), "r0 is Offline"),
        (rabbit(links="Offline"), "r0 has lost its link to n1"),
        (rabbit(state="Disabled", **{labels.DISABLED: NOTE}), f"r0 is Disabled{BY}"),
        (rabbit(**{labels.DRAINED: NOTE}), f"r0 is Drained{BY}"),
    ],
)
def test_a_job_is_told_once_what_is_wrong_and_once_that_it_is_over(
    storage: Storage, words: str
) -> None:
    assert untold(storage) == [words]
    assert untold(storage, words) == []
    assert untold(rabbit(), words) == ["r0 is Ready again"]
    assert untold(rabbit(), words, "r0 is Ready again") == []
    assert untold(storage, words, "r0 is Ready again") == [words]


def test_a_job_is_not_told_of_other_jobs_nodes_nor_that_all_is_well() -> None:
    assert untold(rabbit(links="Offline"), nodes=("n0",)) == []
    assert untold(rabbit()) == []
    assert list(alerts.new_alerts(["r1 is Offline"], {}, ("n0",))) == []


def test_a_rabbit_that_comes_and_goes_all_day_is_told_of_for_a_while() -> None:
    assert untold(rabbit("Offline"), *["r0 is Offline", "r0 is Ready again"] * 49) != []
    assert untold(rabbit("Offline"), *["r0 is Offline", "r0 is Ready again"] * 50) == []


def test_objects_are_found_by_rabbit_and_by_node() -> None:
    servers = {"spec": {"allocationSets": [share_of(r0=1, r1=2), {"label": "xfs"}]}}
    assert set(alerts.rabbits_of(servers)) == {"r0", "r1"}
    assert alerts.rabbits_of({"spec": {"allocationSets": [{"nodes": [{"name": "r0"}]}]}}) == ()
    assert set(alerts.nodes_of({"data": [{"name": "n0"}, {"name": "n1"}]})) == {"n0", "n1"}
    assert alerts.nodes_of({"data": {"nodes": {}}}) == alerts.nodes_of({}) == ()
    links = {"status": {"access": {"computes": [{"name": "n0", "status": "Ready"}]}}}
    assert list(alerts.linked_nodes_of(links)) == ["n0"]
    assert list(alerts.linked_nodes_of({"status": {}})) == list(alerts.linked_nodes_of({})) == []
