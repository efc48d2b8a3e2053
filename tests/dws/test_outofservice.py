"""Rabbits that admins take out of service: who, when and why, and what that changes."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warren.base.errors import UserMistake
from warren.dws import labels
from warren.dws.objects.meta import Meta
from warren.dws.objects.storages import Storage, StorageSpec, StorageStatus
from warren.dws.rabbits import outofservice
from warren.dws.rabbits.outofservice import ServiceAction
from warren.dws.rabbits.rabbitstorages import effective_status, is_usable, serves_allocations

NOW = 1_790_000_000.0
SINCE = "2026-09-21T14:13:20Z"


def rabbit(state: str = "Enabled", status: str = "Ready", **annotations: str) -> Storage:
    carried = {f"warren.cluster/{name}": text for name, text in annotations.items()}
    return Storage(
        metadata=Meta(name="r0", namespace="default", annotations=carried, resource_version="7"),
        spec=StorageSpec(state=state),
        status=StorageStatus(status=status),
    )


def changed(storage: Storage, action: ServiceAction, force: bool = False) -> Storage:
    """Return a rabbit as it is after an action, with its status as it was."""
    change = outofservice.change(storage, action, by="ann", now=NOW, reason="bad disk", force=force)
    assert change.resource_version == "7"
    patch: Any = change.patch
    carried: dict[str, Any] = {**storage.metadata.annotations, **patch["metadata"]["annotations"]}
    annotations = {
        key.removeprefix("warren.cluster/"): text for key, text in carried.items() if text
    }
    state = patch.get("spec", {}).get("state", storage.spec.state)
    return rabbit(state, storage.status.status, **annotations)


def test_a_drained_rabbit_takes_no_new_allocations_and_serves_those_that_there_are() -> None:
    drained = changed(rabbit(), ServiceAction.DRAIN)
    assert (is_usable(drained), serves_allocations(drained), effective_status(drained)) == (
        False,
        True,
        "Drained",
    )
    assert outofservice.note_text(drained, labels.DRAINED) == f" by ann since {SINCE}: bad disk"
    assert changed(drained, ServiceAction.UNDRAIN) == rabbit()


def test_a_disabled_rabbit_does_neither() -> None:
    disabled = changed(rabbit(), ServiceAction.DISABLE)
    assert (is_usable(disabled), serves_allocations(disabled), effective_status(disabled)) == (
        False,
        False,
        "Disabled",
    )
    assert outofservice.note(disabled.metadata.annotations, labels.DISABLED) == {
        "by": "ann", "since": SINCE, "reason": "bad disk",
    }  # fmt: skip
    assert changed(disabled, ServiceAction.ENABLE) == rabbit()


def test_what_is_so_already_is_refused_but_for_a_new_reason() -> None:
    for action, undo, word in (
        (ServiceAction.DRAIN, ServiceAction.UNDRAIN, "drained"),
        (ServiceAction.DISABLE, ServiceAction.ENABLE, "disabled"),
    ):
        out = changed(rabbit(), action)
        with pytest.raises(UserMistake, match=f"r0 is {word} already by ann since .*: bad disk"):
            changed(out, action)
        assert changed(out, action, force=True) == out
        with pytest.raises(UserMistake, match=f"r0 is not {word}"):
            changed(rabbit(), undo)


def test_an_annotation_that_was_written_by_hand_is_the_reason() -> None:
    assert outofservice.note_text(rabbit(drained="bad disk"), labels.DRAINED) == ": bad disk"
    assert outofservice.note_text(rabbit(drained='["x"]'), labels.DRAINED) == ': ["x"]'
    assert outofservice.note_text(rabbit(drained=""), labels.DRAINED) == ""
    assert not is_usable(rabbit(drained=""))


@given(st.lists(st.sampled_from(ServiceAction), max_size=8))
def test_draining_and_disabling_do_not_undo_each_other(actions: list[ServiceAction]) -> None:
    storage, drained, disabled = rabbit(), False, False
    for action in actions:
        try:
            storage = changed(storage, action)
        except UserMistake:
            continue
        drained = {ServiceAction.DRAIN: True, ServiceAction.UNDRAIN: False}.get(action, drained)
        disabled = {ServiceAction.DISABLE: True, ServiceAction.ENABLE: False}.get(action, disabled)
    assert is_usable(storage) == (not drained and not disabled)
    assert serves_allocations(storage) == (not disabled)


@pytest.mark.parametrize(
    ("status", "gives_flash", "does_serve"),
    [("Ready", True, True), ("Offline", False, True), ("Drained", False, True),
     ("Failed", False, False), ("Degraded", False, False), ("Starting", False, False)],
)  # fmt: skip
def test_only_rabbits_that_will_be_back_are_waited_for(
    status: str, gives_flash: bool, does_serve: bool
) -> None:
    assert is_usable(rabbit(status=status)) == gives_flash
    assert serves_allocations(rabbit(status=status)) == does_serve
