"""System storage: on which rabbits, for which compute nodes, and what is refused."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.dws.builders import DELETING, changes, made, meta, removed
from warren.base.objects import Kind, Object, Write
from warren.dws import commandlines, kinds, labels
from warren.dws.objects.accesses import NnfAccess
from warren.dws.objects.assignments import Computes, Servers
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.objects.systemconfiguration import SystemConfiguration
from warren.dws.objects.systemstorages import NnfSystemStorage
from warren.dws.storage import nnfstorage, systemstorage
from warren.dws.storage.systemstorage import SystemStorageSnapshot

PROFILE = {"kind": "NnfStorageProfile", "name": "system", "namespace": "nnf-system"}
WIRED = {"r0": ("n0", "n1"), "r1": ("n2", "n3"), "r2": ()}

System = Mapping[str, Sequence[str]]


def raw(deleting: bool = False, **spec: Any) -> dict[str, Any]:
    metadata = meta("local", finalizers=[labels.SYSTEM_STORAGE_FINALIZER])
    return {
        "metadata": metadata | (DELETING if deleting else {}),
        "spec": {"storageProfile": PROFILE, "capacity": 10, **spec},
    }


def configuration(wired: System = WIRED) -> SystemConfiguration:
    nodes = [
        {
            "name": name,
            "computesAccess": [{"name": each, "index": i} for i, each in enumerate(own)],
        }
        for name, own in wired.items()
    ]
    found = {"metadata": meta("default"), "spec": {"storageNodes": nodes}}
    return read(found, SystemConfiguration)


def seen(obj: Object, **others: Any) -> SystemStorageSnapshot:
    told: dict[str, Any] = {
        "configuration": configuration(),
        "is_usable": lambda name: name != "r1",
        "has_profile": True,
        **others,
    }
    return SystemStorageSnapshot(object=read(obj, NnfSystemStorage), **told)


def parts(writes: Sequence[Write], before: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what has been made, as the next pass sees it."""
    types: dict[str, tuple[Kind, Any]] = {
        "servers": (kinds.SERVERS, Servers),
        "computes": (kinds.COMPUTES, Computes),
        "storage": (kinds.NNF_STORAGE, NnfStorage),
        "access": (kinds.NNF_ACCESS, NnfAccess),
    }
    found = dict(before or {})
    for name, (kind, type_) in types.items():
        for obj in made(writes, kind):
            status = {"ready": True, "state": "mounted"}
            found[name] = read({**obj, "status": status}, type_)
    return found


def whole(obj: Object) -> dict[str, Any]:
    """Return all that is made for an object in the end."""
    first = parts(systemstorage.decide(seen(obj)))
    return parts(systemstorage.decide(seen(obj, **first)), first)


def told(writes: Sequence[Write]) -> Any:
    (patch,) = changes(writes, kinds.SYSTEM_STORAGE)
    return patch["status"]


def counts(found: Mapping[str, Any]) -> dict[str, int]:
    (one,) = found["storage"].spec.allocation_sets
    return {node.name: node.count for node in one.nodes}


def reaching(found: Mapping[str, Any]) -> list[str]:
    return [each.name for each in found["computes"].data]


def test_each_rabbit_has_an_allocation_which_its_compute_nodes_reach() -> None:
    found = whole(raw())
    assert counts(found) == {"r0": 1, "r1": 1, "r2": 1}
    assert reaching(found) == ["n0", "n1", "n2", "n3"]
    storage, access = found["storage"], found["access"]
    assert (storage.spec.file_system_type, storage.spec.user_id) == ("raw", 0)
    assert storage.metadata.labels[labels.PINNED_PROFILE_NAME] == "system"
    assert (access.spec.target, access.spec.make_client_mounts) == ("shared", False)
    assert found["servers"].spec.allocation_sets[0].label == "system-storage"
    for each in found.values():
        assert labels.is_owner(
            kinds.SYSTEM_STORAGE, read(raw()["metadata"], type(each.metadata)), each.metadata.labels
        )
    assert told(systemstorage.decide(seen(raw(), **found))) == {"ready": True, "error": None}


@pytest.mark.parametrize(
    ("spec", "rabbits", "nodes"),
    [
        ({"includeRabbits": ["r1"]}, {"r1": 1}, ["n2", "n3"]),
        ({"excludeRabbits": ["r0"]}, {"r1": 1, "r2": 1}, ["n2", "n3"]),
        ({"excludeDisabledRabbits": True}, {"r0": 1, "r2": 1}, ["n0", "n1"]),
        ({"computesTarget": "even"}, {"r0": 1, "r1": 1, "r2": 1}, ["n0", "n2"]),
        ({"computesTarget": "odd", "shared": False}, {"r0": 1, "r1": 1}, ["n1", "n3"]),
        (
            {"computesTarget": "pattern", "computesPattern": [1]},
            {"r0": 1, "r1": 1, "r2": 1},
            ["n1", "n3"],
        ),
        ({"shared": False}, {"r0": 2, "r1": 2}, ["n0", "n1", "n2", "n3"]),
        ({"shared": False, "excludeComputes": ["n0"]}, {"r0": 1, "r1": 2}, ["n1", "n2", "n3"]),
        ({"includeComputes": ["n3"]}, {"r0": 1, "r1": 1, "r2": 1}, ["n3"]),
    ],
)
def test_rabbits_and_compute_nodes_are_those_that_the_spec_asks_for(
    spec: dict[str, Any], rabbits: dict[str, int], nodes: list[str]
) -> None:
    found = whole(raw(**spec))
    assert counts(found) == rabbits
    assert reaching(found) == nodes


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            {"includeRabbits": ["r0"], "excludeRabbits": ["r1"]},
            "includeRabbits and excludeRabbits cannot both be given: leave one out",
        ),
        (
            {"includeComputes": ["n0"], "excludeComputes": ["n1"]},
            "includeComputes and excludeComputes cannot both be given: leave one out",
        ),
        ({"includeRabbits": ["r9"]}, "includeRabbits: the system has no rabbit r9"),
        (
            {"includeComputes": ["n9"]},
            "includeComputes: n9 is wired to no rabbit that has the storage",
        ),
        ({"type": "zfs"}, "there is no file system of type zfs: take raw, xfs, ext4, gfs2"),
        ({"capacity": 0}, "a capacity of 0 is none: ask for a byte or more"),
        (
            {"makeClientMounts": True, "clientMountPath": "mnt"},
            "makeClientMounts needs a clientMountPath that begins with /",
        ),
        (
            {"makeClientMounts": True, "clientMountPath": "/mnt", "type": "xfs"},
            "an xfs is damaged where several compute nodes mount it, as those of r0 would: ask "
            "for shared: false",
        ),
        (
            {"storageProfile": {**PROFILE, "kind": "Profile"}},
            "storageProfile: there is no NnfStorageProfile nnf-system/system",
        ),
        (
            {"systemConfiguration": {"name": "other", "namespace": "default"}},
            "the SystemConfiguration is default/default, and not default/other",
        ),
        ({"excludeRabbits": ["r0", "r1", "r2"]}, "no rabbit is to have it"),
    ],
)
def test_what_cannot_be_made_is_told_and_changes_nothing(spec: dict[str, Any], words: str) -> None:
    writes = systemstorage.decide(seen(raw(**spec)))
    assert len(writes) == 1
    assert told(writes)["error"]["userMessage"] == words
    assert told(writes)["ready"] is False


def test_a_profile_that_is_not_there_and_a_name_that_is_taken_are_told() -> None:
    writes = systemstorage.decide(seen(raw(), has_profile=False))
    assert "there is no NnfStorageProfile" in told(writes)["error"]["userMessage"]
    other = read({"metadata": meta("local"), "spec": {}}, Servers)
    (write,) = systemstorage.decide(seen(raw(), servers=other))
    assert told([write])["error"]["userMessage"] == (
        "the name is taken: there is a Servers default/local of another's"
    )


def test_it_is_guarded_before_anything_is_made() -> None:
    bare = raw()
    bare["metadata"]["finalizers"] = []
    (patch,) = changes(systemstorage.decide(seen(bare)), kinds.SYSTEM_STORAGE)
    assert patch == {"metadata": {"finalizers": [labels.SYSTEM_STORAGE_FINALIZER]}}


def test_what_was_made_is_not_made_larger_or_another_file_system() -> None:
    found = whole(raw())
    for spec in ({"capacity": 20}, {"type": "xfs"}):
        writes = systemstorage.decide(seen(raw(**spec), **found))
        assert len(writes) == 1
        assert "which cannot be changed" in told(writes)["error"]["userMessage"]


@pytest.mark.parametrize("shared", [True, False])
def test_a_rabbit_that_joins_gets_its_share_and_one_that_leaves_keeps_it(shared: bool) -> None:
    found = whole(raw(shared=shared))
    grown = {"r1": ("n2", "n4"), "r3": ("n5",)}
    writes = systemstorage.decide(
        seen(raw(shared=shared), **found, configuration=configuration(grown))
    )
    # Computes before the storage: who dies in between would take the rabbit for an old one.
    order = [each.kind for each in writes][:3]
    assert order == [kinds.SERVERS, kinds.COMPUTES, kinds.NNF_STORAGE]
    (patch,) = changes(writes, kinds.NNF_STORAGE)
    nodes = {each["name"]: each["count"] for each in patch["spec"]["allocationSets"][0]["nodes"]}
    assert nodes == {**counts(found), "r3": 1}
    (data,) = changes(writes, kinds.COMPUTES)
    # n4 has come to a rabbit whose allocations are others' own already, and may share one.
    names = [each["name"] for each in data["data"]]
    assert names == (["n2", "n4", "n5"] if shared else ["n2", "n5"])


@pytest.mark.parametrize("shared", [True, False])
def test_who_was_listed_before_the_storage_was_made_has_no_place_in_it_yet(shared: bool) -> None:
    """The write of the storage is lost, and then a rabbit that was to have some is."""
    obj = raw(shared=shared, excludeDisabledRabbits=True)
    first = parts(systemstorage.decide(seen(obj, is_usable=lambda name: True)))
    assert reaching(first) == ["n0", "n1", "n2", "n3"]
    del first["storage"]
    writes = systemstorage.decide(seen(obj, **first))
    (data,) = changes(writes, kinds.COMPUTES)
    assert data["data"] == [{"name": "n0"}, {"name": "n1"}]
    (storage,) = made(writes, kinds.NNF_STORAGE)
    nodes = [each["name"] for each in storage["spec"]["allocationSets"][0]["nodes"]]
    assert nodes == (["r0", "r2"] if shared else ["r0"])


def test_who_was_listed_before_a_rabbit_has_joined_has_no_place_in_it_yet() -> None:
    obj = raw(shared=False, excludeDisabledRabbits=True)
    found = whole(obj)
    assert reaching(found) == ["n0", "n1"]
    grown = systemstorage.decide(seen(obj, **found, is_usable=lambda name: True))
    (data,) = changes(grown, kinds.COMPUTES)
    assert [each["name"] for each in data["data"]] == ["n0", "n1", "n2", "n3"]
    listed = read({"metadata": meta("local"), **data}, Computes)
    listed = replace(listed, metadata=found["computes"].metadata)
    writes = systemstorage.decide(seen(obj, **{**found, "computes": listed}))
    (data,) = changes(writes, kinds.COMPUTES)
    assert data["data"] == [{"name": "n0"}, {"name": "n1"}]


def test_commands_of_a_profile_that_is_for_jobs_too_have_values_for_what_they_name() -> None:
    line = "mark $JOBID $DIRECTIVE_INDEX $WORKFLOW_UID $USERID $GROUPID"
    data = {"xfsStorage": {"userCommands": {"postActivate": [line]}}}
    profile = read({"metadata": meta("local"), "data": data}, NnfStorageProfile)
    shares = nnfstorage.wanted_shares(whole(raw(type="xfs"))["storage"], profile)
    for share, _ in shares.values():
        found = commandlines.decode(share["metadata"]["annotations"][labels.COMMANDS])
        words = ["mark", "none", "0", raw()["metadata"]["uid"], "0", "0"]
        assert found.vectors("userCommands.postActivate", {}) == [words]


def test_all_of_it_is_given_back_and_the_access_first() -> None:
    found = whole(raw())
    going = raw(deleting=True)
    order = ("access", "storage", "computes", "servers")
    for name in order:
        writes = systemstorage.decide(seen(going, **found))
        kind = {
            "access": kinds.NNF_ACCESS,
            "storage": kinds.NNF_STORAGE,
            "computes": kinds.COMPUTES,
            "servers": kinds.SERVERS,
        }[name]
        assert removed(writes, kind) == ["default/local"]
        del found[name]
    assert systemstorage.is_about_to_go(seen(going))
    (patch,) = changes(systemstorage.decide(seen(going)), kinds.SYSTEM_STORAGE)
    assert patch == {"metadata": {"finalizers": []}}
    # What is another's is left to it.
    other = read({"metadata": meta("local"), "spec": {}}, Servers)
    assert removed(systemstorage.decide(seen(going, servers=other)), kinds.SERVERS) == []


SYSTEMS = st.dictionaries(
    st.sampled_from(["r0", "r1", "r2"]), st.integers(0, 3), min_size=1, max_size=3
)


@given(
    systems=SYSTEMS,
    target=st.sampled_from(["all", "even", "odd"]),
    shared=st.booleans(),
    left_out=st.sets(st.sampled_from(["r0", "r1", "r2"])),
)
def test_every_compute_node_has_an_allocation_on_its_own_rabbit(
    systems: dict[str, int], target: str, shared: bool, left_out: set[str]
) -> None:
    wired = {name: [f"{name}-{i}" for i in range(count)] for name, count in systems.items()}
    obj = raw(computesTarget=target, shared=shared, excludeRabbits=sorted(left_out))
    places = systemstorage.layout(seen(obj, configuration=configuration(wired)))
    assert not left_out & places.count_by_rabbit.keys()
    own = list(places.rabbit_by_compute.values())
    for rabbit in own:
        assert places.count_by_rabbit[rabbit] == (1 if shared else own.count(rabbit))
    if not shared:
        assert sum(places.count_by_rabbit.values()) == len(own)
