"""Who mounts a storage: NnfAccesses and their ClientMounts."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.dws.builders import (
    DELETING,
    after,
    changes,
    client_mount,
    computes,
    configuration,
    error,
    made,
    meta,
    nnf_access,
    nnf_storage,
    removed,
    settled,
    share,
    workflow,
)
from warren.base.objects import Key, key_of
from warren.dws import kinds, labels
from warren.dws.access import AccessSnapshot, child, decide, holding, rivals
from warren.dws.locks import Holding
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Reference
from warren.dws.objects.nnfstorages import NnfNodeBlockStorage, NnfStorage

SHARES = [share("r1", 1), share("r0", 2)]


def seen(access: NnfAccess, *mounts: Any, **others: Any) -> AccessSnapshot:
    return AccessSnapshot(
        access=access,
        storage=others.pop("storage", nnf_storage(("r0", 2), ("r1", 1), ready=True)),
        node_storages=others.pop("node_storages", SHARES),
        computes=others.pop("computes", computes("n0", "n1", "n2")),
        configuration=others.pop("configuration", configuration()),
        mounts=mounts,
        blocks=others.pop("blocks", ()),
        held=others.pop("held", ()),
    )


def storage_held(name: str = "wf-0-computes") -> Any:
    """Return storage with what an access has written into it."""
    held = {
        "finalizers": [labels.STORAGE_FINALIZER, f"nnf.cray.hpe.com/{name}"],
        "annotations": {labels.LOCK: f"{name}/default"},
    }
    return nnf_storage(("r0", 2), ("r1", 1), metadata=held, ready=True)


def status(writes: Any) -> Any:
    (patch,) = changes(writes, kinds.NNF_ACCESS)
    return patch["status"]


def mounting(writes: Any) -> dict[str, list[tuple[str, str]]]:
    """Return where each node mounts which volume."""
    return {
        obj["metadata"]["namespace"]: [
            (
                each["mountPath"],
                f"{each['device']['lvm']['volumeGroup']}/{each['device']['lvm']['logicalVolume']}",
            )
            for each in obj["spec"]["mounts"]
        ]
        for obj in made(writes, kinds.CLIENT_MOUNT)
    }


# What is made


def test_the_access_of_computes_and_of_rabbits_differ_as_nnf_has_it() -> None:
    wf = workflow("#DW jobdw type=xfs capacity=1GiB name=ab")
    on_computes = child(wf, 0, "computes", "/mnt/nnf/uid-wf-0")
    on_rabbits = child(wf, 0, "servers", "/mnt/nnf/uid-wf-0", copy=(1, "copy_in"))

    assert on_computes["metadata"]["name"] == "wf-0-computes"
    assert on_rabbits["metadata"]["name"] == "wf-0-servers"
    assert on_computes["metadata"]["finalizers"] == [labels.ACCESS_FINALIZER]
    assert {
        key: on_computes["spec"].get(key)
        for key in ("target", "teardownState", "mountPathPrefix", "clientReference")
    } == {
        "target": "single",
        "teardownState": "PostRun",
        "mountPathPrefix": None,
        "clientReference": {"kind": "Computes", "name": "wf", "namespace": "default"},
    }
    assert (on_rabbits["spec"]["target"], on_rabbits["spec"]["teardownState"]) == ("all", "PreRun")
    assert "clientReference" not in on_rabbits["spec"]
    last = child(wf, 0, "servers", "/mnt/nnf/uid-wf-0", copy=(2, "copy_out"))
    assert last["spec"]["teardownState"] == "Teardown"
    lasting = child(wf, 0, "servers", "/mnt/nnf/uid-wf-0", copy=(1, "copy_in"), persistent="pers")
    assert lasting["spec"]["storageReference"]["name"] == "pers"
    assert lasting["spec"]["clientReference"] == on_computes["spec"]["clientReference"]
    assert lasting["spec"]["mountPathPrefix"] == on_rabbits["spec"]["mountPathPrefix"]
    carried = [each["metadata"]["labels"] for each in (on_computes, on_rabbits, last)]
    assert [each[labels.DIRECTIVE_INDEX] for each in carried] == ["0", "1", "2"]
    told = [each.get(labels.TEARDOWN_STATE) for each in carried]
    assert told == [None, "PreRun", "Teardown"]
    assert {each[labels.PINNED_PROFILE_NAME] for each in carried} == {"wf-0"}


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


def test_only_the_client_mounts_that_are_missing_are_made() -> None:
    writes = decide(seen(nnf_access(), client_mount("n0"), client_mount("n2")))
    assert list(mounting(writes)) == ["n1"]


def flash(rabbit: str, *access: str, deleting: bool = False) -> NnfNodeBlockStorage:
    more = DELETING if deleting else {}
    allocations = [{"capacity": 9, "access": list(access)}]
    block = {"metadata": meta("s", rabbit, **more), "spec": {"allocations": allocations}}
    return read(block, NnfNodeBlockStorage)


def reached(writes: Any) -> list[tuple[int, list[str]]]:
    told = changes(writes, kinds.NNF_NODE_BLOCK_STORAGE)
    return [
        (each["capacity"], each["access"]) for one in told for each in one["spec"]["allocations"]
    ]


def test_flash_names_the_computes_that_mount_it_while_they_do() -> None:
    """Case 01 of the vectors: added in PreRun, gone in PostRun."""
    blocks = [flash("r0", "r0"), flash("r1", "r1")]
    writes = decide(seen(nnf_access(), blocks=blocks))
    assert reached(writes) == [(9, ["r0", "n0", "n1"]), (9, ["r1", "n2"])]
    # Before anything is mounted: who dies in between does it once more.
    kind = [each.kind for each in writes][:4]
    blocks_first = [kinds.NNF_NODE_BLOCK_STORAGE] * 2 + [kinds.CLIENT_MOUNT]
    assert kind == [kinds.NNF_STORAGE, *blocks_first]

    blocks = [flash("r0", "r0", "n0", "n1"), flash("r1", "r1", "n2")]
    assert changes(decide(seen(nnf_access(), blocks=blocks)), kinds.NNF_NODE_BLOCK_STORAGE) == []
    gone = nnf_access(desired="unmounted")
    late = decide(seen(gone, *mounted("n0", desired="unmounted"), blocks=blocks))
    assert changes(late, kinds.NNF_NODE_BLOCK_STORAGE) == []
    done = mounted("n0", state="unmounted", desired="unmounted")
    assert reached(decide(seen(gone, *done, blocks=blocks))) == [(9, ["r0"]), (9, ["r1"])]


def test_flash_is_not_told_of_rabbits_nor_while_it_goes() -> None:
    blocks = [flash("r0", "r0"), flash("r1", "r1", deleting=True)]
    on_rabbits = decide(seen(nnf_access("servers"), computes=None, blocks=blocks))
    assert changes(on_rabbits, kinds.NNF_NODE_BLOCK_STORAGE) == []
    assert reached(decide(seen(nnf_access(), blocks=blocks))) == [(9, ["r0", "n0", "n1"])]


def test_client_mounts_of_shared_storage_say_with_whom_and_others_say_nothing() -> None:
    shared = {labels.SHARED_WITH: "uid:5", "theirs": "x"}
    found = nnf_access()
    access = replace(found, metadata=replace(found.metadata, annotations=shared))
    told = [each["metadata"].get("annotations") for each in made(
        decide(seen(access, storage=lasting())), kinds.CLIENT_MOUNT)]  # fmt: skip
    assert told == [{labels.SHARED_WITH: "uid:5"}] * 3
    own = made(decide(seen(found)), kinds.CLIENT_MOUNT)
    assert all("annotations" not in each["metadata"] for each in own)


# What is reported


def mounted(*nodes: str, state: str = "mounted", desired: str = "mounted") -> list[Any]:
    return [client_mount(node, desired, **settled(state)) for node in nodes]


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


def test_an_error_of_one_node_is_the_accesss_error_with_the_nodes_name() -> None:
    broken = client_mount("n1", error=error("no such device"))
    writes = decide(seen(nnf_access(), *mounted("n0", "n2"), broken))
    assert status(writes)["error"]["userMessage"] == "n1: no such device"
    assert status(writes)["error"]["severity"] == "Major"
    assert not status(writes)["ready"]


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
    "one in trouble": (nnf_access(), [*mounted("n0", "n1"), client_mount("n2", error=error())], {}),
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


# The lock


def test_storage_is_held_before_it_is_mounted_and_let_go_of_when_no_node_has_it() -> None:
    first = decide(seen(nnf_access()))
    assert first[0].kind == kinds.NNF_STORAGE
    assert len(made(first, kinds.CLIENT_MOUNT)) == 3
    going = nnf_access(desired="unmounted", state="mounted", ready=True)
    late = mounted("n0", desired="unmounted")
    assert changes(decide(seen(going, *late, storage=storage_held())), kinds.NNF_STORAGE) == []
    done = mounted("n0", state="unmounted", desired="unmounted")
    writes = decide(seen(going, *done, storage=storage_held()))
    # Told to be unmounted after the lock is off: who dies in between looks at it once more.
    assert [each.kind for each in writes] == [kinds.NNF_STORAGE, kinds.NNF_ACCESS]
    (patch,) = changes(writes, kinds.NNF_STORAGE)
    assert patch["metadata"]["annotations"] is None


def test_storage_that_another_access_has_locked_is_mounted_nowhere() -> None:
    other = nnf_storage(
        ("r0", 2), ("r1", 1), metadata={"annotations": {labels.LOCK: "a-0-computes/default"}}
    )
    writes = decide(seen(nnf_access(), storage=other))
    assert made(writes, kinds.CLIENT_MOUNT) == []
    assert changes(writes, kinds.NNF_STORAGE) == []
    assert "one at a time" in status(writes)["error"]["userMessage"]
    # And what it never held, it does not let go of.
    assert changes(decide(seen(nnf_access(deleting=True), storage=other)), kinds.NNF_STORAGE) == []


def lasting(**metadata: Any) -> NnfStorage:
    """Return storage that outlives jobs."""
    found = nnf_storage(("r0", 2), ("r1", 1), metadata=metadata, ready=True)
    owned = {labels.PERSISTENT_NAME: "pers", **found.metadata.labels}
    return replace(found, metadata=replace(found.metadata, labels=owned))


def copying() -> NnfAccess:
    """Return the access by which rabbits mount what is for the job's compute nodes."""
    found = nnf_access("servers")
    clients = Reference(kind="Computes", name="wf", namespace="default")
    return replace(found, spec=replace(found.spec, client_reference=clients))


def by(*nodes: str, on_rabbits: bool = False, name: str = "a-0-computes") -> Holding:
    """Return what another access holds; without nodes all of it."""
    return Holding(
        access=Key("default", name), on_rabbits=on_rabbits, nodes=frozenset(nodes) or None
    )


def waits(writes: Any) -> bool:
    """Return whether an access waits, and writes nothing else."""
    assert not changes(writes, kinds.NNF_STORAGE)
    assert made(writes, kinds.CLIENT_MOUNT) == []
    fault = status(writes)["error"]
    assert (fault["severity"], fault["type"]) == ("Minor", "User")
    return "one at a time" in fault["userMessage"] and "default/a-0-" in fault["debugMessage"]


def test_nodes_with_parts_of_their_own_mount_persistent_storage_beside_others() -> None:
    """Of one node, several jobs may."""
    for held in ([], [by("n0", "n1", "n2")], [by()], [by("n7", on_rabbits=True)]):
        writes = decide(seen(nnf_access(), storage=lasting(), held=held))
        assert len(made(writes, kinds.CLIENT_MOUNT)) == 3
        (patch,) = changes(writes, kinds.NNF_STORAGE)
        assert "annotations" not in patch["metadata"]


def test_what_a_copy_has_mounted_on_a_rabbit_its_node_does_not_mount_meanwhile() -> None:
    for held in (by("n1", on_rabbits=True), by(on_rabbits=True)):
        assert waits(decide(seen(nnf_access(), storage=lasting(), held=[by("n1"), held])))


def test_a_copy_waits_for_its_own_nodes_and_for_no_others() -> None:
    own = computes("n1")
    for held in (by("n0", "n1"), by("n1", on_rabbits=True), by()):
        assert waits(decide(seen(copying(), storage=lasting(), computes=own, held=[held])))
    apart = [by("n0", "n2"), by("n0", on_rabbits=True)]
    writes = decide(seen(copying(), storage=lasting(), computes=own, held=apart))
    assert len(made(writes, kinds.CLIENT_MOUNT)) == 1
    (patch,) = changes(writes, kinds.NNF_STORAGE)
    assert "annotations" not in patch["metadata"]


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


def test_rabbits_that_mount_all_of_persistent_storage_lock_it() -> None:
    """Such as those of an NnfAccess that was made by hand."""
    assert waits(decide(seen(nnf_access("servers"), storage=lasting(), held=[by("n7")])))
    (patch,) = changes(decide(seen(nnf_access("servers"), storage=lasting())), kinds.NNF_STORAGE)
    assert patch["metadata"]["annotations"] == {labels.LOCK: "wf-0-servers/default"}


def test_an_access_whose_name_no_finalizer_can_have_locks_persistent_storage() -> None:
    """One that is not known to hold it would be mounted beside a copy."""
    found = nnf_access()
    found = replace(found, metadata=replace(found.metadata, name="x" * 64))
    (patch,) = changes(decide(seen(found, storage=lasting())), kinds.NNF_STORAGE)
    assert patch["metadata"]["annotations"] == {labels.LOCK: f"{'x' * 64}/default"}


def test_who_else_holds_it_is_asked_of_persistent_storage() -> None:
    other = f"nnf.cray.hpe.com/{by().access.name}"
    held = {"finalizers": [labels.STORAGE_FINALIZER, other]}
    assert rivals(nnf_access(), lasting(**held)) == [by().access]
    assert rivals(nnf_access(), lasting(annotations={labels.LOCK: "a-0-computes/default"}))
    assert rivals(nnf_access(desired="unmounted"), lasting(**held)) == [by().access]
    assert rivals(nnf_access(), nnf_storage(("r0", 1), metadata=held)) == []
    assert rivals(nnf_access(), None) == []


def test_an_access_that_holds_it_is_not_kept_out_by_one_that_came_later() -> None:
    has = {"finalizers": [labels.STORAGE_FINALIZER, "nnf.cray.hpe.com/wf-0-computes"]}
    later = by("n0", on_rabbits=True)
    mounts = made(
        decide(seen(nnf_access(), storage=lasting(**has), held=[later])), kinds.CLIENT_MOUNT
    )
    assert len(mounts) == 3


def test_flash_of_persistent_storage_names_the_nodes_of_all_that_mount_it() -> None:
    blocks = [flash("r0", "r0", "n1"), flash("r1", "r1")]
    held = [by("n1", "n2"), by("n0", on_rabbits=True, name="copies"), by(name="unknown")]

    def writes(access: NnfAccess, *mounts: Any, nodes: str = "n0") -> Any:
        own = computes(nodes)
        others = {"storage": lasting(), "computes": own, "blocks": blocks}
        return decide(seen(access, *mounts, held=held, **others))

    assert reached(writes(nnf_access(), nodes="n1")) == [(9, ["r1", "n2"])]
    held.pop(1)
    assert reached(writes(nnf_access())) == [(9, ["r0", "n0", "n1"]), (9, ["r1", "n2"])]
    blocks[:] = [flash("r0", "r0", "n1", "n0"), flash("r1", "r1", "n2")]
    assert reached(writes(nnf_access())) == []
    done = mounted("n0", state="unmounted", desired="unmounted")[:1]
    assert reached(writes(nnf_access(desired="unmounted"), *done)) == [(9, ["r0", "n1"])]


def test_an_access_holds_the_parts_of_its_nodes_or_all_there_is() -> None:
    own = computes("n0", "n1")
    assert holding(nnf_access(), own).nodes == frozenset({"n0", "n1"})
    assert holding(copying(), own).nodes == frozenset({"n0", "n1"})
    assert holding(nnf_access("servers"), own).nodes is None
    assert holding(nnf_access(), computes()).nodes is None
    assert holding(nnf_access(), None).nodes is None
    shared = nnf_access()
    shared = replace(shared, spec=replace(shared.spec, target="shared"))
    assert holding(shared, own).nodes is None
    told = [holding(each, own).on_rabbits for each in (nnf_access(), copying(), shared)]
    assert told == [False, True, False]


# Deletion


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


# Nodes that the job goes on without


def losing(clients: str, *lost: str, desired: str = "mounted") -> NnfAccess:
    """Make an access that leaves out what is for some nodes."""
    found = nnf_access(clients, desired)
    annotations = {labels.LOST_NODES: ",".join(lost)}
    return replace(found, metadata=replace(found.metadata, annotations=annotations))


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
