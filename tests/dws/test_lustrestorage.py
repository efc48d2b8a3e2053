"""NnfStorages of Lustre: what is made after what, by which MGS, and how it goes."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tests.dws.builders import DELETING, changes, error, made, meta, removed
from warren.base.objects import Change, Key, Kind, Object, Write, key_of
from warren.dws import kinds, labels
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import LustreMgtStatus, NnfLustreMGT
from warren.dws.objects.meta import Error
from warren.dws.objects.nnfstorages import (
    NnfNodeBlockStorage,
    NnfNodeStorage,
    NnfNodeStorageStatus,
    NnfStorage,
)
from warren.dws.objects.persistentinstances import PersistentStorageInstance
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.storage.lustrestorage import LustreSnapshot, decide

GOING: dict[str, Any] = {**DELETING}
IN_USE = NnfNodeStorageStatus(error=Error(debug_message="in use"))

Sets = Mapping[str, Sequence[tuple[str, int]]]

KEY = Key("default", "wf-0")
NAMING = Key("r0", "wf-0")
"""The key of the storage's own NnfLustreMGT."""
NIDS = {"r0": "10.0.0.1@tcp", "r1": "10.0.0.2@tcp"}
FAR = "10.9.9.9@tcp"
REFERENCE = {"kind": "NnfStorage", "name": "wf-0", "namespace": "default"}
OWN = {**REFERENCE, "uid": "uid-wf-0"}
OTHER = {"kind": "NnfStorage", "name": "other", "namespace": "default"}
WHOLE: Sets = {"mgt": [("r0", 1)], "mdt": [("r1", 1)], "ost": [("r0", 2), ("r1", 1)]}
WITHOUT_MGT: Sets = {"mdt": [("r0", 1)], "ost": [("r1", 1)]}
MGT, MDT = Key("r0", "default-wf-0-mgt-0"), Key("r1", "default-wf-0-mdt-0")
OST = [Key("r0", "default-wf-0-ost-0"), Key("r1", "default-wf-0-ost-0")]


def stored(sets: Sets, metadata: Mapping[str, Any] = {}, **status: Any) -> NnfStorage:
    found = [
        {
            "name": label,
            "capacity": 5_000_000_000,
            "nodes": [{"name": rabbit, "count": count} for rabbit, count in nodes],
        }
        for label, nodes in sets.items()
    ]
    finalizers = [labels.STORAGE_FINALIZER]
    return read(
        {
            "metadata": meta(KEY.name, KEY.namespace, **{"finalizers": finalizers, **metadata}),
            "spec": {"fileSystemType": "lustre", "allocationSets": found},
            "status": status,
        },
        NnfStorage,
    )


def mgt(
    claims: Sequence[Object] = (OWN,),
    names: Mapping[str, str] = {"wf-0": "aaaaaaab"},
    key: Key = NAMING,
    address: str = NIDS["r0"],
    **metadata: Any,
) -> NnfLustreMGT:
    told = [
        {"reference": {**OWN, "name": name}, "fsname": fsname} for name, fsname in names.items()
    ]
    owner = labels.of_owner(kinds.NNF_STORAGE, stored(WHOLE).metadata)
    finalizers = [labels.LUSTRE_MGT_FINALIZER]
    more = {"labels": owner, "finalizers": finalizers, **metadata}
    return read(
        {
            "metadata": meta(key.name, key.namespace, **more),
            "spec": {"addresses": ["10.8.8.8@tcp", address], "claimList": list(claims)},
            "status": {"claimList": told},
        },
        NnfLustreMGT,
    )


def far_mgt(claims: Sequence[Object] = (OWN,), **more: Any) -> NnfLustreMGT:
    """Make the NnfLustreMGT of an admin, for an MGS elsewhere."""
    key = Key("nnf-system", "far")
    return mgt(claims, **{"key": key, "address": FAR, "labels": {}, **more})


def external(asked: str) -> NnfStorageProfile:
    data = {"lustreStorage": {"mgtOptions": {"externalMgs": asked}}}
    return read({"metadata": meta("wf-0"), "data": data}, NnfStorageProfile)


def seen(storage: NnfStorage, *mgts: NnfLustreMGT, **more: Any) -> LustreSnapshot:
    view: dict[str, Any] = {
        "shares": [],
        "block_storages": [],
        "profile": None,
        "mgs_address_by_rabbit": NIDS,
    }
    return LustreSnapshot(storage=storage, mgts=mgts, **{**view, "pools": {}, **more})


def shares(writes: Sequence[Write], *, ready: bool = True, **more: Any) -> list[NnfNodeStorage]:
    """Return the shares that were made, as their agents report on them."""
    status = {"ready": ready, **more}
    every = made(writes, kinds.NNF_NODE_STORAGE)
    return [read({**each, "status": status}, NnfNodeStorage) for each in every]


def blocks(writes: Sequence[Write]) -> list[NnfNodeBlockStorage]:
    return [read(each, NnfNodeBlockStorage) for each in made(writes, kinds.NNF_NODE_BLOCK_STORAGE)]


def made_keys(writes: Sequence[Write], kind: Kind) -> list[Key]:
    return [key_of(each) for each in made(writes, kind)]


def status(writes: Sequence[Write]) -> Object:
    (patch,) = changes(writes, kinds.NNF_STORAGE)
    found: Object = patch["status"]
    return found


def failure(writes: Sequence[Write]) -> tuple[str, str]:
    """Return how grave what was reported is, and its words."""
    assert len(writes) == 1
    found = status(writes)
    assert found["ready"] is False
    return found["error"]["severity"], found["error"]["userMessage"]


# Its own MGS


def test_what_gives_out_names_is_made_before_all_else() -> None:
    (write,) = decide(seen(stored(WHOLE)))

    (obj,) = made([write], kinds.LUSTRE_MGT)
    assert key_of(obj) == Key("r0", "wf-0")
    assert obj["spec"] == {
        "addresses": ["10.0.0.1@tcp"], "fsNameStart": "aaaaaaaa", "claimList": [OWN],
    }  # fmt: skip
    assert obj["metadata"]["finalizers"] == [labels.LUSTRE_MGT_FINALIZER]
    assert labels.owner_of(obj) == ("NnfStorage default/wf-0",)


def test_a_storage_asks_once_for_its_name_and_waits_for_it() -> None:
    (change,) = decide(seen(stored(WHOLE), far_mgt(), mgt([OTHER], {})))
    assert isinstance(change, Change)
    assert (change.kind, change.key) == (kinds.LUSTRE_MGT, Key("r0", "wf-0"))
    assert change.patch == {"spec": {"claimList": [OTHER, OWN]}}
    assert change.resource_version == "7"

    assert list(decide(seen(stored(WHOLE), mgt([OTHER, OWN], {"other": "aaaaaaaa"})))) == []


def test_the_mgs_is_made_first_and_the_others_once_it_is_ready() -> None:
    first = decide(seen(stored(WHOLE), mgt()))
    assert made_keys(first, kinds.NNF_NODE_STORAGE) == [MGT]
    assert made_keys(first, kinds.NNF_NODE_BLOCK_STORAGE) == [MGT]

    waiting = seen(
        stored(WHOLE), mgt(), shares=shares(first, ready=False), block_storages=blocks(first)
    )
    assert made_keys(decide(waiting), kinds.NNF_NODE_STORAGE) == []
    assert made_keys(decide(waiting), kinds.NNF_NODE_BLOCK_STORAGE) == []

    then = decide(seen(stored(WHOLE), mgt(), shares=shares(first), block_storages=blocks(first)))
    assert made_keys(then, kinds.NNF_NODE_BLOCK_STORAGE) == [MDT, *OST]
    assert made_keys(then, kinds.NNF_NODE_STORAGE) == [MDT, *OST]
    for each in shares(then):
        targets = each.spec.lustre_storage
        assert targets is not None
        assert (targets.mgs_address, targets.file_system_name) == (NIDS["r0"], "aaaaaaab")
    assert status(then)["ready"] is False


def whole(storage: NnfStorage, *mgts: NnfLustreMGT, **more: Any) -> LustreSnapshot:
    """See a storage of which all is made."""
    first = decide(seen(storage, *mgts, **more))
    begun = {**more, "shares": shares(first), "block_storages": blocks(first)}
    rest = decide(seen(storage, *mgts, **begun))
    every = [*shares(first), *shares(rest)]
    return seen(
        storage,
        *mgts,
        **{**more, "shares": every, "block_storages": [*blocks(first), *blocks(rest)]},
    )


def test_when_all_is_made_it_is_told_by_which_mgs_and_name_the_file_system_is_found() -> None:
    told = status(decide(whole(stored(WHOLE), mgt())))
    assert told["ready"] is True
    assert (told["mgsAddress"], told["fileSystemName"]) == (NIDS["r0"], "aaaaaaab")
    assert told["lustreMgtReference"] == {
        "kind": "NnfLustreMGT", "name": "wf-0", "namespace": "r0",
    }  # fmt: skip
    assert told["lustreComponents"] == {
        "mgts": ["r0"], "mdts": ["r1"], "osts": ["r0", "r1"], "nnfNodes": ["r0", "r1"],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("address", "name", "news"),
    [(NIDS["r0"], "aaaaaaab", False), (NIDS["r0"], "", True), ("", "aaaaaaab", True)],
)
def test_it_is_told_until_it_is_known(address: str, name: str, news: bool) -> None:
    known: dict[str, Any] = {"ready": True, "mgsAddress": address, "fileSystemName": name}
    assert bool(decide(whole(stored(WHOLE, **known), mgt()))) is news


def test_an_mgt_of_many_has_no_name_of_its_own() -> None:
    only: Sets = {"mgt": [("r1", 1)]}
    (created,) = made(decide(seen(stored(only))), kinds.LUSTRE_MGT)
    assert created["spec"]["claimList"] == []
    assert created["metadata"]["namespace"] == "r1"

    served = mgt([], {}, Key("r1", "wf-0"), NIDS["r1"])
    told = status(decide(whole(stored(only), served)))
    assert (told["ready"], told["mgsAddress"]) == (True, NIDS["r1"])
    assert "fileSystemName" not in told


def test_a_mgtmdt_is_an_mgs_too() -> None:
    sets: Sets = {"ost": [("r1", 1)], "mgtmdt": [("r0", 1)]}
    first = decide(seen(stored(sets), mgt()))
    assert made_keys(first, kinds.NNF_NODE_STORAGE) == [Key("r0", "default-wf-0-mgtmdt-0")]


def test_a_rabbit_that_says_no_address_is_waited_for() -> None:
    for addresses in ({}, {"r0": "", "r1": NIDS["r1"]}):
        writes = decide(seen(stored(WHOLE), mgs_address_by_rabbit=addresses))
        assert failure(writes) == (
            "Minor",
            "r0, which is to have the MGS, does not say its LNet address",
        )


# The MGS of others


def test_a_file_system_of_an_external_mgs_is_made_at_once_when_it_has_its_name() -> None:
    profile = external(FAR)
    nothing: Sets = {"mgt": [], **WITHOUT_MGT}
    for sets in (WITHOUT_MGT, nothing):
        (asked,) = decide(seen(stored(sets), far_mgt([], names={}), profile=profile))
        assert isinstance(asked, Change)
        assert (asked.key, asked.patch) == (
            Key("nnf-system", "far"),
            {"spec": {"claimList": [OWN]}},
        )
    writes = decide(seen(stored(WITHOUT_MGT), far_mgt(), profile=profile))
    assert made_keys(writes, kinds.NNF_NODE_STORAGE) == [
        Key("r0", "default-wf-0-mdt-0"),
        Key("r1", "default-wf-0-ost-0"),
    ]
    told = status(decide(whole(stored(WITHOUT_MGT), far_mgt(), profile=profile)))
    assert (told["ready"], told["mgsAddress"]) == (True, FAR)
    assert told["lustreMgtReference"]["name"] == "far"


def test_a_name_that_an_earlier_storage_had_is_not_taken_for_ones_own() -> None:
    """Its MGS knows the targets that it had."""
    profile, earlier = external(FAR), {**OWN, "uid": "uid-earlier"}
    serving = far_mgt([OTHER, earlier])
    told = {"claimList": [{"reference": earlier, "fsname": "aaaaaaab"}]}
    serving = msgspec.structs.replace(serving, status=msgspec.convert(told, LustreMgtStatus))
    (asked,) = decide(seen(stored(WITHOUT_MGT), serving, profile=profile))
    assert isinstance(asked, Change)
    assert asked.patch == {"spec": {"claimList": [OTHER, OWN]}}


def test_a_name_that_was_claimed_without_a_uid_by_earlier_controllers_stays() -> None:
    serving = far_mgt([REFERENCE])
    told = {"claimList": [{"reference": REFERENCE, "fsname": "aaaaaaab"}]}
    serving = msgspec.structs.replace(serving, status=msgspec.convert(told, LustreMgtStatus))
    writes = decide(seen(stored(WITHOUT_MGT), serving, profile=external(FAR)))
    assert len(made_keys(writes, kinds.NNF_NODE_STORAGE)) == 2
    assert changes(writes, kinds.LUSTRE_MGT) == []


@pytest.mark.parametrize("deleted", [True, False])
def test_an_mgs_for_which_no_admin_has_made_anything_is_told(deleted: bool) -> None:
    elsewhere = far_mgt(address="10.7.7.7@tcp")
    mgts = [elsewhere, *([far_mgt(**GOING)] if deleted else [])]
    writes = decide(seen(stored(WITHOUT_MGT), *mgts, profile=external(FAR)))
    assert failure(writes) == (
        "Major",
        f"no NnfLustreMGT resource found for MGS address: {FAR}",
    )
    assert status(writes)["error"]["debugMessage"].startswith("could not get available fsname: ")


@pytest.mark.parametrize("profile", [None, external("")])
def test_a_file_system_without_any_mgs_is_told(profile: NnfStorageProfile | None) -> None:
    writes = decide(seen(stored(WITHOUT_MGT), profile=profile))
    words = "the file system has no MGT, and its profile names no external one"
    assert failure(writes) == ("Fatal", words)

    known = error(words, "Fatal")
    assert list(decide(seen(stored(WITHOUT_MGT, error=known), profile=profile))) == []
    changed = stored(WITHOUT_MGT, error=error("something else"))
    assert failure(decide(seen(changed, profile=profile))) == ("Fatal", words)


def test_a_pinned_profile_that_was_edited_since_is_told() -> None:
    data = {"lustreStorage": {"mgtOptions": {"commandlines": {"mkfs": 7}}}}
    profile = read({"metadata": meta("wf-0"), "data": data}, NnfStorageProfile)
    severity, words = failure(decide(seen(stored(WHOLE), mgt(), profile=profile)))
    assert severity == "Fatal"
    assert not words.endswith(".")


# An MGT of a pool

Member = tuple[PersistentStorageInstance, NnfStorage]


def member(
    name: str, address: str, users: Sequence[Object] = (), state: str = "Active", **status: Any
) -> Member:
    spec = {"name": name, "fsType": "lustre", "consumerReferences": list(users)}
    obj = {"metadata": meta(name), "spec": spec, "status": {"state": state}}
    told = {"ready": True, "health": "Healthy", "mgsAddress": address, **status}
    of_it = {"metadata": meta(name), "spec": {"fileSystemType": "lustre"}, "status": told}
    return read(obj, PersistentStorageInstance), read(of_it, NnfStorage)


def pooled(*members: Member, **status: Any) -> LustreSnapshot:
    mgts = [
        far_mgt(key=Key("x", each.metadata.name), address=each.status.mgs_address)
        for _, each in members
    ]
    pools = {"p": members, "q": [member("q", "10.6.6.6@tcp")]}
    storage = stored(WITHOUT_MGT, **status)
    return seen(storage, *mgts, profile=external("pool:p"), pools=pools)


def chosen(snapshot: LustreSnapshot) -> Key:
    """Return the instance that a storage becomes a user of."""
    (change,) = decide(snapshot)
    assert isinstance(change, Change)
    assert change.kind == kinds.PERSISTENT_INSTANCE
    assert change.patch["spec"]["consumerReferences"][-1] == REFERENCE
    return change.key


@pytest.mark.parametrize("lacks", [{"ready": False}, {"state": "Creating"}, {"health": "Degraded"}])
@pytest.mark.parametrize(("usable", "other"), [("a", "b"), ("b", "a")])
def test_an_mgt_of_a_pool_is_one_that_is_ready_and_well(
    lacks: dict[str, Any], usable: str, other: str
) -> None:
    members = [member(usable, "10.0.0.9@tcp", [OTHER]), member(other, "10.0.0.8@tcp", **lacks)]
    assert chosen(pooled(*members)) == Key("default", usable)


def not_well(*users: Object) -> Member:
    return member("a", "10.0.0.9@tcp", users, state="Degraded", health="Degraded")


def test_one_that_is_not_well_is_better_than_none() -> None:
    assert chosen(pooled(member("a", "10.0.0.9@tcp", health="Degraded"))) == Key("default", "a")
    assert chosen(pooled(not_well(OTHER))) == Key("default", "a")


def test_a_user_of_an_mgt_that_is_not_well_any_more_goes_on() -> None:
    writes = decide(pooled(not_well(REFERENCE)))
    assert changes(writes, kinds.PERSISTENT_INSTANCE) == []
    assert len(made_keys(writes, kinds.NNF_NODE_STORAGE)) == 2


def test_storages_are_spread_over_a_pool_and_each_keeps_to_its_choice() -> None:
    members = [member(name, f"10.0.0.{n}@tcp") for n, name in enumerate("abcd")]
    first = chosen(pooled(*members))
    assert chosen(pooled(*reversed(members))) == first
    others = [each for each in members if each[0].metadata.key != first]
    other, of_it = others[0]
    known = pooled(*members, mgsAddress=of_it.status.mgs_address)
    assert chosen(known) == other.metadata.key


@pytest.mark.parametrize("members", [[], [member("a", "10.0.0.9@tcp", ready=False)]])
def test_a_pool_that_has_no_mgt_is_told_with_how_to_make_one(members: list[Member]) -> None:
    assert failure(decide(pooled(*members))) == (
        "Major",
        "no MGT of pool 'p' is ready: create one with a profile that has standaloneMgtPoolName: p",
    )


def test_a_user_of_a_pools_mgt_goes_on() -> None:
    writes = decide(pooled(member("a", "10.0.0.9@tcp", [REFERENCE])))
    assert changes(writes, kinds.PERSISTENT_INSTANCE) == []
    assert len(made_keys(writes, kinds.NNF_NODE_STORAGE)) == 2


def test_an_mgt_of_a_pool_that_is_going_is_not_kept() -> None:
    going = member("a", "10.0.0.9@tcp", state="Destroying")
    writes = decide(pooled(going, mgsAddress="10.0.0.9@tcp"))
    assert changes(writes, kinds.PERSISTENT_INSTANCE) == []
    assert len(made_keys(writes, kinds.NNF_NODE_STORAGE)) == 2


# Commands for its MGS

SETTING = {"mgtOptions": {"preMountCommands": ["lctl set_param -P osc.$FS_NAME-*.checksums=1"]}}
ASKED = {"reference": OWN, "commands": ["lctl set_param -P osc.aaaaaaab-*.checksums=1"]}
SET = read({"metadata": meta("wf-0"), "data": {"lustreStorage": SETTING}}, NnfStorageProfile)


def configured(
    *asked: Object, answers: Sequence[Object] = (), key: Key = NAMING, address: str = NIDS["r0"]
) -> NnfLustreMGT:
    """Return an NnfLustreMGT that is asked for commands, with what its rabbit has answered."""
    found = mgt(key=key, address=address)
    obj = {
        "metadata": meta(key.name, key.namespace, labels=dict(found.metadata.labels)),
        "spec": {"addresses": [address], "claimList": [OWN], "commandList": list(asked)},
        "status": {
            "claimList": [{"reference": OWN, "fsname": "aaaaaaab"}],
            "commandList": list(answers),
        },
    }
    return read(obj, NnfLustreMGT)


def test_the_mgs_is_configured_when_all_targets_are_there_and_before_clients_come() -> None:
    first = decide(seen(stored(WHOLE), configured(), profile=SET))
    begun: dict[str, Any] = {
        "shares": shares(first),
        "block_storages": blocks(first),
        "profile": SET,
    }
    assert changes(decide(seen(stored(WHOLE), configured(), **begun)), kinds.LUSTRE_MGT) == []

    (asking,) = decide(whole(stored(WHOLE), configured(), profile=SET))
    assert isinstance(asking, Change)
    assert (asking.kind, asking.key) == (kinds.LUSTRE_MGT, NAMING)
    assert asking.patch == {"spec": {"commandList": [ASKED]}}

    told = status(decide(whole(stored(WHOLE), configured(ASKED), profile=SET)))
    assert (told["ready"], told["error"]) == (False, None)
    answer = {"reference": OWN, "ready": True}
    done = whole(stored(WHOLE), configured(ASKED, answers=[answer]), profile=SET)
    assert status(decide(done))["ready"] is True


def test_an_mgs_that_fails_to_be_configured_is_told_with_its_rabbit() -> None:
    answer = {"reference": OWN, "ready": False, "error": error("no such file", "Major")}
    found = whole(stored(WHOLE), configured(ASKED, answers=[answer]), profile=SET)
    told = status(decide(found))
    assert told["ready"] is False
    assert (told["error"]["severity"], told["error"]["userMessage"]) == (
        "Major",
        "r0: no such file",
    )
    assert all(each["ready"] for each in told["allocationSets"])


def test_a_file_system_that_is_ready_stays_so_whatever_its_mgs_was_told() -> None:
    known: dict[str, Any] = {
        "ready": True, "mgsAddress": NIDS["r0"], "fileSystemName": "aaaaaaab",
    }  # fmt: skip
    assert list(decide(whole(stored(WHOLE, **known), configured(), profile=SET))) == []


def test_an_mgs_of_a_pool_is_configured_on_its_rabbit_and_one_elsewhere_is_not() -> None:
    def found(mgt: NnfLustreMGT, asked: str) -> Sequence[Write]:
        options = {**SETTING["mgtOptions"], "externalMgs": asked}
        data = {"lustreStorage": {"mgtOptions": options}}
        profile = read({"metadata": meta("wf-0"), "data": data}, NnfStorageProfile)
        pools = {"p": [member("a", FAR, [REFERENCE])]}
        return decide(whole(stored(WITHOUT_MGT), mgt, profile=profile, pools=pools))

    of_pool = found(configured(key=Key("r7", "a"), address=FAR), "pool:p")
    assert changes(of_pool, kinds.LUSTRE_MGT) == [{"spec": {"commandList": [ASKED]}}]
    assert isinstance(of_pool[0], Change)
    assert of_pool[0].key == Key("r7", "a")
    elsewhere = found(configured(key=Key("nnf-system", "far"), address=FAR), FAR)
    assert status(elsewhere)["ready"] is True


def test_a_storage_that_goes_has_its_mgs_run_nothing_any_more() -> None:
    other = {"reference": OTHER, "commands": ["a"]}
    serving = configured(other, ASKED, key=Key("r7", "a"), address=FAR)
    found = whole(stored(WITHOUT_MGT), serving, profile=external(FAR))
    writes = decide(going(found, shares=[], block_storages=[]))
    assert changes(writes, kinds.LUSTRE_MGT) == [
        {"spec": {"claimList": [], "commandList": [other]}}
    ]


# Deletion


def going(
    found: LustreSnapshot, *mgts: NnfLustreMGT, metadata: Mapping[str, Any] = {}, **more: Any
) -> LustreSnapshot:
    status = more.pop("status", {})
    sets = {
        each.name: [(node.name, node.count) for node in each.nodes]
        for each in found.storage.spec.allocation_sets
    }
    storage = stored(sets, {**GOING, **metadata}, **status)
    view = {"shares": found.shares, "block_storages": found.block_storages, "pools": found.pools}
    return seen(storage, *(mgts or found.mgts), **{**view, **more})


def left(found: LustreSnapshot, *keys: Key) -> dict[str, Any]:
    """Return the shares and their flash that have not gone."""
    return {
        "shares": [each for each in found.shares if each.metadata.key in keys],
        "block_storages": [each for each in found.block_storages if each.metadata.key in keys],
    }


def test_the_mgs_goes_after_all_that_is_found_by_it() -> None:
    found = whole(stored(WHOLE), mgt())
    writes = decide(going(found))
    for kind in (kinds.NNF_NODE_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE):
        assert removed(writes, kind) == [str(each) for each in (MDT, *OST)]

    flash: dict[str, Any] = {
        "shares": left(found, MGT)["shares"],
        "block_storages": found.block_storages,
    }
    writes = decide(going(found, **flash))
    assert removed(writes, kinds.NNF_NODE_STORAGE) == []
    assert removed(writes, kinds.NNF_NODE_BLOCK_STORAGE) == [str(each) for each in (MDT, *OST)]

    writes = decide(going(found, **left(found, MGT)))
    for kind in (kinds.NNF_NODE_STORAGE, kinds.NNF_NODE_BLOCK_STORAGE):
        assert removed(writes, kind) == [str(MGT)]
    writes = decide(going(found, shares=left(found, MGT)["shares"], block_storages=[]))
    assert removed(writes, kinds.NNF_NODE_STORAGE) == [str(MGT)]
    assert changes(writes, kinds.NNF_STORAGE) == []
    writes = decide(going(found, shares=[], block_storages=left(found, MGT)["block_storages"]))
    assert removed(writes, kinds.NNF_NODE_BLOCK_STORAGE) == [str(MGT)]
    assert changes(writes, kinds.NNF_STORAGE) == []


def finalizers(writes: Sequence[Write], kind: Kind) -> list[Any]:
    return [each["metadata"]["finalizers"] for each in changes(writes, kind)]


def test_then_what_gave_out_its_names_goes_and_then_it_is_let_go_of() -> None:
    gone: dict[str, Any] = {"shares": [], "block_storages": []}
    found = whole(stored(WHOLE), mgt())

    writes = decide(going(found, **gone))
    assert (len(writes), removed(writes, kinds.LUSTRE_MGT)) == (1, ["r0/wf-0"])
    writes = decide(going(found, mgt(**GOING), **gone))
    assert (len(writes), finalizers(writes, kinds.LUSTRE_MGT)) == (1, [[]])
    for own in (mgt(finalizers=["another/one"], **GOING), mgt(labels={})):
        # Of what is another's, or goes without us, nothing is waited for.
        writes = decide(going(found, own, **gone))
        assert (len(writes), finalizers(writes, kinds.NNF_STORAGE)) == (1, [[]])


def test_a_storage_that_goes_gives_back_its_name_and_its_mgt_of_a_pool() -> None:
    consumer = [OTHER, REFERENCE]
    pools = {"p": [member("a", FAR, consumer), member("b", "10.0.0.8@tcp")]}
    serving = far_mgt([OTHER, OWN])
    other = far_mgt([OTHER], key=Key("x", "y"))
    found = whole(stored(WITHOUT_MGT), serving, other, profile=external(FAR))

    writes = decide(going(found, pools=pools, shares=[], block_storages=[]))
    assert changes(writes, kinds.LUSTRE_MGT) == [{"spec": {"claimList": [OTHER]}}]
    assert changes(writes, kinds.PERSISTENT_INSTANCE) == [{"spec": {"consumerReferences": [OTHER]}}]
    assert finalizers(writes, kinds.NNF_STORAGE) == [[]]
    assert isinstance(writes[-1], Change)
    assert writes[-1].kind == kinds.NNF_STORAGE


def test_a_storage_that_is_mounted_keeps_all() -> None:
    found = whole(stored(WHOLE), mgt())
    mounted = {"finalizers": [labels.STORAGE_FINALIZER, "nnf.cray.hpe.com/wf-0-computes"]}
    assert list(decide(going(found, metadata=mounted))) == []


def test_what_kept_a_storage_from_being_made_keeps_nothing_from_going() -> None:
    told = {"error": error("no MGS")}
    found = whole(stored(WHOLE), mgt())
    assert status(decide(going(found, status=told))) == {"error": None}
    stuck = [msgspec.structs.replace(each, status=IN_USE) for each in found.shares[:1]]
    every = [*stuck, *found.shares[1:]]
    writes = decide(going(found, status=told, shares=every))
    assert removed(writes, kinds.NNF_NODE_STORAGE) != []
