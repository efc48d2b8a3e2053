"""Which nodes mount the storage of an NnfAccess, and where."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.dws.accesses import copying, lasting, losing, mounting, seen, status, storage_held
from tests.dws.builders import (
    changes,
    client_mount,
    computes,
    configuration,
    made,
    nnf_access,
    nnf_storage,
    settled,
    share,
    workflow,
)
from warren.base.objects import Key, key_of
from warren.dws import kinds, labels
from warren.dws.access.nnfaccess import decide
from warren.dws.objects.accesses import ClientMount, NnfAccessStatus
from warren.dws.objects.decoding import read
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.persistent.sharing import PRIVATE, Sharing


def test_each_compute_mounts_the_next_allocation_of_its_own_rabbit() -> None:
    assert mounting(decide(seen(nnf_access()))) == {
        "n0": [("/mnt/nnf/uid-wf-0", "r0/uid-default-wf-0-xfs-0-0")],
        "n1": [("/mnt/nnf/uid-wf-0", "r0/uid-default-wf-0-xfs-0-1")],
        "n2": [("/mnt/nnf/uid-wf-0", "r1/uid-default-wf-0-xfs-0-0")],
    }


def test_each_rabbit_mounts_all_its_allocations_in_index_directories() -> None:
    found = mounting(decide(seen(nnf_access("servers"), computes=None)))
    assert {node: [path for path, _ in mounts] for node, mounts in found.items()} == {
        "r0": ["/mnt/nnf/uid-wf-0/r0-0", "/mnt/nnf/uid-wf-0/r0-1"],
        "r1": ["/mnt/nnf/uid-wf-0/r1-0"],
    }


def test_a_rabbit_that_is_listed_twice_numbers_its_allocations_on() -> None:
    twice = [share("r0", 1, number=1), share("r0", 2, number=0)]
    storage = nnf_storage(("r0", 2), ("r0", 1), ready=True)
    found = mounting(decide(seen(nnf_access("servers"), storage=storage, node_storages=twice)))
    assert found["r0"] == [
        ("/mnt/nnf/uid-wf-0/r0-0", "r0/uid-default-wf-0-xfs-0-0"),
        ("/mnt/nnf/uid-wf-0/r0-1", "r0/uid-default-wf-0-xfs-0-1"),
        ("/mnt/nnf/uid-wf-0/r0-2", "r0/uid-default-wf-0-xfs-1-0"),
    ]


def test_a_client_mount_is_in_its_nodes_namespace_and_says_what_nnf_says() -> None:
    obj = made(decide(seen(nnf_access(), computes=computes("n1"))), kinds.CLIENT_MOUNT)[0]

    assert key_of(obj) == Key("n1", "default-wf-0-computes")
    assert obj["metadata"]["finalizers"] == [labels.CLIENT_MOUNT_FINALIZER]
    assert (obj["spec"]["node"], obj["spec"]["desiredState"]) == ("n1", "mounted")
    (mount,) = obj["spec"]["mounts"]
    assert (mount["type"], mount["targetType"], mount["userID"]) == ("xfs", "directory", 1001)
    assert mount["device"]["type"] == "lvm"
    assert mount["device"]["deviceReference"] == {
        "objectReference": {
            "kind": "NnfNodeStorage",
            "name": "default-wf-0-xfs-0",
            "namespace": "r0",
        },
    }


def test_a_client_mount_says_whose_storage_it_mounts_and_which_allocation() -> None:
    """dws-spec section 0.1, 8: what is copied has another directive than the storage."""
    of_job = labels.of_workflow(workflow(), 0) | labels.of_owner(
        kinds.WORKFLOW, workflow().metadata
    )
    storage = nnf_storage(("r0", 2), ("r1", 1), metadata={"labels": of_job})
    obj = made(decide(seen(nnf_access(), storage=storage)), kinds.CLIENT_MOUNT)[1]

    assert obj["metadata"]["labels"][labels.TARGET_INDEX] == "0"
    assert obj["metadata"]["labels"][labels.TARGET_OWNER] == "uid-wf"
    assert obj["spec"]["mounts"][0]["device"]["deviceReference"]["data"] == 1


BOB = Sharing(users=frozenset({5}))
OF_BOB = {labels.SHARED_WITH: "uid:5"}


def noted(mount: ClientMount, annotations: dict[str, str]) -> ClientMount:
    return replace(mount, metadata=replace(mount.metadata, annotations=annotations))


def test_client_mounts_of_shared_storage_say_with_whom_and_others_say_nothing() -> None:
    writes = decide(seen(nnf_access(), storage=lasting(), sharing=BOB))
    told = [each["metadata"].get("annotations") for each in made(writes, kinds.CLIENT_MOUNT)]
    assert told == [OF_BOB] * 3
    own = made(decide(seen(nnf_access())), kinds.CLIENT_MOUNT)
    assert all("annotations" not in each["metadata"] for each in own)


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize(("sharing", "text"), [(PRIVATE, ""), (BOB, "uid:5")])
def test_nodes_that_have_storage_mounted_are_told_with_whom_it_is_shared_since(
    sharing: Sharing, text: str, lost: bool
) -> None:
    """Mounted again by a node, it would let in whom the list named when the job began."""
    access = losing("computes", "n0") if lost else nnf_access()
    access = replace(access, status=NnfAccessStatus(state="mounted", ready=True))
    old = {labels.SHARED_WITH: "uid:4", "theirs": "x"}
    mounts = [noted(client_mount(node, **settled("mounted")), old) for node in ("n0", "n1", "n2")]
    view = {"storage": lasting(), "sharing": sharing}

    writes = decide(seen(access, *mounts, **view))

    told = {labels.SHARED_WITH: text}
    assert changes(writes, kinds.CLIENT_MOUNT) == [{"metadata": {"annotations": told}}] * 3
    assert changes(writes, kinds.NNF_ACCESS) == []  # it is as ready as before
    after = [noted(each, old | told) for each in mounts]
    assert changes(decide(seen(access, *after, **view)), kinds.CLIENT_MOUNT) == []


def test_what_is_mounted_again_is_so_with_the_list_of_then() -> None:
    old = noted(client_mount("n0", "unmounted", **settled("unmounted")), {labels.SHARED_WITH: ""})
    view = {"storage": lasting(), "sharing": BOB, "computes": computes("n0")}

    (patch,) = changes(decide(seen(nnf_access(), old, **view)), kinds.CLIENT_MOUNT)
    assert patch["metadata"]["annotations"] == OF_BOB
    assert patch["spec"]["desiredState"] == "mounted"


def test_what_is_unmounted_is_told_no_list() -> None:
    old = noted(client_mount("n0", "unmounted", **settled("unmounted")), {labels.SHARED_WITH: ""})
    view = {"storage": lasting(), "sharing": BOB}
    writes = decide(seen(nnf_access(desired="unmounted"), old, **view))
    assert changes(writes, kinds.CLIENT_MOUNT) == []


@pytest.mark.parametrize(
    ("others", "message", "severity", "type_"),
    [
        ({"computes": None}, "the job's Computes are not there yet", "Minor", "Internal"),
        ({"configuration": None}, "the job's Computes are not there yet", "Minor", "Internal"),
        (
            {"computes": computes("stray")},
            "compute node stray is wired to no rabbit",
            "Fatal",
            "WLM",
        ),
        (
            {"node_storages": [share("r0", 1), share("r1", 1)]},
            "invalid matching between clients and storage. Too many clients for storage: "
            "r0 has no allocation for n1",
            "Fatal",
            "WLM",
        ),
    ],
)
def test_nodes_and_storage_that_do_not_match_are_a_fault(
    others: dict[str, Any], message: str, severity: str, type_: str
) -> None:
    writes = decide(seen(nnf_access(), **others))
    assert len(writes) == 1
    assert status(writes)["error"] == {
        "userMessage": message,
        "debugMessage": message,
        "type": type_,
        "severity": severity,
    }


def test_rabbits_mount_for_a_copy_what_is_for_the_jobs_nodes_alone() -> None:
    """Others' nodes have theirs mounted (ADR 065). Numbers are those of the allocations."""
    for nodes, paths in {
        ("n0",): {"r0": ["r0-0"]},
        ("n1", "n2"): {"r0": ["r0-1"], "r1": ["r1-0"]},
        ("n1", "n0"): {"r0": ["r0-0", "r0-1"]},
    }.items():
        writes = decide(seen(copying(), storage=lasting(), computes=computes(*nodes)))
        found = mounting(writes)
        assert {
            rabbit: [path.removeprefix("/mnt/nnf/uid-wf-0/") for path, _ in each]
            for rabbit, each in found.items()
        } == paths
        for node in nodes:
            (own,) = mounting(decide(seen(nnf_access(), storage=lasting())))[node]
            assert own[1] in {volume for each in found.values() for _, volume in each}


def had(*nodes: str) -> dict[str, ClientMount]:
    """Return what compute nodes have mounted of storage that outlives jobs."""
    writes = decide(seen(nnf_access(), storage=lasting(), computes=computes(*nodes)))
    found = (read(obj, ClientMount) for obj in made(writes, kinds.CLIENT_MOUNT))
    return {each.spec.node: each for each in found}


def without(node: str) -> SystemConfiguration:
    """Return a SystemConfiguration that a node has left."""
    found = configuration()
    rabbits = tuple(
        replace(
            each,
            computes_access=tuple(own for own in each.computes_access if own.name != node),
        )
        for each in found.spec.storage_nodes
    )
    return replace(found, spec=replace(found.spec, storage_nodes=rabbits))


def test_nothing_is_copied_that_is_not_what_the_jobs_nodes_have_mounted() -> None:
    """n1 has n0's allocation once n0 has left the SystemConfiguration (ADR 053)."""

    def copied(**more: Any) -> Any:
        return decide(seen(copying(), storage=lasting(), computes=computes("n1"), **more))

    assert mounting(copied(mounts_on_computes=had("n1"))) == mounting(copied())
    writes = copied(mounts_on_computes=had("n1"), configuration=without("n0"))

    assert mounting(writes) == {}
    assert status(writes)["error"]["severity"] == "Fatal"
    assert "node n1 has had another allocation of" in status(writes)["error"]["debugMessage"]
    assert mounting(copied(mounts_on_computes={}, configuration=without("n0"))) != {}
    assert mounting(copied(mounts_on_computes=had("n2"), configuration=without("n0"))) != {}


@pytest.mark.parametrize("lacks", ["computes", "configuration"])
def test_a_copy_waits_until_it_is_known_what_its_nodes_are(lacks: str) -> None:
    writes = decide(seen(copying(), storage=lasting(), **{lacks: None}))
    assert status(writes)["error"]["severity"] == "Minor"
    assert len(writes) == 1


def test_a_copy_for_nodes_that_have_no_allocation_is_the_workload_managers_error() -> None:
    storage = lasting()
    few = replace(storage, spec=nnf_storage(("r0", 1)).spec)
    shares = [share("r0", 1)]
    for node, words in {
        "n1": "r0 has no allocation for its compute nodes",
        "n9": "compute node n9 is wired to no rabbit",
    }.items():
        own = computes(node)
        writes = decide(seen(copying(), storage=few, node_storages=shares, computes=own))
        assert words in status(writes)["error"]["debugMessage"]
        assert status(writes)["error"]["type"] == "WLM"
        assert len(writes) == 1


def test_each_allocation_of_persistent_storage_is_one_nodes_in_any_job() -> None:
    """Several jobs mount it at once, and no two nodes may mount the same (ADR 053)."""
    storage = lasting()
    together = mounting(decide(seen(nnf_access(), storage=storage)))

    for node in ("n0", "n1", "n2"):
        alone = mounting(decide(seen(nnf_access(), storage=storage, computes=computes(node))))
        assert alone == {node: together[node]}
    assert together["n0"] != together["n1"]


def test_a_node_that_persistent_storage_has_no_allocation_for_does_not_mount_it() -> None:
    storage = nnf_storage(("r0", 1), ready=True)
    owned = {labels.PERSISTENT_NAME: "pers", **storage.metadata.labels}
    storage = replace(storage, metadata=replace(storage.metadata, labels=owned))
    writes = decide(
        seen(
            nnf_access(),
            storage=storage,
            node_storages=[share("r0", 1)],
            computes=computes("n1"),
        )
    )

    assert "r0 has no allocation for n1" in status(writes)["error"]["debugMessage"]
    assert mounting(writes) == {}


def test_rabbits_do_not_mount_what_lost_nodes_may_have_mounted() -> None:
    """Two nodes that mount one file system damage it."""
    found = mounting(decide(seen(losing("servers", "n0", "n2"))))

    assert {node: [path for path, _ in mounts] for node, mounts in found.items()} == {
        "r0": ["/mnt/nnf/uid-wf-0/r0-1"]
    }


def test_rabbits_mount_less_for_copy_out_than_they_had_for_copy_in() -> None:
    before = client_mount("r0", "unmounted", "servers", **settled("unmounted", 2))
    two = replace(before, spec=replace(before.spec, mounts=before.spec.mounts * 2))
    of_lost = client_mount("r1", "unmounted", "servers", **settled("unmounted"))
    access = losing("servers", "n0", "n2")
    held = storage_held("wf-0-servers")
    (patch,) = changes(decide(seen(access, two, of_lost, storage=held)), kinds.CLIENT_MOUNT)

    assert patch["spec"]["desiredState"] == "mounted"
    assert [each["mountPath"] for each in patch["spec"]["mounts"]] == ["/mnt/nnf/uid-wf-0/r0-1"]
    mounted = client_mount("r0", "mounted", "servers", **settled("mounted"))
    assert status(decide(seen(access, mounted, of_lost, storage=held)))["ready"]
