"""What is left over from an owner that is gone: removed once the API itself says that it is."""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.controllers.alone import Api, alone, informed, owned_by
from tests.dws.builders import DELETING, meta
from warren.base.objects import Key, Kind
from warren.controllers.access import AccessController
from warren.controllers.storage import StorageController
from warren.controllers.workflow import WorkflowController
from warren.dws import kinds, labels

Reconcile = Callable[[Key], Awaitable[float | None]]


def access(api: Api) -> Reconcile:
    return AccessController(api, api.informers).reconcile


def storage(api: Api) -> Reconcile:
    return StorageController(api, api.informers, api.clock).reconcile


def workflow(api: Api) -> Reconcile:
    return WorkflowController(api, api.informers, api.clock, "/mnt").reconcile


OWNERS = [
    (access, kinds.NNF_ACCESS, kinds.CLIENT_MOUNT),
    (storage, kinds.NNF_STORAGE, kinds.NNF_NODE_STORAGE),
    (storage, kinds.NNF_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE),
    (workflow, kinds.WORKFLOW, kinds.NNF_DATA_MOVEMENT),
]
EACH = pytest.mark.parametrize(("make", "owner", "kind"), OWNERS)
KEY = Key("default", "wf")


async def leave(api: Api, owner: Kind, kind: Kind, name: str, **more: object) -> None:
    """Make something that carries the owner's labels."""
    metadata = meta(name, "r0", labels=owned_by(owner, "wf"), **more)
    await api.add(kind, {"metadata": metadata, "spec": {}})


@EACH
def test_what_an_owner_left_behind_is_removed(
    make: Callable[[Api], Reconcile], owner: Kind, kind: Kind
) -> None:
    async def story(api: Api) -> None:
        reconcile = make(api)
        await leave(api, owner, kind, "a")
        await leave(api, owner, kind, "b")
        async with informed(api):
            await reconcile(KEY)

        assert ("get", owner) in api.asked
        assert api.keys(kind) == []

    alone(story)


@EACH
def test_what_has_an_owner_that_was_not_seen_yet_is_left_alone(
    make: Callable[[Api], Reconcile], owner: Kind, kind: Kind
) -> None:
    async def story(api: Api) -> None:
        reconcile = make(api)
        await api.add(owner, {"metadata": meta("wf"), "spec": {}})
        await leave(api, owner, kind, "a")
        async with informed(api):
            await reconcile(KEY)

        assert api.asked == [("get", owner)]
        assert api.written == []
        assert api.keys(kind) == ["r0/a"]

    alone(story, hidden=[owner])


@EACH
def test_what_is_on_its_way_out_is_neither_asked_after_nor_removed_again(
    make: Callable[[Api], Reconcile], owner: Kind, kind: Kind
) -> None:
    async def story(api: Api) -> None:
        reconcile = make(api)
        await leave(api, owner, kind, "a", finalizers=["agent"], **DELETING)
        async with informed(api):
            await reconcile(KEY)

        assert api.asked == []
        assert api.written == []

    alone(story)


def test_only_what_is_the_owners_is_removed() -> None:
    async def story(api: Api) -> None:
        reconcile = access(api)
        await leave(api, kinds.NNF_ACCESS, kinds.CLIENT_MOUNT, "a")
        other = meta("b", "r0", labels=owned_by(kinds.NNF_ACCESS, "other"))
        await api.add(kinds.CLIENT_MOUNT, {"metadata": other, "spec": {}})
        async with informed(api):
            await reconcile(KEY)

        assert api.keys(kinds.CLIENT_MOUNT) == ["r0/b"]

    alone(story)


@pytest.mark.parametrize(
    ("make", "owner", "kind", "finalizer"),
    [
        (access, kinds.NNF_ACCESS, kinds.CLIENT_MOUNT, labels.ACCESS_FINALIZER),
        (storage, kinds.NNF_STORAGE, kinds.NNF_NODE_STORAGE, labels.STORAGE_FINALIZER),
        (storage, kinds.NNF_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE, labels.STORAGE_FINALIZER),
    ],
)
@pytest.mark.parametrize("left", [True, False])
def test_who_is_about_to_let_go_looks_for_what_was_not_seen_yet(
    make: Callable[[Api], Reconcile], owner: Kind, kind: Kind, finalizer: str, left: bool
) -> None:
    async def story(api: Api) -> None:
        reconcile = make(api)
        metadata = meta("wf", finalizers=[finalizer], **DELETING)
        spec = {
            "desiredState": "mounted",
            "target": "all",
            "mountPath": "/mnt",
            "fileSystemType": "xfs",
            "allocationSets": [],
            "storageReference": {"name": "wf", "namespace": "default"},
        }
        made = await api.add(owner, {"metadata": metadata, "spec": spec})
        if left:
            own = owned_by(owner, "wf", made["metadata"]["uid"])
            child = meta("default-wf", "r0", labels=own, finalizers=["agent"])
            mounts: dict[str, Any] = {"node": "r0", "desiredState": "mounted", "mounts": []}
            mounts |= {"count": 1, "capacity": 1, "fileSystemType": "xfs"}
            await api.add(kind, {"metadata": child, "spec": mounts})
        async with informed(api):
            delay = await reconcile(KEY)

        assert ("list", kind) in api.asked
        if left:
            # News of it may never come: it is looked for again.
            assert delay == 5
            assert api.written == [("delete", kind, Key("r0", "default-wf"))]
            assert api.find(owner, KEY) is not None
        else:
            assert delay is None
            assert api.find(owner, KEY) is None

    alone(story, hidden=[kind])
