"""NnfAccesses ask nodes to mount and to unmount, and report on them."""

from typing import Any

import msgspec
import pytest

from tests.dws.accesses import losing, mounted, mounting, seen, status, storage_held
from tests.dws.builders import after, changes, client_mount, error, nnf_access, removed, settled
from warren.dws import kinds, labels
from warren.dws.access.nnfaccess import decide
from warren.dws.objects.accesses import NnfAccess


def test_only_the_client_mounts_that_are_missing_are_made() -> None:
    writes = decide(seen(nnf_access(), client_mount("n0"), client_mount("n2")))
    assert list(mounting(writes)) == ["n1"]


def test_an_access_is_ready_when_all_its_nodes_have_mounted() -> None:
    assert status(decide(seen(nnf_access(), *mounted("n0", "n1", "n2")))) == {
        "state": "mounted",
        "ready": True,
        "error": None,
    }


@pytest.mark.parametrize(
    "last",
    [
        {},
        {"allReady": True},
        {"allReady": False, "mounts": [{"state": "mounted", "ready": True}]},
        {"allReady": True, "mounts": [{"state": "mounted", "ready": False}]},
        settled("unmounted"),
    ],
)
def test_an_access_waits_for_its_last_node(last: dict[str, Any]) -> None:
    others = mounted("n0", "n1")
    assert not status(decide(seen(nnf_access(), *others, client_mount("n2", **last))))["ready"]


def test_an_access_that_is_to_be_unmounted_asks_every_node() -> None:
    access = nnf_access(desired="unmounted", state="mounted", ready=True)

    writes = decide(seen(access, *mounted("n0", "n1")))

    assert changes(writes, kinds.CLIENT_MOUNT) == [{"spec": {"desiredState": "unmounted"}}] * 2
    assert status(writes) == {"state": "unmounted", "ready": False, "error": None}


def test_an_access_is_unmounted_when_all_its_nodes_are() -> None:
    access = nnf_access(desired="unmounted", state="unmounted")
    gone = mounted("n0", "n1", state="unmounted", desired="unmounted")
    writes = decide(seen(access, *gone))
    assert status(writes) == {"state": "unmounted", "ready": True, "error": None}
    assert len(writes) == 1


def test_an_error_of_one_node_is_the_accesss_error_with_the_nodes_name() -> None:
    broken = client_mount("n1", error=error("no such device"))
    writes = decide(seen(nnf_access(), *mounted("n0", "n2"), broken))
    assert status(writes)["error"]["userMessage"] == "n1: no such device"
    assert status(writes)["error"]["severity"] == "Major"
    assert not status(writes)["ready"]


def test_nodes_are_asked_to_unmount_whatever_one_of_them_could_not_mount() -> None:
    access = nnf_access(desired="unmounted", state="mounted", ready=True)
    failed: dict[str, Any] = {
        "mounts": [{"state": "mounted", "ready": False}],
        "error": error("no such device"),
    }

    writes = decide(seen(access, *mounted("n0", "n2"), client_mount("n1", **failed)))

    assert changes(writes, kinds.CLIENT_MOUNT) == [{"spec": {"desiredState": "unmounted"}}] * 3
    assert status(writes) == {"state": "unmounted", "ready": False, "error": None}

    asked = client_mount("n1", "unmounted", **failed)
    others = mounted("n0", "n2", state="unmounted", desired="unmounted")
    writes = decide(seen(after(access, writes), asked, *others))
    assert not writes, "the node has not answered yet"


def test_an_error_from_unmounting_is_told_and_the_other_nodes_are_asked_all_the_same() -> None:
    access = nnf_access(desired="unmounted", state="unmounted")
    stuck: dict[str, Any] = {
        "mounts": [{"state": "unmounted", "ready": False}],
        "error": error("busy"),
    }

    writes = decide(seen(access, *mounted("n0"), client_mount("n1", "unmounted", **stuck)))

    assert changes(writes, kinds.CLIENT_MOUNT) == [{"spec": {"desiredState": "unmounted"}}]
    assert status(writes)["error"]["userMessage"] == "n1: busy"


def test_what_one_node_cannot_mount_keeps_no_other_from_being_asked() -> None:
    broken = client_mount("n1", error=error("no such device"))
    writes = decide(seen(nnf_access(), *mounted("n0"), broken))
    assert list(mounting(writes)) == ["n2"]
    assert status(writes)["error"]["userMessage"] == "n1: no such device"


def test_an_error_that_heals_is_taken_back() -> None:
    access = nnf_access(state="mounted", error=error())
    assert status(decide(seen(access, *mounted("n0", "n1", "n2")))) == {
        "state": "mounted",
        "ready": True,
        "error": None,
    }


PASSES: dict[str, tuple[NnfAccess, list[Any], dict[str, Any]]] = {
    "all mounted": (nnf_access(), mounted("n0", "n1", "n2"), {"storage": storage_held()}),
    "one missing yet": (
        nnf_access(),
        [*mounted("n0", "n1"), client_mount("n2")],
        {"storage": storage_held()},
    ),
    "one in trouble": (
        nnf_access(),
        [*mounted("n0", "n1"), client_mount("n2", error=error())],
        {"storage": storage_held()},
    ),
    "no Computes": (nnf_access(), [], {"computes": None}),
    "unmounted": (
        nnf_access(desired="unmounted"),
        mounted("n0", state="unmounted", desired="unmounted"),
        {},
    ),
}


@pytest.mark.parametrize(("access", "mounts", "others"), PASSES.values(), ids=PASSES.keys())
def test_a_second_pass_over_the_same_view_writes_nothing(
    access: NnfAccess, mounts: list[Any], others: dict[str, Any]
) -> None:
    writes = decide(seen(access, *mounts, **others))
    assert len(writes) == 1
    assert not decide(seen(after(access, writes), *mounts, **others))


def test_mounts_that_serve_another_directive_are_labelled_so() -> None:
    """Case 07a of the vectors: those of copy_in serve copy_out."""
    access = nnf_access("servers")
    raw = {"labels": {labels.DIRECTIVE_INDEX: "2", labels.TEARDOWN_STATE: "Teardown"}}
    access = msgspec.structs.replace(
        access, metadata=msgspec.structs.replace(access.metadata, labels=raw["labels"])
    )
    mount = client_mount("r0", "unmounted", **settled("unmounted"))
    writes = decide(seen(access, mount, computes=None, storage=storage_held("wf-0-servers")))
    assert changes(writes, kinds.CLIENT_MOUNT) == [
        {"metadata": raw, "spec": {"desiredState": "mounted"}}
    ]


def test_an_access_in_deletion_removes_its_client_mounts() -> None:
    going = client_mount("n1", deleting=True)
    writes = decide(seen(nnf_access(deleting=True), client_mount("n0"), going))
    assert removed(writes, kinds.CLIENT_MOUNT) == ["n0/default-wf-0-computes"]
    assert len(writes) == 1


def test_an_access_in_deletion_tells_what_keeps_a_node_from_letting_go() -> None:
    stuck = client_mount("n1", deleting=True, error=error("busy"))
    access = nnf_access(deleting=True)
    writes = decide(seen(access, client_mount("n0", deleting=True), stuck))

    (patch,) = changes(writes, kinds.NNF_ACCESS)
    assert patch["status"]["error"]["userMessage"] == "n1: busy"
    assert decide(seen(after(access, writes), stuck)) == []


def test_an_access_in_deletion_is_let_go_of_when_its_client_mounts_are_gone() -> None:
    writes = decide(seen(nnf_access(deleting=True), storage=storage_held()))
    assert [each.kind for each in writes] == [kinds.NNF_STORAGE, kinds.NNF_ACCESS]
    assert changes(writes, kinds.NNF_ACCESS) == [{"metadata": {"finalizers": []}}]


def test_lost_nodes_are_asked_to_unmount_and_not_waited_for() -> None:
    access = losing("computes", "n1", desired="unmounted")
    held = storage_held()
    slow = client_mount("n1", "mounted")
    others = [client_mount(node, "unmounted", **settled("unmounted")) for node in ("n0", "n2")]
    asked = decide(seen(access, slow, *others, storage=held))
    assert changes(asked, kinds.CLIENT_MOUNT) == [{"spec": {"desiredState": "unmounted"}}]

    still = client_mount("n1", "unmounted")
    assert status(decide(seen(access, still, *others, storage=held)))["ready"]
    broken = client_mount("n1", "unmounted", error=error())
    assert status(decide(seen(access, broken, *others, storage=held)))["error"] is None
    without = decide(seen(nnf_access("computes", "unmounted"), still, *others, storage=held))
    assert not status(without)["ready"]
