"""Lustre's targets, command lines and names, against the facts of NNF (dws-spec section 10)."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import meta
from tests.rfc.vectors import vector
from warren.dws import commandlines
from warren.dws.access import clientmounts
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import NnfLustreMGT
from warren.dws.objects.nnfstorages import NnfStorageSet, NodeAllocations
from warren.dws.objects.storageprofiles import NnfStorageProfile
from warren.dws.storage import lustre, storageprofiles

NAMES = st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=8)


# Targets


@given(
    st.sampled_from(lustre.SET_LABELS),
    st.lists(st.tuples(st.sampled_from(["r0", "r1", "r2"]), st.integers(1, 4)), max_size=6),
)
def test_targets_have_indexes_without_gaps_and_one_mgt(
    label: str, nodes: list[tuple[str, int]]
) -> None:
    counted = tuple(NodeAllocations(name=name, count=count) for name, count in nodes)
    found = [*lustre.target_shares(NnfStorageSet(name=label, capacity=1, nodes=counted))]

    indexes = [part.start_index + n for part in found for n in range(part.count)]
    assert indexes == [*range(sum(count for _, count in nodes))]
    assert len({(part.rabbit, part.number) for part in found}) == len(found)
    with_mgt = [part for part in found if part.label == "mgtmdt"]
    assert [(part.start_index, part.count) for part in with_mgt] == [(0, 1)] * (
        label == "mgtmdt" and bool(nodes)
    )
    assert {part.label for part in found} <= {label, "mdt"}


def test_a_rabbit_with_several_mgtmdts_has_the_mgt_on_the_first_alone() -> None:
    """dws-spec section 5: split 1 + (n-1)."""
    nodes = (NodeAllocations(name="r0", count=3), NodeAllocations(name="r1", count=1))
    found = lustre.target_shares(NnfStorageSet(name="mgtmdt", capacity=1, nodes=nodes))
    assert [(p.rabbit, p.number, p.count, p.label, p.start_index) for p in found] == [
        ("r0", 0, 1, "mgtmdt", 0),
        ("r0", 1, 2, "mdt", 1),
        ("r1", 0, 1, "mdt", 3),
    ]


# Command lines

VALUES = {
    "$BACKFS": "zfs",
    "$DEVICE_LIST": ["/dev/a"],
    "$FS_NAME": "aaaaaaaa",
    "$INDEX": "3",
    "$JOBID": "f7",
    "$MGS_NID": "10.0.0.1@tcp",
    "$MOUNT_PATH": "/m",
    "$POOL_NAME": "pool",
    "$ZVOL_NAME": "pool/ost3",
}


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("mgt", ["--mgs", "--backfstype=zfs", "--mkfsoptions=nnf:jobid=f7", "pool/ost3"]),
        ("mdt", ["--mdt", "--fsname=aaaaaaaa", "--mgsnode=10.0.0.1@tcp", "--index=3",
                 "--backfstype=zfs", "--mkfsoptions=nnf:jobid=f7", "pool/ost3"]),
        ("mgtmdt", ["--mgs", "--mdt", "--fsname=aaaaaaaa", "--index=3", "--backfstype=zfs",
                    "--mkfsoptions=nnf:jobid=f7", "pool/ost3"]),
        ("ost", ["--ost", "--fsname=aaaaaaaa", "--mgsnode=10.0.0.1@tcp", "--index=3",
                 "--backfstype=zfs", "--mkfsoptions=nnf:jobid=f7", "pool/ost3"]),
    ],
)  # fmt: skip
def test_each_kind_of_target_is_made_with_what_it_needs(kind: str, words: list[str]) -> None:
    found = storageprofiles.lustre_commands(None, kind, {"$JOBID": "f7"})
    assert found.vector("commandlines.mkfs", VALUES) == words


@pytest.mark.parametrize("kind", lustre.SET_LABELS)
@pytest.mark.parametrize("name", ["zpoolCreate", "mkfs", "mountTarget", "unmountTarget",
                                  "zpoolDestroy"])  # fmt: skip
def test_what_a_profile_does_not_say_is_as_in_the_example_of_nnf(kind: str, name: str) -> None:
    every: dict[str, Any] = json.loads(vector("nnf-objects/profiles.json").read_text())
    example = next(
        each
        for each in every["NnfStorageProfile"]
        if each.get("metadata", {}).get("name") == "default"
    )
    theirs = storageprofiles.lustre_commands(read(example, NnfStorageProfile), kind, {})
    ours = storageprofiles.lustre_commands(None, kind, {})

    found, wanted = (each.vector(f"commandlines.{name}", VALUES) or [] for each in (ours, theirs))
    assert sorted(found) == sorted(wanted)
    assert found[-1] == wanted[-1]


def test_commands_of_lustre_are_told_even_where_there_is_no_profile() -> None:
    found = storageprofiles.lustre_commands(None, "ost", {})
    assert found.file_system == "lustre"
    assert commandlines.decode(commandlines.encode(found)) == found


@pytest.mark.parametrize(("on_rabbits", "own", "other"), [
    (True, "rabbit", "compute"), (False, "compute", "rabbit")])  # fmt: skip
def test_a_client_has_the_lines_of_its_side_and_what_the_first_one_runs(
    on_rabbits: bool, own: str, other: str
) -> None:
    around = {f"{side}{each}": ["lctl x"] for side in ("rabbit", "compute")
              for each in ("PreMount", "PostMount", "PreUnmount", "PostUnmount")}  # fmt: skip
    said = {**around, "rabbitPostSetup": ["lfs x"], "rabbitPreTeardown": ["lfs y"]}
    data = {"lustreStorage": {"clientOptions": {"commandlines": said}}}
    profile = read({"metadata": meta("p"), "data": data}, NnfStorageProfile)
    every = storageprofiles.lustre_commands(profile, "ost", {})
    (told,) = clientmounts._annotations({}, every, on_rabbits=on_rabbits)["annotations"].values()
    names = {place.rpartition(".")[2] for place in commandlines.decode(told).lines}
    assert names == {
        f"mount{own.capitalize()}", "rabbitPostSetup",
        *(name for name in around if name.startswith(own)),
    }  # fmt: skip
    assert not any(name.startswith(f"{other}Pre") for name in names)


# Names


@given(NAMES)
def test_names_are_counted_by_their_last_letter_and_begin_anew(name: str) -> None:
    found = lustre.next_name(name)
    assert len(found) == len(name)
    assert found > name or found == "a" * len(name)


def test_no_name_comes_twice_before_all_have_come() -> None:
    seen, name = set(), "yx"
    while name not in seen:
        seen.add(name)
        name = lustre.next_name(name)
    assert (len(seen), name) == (26**2, "yx")


def mgt(claims: list[str], given_names: dict[str, str], **status: Any) -> NnfLustreMGT:
    spec = {"claimList": [{"kind": "NnfStorage", "name": c, "namespace": "default"}
                          for c in claims], "fsNameBlackList": ["aaaaaaab"]}  # fmt: skip
    told = [{"reference": {"kind": "NnfStorage", "name": name, "namespace": "default"},
             "fsname": fsname} for name, fsname in given_names.items()]  # fmt: skip
    obj = {"metadata": meta("m", "r0"), "spec": spec, "status": {"claimList": told, **status}}
    return read(obj, NnfLustreMGT)


@given(
    st.lists(st.sampled_from("abcdef"), unique=True),
    st.dictionaries(st.sampled_from("abcdef"), st.sampled_from(["aaaaaaaa", "aaaaaaac"])),
)
def test_each_claim_has_a_name_of_its_own_and_keeps_it(
    claims: list[str], known: dict[str, str]
) -> None:
    known = {name: fsname for name, fsname in known.items() if [*known.values()].count(fsname) == 1}
    found = mgt(claims, known)
    change = lustre.naming_change(found)
    if change is None:
        assert known.keys() == {*claims}
        return
    told = {
        each["reference"]["name"]: each["fsname"] for each in change.patch["status"]["claimList"]
    }
    assert told.keys() == {*claims}
    assert len({*told.values()}) == len(told)
    assert "aaaaaaab" not in told.values()
    assert all(told[name] == known[name] for name in claims if name in known)
    again = mgt(claims, told, fsNameNext=change.patch["status"]["fsNameNext"])
    assert lustre.naming_change(again) is None


def test_a_name_that_was_given_back_is_not_given_out_at_once() -> None:
    first = lustre.naming_change(mgt(["a"], {}))
    assert first is not None
    following = first.patch["status"]["fsNameNext"]
    again = lustre.naming_change(mgt(["b"], {"a": "aaaaaaaa"}, fsNameNext=following))
    assert again is not None
    assert [each["fsname"] for each in again.patch["status"]["claimList"]] == ["aaaaaaac"]


def test_a_claim_is_of_one_object_and_not_of_a_later_one_of_its_name() -> None:
    one = {"kind": "NnfStorage", "name": "a", "namespace": "default", "uid": "1"}
    later = {**one, "uid": "2"}
    told = {"claimList": [{"reference": one, "fsname": "aaaaaaaa"}], "fsNameNext": "aaaaaaac"}
    obj = {"metadata": meta("m", "r0"), "spec": {"claimList": [later]}, "status": told}
    change = lustre.naming_change(read(obj, NnfLustreMGT))
    assert change is not None
    assert change.patch["status"]["claimList"] == [{"reference": later, "fsname": "aaaaaaac"}]
