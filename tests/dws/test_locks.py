"""Who holds an NnfStorage, and that file systems of one writer are held by one at a time."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dws.builders import DELETING, after, meta
from warren.base.objects import Change, Key
from warren.dws import labels
from warren.dws.faults import Fault
from warren.dws.objects.decoding import read
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.storage import locks, nnfstorage
from warren.dws.storage.locks import Holding

ONE, TWO = Key("default", "one-0-computes"), Key("default", "two-0-computes")
GUARD = "nnf.cray.hpe.com/one-0-computes"


def held(
    kind: str = "xfs",
    finalizers: Sequence[str] = (labels.STORAGE_FINALIZER,),
    annotations: Mapping[str, str] | None = None,
    *,
    going: bool = False,
) -> NnfStorage:
    found = meta("pers", finalizers=list(finalizers), annotations=annotations or {})
    found |= DELETING if going else {}
    spec = {"fileSystemType": kind, "allocationSets": []}
    return read({"metadata": found, "spec": spec}, NnfStorage)


def claimed(found: NnfStorage, access: Key) -> Change | None:
    """What an access writes that is alone where that is asked of a file system's kind."""
    exclusive = found.spec.file_system_type in locks.EXCLUSIVE_TYPES
    return locks.change_to_hold(found, access, exclusive=exclusive)


def taken(found: NnfStorage, access: Key) -> NnfStorage:
    change = claimed(found, access)
    assert change is not None
    assert change.resource_version == "7"
    return after(found, [change])


def test_an_access_leaves_its_finalizer_and_its_name_as_nnf_has_it() -> None:
    """Case 01 of the vectors, in PreRun and in PostRun."""
    found = taken(held(), ONE)
    assert found.metadata.annotations == {"nnf.cray.hpe.com/access": "one-0-computes/default"}
    assert found.metadata.finalizers == ("nnf.cray.hpe.com/nnf_storage", GUARD)
    assert claimed(found, ONE) is None
    released = locks.change_to_release(found, ONE)
    assert released is not None
    assert released.patch["metadata"]["annotations"] is None
    assert after(found, [released]).metadata.finalizers == held().metadata.finalizers

    annotated = taken(held(annotations={"a": "b"}), ONE)
    change = locks.change_to_release(annotated, ONE)
    assert change is not None
    assert after(annotated, [change]).metadata.annotations == {"a": "b"}


@pytest.mark.parametrize("kind", ["xfs", "ext4"])
def test_a_file_system_of_one_writer_is_mounted_by_one_access_at_a_time(kind: str) -> None:
    with pytest.raises(Fault) as fault:
        claimed(taken(held(kind), ONE), TWO)
    assert (fault.value.severity, fault.value.type) == ("Minor", "User")
    assert f"the {kind} file system pers is mounted" in str(fault.value)
    assert "default/one-0-computes" in fault.value.debug


@pytest.mark.parametrize("kind", ["raw", "gfs2"])
def test_what_may_be_shared_is_held_by_many_and_has_no_annotation(kind: str) -> None:
    """Case 04 of the vectors."""
    found = taken(taken(held(kind), ONE), TWO)
    assert found.metadata.annotations == {}
    assert len(found.metadata.finalizers) == 3


def test_several_hold_a_storage_where_each_mounts_a_part_of_its_own() -> None:
    found = held("xfs")
    for access in (ONE, TWO):
        change = locks.change_to_hold(found, access, exclusive=False)
        assert change is not None
        found = after(found, [change])
        assert locks.change_to_hold(found, access, exclusive=False) is None
    assert found.metadata.annotations == {}
    assert len(found.metadata.finalizers) == 3


def test_storage_that_is_about_to_go_is_not_mounted_any_more() -> None:
    with pytest.raises(Fault, match="is being deleted"):
        claimed(held(going=True), ONE)


def test_flash_stays_until_those_who_hold_it_have_let_go() -> None:
    going = held("raw", (labels.STORAGE_FINALIZER, GUARD), going=True)
    assert nnfstorage.decide(going, []) == ()
    assert nnfstorage.decide(held(going=True), []) != ()


def test_the_holders_of_a_storage_are_found_by_it() -> None:
    def index(found: NnfStorage) -> list[str]:
        metadata = {
            "name": "pers",
            "namespace": "default",
            "finalizers": list(found.metadata.finalizers),
            "annotations": dict(found.metadata.annotations),
        }
        return list(locks.holders_of({"metadata": metadata}))

    assert index(held()) == []
    assert index(taken(held(), ONE)) == ["default/one-0-computes"]
    assert index(held(annotations={labels.LOCK: "a/b"})) == ["b/a"]
    assert index(held(finalizers=(labels.ACCESS_FINALIZER,))) == []


def test_a_name_that_no_finalizer_can_have_is_in_the_annotation_alone() -> None:
    assert len(taken(held(), Key("default", "x" * 63)).metadata.finalizers) == 2
    long = Key("default", "x" * 64)
    found = taken(held(), long)
    assert found.metadata.finalizers == (labels.STORAGE_FINALIZER,)
    assert claimed(found, long) is None
    with pytest.raises(Fault):
        claimed(found, ONE)


STEPS = st.lists(st.tuples(st.sampled_from([ONE, TWO]), st.booleans(), st.booleans()), max_size=30)


@given(steps=STEPS, kind=st.sampled_from(["xfs", "ext4"]))
def test_two_that_try_at_any_time_by_what_they_saw_never_hold_it_both(
    steps: list[tuple[Key, bool, bool]], kind: str
) -> None:
    """Each decides by what it saw last, and a write on what was not the newest is refused."""
    store, version = held(kind), 0
    seen = dict.fromkeys((ONE, TWO), (store, version))
    for access, mounts, looks in steps:
        if looks:
            seen[access] = (store, version)
        view, of = seen[access]
        try:
            change = claimed(view, access) if mounts else locks.change_to_release(view, access)
        except Fault:
            continue
        if change is not None and of == version:
            store, version = after(store, [change]), version + 1
        holders = [each for each in (ONE, TWO) if f"nnf.cray.hpe.com/{each.name}" in _guards(store)]
        assert len(holders) <= 1
        for each in holders:
            assert store.metadata.annotations[labels.LOCK] == f"{each.name}/default"
        assert locks.is_held(store) is bool(holders)


NODES = ("n0", "n1")
PARTS = {"a": frozenset({"n0"}), "b": frozenset({"n1"}), "c": frozenset(NODES), "d": None}
ACCESSES = [
    Holding(access=Key("default", f"{name}-0-{where}"), on_rabbits=where == "servers", nodes=nodes)
    for name, nodes in PARTS.items()
    for where in ("computes", "servers")
]
TRIES = st.lists(st.tuples(st.sampled_from(ACCESSES), st.booleans(), st.booleans()), max_size=40)


@given(steps=TRIES)
def test_a_part_is_never_mounted_on_a_rabbit_and_elsewhere_at_a_time(
    steps: list[tuple[Holding, bool, bool]],
) -> None:
    """Each decides by what it saw last, and a write on what was not the newest is refused."""
    known = {each.access: each for each in ACCESSES}
    store, version = held("xfs"), 0
    seen = dict.fromkeys(known, (store, version))
    for own, mounts, looks in steps:
        if looks:
            seen[own.access] = (store, version)
        view, of = seen[own.access]
        try:
            rivals = [known[each] for each in locks.other_holders(view, own.access)]
            change = locks.change_to_release(view, own.access)
            if mounts:
                locks.check_allocations_free(view, own, rivals)
                change = locks.change_to_hold(view, own.access, exclusive=own.nodes is None)
        except Fault:
            continue
        if change is not None and of == version:
            store, version = after(store, [change]), version + 1
        has = [
            each for each in ACCESSES if f"nnf.cray.hpe.com/{each.access.name}" in _guards(store)
        ]
        for node in NODES:
            here = [each for each in has if each.nodes is None or node in each.nodes]
            assert len(here) < 2 or not any(each.on_rabbits for each in here)


def test_an_access_without_a_finalizer_is_known_by_its_lock() -> None:
    long = Key("default", "x" * 64)
    assert not locks.can_have_access_finalizer(held(), long)
    assert locks.can_have_access_finalizer(held(), ONE)
    found = taken(held(), long)
    assert locks.other_holders(found, long) == []
    assert locks.other_holders(found, ONE) == [long]


def _guards(found: NnfStorage) -> tuple[str, ...]:
    return found.metadata.finalizers
