"""What nothing owns: found among what is owned, and nothing else."""

from typing import Any

import pytest

from tests.dws.builders import DELETING, error, meta
from warren.base.bytesize import MIB
from warren.base.objects import Key, Kind, Object, Remove
from warren.dws import audit, kinds, labels
from warren.dws.audit import FindingType, NodeInventory


def owned(name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """Make an object of the one Workflow that there is."""
    carried = {labels.WORKFLOW_UID: "uid-wf", labels.WORKFLOW_NAME: "wf"}
    return {"metadata": meta(name, namespace, labels=carried), "spec": spec}


def share() -> dict[str, Any]:
    return owned("share", "r0", count=2, capacity=1, fileSystemType="xfs")


def objects(**more: list[Object]) -> dict[Kind, list[Object]]:
    """Return what a Workflow with two volumes on a rabbit and a mount on a node consists of."""
    found: dict[Kind, list[Object]] = {
        kind: [] for kind in (kinds.PERSISTENT_INSTANCE, *audit.DEPENDENTS)
    }
    found[kinds.WORKFLOW] = [{"metadata": meta("wf"), "spec": {}}]
    found[kinds.NNF_STORAGE] = [owned("wf-0")]
    found[kinds.NNF_NODE_STORAGE] = [share()]
    found[kinds.CLIENT_MOUNT] = [
        owned(
            "mount",
            "n0",
            node="n0",
            desiredState="mounted",
            mounts=[{"mountPath": "/m", "type": "xfs", "device": {"type": "lvm"}}],
        )
    ]
    by_plural = {kind.plural: kind for kind in found}
    for plural, each in more.items():
        found[by_plural[plural]] = each
    return found


ALL = NodeInventory(
    volumes=frozenset({("r0", "uid-share-0"), ("r0", "uid-share-1")}),
    mounts=frozenset({("n0", "/m")}),
    processes={17: "ƒA"},
)
NOTHING = NodeInventory(processes={})


def test_what_a_workflow_owns_is_not_found() -> None:
    assert audit.orphans(ALL, objects(), {"ƒA"}) == []


def test_what_should_be_there_and_is_not_is_no_finding() -> None:
    assert audit.orphans(NOTHING, objects(), {"ƒA"}) == []


@pytest.mark.parametrize(
    ("on_nodes", "sort", "where", "name"),
    [
        (NodeInventory(volumes=frozenset({("r0", "uid-share-2")}), processes={}),
         FindingType.VOLUME, "r0", "uid-share-2"),
        (NodeInventory(volumes=frozenset({("r1", "uid-share-0")}), processes={}),
         FindingType.VOLUME, "r1", "uid-share-0"),
        (
            NodeInventory(mounts=frozenset({("n0", "/other")}), processes={}),
            FindingType.MOUNT,
            "n0",
            "/other",
        ),
        (NodeInventory(mounts=frozenset({("n1", "/m")}), processes={}),
         FindingType.MOUNT, "n1", "/m"),
        (NodeInventory(devices=frozenset({("r0", "/dev/loop7")}), processes={}),
         FindingType.DEVICE, "r0", "/dev/loop7"),
        (NodeInventory(processes={17: "ƒB"}), FindingType.PROCESS, "", "17"),
    ],
)  # fmt: skip
def test_what_no_object_asks_for_is_found(
    on_nodes: NodeInventory, sort: FindingType, where: str, name: str
) -> None:
    (found,) = audit.orphans(on_nodes, objects(), {"ƒA"})

    assert (found.type, found.where, found.name) == (sort, where, name)


def test_objects_of_a_workflow_that_is_gone_are_found_owners_first() -> None:
    found = audit.orphans(NOTHING, objects(workflows=[]), {"ƒA"})

    assert [each.where for each in found] == ["NnfStorage", "NnfNodeStorage", "ClientMount"]
    assert found[0].why == "the Workflow wf does not exist"


def test_a_workflow_of_the_same_name_does_not_own_what_its_predecessor_left() -> None:
    again = {"metadata": {**meta("wf"), "uid": "another"}, "spec": {}}
    found = audit.orphans(NOTHING, objects(workflows=[again]), {"ƒA"})

    assert len(found) == 3


def test_what_is_being_deleted_still_owns_what_it_has() -> None:
    storage = share()
    storage["metadata"].update(DELETING)

    assert audit.orphans(ALL, objects(nnfnodestorages=[storage]), {"ƒA"}) == []


def test_persistent_storage_is_its_instances_and_no_workflows() -> None:
    """dws-spec section 7: it outlives the Workflow that has made it."""
    carried = {labels.PERSISTENT_NAME: "pers", labels.PERSISTENT_NAMESPACE: "default"}
    part = {"metadata": meta("pers", labels=carried), "spec": {}}
    instance = {"metadata": meta("pers"), "spec": {}}

    there = objects(nnfstorages=[part], persistentstorageinstances=[instance])
    assert audit.orphans(ALL, there, {"ƒA"}) == []
    (found,) = audit.orphans(ALL, objects(nnfstorages=[part]), {"ƒA"})
    assert (found.name, found.why) == (
        "default/pers",
        "the persistent storage default/pers does not exist",
    )


def test_an_object_that_was_found_is_removed_and_no_other_of_its_name() -> None:
    found = audit.orphans(NOTHING, objects(workflows=[]), set())

    removal = Remove(kind=kinds.NNF_NODE_STORAGE, key=Key("r0", "share"), uid="uid-share")
    assert audit.removal(found[1]) == removal


def test_what_comes_or_goes_between_two_looks_is_not_there_still() -> None:
    before = NodeInventory(
        volumes=frozenset({("r0", "a"), ("r0", "b")}),
        mounts=frozenset({("n0", "/a"), ("n0", "/b")}),
        processes={1: "ƒA", 2: "ƒA", 3: "ƒA"},
    )
    after = NodeInventory(
        volumes=frozenset({("r0", "b"), ("r0", "c")}),
        mounts=frozenset({("n0", "/b"), ("n0", "/c")}),
        processes={2: "ƒA", 3: "ƒB", 4: "ƒA"},
    )

    assert before.intersection(after) == NodeInventory(
        volumes=frozenset({("r0", "b")}),
        mounts=frozenset({("n0", "/b")}),
        processes={2: "ƒA"},
    )


def test_what_is_to_go_is_what_is_deleted_or_asked_to_be_unmounted() -> None:
    assert audit.pending_removal(objects()) == audit.PendingRemoval(volumes={}, mounts={})

    storage = share()
    storage["metadata"].update(DELETING)
    storage["spec"]["userID"] = 1001
    (mount,) = objects()[kinds.CLIENT_MOUNT]
    unmounted = {**mount, "spec": {**mount["spec"], "desiredState": "unmounted"}}

    assert audit.pending_removal(
        objects(nnfnodestorages=[storage], clientmounts=[unmounted])
    ) == audit.PendingRemoval(
        volumes={("r0", "uid-share-0"): 1001, ("r0", "uid-share-1"): 1001},
        mounts={("n0", "/m"): 0},
    )


def to_go(message: str, severity: str) -> dict[Kind, list[Object]]:
    """Return the objects of a job of which a rabbit does not give back the volumes."""
    storage = share()
    storage["metadata"].update(DELETING)
    storage["spec"] |= {"userID": 1001, "capacity": 8 * MIB}
    storage["status"] = {"error": error(message, severity)}
    job = {"jobID": "ƒA", "desiredState": "Teardown"}
    computes = {"metadata": meta("wf"), "data": [{"name": "n0"}, {"name": "n1"}]}
    found = objects(nnfnodestorages=[storage], computes=[computes])
    return found | {kinds.WORKFLOW: [{"metadata": meta("wf"), "spec": job}]}


def test_a_volume_that_is_waited_for_is_not_overdue() -> None:
    assert audit.overdue_volumes(objects()) == []
    assert (
        audit.overdue_volumes(to_go("r0/uid-share-0 is in use by process 7 (sh of ada)", "Minor"))
        == []
    )


def test_a_volume_that_is_kept_by_an_unknown_process_is_told_with_all_that_helps() -> None:
    (late,) = audit.overdue_volumes(to_go("something has it open", "Major"))
    found = audit.overdue_finding(late, late.names[1], "ada", "process 7 (sh of ada)")

    assert (found.type, found.where, found.name) == (FindingType.VOLUME, "r0", "uid-share-1")
    assert found.why == (
        "8.00 MiB of ada (user 1001, job ƒA) are to go, and no process is seen to keep them: "
        "something has it open. End the processes of ada on n[0-1],r0, or restart these nodes; "
        "any of these may keep it: process 7 (sh of ada)"
    )


def test_a_volume_whose_workflow_is_gone_and_whose_user_has_no_process_is_told_all_the_same() -> (
    None
):
    (late,) = audit.overdue_volumes(to_go("something has it open", "Major") | {kinds.WORKFLOW: []})

    assert audit.overdue_finding(late, late.names[0], "user 1001", "").why == (
        "8.00 MiB of user 1001 (user 1001) are to go, and no process is seen to keep them: "
        "something has it open. End the processes of user 1001 on r0, or restart these nodes"
    )
