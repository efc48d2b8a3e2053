"""Directives are broken down as by the real controllers (dws-spec section 3).

What stood beside a breakdown of theirs is there when ours begins: the persistent storage that is
used, and its Servers. What is made for create_persistent by others is made here as they made it.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from tests.controllers.alone import Api, alone, caught_up, running
from tests.dws import nnf_objects
from warren.base.objects import Key, Kind, Object, key_of
from warren.controllers.breakdown import BreakdownController
from warren.dws import kinds, labels
from warren.dws.objects.meta import Meta

DEFAULT: Final = "default"

FOUND: Final[list[Any]] = list(nnf_objects.breakdowns()) or [
    pytest.param("", Path(), marks=pytest.mark.skip("the vectors of nnf-objects are missing"))
]

NETWORK: Final = {"type": "network", "priority": "mandatory"}
PHYSICAL: Final = {"type": "physical", "priority": "mandatory"}
NEAR: Final = {"type": "physical", "priority": "bestEffort"}

DEVIATIONS: Final[Mapping[str, tuple[str, Any]]] = {
    # NNF takes the storage of every persistentdw for node-local, so that a workload manager
    # would refuse nodes which reach it well, or take ones which do not.
    "06-gfs2-2-use-0": ("access", [[NETWORK, PHYSICAL]]),
    "user-of-gfs2-0": ("access", [[NETWORK, PHYSICAL]]),
    "06-lustre-2-use-0": ("access", [[NETWORK, NEAR], [NETWORK]]),
    # NNF rewrites storage that others may be using, here with another capacity.
    "12-persistent-create-same-name-0": ("error", "persistent storage 'per-gfs2' is there already"),
    # The mistake is the author's.
    "12-capacity-zero-0": ("type", "User"),
}
"""Where ours differ from theirs on purpose: what, and what is said instead."""


def owned(kind: Kind, meta: Mapping[str, Any], owner: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata with the real UID of the owner: the vectors leave UIDs out."""
    found = Meta(name=owner["name"], namespace=DEFAULT, uid=owner["uid"])
    return {**meta, "labels": {**meta["labels"], **labels.of_owner(kind, found)}}


async def told(api: Api, name: str, path: Path) -> tuple[Object, Object]:
    """Return a breakdown as theirs and as ours, when ours says no more."""
    there = nnf_objects.dump(path)
    (theirs,) = (each for each in there["DirectiveBreakdown"] if each["metadata"]["name"] == name)
    for each in nnf_objects.profiles().values():
        await api.add(kinds.NNF_STORAGE_PROFILE, each)
    creates = " create_persistent " in theirs["spec"]["directive"]
    existed = "same-name" in name
    if existed:
        # The dump is from after NNF has rewritten it.
        there = {**there, "PersistentStorageInstance": made_first()}
    for instance in there.get("PersistentStorageInstance", ()):
        if creates and not existed:
            continue
        await api.add(kinds.PERSISTENT_INSTANCE, instance)
        await beside(api, there, instance["metadata"]["name"])
    controller = BreakdownController(api, api.informers)
    async with running(api, controller.reconciler.run()):
        metadata = {
            key: value
            for key, value in theirs["metadata"].items()
            if key in ("name", "namespace", "labels")
        }
        await api.add(kinds.BREAKDOWN, {"metadata": metadata, "spec": theirs["spec"]})
        await caught_up()
        for instance in api.store.objects_of(kinds.PERSISTENT_INSTANCE):
            if creates:
                await beside(api, there, instance["metadata"]["name"], servers_only=True)
        await caught_up()
    return theirs, api.find(kinds.BREAKDOWN, Key(DEFAULT, name))


def made_first() -> list[Any]:
    """Return the instance that another create_persistent found, as it was made."""
    found = nnf_objects.dump(nnf_objects.PLACE / "06-gfs2-1-create" / "02-Setup.json")
    (instance,) = found["PersistentStorageInstance"]
    metadata = {"name": instance["metadata"]["name"], "namespace": DEFAULT}
    return [{**instance, "metadata": metadata}]


async def beside(
    api: Api, there: Mapping[str, Any], name: str, *, servers_only: bool = False
) -> None:
    """Make what an instance has, as it was there."""
    instance = api.find(kinds.PERSISTENT_INSTANCE, Key(DEFAULT, name))["metadata"]
    for each in there.get("Servers", ()):
        if each["metadata"]["name"] == name and not api.find(kinds.SERVERS, key_of(each)):
            meta = owned(kinds.PERSISTENT_INSTANCE, each["metadata"], instance)
            meta.pop("ownerReferences", None)
            meta.pop("finalizers", None)
            await api.add(kinds.SERVERS, {"metadata": meta, "spec": each["spec"]})
    for each in () if servers_only else there.get("NnfStorageProfile", ()):
        if each["metadata"]["name"] == name:
            meta = owned(kinds.PERSISTENT_INSTANCE, each["metadata"], instance)
            meta.pop("ownerReferences", None)
            await api.add(kinds.NNF_STORAGE_PROFILE, {"metadata": meta, "data": data_of(each)})


def data_of(pinned: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a pinned profile of the vectors says: it names its source."""
    source = pinned["data"]["same-as"].rpartition(" ")[2]
    said = {**nnf_objects.profiles()[source]["data"], **pinned["data"]}
    del said["same-as"]
    return said


def access_of(status: Mapping[str, Any]) -> list[Any]:
    location = status["compute"]["constraints"]["location"]
    return [each["access"] for each in location]


def same(theirs: Mapping[str, Any], ours: Mapping[str, Any], allowed: tuple[str, Any]) -> None:
    what, instead = allowed
    if what == "error":
        assert theirs["ready"]
        assert ours["error"]["userMessage"].startswith(instead)
        return
    if what == "access":
        assert access_of(ours) == instead != access_of(theirs)
        ours = {**ours, "compute": located(ours, access_of(theirs))}
    error = theirs.get("error")
    if error is not None:
        # Theirs is the beginning of ours, which says what to do as well.
        assert ours["error"]["userMessage"].startswith(error["userMessage"])
        assert ours["error"]["severity"] == error["severity"]
        assert ours["error"]["type"] == (instead if what == "type" else error["type"])
        assert not ours["ready"]
        return
    parts = ("ready", "error", "storage", "compute", "requires")
    assert {part: ours.get(part) for part in parts} == {part: theirs.get(part) for part in parts}


def located(status: Mapping[str, Any], access: list[Any]) -> Mapping[str, Any]:
    location = status["compute"]["constraints"]["location"]
    changed = [{**each, "access": one} for each, one in zip(location, access, strict=True)]
    return {"constraints": {"location": changed}}


@pytest.mark.parametrize(("name", "path"), FOUND)
def test_a_directive_is_broken_down_as_by_nnf(name: str, path: Path) -> None:
    """Statements 002.2, 002.3, 002.6: breakdowns as Proposal makes them, with directive and user.
    Statements 002.12, 002.17, 002.18: capacities in bytes, counts and scales.
    """

    # 002.2, 002.3, 002.6 to 002.24
    async def story(api: Api) -> None:
        theirs, ours = await told(api, name, path)
        assert ours["spec"] == theirs["spec"]
        same(theirs["status"], ours["status"], DEVIATIONS.get(name, ("", None)))
        if not ours["status"]["ready"]:
            return
        # What was made by its side is as theirs, too.
        there = nnf_objects.dump(path)
        for kind in (kinds.PERSISTENT_INSTANCE, kinds.NNF_STORAGE_PROFILE, kinds.SERVERS):
            for each in there.get(kind.name, ()):
                made = api.find(kind, key_of(each))
                if kind is kinds.SERVERS and labels.persistent_instance_of(each):
                    continue  # the instance's controller makes them
                if made is None:
                    assert " persistentdw " in theirs["spec"]["directive"] or "10-two" in name
                    continue
                assert_same_object(kind, each, made)

    alone(story)


def assert_same_object(kind: Kind, theirs: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    body = "data" if kind == kinds.NNF_STORAGE_PROFILE else "spec"
    if kind != kinds.SERVERS:  # which the workload manager has filled in by then
        assert ours[body] == (data_of(theirs) if body == "data" else theirs[body])
    their_meta, our_meta = theirs["metadata"], ours["metadata"]
    unset = {
        name: value for name, value in their_meta.get("labels", {}).items() if "uid" not in name
    }
    assert unset.items() <= our_meta.get("labels", {}).items()
    assert their_meta.get("finalizers", []) == our_meta.get("finalizers", [])
    for one, other in zip(
        their_meta.get("ownerReferences", []), our_meta.get("ownerReferences", []), strict=False
    ):
        assert {**one, "uid": ""} == {**other, "uid": ""}


def test_every_deviation_is_of_a_breakdown_that_is_compared() -> None:
    names = {each[0] for each in nnf_objects.breakdowns()}
    if not names:
        pytest.skip("the vectors of nnf-objects are missing")
    assert DEVIATIONS.keys() <= names
    assert len(names) >= 56
