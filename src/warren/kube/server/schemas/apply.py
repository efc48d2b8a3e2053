"""Server-side apply: which manager owns which field, and what an applied configuration does.

Owners stand in `metadata.managedFields`, one entry for each manager, operation and subresource.
An entry of operation Apply has what its manager asked for last; one of operation Update has
what its manager wrote, until another manager writes it. What the server itself writes into
metadata has no owner.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, Final, NamedTuple

from warren.base.objects import Object
from warren.kube.client import Conflict, Refused
from warren.kube.server.schemas.fieldsets import (
    Fields,
    difference,
    intersection,
    path_text,
    paths,
    union,
)
from warren.kube.server.schemas.typed import (
    Comparison,
    Schema,
    check_unique_elements,
    compare,
    fields_of,
    merged,
    remove_fields,
)

BEFORE_FIRST_APPLY: Final = "before-first-apply"
"""The manager of the fields that an object had before owners were recorded, as in Kubernetes."""

_KUBECTL: Final = "kubectl"
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
"""The annotation in which client-side apply keeps the last configuration."""

_NO_CHANGE: Final = Comparison({}, {})

_TYPE_FIELDS: Final = frozenset({"apiVersion", "kind"})

_SERVER_FIELDS: Final = frozenset(
    {"name", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp",
     "deletionTimestamp", "deletionGracePeriodSeconds", "managedFields"}
)  # fmt: skip

_METADATA: Final[Schema] = {
    "properties": {
        "labels": {},
        "annotations": {},
        "finalizers": {"x-kubernetes-list-type": "set"},
        "ownerReferences": {
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["uid"],
            "items": {"x-kubernetes-map-type": "atomic"},
        },
    }
}


class FieldOwner(NamedTuple):
    """The owner that an entry of managedFields names."""

    operation: str
    manager: str
    version: str
    """The apiVersion of an Update, which distinguishes its entries; empty for Apply."""
    subresource: str

    def __str__(self) -> str:
        name = json.dumps(self.manager, ensure_ascii=False)
        through = f" with subresource {json.dumps(self.subresource)}" if self.subresource else ""
        using = f" using {self.version}" if self.operation == "Update" else ""
        return name + through + using


class FieldConflict(NamedTuple):
    """One field of a conflict, and its owner."""

    field: str
    owner: FieldOwner

    @property
    def message(self) -> str:
        return f"conflict with {self.owner}"


class ApplyConflict(Conflict):
    """Other managers own what the configuration would change. To retry does not help; force would.

    `causes` are what a Status lists, each of type FieldManagerConflict.
    """

    def __init__(self, causes: Iterable[FieldConflict]) -> None:
        self.causes = tuple(causes)
        super().__init__(_message(self.causes))


def apply(
    live: Object | None,
    configuration: Object,
    *,
    manager: str,
    force: bool,
    now: str,
    schema: Schema | None,
    subresource: str = "",
) -> Object:
    """Return the object that `manager` asks for, over the live one, with its owners.

    What the manager asked for before and does not any more is removed, unless others own it.
    The live object itself comes back where nothing changes. Metadata that the server writes is
    the live object's; of a new object it is the configuration's name and namespace. The
    configuration names its apiVersion and kind, and has of the object only the part that may
    be written through the subresource.

    Raises ApplyConflict, unless `force` takes from the others what they own; and Refused for a
    configuration that has managedFields, or lists whose elements cannot be told apart.
    """
    if configuration.get("metadata", {}).get("managedFields"):
        raise Refused("metadata.managedFields: an applied configuration has none")
    owned_schema = _owned_schema(schema)
    wanted_body, live_body = _body(configuration), _body(live)
    check_unique_elements(wanted_body, owned_schema)
    owner = FieldOwner("Apply", manager, "", subresource)
    recorded_entries = _entries(live)
    entries = recorded_entries or _before_first_apply(live, owned_schema, now)
    other_entries = {other: entry for other, entry in entries.items() if other != owner}
    own_fields = _requested_fields(wanted_body, owned_schema)
    last_fields = _fields(entries.get(owner))
    kept_fields = reduce(union, map(_fields, other_entries.values()), own_fields)
    new_body = {
        "metadata": {},
        **remove_fields(
            merged(live_body, wanted_body, owned_schema), owned_schema, last_fields, kept_fields
        ),
    }
    change = compare(live_body, new_body, owned_schema) or _NO_CHANGE
    if not force:
        conceded_fields = _last_applied(live, owned_schema) if manager == _KUBECTL else {}
        _refuse_conflicts(other_entries, difference(change.changed, conceded_fields))
    new_entries = _remove_changed(other_entries, change)
    if own_fields:
        new_entries[owner] = _entry(
            owner, configuration["apiVersion"], own_fields, now, entries.get(owner)
        )
    if live is not None and change == _NO_CHANGE and new_entries == recorded_entries:
        return live
    return _compose(configuration, new_body, live, new_entries)


def track_update(
    old: Object | None,
    new: Object,
    *,
    manager: str,
    now: str,
    schema: Schema | None,
    subresource: str = "",
) -> Object:
    """Return `new` with its owners, after `manager` has written it by other means than apply.

    What it changed is its own alone from now on. `new` itself comes back where
    the owners stay as they are. Other owners that `new` names take their place, if they can be
    read: so kubectl moves its own. One empty entry (`[{}]`) is the API's way to forget them all.
    An object without owners, old or forgotten, stays so until the first apply.
    """
    given_entries = new["metadata"].get("managedFields")
    entries = _entries(old) if given_entries != [{}] else {}
    if old is not None and not entries:
        return _with_managed_fields(new, [])
    if old is not None and _are_valid(given_entries):
        entries = _entries(new)
    change = compare(_body(old), _body(new), _owned_schema(schema)) or _NO_CHANGE
    if old is not None and change == _NO_CHANGE:
        return _with_managed_fields(new, _in_order(entries))
    owner = FieldOwner("Update", manager, new["apiVersion"], subresource)
    new_entries = _remove_changed(entries, change)
    if change.changed:
        own_fields = union(_fields(new_entries.get(owner)), change.changed)
        new_entries[owner] = _entry(owner, owner.version, own_fields, now)
    return _with_managed_fields(new, _in_order(new_entries))


# Objects


def _owned_schema(schema: Schema | None) -> Schema:
    """Return the schema of what can be owned. A whole object is never atomic."""
    return {"properties": {**(schema or {}).get("properties", {}), "metadata": _METADATA}}


def _body(obj: Object | None) -> dict[str, Any]:
    """Return what of an object can be owned, with metadata in any case."""
    body = {name: value for name, value in (obj or {}).items() if name not in _TYPE_FIELDS}
    metadata = body.get("metadata", {})
    body["metadata"] = {name: metadata[name] for name in metadata if name not in _SERVER_FIELDS}
    return body


def _compose(
    configuration: Object, body: Object, live: Object | None, entries: Mapping[FieldOwner, Object]
) -> Object:
    """Return the whole object again: its type, what the server has written, and its owners."""
    names = _SERVER_FIELDS if live is not None else ("name", "namespace")
    source_metadata = (live if live is not None else configuration).get("metadata", {})
    metadata = {name: value for name, value in source_metadata.items() if name in names}
    result = {
        "apiVersion": configuration["apiVersion"],
        "kind": configuration["kind"],
        **body,
        "metadata": {**metadata, **body["metadata"]},
    }
    return _with_managed_fields(result, _in_order(entries))


def _with_managed_fields(obj: Object, managed_fields: Sequence[Object]) -> Object:
    """Return an object with these managedFields: itself, if it has them; none if they are empty."""
    if obj["metadata"].get("managedFields", []) == managed_fields:
        return obj
    metadata = {name: value for name, value in obj["metadata"].items() if name != "managedFields"}
    if managed_fields:
        metadata["managedFields"] = managed_fields
    return {**obj, "metadata": metadata}


# Entries


def _entries(obj: Object | None) -> dict[FieldOwner, Object]:
    """Return the entries of an object by their owners; none if a client wrote other things."""
    managed_fields: Any = obj["metadata"].get("managedFields") if obj is not None else None
    return {_owner(entry): entry for entry in managed_fields} if _are_valid(managed_fields) else {}


def _are_valid(managed_fields: Any) -> bool:
    """Return whether managedFields is a list of valid entries, and not empty."""
    return (
        bool(managed_fields)
        and isinstance(managed_fields, list | tuple)
        and all(map(_is_valid, managed_fields))
    )


def _is_valid(entry: Any) -> bool:
    return (
        isinstance(entry, Mapping)
        and all(isinstance(entry.get(name), str) for name in ("manager", "apiVersion"))
        and entry.get("operation") in ("Apply", "Update")
        and isinstance(entry.get("subresource", ""), str)
        and isinstance(entry.get("time") or "", str)
        and _is_field_set(entry.get("fieldsV1"))
    )


def _is_field_set(fields: Any) -> bool:
    return isinstance(fields, Mapping) and all(map(_is_field_set, fields.values()))


def _owner(entry: Object) -> FieldOwner:
    version = entry["apiVersion"] if entry["operation"] == "Update" else ""
    return FieldOwner(entry["operation"], entry["manager"], version, entry.get("subresource", ""))


def _entry(
    owner: FieldOwner, version: str, fields: Fields, now: str, last: Object | None = None
) -> Object:
    """Return an entry; the `last` one of its owner, if that says the same but for the time."""
    entry = {
        "manager": owner.manager,
        "operation": owner.operation,
        "apiVersion": version,
        "time": now,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
    if owner.subresource:
        entry["subresource"] = owner.subresource
    return last if last is not None and {**last, "time": now} == entry else entry


def _fields(entry: Object | None) -> Fields:
    fields: Fields = entry["fieldsV1"] if entry is not None else {}
    return fields


def _requested_fields(body: Object, owned_schema: Schema) -> Fields:
    """Return what a configuration asks for. Metadata alone is in every object."""
    if not body["metadata"]:
        body = {name: value for name, value in body.items() if name != "metadata"}
    return fields_of(body, owned_schema)


def _before_first_apply(
    live: Object | None, owned_schema: Schema, now: str
) -> dict[FieldOwner, Object]:
    """Return the entry for an object whose owners were never recorded."""
    change = compare(_body(None), _body(live), owned_schema) or _NO_CHANGE
    if live is None or not change.changed:
        return {}
    owner = FieldOwner("Update", BEFORE_FIRST_APPLY, live["apiVersion"], "")
    return {owner: _entry(owner, owner.version, change.changed, now)}


def _remove_changed(
    entries: Mapping[FieldOwner, Object], change: Comparison
) -> dict[FieldOwner, Object]:
    """Return the entries without what has changed; those with nothing left vanish."""
    result: dict[FieldOwner, Object] = {}
    for owner, entry in entries.items():
        fields = difference(difference(_fields(entry), change.changed), change.removed)
        if fields:
            result[owner] = {**entry, "fieldsV1": fields}
    return result


def _in_order(entries: Mapping[FieldOwner, Object]) -> list[Object]:
    """Return entries in the API's order: first what is applied, then by age."""
    return [
        entries[owner]
        for owner in sorted(
            entries, key=lambda each: (each[0], entries[each].get("time") or "", *each[1:])
        )
    ]


def _last_applied(live: Object | None, owned_schema: Schema) -> Fields:
    """Return the fields that kubectl's client-side apply has noted as asked for.

    They are kubectl's, whichever manager wrote them, so that it can go over to applying on the
    server.
    """
    annotations = (live or {}).get("metadata", {}).get("annotations") or {}
    try:
        last_configuration = json.loads(annotations.get(_LAST_APPLIED, ""))
    except ValueError:
        return {}
    if not isinstance(last_configuration, Mapping) or not isinstance(
        last_configuration.get("metadata", {}), Mapping
    ):
        return {}
    return _requested_fields(_body(last_configuration), owned_schema)


def _refuse_conflicts(other_entries: Mapping[FieldOwner, Object], changed: Fields) -> None:
    causes = [
        FieldConflict(path_text(path), owner)
        for owner, entry in sorted(other_entries.items())
        for path in paths(intersection(_fields(entry), changed))
    ]
    if causes:
        raise ApplyConflict(causes)


def _message(causes: Sequence[FieldConflict]) -> str:
    if len(causes) == 1:
        return f"Apply failed with 1 conflict: {causes[0].message}: {causes[0].field}"
    lines = []
    for owner in dict.fromkeys(cause.owner for cause in causes):
        lines.append(f"conflicts with {owner}:")
        lines.extend(f"- {cause.field}" for cause in causes if cause.owner == owner)
    return f"Apply failed with {len(causes)} conflicts: " + "\n".join(lines)
