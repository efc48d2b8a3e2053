"""Return to service, after a test, rabbits that `dws.jobs.abort` disabled, where a site wants it.

When nothing of what was let go is left on a rabbit, its agent makes a small file system there and
gives it back: an NnfStorage that the Storage owns. What the rabbit cannot do is its new reason,
and it stays Disabled.
"""

from typing import Any, Final

from warren.base.objects import Change, Create, Key, Object, Remove, Write
from warren.dws import kinds, labels, reservednames
from warren.dws.objects.nnfstorages import NnfStorage
from warren.dws.objects.storages import Storage
from warren.dws.rabbits import outofservice
from warren.dws.rabbits.outofservice import ServiceAction

_TEST_SIZE: Final = 512 << 20
"""Bytes: xfs takes no less than 300 MiB."""

_PASSED: Final = "passed"
_FAILED: Final = "failed"


def test_key(rabbit: str) -> Key:
    """Return the key of the NnfStorage by which a rabbit is tested."""
    return Key(kinds.DEFAULT_NAMESPACE, f"{reservednames.SELF_TEST_PREFIX}{rabbit}")


def rabbit_of(key: Key) -> str | None:
    """Return the rabbit that an NnfStorage with this key would be the test of, if any."""
    rabbit = key.name.removeprefix(reservednames.SELF_TEST_PREFIX)
    return rabbit if rabbit and key == test_key(rabbit) else None


def is_wanted(storage: Storage, by: str) -> bool:
    """Return whether a rabbit was disabled by `by`, and has not failed a test since."""
    annotations = storage.metadata.annotations
    note = outofservice.note(annotations, labels.DISABLED)
    return (
        storage.spec.state == "Disabled"
        and note.get("by") == by
        and annotations.get(labels.SELF_TEST) != _FAILED
    )


def decide(
    storage: Storage, test: NnfStorage | None, *, wanted: bool, by: str, now: float
) -> list[Write]:
    """Return the next writes for a rabbit's return to service; a test not wanted is removed.

    `test` is the NnfStorage of `test_key`, if it is there.
    """
    passed = storage.metadata.annotations.get(labels.SELF_TEST) == _PASSED
    if test is not None and test.metadata.deleting:
        return []  # whoever's it is, that it is gone is an event
    if test is not None and labels.SELF_TEST not in test.metadata.labels:
        if wanted and not passed:
            why = f"NnfStorage {test.metadata.key} has the name of the test, and is none: remove it"
            return [_record_failure(storage, why, by=by, now=now)]
        test = None  # neither in the way, nor ours to remove
    if test is not None and not _is_own(storage, test):
        return []
    if test is not None:
        error = test.status.error
        removal = Remove(kind=kinds.NNF_STORAGE, key=test.metadata.key)
        if not wanted or passed:
            return [removal]
        if test.status.ready:
            return [_record_verdict(storage, _PASSED), removal]
        if error is not None and error.severity == "Fatal":
            return [_record_failure(storage, error.debug_message, by=by, now=now), removal]
        return []
    if not wanted:
        return []
    if not passed:
        return [Create(kind=kinds.NNF_STORAGE, object=_new_test(storage))]
    return [outofservice.change(storage, ServiceAction.ENABLE, by=by, now=now, reason="")]


def _is_own(storage: Storage, test: NnfStorage) -> bool:
    return labels.is_owner(kinds.STORAGE, storage.metadata, test.metadata.labels)


def _record_verdict(storage: Storage, verdict: str) -> Change:
    return Change(
        kind=kinds.STORAGE,
        key=storage.metadata.key,
        patch={"metadata": {"annotations": {labels.SELF_TEST: verdict}}},
        resource_version=storage.metadata.resource_version,
    )


def _record_failure(storage: Storage, message: str, *, by: str, now: float) -> Change:
    note = outofservice.note(storage.metadata.annotations, labels.DISABLED)
    reason = f"{note.get('reason', '')}; its self-test failed: {message}".lstrip("; ")
    change = outofservice.change(
        storage, ServiceAction.DISABLE, by=by, now=now, reason=reason, force=True
    )
    return outofservice.annotate(change, {labels.SELF_TEST: _FAILED})


def _new_test(storage: Storage) -> Object:
    key, meta = test_key(storage.metadata.name), storage.metadata
    metadata: dict[str, Any] = {
        "name": key.name,
        "namespace": key.namespace,
        "labels": {labels.SELF_TEST: meta.name, **labels.of_owner(kinds.STORAGE, meta)},
        "ownerReferences": labels.owner_references(kinds.STORAGE, meta),
        "finalizers": [labels.STORAGE_FINALIZER],
    }
    allocation_set = {
        "name": "xfs",
        "capacity": _TEST_SIZE,
        "sharedAllocation": True,
        "nodes": [{"name": meta.name, "count": 1}],
    }
    return {
        "metadata": metadata,
        "spec": {
            "fileSystemType": "xfs",
            "userID": 0,
            "groupID": 0,
            "allocationSets": [allocation_set],
        },
    }
