"""Rabbits that were disabled with a job's storage are tested before they are in service again."""

from typing import Any

import msgspec
import pytest

from tests.dws.test_outofservice import NOW, changed, rabbit
from warren.base.objects import Change, Create, Remove, Write
from warren.dws import kinds, labels
from warren.dws.objects.decoding import read
from warren.dws.objects.meta import Error, Meta
from warren.dws.objects.nnfstorages import NnfStorage, NnfStorageStatus
from warren.dws.objects.storages import Storage
from warren.dws.rabbits import outofservice, selftest
from warren.dws.rabbits.outofservice import ServiceAction

KEY = selftest.test_key("r0")
OF_AN_EARLIER_RABBIT = labels.of_owner(
    kinds.STORAGE, Meta(name="r0", namespace="default", uid="uid-earlier")
)


def disabled(verdict: str | None = None) -> Storage:
    found = changed(rabbit(), ServiceAction.DISABLE)
    if verdict is None:
        return found
    carried = {**found.metadata.annotations, labels.SELF_TEST: verdict}
    return _with(found, carried)


def _with(storage: Storage, annotations: dict[str, str]) -> Storage:
    meta = msgspec.structs.replace(storage.metadata, annotations=annotations)
    return msgspec.structs.replace(storage, metadata=meta)


def made() -> NnfStorage:
    (create,) = decided(disabled())
    assert isinstance(create, Create)
    return read({**create.object, "status": {}}, NnfStorage)


def ready() -> NnfStorage:
    return msgspec.structs.replace(made(), status=NnfStorageStatus(ready=True))


def _with_meta(test: NnfStorage, **changed_fields: Any) -> NnfStorage:
    meta = msgspec.structs.replace(test.metadata, **changed_fields)
    return msgspec.structs.replace(test, metadata=meta)


def failing(severity: str) -> NnfStorage:
    error = Error(debug_message="mkfs: no such disk", severity=severity, type="Internal")
    return msgspec.structs.replace(made(), status=NnfStorageStatus(error=error))


def decided(
    storage: Storage, test: NnfStorage | None = None, *, wanted: bool = True
) -> list[Write]:
    return selftest.decide(storage, test, wanted=wanted, by="ann", now=NOW)


def annotated(write: Write) -> dict[str, Any]:
    assert isinstance(write, Change)
    patch: Any = write.patch
    return dict(patch["metadata"]["annotations"])


def test_a_small_file_system_is_made_on_the_rabbit_alone() -> None:
    spec = made().spec
    (one,) = spec.allocation_sets
    assert [(node.name, node.count) for node in one.nodes] == [("r0", 1)]
    assert (spec.file_system_type, one.capacity >= 300 << 20) == ("xfs", True)
    assert made().metadata.key == KEY


def test_once_it_is_there_the_test_is_passed_and_it_is_given_back() -> None:
    note, removed = decided(disabled(), ready())
    assert annotated(note) == {labels.SELF_TEST: "passed"}
    assert removed == Remove(kind=kinds.NNF_STORAGE, key=KEY)


def test_a_rabbit_that_has_passed_is_enabled_when_its_flash_is_back() -> None:
    passed = disabled("passed")
    assert decided(passed, ready()) == [Remove(kind=kinds.NNF_STORAGE, key=KEY)]
    (change,) = decided(passed)
    assert isinstance(change, Change)
    assert change.patch["spec"] == {"state": "Enabled"}
    assert annotated(change) == {labels.DISABLED: None, labels.SELF_TEST: None}


def test_what_the_rabbit_cannot_do_is_its_reason_and_it_stays_disabled() -> None:
    change, removed = decided(disabled(), failing("Fatal"))
    carried = annotated(change)
    assert carried[labels.SELF_TEST] == "failed"
    reason = outofservice.note(carried, labels.DISABLED)["reason"]
    assert reason == "bad disk; its self-test failed: mkfs: no such disk"
    assert removed == Remove(kind=kinds.NNF_STORAGE, key=KEY)
    assert not selftest.is_wanted(disabled("failed"), "ann")


def test_what_may_heal_is_waited_for() -> None:
    assert decided(disabled(), failing("Major")) == decided(disabled(), made()) == []


def test_what_is_not_wanted_any_more_is_taken_away() -> None:
    assert decided(disabled(), made(), wanted=False) == [Remove(kind=kinds.NNF_STORAGE, key=KEY)]
    assert decided(disabled("passed"), wanted=False) == []


def test_what_is_going_or_of_another_owner_is_left_alone() -> None:
    going = _with_meta(ready(), deletion_timestamp="now")
    earlier = _with_meta(made(), labels={**made().metadata.labels, **OF_AN_EARLIER_RABBIT})
    for wanted in (True, False):
        assert decided(disabled(), going, wanted=wanted) == []
        assert decided(disabled(), earlier, wanted=wanted) == []


def test_a_rabbit_whose_test_has_its_name_taken_waits_for_what_is_going_to_be_gone() -> None:
    going = _with_meta(ready(), labels={}, deletion_timestamp="now")

    assert decided(disabled(), going) == []


def test_a_rabbit_whose_test_cannot_be_made_because_its_name_is_taken_says_so() -> None:
    theirs = _with_meta(ready(), labels={})

    (change,) = decided(disabled(), theirs)

    carried = annotated(change)
    assert carried[labels.SELF_TEST] == "failed"
    assert outofservice.note(carried, labels.DISABLED)["reason"] == (
        "bad disk; its self-test failed: NnfStorage default/self-test-r0 has the name of the "
        "test, and is none: remove it"
    )
    assert decided(disabled(), theirs, wanted=False) == []
    (enabled,) = decided(disabled("passed"), theirs)
    assert isinstance(enabled, Change)
    assert enabled.patch["spec"] == {"state": "Enabled"}


@pytest.mark.parametrize(
    ("storage", "by", "wanted"),
    [
        (disabled(), "ann", True),
        (disabled("passed"), "ann", True),
        (disabled(), "bob", False),
        (rabbit("Disabled"), "ann", False),
        (changed(rabbit(), ServiceAction.DRAIN), "ann", False),
    ],
)
def test_only_what_was_disabled_so_returns(storage: Storage, by: str, wanted: bool) -> None:
    assert selftest.is_wanted(storage, by) is wanted


def test_a_new_reason_has_a_rabbit_tested_anew() -> None:
    change = outofservice.change(
        disabled("failed"), ServiceAction.DISABLE, by="ann", now=NOW, reason="again", force=True
    )
    assert annotated(change)[labels.SELF_TEST] is None
