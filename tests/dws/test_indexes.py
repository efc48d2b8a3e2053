"""By what informers look objects up, and what of objects is passed over for it."""

from typing import Any

import pytest

from tests.dws.builders import meta, nnf_access, rabbit
from warren.base.objects import Object
from warren.dws import kinds, labels
from warren.dws.access.accessobjects import unmount
from warren.dws.access.nnfaccess import storage_of
from warren.dws.breakdown.indexes import named_instance_keys, named_profiles
from warren.dws.node import FILE_SYSTEM_TYPES
from warren.dws.objects.decoding import read
from warren.dws.objects.storages import Storage
from warren.dws.rabbits.rabbitstorages import (
    placement_labels,
    supported_types_of,
    unsupported_types_of,
)

WITHOUT: list[Object] = [{}, {"spec": None}, {"spec": "text"}]
"""What stands where an object of a kind has its parts, if it is another's."""


def breakdown(directive: Any, ready: bool = False) -> Object:
    spec = {"directive": directive}
    return {"metadata": meta("wf-0"), "spec": spec, "status": {"ready": ready}}


@pytest.mark.parametrize(
    ("directive", "instances"),
    [
        ("#DW create_persistent type=xfs name=pers", ("default/pers",)),
        ("#DW persistentdw name=pers", ("default/pers",)),
        ("#DW destroy_persistent name=pers", ()),
        ("#DW jobdw name=persistent", ()),
        ("#DW persistentdw", ()),
        ("#DW persistentdw name=a name=b", ()),
        ("persistentdw name=pers", ()),
        (7, ()),
    ],
)
def test_breakdowns_are_found_by_the_persistent_storage_that_they_name(
    directive: Any, instances: tuple[str, ...]
) -> None:
    assert named_instance_keys(breakdown(directive)) == instances


@pytest.mark.parametrize(
    ("directive", "found"),
    [
        ("#DW jobdw type=xfs name=a profile=fast", ("fast",)),
        ("#DW create_persistent type=xfs name=a", ("",)),
        ("#DW persistentdw name=a profile=fast", ()),
        ("jobdw profile=fast", ()),
        (7, ()),
    ],
)
def test_breakdowns_that_are_not_ready_are_found_by_their_profile(
    directive: Any, found: tuple[str, ...]
) -> None:
    assert named_profiles(breakdown(directive)) == found
    assert named_profiles(breakdown(directive, ready=True)) == ()


def test_accesses_are_found_by_their_storage() -> None:
    reference = {"kind": "NnfStorage", "name": "wf-0", "namespace": "default"}
    assert storage_of({"spec": {"storageReference": reference}}) == ("default/wf-0",)


@pytest.mark.parametrize("obj", WITHOUT)
def test_what_is_no_object_of_the_kind_is_found_by_nothing(obj: Object) -> None:
    found = {"metadata": meta("x"), **obj}
    assert named_instance_keys(found) == named_profiles(found) == storage_of(found) == ()
    assert unsupported_types_of(found) == supported_types_of(found) == ()


def storage(kind: str = kinds.STORAGE.name, lacks: str | None = '{"gfs2": "no"}') -> Object:
    carried = {} if lacks is None else {labels.UNSUPPORTED_TYPES: lacks}
    return {"kind": kind, "metadata": meta("r0", annotations=carried)}


def test_rabbits_are_found_by_what_they_make_and_by_what_they_lack() -> None:
    assert unsupported_types_of(storage()) == ("gfs2",)
    assert {*supported_types_of(storage())} == {*FILE_SYSTEM_TYPES} - {"gfs2"}
    # One that says nothing of it makes what rabbits have always made.
    for unsaid in (None, "{", "[]"):
        assert unsupported_types_of(storage(lacks=unsaid)) == ("lustre",)
        assert {*supported_types_of(storage(lacks=unsaid))} == {*FILE_SYSTEM_TYPES} - {"lustre"}
    other = storage(kind="NnfNode")
    assert unsupported_types_of(other) == supported_types_of(other) == ()


def test_sets_ask_for_what_a_rabbit_carries_but_for_its_owner() -> None:
    made = rabbit("r0").metadata
    own = {**labels.of_owner(kinds.STORAGE, made), "site/fast": "true"}
    found = read({"metadata": meta("r0", labels=own)}, Storage)
    assert placement_labels(found) == ["site/fast=true"]


def test_nodes_that_are_lost_are_noted_with_what_is_to_be_unmounted() -> None:
    noted = {"annotations": {labels.LOST_NODES: "n1"}}
    assert unmount(nnf_access(), {"n1"}).patch == {
        "spec": {"desiredState": "unmounted"},
        "metadata": noted,
    }
    assert unmount(nnf_access()).patch == {"spec": {"desiredState": "unmounted"}}
