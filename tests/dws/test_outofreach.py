"""Nodes that are out of reach when they are to unmount (ADR 098)."""

from typing import Any

import pytest
from msgspec.structs import replace
from msgspec.structs import replace as replaced

from tests.dws.accesses import lasting, losing, mounted, seen, status, storage_held
from tests.dws.builders import changes, client_mount, error, nnf_access, nnf_storage, workflow
from warren.base.objects import Change
from warren.dws import kinds, labels
from warren.dws.access.accesssnapshot import AccessSnapshot
from warren.dws.access.clientmounts import client_mounts, node_of
from warren.dws.access.nnfaccess import decide
from warren.dws.access.outofreach import changes_to_leave_behind
from warren.dws.faults import Fault
from warren.dws.objects.accesses import NnfAccess

GONE = mounted("n0", "n2", state="unmounted", desired="unmounted")
SILENT = client_mount("n1", "unmounted")


def away(*mounts: Any, access: NnfAccess | None = None, **others: Any) -> AccessSnapshot:
    """See an access that is to be unmounted, of whose nodes n1 is out of reach."""
    found = seen(access or nnf_access(desired="unmounted"), *mounts, **others)
    return replaced(found, unreachable={"n1", "n7"}, workflow=workflow())


def named(writes: list[Change]) -> list[tuple[str, Any]]:
    return [
        (each.kind.name, each.patch["metadata"]["annotations"][labels.LOST_NODES])
        for each in writes
    ]


def test_a_node_that_is_disabled_is_asked_to_unmount_and_not_waited_for() -> None:
    still = client_mount("n1", allReady=True, mounts=[{"state": "mounted", "ready": True}])
    found = away(*mounted("n0", "n2"), still)
    assert changes_to_leave_behind(found) == [], "it was not asked yet"
    assert len(changes(decide(found), kinds.CLIENT_MOUNT)) == 3

    assert named(changes_to_leave_behind(away(*GONE, SILENT))) == [
        ("Workflow", "n1"),
        ("NnfAccess", "n1"),
    ]

    left = losing("computes", "n1", desired="unmounted")
    writes = decide(away(*GONE, SILENT, access=left, storage=storage_held()))
    assert status(writes) == {"state": "unmounted", "ready": True, "error": None}
    assert changes_to_leave_behind(away(*GONE, SILENT, access=left)) == []


@pytest.mark.parametrize(
    "others",
    [
        mounted("n0", desired="unmounted"),
        [client_mount("n0", "unmounted", error=error("busy"))],
    ],
)
def test_no_node_is_left_behind_while_another_one_is_waited_for(others: list[Any]) -> None:
    """It has the time that the others take."""
    assert changes_to_leave_behind(away(SILENT, *GONE[1:], *others)) == []


def test_a_node_that_has_unmounted_in_time_is_not_left_behind() -> None:
    unmounted = mounted("n1", state="unmounted", desired="unmounted")
    assert changes_to_leave_behind(away(*GONE, *unmounted)) == []


def test_a_node_that_is_to_mount_is_waited_for() -> None:
    found = away(*mounted("n0", "n2"), client_mount("n1"), access=nnf_access())
    assert changes_to_leave_behind(found) == []


def test_those_that_are_left_behind_come_to_those_that_are_lost_already() -> None:
    lost = losing("computes", "n0", desired="unmounted")
    known = workflow(metadata={"annotations": {labels.LOST_NODES: "n[0,5]"}})
    found = replaced(away(SILENT, *GONE, access=lost), workflow=known)
    assert named(changes_to_leave_behind(found)) == [
        ("Workflow", "n[0-1,5]"),
        ("NnfAccess", "n[0-1]"),
    ]


def test_a_workflow_that_is_not_seen_learns_of_no_node_and_so_all_are_waited_for() -> None:
    assert changes_to_leave_behind(replaced(away(*GONE, SILENT), workflow=None)) == []


@pytest.mark.parametrize(("file_system", "is_left"), [("xfs", False), ("gfs2", True)])
def test_of_persistent_storage_no_node_is_left_behind_that_the_next_job_could_meet(
    file_system: str, is_left: bool
) -> None:
    storage = lasting()
    storage = replace(storage, spec=replace(storage.spec, file_system_type=file_system))
    assert bool(changes_to_leave_behind(away(*GONE, SILENT, storage=storage))) is is_left
    assert changes_to_leave_behind(away(*GONE, SILENT, storage=None)) == []


def test_rabbits_mount_nothing_of_nodes_that_were_left_behind() -> None:
    lost = losing("servers", "n1")
    assert sorted(key.namespace for key in client_mounts(seen(lost))) == ["r0", "r1"]
    (mount,) = client_mounts(seen(losing("servers", "n1", "n2"))).values()
    assert [each["mountPath"][-4:] for each in mount["spec"]["mounts"]] == ["r0-0"]

    with pytest.raises(Fault, match="nothing of it can be copied"):
        client_mounts(seen(losing("servers", "n0", "n1", "n2")))


def test_rabbits_mount_all_of_what_several_nodes_may_mount_at_a_time() -> None:
    wide = nnf_storage(("r0", 2), ("r1", 1), ready=True)
    wide = replace(wide, spec=replace(wide.spec, file_system_type="gfs2"))
    found = client_mounts(seen(losing("servers", "n0", "n1", "n2"), storage=wide))
    assert sum(len(each["spec"]["mounts"]) for each in found.values()) == 3


def test_client_mounts_are_found_by_their_nodes() -> None:
    assert node_of({"spec": {"node": "n1", "mounts": []}}) == ("n1",)
    assert node_of({"spec": {"node": "n1"}}) == node_of({"spec": "x"}) == node_of({}) == ()
