"""Commands of a profile on what agents read: the shares of rabbits, and the mounts of nodes."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from tests.dws.builders import meta
from warren.base.objects import Create, Object, Write
from warren.dws import commandlines, kinds, labels
from warren.dws.access import clientmounts, nnfaccess
from warren.dws.access.accesssnapshot import AccessSnapshot
from warren.dws.faults import Fault
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.assignments import Computes
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfNodeStorage, NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.storage import nnfstorage

MKFS = "data.xfsStorage.fileSystemCommands.rabbitCommands.mkfs"
MOUNT = "data.xfsStorage.fileSystemCommands.{}Commands.mount"


def profile(**data: Any) -> NnfStorageProfile:
    return read({"metadata": meta("p"), "data": {"xfsStorage": data}}, NnfStorageProfile)


COMMANDS = {
    "fileSystemCommands": {
        "rabbitCommands": {"mkfs": "-L $JOBID $DEVICE", "mount": "-o ro $DEVICE $MOUNT_PATH"},
        "computeCommands": {"mount": "$DEVICE $MOUNT_PATH", "unmount": "$MOUNT_PATH"},
    }
}


def made_storage() -> NnfStorage:
    each = {
        "name": "xfs",
        "capacity": 2**30,
        "commandVariables": [{"name": "$JOBID", "value": "f7"}],
        "nodes": [{"name": "r0", "count": 1}],
    }
    spec = {"fileSystemType": "xfs", "userID": 5, "groupID": 5, "allocationSets": [each]}
    return read({"metadata": meta("wf-0"), "spec": spec}, NnfStorage)


def created(writes: Sequence[Write], kind: Any) -> list[Object]:
    return [each.object for each in writes if isinstance(each, Create) and each.kind == kind]


def share(of: NnfStorageProfile | None) -> Object:
    (found,) = created(nnfstorage.decide(made_storage(), [], [], of), kinds.NNF_NODE_STORAGE)
    return found


def test_a_share_has_the_commands_of_its_profile_with_values_and_its_flash_has_none() -> None:
    writes = nnfstorage.decide(made_storage(), [], [], profile(**COMMANDS))
    (found,) = created(writes, kinds.NNF_NODE_STORAGE)
    said = commandlines.decode(found["metadata"]["annotations"][labels.COMMANDS])
    assert said.file_system == "xfs"
    assert said.lines[MKFS] == ("-L $JOBID $DEVICE",)
    assert said.variables == {"$ALLOCATION_COUNT": "1", "$HOST_COUNT": "2", "$JOBID": "f7"}
    (flash,) = created(writes, kinds.NNF_NODE_BLOCK_STORAGE)
    assert "annotations" not in flash["metadata"]


@pytest.mark.parametrize("of", [None, profile(), profile(userCommands={"postSetup": []})])
def test_a_share_of_a_profile_without_commands_says_nothing(of: NnfStorageProfile | None) -> None:
    assert "annotations" not in share(of)["metadata"]


def test_a_pinned_profile_that_was_made_wrong_is_told_of_with_its_place() -> None:
    wrong = profile(userCommands={"postSetup": 5})
    (change,) = nnfstorage.decide(made_storage(), [], [], wrong)
    error = change.patch["status"]["error"]  # type: ignore[union-attr]
    assert "data.xfsStorage.userCommands.postSetup" in error["debugMessage"]
    told = read(
        {"metadata": meta("wf-0"), "spec": {"fileSystemType": "xfs", "allocationSets": [
            {"name": "xfs", "capacity": 1, "nodes": [{"name": "r0", "count": 1}]}]},
         "status": {"error": error}}, NnfStorage,
    )  # fmt: skip
    assert list(nnfstorage.decide(told, [], [], wrong)) == []


@pytest.mark.parametrize(
    ("target", "node", "side"), [("single", "n0", "compute"), ("all", "r0", "rabbit")]
)
def test_a_mount_has_the_commands_of_its_side_alone(target: str, node: str, side: str) -> None:
    own = share(profile(**COMMANDS))
    own["metadata"]["uid"] = "u"
    # A rabbit's agent may write this, and would be root on all nodes by it.
    evil = MOUNT.format(side)
    own["metadata"]["annotations"][labels.COMMANDS] = commandlines.encode(
        commandlines.collect("xfs", [(evil, "sh -c evil"), (f"{evil}.preMount", "evil")], {})
    )
    reference = {"kind": "NnfStorage", "name": "wf-0", "namespace": "default"}
    spec = {
        "desiredState": "mounted", "target": target, "mountPath": "/mnt/nnf/u-0",
        "storageReference": reference,
    }  # fmt: skip
    rabbits = [{"name": "r0", "computesAccess": [{"name": "n0"}]}]
    configuration = {"metadata": meta("default"), "spec": {"storageNodes": rabbits}}
    snapshot = AccessSnapshot(
        access=read({"metadata": meta("wf-0-x"), "spec": spec}, NnfAccess),
        storage=made_storage(),
        node_storages=[read(own, NnfNodeStorage)],
        computes=read({"metadata": meta("wf"), "data": [{"name": "n0"}]}, Computes),
        configuration=read(configuration, SystemConfiguration),
        mounts=[],
        profile=profile(**COMMANDS),
    )
    (mount,) = created(nnfaccess.decide(snapshot), kinds.CLIENT_MOUNT)
    assert mount["metadata"]["namespace"] == node
    said = commandlines.decode(mount["metadata"]["annotations"][labels.COMMANDS])
    assert MOUNT.format(side) in said.lines
    assert not any(f".{other}Commands." in path for path in said.lines
                   for other in ("rabbit", "compute") if other != side)  # fmt: skip
    assert said.variables == {"$JOBID": "f7"}
    assert "evil" not in str(said)


def test_nothing_is_mounted_before_the_profile_of_the_storage_is_seen() -> None:
    pinned = {labels.PINNED_PROFILE_NAME: "wf-0"}
    made = made_storage()
    carried = msgspec.structs.replace(made.metadata, labels=pinned)
    with pytest.raises(Fault, match="the profile of the storage is not there yet"):
        clientmounts._commands(msgspec.structs.replace(made, metadata=carried), None)
