"""What a writer may write, and what of an object is not its own. Pure."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal

import msgspec
import orjson

from warren.base.objects import Object
from warren.kube.admission import APISERVER, User
from warren.kube.client import Refused
from warren.kube.server.schemas.causes import Cause
from warren.kube.server.storeerrors import AddressMismatch

Propagation = Literal["Background", "Foreground", "Orphan"]

FOREGROUND_FINALIZER: Final = "foregroundDeletion"
ORPHAN_FINALIZER: Final = "orphan"
"""The finalizers of an owner that goes after its dependents, or without them."""


class WriteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How a write is to be done."""

    user: User = APISERVER
    resource_version: str | None = None
    """The resourceVersion that the object must have: what it was decided on."""
    uid: str | None = None
    """The object that is meant: another one of the same name is not."""
    through_status: bool = False
    """Through the status subresource."""
    dry_run: bool = False
    """Refuse what would be refused, and write nothing."""
    manager: str = ""
    """The writer's name in managedFields. Objects without those get none from a nameless writer."""
    propagation: Propagation | None = None
    """What becomes of the dependents of a deleted object; None takes what its finalizers say."""
    report_unknown: Callable[[list[str]], None] = lambda unknown: None
    """Told the paths of fields that are dropped, because no schema has them. May raise."""
    warn: Callable[[str], None] = lambda warning: None
    """Told what admission has to say of a write that it admits."""


DEFAULT_OPTIONS: Final = WriteOptions()


def check_metadata(metadata: Any) -> None:
    """Raise Refused for metadata that readers would stumble over."""
    if not isinstance(metadata, Mapping):
        raise Refused("metadata: this is not an object")
    for name in ("name", "namespace", "generateName"):
        value = metadata.get(name) or ""
        if not isinstance(value, str) or value in (".", "..") or "/" in value or "%" in value:
            raise Refused(f"metadata.{name}: {value!r} cannot be part of a path")
    for name in ("labels", "annotations"):
        values = metadata.get(name) or {}
        # In a patch, None takes a label away.
        if not isinstance(values, Mapping) or not are_strings(
            value for value in values.values() if value is not None
        ):
            raise Refused(f"metadata.{name}: the values of names are strings")
    finalizers = metadata.get("finalizers") or []
    if not isinstance(finalizers, list | tuple) or not are_strings(finalizers):
        raise Refused("metadata.finalizers: this is not a list of strings")
    owners = metadata.get("ownerReferences") or []
    if not isinstance(owners, list | tuple) or not all(map(_names_an_owner, owners)):
        raise Refused(
            "metadata.ownerReferences: each has the strings apiVersion, kind, name and uid"
        )


def _names_an_owner(reference: Any) -> bool:
    return isinstance(reference, Mapping) and all(
        isinstance(reference.get(name), str) and reference[name]
        for name in ("apiVersion", "kind", "name", "uid")
    )


def are_strings(values: Iterable[Any]) -> bool:
    """Return whether all values are strings."""
    return all(isinstance(value, str) for value in values)


def writable_part(
    old: Object, proposed: Object, through_status: bool, has_status: bool
) -> dict[str, Any]:
    """Return the object with what its writer may write; `has_status` if status is a subresource."""
    if through_status and has_status:
        return _with_field_of(old, "status", proposed)
    new = {**proposed, "apiVersion": old["apiVersion"], "kind": old["kind"]}
    return _with_field_of(new, "status", old) if has_status else new


def writable_configuration(configuration: Object, through_status: bool, has_status: bool) -> Object:
    """Return the part of a configuration that its writer may write."""
    if through_status and has_status:
        names = ("apiVersion", "kind", "metadata", "status")
        return {name: configuration[name] for name in names if name in configuration}
    return _with_field_of(configuration, "status", {}) if has_status else configuration


def _with_field_of(obj: Object, name: str, source: Object) -> dict[str, Any]:
    """Return an object with a field as it is in another one, or without it."""
    new = {key: value for key, value in obj.items() if key != name}
    if name in source:
        new[name] = source[name]
    return new


_SERVER_FIELDS = ("name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
                  "generation", "deletionGracePeriodSeconds", "resourceVersion")  # fmt: skip


def check_address(old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    """Raise AddressMismatch where metadata says that it is of an object of another name."""
    name, namespace = new.get("name"), new.get("namespace")
    if name is not None and name != old["name"]:
        raise AddressMismatch(
            f"the name of the object ({name}) does not match the name on the URL ({old['name']})"
        )
    if namespace is not None and namespace != old.get("namespace", namespace):
        raise AddressMismatch(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


_IMMUTABLE_FIELDS = ("uid", "deletionTimestamp", "deletionGracePeriodSeconds")


def immutable_changes(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Cause]:
    """Return what is wrong with metadata that changes what never does. Nulls change nothing."""
    return [
        Cause(
            f"metadata.{name}",
            "FieldValueInvalid",
            f"Invalid value: {orjson.dumps(new[name], default=str).decode()}: field is immutable",
        )
        for name in _IMMUTABLE_FIELDS
        if new.get(name) is not None and new[name] != old.get(name)
    ]


def preserve_server_fields(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return the new metadata with what no writer may change as it was."""
    metadata = {name: value for name, value in new.items() if name not in _SERVER_FIELDS}
    metadata.update((name, old[name]) for name in _SERVER_FIELDS if name in old)
    return metadata


def generation_content(obj: Object, has_status: bool) -> dict[str, Any]:
    """Return what counts for the generation: all but metadata, and status where it is apart."""
    skipped_fields = (
        ("metadata", "status", "apiVersion") if has_status else ("metadata", "apiVersion")
    )
    return {name: value for name, value in obj.items() if name not in skipped_fields}


def deletion_metadata(
    metadata: Mapping[str, Any], options: WriteOptions, now: str
) -> dict[str, Any] | None:
    """Return the metadata of an object that is marked for deletion; None if it can go at once."""
    finalizers = list(metadata.get("finalizers") or ())
    if options.propagation is not None and not metadata.get("deletionTimestamp"):
        finalizers = [
            each for each in finalizers if each not in (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)
        ]
        requested_finalizer = {"Foreground": FOREGROUND_FINALIZER, "Orphan": ORPHAN_FINALIZER}.get(
            options.propagation
        )
        finalizers += [requested_finalizer] if requested_finalizer is not None else []
    if not finalizers:
        return None
    return {
        "deletionTimestamp": now,
        "deletionGracePeriodSeconds": 0,
        **metadata,
        "finalizers": finalizers,
    }
