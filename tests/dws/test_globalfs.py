"""Global file systems: what their statuses promise, and when they may go (dws-spec section 13)."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import DELETING, meta
from warren.base.objects import Change, Object, Write, merge_patch
from warren.dws import labels
from warren.dws.objects.decoding import read
from warren.dws.objects.lustrefilesystems import LustreFileSystem
from warren.dws.storage import globalfs

FINALIZERS = [labels.LUSTRE_FINALIZER]
VOLUME = {"state": "Ready", "persistentVolumeRef": {"name": "global0-volume"}}


def raw(
    namespaces: Mapping[str, Sequence[str]],
    status: Mapping[str, Mapping[str, Any]] | None = None,
    *,
    finalizers: Sequence[str] = FINALIZERS,
    deleting: bool = False,
) -> dict[str, Any]:
    known = {name: {"modes": modes} for name, modes in (status or {}).items()}
    return {
        "metadata": meta("global0", finalizers=finalizers) | (DELETING if deleting else {}),
        "spec": {
            "name": "global0",
            "mgsNids": "10.1.1.1@tcp",
            "mountRoot": "/lus/global0",
            "namespaces": {name: {"modes": list(modes)} for name, modes in namespaces.items()},
        },
        "status": {"namespaces": known},
    }


def decided(found: Object) -> list[Write]:
    return list(globalfs.decide(read(found, LustreFileSystem)))


def patches(found: Object) -> list[Object]:
    writes = decided(found)
    assert all(isinstance(each, Change) and each.resource_version == "7" for each in writes)
    return [each.patch for each in writes if isinstance(each, Change)]


def test_a_namespace_that_is_promised_volumes_waits_for_them() -> None:
    bare = raw({"default": ["ReadWriteMany"]}, finalizers=["other"])
    assert patches(bare) == [{"metadata": {"finalizers": ["other", *FINALIZERS]}}]
    assert patches(raw({"default": ["ReadWriteMany"]})) == [
        {"status": {"namespaces": {"default": {"modes": {"ReadWriteMany": {"state": "Pending"}}}}}}
    ]


def test_one_without_namespaces_is_left_as_it_is() -> None:
    assert decided(raw({}, finalizers=[])) == []
    assert decided(raw({"default": []}, finalizers=[])) == []


def test_a_promise_that_is_taken_back_is_not_told_any_more() -> None:
    pending = {"state": "Pending"}
    found = raw(
        {"a": ["ReadWriteMany"]}, {"a": {"ReadWriteMany": pending, "ReadOnlyMany": pending}}
    )
    assert patches(found) == [{"status": {"namespaces": {"a": {"modes": {"ReadOnlyMany": None}}}}}]
    assert patches(raw({}, {"a": {"ReadWriteMany": pending}})) == [
        {"status": {"namespaces": {"a": None}}}
    ]


def test_volumes_that_another_has_made_are_left_to_it() -> None:
    assert decided(raw({}, {"a": {"ReadWriteMany": VOLUME}})) == []
    assert decided(raw({"a": ["ReadWriteMany"]}, {"a": {"ReadWriteMany": VOLUME}})) == []
    assert decided(raw({}, {"a": {"ReadWriteMany": VOLUME}}, deleting=True)) == []


@pytest.mark.parametrize(
    ("finalizers", "left"), [(FINALIZERS, []), (["other", *FINALIZERS], None), (["other"], None)]
)
def test_a_file_system_goes_when_no_other_guards_it(
    finalizers: list[str], left: list[str] | None
) -> None:
    found = raw({"default": ["ReadWriteMany"]}, finalizers=finalizers, deleting=True)
    assert patches(found) == ([] if left is None else [{"metadata": {"finalizers": left}}])


NAMES = st.sampled_from(["a", "b"])
MODES = st.sampled_from(["ReadWriteMany", "ReadOnlyMany"])
KNOWN = st.dictionaries(
    NAMES, st.dictionaries(MODES, st.sampled_from([{"state": "Pending"}, VOLUME]))
)


@given(namespaces=st.dictionaries(NAMES, st.lists(MODES, unique=True)), known=KNOWN)
def test_one_write_settles_it_and_touches_no_volume(
    namespaces: dict[str, list[str]], known: dict[str, Any]
) -> None:
    before = raw(namespaces, known)
    after = before
    for patch in patches(before):
        after = merge_patch(after, patch)
    assert decided(after) == []
    told = {
        (name, mode): volume
        for name, each in after["status"]["namespaces"].items()
        for mode, volume in each["modes"].items()
    }
    wanted = {(name, mode) for name, modes in namespaces.items() for mode in modes}
    there = {
        (name, mode)
        for name, modes in known.items()
        for mode, volume in modes.items()
        if volume == VOLUME
    }
    assert told.keys() == wanted | there
    assert {place for place, volume in told.items() if volume == VOLUME} == there
