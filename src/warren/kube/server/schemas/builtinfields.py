"""What Kubernetes' own kinds have in their fields, as far as users rely on it. Pure.

They have no schemas here (`builtin.py`): but what is no string is no value of a ConfigMap or a
Secret, and one that is `immutable` stays what it is.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from warren.base.objects import Kind, Object
from warren.kube.server.schemas.causes import Cause, mistyped_cause

_STRING_FIELDS: Final[Mapping[tuple[str, str], tuple[str, ...]]] = {
    ("", "configmaps"): ("data", "binaryData"),
    ("", "secrets"): ("data", "stringData"),
}
"""By kind: the fields whose values are strings."""

_IMMUTABLE_FIELDS: Final = ("data", "binaryData")
"""The fields that cannot be changed of an object with `immutable: true`."""


def violations(kind: Kind, obj: Object, old: Object | None = None) -> list[Cause]:
    """Return what is wrong with an object as it is written; what it has of `old` is skipped."""
    names = _STRING_FIELDS.get((kind.group, kind.plural), ())
    before = old or {}
    return [
        each
        for name in names
        if obj.get(name) != before.get(name)
        for each in _non_strings(name, obj.get(name), before.get(name))
    ]


def _non_strings(name: str, values: Any, before: Any) -> Iterator[Cause]:
    if values is None:
        return
    if not isinstance(values, Mapping):
        yield mistyped_cause(name, "object", values)
        return
    values_before = before if isinstance(before, Mapping) else {}
    for key, value in values.items():
        if value is not None and not isinstance(value, str) and value != values_before.get(key):
            yield mistyped_cause(f"{name}[{key}]", "string", value)


def immutable_violations(kind: Kind, old: Object, new: Object) -> list[Cause]:
    """Return what is wrong with an object in the place of another: what it may not change."""
    if (kind.group, kind.plural) not in _STRING_FIELDS:
        return []
    causes = []
    if kind.plural == "secrets" and old.get("type") != new.get("type"):
        type_message = f'Invalid value: "{new.get("type", "")}": field is immutable'
        causes.append(Cause("type", "FieldValueInvalid", type_message))
    if old.get("immutable") is True:
        changed = [
            name for name in _IMMUTABLE_FIELDS if (old.get(name) or {}) != (new.get(name) or {})
        ]
        unset = ["immutable"] if new.get("immutable") is not True else []
        immutable_message = "Forbidden: field is immutable when `immutable` is set"
        causes += [
            Cause(name, "FieldValueForbidden", immutable_message) for name in (*unset, *changed)
        ]
    return causes
