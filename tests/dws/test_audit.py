"""What nothing owns: found among what is owned, and nothing else."""

from typing import Any

import pytest

from tests.dws.builders import DELETING, meta
from warren.base.objects import Key, Kind, Object
from warren.dws import audit, kinds, labels
from warren.dws.audit import OnNodes, Sort


def owned(name: str, namespace: str = "default", **spec: Any) -> dict[str, Any]:
    """Make an object of the one Workflow that there is."""
    carried = {labels.WORKFLOW_UID: "uid-wf", labels.WORKFLOW_NAME: "wf"}
    return {"metadata": meta(name, namespace, labels=carried), "spec": spec}


def share() -> dict[str, Any]:
    return owned("share", "r0", count=2, capacity=1, fileSystemType="xfs")


def objects(**more: list[Object]) -> dict[Kind, list[Object]]:
    """Give what a Workflow with two volumes on a rabbit and a mount on a node consists of."""
    found: dict[Kind, list[Object]] = {kind: [] for kind in audit.DEPENDENTS}
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


ALL = OnNodes(
    volumes=frozenset({("r0", "uid-share-0"), ("r0", "uid-share-1")}),
    mounts=frozenset({("n0", "/m")}),
    processes={17: "ƒA"},
)
NOTHING = OnNodes(processes={})


def test_what_a_workflow_owns_is_not_found() -> None:
    assert audit.unowned(ALL, objects(), {"ƒA"}) == []


def test_what_should_be_there_and_is_not_is_no_finding() -> None:
    assert audit.unowned(NOTHING, objects(), {"ƒA"}) == []


@pytest.mark.parametrize(
    ("on_nodes", "sort", "where", "name"),
    [
        (OnNodes(volumes=frozenset({("r0", "uid-share-2")}), processes={}),
         Sort.VOLUME, "r0", "uid-share-2"),
        (OnNodes(volumes=frozenset({("r1", "uid-share-0")}), processes={}),
         Sort.VOLUME, "r1", "uid-share-0"),
        (OnNodes(mounts=frozenset({("n0", "/other")}), processes={}), Sort.MOUNT, "n0", "/other"),
        (OnNodes(mounts=frozenset({("n1", "/m")}), processes={}), Sort.MOUNT, "n1", "/m"),
        (OnNodes(devices=frozenset({("r0", "/dev/loop7")}), processes={}),
         Sort.DEVICE, "r0", "/dev/loop7"),
        (OnNodes(processes={17: "ƒB"}), Sort.PROCESS, "", "17"),
    ],
)  # fmt: skip
def test_what_no_object_asks_for_is_found(
    on_nodes: OnNodes, sort: Sort, where: str, name: str
) -> None:
    (found,) = audit.unowned(on_nodes, objects(), {"ƒA"})

    assert (found.sort, found.where, found.name) == (sort, where, name)


def test_objects_of_a_workflow_that_is_gone_are_found_owners_first() -> None:
    found = audit.unowned(NOTHING, objects(workflows=[]), {"ƒA"})

    assert [each.where for each in found] == ["NnfStorage", "NnfNodeStorage", "ClientMount"]
    assert found[0].why == "the Workflow wf does not exist"


def test_a_workflow_of_the_same_name_does_not_own_what_its_predecessor_left() -> None:
    again = {"metadata": {**meta("wf"), "uid": "another"}, "spec": {}}
    found = audit.unowned(NOTHING, objects(workflows=[again]), {"ƒA"})

    assert len(found) == 3


def test_what_is_being_deleted_still_owns_what_it_has() -> None:
    storage = share()
    storage["metadata"].update(DELETING)

    assert audit.unowned(ALL, objects(nnfnodestorages=[storage]), {"ƒA"}) == []


def test_an_object_that_was_found_can_be_named_to_the_api() -> None:
    found = audit.unowned(NOTHING, objects(workflows=[]), set())

    assert audit.key(found[1]) == (kinds.NNF_NODE_STORAGE, Key("r0", "share"))


def test_what_comes_or_goes_between_two_looks_is_not_there_still() -> None:
    before = OnNodes(
        volumes=frozenset({("r0", "a"), ("r0", "b")}),
        mounts=frozenset({("n0", "/a"), ("n0", "/b")}),
        processes={1: "ƒA", 2: "ƒA", 3: "ƒA"},
    )
    after = OnNodes(
        volumes=frozenset({("r0", "b"), ("r0", "c")}),
        mounts=frozenset({("n0", "/b"), ("n0", "/c")}),
        processes={2: "ƒA", 3: "ƒB", 4: "ƒA"},
    )

    assert before.still(after) == OnNodes(
        volumes=frozenset({("r0", "b")}),
        mounts=frozenset({("n0", "/b")}),
        processes={2: "ƒA"},
    )


def test_what_is_to_go_is_what_is_deleted_or_asked_to_be_unmounted() -> None:
    assert audit.going(objects()) == audit.Going(volumes=frozenset(), mounts=frozenset())

    storage = share()
    storage["metadata"].update(DELETING)
    (mount,) = objects()[kinds.CLIENT_MOUNT]
    unmounted = {**mount, "spec": {**mount["spec"], "desiredState": "unmounted"}}

    assert audit.going(objects(nnfnodestorages=[storage], clientmounts=[unmounted])) == audit.Going(
        volumes=frozenset({("r0", "uid-share-0"), ("r0", "uid-share-1")}),
        mounts=frozenset({("n0", "/m")}),
    )
