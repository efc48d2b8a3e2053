"""Who mounts a Lustre file system, and where: one mount for each of its clients."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.dws.accesses import seen
from tests.dws.builders import (
    COPY_IN,
    COPY_OUT,
    changes,
    computes,
    lustre,
    made,
    meta,
    nnf_access,
    workflow,
)
from warren.base.objects import Object, Write
from warren.directives.parse import parse
from warren.dws import kinds, labels
from warren.dws.access.accesssnapshot import AccessSnapshot
from warren.dws.access.nnfaccess import decide
from warren.dws.copies.datamovement import movements
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Reference
from warren.dws.objects.nnfstorages import NnfNodeStorage, NnfStorage
from warren.dws.storage import nnfstorage
from warren.dws.storage.nnfstorage import LustreAddress

SETS: Mapping[str, Sequence[str]] = {"mgt": ["r2"], "mdt": ["r0"], "ost": ["r0", "r1", "r0"]}
SERVED = LustreAddress("10.0.0.1@tcp", "aaaaaaab")


def stored(name: str = SERVED.file_system_name) -> NnfStorage:
    sets = [
        {"name": label, "capacity": 1, "nodes": [{"name": each, "count": 1} for each in rabbits]}
        for label, rabbits in SETS.items()
    ]
    spec = {"fileSystemType": "lustre", "userID": 1, "groupID": 2, "allocationSets": sets}
    status = {"ready": True, "fileSystemName": name, "mgsAddress": SERVED.mgs_address}
    return read({"metadata": meta("wf-0"), "spec": spec, "status": status}, NnfStorage)


def view(access: NnfAccess, name: str = SERVED.file_system_name, **more: Any) -> AccessSnapshot:
    found = stored(name)
    every = nnfstorage.wanted_shares(found, None, SERVED).values()
    shares = [read({**obj, "status": {"ready": True}}, NnfNodeStorage) for obj, _ in every]
    return seen(access, storage=found, node_storages=shares, **more)


def mounts(writes: Sequence[Write]) -> dict[str, list[Object]]:
    """Return the mounts of each node."""
    return {
        obj["metadata"]["namespace"]: obj["spec"]["mounts"]
        for obj in made(writes, kinds.CLIENT_MOUNT)
    }


def test_each_compute_node_has_one_mount_of_the_whole_file_system() -> None:
    found = mounts(decide(view(nnf_access(), computes=computes("n0", "n1"))))

    assert {*found} == {"n0", "n1"}
    for (mount,) in found.values():
        assert (mount["mountPath"], mount["type"]) == ("/mnt/nnf/uid-wf-0", "lustre")
        assert mount["device"]["lustre"] == {
            "fileSystemName": "aaaaaaab",
            "mgsAddresses": "10.0.0.1@tcp",
        }
        # Its root directory is given to its owner by the rabbits.
        assert mount["setPermissions"] is False


def test_rabbits_mount_it_that_have_osts() -> None:
    found = mounts(decide(view(nnf_access("servers"))))
    assert {name: len(each) for name, each in found.items()} == {"r0": 1, "r1": 1}


def test_rabbits_mount_persistent_storage_whichever_nodes_it_is_for() -> None:
    """Each of them has all of it."""
    access = nnf_access("servers")
    clients = Reference(kind="Computes", name="wf", namespace="default")
    spec = msgspec.structs.replace(access.spec, client_reference=clients)
    named = msgspec.structs.replace(access, spec=spec)
    found = mounts(decide(view(named, computes=computes("n0"))))
    assert {*found} == {"r0", "r1"}


@pytest.mark.parametrize("clients", ["computes", "servers"])
def test_a_file_system_without_a_name_is_waited_for(clients: str) -> None:
    writes = decide(view(nnf_access(clients), name=""))
    assert mounts(writes) == {}
    (patch,) = changes(writes, kinds.NNF_ACCESS)
    assert patch["status"]["error"]["userMessage"] == "the file system has no name yet"
    assert patch["status"]["error"]["severity"] == "Minor"


def test_an_access_that_makes_no_mounts_makes_none() -> None:
    access = nnf_access()
    spec = msgspec.structs.replace(access.spec, make_client_mounts=False)
    writes = decide(view(msgspec.structs.replace(access, spec=spec)))
    assert mounts(writes) == {}
    (patch,) = [each for each in changes(writes, kinds.NNF_ACCESS) if "status" in each]
    assert patch["status"]["ready"]


# Copies to and from it


@pytest.mark.parametrize(
    ("line", "annotation", "end"),
    [
        (COPY_IN, labels.DESTINATION_STORAGE, "destination"),
        (COPY_OUT, labels.SOURCE_STORAGE, "source"),
    ],
)
def test_one_rabbit_copies_to_or_from_its_root(line: str, annotation: str, end: str) -> None:
    """dws-spec section 11: it has no index directories, and all rabbits mount all of it."""
    (found,) = movements(workflow(line), 1, parse(line), stored(), [lustre()], "/mnt/nnf/uid-wf-0")
    assert (found["metadata"]["namespace"], found["metadata"]["name"]) == ("r0", "wf-1-0")
    assert found["metadata"]["annotations"] == {annotation: "/mnt/nnf/uid-wf-0"}
    assert found["spec"][end]["path"].startswith("/mnt/nnf/uid-wf-0/")
    assert "/r0-" not in found["spec"][end]["path"]
