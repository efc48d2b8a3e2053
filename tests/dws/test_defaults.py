"""What an object says that says nothing: that it is not ready, and asks for nothing."""

from typing import Any

import pytest

from tests.dws.builders import meta
from warren.dws.objects.accesses import ClientMount, NnfAccess
from warren.dws.objects.datamovements import NnfDataMovement
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfNodeStorage, NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.storages import NnfNode, Storage
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.workflows import Workflow

REFERENCE = {"name": "s"}
PLACE = {"path": "/a"}
SPECS: list[tuple[type[Any], dict[str, Any]]] = [
    (Workflow, {"desiredState": "Proposal"}),
    (Storage, {}),
    (SystemConfiguration, {}),
    (NnfStorage, {"fileSystemType": "xfs"}),
    (NnfNodeStorage, {"count": 1, "capacity": 1, "fileSystemType": "xfs"}),
    (NnfNodeBlockStorage, {}),
    (
        NnfAccess,
        {"desiredState": "m", "target": "all", "mountPath": "/m", "storageReference": REFERENCE},
    ),
    (ClientMount, {"node": "n", "desiredState": "mounted", "mounts": []}),
    (NnfDataMovement, {"source": PLACE, "destination": PLACE}),
    (NnfNode, {}),
]


@pytest.mark.parametrize(("kind", "spec"), SPECS)
def test_what_is_not_said_is_no_and_none(kind: type[Any], spec: dict[str, Any]) -> None:
    found = read({"metadata": meta("x"), "spec": spec}, kind)

    for name in ("ready", "all_ready", "reboot_required", "fenced"):
        assert getattr(found.status, name, False) is False, name
    for name in ("capacity", "restarts"):
        assert getattr(found.status, name, 0) == 0, name
    asked = getattr(found, "spec", None)
    for name in ("hurry", "force_ready", "cancel"):
        assert getattr(asked, name, False) is False, name
    for name in ("user_id", "group_id", "job_id"):
        assert getattr(asked, name, 0) == 0, name


def test_a_profile_is_neither_the_default_nor_pinned_unless_it_says_so() -> None:
    data = read({"metadata": meta("p"), "data": {}}, NnfStorageProfile).data
    assert (data.default, data.pinned) == (False, False)


def test_a_mount_that_does_not_say_so_is_not_ready() -> None:
    mount = {"mountPath": "/m", "type": "xfs", "device": {"type": "lvm"}}
    spec = {"node": "n", "desiredState": "mounted", "mounts": [mount]}
    status = {"allReady": True, "mounts": [{"state": "mounted"}]}
    found = read({"metadata": meta("m"), "spec": spec, "status": status}, ClientMount)
    assert not found.all_in("mounted")
    assert found.spec.mounts[0].user_id == 0
